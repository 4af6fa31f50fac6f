"""The tables of a report: the paper's, then what the paper shows as figures only."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from psdnorm.constants import SIMULATED_NIGHTS, STAGES
from psdnorm.errors import PsdnormError
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import (
    MEANS,
    METRIC_NAMES,
    PROTOCOL,
    Block,
    Named,
    Scores,
    Setting,
    TableLayout,
    column,
    dataset_block,
    fill,
    full_title,
    in_order,
    our_facts,
    paper_entry,
    paper_notes,
)
from psdnorm.report.tables.table import Table, TableCell, Tables, figure, with_best
from psdnorm.runtime import listed, read_json
from psdnorm.store import Store
from psdnorm.training import (
    ALL,
    CONFIG,
    PAPER_NORMS,
    PROTOCOL_DEPTH,
    PROTOCOL_FILTER,
    Arm,
    model_name,
    norm_name,
    setting_name,
)

# by metric, as the paper calls it: name of the column and number of decimals
COHORT_COLUMNS = {
    "subjects": ("Subjects", 0),
    "recordings": ("Nights", 0),
    "epochs": ("Scored epochs", 0),
    **{f"{stage}_percent": (f"{stage}, %", 2) for stage in STAGES},
    "age_years": ("Age, years", 1),
    "female_percent": ("Female, %", 0),
    "male_percent": ("Male, %", 0),
}
TOTAL = "Total"
_SUMS = ("subjects", "recordings", "epochs")
_PEOPLE = ("age_years", "female_percent", "male_percent")


def build_tables(results: Results, store: Store | None = None) -> Tables:
    """Build the paper's tables in its order, then tables of what it shows only as figures.

    Ages and sexes of people come from the index of ``store``.
    """
    scores = Scores(results)
    of_paper, missing = lodo_layouts(scores)
    curves, missing_curves = curve_layouts(scores)
    others = [timing_table(results), size_table(results), dataset_table(results, store)]
    tables = [fill(layout, scores) for layout in of_paper]
    tables += [table for table in others if isinstance(table, Table)]
    missing += [*missing_curves, *(sentence for sentence in others if isinstance(sentence, str))]
    return Tables([*tables, *(fill(layout, scores) for layout in curves)], missing)


USLEEP, TRANSFORMER = "usleep", "cnn-transformer"
LOW_DATA, LOW_DATA_FILTER = 40, 15
LIMIT = "Most subjects per cohort"
_AS = ", at the protocol's filter size and depth"


@dataclass(frozen=True)
class _Plan:
    """A table with norms in columns."""

    name: str  # of the paper's table, and of ours
    title: str
    arms: tuple[Arm, ...]  # the columns; of any model and setting
    needs: tuple[str, ...]  # at least one of these norms must have a result
    model: str | None = None  # the only model shown
    balanced: int | None = None  # the only size shown
    metric: str = "balanced_accuracy"

    @property
    def columns(self) -> list[Named]:
        """Columns; the name of a norm with two filter sizes includes the size."""
        norms = [arm.norm for arm in self.arms]
        twice = {norm for norm in norms if norms.count(norm) > 1}
        return [column(arm, ["filter_size"] if arm.norm in twice else []) for arm in self.arms]


def lodo_layouts(scores: Scores) -> tuple[list[TableLayout], list[str]]:
    """Lay out the paper's tables of scores."""
    found: dict[str, TableLayout | None] = {}  # by the sentence that says why it is missing
    for plan in _plans(scores.arms):
        size = "" if plan.balanced is None else f" at balanced@{plan.balanced}"
        needs = f"it needs a result of {' or '.join(map(norm_name, plan.needs))}{size}{_AS}"
        title = plan.title.removesuffix(", %")
        found[f"{title} ({plan.name}): {needs}."] = _by_norm(plan, scores)
    for norm in PAPER_NORMS:
        name = norm_name(norm)
        title = f"F1 of each stage with {name} (classwise-{norm})"
        found[f"{title}: it needs a result of {name}{_AS}."] = _by_stage(norm, scores)
    layouts = [layout for layout in found.values() if layout is not None]
    return layouts, [sentence for sentence, layout in found.items() if layout is None]


