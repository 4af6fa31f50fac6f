"""Self-contained HTML pages."""

import base64
import enum
import hashlib
import html
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, Self

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.runtime import written

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")
_TURNING = re.compile("\\S*[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]\\S*")


def flowing(text: str) -> str:
    """Return a text in which no line ends between a number and its %."""
    return re.sub(r"(?<=\d) %", "&nbsp;%", escaped(text))


def escaped(text: str) -> str:
    """Return a text as markup; names that turn the direction of writing turn only their own."""
    return _TURNING.sub(r"<bdi>\g<0></bdi>", html.escape(text))


def json_in_script(document: Any) -> str:
    """Return JSON that ends no script, whatever the names in it."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def leading_number(text: str) -> float | None:
    """Return the number that a text begins with, if it does."""
    found = _NUMBER.match(text)
    return float(found[0].replace(",", "").replace("−", "-")) if found else None


BAND = "These nights are simulated. They say nothing about patients."
_WORDS = ' class="words"'
FRAME_BYTES = 20_000  # what styles, script and head of a page take at most


class Entry(Protocol):
    """What a cell of a table may be besides a text: see :class:`psdnorm.report.tables.Entry`."""

    @property
    def text(self) -> str:
        """What is shown."""

    @property
    def value(self) -> float | None:
        """What it is sorted by; a number at the start of the text if it is not given."""

    @property
    def bold(self) -> bool:
        """Whether it is the best of its kind."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the number is of: its ``metric``, among others."""


class _Kind(enum.Enum):
    """What a row of a table is; for bodies, their attributes."""

    HEADING = None
    PLAIN = ""
    MEAN = ' class="means"'


