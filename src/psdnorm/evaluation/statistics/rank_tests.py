"""Friedman, Nemenyi and Wilcoxon tests, and cliques of norms that do not differ."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics.blocks import (
    DECIMALS,
    Basis,
    check_share,
    complete_blocks,
    scipy,
)

_FEW = 10  # with fewer blocks, the chi-square is a rough approximation
_ENUMERABLE = 13  # up to this many blocks, SciPy's p is exact in any case


@dataclass(frozen=True, eq=False, kw_only=True)
class FriedmanResult(Basis):
    """Whether norms differ at all."""

    statistic: float  # chi-square, corrected for ties, with n_norms - 1 degrees of freedom
    p: float
    mean_ranks: "pd.Series[float]"  # 1 is best; norms that tie in a block share their ranks' mean


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseResult(Basis):
    p: pd.DataFrame  # norms by norms, corrected for the number of pairs; 1 on the diagonal
    different: pd.DataFrame  # where p <= alpha
    mean_ranks: "pd.Series[float]"  # 1 is best
    alpha: float

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """Bars of the critical difference diagram, see :func:`cliques`."""
        return cliques(self.mean_ranks, self.different)


@dataclass(frozen=True, eq=False, kw_only=True)
class NemenyiResult(PairwiseResult):
    """Which norms differ in mean rank, by ``critical_difference`` or more."""

    critical_difference: float


@dataclass(frozen=True, eq=False, kw_only=True)
class WilcoxonHolmResult(PairwiseResult):
    """Which norms differ within blocks; ``p_single`` is p before Holm's correction."""

    p_single: pd.DataFrame


def friedman(values: pd.DataFrame) -> FriedmanResult:
    """Test whether all norms rank alike, using SciPy.

    Statistic and p are NaN for fewer than three norms or two blocks, or if all norms tie in every
    block; a note says so, and also if the chi-square is rough.
    """
    kept, basis = complete_blocks(values)
    statistic, p, note = np.nan, np.nan, _untestable(kept)
    if not note and (kept.nunique(axis=1) == 1).all():
        note = "all norms tie in every block"
    elif not note:
        statistic, p = map(float, scipy().stats.friedmanchisquare(*kept.to_numpy().T))
        if len(kept) < _FEW:
            note = "the chi-square is rough with fewer than ten blocks"
    return FriedmanResult(
        statistic=statistic, p=p, mean_ranks=_mean_ranks(kept), note=note, **basis
    )


def nemenyi(values: pd.DataFrame, alpha: float = 0.05) -> NemenyiResult:
    """Compare the mean ranks of all pairs of norms; ``alpha`` is the family-wise error rate.

    For fewer than three norms or two blocks, critical difference and p are NaN and nothing differs.
    A note says so, and also if there are too few blocks for any norms to differ.
    """
    check_share("alpha", alpha)
    kept, basis = complete_blocks(values)
    mean_ranks = _mean_ranks(kept)
    n_norms, note = len(mean_ranks), _untestable(kept)
    distance, p = np.nan, np.full((n_norms, n_norms), np.nan)
    if not note:
        # of a difference of two mean ranks, over √2, as ranges are studentized by that of one mean
        deviation = np.sqrt(n_norms * (n_norms + 1) / (12 * len(kept)))
        studentized = scipy().stats.studentized_range
        distance = float(deviation * studentized.ppf(1 - alpha, n_norms, np.inf))
        apart = np.abs(np.subtract.outer(mean_ranks.to_numpy(), mean_ranks.to_numpy()))
        p = np.clip(studentized.sf(apart / deviation, n_norms, np.inf), 0, 1)
        if distance > n_norms - 1:
            note = _too_few(kept, alpha)
    np.fill_diagonal(p, 1)
    table = pd.DataFrame(p, mean_ranks.index, mean_ranks.index)
    return NemenyiResult(
        critical_difference=distance,
        p=table,
        different=table <= alpha,
        mean_ranks=mean_ranks,
        alpha=alpha,
        note=note,
        **basis,
    )


