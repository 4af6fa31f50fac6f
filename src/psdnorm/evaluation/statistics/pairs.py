"""Norms compared pair by pair: Wilcoxon's signed ranks, corrected by Holm."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from psdnorm.evaluation.statistics.basis import (
    DECIMALS,
    Basis,
    check_share,
    complete_blocks,
    scipy,
)
from psdnorm.evaluation.statistics.cliques import cliques

_ENUMERABLE = 13  # blocks up to which SciPy's p is exact in any case


@dataclass(frozen=True, eq=False, kw_only=True)
class WilcoxonHolmResult(Basis):
    """Which pairs of norms differ.

    Attributes
    ----------
    p_single : DataFrame, (n_norms, n_norms)
        Of each pair as if it were the only one; 1 on the diagonal.
    p : DataFrame, (n_norms, n_norms)
        Corrected for the number of pairs.
    different : DataFrame of bool, (n_norms, n_norms)
        ``p <= alpha``.
    mean_ranks : Series, (n_norms,)
        1 is best. The test does not use them, the diagram does.
    alpha : float
    """

    p_single: pd.DataFrame
    p: pd.DataFrame
    different: pd.DataFrame
    mean_ranks: "pd.Series[float]"
    alpha: float

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The bars of the diagram, see :func:`cliques`."""
        return cliques(self.mean_ranks, self.different)


def wilcoxon_holm(values: pd.DataFrame, alpha: float = 0.05) -> WilcoxonHolmResult:
    """Test every pair of norms on their differences within blocks.

    Two-sided signed-rank tests as SciPy's: differences of zero are dropped; p is exact for up to 13
    blocks, for up to 50 where no differences tie or are zero, and by the normal approximation else.

    Parameters
    ----------
    values : DataFrame, (n_blocks, n_norms)
        Blocks with a NaN are left out and counted.
    alpha : float
        Chance of finding any difference where there is none.

    Returns
    -------
    WilcoxonHolmResult
        p is 1 for two norms that are equal in every block, and NaN where no block is left. A note
        says where so few blocks could show no difference.
    """
    check_share("alpha", alpha)
    kept, basis = complete_blocks(values)
    norms = kept.columns
    pairs = list(combinations(range(len(norms)), 2))
    columns = kept.to_numpy().T
    single = [_signed_rank_p(columns[i] - columns[j]) for i, j in pairs]
    tables = [_symmetric(p, pairs, norms) for p in (single, holm(single))]
    note = ""
    if len(kept) == 0:
        note = "no block is left that every norm has"
    elif pairs and len(pairs) * 2.0 ** (1 - len(kept)) > alpha:
        note = f"too few blocks ({len(kept)}) for any norms to differ at {alpha:g}"
    return WilcoxonHolmResult(
        p_single=tables[0],
        p=tables[1],
        different=tables[1] <= alpha,
        mean_ranks=kept.rank(axis=1, ascending=False).mean(),
        alpha=alpha,
        note=note,
        **basis,
    )


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Correct the p-values of m tests for being m, by Holm's steps down.

    Parameters
    ----------
    p : array of float, (m,)

    Returns
    -------
    ndarray of float64, (m,)

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


def _signed_rank_p(differences: NDArray[np.float64]) -> float:
    if len(differences) == 0:
        return np.nan
    rounded = differences.round(DECIMALS)  # equal differences tie, whatever they were taken from
    if not rounded.any():
        return 1.0
    if len(rounded) <= _ENUMERABLE:
        return _enumerated_p(rounded[rounded != 0])
    return float(scipy().stats.wilcoxon(rounded, zero_method="wilcox", method="auto").pvalue)


def _enumerated_p(differences: NDArray[np.float64]) -> float:
    """Compare with all signs that the differences could have had; SciPy takes seconds for it."""
    ranks = scipy().stats.rankdata(np.abs(differences))  # halves at most, so that sums are exact
    n = len(ranks)
    signs = np.arange(2**n)[:, None] >> np.arange(n) & 1  # (2**n, n)
    sums, found = signs @ ranks, ranks[differences > 0].sum()
    return float(min(1, 2 * min((sums >= found).mean(), (sums <= found).mean())))


def _symmetric(p: ArrayLike, pairs: list[tuple[int, int]], norms: "pd.Index[str]") -> pd.DataFrame:
    table = np.eye(len(norms))
    for (i, j), value in zip(pairs, np.asarray(p), strict=True):
        table[i, j] = table[j, i] = value
    return pd.DataFrame(table, norms, norms)
