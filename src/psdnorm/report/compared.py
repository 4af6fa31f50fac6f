"""Two experiments, or two cells, against each other: B's gain over A, subject by subject."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, read_scores, subject_metrics
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.report.contest import METRIC
from psdnorm.report.duels import DUEL_HEAD, Duel, duel_cells, duels, percent
from psdnorm.report.results import Results, read_results
from psdnorm.training.cell import read_json
from psdnorm.training.experiment import label
from psdnorm.training.grid import GRID, make_cell
from psdnorm.training.records import CONFIG, SCORES, WEIGHTS

A, B = "A", "B"
HEAD = ["cohort", "subjects", "A, %", "B, %", *DUEL_HEAD]
_FIELDS = ("model", "norm", "filter_size", "norm_depth", "hold_out", "balanced", "seed")


@dataclass(frozen=True, eq=False)
class ArmComparison:
    """One arm of A against one of B.

    Attributes
    ----------
    name : str
        What is compared: an arm that both have, or both arms.
    tables : BlockTables
        Balanced accuracies with the columns "A" and "B", of the scores that both have.
    """

    name: str
    tables: BlockTables

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds of the subjects that both have, (n_subjects, 2)."""
        return self.tables.subjects.dropna()

    @cached_property
    def duel(self) -> Duel:
        """B against A, over all cohorts."""
        return duels(self.subjects, A)[B]

    def rows(self) -> list[list[str]]:
        """Return one row per cohort, and the means where there are several, see :data:`HEAD`."""
        made = [self._row(*each) for each in self.subjects.groupby(level="cohort")]
        if len(made) == 1:
            return made
        everybody = f"{len(self.subjects):,}"
        over_datasets = self.subjects.groupby(level="cohort").mean().mean()
        for mean, values in ((MEAN_DATASET, over_datasets), (MEAN_SUBJECT, self.subjects.mean())):
            cells = duel_cells(self.duel, mean)
            made.append([mean, everybody, percent(values[A]), percent(values[B]), *cells])
        return made

    def _row(self, cohort: Any, own: pd.DataFrame) -> list[str]:
        cells = duel_cells(duels(own, A)[B])
        means = own.mean()
        return [str(cohort), f"{len(own):,}", percent(means[A]), percent(means[B]), *cells]


@dataclass(frozen=True, eq=False)
class Comparison:
    """B against A.

    Attributes
    ----------
    a, b : Results
    arms : list of ArmComparison
    remarks : list of str
        In what else A and B differ, and what was not compared.
    """

    a: Results
    b: Results
    arms: list[ArmComparison]
    remarks: list[str]

    @property
    def simulated(self) -> bool:
        """Whether nights of either were simulated."""
        return self.a.simulated or self.b.simulated

    @property
    def recipes(self) -> str:
        """The recipe of both, or both recipes, in words."""
        return f"recipe {' and '.join(dict.fromkeys((self.a.recipe, self.b.recipe)))}"


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Comparison:
    """Compare two folders of runs, or the folders of two cells.

    Arms that both folders have are compared with each other; where each has a single one, these
    two. Scores count that both have for the same subject, of folders also in the same seed.

    Parameters
    ----------
    a, b : path
        Both of ``psdnorm lodo``, or both of one cell (``RUNS/cells/NAME``, or the weights in it).

    Returns
    -------
    Comparison
    """
    (first, first_is_grid), (second, second_is_grid) = _open(a), _open(b)
    if first_is_grid != second_is_grid:
        grid, cell = (a, b) if first_is_grid else (b, a)
        raise ArgumentError(
            f"{grid} is a folder of runs and {cell} a single cell, expected two of a kind"
        )
    _check_cohorts(first, second)
    pairs = _pairs(first, second)
    remarks = _differences(first, second)
    if not first_is_grid and first.cells["seed"].item() != second.cells["seed"].item():
        remarks.append("The cells have different seeds: other subjects trained and validated.")
    arms = []
    for name, arm_a, arm_b in pairs:
        tables = _tables(first.of(arm=arm_a), second.of(arm=arm_b), by_seed=first_is_grid)
        if tables is None:
            remarks.append(f"{name}: A and B share no subject in the same seed.")
            continue
        arms.append(ArmComparison(name, tables))
        remarks += [f"{name}: {words}." for words in tables.left_out]
    if not arms:
        raise ArgumentError(f"{first.path} and {second.path} share no subject in the same seed")
    if pairs[0][1] == pairs[0][2]:  # else both have one arm, and these were compared
        remarks += _only_one_has(first, second)
    return Comparison(first, second, arms, remarks)


