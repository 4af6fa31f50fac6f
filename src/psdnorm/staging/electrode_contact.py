"""Electrodes that are off make a night unusual."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from psdnorm.prepare.electrodes import flat_epochs
from psdnorm.prepare.quality import percent
from psdnorm.staging.conditions import UNUSUAL_SHARE, Condition
from psdnorm.staging.derivations import PlannedChannel
from psdnorm.staging.sources import Source
from psdnorm.staging.trust_verdict import UNUSUAL


def electrode_conditions(
    source: Source, planned: Sequence[PlannedChannel], measured: Mapping[str, NDArray[np.bool_]]
) -> list[Condition]:
    """Look for electrodes that are flat where the derivation from them is not.

    Parameters
    ----------
    source : Source
    planned : sequence of PlannedChannel
    measured : mapping of str to ndarray of bool, (E,)
        Which epochs of the channels that can be used hold a signal.

    Returns
    -------
    list of Condition
        Unusual and no worse: files may hold the electrode that all others were recorded against,
        which is flat by right.
    """
    found = []
    for each in planned:
        if each.name not in measured:
            continue
        speaks = measured[each.name]
        for electrode in each.electrodes:
            read = source.read({electrode: electrode})
            signal_uv = read.signal[0] * np.float32(each.factor)
            share = float(np.mean(flat_epochs(signal_uv, read.sfreq, speaks)))
            if share >= UNUSUAL_SHARE:
                sentence = (
                    f"{each.name} is without {electrode} in {percent(share)} of the epochs, where "
                    "that electrode is flat."
                )
                found.append(Condition(each.name, "electrode", share, UNUSUAL, sentence))
    return found
