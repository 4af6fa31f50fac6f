"""Stages and probabilities of a night, checked once where they come in."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.io import STAGES, UNSCORED

# half precision sums to 1 no better than this
_SUM_TOLERANCE = 1e-2


def as_stages(values: ArrayLike, name: str = "stages") -> NDArray[np.int8]:
    """Return the stages of a night, (E,); refuse what are none.

    Parameters
    ----------
    values : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored.
    name : str
        What the caller's argument is called, for the error.
    """
    stages = np.asarray(values)
    if stages.ndim != 1:
        raise ShapeError(f"{name} has shape {stages.shape}, expected (E,), one stage per epoch")
    if stages.size == 0:
        return stages.astype(np.int8)
    if stages.dtype.kind not in "iu":
        raise ArgumentError(f"{name} is of type {stages.dtype}, expected integers")
    if stages.min() < UNSCORED or stages.max() >= len(STAGES):
        raise ArgumentError(
            f"{name} has values from {stages.min()} to {stages.max()}, expected stages 0 to "
            f"{len(STAGES) - 1}, or {UNSCORED} where unscored"
        )
    return stages.astype(np.int8)


def as_probabilities(values: ArrayLike, n_epochs: int | None = None) -> NDArray[np.float64]:
    """Return the probabilities of a night, (E, 5); refuse what are none.

    Parameters
    ----------
    values : array of float, (E, 5)
        Rows sum to 1, or are NaN throughout where an epoch could not be staged.
    n_epochs : int, optional
        E, where it is known.
    """
    probabilities = np.asarray(values)
    two_axes = probabilities.ndim == 2 and probabilities.shape[1] == len(STAGES)
    if not two_axes or n_epochs not in (None, len(probabilities)):
        epochs = "E" if n_epochs is None else n_epochs
        raise ShapeError(
            f"probabilities has shape {probabilities.shape}, expected ({epochs}, {len(STAGES)})"
        )
    if probabilities.dtype.kind != "f":
        raise ArgumentError(f"probabilities is of type {probabilities.dtype}, expected floats")
    probabilities = probabilities.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        off = np.abs(probabilities.sum(axis=1) - 1) > _SUM_TOLERANCE  # False where NaN
    outside = (probabilities < 0) | (probabilities > 1 + _SUM_TOLERANCE)
    missing = np.isnan(probabilities)
    wrong = off | outside.any(axis=1) | (missing.any(axis=1) & ~missing.all(axis=1))
    if wrong.any():
        epoch = int(np.flatnonzero(wrong)[0])
        raise ArgumentError(
            f"probabilities has {probabilities[epoch].tolist()} at epoch {epoch}, expected five "
            "from 0 to 1 that sum to 1, or NaN where it could not be staged"
        )
    return probabilities


def confidence_of(
    stages: NDArray[np.int8], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probability of each epoch's stage, (E,); NaN where it has none."""
    of_stage = np.take_along_axis(probabilities, np.maximum(stages, 0)[:, None], axis=1)[:, 0]
    return np.where(stages == UNSCORED, np.nan, of_stage)


def name_of(stage: int, unscored: str) -> str:
    """Return a stage's AASM name."""
    return STAGES[stage] if stage != UNSCORED else unscored
