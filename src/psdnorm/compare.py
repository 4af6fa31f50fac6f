"""Compare two experiments, two runs or two checkpoints, A and B, and write the result as a page."""

import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import psdnorm
from psdnorm.batches import LENGTH, STRIDE
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, StoreError, TrainingError
from psdnorm.evaluation import (
    merge_scores,
    overall_means,
    read_scores,
    score_night,
    subject_metrics,
)
from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.experiments import GRID
from psdnorm.models import accelerate
from psdnorm.present import FRAME_BYTES, CannotDraw, Drawing, Page, Part
from psdnorm.report import (
    FIGURES,
    METRIC,
    MOST_BYTES,
    MOST_SUBJECTS,
    PAGE,
    SUBJECTS_CSV,
    TABLES,
    Results,
    Trained,
    add_figures,
    instead_of_runs,
    is_checkpoint,
    load_trained,
    lowest_first,
    model_place,
    new_folder,
    norm_place,
    read_results,
    runs_inside,
    verdict,
    whole_rows,
    without_roots,
    write_figures,
)
from psdnorm.report.figures import SEEDS_OMITTED, Figures, by_stage, draw_all, forest, scattered
from psdnorm.runtime import json_text, listed, plural, read_json, written
from psdnorm.store import RECIPE_FILE, Store
from psdnorm.training import (
    ARM,
    CONFIG,
    SCORES,
    WEIGHTS,
    Arm,
    Forward,
    NotFiniteError,
    Run,
    origin,
    predict_night,
    quiet_libraries,
    reproducible,
    resolve_device,
    setting_name,
)

A, B = "A", "B"
HEAD = ["cohort", "subjects", "A, %", "B, %", *verdict.DUEL_HEAD]
COMPARED_CSV = "compared.csv"
Watch = Callable[[Iterable[dict[str, Any]], int, str], Iterable[dict[str, Any]]]
Pair = tuple[str, Arm, Arm]  # name of the comparison, the arm of A and the arm of B
_SCORED = ["run", "cohort", "subject", METRIC, *(f"f1_{stage}" for stage in STAGES)]
_SIZES = dict.fromkeys(("filter_size", "norm_depth", "balanced"), "Int64")
_BATCH = 16  # windows: a night has about 45, and the filling of its last batch is wasted
_LABELS = {A: A, B: B}
_COLUMNS = [("subject", "text"), ("B − A", "gain"), ("A", "percent"), ("B", "percent")]


@dataclass(frozen=True, eq=False)
class ArmComparison:
    name: str  # for readers: the arm that both have, or both arms
    arm: str  # for programs, e.g. ``usleep psd f5 d3 @all``
    tables: BlockTables  # balanced accuracies of the scores that both have, columns A and B
    stage_scores: pd.DataFrame  # the same with F1 by stage: norm (A or B), seed, cohort, subject

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds of the subjects that both have, (n_subjects, 2)."""
        return self.tables.subjects.dropna()

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Scores of every seed that both have, (n_scores, 2)."""
        return self.tables.by_seed.dropna()

    @cached_property
    def duel(self) -> verdict.Duel:
        return verdict.duels(self.scores, A)[B]

    def rows(self) -> list[list[str]]:
        """Return a row per cohort, and the means where there are several, see :data:`HEAD`."""
        found: list[tuple[str, int, Any, list[str]]] = []
        for cohort, scores in self.scores.groupby(level="cohort"):
            own = self.subjects.xs(cohort, level="cohort")
            gains = verdict.duel_cells(verdict.duels(scores, A)[B])
            found.append((str(cohort), len(own), own.mean(), gains))
        if len(found) > 1:
            for mean, values in overall_means(self.subjects).items():
                gains = verdict.duel_cells(self.duel, mean)
                found.append((mean, len(self.subjects), values, gains))
        return [
            [name, f"{n:,}", *(verdict.percent(means[side]) for side in (A, B)), *gains]
            for name, n, means, gains in found
        ]

    @cached_property
    def sentences(self) -> list[str]:
        gains = verdict.gain_words(B, A, self.duel.gains, self.duel.reservation)
        return [gains, *verdict.people_words(B, A, self.duel)]


