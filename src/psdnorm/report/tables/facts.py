"""Tables of facts: cohorts, sizes, timing."""

import math
from typing import Any

import pandas as pd

from psdnorm.constants import STAGES
from psdnorm.errors import PsdnormError
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import (
    SIMULATED,
    Named,
    Setting,
    column,
    full_title,
    in_order,
    our_facts,
    paper_entry,
    paper_notes,
)
from psdnorm.report.tables.table import Entry, Table, figure, with_best
from psdnorm.runtime import listed, read_json
from psdnorm.store import Store
from psdnorm.training import ALL, CONFIG, PAPER_NORMS, Arm, norm_name, setting_name

# names of columns, and digits behind the point; those of the paper have its names
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


def dataset_table(results: Results, store: Store | None = None) -> Table:
    """Build the table of datasets: those that were held out, from what was counted there.

    Parameters
    ----------
    results : Results
    store : Store, optional
        Whose index knows age and sex.
    """
    known, notes = _counted(results)
    if store is None:
        notes.append("Age and sex are not there: they are in the store, which was not given.")
    else:
        known = known.join(_people(store))
        notes += _unknown_people(known)
        notes.append("The ± of an age is its standard deviation over people (ddof = 1).")
    rows = [[Entry("Ours")]]
    for dataset, row in known.iterrows():
        rows.append([Entry(str(dataset)), *_entries(str(dataset), row, our_facts(results))])
    total = known.reindex(columns=_SUMS).sum(min_count=len(known))
    rows.append([Entry(TOTAL), *_entries(TOTAL, total, our_facts(results))])
    notes += [SIMULATED] if results.simulated else []
    return Table(
        "datasets",
        full_title("Held-out datasets", results),
        ["Dataset", *(name for name, _ in COHORT_COLUMNS.values())],
        [*rows, *_paper_rows([str(name) for name in known.index])],
        notes + paper_notes("datasets"),
    )


def _counted(results: Results) -> tuple[pd.DataFrame, list[str]]:
    """Return subjects, nights, epochs and stages by dataset; and what is odd about them."""
    notes = ["Epochs are those that count in the scores: scored, and central in their sequence."]
    stages = pd.DataFrame(
        {
            stage: results.subjects[[f"{stage}_as_{other}" for other in STAGES]].sum(axis=1)
            for stage in STAGES
        }
    )
    by_cell = stages.groupby(results.subjects["cell"]).sum()
    by_cell["subjects"] = results.subjects.groupby("cell")["subject"].nunique()
    cells = results.cells.set_index("cell")
    by_cell["dataset"] = cells["hold_out"]
    differ = by_cell.groupby("dataset").nunique().gt(1).any(axis=1)
    if differ.any():
        names = listed([str(name) for name in differ.index[differ]])
        notes.append(f"Runs counted different epochs of {names}; the first of them is shown.")
    first = by_cell.drop_duplicates("dataset").sort_values("dataset")
    table = first.set_index("dataset")[["subjects"]].astype(float)
    table["recordings"], unread = _nights(cells.loc[first.index])
    counts = first.set_index("dataset")[[*STAGES]]
    table["epochs"] = counts.sum(axis=1).astype(float)
    for stage in STAGES:
        table[f"{stage}_percent"] = 100 * counts[stage] / table["epochs"]
    return table, notes + unread


def _nights(cells: pd.DataFrame) -> tuple[list[float], list[str]]:
    nights: list[float] = []
    notes = []
    for folder in cells["folder"]:
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


def _unknown_people(known: pd.DataFrame) -> list[str]:
    without = [str(name) for name in known.index[known[[*_PEOPLE]].isna().any(axis=1)]]
    return [f"The store does not know age or sex in {listed(without)}."] if without else []


def _entries(dataset: str, row: "pd.Series[Any]", shared: dict[str, Any]) -> list[Entry]:
    entries = []
    for metric, (_, digits) in COHORT_COLUMNS.items():
        value = row.get(metric)
        value = None if value is None or pd.isna(value) else float(value)
        std = row.get("age_std") if metric == "age_years" else None
        std = None if std is None or pd.isna(std) else float(std)
        facts = shared | {"metric": metric, "dataset": dataset, "std": std}
        entries.append(Entry(figure(value, std, digits), value, facts=facts))
    return entries


def _paper_rows(ours: list[str]) -> list[list[Entry]]:
    table = paper_table("datasets")
    printed = {(row["dataset"], row["metric"]): row for row in table.rows.to_dict("records")}
    rows = [[Entry(f"The paper ({table.label})")]]
    names = sorted({*ours, *table.rows["dataset"]} - {TOTAL})
    for dataset in (*names, TOTAL):
        entries = [
            paper_entry(
                printed.get((dataset, metric)), {"metric": metric, "dataset": dataset}, digits
            )
            for metric, (_, digits) in COHORT_COLUMNS.items()
        ]
        rows.append([Entry(dataset), *entries])
    return rows


