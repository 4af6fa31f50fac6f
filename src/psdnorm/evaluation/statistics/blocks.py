"""Blocks within which norms are compared, and the data behind a statistic over them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from psdnorm.errors import ArgumentError, DtypeError, MissingExtraError
from psdnorm.evaluation.scores import check_columns, check_rows
from psdnorm.runtime import plural

# smaller differences of means come from the order of summation: they are ties
DECIMALS = 12
KEYS = ["cohort", "subject", "seed"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """The data behind a statistic, which its caption must state."""

    blocks: str  # "subjects", "datasets", or "blocks" if the table does not tell
    n_blocks: int  # blocks that were used
    left_out: tuple[Hashable, ...]  # labels of blocks in which a norm has no score
    n_cohorts: int = 0  # of the blocks used; 0 if the table does not tell
    note: str = ""  # why a number is NaN or may mislead

    @property
    def caveat(self) -> str:
        """:func:`subject_caveat` if the blocks are two or more subjects, else empty."""
        is_of_subjects = self.blocks == "subjects" and self.n_blocks > 1
        return subject_caveat(self.n_blocks, self.n_cohorts) if is_of_subjects else ""

    @property
    def counted(self) -> str:
        return plural(self.n_blocks, self.blocks[:-1])

    @property
    def caption(self) -> str:
        counted = self.counted
        if self.left_out:
            counted += f"; {len(self.left_out):,} left out, as a norm has no score"
        note = self.note[:1].upper() + self.note[1:]
        sentences = (text.rstrip(".") + "." for text in (counted, note, self.caveat) if text)
        return " ".join(sentences)


def subject_caveat(n_subjects: int, n_cohorts: int) -> str:
    """Explain why statistics over subjects look too certain; ``n_cohorts`` is 0 if unknown."""
    people = f"{n_subjects:,} subjects"
    if n_cohorts:
        people += f" from {plural(n_cohorts, 'cohort')}"
    return (
        "Subjects of one cohort share its laboratory, devices and scorers, and are staged by the "
        f"same few networks: {people} are not independent, so p-values and intervals over "
        "subjects are too small."
    )


def complete_blocks(values: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the blocks complete for all norms, and :class:`Basis` arguments except its note."""
    if not isinstance(values, pd.DataFrame):
        raise DtypeError(
            f"values is a {type(values).__name__}, expected a DataFrame of blocks by norms"
        )
    if values.shape[1] == 0:
        raise ArgumentError("values has no column, expected one for each norm")
    for what, labels in (("norm", values.columns), ("block", values.index)):
        if labels.has_duplicates:
            twice = labels[labels.duplicated()][0]
            raise ArgumentError(f"values has the {what} {twice!r} more than once")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DtypeError("values has entries that are not numbers, expected scores") from None
    if np.isinf(numbers.to_numpy()).any():
        raise ArgumentError("values has infinite entries, expected scores, or NaN where unknown")
    is_known = numbers.notna().all(axis=1).to_numpy()
    names, known = list(values.index.names), numbers.index[is_known]
    blocks = "datasets" if names == ["cohort"] else "blocks"
    basis = {
        "blocks": "subjects" if "subject" in names else blocks,
        "n_blocks": len(known),
        "left_out": tuple(numbers.index[~is_known]),
        "n_cohorts": known.unique("cohort").size if "cohort" in names else 0,
    }
    return numbers[is_known].round(DECIMALS), basis


def check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ArgumentError(f"{name} is {value}, expected a number between 0 and 1")


def scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise MissingExtraError('statistics need SciPy: pip install "psdnorm[data]"') from error
    return scipy


@dataclass(frozen=True, eq=False)
class BlockTables:
    """Scores of the same subjects under every norm.

    All tables have a column per norm. A row in which a norm has no score is entirely NaN, so that
    every statistic excludes, and counts, the same blocks.
    """

    by_seed: pd.DataFrame  # a row per cohort, subject and seed
    subjects: pd.DataFrame  # means over the seeds that every norm has
    datasets: pd.DataFrame  # means over the subjects that every norm has
    lacking: pd.DataFrame  # by cohort, the number of scores a norm lacks but another norm has

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Minimum and maximum over cohorts of the number of seeds that all norms have, or 0."""
        rows = self.by_seed.dropna().index.to_frame(index=False)
        numbers = rows.groupby("cohort", observed=True)["seed"].nunique()
        return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)

    @property
    def complete_seeds(self) -> list[int]:
        """The sorted seeds in which every norm has all cohorts that are used."""
        rows = self.by_seed.dropna().index.to_frame(index=False)
        cohorts = rows.groupby("seed")["cohort"].nunique()
        return cohorts.index[cohorts == rows["cohort"].nunique()].to_list()

    @property
    def left_out(self) -> list[str]:
        """One sentence per norm and cohort whose missing scores led to exclusions."""
        total = self.by_seed.groupby(level="cohort", observed=True).size()
        return [
            f"{norm} is missing {count:,} of the {total[cohort]:,} scores of {cohort}"
            for cohort, counts in self.lacking.iterrows()
            for norm, count in counts.items()
            if count
        ]


def block_tables(
    scores: pd.DataFrame, metric: str = "value", norms: Sequence[str] | None = None
) -> BlockTables:
    """Arrange scores to compare norms over datasets and over subjects.

    A score is used if every norm has one for the same subject and seed: the seed determines the
    training and the validation set, so only scores of the same seed are comparable.

    Parameters
    ----------
    scores : DataFrame
        One row per ``norm``, ``cohort``, ``subject`` and ``seed``. NaN counts as missing.
    metric : str
        The column that holds the score. Higher is better.
    norms : sequence of str, optional
        Norms to compare, in this order; by default all, in order of appearance.
    """
    check_columns("scores", scores, ["norm", *KEYS, metric])
    if scores.empty:
        raise ArgumentError("scores has no row, expected one per norm, cohort, subject and seed")
    known = list(dict.fromkeys(scores["norm"]))
    wanted = known if norms is None else list(dict.fromkeys(norms))
    if not wanted or not {*wanted} <= {*known}:
        raise ArgumentError(
            f"norms are {', '.join(map(str, wanted)) or 'none'}, expected some of those that "
            f"scores has, {', '.join(map(str, known)) or 'none'}"
        )
    chosen = scores[scores["norm"].isin(wanted)]
    check_rows("scores", chosen, ["norm", *KEYS])
    table = chosen.set_index([*KEYS, "norm"])[metric].unstack("norm")[wanted]
    by_seed = table.where(table.notna().all(axis=1))
    subjects = by_seed.groupby(level=["cohort", "subject"], observed=True).mean()  # ignoring NaN
    return BlockTables(
        by_seed=by_seed,
        subjects=subjects,
        datasets=subjects.groupby(level="cohort", observed=True).mean(),
        lacking=table.isna().groupby(level="cohort", observed=True).sum(),
    )
