"""How long an epoch of training and the prediction of a dataset took, by norm."""

import math
from typing import Any

import pandas as pd

from psdnorm.report.naming import listed, norm_name, setting_name
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import Named, column, full_title, our_facts
from psdnorm.report.tables.lodo_tables import MAIN
from psdnorm.report.tables.notes import SIMULATED
from psdnorm.report.tables.paper_block import paper_entry, paper_notes
from psdnorm.report.tables.table import Entry, Table, figure, with_best
from psdnorm.report.tables.table_scores import Arm, Setting, arm_of, in_order, protocol_arm

EPOCH, OVERHEAD, INFERENCE = "train_epoch_s", "overhead_percent", "inference_s"
SPEED, CELLS = "sequences_per_s", "cells"
ROWS = {
    EPOCH: "Epoch of training, s",
    OVERHEAD: "More than BatchNorm, %",
    INFERENCE: "Inference, s",
    SPEED: "Inference, sequences/s",
    CELLS: "Runs",
}
_DIGITS = {SPEED: 1, CELLS: 0}
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
    norms = [*MAIN, *({"psd-white"} & {arm.norm for arm in runs})]
    columns = [column(protocol_arm("", norm, "")) for norm in norms]
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
        rows + _paper_rows(columns),
        notes + paper_notes("timing"),
    )


def _runs(results: Results) -> Runs:
    """Return the times of the arms of the protocol that were trained."""
    # AdaBN is not trained
    cells = results.cells[~results.cells["norm"].str.startswith("adabn")]
    cells = cells[cells["epochs"] > 0].set_index(["hold_out", "seed"])
    found = {}
    for _, group in cells.groupby("arm", sort=False):
        arm = arm_of(group.iloc[0])
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
    base = runs.get(protocol_arm(model, "batch", balanced))
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
    text = figure(value, digits=_DIGITS.get(metric, 2))
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
        absent = [n for n in norms if protocol_arm(model, n, balanced) not in runs]
        if absent:
            names = listed([norm_name(norm) for norm in absent])
            notes.append(f"{setting_name(model, balanced)}: no time of {names}.")
    unrecorded = sum(int(times[INFERENCE].isna().sum()) for times in runs.values())
    return [*notes, *([_UNRECORDED.format(f"{unrecorded:,}")] if unrecorded else [])]


def _paper_rows(columns: list[Named]) -> list[list[Entry]]:
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