def _plans(found: Sequence[Arm]) -> list[_Plan]:
    protocol = {norm: Arm.of_protocol(USLEEP, norm, "all") for norm in (*PAPER_NORMS, "psd-white")}
    main = tuple(protocol[norm] for norm in PAPER_NORMS)
    whitening = tuple(protocol[norm] for norm in ("batch", "instance", "psd", "psd-white"))
    low_data = (*main[:3], main[4], replace(main[4], filter_size=LOW_DATA_FILTER))
    adapted = ["adabn3", "adabn12", "adabnall"]
    adapted += [arm.norm for arm in found if arm.norm.startswith("adabn")]
    adabn = tuple(Arm.of_protocol(USLEEP, norm, "all") for norm in dict.fromkeys(adapted))
    # the paper's four, and LayerNorm if it was run
    further = [arm for arm in found if arm.model == TRANSFORMER and arm.norm == "layer"]
    transformer = tuple(arm for arm in main if arm.norm != "layer" or further)
    return [
        _Plan("results", "Balanced accuracy of U-Sleep, %", main, PAPER_NORMS, USLEEP),
        _Plan("f1", "Weighted F1, %", main, PAPER_NORMS, metric="weighted_f1"),
        _Plan("whitening", "Barycenter and white target, balanced accuracy, %", whitening,
              ("psd-white",)),
        _Plan("cnn-transformer", "Balanced accuracy of CNNTransformer, %", transformer,
              PAPER_NORMS, TRANSFORMER),
        _Plan("low-data", "Small training sets, balanced accuracy, %", low_data,
              tuple(arm.norm for arm in low_data), balanced=LOW_DATA),
        _Plan("adabn", "AdaBN and the other norms, balanced accuracy, %",
              (*main[:3], *adabn, *main[3:]), tuple(arm.norm for arm in adabn)),
    ]  # fmt: skip


def _by_norm(plan: _Plan, scores: Scores) -> TableLayout | None:
    wanted = [facts for _, facts in plan.columns]
    shown = [arm for arm in scores.arms if column(arm)[1] in wanted]
    shown = [arm for arm in shown if plan.model in (None, arm.model)]
    shown = [arm for arm in shown if plan.balanced in (None, arm.balanced)]
    settings = scores.settings(arm for arm in shown if arm.norm in plan.needs)
    if not settings:
        return None
    blocks = [dataset_block(scores, at, _at(at, shown), metric=plan.metric) for at in settings]
    notes = [_protocol_note(plan, settings, scores)]
    return TableLayout(plan.name, plan.title, plan.columns, blocks, paper=plan.name, notes=notes)


def _by_stage(norm: str, scores: Scores) -> TableLayout | None:
    arms = [arm for arm in scores.arms if arm.norm == norm and arm.is_protocol]
    if not arms:
        return None
    columns: list[Named] = [(stage, {"metric": f"f1_{stage}"}) for stage in STAGES]
    columns.append(("Weighted F1", {"metric": "weighted_f1"}))
    facts = column(arms[0])[1]
    settings = scores.settings(arms)
    blocks = [dataset_block(scores, at, _at(at, arms), **facts) for at in settings]
    name = f"classwise-{norm}"
    title = f"F1 of each stage with {norm_name(norm)}, %"
    return TableLayout(name, title, columns, blocks, paper=name, bold=False, notes=[PROTOCOL])


def _at(setting: tuple, arms: Iterable[Arm]) -> list[Arm]:
    return [arm for arm in arms if (arm.model, arm.balanced) == setting]


def _protocol_note(plan: _Plan, settings: Sequence[tuple], scores: Scores) -> str:
    """Return a note on the filter sizes and depths that are shown here and elsewhere."""
    norms = {arm.norm for arm in plan.arms}
    shown = [facts for _, facts in plan.columns]
    arms = [arm for setting in settings for arm in _at(setting, scores.arms) if arm.norm in norms]
    arms = sorted((arm for arm in arms if column(arm)[1] not in shown), key=in_order)
    others = dict.fromkeys(arm.named() for arm in arms)
    note = (
        f"{METRIC_NAMES[plan.metric]} on the held-out dataset; unless a column says otherwise, "
        "f = 5 and the norm in the first 3 blocks, as in the protocol"
    )
    if others:
        note += f"; {listed([*others])}: see the tables of filter sizes and depths"
    return f"{note}."


