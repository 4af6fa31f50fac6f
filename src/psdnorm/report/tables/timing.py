"""How long an epoch of training took, by norm."""

import math
from typing import Any

import pandas as pd

from psdnorm.report.naming import listed, norm_name, setting_name
from psdnorm.report.paper import paper_table
from psdnorm.report.results import Results
from psdnorm.report.tables.layout import Named, column, full_title, our_facts
from psdnorm.report.tables.lodo import MAIN
from psdnorm.report.tables.notes import SIMULATED
from psdnorm.report.tables.paper_block import paper_entry, paper_notes
from psdnorm.report.tables.scores import Arm, Setting, arm_of, in_order, protocol_arm
from psdnorm.report.tables.table import Entry, Table, figure, with_best

EPOCH, OVERHEAD, INFERENCE, CELLS = "train_epoch_s", "overhead_percent", "inference_s", "cells"
ROWS = {
    EPOCH: "Epoch of training, s",
    OVERHEAD: "More than BatchNorm, %",
    INFERENCE: "Inference, s",
    CELLS: "Runs",
}
_NOTES = [
    "Norms have the filter size (f = 5) and depth (first 3 blocks) of the protocol where they have "
    "any; runs of other sizes and depths are not shown.",
    "Times are those of the machine that ran the cells; the paper's are of another one.",
    "Ours are the seconds of a whole run by its epochs: start, validation, and the prediction of "
    "the held-out dataset are in them, and ± is over runs (ddof = 1).",
    "What a norm takes more than BatchNorm is from the runs that both have: the same held-out "
    "dataset, the same seed.",
    "The time of inference alone is not recorded in a run.",
    "The shortest epoch is in bold where all norms have the same runs: the same held-out datasets, "
    "the same seeds.",
]


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
    seconds = _seconds(results)
    if not seconds:
        return "Times of training (timing) are not there: they need a cell that was trained."
    settings = dict.fromkeys((arm.model, arm.balanced) for arm in sorted(seconds, key=in_order))
    norms = [*MAIN, *({"psd-white"} & {arm.norm for arm in seconds})]
    columns = [column(protocol_arm("", norm, "")) for norm in norms]
    rows: list[list[Entry]] = []
    for setting in settings:
        rows.append([Entry(setting_name(*setting))])
        rows += _rows(setting, columns, seconds, our_facts(results))
    notes = [*_NOTES, *_absent(settings, norms, seconds)]
    notes += [SIMULATED] if results.simulated else []
    return Table(
        "timing",
        full_title("Time of training", results),
        ["", *(name for name, _ in columns)],
        rows + _paper_rows(columns),
        notes + paper_notes("timing"),
    )


def _seconds(results: Results) -> "dict[Arm, pd.Series[float]]":
    """Return the seconds of an epoch by held-out dataset and seed, of arms of the protocol."""
    # AdaBN is not trained
    cells = results.cells[~results.cells["norm"].str.startswith("adabn")]
    cells = cells[cells["epochs"] > 0].set_index(["hold_out", "seed"])
    found = {}
    for _, group in cells.groupby("arm", sort=False):
        arm = arm_of(group.iloc[0])
        if arm.is_protocol:
            found[arm] = group["seconds"] / group["epochs"]
    return found


def _rows(
    setting: Setting,
    columns: list[Named],
    seconds: "dict[Arm, pd.Series[float]]",
    shared: dict[str, Any],
) -> list[list[Entry]]:
    model, balanced = setting
    shared = shared | {"model": model, "balanced": balanced}
    base = seconds.get(protocol_arm(model, "batch", balanced))
    arms = [Arm(model=model, balanced=balanced, **facts) for _, facts in columns]
    entries: dict[str, list[Entry]] = {name: [] for name in ROWS}
    for (_, facts), arm in zip(columns, arms, strict=True):
        for metric, row in entries.items():
            known = shared | facts | {"metric": metric}
            row.append(_entry(metric, seconds.get(arm), base, known))
    if len({frozenset(seconds[arm].index) for arm in arms if arm in seconds}) == 1:
        entries[EPOCH] = with_best(entries[EPOCH], lowest=True)
    return [[Entry(ROWS[metric]), *row] for metric, row in entries.items()]


def _entry(
    metric: str,
    own: "pd.Series[float] | None",
    base: "pd.Series[float] | None",
    facts: dict[str, Any],
) -> Entry:
    if own is None or metric == INFERENCE:
        return Entry(figure(None), facts=facts)
    if metric == CELLS:
        return Entry(str(len(own)), float(len(own)), facts=facts)
    if metric == EPOCH:
        mean, std = float(own.mean()), float(own.std(ddof=1))
        known = facts | {"std": None if math.isnan(std) else std}
        return Entry(figure(mean, std), mean, facts=known)
    shared = own.index if base is None else own.index.intersection(base.index)
    if base is None or shared.empty:
        return Entry(figure(None), facts=facts)
    more = 100 * (float(own[shared].mean()) / float(base[shared].mean()) - 1)
    return Entry(figure(more), more, facts=facts)


def _absent(
    settings: dict[Setting, None], norms: list[str], seconds: "dict[Arm, pd.Series[float]]"
) -> list[str]:
    notes = []
    for model, balanced in settings:
        absent = [n for n in norms if protocol_arm(model, n, balanced) not in seconds]
        if absent:
            names = listed([norm_name(norm) for norm in absent])
            notes.append(f"{setting_name(model, balanced)}: no time of {names}.")
    return notes


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