@dataclass(frozen=True, eq=False)
class Comparison:
    """B against A, with remarks of one sentence each."""

    a: Results
    b: Results
    arms: list[ArmComparison]
    nights: list[str]  # why A and B may not be two experiments on the same people
    others: list[str]  # other differences, and what was not compared
    failed: list[str] = field(default_factory=list)  # runs or nights that cannot be read

    @property
    def remarks(self) -> list[str]:
        return [*self.nights, *self.failed, *self.others]  # most serious first

    @cached_property
    def limits(self) -> list[str]:
        """What the comparison cannot show, however much A and B have in common."""
        fewest, most = zip(*(arm.tables.n_seeds for arm in self.arms), strict=True)
        n_seeds = min(fewest), max(most)
        n_cohorts = max(arm.subjects.index.unique("cohort").size for arm in self.arms)
        return [
            *([verdict.SIMULATED] if self.simulated else []),
            *verdict.limits_of_seeds(n_seeds),
            verdict.limits_of_intervals(n_seeds, n_cohorts),
            *verdict.limits_of_duels(arm.duel for arm in self.arms),
        ]

    @property
    def simulated(self) -> bool:
        return self.a.simulated or self.b.simulated

    @property
    def recipes(self) -> str:
        """The recipe of both, or both recipes, in words."""
        return f"recipe {' and '.join(dict.fromkeys((self.a.recipe, self.b.recipe)))}"


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Comparison:
    """Compare two experiments (folders of runs), or two runs (``RUNS/cells/NAME``).

    Arms that both experiments have are compared; failing that, the only arm of each. A score counts
    only if both have it for the same subject and, in experiments, for the same seed.
    """
    (first, are_experiments), (second, is_other) = _open(a), _open(b)
    if are_experiments != is_other:
        experiment, run = (a, b) if are_experiments else (b, a)
        raise ArgumentError(
            f"{experiment} is a folder of runs and {run} a single run, expected two of a kind"
        )
    ours, theirs = ({*each.subjects["cohort"]} for each in (first, second))
    if not ours & theirs:
        raise ArgumentError(
            f"{first.path} holds out {', '.join(sorted(ours))} and {second.path} "
            f"{', '.join(sorted(theirs))}: they have no cohort in common, so nothing can be "
            "compared"
        )
    pairs = _pairs(first, second)
    nights = _same_folder(first.path, second.path)
    nights += _other_nights(first, second, pairs, by_seed=are_experiments)
    remarks = _differences(first, second)
    if not are_experiments and first.runs["seed"].item() != second.runs["seed"].item():
        remarks.append("The runs have different seeds: training and validation sets differ.")
    arms = []
    for name, one, other in pairs:
        sides = first.of(arm=one.label), second.of(arm=other.label)
        tables, stage_scores = _arranged(*sides, by_seed=are_experiments)
        if tables is None:
            remarks.append(f"{name}: A and B share no subject in the same seed.")
            continue
        arms.append(ArmComparison(name, _both(one, other), tables, stage_scores))
        remarks += [f"{name}: {words}." for words in tables.left_out]
    if not arms:
        raise ArgumentError(f"{first.path} and {second.path} share no subject in the same seed")
    if pairs[0][1] == pairs[0][2]:  # else each has one arm, and those two were compared
        remarks += _arms_of_one(first, second)
    failed = [
        without_roots(f"{side}: {words}", each.path)
        for side, each in ((A, first), (B, second))
        for words in each.damaged
    ]
    return Comparison(first, second, arms, nights, remarks, failed)


def _open(path: str | os.PathLike[str]) -> tuple[Results, bool]:
    """Return results, and whether they are those of an experiment."""
    folder = Path(path)
    if not folder.is_dir() or (folder / RECIPE_FILE).exists():
        raise ArgumentError(f"{instead_of_runs(path)} or of one of its runs")
    if folder.name == WEIGHTS and (folder.parent / SCORES).exists():
        folder = folder.parent
    if (folder / GRID).exists():
        return read_results(folder), True
    if (folder / CONFIG).exists() and (folder / SCORES).exists():
        return _of_run(folder), False
    if is_checkpoint(folder):
        raise ArgumentError(
            f"{path} is a checkpoint, which has no scores: give the prepared nights to evaluate "
            "both on (--store STORE)"
        )
    raise ArgumentError(
        runs_inside(path)
        or f"{path} has neither {GRID} nor {SCORES}, expected the folder of psdnorm lodo, of one "
        "of its runs, or a checkpoint"
    )


