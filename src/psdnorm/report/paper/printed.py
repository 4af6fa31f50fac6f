"""The numbers that the paper prints, and where they contradict each other."""

import json
from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from typing import Any

import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT

MEANS = {MEAN_DATASET: "datasets", MEAN_SUBJECT: "subjects"}


@dataclass(frozen=True, eq=False)
class PaperTable:
    """A table as the paper prints it.

    Attributes
    ----------
    name : str
        As in :func:`paper_tables`.
    label : str
        Its label in the paper, or that of its section.
    caption : str
        In our words.
    metric : str or None
        What all values measure, one of ``psdnorm.evaluation.METRICS`` if possible; None if rows
        differ.
    mean_over : tuple of str
        "datasets", "subjects": what its means are taken over. For a plain "Mean" the paper does
        not say; the rows do.
    rows : DataFrame
        One row per value, in the order of the page:

        - ``metric``;
        - ``model``, ``norm``, ``filter_size``, ``balanced`` (a number, or "all"): as in a
          :class:`psdnorm.training.Run`, missing where they do not apply;
        - ``dataset``: a cohort, Mean(Dataset), Mean(Subject) or Total;
        - ``value``, ``std``: scores in percent. NaN where the paper prints NaN or nothing;
        - ``bold``: whether it is printed in bold.
    notes : tuple of str
        Remarks on reading it.
    """

    name: str
    label: str
    caption: str
    metric: str | None
    mean_over: tuple[str, ...]
    rows: pd.DataFrame
    notes: tuple[str, ...]


def paper_tables() -> tuple[str, ...]:
    """Return the names of the paper's tables, in its order.

    Examples
    --------
    >>> paper_tables()[:3]
    ('datasets', 'results', 'subjects-improved')
    """
    return tuple(_descriptions())


def paper_table(name: str) -> PaperTable:
    """Return the table of a name from :func:`paper_tables`.

    Examples
    --------
    >>> table = paper_table("results")
    >>> table.metric, table.mean_over
    ('balanced_accuracy', ('datasets', 'subjects'))
    >>> best = table.rows.query("bold and dataset == 'CHAT'")
    >>> best[["balanced", "norm", "value", "std"]].values.tolist()
    [['all', 'psd', 70.57, 1.24], [400, 'psd', 70.28, 1.7]]
    """
    described = _descriptions()
    if name not in described:
        raise ArgumentError(f"name is {name!r}, expected one of {', '.join(described)}")
    rows = _rows(name)
    metrics = rows["metric"].unique()
    return PaperTable(
        name=name,
        label=described[name]["label"],
        caption=described[name]["caption"],
        metric=str(metrics[0]) if len(metrics) == 1 else None,
        mean_over=tuple(over for mean, over in MEANS.items() if (rows["dataset"] == mean).any()),
        rows=rows,
        notes=tuple(described[name]["notes"]),
    )


def _descriptions() -> dict[str, dict[str, Any]]:
    text = files(__package__).joinpath("tables.json").read_text(encoding="utf-8")
    return {table["name"]: table for table in json.loads(text)}


def _rows(name: str) -> pd.DataFrame:
    text = files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    printed = pd.read_csv(StringIO(text), dtype=str, keep_default_na=False)
    names = ("metric", "model", "balanced", "norm", "filter_size", "dataset")
    rows = printed[[*names, "value", "std", "bold"]].astype(object).replace("", None)
    sizes = [int(size) if size.isdecimal() else size or None for size in printed["balanced"]]
    rows["balanced"] = pd.Series(sizes, dtype=object)
    rows["filter_size"] = pd.to_numeric(printed["filter_size"]).astype("Int64")
    for column in ("value", "std"):
        rows[column] = pd.to_numeric(printed[column]).astype(float)
    return rows.assign(bold=printed["bold"] == "yes")


@dataclass(frozen=True)
class Misprint:
    """Something that the paper says and its tables do not support.

    Attributes
    ----------
    name : str
        Short, unique.
    tables : tuple of str
        Tables that show it, named as in :func:`~psdnorm.report.paper.paper_tables`.
    place : {"text", "caption", "table"}
        Where the paper says it.
    kind : {"claim", "mean", "spread", "bold", "wording", "rounding"}
        A claim that the tables do not support; a mean that does not follow from its rows; a ± that
        is something else; the best value not in bold; wrong wording; digits cut off.
    says, shows : str
        What the paper says, and what its tables show.
    value : float or None
        The number in ``shows`` that contradicts it.
    norm, balanced, dataset : optional
        Of the row, if it concerns a single one.
    """

    name: str
    tables: tuple[str, ...]
    place: str
    kind: str
    says: str
    shows: str
    value: float | None = None
    norm: str | None = None
    balanced: int | str | None = None
    dataset: str | None = None


def misprints() -> list[Misprint]:
    """Return all known misprints, in the order of the paper.

    Examples
    --------
    >>> first = misprints()[0]
    >>> first.name, first.tables, first.value
    ('results-caption-mean', ('results',), None)
    """
    text = files(__package__).joinpath("misprints.json").read_text(encoding="utf-8")
    return [Misprint(**entry | {"tables": tuple(entry["tables"])}) for entry in json.loads(text)]