SOURCE, TRAIN, VALIDATION, FOLDS = (
    "source_subjects",
    "train_subjects",
    "validation_subjects",
    "held_out_datasets",
)
SIZE_COLUMNS = {
    SOURCE: "Train and validate",
    TRAIN: "Train",
    VALIDATION: "Validate",
    FOLDS: "Datasets held out",
}
_DIGITS = 0  # as the paper prints them
_NOTE = (
    "Subjects, averaged over the dataset that is held out; ± is the standard deviation over these "
    "datasets, with ddof = 0 as in the paper."
)


def size_table(results: Results) -> Table | str:
    """Build the table of training sizes from what the cells say of themselves.

    Parameters
    ----------
    results : Results

    Returns
    -------
    Table or str
        The reason why there is none.
    """
    try:
        counts = _counts(results)
    except PsdnormError as error:
        return f"Subjects that train (balanced-sizes) are not there: {error}."
    rows: list[list[Entry]] = [[Entry("Ours")]]
    sizes = sorted(counts["balanced"].unique(), key=lambda size: (size == 0, size))
    for size in sizes:
        rows.append(_row(size, counts[counts["balanced"] == size], our_facts(results)))
    notes = [_NOTE, *([SIMULATED] if results.simulated else [])]
    return Table(
        "balanced-sizes",
        full_title("Subjects that train", results),
        ["Subjects of each cohort, at most", *SIZE_COLUMNS.values()],
        rows + _sizes_paper_rows(),
        notes + paper_notes("balanced-sizes"),
    )


def _counts(results: Results) -> pd.DataFrame:
    """Return train and validation subjects by size (0 for all) and held-out dataset."""
    keys = ["balanced", "hold_out", "seed"]
    cells = results.cells.assign(balanced=results.cells["balanced"].fillna(0).astype(int))
    cells = cells.drop_duplicates(keys)  # the split is the same whatever learns from it
    data = [read_json(folder / CONFIG)["data"] for folder in cells["folder"]]
    counts = cells[keys].assign(
        **{
            TRAIN: [roles["train"]["subjects"] for roles in data],
            VALIDATION: [roles["validation"]["subjects"] for roles in data],
        }
    )
    counts[SOURCE] = counts[TRAIN] + counts[VALIDATION]
    return counts.groupby(["balanced", "hold_out"], as_index=False)[
        [SOURCE, TRAIN, VALIDATION]
    ].mean()


def _row(size: int, counts: pd.DataFrame, shared: dict[str, Any]) -> list[Entry]:
    facts = shared | {"balanced": int(size) or ALL}
    row = [Entry(str(facts["balanced"]))]
    for metric in (SOURCE, TRAIN, VALIDATION):
        mean, std = float(counts[metric].mean()), float(counts[metric].std(ddof=0))
        own = facts | {"metric": metric, "std": std}
        row.append(Entry(figure(mean, std, _DIGITS), mean, facts=own))
    folds = len(counts)
    return [*row, Entry(str(folds), float(folds), facts=facts | {"metric": FOLDS})]


def _sizes_paper_rows() -> list[list[Entry]]:
    table = paper_table("balanced-sizes")
    rows = [[Entry(f"The paper ({table.label})")]]
    for printed in table.rows.to_dict("records"):
        facts = {"balanced": printed["balanced"]}
        entries = [
            paper_entry(printed if metric == SOURCE else None, facts | {"metric": metric}, 0)
            for metric in SIZE_COLUMNS
        ]
        rows.append([Entry(str(printed["balanced"])), *entries])
    return rows


EPOCH, OVERHEAD, INFERENCE = "train_epoch_s", "overhead_percent", "inference_s"
SPEED, CELLS = "sequences_per_s", "cells"
ROWS = {
    EPOCH: "Epoch of training, s",
    OVERHEAD: "More than BatchNorm, %",
    INFERENCE: "Inference, s",
    SPEED: "Inference, sequences/s",
    CELLS: "Runs",
}
_TIMING_DIGITS = {SPEED: 1, CELLS: 0}
_NOTES = [
    "Norms have the filter size (f = 5) and depth (first 3 blocks) of the protocol where they have "
    "any; runs of other sizes and depths are not shown.",
    "Times are those of the machine that ran the cells; the paper's are of another one.",
    "Ours are the seconds of a whole run by its epochs: start, validation, and the prediction of "
    "the held-out dataset are in them, and ± is over runs (ddof = 1).",
    "What a norm takes more than BatchNorm is from the runs that both have: the same held-out "
    "dataset, the same seed.",
    "Inference is the prediction of a run's held-out dataset, read from disk; sequences a second "
    "are those of all runs by the seconds of all.",
    "The shortest times are in bold where all norms have the same runs: the same held-out "
    "datasets, the same seeds.",
]
_UNRECORDED = "Runs that did not record the time of inference: {}."
Runs = dict[Arm, pd.DataFrame]  # epoch_s, inference_s, sequences by held-out dataset and seed


