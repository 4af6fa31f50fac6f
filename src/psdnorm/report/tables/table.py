"""A table, and how it is written as CSV, Markdown and LaTeX."""

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from psdnorm.errors import StoreError, os_errors_as
from psdnorm.present import TableCell
from psdnorm.runtime import written

ABSENT = "–"
OURS, PAPER = "ours", "paper"


@dataclass(frozen=True)
class Table:
    """A table with headings between its rows, and notes below.

    Attributes
    ----------
    name : str
        Name of its files.
    title : str
        Names the recipe, and says whether the nights are simulated.
    head : list of str
        Names of the columns.
    rows : list of list of TableCell
        Either as many entries as ``head``, the first being the row's name, or a single entry,
        the heading of the rows that follow.
    notes : list of str
        Sentences.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[TableCell]]
    notes: list[str]


class Tables(NamedTuple):
    """The tables that could be built, and a sentence for each that could not."""

    tables: list[Table]
    missing: list[str]


def figure(mean: float | None, std: float | None = None, digits: int = 2) -> str:
    """Return a number and its spread as text.

    >>> figure(78.384, 0.5), figure(-2.071, float("nan")), figure(-0.001), figure(None)
    ('78.38 ± 0.50', '−2.07', '0.00', '–')
    """
    if mean is None or math.isnan(mean):
        return ABSENT
    spread = "" if std is None or math.isnan(std) else f" ± {std:.{digits}f}"
    return f"{mean:z.{digits}f}{spread}".replace("-", "−")


def with_best(
    entries: list[TableCell], *, lowest: bool = False, digits: int = 2
) -> list[TableCell]:
    """Return entries with the best in bold, if there are two; values are compared as printed."""
    rounded = [None if entry.value is None else round(entry.value, digits) for entry in entries]
    known = [value for value in rounded if value is not None]
    if len(known) < 2:
        return entries
    best = min(known) if lowest else max(known)
    return [replace(e, bold=own == best) for e, own in zip(entries, rounded, strict=True)]


# of the CSV files; those that identify a number come first
COLUMNS = [
    *("table", "block", "metric", "model", "norm", "filter_size", "norm_depth", "balanced"),
    *("dataset", "mean", "std", "seeds", "subjects", "bold", "recipe", "simulated"),
]
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the start of a row it would be read as an argument of the preceding \\
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "κ": r"$\kappa$",
    "–": "--",
    "’": "'",
    "…": r"\ldots{}",
    "→": r"$\to$",
}


def markdown(table: Table) -> str:
    """Write a table as Markdown: its title, the table, and the notes as a list.

    Written by hand, as pandas would need tabulate.
    """
    width = len(table.head)
    rows = [[_escaped(name) for name in table.head], [":--", *["--:"] * (width - 1)]]
    for row in table.rows:
        texts = [f"**{_escaped(e.text)}**" if e.bold else _escaped(e.text) for e in row]
        rows.append(texts if len(row) > 1 else [f"*{texts[0]}*", *[""] * (width - 1)])
    lines = [f"**{_escaped(table.title)}**", "", *(f"| {' | '.join(row)} |" for row in rows)]
    lines += ["", *(f"- {_escaped(note)}" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def latex(table: Table) -> str:
    """Write a table as LaTeX with booktabs; it needs graphicx, too, to fit the page."""
    width = len(table.head)
    texts = [
        [rf"\textbf{{{_tex(e.text)}}}" if e.bold else _tex(e.text) for e in row]
        for row in table.rows
    ]
    padded = [[*row, *[""] * (width - len(row))] for row in texts]
    frame = pd.DataFrame(padded, columns=[_tex(name) for name in table.head])
    columns = "l" + "r" * (width - 1)
    lines = frame.to_latex(index=False, escape=False, column_format=columns).splitlines()
    first = lines.index(r"\midrule") + 1
    for place, row in enumerate(texts, first):
        if len(row) == 1:  # pandas has no headings that span columns
            heading = rf"\multicolumn{{{width}}}{{l}}{{\emph{{{row[0]}}}}} \\"
            rules = [] if place == first else [r"\midrule"]
            lines[place] = "\n".join([*rules, heading, r"\midrule"])
    return "\n".join(
        [
            r"% \usepackage{booktabs, graphicx}",
            r"% \usepackage[T1]{fontenc}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(table.title)}}}",
            rf"\label{{tab:psdnorm-{table.name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            *lines,
            r"}\par\smallskip\footnotesize\raggedright",
            *(rf"{_tex(note)}\par" for note in table.notes),
            r"\end{table}" + "\n",
        ]
    )


def csv_text(table: Table) -> str:
    """Write the numbers of a table as CSV, one row per number, with all their digits."""
    rows = [
        {"table": table.name, "mean": entry.value, "bold": "yes" if entry.bold else "no"}
        | {**entry.facts}
        for row in table.rows
        for entry in row
        if entry.facts
    ]
    # as objects, so that integers stay integers in columns with missing values
    frame = pd.DataFrame(rows, columns=COLUMNS, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


def write_tables(tables: Iterable[Table], folder: str | os.PathLike[str]) -> list[Path]:
    """Write tables as NAME.md, NAME.tex and NAME.csv; return the paths."""
    place = Path(folder)
    with os_errors_as(StoreError, place, "cannot be made"):
        place.mkdir(parents=True, exist_ok=True)
    writers: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": csv_text}
    paths = []
    for table in tables:
        for ending, write in writers.items():
            path = place / f"{table.name}.{ending}"
            with written(path) as file:
                file.write(write(table).encode())
            paths.append(path)
    return paths


def _escaped(text: str) -> str:
    """Escape text for Markdown."""
    return re.sub(r"([\\`*_<>|\[\]~$])", r"\\\1", text).replace("\n", " ")


def _tex(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text.replace("\n", " "))