OTHER_METRICS = ("accuracy", "macro_f1", "cohen_kappa", "calibration_error")
_NO_NUMBERS = "The paper shows this as a figure ({label}) and gives no numbers."
_BASELINES = ("batch", "layer", "instance")


def curve_layouts(scores: Scores) -> tuple[list[TableLayout], list[str]]:
    """Lay out scores against filter size, depth and training size, and the other metrics."""
    kinds: list[tuple[str, str, Iterator[TableLayout]]] = [
        ("filter size", "a filter size other than 5", _filter_sizes(scores)),
        ("number of training subjects", "one norm at two sizes", _training_sizes(scores)),
        (
            "number of layers with the norm",
            "a number of blocks with the norm other than 3",
            _depths(scores),
        ),
    ]
    layouts, missing = [], []
    for name, needs, found in kinds:
        if laid := [*found]:
            layouts += laid
        else:  # named like its figure, which is missing for the same reason
            missing.append(f"Balanced accuracy by {name}: it needs results of {needs}.")
    return [*layouts, _other_metrics(scores)], missing


def _filter_sizes(scores: Scores) -> Iterator[TableLayout]:
    arms = [arm for arm in scores.arms if arm.filter_size is not None]
    arms = [arm for arm in arms if arm.norm_depth in (None, PROTOCOL_DEPTH)]
    notes = [_NO_NUMBERS.format(label="fig:sensitive"), "f is the filter size."]
    return _curves(scores, "filter_size", PROTOCOL_FILTER, arms, notes)


def _depths(scores: Scores) -> Iterator[TableLayout]:
    arms = [arm for arm in scores.arms if arm.norm_depth is not None]
    arms = [arm for arm in arms if arm.norm_depth != PROTOCOL_DEPTH or arm.is_protocol]
    notes = [
        _NO_NUMBERS.format(label="fig:usleep_layers"),
        "d is the number of blocks with the norm; f = 5 where a column does not say it.",
    ]
    return _curves(scores, "norm_depth", PROTOCOL_DEPTH, arms, notes)


def _curves(
    scores: Scores, axis: str, of_protocol: int | None, on_curve: Sequence[Arm], notes: list[str]
) -> Iterator[TableLayout]:
    """Yield a table for each setting with a norm at a value other than the protocol's."""
    varied = [arm for arm in on_curve if getattr(arm, axis) != of_protocol]
    for setting in scores.settings(varied):
        norms = {arm.norm for arm in _at(setting, varied)}
        curves = {arm for arm in on_curve if arm.norm in norms}
        curves |= {arm for arm in scores.arms if arm.norm in _BASELINES and arm.is_protocol}
        arms = [arm for arm in _at(setting, scores.arms) if arm in curves]
        words = axis.replace("_", " ")
        yield TableLayout(
            f"{axis.replace('_', '-')}-{setting[0]}-{setting[1]}",
            f"Balanced accuracy against {words}, {setting_name(*setting)}, %",
            [column(arm, [axis] if arm.norm in norms else []) for arm in arms],
            [dataset_block(scores, setting, arms, metric="balanced_accuracy")],
            notes=notes,
        )


def _training_sizes(scores: Scores) -> Iterator[TableLayout]:
    for model in dict.fromkeys(arm.model for arm in scores.arms):
        sizes: dict[Arm, set[int | str]] = {}
        for arm in scores.arms:
            if arm.model == model:
                alike = Arm(arm.model, arm.norm, arm.filter_size, arm.norm_depth, ALL)
                sizes.setdefault(alike, set()).add(arm.balanced)
        arms = [arm for arm, own in sizes.items() if len(own) > 1]
        if not arms:
            continue
        rows = sorted(
            set().union(*(sizes[arm] for arm in arms)),
            key=lambda n: float("inf" if n == ALL else n),
        )
        shown = [arm for arm in scores.arms if column(arm) in map(column, arms)]
        datasets = scores.datasets_of(arm for arm in shown if arm.model == model)
        name, lines = model_name(model), [(str(size), {"balanced": size}) for size in rows]
        blocks = []
        for mean in MEANS:
            facts = {"model": model, "metric": "balanced_accuracy", "dataset": mean}
            blocks.append(Block(f"{name}, {mean}", facts, lines, datasets, setting=name))
        yield TableLayout(
            f"training-size-{model}",
            f"Balanced accuracy of {name} against training size, %",
            [column(arm) for arm in sorted(arms, key=in_order)],
            blocks,
            first=LIMIT,
            notes=[_NO_NUMBERS.format(label="fig:number_subjects")],
        )


