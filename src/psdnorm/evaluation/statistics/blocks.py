"""Blocks to compare norms within: cohorts or subjects, the same for every norm."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from psdnorm.errors import ArgumentError

KEYS = ["cohort", "subject", "seed"]


@dataclass(frozen=True, eq=False)
class BlockTables:
    """Scores of the same people under every norm.

    A row of which a norm lacks the score is NaN throughout, so that every statistic leaves the same
    blocks out, and counts them.

    Attributes
    ----------
    by_seed : DataFrame, (n_scores, n_norms)
        Indexed by ``cohort``, ``subject`` and ``seed``.
    subjects : DataFrame, (n_subjects, n_norms)
        Mean over the seeds that every norm has; indexed by ``cohort`` and ``subject``.
    datasets : DataFrame, (n_cohorts, n_norms)
        Mean over the subjects of a cohort that every norm has; indexed by ``cohort``.
    lacking : DataFrame of int, (n_cohorts, n_norms)
        Scores (of a subject in a seed) that a norm lacks and another has.
    """

    by_seed: pd.DataFrame
    subjects: pd.DataFrame
    datasets: pd.DataFrame
    lacking: pd.DataFrame

    @property
    def left_out(self) -> list[str]:
        """What was left out and because of which norm, a sentence each."""
        total = self.by_seed.groupby(level="cohort", observed=True).size()
        return [
            f"{norm} lacks {count:,} of the {total[cohort]:,} scores of {cohort}"
            for cohort, counts in self.lacking.iterrows()
            for norm, count in counts.items()
            if count
        ]


def block_tables(
    scores: pd.DataFrame, metric: str = "value", norms: Sequence[str] | None = None
) -> BlockTables:
    """Arrange scores for a comparison of norms, over datasets and over subjects.

    A score counts if every norm has it for the same subject in the same seed; a seed decides who
    trains and who validates, so that only scores of the same seed are alike.

    Parameters
    ----------
    scores : DataFrame
        One row per ``norm``, ``cohort``, ``subject`` and ``seed``. NaN counts as lacking.
    metric : str
        The column that holds the score. Higher is better.
    norms : sequence of str, optional
        Those to compare, in this order; else all, in order of appearance.

    Returns
    -------
    BlockTables
    """
    lacking = [name for name in ("norm", *KEYS, metric) if name not in scores]
    if lacking:
        raise ArgumentError(f"scores lack the columns {', '.join(lacking)}")
    if scores.empty:
        raise ArgumentError("scores has no row, expected one per norm, cohort, subject and seed")
    unknown = scores[["norm", *KEYS]].isna().any()
    if unknown.any():
        raise ArgumentError(f"scores has rows without {unknown.idxmax()}")
    table = _wide(scores, metric, norms)
    by_seed = table.where(table.notna().all(axis=1))
    subjects = by_seed.groupby(level=["cohort", "subject"], observed=True).mean()  # NaN aside
    return BlockTables(
        by_seed=by_seed,
        subjects=subjects,
        datasets=subjects.groupby(level="cohort", observed=True).mean(),
        lacking=table.isna().groupby(level="cohort", observed=True).sum(),
    )


def _wide(scores: pd.DataFrame, metric: str, norms: Sequence[str] | None) -> pd.DataFrame:
    """Return scores with a column for each norm, NaN where it has none."""
    known = list(dict.fromkeys(scores["norm"]))
    wanted = known if norms is None else list(dict.fromkeys(norms))
    if not wanted or not {*wanted} <= {*known}:
        raise ArgumentError(
            f"norms are {', '.join(map(str, wanted)) or 'none'}, expected some of those that "
            f"scores has, {', '.join(map(str, known)) or 'none'}"
        )
    chosen = scores[scores["norm"].isin(wanted)]
    twice = chosen.duplicated(["norm", *KEYS])
    if twice.any():
        row = ", ".join(f"{name} {chosen.loc[twice, name].iloc[0]}" for name in ("norm", *KEYS))
        raise ArgumentError(f"scores has {row} more than once")
    return chosen.set_index([*KEYS, "norm"])[metric].unstack("norm")[wanted]
