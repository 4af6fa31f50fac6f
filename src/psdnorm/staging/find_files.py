"""Which recordings a command names, and what their files are called."""

import glob
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from psdnorm.cohorts.entry import Problem
from psdnorm.cohorts.file_layout import below
from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import read_header

_SIGNALS = (".edf", ".bdf", ".vhdr", ".fif", ".fif.gz")
_EDFS = (".edf", ".bdf")


class FoundRecordings(NamedTuple):
    """What a command names.

    Attributes
    ----------
    names : dict of str to Path
        What the outputs of each recording are called; no two alike in any case of letters.
    problems : list of str
        Folders that cannot be read, one sentence each.
    n_scorings : int
        EDF files in folders that hold annotations alone, and are left out.
    """

    names: dict[str, Path]
    problems: list[str]
    n_scorings: int


def find_recordings(arguments: Sequence[str]) -> FoundRecordings:
    """Find recordings by files, folders and patterns.

    Parameters
    ----------
    arguments : sequence of str
        Files, whatever their suffix; folders, which are searched for EDF, BDF, BrainVision and FIF
        and all below them; patterns as ``nights/*.edf``.

    Returns
    -------
    FoundRecordings

    Raises
    ------
    ArgumentError
        If an argument names nothing.
    """
    problems: list[Problem] = []
    found: dict[Path, Path] = {}
    n_scorings = 0
    for argument in arguments:
        named, searched = _paths(argument, problems)
        searched = [path for path in searched if path.resolve() not in found]
        signals = [path for path in searched if not _holds_annotations_alone(path)]
        n_scorings += len(searched) - len(signals)
        for path in (*named, *signals):
            found.setdefault(path.resolve(), path)
        if not named and not signals:
            why = f": {problems[0]}" if problems else ""
            raise ArgumentError(
                f"{argument} names no recording, expected a file, a pattern, or a folder with "
                f"{', '.join(_SIGNALS)}{why}"
            )
    return FoundRecordings(distinct_names(list(found.values())), [*map(str, problems)], n_scorings)


def distinct_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Return a name for each file: its own without suffix, and folders before it where needed.

    Parameters
    ----------
    paths : sequence of Path
        No two of them the same file.

    Examples
    --------
    >>> list(distinct_names([Path("a/night.edf"), Path("b/night.edf"), Path("b/other.edf")]))
    ['a-night', 'b-night', 'other']
    """
    parts = [[*path.absolute().parts[1:-1], _stem(path)] for path in paths]
    used = [1] * len(paths)
    while True:
        names = ["-".join(part[-n:]) for part, n in zip(parts, used, strict=True)]
        folded = [name.casefold() for name in names]
        times = Counter(folded)
        again = [
            place
            for place, name in enumerate(folded)
            if times[name] > 1 and used[place] < len(parts[place])
        ]
        if not again:
            break
        for place in again:
            used[place] += 1
    for place, path in enumerate(paths):  # night.edf and night.bdf in one folder
        if times[folded[place]] > 1:
            names[place] = path.name
    return dict(zip(names, paths, strict=True))


def _paths(argument: str, problems: list[Problem]) -> tuple[list[Path], list[Path]]:
    """Return the files that an argument names, and those that a search finds in it."""
    if os.path.isdir(argument):
        inside = below(Path(argument), problems)
        return [], [path for path in inside if _is_signal(path) and os.path.isfile(path)]
    if os.path.lexists(argument) or not glob.has_magic(argument):
        return ([Path(argument)] if os.path.lexists(argument) else []), []
    matches = sorted(glob.glob(argument, recursive=True))
    return [], [Path(match) for match in matches if os.path.isfile(match)]


def _is_signal(path: Path) -> bool:
    return path.name.lower().endswith(_SIGNALS)


def _holds_annotations_alone(path: Path) -> bool:
    """Tell a scoring in EDF+ from a signal; what cannot be read will say so when it is staged."""
    if path.suffix.lower() not in _EDFS:
        return False
    try:
        return not read_header(path).channels
    except RecordingError:
        return False


def _stem(path: Path) -> str:
    name = path.name
    return name[: -len(".fif.gz")] if name.lower().endswith(".fif.gz") else path.stem
