"""How many times fewer training subjects a norm needs for the same accuracy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.evaluation.statistics.basis import DECIMALS, scipy


@dataclass(frozen=True, kw_only=True)
class FewerSubjectsResult:
    """A factor in the number of training subjects.

    Attributes
    ----------
    factor : float
        Training subjects of the reference over those that the norm needs for the same score. NaN
        where the curve does not tell.
    at_least : float
        A lower bound of the factor where the norm is as good from its smallest size on; else NaN.
    target : float
        Score of the reference at its largest size.
    reference_size, norm_size : float
        Training subjects behind the two.
    n_sizes : int
        Sizes on the norm's curve.
    left_out : tuple of float
        Sizes of which one of the two has no score.
    note : str
        Why the factor is NaN, or that the norm's curve was smoothed.
    """

    factor: float
    at_least: float
    target: float
    reference_size: float
    norm_size: float
    n_sizes: int
    left_out: tuple[float, ...]
    note: str


def fewer_subjects_factor(
    sizes: ArrayLike, reference_scores: ArrayLike, norm_scores: ArrayLike
) -> FewerSubjectsResult:
    """Read off the training-size curves how many times fewer subjects a norm needs.

    The norm's scores are made to rise with the size (isotonic regression: where more subjects did
    worse, both get their mean) and joined by lines over log N. The factor is the largest size of
    the reference over the size at which that curve first meets the reference's score there.

    Parameters
    ----------
    sizes : array of float, (n,)
        Training subjects, in any order: of all cohorts together, as ``balanced@400`` of a cohort
        with 61 subjects trains on 61.
    reference_scores, norm_scores : array of float, (n,)
        Higher is better; NaN where a size was not run.

    Returns
    -------
    FewerSubjectsResult

    Examples
    --------
    >>> result = fewer_subjects_factor([100, 400, 1600], [0.70, 0.74, 0.76], [0.74, 0.76, 0.78])
    >>> round(result.factor, 6), round(result.norm_size, 6)
    (4.0, 400.0)
    """
    n, reference, norm = (
        values.round(DECIMALS) for values in _checked(sizes, reference_scores, norm_scores)
    )
    known, on_curve = ~np.isnan(reference), ~np.isnan(norm)
    left_out = tuple(n[~(known & on_curve)].tolist())
    size = target = np.nan
    if known.any():
        size, target = float(n[known][-1]), float(reference[known][-1])
    norm_size, at_least, note = _read_off(n[on_curve], norm[on_curve], size, target)
    return FewerSubjectsResult(
        factor=size / norm_size,
        at_least=at_least,
        target=target,
        reference_size=size,
        norm_size=norm_size,
        n_sizes=int(on_curve.sum()),
        left_out=left_out,
        note=note,
    )


def _read_off(
    sizes: NDArray, scores: NDArray, reference_size: float, target: float
) -> tuple[float, float, str]:
    """Return the size that the norm needs, the least factor if it needs no more, and a note."""
    if np.isnan(target):
        return np.nan, np.nan, "the reference has no score"
    if len(scores) < 2:
        return np.nan, np.nan, f"a curve needs two sizes or more, found {len(scores)} for the norm"
    rising = scipy().optimize.isotonic_regression(scores).x.round(DECIMALS)
    notes = []
    if (rising != scores).any():
        notes.append("the norm's scores do not rise throughout, and were smoothed")
    size = at_least = np.nan
    if rising[-1] < target:
        notes.append(
            f"the norm never reaches {target:.4g}, the reference's with {reference_size:,.0f}"
        )
    elif rising[0] >= target:
        at_least = float(reference_size / sizes[0])
        notes.append(f"the norm is as good from its smallest size on: at least ×{at_least:.3g}")
    else:
        size = _first_size(sizes, rising, target)
    return size, at_least, "; ".join(notes)


def _first_size(sizes: NDArray, rising: NDArray, target: float) -> float:
    """Return the size at which a rising curve over log N first meets the target."""
    after = int(np.searchsorted(rising, target))  # the first that is not below it
    before = after - 1
    part = (target - rising[before]) / (rising[after] - rising[before])
    logs = np.log(sizes)
    return float(np.exp(logs[before] + part * (logs[after] - logs[before])))


def _checked(sizes: ArrayLike, *scores: ArrayLike) -> list[NDArray[np.float64]]:
    """Return sizes and scores as arrays, by rising size."""
    try:
        arrays = [np.asarray(values, dtype=np.float64) for values in (sizes, *scores)]
    except (TypeError, ValueError):
        raise DtypeError(
            "sizes, reference_scores or norm_scores has entries that are not numbers, expected "
            "numbers of subjects and scores"
        ) from None
    shapes = [array.shape for array in arrays]
    if arrays[0].ndim != 1 or len(set(shapes)) > 1:
        raise ShapeError(
            f"sizes, reference_scores and norm_scores have shapes {shapes[0]}, {shapes[1]} and "
            f"{shapes[2]}, expected the same, (n,)"
        )
    if not (np.isfinite(arrays[0]) & (arrays[0] > 0)).all():
        raise ArgumentError("sizes has entries that are not above 0, expected numbers of subjects")
    if any(np.isinf(array).any() for array in arrays):
        raise ArgumentError("reference_scores or norm_scores has infinite entries, expected scores")
    if len(np.unique(arrays[0])) < len(arrays[0]):
        raise ArgumentError("sizes has a number more than once, expected one score for each")
    order = np.argsort(arrays[0])
    return [array[order] for array in arrays]
