"""An electrode that is off, in a derivation that is not flat: its reference is left, alone."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from psdnorm.recordings import UNSCORED, Recording
from psdnorm.recordings.quality import examine, percent
from psdnorm.recordings.recording import whole_epochs
from psdnorm.staging.conditions import UNUSUAL_SHARE, Condition
from psdnorm.staging.planning import PlannedChannel
from psdnorm.staging.sources import Source
from psdnorm.staging.verdict import UNUSUAL


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
        for electrode in each.electrodes:
            speaks = measured[each.name]
            flat = _flat_epochs(source, electrode, each.factor)[: len(speaks)]
            share = float(np.mean(flat & speaks))
            if share >= UNUSUAL_SHARE:
                sentence = (
                    f"{each.name} is without {electrode} in {percent(share)} of the epochs, where "
                    "that electrode is flat."
                )
                found.append(Condition(each.name, "electrode", share, UNUSUAL, sentence))
    return found


def _flat_epochs(source: Source, electrode: str, factor: float) -> NDArray[np.bool_]:
    """Return which epochs, (E,), of a channel as it was recorded are flat."""
    read = source.read({electrode: electrode})
    signal = read.signal if factor == 1 else read.signal * np.float32(factor)
    stages = np.full(whole_epochs(signal.shape[1] / read.sfreq), UNSCORED, np.int8)
    recording = Recording(signal, (electrode,), read.sfreq, stages, None, read.source)
    return examine(recording).flat[:, 0]