class Part:
    """Something that is put together from top to bottom: a page, or what is folded in it."""

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids
        self._parts: list[str] = []
        self._headings: list[tuple[str, str]] = []

    def part(self) -> "Part":
        """Return an empty part of the same page: add it, fold it, or make it stand out."""
        return Part(self._ids)

    def add(self, part: "Part") -> Self:
        """Add a part as it is."""
        self._headings += part._headings
        self._parts += part._parts
        return self

    @property
    def n_bytes(self) -> int:
        """The bytes that it takes in a page."""
        return sum(len(part.encode()) + 1 for part in self._parts)

    def heading(self, text: str, level: int = 2) -> Self:
        """Begin a section, or one within it."""
        name = f"s{next(self._ids)}"
        if level == 2:
            self._headings.append((name, text))
        return self._add(f'<h{level} id="{name}">{escaped(text)}</h{level}>')

    def text(self, text: str, kind: str = "") -> Self:
        """Add a paragraph; of the ``kind`` "note" in smaller letters."""
        attribute = f' class="{kind}"' if kind else ""
        return self._add(f"<p{attribute}>{flowing(text)}</p>")

    def items(self, texts: Iterable[str]) -> Self:
        """Add a list."""
        lines = "".join(f"<li>{flowing(text)}</li>" for text in texts)
        return self._add(f"<ul>{lines}</ul>") if lines else self

    def command(self, text: str) -> Self:
        """Add what can be typed into a shell."""
        return self._add(f"<pre><code>{html.escape(text)}</code></pre>")

    def links(self, before: str, targets: Iterable[tuple[str, str]]) -> Self:
        """Add a line of links to files beside the page, each with its words."""
        to = (f'<a href="{html.escape(path)}">{escaped(words)}</a>' for path, words in targets)
        return self._add(f'<p class="note">{escaped(before)} {", ".join(to)}</p>')

    def table(
        self,
        caption: str,
        head: Sequence[str],
        rows: Sequence[Sequence[str | Entry]],
        *,
        sortable: bool = False,
        unseen: bool = False,
        words: Collection[int] = (),
    ) -> Self:
        """Add a table whose first column names the rows.

        Parameters
        ----------
        caption : str
        head : sequence of str
            Names of the columns.
        rows : sequence of sequences
            A row of one entry is a heading: the rows below it are sorted by themselves. Rows of
            means stay below the rows that they are of.
        sortable : bool
            Whether its heads sort it; never where rows are different quantities.
        unseen : bool
            Whether the caption is only read aloud, as a heading above says the same.
        words : collection of int
            Columns that hold sentences rather than numbers.
        """
        sortable = sortable and _alike(rows)
        body = []
        for kind, own in itertools.groupby(rows, lambda row: _kind(row, len(head))):
            if kind is _Kind.HEADING:
                body += [_heading(row[0], len(head)) for row in own]
            else:
                lines = (
                    "".join(_cell(*numbered, sortable, words) for numbered in enumerate(row))
                    for row in own
                )
                body += [f"<tbody{kind.value}>", *(f"<tr>{line}</tr>" for line in lines)]
                body.append("</tbody>")
        return self._add(self._framed(caption, head, "".join(body), sortable, unseen, words))

    def matrix(
        self, caption: str, names: Sequence[str], entries: Sequence[Sequence[tuple[str, str]]]
    ) -> Self:
        """Add a square table of stages by stages, rows true and columns predicted.

        Parameters
        ----------
        caption : str
        names : sequence of str
            Of the rows, and of the columns.
        entries : sequence of sequences of (str, str)
            What is shown, and what is told of it where it is pointed at.
        """
        lines = []
        for place, (name, row) in enumerate(zip(names, entries, strict=True)):
            cells = "".join(
                f'<td class="{"best" * (place == column)}" title="{html.escape(told)}">'
                f"{escaped(text)}</td>"
                for column, (text, told) in enumerate(row)
            )
            lines.append(f'<tr><th scope="row">{escaped(name)}</th>{cells}</tr>')
        head = ["true", *names]
        body = f"<tbody>{''.join(lines)}</tbody>"
        return self._add(self._framed(caption, head, body, sortable=False))

    def beside(self, part: "Part") -> Self:
        """Add the elements of a part beside each other, as far as there is room."""
        return self._add(f'<div class="beside">{"".join(part._parts)}</div>')

    def picture(
        self,
        picture: bytes,
        words: str,
        caption: str = "",
        kind: str = "png",
        *,
        scrolls: bool = False,
    ) -> Self:
        """Add a picture, and words that stand for it where it cannot be seen.

        Parameters
        ----------
        picture : bytes
        words : str
        caption : str
        kind : {"png", "svg"}
        scrolls : bool
            Whether it is moved sideways on a narrow screen rather than made too small to read.
        """
        mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
        data = base64.b64encode(picture).decode()
        shown = f'<img alt="{html.escape(words)}" src="data:{mime};base64,{data}">'
        if scrolls:
            named = 'role="region" aria-label="Picture"'
            shown = f'<div class="scroll wide" tabindex="0" {named}>{shown}</div>'
        if caption:
            caption = f"<figcaption>{escaped(caption)}</figcaption>"
        return self._add(f"<figure>{shown}{caption}</figure>")

    def fold(self, summary: str, part: "Part") -> Self:
        """Add a part that is shown when its summary is chosen."""
        body = "\n".join(part._parts)
        return self._add(f"<details><summary>{escaped(summary)}</summary>\n{body}\n</details>")

    def verdict(self, part: "Part", kind: str = "") -> Self:
        """Add a part that stands out; its first paragraph in large letters.

        Of the ``kind`` "caution" or "alarm" it stands out more.
        """
        body = "\n".join(part._parts)
        return self._add(f'<div class="{f"verdict {kind}".rstrip()}">\n{body}\n</div>')

    def _framed(
        self,
        caption: str,
        head: Sequence[str],
        body: str,
        sortable: bool,
        unseen: bool = False,
        words: Collection[int] = (),
    ) -> str:
        name = f"t{next(self._ids)}"
        names = "".join(
            f'<th scope="col"{_WORDS * (column in words)}>{escaped(text)}</th>'
            for column, text in enumerate(head)
        )
        kind = ' class="sortable"' if sortable else ""
        hidden = ' class="unseen"' if unseen else ""
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}">'
            f'<table{kind}><caption id="{name}"{hidden}>{escaped(caption)}</caption>'
            f"<thead><tr>{names}</tr></thead>{body}</table></div>"
        )

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self

    def subjects(
        self,
        caption: str,
        columns: Sequence[tuple[str, str]],
        rows: Sequence[Sequence[Any]],
        by: int,
        without_script: str,
    ) -> Self:
        """Add a table of many subjects, of which the script shows some and finds the others.

        Parameters
        ----------
        caption : str
        columns : sequence of (str, str)
            Name and kind: "text", "count", or "percent" and "gain", which are whole hundredths.
        rows : sequence of sequences
            The first is the subject's name; None for what is not there.
        by : int
            The column in which those are lowest that are shown first.
        without_script : str
            What is said where no script runs.
        """
        number = next(self._ids)
        data, field = f"d{number}", f"f{number}"
        document = {"columns": columns, "rows": rows, "by": by}
        table = self._framed(caption, [name for name, _ in columns], "<tbody></tbody>", False)
        return self._add(
            f'<div data-subjects="{data}"><noscript><p>{escaped(without_script)}</p></noscript>'
            f'<div class="browser" hidden><label for="{field}">Find a subject</label>'
            f'<input id="{field}" type="search" autocomplete="off">'
            f'<p class="status" role="status"></p>{table}</div></div>'
            f'<script type="application/json" id="{data}">{json_in_script(document)}</script>'
        )