def _of_run(folder: Path) -> Results:
    config = read_json(folder / CONFIG)
    try:
        run = Run(**{name: config["cell"][name] for name in (*ARM, "hold_out", "seed")})
        simulated = bool(config["simulated"])
    except (KeyError, TypeError) as error:
        raise _no_config(folder, error) from error
    runs = pd.DataFrame([{"run": 0, **run.row(), "folder": folder}]).astype(_SIZES)
    subjects = subject_metrics(read_scores(folder / SCORES)).assign(run=0)
    return Results(folder.absolute(), runs, subjects, config, simulated)


def _no_config(folder: Path, error: Exception) -> ArgumentError:
    return ArgumentError(f"{folder / CONFIG} is not the config of a run: {error}")


def _pairs(a: Results, b: Results) -> list[Pair]:
    ours, theirs = _arms(a), _arms(b)
    shared = [arm for arm in ours if arm in theirs]
    if shared:
        return [(_name(arm), arm, arm) for arm in shared]
    names_a, names_b = ([_name(arm) for arm in each] for each in (ours, theirs))
    if len(ours) == len(theirs) == 1:
        return [(f"{names_b[0]} (B) against {names_a[0]} (A)", ours[0], theirs[0])]
    raise ArgumentError(
        f"{a.path} has {'; '.join(names_a)} and {b.path} {'; '.join(names_b)}: expected an arm "
        "that both have, or one arm each"
    )


def _arms(results: Results) -> list[Arm]:
    """Return the arms, in the order of a report."""

    def place(arm: Arm) -> tuple:
        size = 1 / arm.balanced if isinstance(arm.balanced, int) else 0  # all, then the largest
        own = arm.filter_size or 0, arm.norm_depth or 0
        return model_place(arm.model), size, norm_place(arm.norm), *own

    rows = results.runs.drop_duplicates("arm").to_dict("records")
    return sorted(map(Arm.of_row, rows), key=place)


def _name(arm: Arm) -> str:
    """Return an arm's name for readers, e.g. "PSDNorm (f = 17) in U-Sleep, all subjects"."""
    return f"{arm.named()} in {setting_name(arm.model, arm.balanced)}"


def _both(a: Arm, b: Arm) -> str:
    return a.label if a.label == b.label else f"{b.label} (B) against {a.label} (A)"


def _arms_of_one(a: Results, b: Results) -> list[str]:
    ours, theirs = _arms(a), _arms(b)
    alone = {
        A: [_name(arm) for arm in ours if arm not in theirs],
        B: [_name(arm) for arm in theirs if arm not in ours],
    }
    return [f"Only {side} has {'; '.join(sorted(arms))}." for side, arms in alone.items() if arms]


def _arranged(a: Results, b: Results, *, by_seed: bool) -> tuple[BlockTables | None, pd.DataFrame]:
    """Pair the scores of one arm each, by seed or not; None as tables if they share no score."""
    parts = []
    for side, results in ((A, a), (B, b)):
        scores = results.subjects[_SCORED].merge(results.runs[["run", "seed"]], on="run")
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


def _same_folder(a: Path, b: Path) -> list[str]:
    return ["A and B are the same folder: nothing can differ."] if a.samefile(b) else []