def wilcoxon_holm(values: pd.DataFrame, alpha: float = 0.05) -> WilcoxonHolmResult:
    """Test every pair of norms on their differences within blocks.

    Two-sided signed-rank tests like SciPy's: zero differences are dropped; p is exact for up to 13
    blocks, or up to 50 if no differences tie or are zero, and else by the normal approximation.
    It is 1 for two norms that are equal in every block, and NaN if no block is left. A note says if
    there are too few blocks to show a difference.
    """
    check_share("alpha", alpha)
    kept, basis = complete_blocks(values)
    norms = kept.columns
    pairs = list(combinations(range(len(norms)), 2))
    columns = kept.to_numpy().T
    single = [_signed_rank_p(columns[i] - columns[j]) for i, j in pairs]
    p_single, p = (pd.DataFrame(np.eye(len(norms)), norms, norms) for _ in range(2))
    for (i, j), one, corrected in zip(pairs, single, holm(single), strict=True):
        p_single.iloc[i, j] = p_single.iloc[j, i] = one
        p.iloc[i, j] = p.iloc[j, i] = corrected
    note = ""
    if len(kept) == 0:
        note = "no block is left that every norm has"
    elif pairs and len(pairs) * 2.0 ** (1 - len(kept)) > alpha:
        note = _too_few(kept, alpha)
    return WilcoxonHolmResult(
        p_single=p_single,
        p=p,
        different=p <= alpha,
        mean_ranks=_mean_ranks(kept),
        alpha=alpha,
        note=note,
        **basis,
    )


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Correct the p-values of m tests, (m,), by Holm's step-down method.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected


def cliques(mean_ranks: "pd.Series[float]", different: pd.DataFrame) -> list[tuple[str, ...]]:
    """Find the maximal groups of norms within which no pair was shown to differ.

    Differences of mean ranks (Nemenyi) give groups of neighbours in rank. Pairwise tests (Wilcoxon)
    need not: a bar drawn from the best to the worst norm of a group may then pass over a norm that
    is not in it, so mark its members. A group has two or more norms, from best to worst, and is not
    part of another; groups are sorted by the ranks of their best and worst.

    Examples
    --------
    >>> ranks = pd.Series({"layer": 2.8, "batch": 2.0, "psd": 1.2})
    >>> apart = ranks.map(lambda rank: (ranks - rank).abs() > 1)
    >>> cliques(ranks, pd.DataFrame(dict(apart)))
    [('psd', 'batch'), ('batch', 'layer')]
    """
    from networkx import find_cliques, from_numpy_array  # comes with torch

    norms = list(mean_ranks.sort_values(kind="stable").index)
    if sorted(norms) != sorted(different.index) or sorted(norms) != sorted(different.columns):
        raise ArgumentError(
            f"different compares {', '.join(map(str, different.index))}, expected rows and columns "
            f"for the norms of mean_ranks, {', '.join(map(str, mean_ranks.index))}"
        )
    apart = different.loc[norms, norms].to_numpy(bool)
    if (apart != apart.T).any():
        raise ArgumentError("different is not symmetric, expected the same for a pair both ways")
    alike = ~apart & ~np.eye(len(norms), dtype=bool)
    groups = [sorted(group) for group in find_cliques(from_numpy_array(alike)) if len(group) > 1]
    ordered = sorted(groups, key=lambda group: (group[0], group[-1], group))
    return [tuple(norms[place] for place in group) for group in ordered]


def _signed_rank_p(differences: NDArray[np.float64]) -> float:
    if len(differences) == 0:
        return np.nan
    rounded = differences.round(DECIMALS)  # so that equal differences tie despite rounding errors
    if not rounded.any():
        return 1.0
    if len(rounded) > _ENUMERABLE:
        return float(scipy().stats.wilcoxon(rounded, zero_method="wilcox", method="auto").pvalue)
    # exact: enumerate all signs of the differences, for which SciPy takes seconds
    differences = rounded[rounded != 0]
    ranks = scipy().stats.rankdata(np.abs(differences))  # multiples of 1/2, so sums are exact
    n = len(ranks)
    sums = (np.arange(2**n)[:, None] >> np.arange(n) & 1) @ ranks  # (2**n,)
    found = ranks[differences > 0].sum()
    return float(min(1, 2 * min((sums >= found).mean(), (sums <= found).mean())))


def _mean_ranks(values: pd.DataFrame) -> "pd.Series[float]":
    return values.rank(axis=1, ascending=False).mean()  # ties share the mean


def _untestable(values: pd.DataFrame) -> str:
    """Return why ranks cannot be tested, or ""."""
    n_blocks, n_norms = values.shape
    if n_norms < 3:
        return f"ranks are tested from three norms on, found {n_norms}"
    if n_blocks < 2:
        return f"ranks are tested from two blocks on, found {n_blocks} that every norm has"
    return ""


def _too_few(values: pd.DataFrame, alpha: float) -> str:
    return f"too few blocks ({len(values)}) for any norms to differ at {alpha:g}"
