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
from psdnorm.report.compared_remarks import (
    A,
    B,
    Pair,
    arm_name,
    differences,
    only_one_has,
    whose_nights,
)
from psdnorm.report.contest import METRIC
from psdnorm.report.duels import DUEL_HEAD, Duel, duel_cells, duels, percent
from psdnorm.report.results import Results, instead_of_runs, read_results
from psdnorm.training.cell import read_json
from psdnorm.training.experiment import label
from psdnorm.training.grid import GRID, make_cell
from psdnorm.training.records import CONFIG, SCORES, WEIGHTS

HEAD = ["cohort", "subjects", "A, %", "B, %", *DUEL_HEAD]
_FIELDS = ("model", "norm", "filter_size", "norm_depth", "hold_out", "balanced", "seed")


@dataclass(frozen=True, eq=False)
class ArmComparison:
    """One arm of A against one of B.

    Attributes
    ----------
    name : str
        What is compared, in words: an arm that both have, or both arms.
    arm : str
        The same for programs, as ``usleep psd f5 d3 @all``.
    tables : BlockTables
        Balanced accuracies with the columns "A" and "B", of the scores that both have.
    """

    name: str
    arm: str
    tables: BlockTables

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds of the subjects that both have, (n_subjects, 2)."""
        return self.tables.subjects.dropna()

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores of every seed that both have, (n_scores, 2)."""
        return self.tables.by_seed.dropna()

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds that count in a cohort."""
        seeds = self.scores.reset_index("seed")["seed"].groupby(level="cohort").nunique()
        return int(seeds.min()), int(seeds.max())

    @cached_property
    def duel(self) -> Duel:
        """B against A, over all cohorts."""
        return duels(self.scores, A)[B]

    def rows(self) -> list[list[str]]:
        """Return one row per cohort, and the means where there are several, see :data:`HEAD`."""
        made = [self._row(*each) for each in self.scores.groupby(level="cohort")]
        if len(made) == 1:
            return made
        everybody = f"{len(self.subjects):,}"
        over_datasets = self.subjects.groupby(level="cohort").mean().mean()
        for mean, values in ((MEAN_DATASET, over_datasets), (MEAN_SUBJECT, self.subjects.mean())):
            cells = duel_cells(self.duel, mean)
            made.append([mean, everybody, percent(values[A]), percent(values[B]), *cells])
        return made

    def _row(self, cohort: Any, scores: pd.DataFrame) -> list[str]:
        cells = duel_cells(duels(scores, A)[B])
        own = self.subjects[self.subjects.index.get_level_values("cohort") == cohort]
        means = own.mean()
        return [str(cohort), f"{len(own):,}", percent(means[A]), percent(means[B]), *cells]


@dataclass(frozen=True, eq=False)
class Comparison:
    """B against A.

    Attributes
    ----------
    a, b : Results
    arms : list of ArmComparison
    nights : list of str
        What makes it doubtful that A and B are of the same people.
    others : list of str
        In what else A and B differ, and what was not compared.
    """

    a: Results
    b: Results
    arms: list[ArmComparison]
    nights: list[str]
    others: list[str]

    @property
    def remarks(self) -> list[str]:
        """All that is to be remarked, the gravest first."""
        return [*self.nights, *self.others]

    @cached_property
    def limits(self) -> list[str]:
        """What cannot be said, whatever A and B have in common."""
        told = ["Nights are simulated: nothing here is about patients."] if self.simulated else []
        fewest = min(arm.n_seeds[0] for arm in self.arms)
        most = max(arm.n_seeds[1] for arm in self.arms)
        if fewest == 1:
            where = " in some cohorts" if most > 1 else ""
            told.append(
                f"One seed{where}: how much of this is the luck of one training is not known, and "
                "intervals do not allow for other trainings."
            )
        if most > 1:
            told.append(
                f"Intervals allow for other trainings as far as {most} seeds show them, which is "
                "little: they are still too narrow for that."
            )
        told.append("Intervals of shares that do better take subjects for independent.")
        return [*told, *{arm.duel.caption: None for arm in self.arms}]

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
    nights = whose_nights(first, second, pairs, by_seed=first_is_grid)
    remarks = differences(first, second)
    if not first_is_grid and first.cells["seed"].item() != second.cells["seed"].item():
        remarks.append("The cells have different seeds: other subjects trained and validated.")
    arms = []
    for name, arm_a, arm_b in pairs:
        tables = _tables(first.of(arm=arm_a), second.of(arm=arm_b), by_seed=first_is_grid)
        if tables is None:
            remarks.append(f"{name}: A and B share no subject in the same seed.")
            continue
        arm = arm_a if arm_a == arm_b else f"{arm_b} (B) against {arm_a} (A)"
        arms.append(ArmComparison(name, arm, tables))
        remarks += [f"{name}: {words}." for words in tables.left_out]
    if not arms:
        raise ArgumentError(f"{first.path} and {second.path} share no subject in the same seed")
    if pairs[0][1] == pairs[0][2]:  # else both have one arm, and these were compared
        remarks += only_one_has(first, second)
    return Comparison(first, second, arms, nights, remarks)


def _open(path: str | os.PathLike[str]) -> tuple[Results, bool]:
    """Return results, and whether they are those of a folder of runs."""
    folder = Path(path)
    if not folder.is_dir():
        raise ArgumentError(f"{instead_of_runs(path)} or of one of its cells")
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


def _pairs(a: Results, b: Results) -> list[Pair]:
    """Return what is compared."""
    ours, theirs = (list(dict.fromkeys(each.cells["arm"])) for each in (a, b))
    shared = [arm for arm in ours if arm in theirs]
    if shared:
        return [(arm_name(a, arm), arm, arm) for arm in shared]
    names_a, names_b = ([arm_name(a, arm) for arm in ours], [arm_name(b, arm) for arm in theirs])
    if len(ours) == len(theirs) == 1:
        return [(f"{names_b[0]} (B) against {names_a[0]} (A)", ours[0], theirs[0])]
    raise ArgumentError(
        f"{a.path} has {'; '.join(names_a)} and {b.path} {'; '.join(names_b)}: expected an arm "
        "that both have, or one arm each"
    )


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
