"""How the files of a cohort are laid out, and what a night on disk is."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from psdnorm.errors import RecordingError

Candidates = Mapping[str, tuple[str, ...]]  # a channel's name → what may stand for it, in order


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


_TOKEN = re.compile(r"\{(\w+)\}|(\*\*/)|(\*)|(\?)|(\[[^\]]+\])")


def pattern_of(template: str, places: Mapping[str, str]) -> re.Pattern[str]:
    """Return the regular expression of a path with ``{places}`` and a shell's wildcards.

    Parameters
    ----------
    template : str
        A place that is named twice must hold the same both times.
    places : mapping of str to str
        Each place's own regular expression.
    """
    parts, end, named = [], 0, set[str]()
    for token in _TOKEN.finditer(template):
        parts.append(re.escape(template[end : token.start()]))
        end = token.end()
        place, folders, letters, letter, choice = token.groups()
        if place in places:
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
    """Refuse a source that is no folder, or that may not be looked at.

    Parameters
    ----------
    root : Path
    expected : str
        What it should be, for the error.
    """
    try:
        is_folder = stat.S_ISDIR(root.stat().st_mode)
    except PermissionError as error:
        raise RecordingError(f"{root} cannot be read: {error.strerror}") from error
    except OSError:
        is_folder = False
    if not is_folder:
        raise RecordingError(f"{root} is no folder, expected {expected}")


def children(folder: Path, problems: list[Problem]) -> list[Path]:
    """Return what lies in a folder, by name, without hidden files; name a folder that is closed."""
    what = "read"
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        what = "entered"  # names may be all that is shown of what lies in it
        os.stat(os.path.join(folder, "."))
    except OSError as error:
        problem = Problem(folder, f"cannot be {what}: {error.strerror or error}")
        if problem not in problems:
            problems.append(problem)
        return []
    return found


def below(root: Path, problems: list[Problem]) -> list[Path]:
    """Return all that lies below a folder, by path; links are followed, and what is closed named.

    Parameters
    ----------
    root : Path
    problems : list of Problem
        What cannot be read is added to it.
    """
    # what links lead to again is entered once, and what is above the root never
    entered = {root.resolve(), *root.resolve().parents}
    found, waiting = list[Path](), [root]
    while waiting:
        for path in children(waiting.pop(), problems):
            try:
                is_folder = stat.S_ISDIR(path.stat().st_mode)
            except PermissionError as error:
                problems.append(Problem(path, f"cannot be read: {error.strerror}"))
                continue
            except OSError:  # a link to nothing
                is_folder = False
            found.append(path)
            if is_folder and path.resolve() not in entered:
                entered.add(path.resolve())
                waiting.append(path)
    return sorted(found)
