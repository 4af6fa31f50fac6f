"""Self-contained HTML pages, made by the templates ``page.html`` and ``parts.html``."""

import base64
import hashlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.runtime import written

BAND = "These nights are simulated. They say nothing about patients."
FRAME_BYTES = 20_000  # upper bound on the styles, script and head of a page
_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")
_TURNING = re.compile("\\S*[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]\\S*")
_MIME = {"png": "image/png", "svg": "image/svg+xml"}


def _isolated(value: object) -> object:
    """Escape a text, and isolate names with right-to-left marks, so that these affect only them."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(_TURNING.sub(r"<bdi>\g<0></bdi>", str(escape(value))))


def _flowing(text: str) -> Markup:
    """Escape a text, without line breaks between a number and its %."""
    return Markup(re.sub(r"(?<=\d) %", "&nbsp;%", str(_isolated(text))))


_templates = Environment(
    loader=PackageLoader("psdnorm.present", "."),
    autoescape=True,
    finalize=_isolated,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_templates.filters["flowing"] = _flowing
_parts: Any = _templates.get_template("parts.html").module


@dataclass(frozen=True)
class TableCell:
    """A cell of a table."""

    text: str
    value: float | None = None  # unrounded, in the unit of ``text`` (scores: percent), if any
    bold: bool = False  # whether it is the best of its row
    facts: Mapping[str, Any] = field(default_factory=dict)  # one column of the CSV file each


class Part:
    """A page, or a part of one, built from top to bottom."""

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids
        self._parts: list[Markup] = []
        self._headings: list[tuple[str, str]] = []

    def part(self) -> "Part":
        """Return an empty part of the same page, to be added, folded or highlighted."""
        return Part(self._ids)

    def add(self, part: "Part") -> Self:
        self._headings += part._headings
        self._parts += part._parts
        return self

    @property
    def n_bytes(self) -> int:
        """Its size within a page, in bytes."""
        return sum(len(part.encode()) + 1 for part in self._parts)

    def heading(self, text: str, level: int = 2) -> Self:
        """Start a section, or a subsection."""
        name = f"s{next(self._ids)}"
        if level == 2:
            self._headings.append((name, text))
        return self._add(_parts.heading(name, level, text))

    def text(self, text: str, kind: str = "") -> Self:
        """Add a paragraph; ``kind`` "note" is in smaller type."""
        return self._add(_parts.paragraph(text, kind))

    def items(self, texts: Iterable[str]) -> Self:
        """Add a list, unless it is empty."""
        texts = list(texts)
        return self._add(_parts.items(texts)) if texts else self

    def command(self, text: str) -> Self:
        """Add a block of code, such as a shell command."""
        return self._add(_parts.command(text))

    def links(self, before: str, targets: Iterable[tuple[str, str]]) -> Self:
        """Add a line of links to files beside the page, as pairs of a path and a text."""
        return self._add(_parts.links(before, targets))

    def table(
        self,
        caption: str,
        head: Sequence[str],
        rows: Sequence[Sequence[str | TableCell]],
        *,
        sortable: bool = False,
        unseen: bool = False,
        words: Collection[int] = (),
    ) -> Self:
        """Add a table whose first column names the rows.

        A row of one entry is a heading: the rows below it are sorted separately. Rows of means stay
        below the rows that they average. A ``sortable`` table can be sorted by its column headers,
        unless its rows are different quantities. The caption of an ``unseen`` table is for screen
        readers only; ``words`` are the columns that hold sentences rather than numbers.
        """
        sortable = sortable and _is_of_one_metric(rows)
        groups = [
            (kind, [[_cell(entry, sortable) for entry in row] for row in own])
            for kind, own in itertools.groupby(rows, lambda row: _kind(row, len(head)))
        ]
        return self._add(
            _parts.table(self._table_id(), caption, head, groups, sortable, unseen, words)
        )

    def matrix(
        self, caption: str, names: Sequence[str], entries: Sequence[Sequence[tuple[str, str]]]
    ) -> Self:
        """Add a confusion matrix, rows true and columns predicted, of texts and their tooltips."""
        return self._add(_parts.matrix(self._table_id(), caption, list(names), entries))

    def beside(self, part: "Part") -> Self:
        """Add the elements of a part side by side, as space permits."""
        return self._add(_parts.beside(part._body("")))

    def picture(
        self,
        picture: bytes,
        words: str,
        caption: str = "",
        kind: str = "png",
        *,
        scrolls: bool = False,
    ) -> Self:
        """Add a PNG or SVG with its alternative text, ``words``.

        If it ``scrolls``, it does so on a narrow screen rather than become too small to read.
        """
        data = f"{_MIME[kind]};base64,{base64.b64encode(picture).decode()}"
        return self._add(_parts.picture(Markup(data), words, caption, scrolls))

    def fold(self, summary: str, part: "Part") -> Self:
        """Add a collapsed part that is shown when its summary is clicked."""
        return self._add(_parts.fold(summary, part._body()))

    def verdict(self, part: "Part", kind: str = "") -> Self:
        """Add a highlighted part, its first paragraph in large type.

        The kinds "caution" and "alarm" are highlighted more strongly.
        """
        return self._add(_parts.verdict(kind, part._body()))

    def subjects(
        self,
        caption: str,
        columns: Sequence[tuple[str, str]],
        rows: Sequence[Sequence[Any]],
        by: int,
        without_script: str,
    ) -> Self:
        """Add a table of many subjects; the script shows some of them and searches the others.

        Columns have a name and a kind: "text", "count", or "percent" and "gain", which are whole
        hundredths. The first names the subject; None is a missing value. The subjects with the
        lowest values in the column ``by`` are shown first.
        """
        number = next(self._ids)
        document = json_in_script({"columns": columns, "rows": rows, "by": by})
        head = [name for name, _ in columns]
        return self._add(
            _parts.subjects(self._table_id(), number, caption, head, document, without_script)
        )

    def _table_id(self) -> str:
        return f"t{next(self._ids)}"

    def _body(self, between: str = "\n") -> Markup:
        return Markup(between).join(self._parts)

    def _add(self, part: Markup) -> Self:
        self._parts.append(part)
        return self


class Page(Part):
    """A page that is built from top to bottom; all texts are escaped.

    >>> page = Page("Norms", simulated=True).text("1 < 2").table("Accuracy", ["norm"], [["psd"]])
    >>> "<p>1 &lt; 2</p>" in page.html()
    True
    """

    def __init__(
        self,
        title: str,
        *,
        simulated: bool = False,  # a band on top says so
        contents: bool = False,  # links to the sections follow the title
        notice: str | None = None,  # text of another band on top
    ) -> None:
        super().__init__(itertools.count())
        self._title = title
        self._contents = contents
        self._bands = [BAND] * simulated + ([notice] if notice else [])

    def html(self) -> str:
        body, script = self._body(), ""
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        if 'class="sortable"' in body or "data-subjects=" in body:
            script = _asset("page.js")
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            policy += f"; script-src 'sha256-{digest}'"
        return _templates.get_template("page.html").render(
            policy=Markup(policy),
            title=self._title,
            style=Markup(_asset("page.css")),
            bands=self._bands,
            contents=self._contents,
            headings=self._headings,
            body=body,
            script=Markup(script),
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page, atomically."""
        with written(Path(path)) as file:
            file.write(self.html().encode())


