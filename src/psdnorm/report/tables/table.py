"""A table in memory: entries in rows, rows in blocks, and sentences below."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
