"""Metrics of sleep staging: accuracy, F1, kappa, confusion, calibration.

Not scikit-learn's, which take the epochs of one subject: these take the counts of all at once.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.constants import STAGES, UNSCORED
from psdnorm.errors import ArgumentError, ShapeError

N_STAGES = len(STAGES)


def confusion_matrix(true: ArrayLike, predicted: ArrayLike) -> NDArray[np.int64]:
    """Count epochs by true stage (rows) and predicted stage (columns), (5, 5).

    Both are (n,), 0…4 for W, N1, N2, N3, REM. Epochs where ``true`` is -1 are unscored and ignored.

    Examples
    --------
    >>> confusion_matrix([0, 2, 2, -1], [0, 2, 1, 4])[2].tolist()
    [0, 1, 1, 0, 0]
    """
    stages = as_stages(true)
    return count_confusions(stages, np.asarray(predicted), np.zeros(stages.shape, np.intp), 1)[0]


def accuracy(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return the share of correctly predicted epochs, (…,)."""
    counts = _checked(confusion)
    return _ratio(_right(counts).sum(axis=-1), counts.sum(axis=(-2, -1)))


def balanced_accuracy(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return the mean recall over the stages that occur in the scoring, (…,)."""
    counts = _checked(confusion)
    return _mean_known(_ratio(_right(counts), counts.sum(axis=-1)))


def f1_per_class(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return the F1 score of each stage, (…, 5).

    NaN for a stage that neither occurs nor is predicted, like scikit-learn with
    ``zero_division=nan``; 0 for one that only occurs or is only predicted.
    """
    counts = _checked(confusion)
    return _ratio(2 * _right(counts), counts.sum(axis=-1) + counts.sum(axis=-2))


def macro_f1(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return the mean F1 score over the stages that occur or are predicted, (…,)."""
    return _mean_known(f1_per_class(confusion))


def weighted_f1(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return the mean F1 score, each stage weighted by its number of true epochs, (…,)."""
    counts = _checked(confusion)
    weights = counts.sum(axis=-1)
    scores = np.nan_to_num(f1_per_class(counts))  # NaN only where the weight is 0
    return _ratio((scores * weights).sum(axis=-1), weights.sum(axis=-1))


def cohen_kappa(confusion: ArrayLike) -> NDArray[np.float64]:
    """Return Cohen's kappa, the agreement beyond chance, (…,).

    Also NaN if truth and prediction are one and the same stage throughout: chance always agrees.
    """
    counts = _checked(confusion)
    total = counts.sum(axis=(-2, -1))
    true, predicted = counts.sum(axis=-1), counts.sum(axis=-2)
    by_chance = _ratio((true * predicted).sum(axis=-1), total)
    return 1 - _ratio(total - _right(counts).sum(axis=-1), total - by_chance)


def as_stages(true: ArrayLike) -> NDArray[np.intp]:
    """Validate true stages and return them as integers, (n,)."""
    stages = np.asarray(true)
    if stages.ndim != 1:
        raise ShapeError(f"true has shape {stages.shape}, expected (n,)")
    _check_stages("true", stages, UNSCORED, f", or {UNSCORED} where unscored")
    return stages.astype(np.intp)


def count_confusions(
    true: NDArray, predicted: NDArray, groups: NDArray, n_groups: int
) -> NDArray[np.int64]:
    """Count epochs by group, true and predicted stage, (G, 5, 5); all arrays are (n,)."""
    if predicted.shape != true.shape:
        raise ShapeError(
            f"predicted has shape {predicted.shape}, expected that of true, {true.shape}"
        )
    scored = true != UNSCORED
    stages = predicted[scored]
    _check_stages("predicted", stages, 0, " at scored epochs")
    cells = (groups[scored] * N_STAGES + true[scored]) * N_STAGES + stages.astype(np.intp)
    counts = np.bincount(cells, minlength=n_groups * N_STAGES**2)
    return counts.reshape(n_groups, N_STAGES, N_STAGES).astype(np.int64)


def _check_stages(what: str, stages: NDArray, least: int, where: str) -> None:
    if stages.size and stages.dtype.kind not in "iu":
        raise ArgumentError(f"{what} is of type {stages.dtype}, expected integers")
    if stages.size and (stages.min() < least or stages.max() >= N_STAGES):
        raise ArgumentError(
            f"{what} has values from {stages.min()} to {stages.max()}, expected stages 0 to "
            f"{N_STAGES - 1}{where}"
        )


def _checked(confusion: ArrayLike) -> NDArray[np.float64]:
    """Validate counts and return them as floats: exact up to 2**53, and safe from overflow."""
    counts = np.asarray(confusion, dtype=np.float64)
    if counts.shape[-2:] != (N_STAGES, N_STAGES):
        raise ShapeError(
            f"confusion has shape {counts.shape}, expected (…, {N_STAGES}, {N_STAGES})"
        )
    if not (counts >= 0).all():
        raise ArgumentError("confusion has entries that are negative or NaN, expected counts")
    return counts


def _right(counts: NDArray) -> NDArray:
    return np.diagonal(counts, axis1=-2, axis2=-1)  # (…, 5)


def _ratio(part: NDArray, whole: NDArray) -> NDArray[np.float64]:
    """Divide; NaN where the denominator is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole != 0)


def _mean_known(values: NDArray) -> NDArray[np.float64]:
    """Return the mean over the last axis, ignoring NaN; NaN if all values are."""
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0).sum(axis=-1), known.sum(axis=-1))


N_BINS = 15
# deviation from 1 that the sum of five bfloat16 probabilities may have; that of logits has more
_MOST_OFF = 0.02


@dataclass(frozen=True)
class CalibrationBins:
    """Sums over the epochs in each of B confidence bins; those of two sets of epochs can be added.

    Bin b holds confidences in (b / B, (b + 1) / B].
    """

    counts: NDArray[np.int64]  # scored epochs, (…, B)
    correct: NDArray[np.int64]  # correctly predicted epochs among these, (…, B)
    confidence_sums: NDArray[np.float64]  # sums of their highest probabilities, (…, B)

    def __add__(self, other: Self) -> "CalibrationBins":
        if self.counts.shape != other.counts.shape:
            raise ShapeError(
                f"bins of shape {self.counts.shape} cannot be added to {other.counts.shape}"
            )
        return CalibrationBins(
            self.counts + other.counts,
            self.correct + other.correct,
            self.confidence_sums + other.confidence_sums,
        )

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Share of correct predictions per bin, (…, B); NaN in an empty bin."""
        return _ratio(self.correct, self.counts)

    @property
    def mean_confidence(self) -> NDArray[np.float64]:
        """Mean confidence per bin, (…, B); NaN in an empty bin."""
        return _ratio(self.confidence_sums, self.counts)


def calibration_bins(
    probabilities: ArrayLike, true: ArrayLike, n_bins: int = N_BINS
) -> CalibrationBins:
    """Bin scored epochs by the confidence of their prediction, in bins of equal width.

    ``probabilities`` are (n, 5), ``true`` stages (n,), -1 where unscored; the bins are (n_bins,).
    """
    stages = as_stages(true)
    p = as_probabilities(probabilities, stages)
    bins = count_bins(stages, p, np.zeros(stages.shape, np.intp), 1, n_bins)
    return CalibrationBins(bins.counts[0], bins.correct[0], bins.confidence_sums[0])


def expected_calibration_error(bins: CalibrationBins) -> NDArray[np.float64]:
    """Return the mean gap between accuracy and confidence, bins weighted by epochs, (…,).

    NaN if no epoch was scored.
    """
    gaps = np.abs(bins.correct - bins.confidence_sums).sum(axis=-1)
    return _ratio(gaps, bins.counts.sum(axis=-1))


def as_probabilities(probabilities: ArrayLike, true: NDArray) -> NDArray[np.float64]:
    """Validate and return probabilities, (n, 5): no logits, and no NaN in scored epochs."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(true), N_STAGES):
        raise ShapeError(f"probabilities have shape {p.shape}, expected {(len(true), N_STAGES)}")
    scored = p[true != UNSCORED]
    if not ((scored >= 0).all() and (np.abs(scored.sum(axis=-1) - 1) <= _MOST_OFF).all()):
        raise ArgumentError(
            "probabilities has scored epochs that are NaN, negative or do not add up to 1, "
            "expected the softmax of a network"
        )
    return p


def count_bins(
    true: NDArray, probabilities: NDArray, groups: NDArray, n_groups: int, n_bins: int = N_BINS
) -> CalibrationBins:
    """Bin scored epochs by group and confidence, (G, B), without validating the arrays."""
    if type(n_bins) is not int or n_bins < 1:
        raise ArgumentError(f"n_bins is {n_bins!r}, expected a positive integer")
    scored = true != UNSCORED
    p = probabilities[scored]
    confidence = np.minimum(p.max(axis=-1), 1.0)
    correct = p.argmax(axis=-1) == true[scored]
    edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    cells = groups[scored] * n_bins + np.searchsorted(edges, confidence, side="left")

    def sums(weights: NDArray | None) -> NDArray:
        return np.bincount(cells, weights, n_groups * n_bins).reshape(n_groups, n_bins)

    return CalibrationBins(
        sums(None).astype(np.int64), sums(correct).astype(np.int64), sums(confidence)
    )