def json_in_script(document: Any) -> Markup:
    """Return JSON that cannot close its script element, whatever the names in it."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def _cell(entry: str | TableCell, sortable: bool) -> dict[str, Any]:
    """Return an entry as the template shows it, and its sort key, "" if it has none."""
    entry = TableCell(entry) if isinstance(entry, str) else entry
    value = entry.value
    if value is None and (found := _NUMBER.match(entry.text)):
        value = float(found[0].replace(",", "").replace("−", "-"))
    has_order = sortable and value is not None and value == value  # NaN counts as missing
    return {"text": entry.text, "bold": entry.bold, "order": f"{value:.12g}" if has_order else ""}


def _kind(row: Sequence[str | TableCell], width: int) -> str:
    if len(row) == 1 < width:
        return "heading"
    name = row[0] if isinstance(row[0], str) else row[0].text
    return "means" if name in (MEAN_DATASET, MEAN_SUBJECT) else "plain"


def _is_of_one_metric(rows: Sequence[Sequence[str | TableCell]]) -> bool:
    """Return whether the numbers in a column share one metric, so that sorting makes sense."""
    metrics: dict[int, Any] = {}
    for row in rows:
        if len(row) == 1:  # a heading: rows above and below it are not sorted together
            metrics.clear()
        for column, entry in enumerate(row):
            metric = None if isinstance(entry, str) else entry.facts.get("metric")
            if metric is not None and metrics.setdefault(column, metric) != metric:
                return False
    return True


def _asset(name: str) -> str:
    return files("psdnorm.present").joinpath(name).read_text(encoding="utf-8")
