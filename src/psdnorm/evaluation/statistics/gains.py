"""Who gains: the share of subjects that improve, and the gain of the hardest."""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics.basis import DECIMALS, Basis, check_share, complete_blocks


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