class Page(Part):
    """A page that is put together from top to bottom; all texts are taken as they are.

    Parameters
    ----------
    title : str
    simulated : bool
        Whether a band on top says that nobody slept these nights.
    contents : bool
        Whether links to the sections follow the title.
    notice : str, optional
        What else a band on top says.

    Examples
    --------
    >>> page = Page("Norms", simulated=True).text("1 < 2").table("Accuracy", ["norm"], [["psd"]])
    >>> "<p>1 &lt; 2</p>" in page.html()
    True
    """

    def __init__(
        self,
        title: str,
        *,
        simulated: bool = False,
        contents: bool = False,
        notice: str | None = None,
    ) -> None:
        super().__init__(itertools.count())
        self._title = title
        self._contents = contents
        told = [BAND] * simulated + ([notice] if notice else [])
        bands = "".join(f'<p class="band" role="note">{escaped(text)}</p>\n' for text in told)
        self._top = f"{bands}<h1>{escaped(title)}</h1>"

    def html(self) -> str:
        """Return the page."""
        parts = "\n".join(self._parts)
        script = ""
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        if 'class="sortable"' in parts or "data-subjects=" in parts:
            code = _asset("page.js")
            digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            policy += f"; script-src 'sha256-{digest}'"
            script = f"<script>{code}</script>\n"
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<title>{html.escape(self._title)}</title>\n<style>{_asset('page.css')}</style>\n"
            '</head>\n<body>\n<a class="skip" href="#main">Skip to the content</a>\n'
            f'<main id="main">\n{self._top}\n{self._links()}{parts}\n</main>\n{script}'
            "</body>\n</html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all."""
        with written(Path(path)) as file:
            file.write(self.html().encode())

    def _links(self) -> str:
        if not self._contents:
            return ""
        links = "".join(
            f'<li><a href="#{name}">{escaped(text)}</a></li>' for name, text in self._headings
        )
        return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'


def _cell(column: int, entry: str | Entry, sortable: bool, words: Collection[int] = ()) -> str:
    """Return a cell; the first of a row is its name."""
    if isinstance(entry, str):
        text, value, is_bold = entry, None, False
    else:
        text, value, is_bold = entry.text, entry.value, entry.bold
    attributes = ' class="best"' if is_bold else _WORDS * (column in words)
    if column == 0:
        return f'<th scope="row"{attributes}>{escaped(text)}</th>'
    if value is None:
        value = leading_number(text)
    if sortable and value is not None and value == value:  # NaN is as if it were not there
        attributes += f' data-v="{value:.12g}"'
    return f"<td{attributes}>{escaped(text)}</td>"


def _heading(entry: str | Entry, width: int) -> str:
    text = entry if isinstance(entry, str) else entry.text
    cell = f'<th class="group" colspan="{width}" scope="rowgroup">{escaped(text)}</th>'
    return f"<tbody><tr>{cell}</tr></tbody>"


def _kind(row: Sequence[str | Entry], width: int) -> _Kind:
    if len(row) == 1 < width:
        return _Kind.HEADING
    name = row[0] if isinstance(row[0], str) else row[0].text
    return _Kind.MEAN if name in (MEAN_DATASET, MEAN_SUBJECT) else _Kind.PLAIN


def _alike(rows: Sequence[Sequence[str | Entry]]) -> bool:
    """Tell whether numbers below each other are of one metric, so that order means something."""
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