def _other_nights(a: Results, b: Results, pairs: list[Pair], *, by_seed: bool) -> list[str]:
    """Say where the test, training or validation nights of A and B differ."""
    if a.config["recipe_sha256"] != b.config["recipe_sha256"]:  # digests cover prepared nights
        return [
            "The recipes differ, so it cannot be told whether A and B were tested on the same "
            "nights: subjects of the same name may be different people."
        ]
    differ: dict[str, set[str]] = {"test": set(), "train": set(), "validation": set()}
    keys = ["hold_out", "seed"] if by_seed else ["hold_out"]
    for _, one, other in pairs:
        ours, theirs = (
            each.runs.loc[each.runs["arm"] == arm.label, [*keys, "folder"]]
            for each, arm in ((a, one), (b, other))
        )
        for row in ours.merge(theirs, on=keys, suffixes=("_a", "_b")).to_dict("records"):
            of_a, of_b = _digests(row["folder_a"]), _digests(row["folder_b"])
            for part, cohorts in differ.items():
                if of_a[part] != of_b[part]:
                    cohorts.add(row["hold_out"])
    remarks = []
    if differ["test"]:
        remarks.append(
            f"A and B were tested on different nights of {listed(sorted(differ['test']))}: "
            "subjects of the same name may be different people."
        )
    elsewhere = sorted(differ["train"] | differ["validation"])
    if by_seed and elsewhere:  # else training sets differ anyway
        remarks.append(
            f"A and B were trained or validated on different nights where {listed(elsewhere)} "
            f"{'was' if len(elsewhere) == 1 else 'were'} held out: gains may come from these."
        )
    return remarks


