"""The file layout of a cohort, and a night on disk."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from psdnorm.errors import RecordingError
from psdnorm.io import fold

Candidates = Mapping[str, tuple[str, ...]]  # channel name → its expressions, preferred first


@dataclass(frozen=True)
class NightFiles:
    """One night that was found: its files, and its metadata from file names and tables."""

    cohort: str
    subject: str
    visit: str  # "" where a subject has only one night
    signal: Path
    scoring: Path | None  # if None, every epoch is unscored
    channels: Candidates = field(hash=False)  # to be read
    family: str | None = None
    age: float | None = None  # in years
    sex: str | None = None  # F or M


@dataclass(frozen=True)
class Problem:
    """A file that is not as expected; its str is one sentence."""

    file: Path
    what: str

    def __str__(self) -> str:
        return f"{self.file} {self.what}"


def duplicate(file: Path, subject: str, visit: str, first: Path) -> Problem:
    night = f"subject {subject}, visit {visit}," if visit else f"subject {subject}"
    return Problem(file, f"is of {night} like {first}, and is left out")


def unscored(file: Path, expected: str) -> Problem:
    is_edf = file.suffix.lower() == ".edf"
    hint = "; an EDF+ that holds its own stages needs a manifest" if is_edf else ""
    return Problem(file, f"has no scoring beside it, expected {expected}{hint}")


def inaccessible(path: Path, error: OSError, what: str = "read") -> Problem:
    return Problem(path, f"cannot be {what}: {error.strerror or error}")


class Found(NamedTuple):
    """The nights found in a source, with problems and notes.

    Problems are skipped files and nights without a scoring; they do not affect other nights.
    Notes are for information and need no action.
    """

    nights: list[NightFiles]
    problems: list[Problem]
    notes: list[str]


_TOKEN = re.compile(r"\{(\w+)\}|(\*\*/)|(\*)|(\?)|(\[[^\]]+\])")


def pattern_of(template: str, places: Mapping[str, str]) -> re.Pattern[str]:
    """Return the regular expression of a path with ``{places}`` and shell wildcards."""
    parts, end, named = [], 0, set[str]()
    for token in _TOKEN.finditer(template):
        parts.append(re.escape(template[end : token.start()]))
        end = token.end()
        place, folders, letters, letter, choice = token.groups()
        if place in places:  # a repeated place must match the same text
            parts.append(f"(?P={place})" if place in named else f"(?P<{place}>{places[place]})")
            named.add(place)
        elif place:
            parts.append(re.escape(token[0]))
        elif choice:
            parts.append(choice.replace("[!", "[^", 1))
        else:
            parts.append("(?:.*/)?" if folders else "[^/]*" if letters else "[^/]" * bool(letter))
    parts.append(re.escape(template[end:]))
    return re.compile("".join(parts))


def check_root(root: Path, expected: str) -> None:
    """Raise RecordingError if a source is not a readable folder."""
    try:
        is_folder = stat.S_ISDIR(root.stat().st_mode)
    except PermissionError as error:
        raise RecordingError(str(inaccessible(root, error))) from error
    except OSError:
        is_folder = False
    if not is_folder:
        raise RecordingError(f"{root} is not a folder, expected {expected}")


def children(folder: Path, problems: list[Problem]) -> list[Path]:
    """List a folder, sorted by name, without hidden files; report an inaccessible folder."""
    what = "read"
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        what = "entered"  # a folder may be listable but not searchable
        os.stat(os.path.join(folder, "."))
    except OSError as error:
        problem = inaccessible(folder, error, what)
        if problem not in problems:
            problems.append(problem)
        return []
    return found


def folders_named(root: Path, names: list[str], problems: list[Problem]) -> list[Path]:
    """Return folders by their names below the root, ignoring case and blanks."""
    found = [root]
    for name in names:
        found = [
            path
            for folder in found
            for path in ([folder.parent] if name == ".." else children(folder, problems))
            if name == ".." or (fold(path.name) == fold(name) and os.path.isdir(path))
        ]
    return found


def below(root: Path, problems: list[Problem]) -> list[Path]:
    """List a tree, sorted by path; links are followed, inaccessible folders reported."""
    # a folder that links reach repeatedly is entered once, a parent of the root never
    entered = {root.resolve(), *root.resolve().parents}
    found, waiting = list[Path](), [root]
    while waiting:
        for path in children(waiting.pop(), problems):
            try:
                is_folder = stat.S_ISDIR(path.stat().st_mode)
            except PermissionError as error:
                problems.append(inaccessible(path, error))
                continue
            except OSError:  # a dangling link
                is_folder = False
            found.append(path)
            if is_folder and path.resolve() not in entered:
                entered.add(path.resolve())
                waiting.append(path)
    return sorted(found)
