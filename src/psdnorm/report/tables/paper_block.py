"""The paper's own figures, as a second block of our tables."""

from collections.abc import Collection
from typing import Any

import pandas as pd

from psdnorm.report.naming import setting_name
from psdnorm.report.paper import misprints, paper_table
from psdnorm.report.tables.table import PAPER, Entry, figure
from psdnorm.report.tables.table_scores import MEANS

_KEY = ["model", "balanced", "metric", "norm", "filter_size", "dataset"]
_WRONG = "Misprint in the paper"
_HEADS = {
    "claim": "The paper contradicts itself",
    "wording": "Wording of the paper",
    "spread": "± in the paper",
    "mean": _WRONG,
    "bold": _WRONG,
    "rounding": _WRONG,
}


def paper_rows(
    name: str, columns: list[tuple[str, dict[str, Any]]], datasets: Collection[str]
) -> list[list[Entry]]:
    """Return a table of the paper in the columns of ours.

    Parameters
    ----------
    name : str
        Of the paper's table.
    columns : list of (str, dict)
        As in :class:`psdnorm.report.tables.layout.Layout`.
    datasets : collection of str
        Those of our table; they and the paper's have a row each.
    """
    table = paper_table(name)
    known = {tuple(_plain(row[key]) for key in _KEY): row for row in table.rows.to_dict("records")}
    printed = {*table.rows["dataset"]} - {*MEANS}
    # what columns of ours need not say: a class-wise table is of one norm
    of_all = {
        name: _plain(table.rows[name].iloc[0])
        for name in ("metric", "norm", "filter_size")
        if table.rows[name].nunique(dropna=False) == 1
    }
    rows: list[list[Entry]] = []
    for model, balanced in dict.fromkeys((key[0], key[1]) for key in known):
        heading = f"The paper ({table.label}): {setting_name(str(model), balanced)}"
        rows.append([Entry(heading)])
        for dataset in (*sorted({*datasets, *printed}), *MEANS):
            shared = of_all | {"model": model, "balanced": balanced, "dataset": dataset}
            rows.append(
                [Entry(dataset), *(_entry(shared | column, known) for _, column in columns)]
            )
    return rows


def paper_notes(name: str, datasets: Collection[str] | None = None) -> list[str]:
    """Return what has to be known of a table of the paper, and where it contradicts itself.

    Parameters
    ----------
    name : str
        Of the paper's table.
    datasets : collection of str, optional
        Those of our table, where both have means.
    """
    table = paper_table(name)
    printed = {*table.rows["dataset"]} - {*MEANS}
    notes = [f"Paper, {table.label}: {note}" for note in table.notes]
    if datasets is not None and {*datasets} != printed:
        notes.append(
            f"Paper, {table.label}: its means are over {len(printed)} datasets, ours over "
            f"{len(datasets)} that are not the same: they cannot be compared."
        )
    return notes + [
        f"{_HEADS[misprint.kind]} ({misprint.place}): it says: {misprint.says}; "
        f"its tables show: {misprint.shows}."
        for misprint in misprints()
        if name in misprint.tables
    ]


def paper_entry(row: dict[str, Any] | None, facts: dict[str, Any], digits: int = 2) -> Entry:
    """Return a figure of the paper, or that it has none.

    Parameters
    ----------
    row : dict, optional
        Of :attr:`psdnorm.report.paper.PaperTable.rows`.
    facts : dict
        What it is of.
    digits : int
        Behind the point.
    """
    own = {"block": PAPER} | facts
    if row is None or pd.isna(row["value"]):
        return Entry(figure(None), facts=own)
    std = None if pd.isna(row["std"]) else row["std"]
    return Entry(
        figure(row["value"], std, digits), row["value"], bool(row["bold"]), own | {"std": std}
    )


def _entry(facts: dict[str, Any], known: dict[tuple, dict[str, Any]]) -> Entry:
    row = known.get(tuple(facts.get(key) for key in _KEY))
    names = (*_KEY, "norm_depth")
    return paper_entry(row, {name: facts.get(name) for name in names})


def _plain(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value