def _other_metrics(scores: Scores) -> TableLayout:
    """Lay out metrics as rows; norms at unusual settings only if there are no others."""
    arms = sorted(
        {Arm.of_protocol(arm.model, arm.norm, ALL) for arm in scores.arms if arm.is_protocol}
        or {Arm(a.model, a.norm, a.filter_size, a.norm_depth, ALL) for a in scores.arms},
        key=in_order,
    )
    notes = ["The paper has no such table. The lower a calibration error, the better."]
    notes += [PROTOCOL] if all(arm.is_protocol for arm in arms) else []
    columns = [*{column(arm)[0]: column(arm) for arm in arms}.values()]
    metrics: list[Named] = [(METRIC_NAMES[name], {"metric": name}) for name in OTHER_METRICS]
    blocks = []
    for model, balanced in scores.settings(scores.arms):
        shown = [arm for arm in _at((model, balanced), scores.arms) if column(arm) in columns]
        setting = setting_name(model, balanced)
        for mean in MEANS if shown else ():
            facts = {"model": model, "balanced": balanced, "dataset": mean}
            datasets = scores.datasets_of(shown)
            blocks.append(Block(f"{setting}, {mean}", facts, metrics, datasets, setting=setting))
    return TableLayout(
        "other-metrics", "Other metrics, %", columns, blocks, first="Metric", notes=notes
    )


def dataset_table(results: Results, store: Store | None = None) -> Table:
    """Build the table of held-out datasets."""
    known, notes = _counted(results)
    if store is None:
        notes.append("Age and sex are unknown, as no store was given.")
    else:
        known = known.join(_people(store))
        without = [str(name) for name in known.index[known[[*_PEOPLE]].isna().any(axis=1)]]
        if without:
            notes.append(f"The store has no age or no sex for some of {listed(without)}.")
        notes.append("The ± of an age is its standard deviation over people (ddof = 1).")
    names = [str(name) for name in known.index]
    known.loc[TOTAL] = known.reindex(columns=_SUMS).sum(min_count=len(known))
    rows = [[TableCell("Ours")]]
    for dataset, row in known.iterrows():
        rows.append([TableCell(str(dataset)), *_entries(str(dataset), row, our_facts(results))])
    notes += [SIMULATED_NIGHTS] if results.simulated else []
    return Table(
        "datasets",
        full_title("Held-out datasets", results),
        ["Dataset", *(name for name, _ in COHORT_COLUMNS.values())],
        [*rows, *_paper_rows(names)],
        notes + paper_notes("datasets"),
    )


