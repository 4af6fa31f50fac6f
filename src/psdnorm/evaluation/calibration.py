"""Whether a network is right as often as it says: calibration in bins of confidence."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.evaluation.metrics import N_STAGES, UNSCORED, as_stages

N_BINS = 15
# what five probabilities in bfloat16 may miss 1 by; logits miss it by more
_MOST_OFF = 0.02


@dataclass(frozen=True)
class CalibrationBins:
    """Sums over the epochs in each of B bins of confidence; those of two sets of epochs add up.

    Bin b holds confidences in (b / B, (b + 1) / B].

    Attributes
    ----------
    counts : ndarray of int64, (…, B)
        Scored epochs.
    correct : ndarray of int64, (…, B)
        Of these, the ones that were predicted right.
    confidence_sums : ndarray of float64, (…, B)
        Sum of their highest probabilities.
    """

    counts: NDArray[np.int64]
    correct: NDArray[np.int64]
    confidence_sums: NDArray[np.float64]

    def __add__(self, other: Self) -> "CalibrationBins":
        """Return the bins of both sets of epochs."""
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
        """Share predicted right in each bin, (…, B); NaN in an empty one."""
        return self._per_epoch(self.correct)

    @property
    def mean_confidence(self) -> NDArray[np.float64]:
        """Mean confidence in each bin, (…, B); NaN in an empty one."""
        return self._per_epoch(self.confidence_sums)

    def _per_epoch(self, sums: NDArray) -> NDArray[np.float64]:
        empty = np.full(self.counts.shape, np.nan)
        return np.divide(sums, self.counts, out=empty, where=self.counts > 0)


def calibration_bins(
    probabilities: ArrayLike, true: ArrayLike, n_bins: int = N_BINS
) -> CalibrationBins:
    """Sort scored epochs into bins of equal width by the confidence of their prediction.

    Parameters
    ----------
    probabilities : array of float, (n, 5)
    true : array of int, (n,)
        0…4, or -1 where unscored: those epochs are left out.
    n_bins : int
        B.

    Returns
    -------
    CalibrationBins
        Of (B,).
    """
    stages = as_stages(true)
    p = as_probabilities(probabilities, stages)
    bins = count_bins(stages, p, np.zeros(stages.shape, np.intp), 1, n_bins)
    return CalibrationBins(bins.counts[0], bins.correct[0], bins.confidence_sums[0])


def expected_calibration_error(bins: CalibrationBins) -> NDArray[np.float64]:
    """Return the mean distance of accuracy and confidence, bins weighted by epochs, (…,).

    NaN where no epoch was scored.
    """
    total = bins.counts.sum(axis=-1)
    gaps = np.abs(bins.correct - bins.confidence_sums).sum(axis=-1)
    return np.divide(gaps, total, out=np.full(np.shape(total), np.nan), where=total > 0)


def as_probabilities(probabilities: ArrayLike, true: NDArray) -> NDArray[np.float64]:
    """Return probabilities, (n, 5); refuse logits, NaN, and other shapes than that of ``true``."""
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(true), N_STAGES):
        raise ShapeError(f"probabilities have shape {p.shape}, expected {(len(true), N_STAGES)}")
    scored = p[true != UNSCORED]
    sound = (scored >= 0).all() and (np.abs(scored.sum(axis=-1) - 1) <= _MOST_OFF).all()
    if not sound:
        raise ArgumentError(
            "probabilities has scored epochs that are NaN, negative or do not add up to 1, "
            "expected the softmax of a network"
        )
    return p


def count_bins(
    true: NDArray, probabilities: NDArray, groups: NDArray, n_groups: int, n_bins: int = N_BINS
) -> CalibrationBins:
    """Sort scored epochs into bins by group and confidence.

    Parameters
    ----------
    true : ndarray of int, (n,)
    probabilities : ndarray of float64, (n, 5)
        Both checked.
    groups : ndarray of int, (n,)
        From 0.
    n_groups, n_bins : int
        G and B.

    Returns
    -------
    CalibrationBins
        Of (G, B).
    """
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
