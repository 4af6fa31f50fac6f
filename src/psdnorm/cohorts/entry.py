"""What is said of a cohort, and what is found of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Candidates = Mapping[str, tuple[str, ...]]  # a channel's name → what may stand for it, in order


@dataclass(frozen=True)
class People:
    """Where a cohort's tables say how old its subjects are, of which sex and of which family.

    Names of files and columns are compared without blanks and case, and each may be absent.

    Parameters
    ----------
    files : tuple of str
        Patterns of file names below the download's root.
    subject : tuple of str
        Columns that may hold the subject's number; zeros before it do not count.
    age : tuple of str
        Columns that may hold the age in years, in order.
    age_at : mapping of str to str
        A column for each visit, where visits have their own; it goes before ``age``.
    sex : mapping of str to mapping of str to {"F", "M"}
        Columns, each with its codes. Words (``male``, ``f``) need none.
    family : tuple of str
        Columns that may hold the family's number.
    """

    files: tuple[str, ...]
    subject: tuple[str, ...] = ("nsrrid",)
    age: tuple[str, ...] = ("nsrr_age", "age")
    age_at: Mapping[str, str] = field(default_factory=dict)
    sex: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    family: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """One cohort as it is downloaded.

    Parameters
    ----------
    name : str
        As in the paper.
    signals, scorings : tuple of str
        Paths below the download's root, in order of preference, with ``{subject}``, ``{visit}`` and
        ``?`` for any letter. They are compared without blanks and case.
    channels : mapping of str to tuple of str
        The two derivations, each with the expressions that may stand for it, in order.
    line_hz : float
        Mains frequency where it was recorded.
    people : People, optional
    subject : str
        Regular expression of a subject's number, in lower case and without blanks.
    visits : tuple of str
        What ``{visit}`` may be.
    beside : str
        Beginning of names that may lie in the same folder and are another cohort's.
    """

    name: str
    signals: tuple[str, ...]
    scorings: tuple[str, ...]
    channels: Candidates
    line_hz: float
    people: People | None = None
    subject: str = r"\d+"
    visits: tuple[str, ...] = ()
    beside: str = ""


@dataclass(frozen=True)
class NightFiles:
    """One night, not yet read: its files, and what is known of it from names and tables.

    Attributes
    ----------
    cohort, subject : str
    visit : str
        "" where a subject has but one night.
    signal : Path
    scoring : Path or None
        None where there is none: every epoch is then unscored.
    channels : mapping of str to tuple of str
        What will be read, each with the expressions that may stand for it, in order.
    family : str or None
    age : float or None
        In years.
    sex : {"F", "M"} or None
    """

    cohort: str
    subject: str
    visit: str
    signal: Path
    scoring: Path | None
    channels: Candidates = field(hash=False)
    family: str | None = None
    age: float | None = None
    sex: str | None = None


@dataclass(frozen=True)
class Problem:
    """A file that is not as expected, and what is the matter with it; as text, one sentence."""

    file: Path
    what: str

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


def duplicate(file: Path, subject: str, visit: str, first: Path) -> Problem:
    """Return what is said of a file that gives a night a second time."""
    night = f"subject {subject}, visit {visit}," if visit else f"subject {subject}"
    return Problem(file, f"is of {night} as {first} is, and is left out")


def unscored(file: Path, expected: str) -> Problem:
    """Return what is said of a signal that has no scoring beside it."""
    within = "; an EDF+ that holds its own stages needs a manifest"
    hint = within if file.suffix.lower() == ".edf" else ""
    return Problem(file, f"has no scoring beside it, expected {expected}{hint}")


class Found(NamedTuple):
    """What was found below a source.

    Attributes
    ----------
    nights : list of NightFiles
        By subject and visit.
    problems : list of Problem
        Files that were left out, and nights that have no scoring. They stop no other night.
    notes : list of str
        What a user may want to know and need not mend.
    """

    nights: list[NightFiles]
    problems: list[Problem]
    notes: list[str]
