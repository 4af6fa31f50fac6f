"""Tables as Markdown, LaTeX and CSV."""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from psdnorm.errors import StoreError
from psdnorm.report.tables.table import Entry, Table
from psdnorm.runtime.files import written

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
