"""Compare two experiments."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import overall_means, read_scores, subject_metrics
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.experiments import GRID
from psdnorm.report import (
    Results,
    instead_of_runs,
    is_checkpoint,
    model_place,
    norm_place,
    read_results,
    runs_inside,
    without_roots,
)
from psdnorm.report.verdict import (
    DUEL_HEAD,
    METRIC,
    SIMULATED,
    Duel,
    duel_cells,
    duels,
    of_draws,
    of_duels,
    of_one_seed,
    percent,
)
from psdnorm.runtime import listed, read_json
from psdnorm.store import RECIPE_FILE as RECIPE
from psdnorm.training import CONFIG, SCORES, WEIGHTS, Run, setting_name

A, B = "A", "B"
Pair = tuple[str, str, str]  # what is compared, the arm of A and the arm of B


def full_name(results: Results, arm: str) -> str:
    """Return what people call an arm, and what it learned with.

    Parameters
    ----------
    results : Results
        That has the arm.
    arm : str
        As ``usleep psd f17 d3 @all``, which is "PSDNorm (f = 17) in U-Sleep, all subjects".
    """
    cell = results.cells[results.cells["arm"] == arm].iloc[0]
    size = None if pd.isna(cell["balanced"]) else int(cell["balanced"])
    return f"{results.named(arm)} in {setting_name(cell['model'], size)}"


def same_folder(a: Path, b: Path) -> list[str]:
    """Say that a folder is compared with itself, where it is.

    Parameters
    ----------
    a, b : Path
        Both exist.
    """
    return ["A and B are the same folder: nothing can differ."] if a.samefile(b) else []


def whose_nights(a: Results, b: Results, pairs: list[Pair], *, by_seed: bool) -> list[str]:
    """Say where A and B were tested, trained or validated on other nights.

    Digests of nights are those of prepared ones: of another recipe, they tell nothing.

    Parameters
    ----------
    a, b : Results
    pairs : list of (str, str, str)
        What is compared: a name, the arm of A and the arm of B.
    by_seed : bool
        Whether cells of the same seed are compared; else whichever there are, and training nights
        differ anyway.
    """
    if a.config["recipe_sha256"] != b.config["recipe_sha256"]:
        return [
            "The recipes differ, so that it cannot be told whether A and B were tested on the same "
            "nights: subjects of the same name may be other people."
        ]
    differ = _cohorts_that_differ(a, b, pairs, by_seed=by_seed)
    told = []
    if differ["test"]:
        told.append(
            f"A and B were tested on other nights of {listed(sorted(differ['test']))}: subjects of "
            "the same name may be other people."
        )
    elsewhere = sorted(differ["train"] | differ["validation"])
    if by_seed and elsewhere:
        told.append(
            f"A and B were trained or validated on other nights where {listed(elsewhere)} "
            f"{'was' if len(elsewhere) == 1 else 'were'} held out: gains may come from these."
        )
    return told


def _cohorts_that_differ(
    a: Results, b: Results, pairs: list[Pair], *, by_seed: bool
) -> dict[str, set[str]]:
    """Return the held-out cohorts of the cells whose nights differ, by what they were used for."""
    differ: dict[str, set[str]] = {"test": set(), "train": set(), "validation": set()}
    keys = ["hold_out", "seed"] if by_seed else ["hold_out"]
    for _, arm_a, arm_b in pairs:
        ours, theirs = (
            each.cells.loc[each.cells["arm"] == arm, [*keys, "folder"]]
            for each, arm in ((a, arm_a), (b, arm_b))
        )
        for cell in ours.merge(theirs, on=keys, suffixes=("_a", "_b")).to_dict("records"):
            one, other = _digests(cell["folder_a"]), _digests(cell["folder_b"])
            for part, cohorts in differ.items():
                if one[part] != other[part]:
                    cohorts.add(cell["hold_out"])
    return differ


def _digests(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    try:
        return {part: config["data"][part]["sha256"] for part in ("test", "train", "validation")}
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"{folder / CONFIG} is not that of a cell: {error}") from error


def differences(a: Results, b: Results) -> list[str]:
    """Say in what else two results differ, and what is not compared because of it.

    Parameters
    ----------
    a, b : Results
    """
    told = []
    hashes = [str(each.config["recipe_sha256"])[:12] for each in (a, b)]
    if a.recipe != b.recipe:
        told.append(f"The recipes differ: {a.recipe} (A) and {b.recipe} (B).")
    elif hashes[0] != hashes[1]:
        told.append(f"The recipes differ: {a.recipe} is {hashes[0]} in A and {hashes[1]} in B.")
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
        n = len(each.lacking) - len(each.damaged)
        if n:
            told.append(f"{n} cell{'s' * (n != 1)} of {side} gave no result.")
    return told


def only_one_has(a: Results, b: Results) -> list[str]:
    """Name the arms that one of two results lacks.

    Parameters
    ----------
    a, b : Results
    """
    ours, theirs = {*a.cells["arm"]}, {*b.cells["arm"]}
    alone = ((A, a, sorted(ours - theirs)), (B, b, sorted(theirs - ours)))
    return [
        f"Only {side} has {'; '.join(full_name(results, arm) for arm in arms)}."
        for side, results, arms in alone
        if arms
    ]


HEAD = ["cohort", "subjects", "A, %", "B, %", *DUEL_HEAD]
_SCORED = ["cell", "cohort", "subject", METRIC, *(f"f1_{stage}" for stage in STAGES)]
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
    runs : DataFrame
        The same scores as rows, with the F1 of every stage: ``norm`` ("A" or "B"), ``seed``,
        ``cohort``, ``subject``.
    """

    name: str
    arm: str
    tables: BlockTables
    runs: pd.DataFrame

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
        for mean, values in overall_means(self.subjects).items():
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
        What makes it doubtful that A and B are two experiments on the same people.
    others : list of str
        In what else A and B differ, and what was not compared.
    failed : list of str
        A sentence for each finished cell that cannot be read, or night that could not be evaluated.
    """

    a: Results
    b: Results
    arms: list[ArmComparison]
    nights: list[str]
    others: list[str]
    failed: list[str] = field(default_factory=list)

    @property
    def remarks(self) -> list[str]:
        """All that is to be remarked, the gravest first."""
        return [*self.nights, *self.failed, *self.others]

    @cached_property
    def limits(self) -> list[str]:
        """What cannot be said, whatever A and B have in common."""
        fewest, most = zip(*(arm.n_seeds for arm in self.arms), strict=True)
        n_seeds = min(fewest), max(most)
        n_cohorts = max(arm.subjects.index.unique("cohort").size for arm in self.arms)
        return [
            *([SIMULATED] if self.simulated else []),
            *of_one_seed(n_seeds),
            of_draws(n_seeds, n_cohorts),
            *of_duels(arm.duel for arm in self.arms),
        ]

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
    nights = same_folder(first.path, second.path)
    nights += whose_nights(first, second, pairs, by_seed=first_is_grid)
    remarks = differences(first, second)
    if not first_is_grid and first.cells["seed"].item() != second.cells["seed"].item():
        remarks.append("The cells have different seeds: other subjects trained and validated.")
    arms = []
    for name, arm_a, arm_b in pairs:
        sides = first.of(arm=arm_a), second.of(arm=arm_b)
        tables, runs = arranged(*sides, by_seed=first_is_grid)
        if tables is None:
            remarks.append(f"{name}: A and B share no subject in the same seed.")
            continue
        arm = arm_a if arm_a == arm_b else f"{arm_b} (B) against {arm_a} (A)"
        arms.append(ArmComparison(name, arm, tables, runs))
        remarks += [f"{name}: {words}." for words in tables.left_out]
    if not arms:
        raise ArgumentError(f"{first.path} and {second.path} share no subject in the same seed")
    if pairs[0][1] == pairs[0][2]:  # else both have one arm, and these were compared
        remarks += only_one_has(first, second)
    failed = [
        without_roots(f"{side}: {words}", each.path)
        for side, each in ((A, first), (B, second))
        for words in each.damaged
    ]
    return Comparison(first, second, arms, nights, remarks, failed)


def _open(path: str | os.PathLike[str]) -> tuple[Results, bool]:
    """Return results, and whether they are those of a folder of runs."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RECIPE).exists():
        raise ArgumentError(f"{instead_of_runs(path)} or of one of its cells")
    if folder.name == WEIGHTS and (folder.parent / SCORES).exists():
        folder = folder.parent
    if (folder / GRID).exists():
        return read_results(folder), True
    if (folder / CONFIG).exists() and (folder / SCORES).exists():
        return _cell_results(folder), False
    if is_checkpoint(folder):
        raise ArgumentError(
            f"{path} is a checkpoint, which has no scores: give the prepared nights to evaluate "
            "both on (--store STORE)"
        )
    raise ArgumentError(
        runs_inside(path)
        or f"{path} has neither {GRID} nor {SCORES}, expected the folder of psdnorm lodo, of one "
        "of its cells, or a checkpoint"
    )


