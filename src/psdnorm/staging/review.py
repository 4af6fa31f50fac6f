"""The epochs that a person should look at, and what they changed."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.constants import EPOCH_S, UNSCORED
from psdnorm.errors import ArgumentError
from psdnorm.io import place, read_bouts
from psdnorm.staging.result_files import annotate
from psdnorm.staging.sleep_statistics import as_probabilities, as_stages, confidence_of, name_of

_UNSCORED_NAME = "unscored"


class Change(NamedTuple):
    """An epoch that was corrected; ``pandas.DataFrame`` takes a list of them.

    Attributes
    ----------
    epoch : int
        Counted from 0.
    onset_s : int
        Seconds from the start of the recording.
    before, after : str
        W, N1, N2, N3, REM or unscored.
    """

    epoch: int
    onset_s: int
    before: str
    after: str


@dataclass(frozen=True, eq=False)
class Correction:
    """A scoring after somebody looked at it.

    Attributes
    ----------
    stages : ndarray of int8, (E,)
        As corrected; as they were where the correction says nothing.
    n_covered : int
        Epochs of which the correction says something, changed or not.
    changes : list of Change
        By time.
    """

    stages: NDArray[np.int8]
    n_covered: int
    changes: list[Change]


def least_confident(probabilities: ArrayLike, n: int) -> NDArray[np.intp]:
    """Return the epochs whose most likely stage is the least likely, least confident first.

    Parameters
    ----------
    probabilities : array of float, (E, 5)
        Epochs that are NaN, as they could not be staged, come before all others.
    n : int
        How many; all E where there are fewer.

    Returns
    -------
    ndarray of int, (min(n, E),)

    Examples
    --------
    >>> least_confident([[0.9, 0.1, 0, 0, 0], [0, 0.4, 0.3, 0.3, 0], [0, 0.2, 0.8, 0, 0]], 2)
    array([1, 2])
    """
    if n < 1:
        raise ArgumentError(f"n is {n}, expected at least one epoch")
    highest = as_probabilities(probabilities).max(axis=1)  # (E,)
    return np.argsort(np.where(np.isnan(highest), -1.0, highest), kind="stable")[:n]


def write_review(
    path: str | Path,
    stages: ArrayLike,
    probabilities: ArrayLike,
    n: int = 50,
    start: datetime | None = None,
    *,
    notice: str | None = None,
) -> NDArray[np.intp]:
    """Write the least confident epochs as EDF+ annotations, to be gone through in EDFbrowser.

    Each says the stage and its probability, such as ``N2? 0.41``: no reader takes that for a
    scoring until somebody puts a stage in its place.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
    probabilities : array of float, (E, 5)
    n : int
        How many epochs, as in :func:`least_confident`.
    start : datetime, optional
        When the recording starts; EDFbrowser lays annotations over a signal by the clock.
    notice : str, optional
        A line for whoever reads the file: an annotation at 0 s of no length.

    Returns
    -------
    ndarray of int, (min(n, E),)
        The epochs written, by time.
    """
    night = as_stages(stages)
    known = as_probabilities(probabilities, len(night))
    confidence = confidence_of(night, known)
    epochs = np.sort(least_confident(known, n))
    texts = [_question(int(night[epoch]), float(confidence[epoch])) for epoch in epochs]
    onsets_s = (EPOCH_S * epochs).tolist()
    first = [] if notice is None else [(0.0, 0.0, notice)]
    questions = [(o, float(EPOCH_S), text) for o, text in zip(onsets_s, texts, strict=True)]
    annotate(path, first + questions, start)
    return epochs


def read_corrected(
    path: str | Path, stages: ArrayLike, start: datetime | None = None
) -> Correction:
    """Read a corrected scoring of a whole night, or of the epochs in a review, and what changed.

    Parameters
    ----------
    path : str or Path
        In any format that :func:`psdnorm.io.read_stages` reads. Epochs that it does not
        mention stay as they were; those that it calls unscored become unscored.
    stages : array of int, (E,)
        As they were before.
    start : datetime, optional
        When the recording starts, as in :func:`psdnorm.io.read_stages`.

    Raises
    ------
    RecordingError
        If the scoring cannot be read, goes beyond the recording or scores no epoch.
    """
    before = as_stages(stages)
    bouts = read_bouts(path, start)
    found = place(bouts, EPOCH_S * len(before), path)
    middles_s = EPOCH_S * (np.arange(len(before)) + 0.5)  # (E,)
    covered = found != UNSCORED
    for bout in bouts:
        if bout.stage == UNSCORED:
            covered |= (bout.onset_s <= middles_s) & (middles_s < bout.onset_s + bout.duration_s)
    after = np.where(covered, found, before)
    changes = [
        Change(
            epoch,
            EPOCH_S * epoch,
            name_of(before[epoch], _UNSCORED_NAME),
            name_of(after[epoch], _UNSCORED_NAME),
        )
        for epoch in np.flatnonzero(before != after).tolist()
    ]
    return Correction(after, int(covered.sum()), changes)


def _question(stage: int, confidence: float) -> str:
    if np.isnan(confidence):
        return f"{name_of(stage, _UNSCORED_NAME)}?"
    return f"{name_of(stage, _UNSCORED_NAME)}? {confidence:.2f}"