def _counted(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """Return subjects, nights, epochs and stages by dataset, and notes on them."""
    notes = ["Epochs are those counted in the scores: scored, and central in their sequence."]
    columns = {stage: [f"{stage}_as_{other}" for other in STAGES] for stage in STAGES}
    sums = {stage: results.subjects[own].sum(axis=1) for stage, own in columns.items()}
    stages = pd.DataFrame(sums)
    by_run = stages.groupby(results.subjects["run"]).sum()
    by_run["subjects"] = results.subjects.groupby("run")["subject"].nunique()
    runs = results.runs.set_index("run")
    by_run["dataset"] = runs["hold_out"]
    differ = by_run.groupby("dataset").nunique().gt(1).any(axis=1)
    if differ.any():
        names = listed([str(name) for name in differ.index[differ]])
        notes.append(f"Runs counted different epochs of {names}; the first run is shown.")
    first = by_run.drop_duplicates("dataset").sort_values("dataset")
    table = first.set_index("dataset")[["subjects"]].astype(float)
    table["recordings"], unread = _nights(runs.loc[first.index])
    counts = first.set_index("dataset")[[*STAGES]]
    table["epochs"] = counts.sum(axis=1).astype(float)
    for stage in STAGES:
        table[f"{stage}_percent"] = 100 * counts[stage] / table["epochs"]
    return table, notes + unread


def _nights(runs: pd.DataFrame) -> tuple[list[float], list[str]]:
    nights, notes = [], []
    for folder in runs["folder"]:
        try:
            nights.append(float(read_json(folder / CONFIG)["data"]["test"]["nights"]))
        except PsdnormError as error:
            nights.append(math.nan)
            notes.append(f"The number of nights is unknown: {error}.")
    return nights, notes


def _people(store: Store) -> pd.DataFrame:
    people = store.index.groupby(["cohort", "subject"])[["age", "sex"]].first()
    ages = people["age"].groupby("cohort")
    sexes = people["sex"].dropna()
    table = pd.DataFrame({"age_years": ages.mean(), "age_std": ages.std(ddof=1)})
    for name, letter in (("female_percent", "F"), ("male_percent", "M")):
        table[name] = 100 * sexes.eq(letter).groupby("cohort").mean()
    return table


def _entries(dataset: str, row: "pd.Series[Any]", shared: dict[str, Any]) -> list[TableCell]:
    entries = []
    for metric, (_, digits) in COHORT_COLUMNS.items():
        value = _number(row.get(metric))
        std = _number(row.get("age_std")) if metric == "age_years" else None
        facts = shared | {"metric": metric, "dataset": dataset, "std": std}
        entries.append(TableCell(figure(value, std, digits), value, facts=facts))
    return entries


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _paper_rows(ours: list[str]) -> list[list[TableCell]]:
    table = paper_table("datasets")
    printed = {(row["dataset"], row["metric"]): row for row in table.rows.to_dict("records")}
    rows = [[TableCell(f"The paper ({table.label})")]]
    names = sorted({*ours, *table.rows["dataset"]} - {TOTAL})
    for dataset in (*names, TOTAL):
        entries = [
            paper_entry(printed.get((dataset, key)), {"metric": key, "dataset": dataset}, digits)
            for key, (_, digits) in COHORT_COLUMNS.items()
        ]
        rows.append([TableCell(dataset), *entries])
    return rows


SOURCE, TRAIN, VALIDATION = "source_subjects", "train_subjects", "validation_subjects"
FOLDS = "held_out_datasets"
SIZE_COLUMNS = {
    SOURCE: "Training and validation",
    TRAIN: "Training",
    VALIDATION: "Validation",
    FOLDS: "Held-out datasets",
}
_SIZE_NOTE = (
    "Subjects, averaged over the dataset that is held out; ± is the standard deviation over these "
    "datasets, with ddof = 0 as in the paper."
)


def size_table(results: Results) -> Table | str:
    """Build the table of training sizes, or return a sentence that says why it cannot be built."""
    try:
        counts = _counts(results)
    except PsdnormError as error:
        return f"Size of the training set (balanced-sizes): {error}."
    rows: list[list[TableCell]] = [[TableCell("Ours")]]
    for size in sorted(counts["balanced"].unique(), key=lambda size: (size == 0, size)):
        rows.append(_size_row(size, counts[counts["balanced"] == size], our_facts(results)))
    notes = [_SIZE_NOTE, *([SIMULATED_NIGHTS] if results.simulated else [])]
    return Table(
        "balanced-sizes",
        full_title("Size of the training set", results),
        [LIMIT, *SIZE_COLUMNS.values()],
        rows + _sizes_paper_rows(),
        notes + paper_notes("balanced-sizes"),
    )


def _counts(results: Results) -> pd.DataFrame:
    """Return train and validation subjects by size (0 for all) and held-out dataset."""
    runs = results.runs.assign(balanced=results.runs["balanced"].fillna(0).astype(int))
    # all norms have the same split
    runs = runs.drop_duplicates(["balanced", "hold_out", "seed"])
    data = [read_json(folder / CONFIG)["data"] for folder in runs["folder"]]
    counts = runs[["balanced", "hold_out"]].copy()
    counts[TRAIN] = [roles["train"]["subjects"] for roles in data]
    counts[VALIDATION] = [roles["validation"]["subjects"] for roles in data]
    counts[SOURCE] = counts[TRAIN] + counts[VALIDATION]
    return counts.groupby(["balanced", "hold_out"], as_index=False).mean()


def _size_row(size: int, counts: pd.DataFrame, shared: dict[str, Any]) -> list[TableCell]:
    facts = shared | {"balanced": int(size) or ALL}
    row = [TableCell(str(facts["balanced"]))]
    for metric in (SOURCE, TRAIN, VALIDATION):
        mean, std = float(counts[metric].mean()), float(counts[metric].std(ddof=0))
        own = facts | {"metric": metric, "std": std}
        row.append(TableCell(figure(mean, std, digits=0), mean, facts=own))
    folds = len(counts)
    return [*row, TableCell(str(folds), float(folds), facts=facts | {"metric": FOLDS})]


def _sizes_paper_rows() -> list[list[TableCell]]:
    table = paper_table("balanced-sizes")
    rows = [[TableCell(f"The paper ({table.label})")]]
    for row in table.rows.to_dict("records"):
        numbers = [row if metric == SOURCE else None for metric in SIZE_COLUMNS]
        facts = [{"balanced": row["balanced"], "metric": metric} for metric in SIZE_COLUMNS]
        entries = [paper_entry(*each, digits=0) for each in zip(numbers, facts, strict=True)]
        rows.append([TableCell(str(row["balanced"])), *entries])
    return rows


EPOCH, OVERHEAD, INFERENCE = "train_epoch_s", "overhead_percent", "inference_s"
SPEED, N_RUNS = "sequences_per_s", "cells"
TIMING_ROWS = {
    EPOCH: "Epoch of training, s",
    OVERHEAD: "Overhead over BatchNorm, %",
    INFERENCE: "Inference, s",
    SPEED: "Inference, sequences/s",
    N_RUNS: "Runs",
}
_TIMING_DIGITS = {SPEED: 1, N_RUNS: 0}
_TIMING_NOTES = [
    "Norms have the filter size (f = 5) and depth (first 3 blocks) of the protocol where they have "
    "any; runs of other sizes and depths are not shown.",
    "Times were measured on the machine that did the runs; the paper used another one.",
    "Ours are the seconds of a whole run, including startup, validation and the prediction of the "
    "held-out dataset, divided by its epochs; ± is over runs (ddof = 1).",
    "The overhead over BatchNorm is computed from runs with the same held-out dataset and seed.",
    "Inference is the prediction of a run's held-out dataset, read from disk; sequences per second "
    "are the sequences of all runs divided by their seconds.",
    "The shortest times are in bold where all norms have the same runs: the same held-out "
    "datasets and seeds.",
]
_UNRECORDED = "Runs without a recorded time of inference: {}."
Times = dict[Arm, pd.DataFrame]  # epoch_s, inference_s, sequences by held-out dataset and seed


def timing_table(results: Results) -> Table | str:
    """Build the table of times, or return a sentence that says why it cannot be built."""
    runs = _runs(results)
    if not runs:
        return "Times of training (timing): they need a trained run."
    settings = dict.fromkeys((arm.model, arm.balanced) for arm in sorted(runs, key=in_order))
    norms = [*PAPER_NORMS, *({"psd-white"} & {arm.norm for arm in runs})]
    columns = [column(Arm.of_protocol("", norm, "")) for norm in norms]
    rows: list[list[TableCell]] = []
    for setting in settings:
        rows.append([TableCell(setting_name(*setting))])
        rows += _timing_rows(setting, columns, runs, our_facts(results))
    notes = [*_TIMING_NOTES, *_absent(settings, norms, runs)]
    notes += [SIMULATED_NIGHTS] if results.simulated else []
    return Table(
        "timing",
        full_title("Time of training and inference", results),
        ["", *(name for name, _ in columns)],
        rows + _timing_paper_rows(columns),
        notes + paper_notes("timing"),
    )


def _runs(results: Results) -> Times:
    """Return the times of the trained arms of the protocol."""
    # AdaBN is not trained
    runs = results.runs[~results.runs["norm"].str.startswith("adabn")]
    runs = runs[runs["epochs"] > 0].set_index(["hold_out", "seed"])
    found = {}
    for _, group in runs.groupby("arm", sort=False):
        arm = Arm.of_row(group.iloc[0])
        if arm.is_protocol:
            times = {EPOCH: group["seconds"] / group["epochs"]}
            times |= {INFERENCE: group["prediction_seconds"], "sequences": group["sequences"]}
            found[arm] = pd.DataFrame(times)
    return found


def _timing_rows(
    setting: Setting, columns: list[Named], runs: Times, shared: dict[str, Any]
) -> list[list[TableCell]]:
    model, balanced = setting
    shared = shared | {"model": model, "balanced": balanced}
    base = runs.get(Arm.of_protocol(model, "batch", balanced))
    arms = [Arm(model=model, balanced=balanced, **facts) for _, facts in columns]
    entries: dict[str, list[TableCell]] = {name: [] for name in TIMING_ROWS}
    for (_, facts), arm in zip(columns, arms, strict=True):
        for metric, row in entries.items():
            known = shared | facts | {"metric": metric}
            row.append(_timing_entry(metric, runs.get(arm), base, known))
    for metric in (EPOCH, INFERENCE):
        timed = {frozenset(runs[arm][metric].dropna().index) for arm in arms if arm in runs}
        if len(timed) == 1:
            entries[metric] = with_best(entries[metric], lowest=True)
    return [[TableCell(TIMING_ROWS[metric]), *row] for metric, row in entries.items()]


def _timing_entry(
    metric: str, own: pd.DataFrame | None, base: pd.DataFrame | None, facts: dict[str, Any]
) -> TableCell:
    if own is None:
        return TableCell(figure(None), facts=facts)
    value = _timing_value(metric, own, base)
    std = _number(own[metric].std(ddof=1)) if metric in (EPOCH, INFERENCE) else None
    text = figure(value, std, _TIMING_DIGITS.get(metric, 2))
    return TableCell(text, _number(value), facts=facts | {"std": std})


def _timing_value(metric: str, own: pd.DataFrame, base: pd.DataFrame | None) -> float:
    """Return a value; NaN if unknown."""
    if metric in (EPOCH, INFERENCE):
        return float(own[metric].mean())
    if metric == N_RUNS:
        return float(len(own))
    if metric == SPEED:
        timed = own[own[INFERENCE] > 0]
        return float(timed["sequences"].sum() / timed[INFERENCE].sum()) if len(timed) else math.nan
    shared = own.index if base is None else own.index.intersection(base.index)
    if base is None or shared.empty:
        return math.nan
    return 100 * (float(own.loc[shared, EPOCH].mean()) / float(base.loc[shared, EPOCH].mean()) - 1)


def _absent(settings: dict[Setting, None], norms: list[str], runs: Times) -> list[str]:
    notes = []
    for model, balanced in settings:
        absent = [n for n in norms if Arm.of_protocol(model, n, balanced) not in runs]
        if absent:
            names = listed([norm_name(norm) for norm in absent])
            notes.append(f"{setting_name(model, balanced)}: no time of {names}.")
    unrecorded = sum(int(times[INFERENCE].isna().sum()) for times in runs.values())
    return [*notes, *([_UNRECORDED.format(f"{unrecorded:,}")] if unrecorded else [])]


def _timing_paper_rows(columns: list[Named]) -> list[list[TableCell]]:
    table = paper_table("timing")
    rows: list[list[TableCell]] = []
    for (model, balanced), group in table.rows.groupby(["model", "balanced"], sort=False):
        printed = {(row["metric"], row["norm"]): row for row in group.to_dict("records")}
        rows.append([TableCell(f"The paper ({table.label}): {setting_name(model, balanced)}")])
        dataset = {"model": model, "balanced": balanced, "dataset": group["dataset"].iloc[0]}
        for metric in (EPOCH, OVERHEAD, INFERENCE):
            entries = []
            for _, facts in columns:
                row = printed.get((metric, facts["norm"]))
                own = printed.get((EPOCH, facts["norm"]))
                if metric == OVERHEAD and own is not None:
                    more = 100 * (own["value"] / printed[EPOCH, "batch"]["value"] - 1)
                    row = {"value": more, "std": math.nan, "bold": False}
                entries.append(paper_entry(row, dataset | facts | {"metric": metric}))
            rows.append([TableCell(TIMING_ROWS[metric]), *entries])
    return rows