def _cell_results(folder: Path) -> Results:
    config = read_json(folder / CONFIG)
    try:
        fields = {name: config["cell"][name] for name in _FIELDS}
        row = {"cell": 0, **Run(*fields.values()).row()}
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
    ours, theirs = _arms(a), _arms(b)
    shared = [arm for arm in ours if arm in theirs]
    if shared:
        return [(full_name(a, arm), arm, arm) for arm in shared]
    names_a, names_b = ([full_name(a, arm) for arm in ours], [full_name(b, arm) for arm in theirs])
    if len(ours) == len(theirs) == 1:
        return [(f"{names_b[0]} (B) against {names_a[0]} (A)", ours[0], theirs[0])]
    raise ArgumentError(
        f"{a.path} has {'; '.join(names_a)} and {b.path} {'; '.join(names_b)}: expected an arm "
        "that both have, or one arm each"
    )


def _arms(results: Results) -> list[str]:
    """Return the arms, in the order in which a report has them."""
    first = results.cells.drop_duplicates("arm").fillna({"filter_size": 0, "norm_depth": 0})
    return [cell["arm"] for cell in sorted(first.to_dict("records"), key=_place)]


def _place(cell: dict[str, Any]) -> tuple:
    size = 0 if pd.isna(cell["balanced"]) else 1 / cell["balanced"]  # all, then the largest
    norm = norm_place(cell["norm"])
    return model_place(cell["model"]), size, norm, cell["filter_size"], cell["norm_depth"]


