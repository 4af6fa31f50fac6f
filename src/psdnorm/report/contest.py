"""Which arms of an experiment are compared with each other, and on whose scores."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.report.naming import model_place, norms_in_order, setting_name, standing_arm
from psdnorm.report.results import Results

METRIC = "balanced_accuracy"


@dataclass(frozen=True, eq=False)
class Contest:
    """Norms of one model and one training size, on the scores that all of them have.

    Attributes
    ----------
    model : str
    balanced : int, optional
        balanced@N; None for all subjects.
    arms : dict of str to str
        The arm that stands for each norm, in the order of the paper.
    others : list of str
        Arms of the same model and size that stand for none, say of other filter sizes.
    dropped : dict of str to str
        Norms that share no cell with the others, and their arms.
    tables : BlockTables
        Balanced accuracies, blocks by norms.
    """

    model: str
    balanced: int | None
    arms: dict[str, str]
    others: list[str]
    dropped: dict[str, str]
    tables: BlockTables

    @property
    def name(self) -> str:
        """Model and training size, in words."""
        return setting_name(self.model, self.balanced)

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds, of the subjects that every norm has; (n_subjects, n_norms)."""
        return self.tables.subjects.dropna()

    @cached_property
    def means(self) -> pd.DataFrame:
        """Both means, each subject's mean over seeds first; (2, n_norms)."""
        over_datasets = self.subjects.groupby(level="cohort").mean().mean()
        return pd.DataFrame({MEAN_DATASET: over_datasets, MEAN_SUBJECT: self.subjects.mean()}).T

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds that count in a cohort; 0 where there is none."""
        known = self.tables.by_seed.dropna().reset_index("seed")["seed"]
        numbers = known.groupby(level="cohort").nunique()
        return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)

    @cached_property
    def seeds(self) -> dict[str, pd.DataFrame]:
        """By mean: its values in every seed that has all cohorts, (n_seeds, n_norms)."""
        known = self.tables.by_seed.dropna()
        cohorts = known.groupby(level=["seed", "cohort"]).mean()
        has = cohorts.groupby(level="seed").size()
        whole = has.index[has == len(self.cohorts)]
        return {
            MEAN_DATASET: cohorts.groupby(level="seed").mean().loc[whole],
            MEAN_SUBJECT: known.groupby(level="seed").mean().loc[whole],
        }

    @property
    def cohorts(self) -> "pd.Series[int]":
        """Number of subjects that count, by cohort."""
        return self.subjects.groupby(level="cohort").size()


def contests(results: Results) -> list[Contest]:
    """Return what can be compared: one contest per model and training size, the largest first.

    A norm that was run with several filter sizes or depths is represented by the paper's, f = 5 in
    three blocks, else by the arm with most cells.

    Parameters
    ----------
    results : Results

    Returns
    -------
    list of Contest
        Sorted by the number of norms, then of cells; U-Sleep and all subjects first among equals.
    """
    groups = results.cells.groupby(["model", "balanced"], dropna=False, sort=False)
    made = [_contest(results, cells) for _, cells in groups]
    return sorted(made, key=_place)


def _place(contest: Contest) -> tuple:
    return (
        -len(contest.arms),
        -len(contest.tables.by_seed.dropna()),
        model_place(contest.model),
        contest.balanced is not None,
        -(contest.balanced or 0),
    )


def _contest(results: Results, cells: pd.DataFrame) -> Contest:
    norms = norms_in_order(cells["norm"])
    arms = {norm: standing_arm(cells[cells["norm"] == norm]) for norm in norms}
    places = {
        norm: {*zip(own["hold_out"], own["seed"], strict=True)}
        for norm, own in cells[cells["arm"].isin(arms.values())].groupby("norm")
    }
    kept, dropped = dict(arms), {}
    while len(kept) > 1 and not set.intersection(*(places[norm] for norm in kept)):
        fewest = min(reversed(kept), key=lambda norm: len(places[norm]))
        dropped[fewest] = kept.pop(fewest)
    chosen = cells[cells["arm"].isin(kept.values())][["cell", "norm", "seed"]]
    scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(chosen, on="cell")
    first = cells.iloc[0]
    return Contest(
        model=str(first["model"]),
        balanced=None if pd.isna(first["balanced"]) else int(first["balanced"]),
        arms=kept,
        others=sorted({*cells["arm"]} - {*arms.values()}),
        dropped=dropped,
        tables=block_tables(scores, METRIC, norms=list(kept)),
    )
