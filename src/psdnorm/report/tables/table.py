"""A table, and how it is written as CSV, Markdown, LaTeX and HTML."""

import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from psdnorm.errors import StoreError
from psdnorm.runtime import written

ABSENT = "–"
OURS, PAPER = "ours", "paper"


@dataclass(frozen=True)
class Entry:
    """What stands in one place of a table.

    Attributes
    ----------
    text : str
        As it is shown.
    value : float, optional
        The number that ``text`` rounds, in its unit (scores: percent). None for words, and where
        there is nothing.
    bold : bool
        Whether it is the best of its row.
    facts : dict
        What the number is of, one column of the CSV file each; empty for words.
    """

    text: str
    value: float | None = None
    bold: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    name : str
        Short and unique; names its files.
    title : str
        In one line; names the recipe, and says whether the nights are simulated.
    head : list of str
        Names of the columns.
    rows : list of list of Entry
        As many entries as ``head`` has, the first of them the row's name; or a single one, which
        is the heading of the rows that follow.
    notes : list of str
        Sentences that belong below.
    """

    name: str
    title: str
    head: list[str]
    rows: list[list[Entry]]
    notes: list[str]

    @property
    def blocks(self) -> list[tuple[str, list[list[Entry]]]]:
        """The rows by their headings: what may be sorted is the rows of one block."""
        blocks: list[tuple[str, list[list[Entry]]]] = []
        for row in self.rows:
            if len(row) == 1:
                blocks.append((row[0].text, []))
            elif blocks:
                blocks[-1][1].append(row)
            else:
                blocks.append(("", [row]))
        return blocks


class Tables(NamedTuple):
    """What can be built from results, and what cannot.

    Attributes
    ----------
    tables : list of Table
    missing : list of str
        A sentence for each table that has no result at all.
    """

    tables: list[Table]
    missing: list[str]


def figure(mean: float | None, std: float | None = None, digits: int = 2) -> str:
    """Write a number and its spread down.

    Parameters
    ----------
    mean, std : float, optional
    digits : int
        Behind the point.

    Examples
    --------
    >>> figure(78.384, 0.5), figure(-2.071, float("nan")), figure(-0.001), figure(None)
    ('78.38 ± 0.50', '−2.07', '0.00', '–')
    """
    if mean is None or math.isnan(mean):
        return ABSENT
    spread = "" if std is None or math.isnan(std) else f" ± {std:.{digits}f}"
    return f"{mean:z.{digits}f}{spread}".replace("-", "−")


def with_best(entries: list[Entry], *, lowest: bool = False, digits: int = 2) -> list[Entry]:
    """Return entries with the best in bold, if there are two at least to choose from.

    Numbers that are printed alike are alike: all of them are in bold.

    Parameters
    ----------
    entries : list of Entry
    lowest : bool
        Whether the lowest is the best.
    digits : int
        That are printed behind the point.
    """
    rounded = [None if entry.value is None else round(entry.value, digits) for entry in entries]
    known = [value for value in rounded if value is not None]
    if len(known) < 2:
        return entries
    best = min(known) if lowest else max(known)
    return [
        Entry(entry.text, entry.value, value == best, entry.facts)
        for entry, value in zip(entries, rounded, strict=True)
    ]


# what tells numbers apart, and the numbers
COLUMNS = (
    "table",
    "block",
    "metric",
    "model",
    "norm",
    "filter_size",
    "norm_depth",
    "balanced",
    "dataset",
    "mean",
    "std",
    "seeds",
    "subjects",
    "bold",
    "recipe",
    "simulated",
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the beginning of a row they would belong to the end of the one before
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
_PREAMBLE = r"% \usepackage{booktabs, graphicx}" + "\n" + r"% \usepackage[T1]{fontenc}"


def markdown(table: Table) -> str:
    """Write a table as Markdown.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str
        Title, table, and the notes as a list.
    """
    width = len(table.head)
    lines = [f"**{_escaped(table.title)}**", "", _piped(map(_escaped, table.head))]
    lines.append(_piped([":--", *["--:"] * (width - 1)]))
    for row in table.rows:
        if len(row) == 1:
            lines.append(_piped([f"*{_escaped(row[0].text)}*", *[""] * (width - 1)]))
        else:
            lines.append(_piped(_strong(entry) for entry in row))
    lines += ["", *(f"- {_escaped(note)}" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def latex(table: Table) -> str:
    """Write a table as LaTeX with booktabs; it needs graphicx, too, to fit the page.

    Parameters
    ----------
    table : Table
    """
    width = len(table.head)
    lines = [_PREAMBLE, r"\begin{table}", r"\centering", rf"\caption{{{_tex(table.title)}}}"]
    lines += [rf"\label{{tab:psdnorm-{table.name}}}", r"\resizebox{\ifdim\width>\linewidth"]
    lines[-1] += r"\linewidth\else\width\fi}{!}{%"
    lines += [rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\toprule"]
    lines.append(_aligned(map(_tex, table.head)))
    if table.rows and len(table.rows[0]) > 1:
        lines.append(r"\midrule")
    for row in table.rows:
        if len(row) == 1:
            heading = rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_tex(row[0].text)}}}}} \\"
            lines += [r"\midrule", heading, r"\midrule"]
        else:
            lines.append(_aligned(map(_bold_tex, row)))
    lines += [r"\bottomrule", r"\end{tabular}}", r"\par\smallskip\footnotesize\raggedright"]
    lines += [rf"{_tex(note)}\par" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def csv_text(table: Table) -> str:
    """Write the numbers of a table as CSV, one row per number.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str
        With the columns :data:`COLUMNS`: ``block`` is "ours" or "paper"; ``mean`` and ``std`` are
        in the table's unit (scores in percent), with all their digits, and empty where there is
        none; ``balanced`` is a number or "all".
    """
    file = io.StringIO()
    rows = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    rows.writeheader()
    for entry in (entry for row in table.rows for entry in row if entry.facts):
        bold = "yes" if entry.bold else "no"
        row = {"table": table.name, "mean": entry.value, "bold": bold, **entry.facts}
        rows.writerow({name: "" if value is None else value for name, value in row.items()})
    return file.getvalue()


def write_tables(tables: Iterable[Table], folder: str | os.PathLike[str]) -> list[Path]:
    """Write tables as NAME.md, NAME.tex and NAME.csv, each whole or not at all.

    Parameters
    ----------
    tables : iterable of Table
    folder : path
        Made if it does not exist.

    Returns
    -------
    list of Path
        What was written.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{place} cannot be made: {error.strerror}") from error
    writers: dict[str, Callable[[Table], str]] = {"md": markdown, "tex": latex, "csv": csv_text}
    paths = []
    for table in tables:
        for ending, write in writers.items():
            path = place / f"{table.name}.{ending}"
            with written(path) as file:
                file.write(write(table).encode())
            paths.append(path)
    return paths


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"([\\`*_<>|\[\]~$])", r"\\\1", text).replace("\n", " ")


def _strong(entry: Entry) -> str:
    return f"**{_escaped(entry.text)}**" if entry.bold else _escaped(entry.text)


def _aligned(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _tex(text: str) -> str:
    """Return text that LaTeX sets as it is."""
    return "".join(_LATEX.get(character, character) for character in text.replace("\n", " "))


def _bold_tex(entry: Entry) -> str:
    return rf"\textbf{{{_tex(entry.text)}}}" if entry.bold else _tex(entry.text)