def arranged(a: Results, b: Results, *, by_seed: bool) -> tuple[BlockTables | None, pd.DataFrame]:
    """Arrange the scores of two arms.

    Parameters
    ----------
    a, b : Results
        Of one arm each.
    by_seed : bool
        Whether the same seeds are compared; else whichever there are.

    Returns
    -------
    tables : BlockTables or None
        Balanced accuracies with the columns "A" and "B"; None where they share none.
    runs : DataFrame
        The scores that both have, as rows; see :class:`ArmComparison`.
    """
    parts = []
    for side, results in ((A, a), (B, b)):
        seeds = results.cells[["cell", "seed"]]
        scores = results.subjects[_SCORED].merge(seeds, on="cell")
        parts.append(scores.assign(norm=side, seed=scores["seed"] if by_seed else 0))
    scores = pd.concat(parts, ignore_index=True)
    both = {*a.subjects["cohort"]} & {*b.subjects["cohort"]}
    scores = scores[scores["cohort"].isin(both)]
    if scores.empty:
        return None, scores
    tables = block_tables(scores, METRIC, norms=[A, B])
    counted = tables.by_seed.dropna().index
    kept = pd.MultiIndex.from_frame(scores[list(counted.names)]).isin(counted)
    return (None if tables.subjects.dropna().empty else tables), scores[kept]
