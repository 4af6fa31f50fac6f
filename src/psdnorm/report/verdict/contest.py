"""Which arms of an experiment are compared with each other, and on whose scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.report.naming import (
    model_place,
    norm_name,
    norms_in_order,
    setting_name,
    standing_arm,
)
from psdnorm.report.results import Results, cell_row
from psdnorm.report.verdict.partial_grid import (
    Place,
    lacking_scores,
    partial_grid,
    whole_seeds,
)

METRIC = "balanced_accuracy"
_TIE = 1e-12  # as blocks are tied


@dataclass(frozen=True, eq=False)
class Contest:
    """Norms of one model and one training size, on the scores that all of them have.

    A cohort counts with the seeds in which all norms have it, in means and gains alike: a cell that
    one norm lacks costs the others this cell, not its seed. The spread over seeds is of those that
    have all cohorts, since other means are of other people.

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
        Norms that share too few cells with the others, and their arms; see
        :func:`norms_to_compare`.
    tables : BlockTables
        Balanced accuracies, blocks by norms.
    reasons : dict of str to str
        By dropped norm, a sentence that says why.
    lacking : list of str
        A sentence for each cohort, or part of one, that does not count, and why.
    partial : str
        What lacks in all and how the rest is counted, a sentence; empty where nothing lacks.
    """

    model: str
    balanced: int | None
    arms: dict[str, str]
    others: list[str]
    dropped: dict[str, str]
    tables: BlockTables
    reasons: dict[str, str]
    lacking: list[str]
    partial: str

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

    def leaders(self, mean: str = MEAN_DATASET) -> list[str]:
        """Return the norm that is highest in a mean, or those that share this."""
        means = self.means.loc[mean]
        return [str(norm) for norm in means.index[means >= means.max() - _TIE]]

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds that count in a cohort; 0 where there is none."""
        known = self.tables.by_seed.dropna().reset_index("seed")["seed"]
        numbers = known.groupby(level="cohort").nunique()
        return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)

    @cached_property
    def seeds(self) -> dict[str, pd.DataFrame]:
        """By mean: its values in every seed that has all cohorts, (n_seeds, n_norms).

        Without a row where no seed has all cohorts.
        """
        known = self.tables.by_seed.dropna()
        cohorts = known.groupby(level=["seed", "cohort"]).mean()
        whole = whole_seeds(known)
        return {
            MEAN_DATASET: cohorts.groupby(level="seed").mean().loc[whole],
            MEAN_SUBJECT: known.groupby(level="seed").mean().loc[whole],
        }

    @property
    def left_out(self) -> list[str]:
        """All that does not count, a sentence each: norms, then scores."""
        return [*self.reasons.values(), *self.lacking]

    @property
    def cohorts(self) -> "pd.Series[int]":
        """Number of subjects that count, by cohort."""
        return self.subjects.groupby(level="cohort").size()


def contests(results: Results) -> list[Contest]:
    """Return what can be compared: one contest per model and training size, the largest first.

    A norm that was run with several filter sizes or depths is represented by the paper's, f = 5 in
    three blocks, else by the arm with most cells. :func:`norms_to_compare` says which norms count.

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


def means_of_others(results: Results, contest: Contest) -> "pd.Series[float]":
    """Return Mean(Dataset) of the arms that stand for no norm, on the scores that count.

    Parameters
    ----------
    results : Results
    contest : Contest

    Returns
    -------
    Series, (n_arms,)
        By arm; without those that lack one of these scores.
    """
    counted = contest.tables.by_seed.dropna().index
    arms = results.cells[results.cells["arm"].isin(contest.others)][["cell", "arm", "seed"]]
    scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(arms, on="cell")
    values = scores.pivot(index=list(counted.names), columns="arm", values=METRIC)
    subjects = values.reindex(counted).dropna(axis="columns").groupby(["cohort", "subject"]).mean()
    return subjects.groupby(level="cohort").mean().mean()


def norms_to_compare(places: Mapping[str, set[Place]]) -> tuple[list[str], set[Place]]:
    """Choose the norms to compare, so that one with few cells does not cost the others theirs.

    These have the most cells to compare: places that all of them have, times pairs of norms. Of
    sets that are equal in this, it is the one with most places, then one with BatchNorm, then one
    with PSDNorm. Of five norms, say, one that lacks a tenth of the places stays, and one that has a
    third of them does not.

    Parameters
    ----------
    places : mapping of str to set of (str, int)
        By norm: held-out cohorts and seeds of its finished cells.

    Returns
    -------
    norms : list of str
        In the order of ``places``; one alone where no two share a place.
    shared : set of (str, int)
        The places that all of them have.

    Examples
    --------
    >>> norms_to_compare({"batch": {("A", 0), ("A", 1)}, "psd": {("A", 0)}, "tma": {("B", 0)}})
    (['batch', 'psd'], {('A', 0)})
    """
    shared: dict[frozenset[Place], None] = {}
    for own in map(frozenset, places.values()):
        shared |= dict.fromkeys([own, *(own & other for other in shared)])

    def worth(common: frozenset[Place]) -> tuple:
        norms = _having(places, common)
        pairs = len(norms) * (len(norms) - 1) // 2
        return pairs * len(common), len(common), "batch" in norms, "psd" in norms

    best = max(filter(None, shared), key=worth)
    return _having(places, best), set(best)


def _having(places: Mapping[str, set[Place]], common: frozenset[Place]) -> list[str]:
    return [norm for norm, own in places.items() if common <= own]


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
    places = {norm: _places(cells[cells["arm"] == arm]) for norm, arm in arms.items()}
    kept, shared = norms_to_compare(places)
    dropped = {norm: arm for norm, arm in arms.items() if norm not in kept}
    chosen = cells[cells["arm"].isin([arms[norm] for norm in kept])][["cell", "norm", "seed"]]
    scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(chosen, on="cell")
    tables = block_tables(scores, METRIC, norms=kept)
    first = cells.iloc[0]
    return Contest(
        model=str(first["model"]),
        balanced=None if pd.isna(first["balanced"]) else int(first["balanced"]),
        arms={norm: arms[norm] for norm in kept},
        others=sorted({*cells["arm"]} - {*arms.values()}),
        dropped=dropped,
        tables=tables,
        reasons={norm: _reason(norm, places[norm], kept, shared) for norm in dropped},
        lacking=lacking_scores(tables),
        partial=_partial(results, {arms[norm]: places[norm] for norm in kept}, tables),
    )


def _places(cells: pd.DataFrame) -> set[Place]:
    return {*zip(cells["hold_out"], cells["seed"], strict=True)}


def _partial(results: Results, places: dict[str, set[Place]], tables: BlockTables) -> str:
    """Say what of compared arms lacks, that was asked for or that others have."""
    unfinished = [(cell_row(cell)["arm"], cell) for cell in results.unfinished]
    asked = {(cell.hold_out, cell.seed) for arm, cell in unfinished if arm in places}
    return partial_grid(list(places.values()), asked, whole_seeds(tables.by_seed.dropna()))


def _reason(norm: str, own: set[Place], kept: list[str], shared: set[Place]) -> str:
    whose = "the other norms share" if len(kept) > 1 else f"{norm_name(kept[0])} has"
    count = len(own & shared) or "none"
    return (
        f"{norm_name(norm)} is left out: it has {count} of the {len(shared)} cells (a cohort in a "
        f"seed) that {whose}."
    )