def _open(path: str | os.PathLike[str]) -> tuple[Results, bool]:
    """Return results, and whether they are those of a folder of runs."""
    folder = Path(path)
    if folder.name == WEIGHTS and (folder.parent / SCORES).exists():
        folder = folder.parent
    if (folder / GRID).exists():
        return read_results(folder), True
    if (folder / CONFIG).exists() and (folder / SCORES).exists():
        return _cell_results(folder), False
    raise ArgumentError(
        f"{path} has neither {GRID} nor {SCORES}, expected the folder of psdnorm lodo or of one of "
        "its cells; a checkpoint alone has no scores"
    )


def _cell_results(folder: Path) -> Results:
    config = read_json(folder / CONFIG)
    try:
        fields = {name: config["cell"][name] for name in _FIELDS}
        row = {"cell": 0, **fields, "arm": label(make_cell(*fields.values()))}
        simulated = bool(config["simulated"])
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"{folder / CONFIG} is not that of a cell: {error}") from error
    sizes = dict.fromkeys(("filter_size", "norm_depth", "balanced"), "Int64")
    cells = pd.DataFrame([row | {"folder": folder}]).astype(sizes)
    subjects = subject_metrics(read_scores(folder / SCORES)).assign(cell=0)
    return Results(folder.absolute(), cells, subjects, [], config, simulated)


def _check_cohorts(a: Results, b: Results) -> None:
    ours, theirs = {*a.subjects["cohort"]}, {*b.subjects["cohort"]}
    if not ours & theirs:
        raise ArgumentError(
            f"{a.path} holds out {', '.join(sorted(ours))} and {b.path} "
            f"{', '.join(sorted(theirs))}: they have no cohort in common, so that nothing can be "
            "compared"
        )


def _pairs(a: Results, b: Results) -> list[tuple[str, str, str]]:
    """Return what is compared: a name, the arm of A and the arm of B."""
    ours, theirs = (list(dict.fromkeys(each.cells["arm"])) for each in (a, b))
    shared = [arm for arm in ours if arm in theirs]
    if shared:
        return [(arm, arm, arm) for arm in shared]
    if len(ours) == len(theirs) == 1:
        return [(f"{theirs[0]} (B) against {ours[0]} (A)", ours[0], theirs[0])]
    raise ArgumentError(
        f"{a.path} has {', '.join(ours)} and {b.path} {', '.join(theirs)}: expected an arm that "
        "both have, or one arm each"
    )


def _only_one_has(a: Results, b: Results) -> list[str]:
    """Name the arms that one lacks."""
    ours, theirs = {*a.cells["arm"]}, {*b.cells["arm"]}
    alone = {A: sorted(ours - theirs), B: sorted(theirs - ours)}
    return [f"Only {side} has {', '.join(arms)}." for side, arms in alone.items() if arms]


def _tables(a: Results, b: Results, *, by_seed: bool) -> BlockTables | None:
    """Arrange the scores of two arms; None where they share none."""
    parts = []
    for side, results in ((A, a), (B, b)):
        seeds = results.cells[["cell", "seed"]]
        scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(seeds, on="cell")
        parts.append(scores.assign(norm=side, seed=scores["seed"] if by_seed else 0))
    scores = pd.concat(parts, ignore_index=True)
    both = {*a.subjects["cohort"]} & {*b.subjects["cohort"]}
    if not both:
        return None
    tables = block_tables(scores[scores["cohort"].isin(both)], METRIC, norms=[A, B])
    return None if tables.subjects.dropna().empty else tables


def _differences(a: Results, b: Results) -> list[str]:
    """Say in what else two results differ, and what is not compared because of it."""
    told = []
    if a.recipe != b.recipe or a.config["recipe_sha256"] != b.config["recipe_sha256"]:
        told.append(f"The recipes differ: {a.recipe} (A) and {b.recipe} (B).")
    ours, theirs = a.config["protocol"], b.config["protocol"]
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            told.append(f"{name} is {ours.get(name)!r} in A and {theirs.get(name)!r} in B.")
    if a.simulated != b.simulated:
        told.append(f"Only the nights of {A if a.simulated else B} are simulated.")
    cohorts = [{*each.subjects["cohort"]} for each in (a, b)]
    alone = sorted(cohorts[0] ^ cohorts[1])
    if alone:
        told.append(f"Not compared, as only one of the two holds them out: {', '.join(alone)}.")
    for side, each in ((A, a), (B, b)):
        n = len(each.lacking)
        if n:
            told.append(f"{n} cell{'s' * (n != 1)} of {side} gave no result.")
    return told
