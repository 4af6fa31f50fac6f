"""An electrode that is off, in a derivation that is not flat: its reference is left, alone."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from psdnorm.io.derivation import Weights
from psdnorm.io.edf import read_channels
from psdnorm.io.recording import PausedRecording, Recording
from psdnorm.prepare.quality import FLAT_UV, LEAST_FLAGGED, deviations_uv, percent


def electrodes_of(weights: Weights, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of what a derivation holds against a reference.

    Parameters
    ----------
    weights : dict of int to float
        By place in ``labels``, from :func:`psdnorm.io.derivation.resolve`.
    labels : sequence of str
        The file's channels.

    Returns
    -------
    tuple of str
        None where the file holds the channel itself. References are not among them: files may hold
        the electrode that all others were recorded against, which is flat by right.
    """
    if len(weights) == 1:
        return ()
    return tuple(labels[index].strip() for index, weight in weights.items() if weight > 0)


def flat_epochs(
    electrode: NDArray[np.float32], sfreq: float, speaks: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return the epochs, (E,), in which an electrode is flat and the derivation from it is not.

    Parameters
    ----------
    electrode : ndarray, (T,)
        As it was recorded, in µV.
    sfreq : float
    speaks : ndarray of bool, (E,)
        Whether an epoch of the derivation holds a signal.
    """
    return speaks & (deviations_uv(electrode, sfreq, len(speaks)) < FLAT_UV)


def electrode_flags(
    recording: Recording, electrodes: Mapping[str, Sequence[str]], kept: slice
) -> list[str]:
    """Return which derivations are without one of their electrodes: ``C3-A2 without C3 12 %``.

    Parameters
    ----------
    recording : Recording
        As it was read from its file, in which the electrodes are looked up.
    electrodes : mapping of str to sequence of str
        Labels of the electrodes of each channel, from :func:`electrodes_of`.
    kept : slice
        The epochs that count.

    Returns
    -------
    list of str
        From 1 % of the epochs on that have no gap in them.
    """
    n_epochs, n_samples = len(recording.stages), recording.signal.shape[1]
    measured = np.ones(n_epochs, bool)
    if isinstance(recording, PausedRecording):
        measured = ~recording.in_gap
    flags = []
    for name, derived in zip(recording.channels, recording.signal, strict=True):
        if not electrodes[name]:
            continue
        speaks = deviations_uv(derived, recording.sfreq, n_epochs) >= FLAT_UV
        for label in electrodes[name]:
            # what the recording lacks of the file was cut off its beginning
            electrode = read_channels(recording.source, [label]).signal[0, -n_samples:]
            flat = flat_epochs(electrode, recording.sfreq, speaks)
            counted = flat[kept][measured[kept]]
            share = float(counted.mean()) if counted.size else 0.0
            if share >= LEAST_FLAGGED:
                flags.append(f"{name} without {_in_words(label)} {percent(share)}")
    return flags


def _in_words(label: str) -> str:
    """Return a label as an index can hold it: flags have semicolons between them."""
    return "".join(sign if sign.isprintable() and sign != ";" else "?" for sign in label)