def timing_table(results: Results) -> Table | str:
    """Build the table of times.

    Parameters
    ----------
    results : Results

    Returns
    -------
    Table or str
        The reason why there is none.
    """
    runs = _runs(results)
    if not runs:
        return "Times of training (timing) are not there: they need a cell that was trained."
    settings = dict.fromkeys((arm.model, arm.balanced) for arm in sorted(runs, key=in_order))
    norms = [*PAPER_NORMS, *({"psd-white"} & {arm.norm for arm in runs})]
    columns = [column(Arm.of_protocol("", norm, "")) for norm in norms]
    rows: list[list[Entry]] = []
    for setting in settings:
        rows.append([Entry(setting_name(*setting))])
        rows += _rows(setting, columns, runs, our_facts(results))
    notes = [*_NOTES, *_absent(settings, norms, runs)]
    notes += [SIMULATED] if results.simulated else []
    return Table(
        "timing",
        full_title("Time of training and inference", results),
        ["", *(name for name, _ in columns)],
        rows + _timing_paper_rows(columns),
        notes + paper_notes("timing"),
    )


def _runs(results: Results) -> Runs:
    """Return the times of the arms of the protocol that were trained."""
    # AdaBN is not trained
    cells = results.cells[~results.cells["norm"].str.startswith("adabn")]
    cells = cells[cells["epochs"] > 0].set_index(["hold_out", "seed"])
    found = {}
    for _, group in cells.groupby("arm", sort=False):
        arm = Arm.of_row(group.iloc[0])
        if arm.is_protocol:
            times = {EPOCH: group["seconds"] / group["epochs"]}
            times |= {INFERENCE: group["prediction_seconds"], "sequences": group["sequences"]}
            found[arm] = pd.DataFrame(times)
    return found


def _rows(
    setting: Setting, columns: list[Named], runs: Runs, shared: dict[str, Any]
) -> list[list[Entry]]:
    model, balanced = setting
    shared = shared | {"model": model, "balanced": balanced}
    base = runs.get(Arm.of_protocol(model, "batch", balanced))
    arms = [Arm(model=model, balanced=balanced, **facts) for _, facts in columns]
    entries: dict[str, list[Entry]] = {name: [] for name in ROWS}
    for (_, facts), arm in zip(columns, arms, strict=True):
        for metric, row in entries.items():
            known = shared | facts | {"metric": metric}
            row.append(_entry(metric, runs.get(arm), base, known))
    for metric in (EPOCH, INFERENCE):
        timed = {frozenset(runs[arm][metric].dropna().index) for arm in arms if arm in runs}
        if len(timed) == 1:
            entries[metric] = with_best(entries[metric], lowest=True)
    return [[Entry(ROWS[metric]), *row] for metric, row in entries.items()]


def _entry(
    metric: str, own: pd.DataFrame | None, base: pd.DataFrame | None, facts: dict[str, Any]
) -> Entry:
    if own is None:
        return Entry(figure(None), facts=facts)
    if metric in (EPOCH, INFERENCE):
        mean, std = float(own[metric].mean()), float(own[metric].std(ddof=1))
        if math.isnan(mean):
            return Entry(figure(None), facts=facts)
        known = facts | {"std": None if math.isnan(std) else std}
        return Entry(figure(mean, std), mean, facts=known)
    value = _value(metric, own, base)
    text = figure(value, digits=_TIMING_DIGITS.get(metric, 2))
    return Entry(text, None if math.isnan(value) else value, facts=facts)


def _value(metric: str, own: pd.DataFrame, base: pd.DataFrame | None) -> float:
    """Return what has no spread; NaN where it is not known."""
    if metric == CELLS:
        return float(len(own))
    if metric == SPEED:
        timed = own[own[INFERENCE] > 0]
        return float(timed["sequences"].sum() / timed[INFERENCE].sum()) if len(timed) else math.nan
    shared = own.index if base is None else own.index.intersection(base.index)
    if base is None or shared.empty:
        return math.nan
    return 100 * (float(own.loc[shared, EPOCH].mean()) / float(base.loc[shared, EPOCH].mean()) - 1)


def _absent(settings: dict[Setting, None], norms: list[str], runs: Runs) -> list[str]:
    notes = []
    for model, balanced in settings:
        absent = [n for n in norms if Arm.of_protocol(model, n, balanced) not in runs]
        if absent:
            names = listed([norm_name(norm) for norm in absent])
            notes.append(f"{setting_name(model, balanced)}: no time of {names}.")
    unrecorded = sum(int(times[INFERENCE].isna().sum()) for times in runs.values())
    return [*notes, *([_UNRECORDED.format(f"{unrecorded:,}")] if unrecorded else [])]


def _timing_paper_rows(columns: list[Named]) -> list[list[Entry]]:
    table = paper_table("timing")
    rows: list[list[Entry]] = []
    for (model, balanced), group in table.rows.groupby(["model", "balanced"], sort=False):
        printed = {(row["metric"], row["norm"]): row for row in group.to_dict("records")}
        rows.append([Entry(f"The paper ({table.label}): {setting_name(model, balanced)}")])
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
            rows.append([Entry(ROWS[metric]), *entries])
    return rows