def _digests(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    try:
        return {part: config["data"][part]["sha256"] for part in ("test", "train", "validation")}
    except (KeyError, TypeError) as error:
        raise _no_config(folder, error) from error


def _differences(a: Results, b: Results) -> list[str]:
    """Return the other differences of two results, and what is not compared because of them."""
    remarks = []
    digests = [str(each.config["recipe_sha256"])[:12] for each in (a, b)]
    if a.recipe != b.recipe:
        remarks.append(f"The recipes differ: {a.recipe} (A) and {b.recipe} (B).")
    elif digests[0] != digests[1]:
        remarks.append(
            f"The recipes differ: {a.recipe} is {digests[0]} in A and {digests[1]} in B."
        )
    ours, theirs = a.config["protocol"], b.config["protocol"]
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            remarks.append(f"{name} is {ours.get(name)!r} in A and {theirs.get(name)!r} in B.")
    if a.simulated != b.simulated:
        remarks.append(f"Only the nights of {A if a.simulated else B} are simulated.")
    alone = sorted({*a.subjects["cohort"]} ^ {*b.subjects["cohort"]})
    if alone:
        remarks.append(f"Not compared, as only one of the two holds them out: {', '.join(alone)}.")
    for side, each in ((A, a), (B, b)):
        if n := len(each.missing) - len(each.damaged):
            remarks.append(f"{plural(n, 'run')} of {side} gave no result.")
    return remarks


@dataclass(frozen=True)
class _Side:
    letter: str
    forward: Forward
    nights: Store
    device: torch.device

    def score(self, night: dict[str, Any]) -> pd.DataFrame:
        """Score a night by its central epochs, as in runs."""
        recording = night["recording"]
        probabilities, central = predict_night(
            self.forward,
            self.nights.signals(recording),
            length=LENGTH,
            stride=STRIDE,
            batch_size=_BATCH,
            device=self.device,
        )
        if not np.isfinite(probabilities).all():
            raise NotFiniteError(
                f"the predictions of {self.letter} are not finite; "
                f"{origin(self.nights, [recording])}"
            )
        true = np.frombuffer(night["stages"], np.int8)
        return score_night(night["cohort"], night["subject"], true, probabilities, central)


def compare_checkpoints(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    store: Store,
    cohorts: Sequence[str] = (),
    *,
    device: str | torch.device = "auto",
    watch: Watch = lambda nights, total, what: nights,
) -> Comparison:
    """Evaluate two checkpoints, or runs that kept their weights, on the same nights.

    ``cohorts`` are by default all that neither was trained on. A night counts for neither if it
    cannot be read, or if predictions of either network are not finite. ``watch`` yields the nights
    and shows progress, as :func:`psdnorm.runtime.track` does.
    """
    both = {A: load_trained(Path(a)), B: load_trained(Path(b))}
    for trained in both.values():
        trained.check_takes(store)
    index, remarks = _unseen(store, both, cohorts)
    place = resolve_device(device)
    with quiet_libraries(), reproducible(place):
        sides = []
        for letter, trained in both.items():
            model: Any = trained.model.to(place)
            nights = trained.source(store, place)
            sides.append(_Side(letter, accelerate(model, "auto"), nights, place))
        scores, failed = _evaluated(sides, index, watch)
    failed = [without_roots(words, store.path) for words in failed]
    if not scores[A]:
        raise StoreError(f"{store.path} has no night that could be evaluated: {failed[0]}")
    simulated = bool(index["simulated"].any())
    first, second = (_of_checkpoint(both[x], store, scores[x], simulated) for x in (A, B))
    tables, stage_scores = _arranged(first, second, by_seed=False)
    if tables is None:
        names = listed(sorted(index["cohort"].unique()))
        raise ArgumentError(f"{store.path} has no scored epoch of {names}")
    one, other = both[A], both[B]
    is_same = one.arm.label == other.arm.label
    name = one.name if is_same else f"{other.name} (B) against {one.name} (A)"
    compared = ArmComparison(name, _both(one.arm, other.arm), tables, stage_scores)
    remarks += [_learned(letter, trained) for letter, trained in both.items()]
    remarks += [f"{words}." for words in tables.left_out]
    doubts = _same_folder(one.folder, other.folder)
    if _training_set(one) != _training_set(other):
        doubts.append("A and B learned from different nights: gains may come from these.")
    return Comparison(first, second, [compared], doubts, list(filter(None, remarks)), failed)


def _unseen(
    store: Store, both: dict[str, Trained], wanted: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the nights to evaluate on, without cohorts used in training, and remarks."""
    there = sorted(store.index["cohort"].unique())
    for cohort in wanted:
        if cohort not in there:
            raise ArgumentError(f"--cohort is {cohort!r}, expected one of {', '.join(there)}")
    simulated = store.index.groupby("cohort")["simulated"].any()
    remarks: list[str] = []
    seen: dict[str, list[str]] = {}
    for letter, trained in both.items():
        if trained.cohorts is None:
            remarks.append(f"{letter} does not say which cohorts it learned from: it may be these.")
        named = sorted({*(wanted or there)} & (trained.cohorts or set()))
        # a simulated cohort is named after a real one but holds none of its people
        others = [c for c in named if trained.training.get("simulated") and not simulated[c]]
        own = [c for c in named if c not in others]
        if others:
            remarks.append(f"{letter} learned from simulated nights called {listed(others)}.")
        if own and wanted:
            raise ArgumentError(
                f"--cohort names {listed(own)}, from which {letter} ({trained.folder}) learned: "
                "expected cohorts that neither has seen"
            )
        for cohort in own:
            seen.setdefault(cohort, []).append(letter)
    for letters in dict.fromkeys(map(tuple, seen.values())):
        whose = [cohort for cohort, those in seen.items() if tuple(those) == letters]
        remarks.append(f"Not compared, as {listed(letters)} learned from them: {', '.join(whose)}.")
    kept = [cohort for cohort in (wanted or there) if cohort not in seen]
    if not kept:
        raise ArgumentError(
            f"{store.path} has {', '.join(there)}, from all of which A or B learned, expected a "
            "cohort that neither has seen"
        )
    return store.index[store.index["cohort"].isin(kept)], remarks


def _evaluated(
    sides: list[_Side], index: pd.DataFrame, watch: Watch
) -> tuple[dict[str, list[pd.DataFrame]], list[str]]:
    """Return the scores of every night by side, and a sentence for each night left out."""
    scores: dict[str, list[pd.DataFrame]] = {side.letter: [] for side in sides}
    failed = []
    nights = index[["cohort", "subject", "recording", "stages"]].to_dict("records")
    for night in watch(nights, len(nights), "evaluating"):
        try:
            found = {side.letter: side.score(night) for side in sides}
        except (StoreError, TrainingError) as error:
            failed.append(f"{night['recording']} is left out: {error}.")
            continue
        for letter, own in found.items():
            scores[letter].append(own)
    return scores, failed


def _of_checkpoint(
    trained: Trained, store: Store, scores: list[pd.DataFrame], simulated: bool
) -> Results:
    folder = trained.folder
    row = asdict(trained.arm) | {"balanced": None, "arm": trained.arm.label}
    row |= {"run": 0, "hold_out": "", "seed": 0, "folder": folder}
    subjects = subject_metrics(merge_scores(scores)).assign(run=0)
    config = {
        "recipe": store.recipe,
        "recipe_sha256": store.hash,
        "protocol": {"length": LENGTH, "stride": STRIDE},
    }
    path = folder.parent if folder.name == WEIGHTS else folder
    runs = pd.DataFrame([row]).astype(_SIZES)
    return Results(path.absolute(), runs, subjects, config, simulated)


def _training_set(trained: Trained) -> tuple[Any, ...]:
    return trained.cohorts, trained.training.get("nights"), trained.training.get("simulated")


def _learned(letter: str, trained: Trained) -> str:
    cohorts, nights, simulated = _training_set(trained)
    if cohorts is None or not isinstance(nights, int):
        return ""
    kind = "simulated night" if simulated else "night"
    return f"{letter} learned from {plural(nights, kind)} of {listed(sorted(cohorts))}."


def comparison_figures(comparison: Comparison) -> Figures:
    draws = [partial(draw, arm) for arm in comparison.arms for draw in (_subjects, _gains, _stages)]
    recipe = comparison.recipes.removeprefix("recipe ")
    return draw_all(draws, simulated=comparison.simulated, recipe=recipe)


def _key(arm: ArmComparison) -> str:
    return re.sub(r"[^a-z0-9]+", "-", arm.arm.lower()).strip("-")


def _subjects(arm: ArmComparison) -> Drawing:
    return scattered(
        100 * arm.subjects,
        B,
        [A],
        _LABELS,
        name=f"subjects-{_key(arm)}",
        title=f"Balanced accuracy of each subject: {arm.name}",
        remarks="Intervals are Wilson's.",
    )


def _gains(arm: ArmComparison) -> Drawing:
    title = f"Gain of B over A, by cohort: {arm.name}"
    name = f"gains-{_key(arm)}"
    return forest(100 * arm.scores, A, _LABELS, name=name, title=title, remarks="")


def _stages(arm: ArmComparison) -> Drawing:
    title = "F1 of each stage, difference of B to A"
    stage_scores = arm.stage_scores[arm.stage_scores["seed"].isin(arm.tables.complete_seeds)]
    if stage_scores.empty:
        raise CannotDraw(f"{title} ({arm.name}): there is no seed in which both have all cohorts.")
    return by_stage(
        stage_scores,
        A,
        _LABELS,
        name=f"stages-{_key(arm)}",
        title=f"{title}: {arm.name}",
        remarks="" if len(stage_scores) == len(arm.stage_scores) else SEEDS_OMITTED,
    )


def write_comparison(
    comparison: Comparison, out: str | os.PathLike[str], command: str, *, figures: bool = True
) -> None:
    """Write the page of a comparison, with the command, and its tables and figures beside it.

    ``out`` is a folder: new, empty, or an earlier report, which is replaced.
    """
    missing = Figures([], ["Figures were not asked for."])
    drawn = comparison_figures(comparison) if figures else missing
    record = {
        "psdnorm": psdnorm.__version__,
        "a": _origin(comparison.a),
        "b": _origin(comparison.b),
        "simulated": comparison.simulated,
        "sentences": {arm.arm: arm.sentences for arm in comparison.arms},
        "limits": comparison.limits,
        "remarks": comparison.remarks,
    }
    rows, subjects = [], []
    for arm in comparison.arms:
        rows.append(pd.DataFrame(arm.rows(), columns=HEAD).assign(arm=arm.arm))
        own = arm.subjects.assign(gain=arm.subjects[B] - arm.subjects[A], arm=arm.arm)
        subjects.append(own.reset_index())
    with new_folder(Path(out), record) as folder:
        (folder / TABLES).mkdir()
        _write_csv(folder / TABLES / COMPARED_CSV, rows, HEAD)
        _write_csv(folder / TABLES / SUBJECTS_CSV, subjects, ["cohort", "subject", A, B, "gain"])
        write_figures(drawn, folder / FIGURES)
        comparison_page(comparison, command, drawn).write(folder / PAGE)


def _write_csv(path: Path, tables: list[pd.DataFrame], columns: list[str]) -> None:
    with written(path) as file:
        pd.concat(tables)[["arm", *columns]].to_csv(file, index=False, float_format="%.6g")


def comparison_page(comparison: Comparison, command: str, figures: Figures) -> Page:
    sides = ((A, comparison.a), (B, comparison.b))
    title = f"{_folder(comparison.b)} against {_folder(comparison.a)}"
    page = Page(title, simulated=comparison.simulated, contents=True).heading("Verdict")
    compared = [f"{side} is {_folder(each)}, recipe {each.recipe}." for side, each in sides]
    page.items([*compared, *comparison.nights])
    for arm in comparison.arms:
        first, *others = arm.sentences
        page.verdict(page.part().text(f"{arm.name}: {first}").items(others))
    page.heading("What this cannot say", 3)
    page.items([*comparison.failed, *comparison.others, *comparison.limits, *figures.missing])
    page.heading("Tables")
    nights = " of simulated nights" if comparison.simulated else ""
    for arm in comparison.arms:
        title = f"{arm.name}: balanced accuracy{nights}, {comparison.recipes}; gains of B over A"
        page.table(title, HEAD, arm.rows(), sortable=True)
    page.links("As", [(f"{TABLES}/{name}", name) for name in (COMPARED_CSV, SUBJECTS_CSV)])
    after = page.part().heading("Subjects")
    for arm in comparison.arms:
        after.fold(arm.name, _subject_part(after, arm, MOST_SUBJECTS // len(comparison.arms)))
    _add_origins(after, comparison, command)
    if figures:
        add_figures(page, figures, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
    return page.add(after)


def _subject_part(page: Part, arm: ArmComparison, most: int) -> Part:
    values = arm.subjects
    scores = pd.DataFrame({"gain": values[B] - values[A], "a": values[A], "b": values[B]})
    scores.index = [f"{cohort} {subject}" for cohort, subject in values.index]
    rows = whole_rows((10_000 * scores).round())
    part, n = page.part(), len(rows)
    beside = f"{TABLES}/{SUBJECTS_CSV}"
    if most < n:
        rows = sorted(rows, key=lowest_first)[:most]
        part.text(f"The {most:,} lowest of {n:,} subjects; all are in {beside}.", "note")
    caption = "Balanced accuracy, %, mean over the seeds that both have"
    without_script = f"Without scripts, subjects are not listed here: see {beside}."
    return part.subjects(caption, _COLUMNS, rows, 1, without_script)


def _add_origins(page: Part, comparison: Comparison, command: str) -> None:
    page.heading("How it was made").command(command)
    ours, theirs = _origin(comparison.a), _origin(comparison.b)
    here = f"this comparison: psdnorm {psdnorm.__version__}, python {platform.python_version()}"
    versions = [
        f"{side}: {words}" for side, own in ((A, ours), (B, theirs)) for words in own["versions"]
    ]
    page.text("Versions").items([*versions, here])
    page.heading("Recipe and protocol", 3)
    for what in ("recipe", "protocol"):
        documents = {"both": ours[what]}
        if ours[what] != theirs[what]:
            documents = {A: ours[what], B: theirs[what]}
        for whose, document in documents.items():
            page.text(f"{what.capitalize()} of {whose}:")
            page.command(json_text(document).rstrip())


def _origin(results: Results) -> dict[str, Any]:
    versions: dict[str, int] = {}
    for folder in results.runs["folder"]:
        found = read_json(folder / CONFIG).get("versions", {})
        words = ", ".join(f"{name} {version}" for name, version in found.items())
        versions[words] = versions.get(words, 0) + 1
    is_experiment = len(results.runs) > 1
    return {
        "name": _folder(results),
        "recipe": {**results.config["recipe"], "sha256": results.config["recipe_sha256"]},
        "protocol": results.config["protocol"],
        "versions": [
            f"{words} ({plural(n, 'run')})" if is_experiment else words
            for words, n in versions.items()
        ],
    }


def _folder(results: Results) -> str:
    return results.path.resolve().name  # parent folders may contain a user's name
