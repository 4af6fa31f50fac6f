"""Who gains, and how gains depend on the size of the training set."""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.evaluation.statistics.basis import DECIMALS, Basis, check_share, complete_blocks, scipy


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovedResult(Basis):
    """How many subjects are better off.

    Attributes
    ----------
    norm, reference : str
    improved, tied, worse : int
        Subjects whose score is higher, the same, or lower than under the reference.
    share, low, high : float
        Share of all who improved, ties among them, and its Wilson interval.
    confidence : float
    """

    norm: str
    reference: str
    improved: int
    tied: int
    worse: int
    share: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, eq=False, kw_only=True)
class HardestResult(Basis):
    """Gain of the subjects with the lowest scores.

    Attributes
    ----------
    norm, reference : str
    by : str
        What says who is hard: "reference" or "mean".
    n_hardest : int
    threshold : float
        The highest score among them, of that which says who is hard.
    gain, gain_of_all : float
        Mean difference of norm and reference over the hardest, and over all subjects.
    """

    norm: str
    reference: str
    by: str
    n_hardest: int
    threshold: float
    gain: float
    gain_of_all: float


def share_improved(
    values: pd.DataFrame, norm: str, reference: str, confidence: float = 0.95
) -> ImprovedResult:
    """Count the subjects that a norm improves.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms)
        Higher is better. Subjects that one of the two lacks are left out and counted.
    norm, reference : str
        Columns of ``values``.
    confidence : float
        Of the Wilson interval, which takes subjects for independent.

    Returns
    -------
    ImprovedResult
        Shares are NaN where nobody is left.

    Examples
    --------
    >>> scores = pd.DataFrame({"batch": [0.5, 0.6, 0.7, 0.8], "psd": [0.6, 0.7, 0.7, 0.7]})
    >>> result = share_improved(scores, "psd", "batch")
    >>> result.share, result.tied, round(result.low, 2), round(result.high, 2)
    (0.5, 1, 0.15, 0.85)
    """
    check_share("confidence", confidence)
    kept, basis = _pair(values, norm, reference)
    signs = np.sign((kept[norm] - kept[reference]).to_numpy())
    n, improved = len(kept), int((signs > 0).sum())
    share, low, high = np.nan, np.nan, np.nan
    if n:
        share = improved / n
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        low, high = max(0.0, middle - half), min(1.0, middle + half)
    return ImprovedResult(
        norm=norm,
        reference=reference,
        improved=improved,
        tied=int((signs == 0).sum()),
        worse=int((signs < 0).sum()),
        share=share,
        low=low,
        high=high,
        confidence=confidence,
        **basis,
    )


def gain_on_hardest(
    values: pd.DataFrame,
    norm: str,
    reference: str,
    share: float = 0.2,
    by: Literal["reference", "mean"] = "reference",
) -> HardestResult:
    """Average the gain over the subjects that are hardest.

    Who is hardest *under the reference* was partly unlucky under the reference, and does better
    under anything else, the same network with another seed included: by regression to the mean
    this choice favours the norm. The mean of both scores favours neither where both are as noisy.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms)
        Higher is better. Subjects that one of the two lacks are left out and counted.
    norm, reference : str
        Columns of ``values``.
    share : float
        Of the subjects. Those who tie with the last of them belong to the hardest, too.
    by : {"reference", "mean"}
        Lowest score under the reference, as a scatter plot shows it, or lowest mean of both.

    Returns
    -------
    HardestResult
        Gains are NaN where nobody is left.
    """
    check_share("share", share)
    if by not in ("reference", "mean"):
        raise ArgumentError(f"by is {by!r}, expected 'reference' or 'mean'")
    kept, basis = _pair(values, norm, reference)
    gains = (kept[norm] - kept[reference]).to_numpy()
    score = (kept[reference] if by == "reference" else kept.mean(axis=1).round(DECIMALS)).to_numpy()
    hardest = np.zeros(len(kept), bool)
    threshold = np.nan
    if len(kept) and by == "reference":
        basis["note"] = f"hardest by the scores of {reference} itself, which favours {norm}"
    if len(kept):
        place = max(1, round(share * len(kept))) - 1
        threshold = float(np.partition(score, place)[place])
        hardest = score <= threshold
    return HardestResult(
        norm=norm,
        reference=reference,
        by=by,
        n_hardest=int(hardest.sum()),
        threshold=threshold,
        gain=float(gains[hardest].mean()) if len(kept) else np.nan,
        gain_of_all=float(gains.mean()) if len(kept) else np.nan,
        **basis,
    )


def _pair(values: pd.DataFrame, norm: str, reference: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the scores of two norms for those who have both, and the basis."""
    for name, found in (("norm", norm), ("reference", reference)):
        if found not in values:
            known = ", ".join(map(str, values.columns))
            raise ArgumentError(f"{name} is {found!r}, expected one of {known}")
    if norm == reference:
        raise ArgumentError(f"norm and reference are both {norm!r}, expected two norms")
    kept, basis = complete_blocks(values[[norm, reference]])
    note = "" if len(kept) else f"no block is left that {norm} and {reference} both have"
    return kept, {**basis, "note": note}


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
