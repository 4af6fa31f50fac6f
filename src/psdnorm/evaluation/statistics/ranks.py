"""Mean ranks of norms over blocks: Friedman's test, Nemenyi's critical difference."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from psdnorm.evaluation.statistics.basis import Basis, check_share, complete_blocks, scipy
from psdnorm.evaluation.statistics.cliques import cliques

_FEW = 10  # blocks below which the chi-square is a rough approximation


@dataclass(frozen=True, eq=False, kw_only=True)
class FriedmanResult(Basis):
    """Whether norms differ at all.

    Attributes
    ----------
    statistic : float
        Friedman's chi-square, corrected for ties, with one degree of freedom less than norms.
    p : float
    mean_ranks : Series, (n_norms,)
        1 is best; norms that tie within a block share the mean of their ranks.
    """

    statistic: float
    p: float
    mean_ranks: "pd.Series[float]"


@dataclass(frozen=True, eq=False, kw_only=True)
class NemenyiResult(Basis):
    """Which norms differ in mean rank.

    Attributes
    ----------
    critical_difference : float
        Mean ranks that are at least so far apart differ.
    p : DataFrame, (n_norms, n_norms)
        Of every pair, corrected for the number of norms; 1 on the diagonal.
    different : DataFrame of bool, (n_norms, n_norms)
        ``p <= alpha``.
    mean_ranks : Series, (n_norms,)
    alpha : float
    """

    critical_difference: float
    p: pd.DataFrame
    different: pd.DataFrame
    mean_ranks: "pd.Series[float]"
    alpha: float

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The bars of the diagram, see :func:`cliques`."""
        return cliques(self.mean_ranks, self.different)


def friedman(values: pd.DataFrame) -> FriedmanResult:
    """Test whether norms rank alike in every block.

    Parameters
    ----------
    values : DataFrame, (n_blocks, n_norms)
        Higher is better. Blocks with a NaN are left out and counted.

    Returns
    -------
    FriedmanResult
        NaN, with a note that says why, for fewer than three norms (Wilcoxon's test alone compares
        two), for fewer than two blocks, and where all norms tie in every block. A note says, too,
        where blocks are so few that p is rough.

    Examples
    --------
    >>> scores = pd.DataFrame({"batch": [0.6, 0.5, 0.7], "layer": [0.5, 0.4, 0.6]})
    >>> result = friedman(scores.assign(psd=[0.7, 0.8, 0.8]))
    >>> result.mean_ranks.to_dict()
    {'batch': 2.0, 'layer': 3.0, 'psd': 1.0}
    >>> result.statistic, round(result.p, 4), result.caption
    (6.0, 0.0498, '3 blocks. The chi-square is rough with fewer than ten blocks.')
    """
    kept, basis = complete_blocks(values)
    ranks = _ranks(kept)
    statistic, note = np.nan, _untestable(kept)
    if not note:
        n_blocks, n_norms = ranks.shape
        # Σ t³ - t over the groups of t ties: each norm ties with t norms, itself among them
        sizes = (ranks.to_numpy()[:, :, None] == ranks.to_numpy()[:, None, :]).sum(axis=2)
        untied = 1 - (sizes**2 - 1).sum() / (n_norms * (n_norms**2 - 1) * n_blocks)
        if untied == 0:
            note = "all norms tie in every block"
        else:
            spread = ((ranks.mean() - (n_norms + 1) / 2) ** 2).sum()
            statistic = float(12 * n_blocks * spread / (n_norms * (n_norms + 1)) / untied)
            if n_blocks < _FEW:
                note = "the chi-square is rough with fewer than ten blocks"
    return FriedmanResult(
        statistic=statistic,
        p=float(scipy().stats.chi2.sf(statistic, ranks.shape[1] - 1)),
        mean_ranks=ranks.mean(),
        note=note,
        **basis,
    )


def nemenyi(values: pd.DataFrame, alpha: float = 0.05) -> NemenyiResult:
    """Compare the mean ranks of every pair of norms.

    Parameters
    ----------
    values : DataFrame, (n_blocks, n_norms)
        Higher is better. Blocks with a NaN are left out and counted.
    alpha : float
        Chance of finding any difference where there is none.

    Returns
    -------
    NemenyiResult
        For fewer than three norms or two blocks, critical difference and p are NaN and nothing
        differs. A note says so, and where no ranks of so few blocks could be far enough apart.
    """
    check_share("alpha", alpha)
    kept, basis = complete_blocks(values)
    mean_ranks = _ranks(kept).mean()
    n_norms, note = len(mean_ranks), _untestable(kept)
    distance, p = np.nan, np.full((n_norms, n_norms), np.nan)
    if not note:
        # of a difference of two mean ranks, over √2: ranges are studentized by that of one mean
        deviation = np.sqrt(n_norms * (n_norms + 1) / (12 * len(kept)))
        studentized = scipy().stats.studentized_range
        distance = float(deviation * studentized.ppf(1 - alpha, n_norms, np.inf))
        apart = np.abs(np.subtract.outer(mean_ranks.to_numpy(), mean_ranks.to_numpy()))
        p = np.clip(studentized.sf(apart / deviation, n_norms, np.inf), 0, 1)
        if distance > n_norms - 1:
            note = f"too few blocks ({len(kept)}) for any norms to differ at {alpha:g}"
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


def _ranks(values: pd.DataFrame) -> pd.DataFrame:
    return values.rank(axis=1, ascending=False)  # ties share the mean


def _untestable(values: pd.DataFrame) -> str:
    """Say why ranks cannot be tested, or nothing."""
    n_blocks, n_norms = values.shape
    if n_norms < 3:
        return f"ranks are tested from three norms on, found {n_norms}"
    if n_blocks < 2:
        return f"ranks are tested from two blocks on, found {n_blocks} that every norm has"
    return ""
