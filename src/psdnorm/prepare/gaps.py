"""A recording that pauses: what lies between its gaps is prepared as if they were not there.

A pause is no flat signal: it must neither refuse a channel nor decide how it is scaled.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.io.recording import EPOCH_S, UNSCORED, PausedRecording, Recording
from psdnorm.prepare.preprocess import Prepared, preprocess
from psdnorm.prepare.quality import percent
from psdnorm.prepare.recipe import Recipe


def between_gaps(recording: Recording, in_gap: NDArray[np.bool_]) -> Recording:
    """Return the epochs that have no gap in them, one after the other.

    Parameters
    ----------
    recording : Recording
        Returned as it is where no epoch has a gap.
    in_gap : ndarray of bool, (E,)

    Raises
    ------
    RecordingError
        If there is none.
    """
    if not in_gap.any():
        return recording
    kept = np.flatnonzero(~in_gap)
    if not len(kept):
        raise RecordingError(
            f"{recording.source} pauses in each of its {len(in_gap)} epochs of {EPOCH_S} s, "
            "expected one without a pause at least"
        )
    length = EPOCH_S * recording.sfreq
    # the borders of epochs in the result; they may lie between samples
    edges = np.rint(np.arange(len(kept) + 1) * length).astype(int)
    signal = np.empty((len(recording.signal), int(np.ceil(len(kept) * length))), np.float32)
    for place, epoch in enumerate(kept.tolist()):
        end = signal.shape[1] if place == len(kept) - 1 else edges[place + 1]
        n_samples = end - edges[place]
        first = min(round(epoch * length), recording.signal.shape[1] - n_samples)
        signal[:, edges[place] : end] = recording.signal[:, first : first + n_samples]
    return Recording(
        signal,
        recording.channels,
        recording.sfreq,
        recording.stages[kept],
        recording.start,
        recording.source,
    )


def in_time(epochs: NDArray[Any], in_gap: NDArray[np.bool_], fill: int = 0) -> NDArray[Any]:
    """Put epochs that have no gap, (n, ...), where they were in time, (E, ...).

    Parameters
    ----------
    epochs : ndarray, (n, ...)
        Returned as they are where no epoch has a gap.
    in_gap : ndarray of bool, (E,)
    fill : int
        What stands in the others.
    """
    if not in_gap.any():
        return epochs
    whole = np.full((len(in_gap), *epochs.shape[1:]), fill, epochs.dtype)
    whole[~in_gap] = epochs
    return whole


def preprocess_night(recording: Recording, recipe: Recipe, cohort: str = "") -> Prepared:
    """Do what :func:`preprocess` does, to what lies between the gaps of a night that pauses.

    Epochs with a gap in them are 0 and unscored. Where wake is trimmed around sleep, they do not
    count as wake, and none is left before the first epoch or after the last.

    Parameters
    ----------
    recording, recipe, cohort
        As in :func:`preprocess`.
    """
    if not isinstance(recording, PausedRecording) or not recording.in_gap.any():
        return preprocess(recording, recipe, cohort)
    in_gap = recording.in_gap
    prepared = preprocess(between_gaps(recording, in_gap), recipe, cohort)
    measured = np.flatnonzero(~in_gap)[prepared.first_epoch :][: len(prepared.stages)]
    within = in_gap[measured[0] : measured[-1] + 1]
    paused = [f"paused {percent(float(within.mean()))}"] if within.any() else []
    return Prepared(
        in_time(prepared.signals, within),
        in_time(prepared.stages, within, UNSCORED),
        (*prepared.flags, *paused),
        int(measured[0]),
    )
