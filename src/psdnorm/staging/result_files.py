"""The files that staging leaves: written, read back, found."""

import glob
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import psdnorm
from psdnorm.cohorts import Problem, below
from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import ArgumentError, PsdnormError, RecordingError
from psdnorm.io import epochs_as_bouts, read_header, write_annotations, write_stages
from psdnorm.runtime import written
from psdnorm.staging.sleep_statistics import (
    Agreement,
    SleepStatistics,
    as_probabilities,
    as_stages,
    confidence_of,
    name_of,
    plain,
)

MISSING = "n/a"
COLUMNS = ("onset", "duration", "stage", *(f"p_{name}" for name in STAGES), "confidence")
# the texts that EDF+ standardises, which MNE and EDFbrowser know; AASM's N1 is its 1
_EDF_NAMES = ("W", "1", "2", "3", "R")
# an EDF header has two digits for the year
_EDF_YEARS = range(1985, 2085)


def write_tsv(path: str | Path, stages: ArrayLike, probabilities: ArrayLike) -> None:
    """Write a hypnogram as BIDS events, one row per 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored, which is written as n/a.
    probabilities : array of float, (E, 5)
        Written with six decimals; n/a where NaN. ``confidence`` is that of the row's stage.
    """
    night = as_stages(stages)
    known = as_probabilities(probabilities, len(night))
    confidence = confidence_of(night, known)
    lines = ["\t".join(COLUMNS)]
    for epoch, stage in enumerate(night):
        numbers = [_number(value) for value in (*known[epoch], confidence[epoch])]
        row = (str(EPOCH_S * epoch), str(EPOCH_S), name_of(stage, MISSING), *numbers)
        lines.append("\t".join(row))
    _write_lines(path, lines)


def write_edf_annotations(
    path: str | Path,
    stages: ArrayLike,
    start: datetime | None = None,
    *,
    notice: str | None = None,
) -> None:
    """Write a hypnogram as an EDF+ file of annotations alone, one per 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
        Written as ``Sleep stage W``, ``1``, ``2``, ``3``, ``R`` and ``?``.
    start : datetime, optional
        When the recording starts; 1 January 1985, midnight, stands for an unknown one.
    notice : str, optional
        A line for whoever reads the file: an annotation at 0 s of no length.
    """
    first = [] if notice is None else [(0.0, 0.0, notice)]
    epochs = epochs_as_bouts(as_stages(stages).tolist())
    bouts = [(b.onset_s, b.duration_s, _edf_text(b.stage)) for b in epochs]
    annotate(path, first + bouts, start)


def edf_start(start: datetime | None) -> datetime | None:
    """Return a start that EDF+ can hold; None for one that it cannot, as of anonymised files."""
    return start if start is not None and start.year in _EDF_YEARS else None


def annotate(
    path: str | Path, annotations: list[tuple[float, float, str]], start: datetime | None
) -> None:
    """Write annotations (onset, duration in seconds, text) as EDF+, whole or not at all."""
    if start is not None and start.year not in _EDF_YEARS:
        raise ArgumentError(
            f"start is in {start.year}, expected {_EDF_YEARS[0]} to {_EDF_YEARS[-1]}, which EDF+ "
            "can hold"
        )
    with written(Path(path)) as file:
        write_annotations(file.name, annotations, start)


def write_text(path: str | Path, stages: ArrayLike) -> None:
    """Write a hypnogram as text, one of W, N1, N2, N3, REM and ? per line and 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
    """
    night = as_stages(stages).tolist()
    with written(Path(path)) as file:
        write_stages(file.name, night, "text")


def write_json(
    path: str | Path,
    statistics: SleepStatistics,
    *,
    model: Mapping[str, Any] | None = None,
    agreement: Agreement | None = None,
    notice: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write what a night amounts to: statistics, what they were made with, agreement.

    Parameters
    ----------
    path : str or Path
    statistics : SleepStatistics
        Its ``lights`` says what lights off and on were taken from.
    model : mapping, optional
        What tells the network: name, recipe, hash.
    agreement : Agreement, optional
        With a human scoring.
    notice : str, optional
        A line for whoever reads the file, which comes first in it.
    more : mapping, optional
        Further sections by name.

    Raises
    ------
    ArgumentError
        If something in it cannot be JSON, or ``more`` has a section that is there already.
    """
    document: dict[str, Any] = {} if notice is None else {"notice": notice}
    document["statistics"] = statistics.to_dict()
    document["model"] = None if model is None else dict(model)
    if agreement is not None:
        document["agreement"] = agreement.to_dict()
    document["versions"] = {
        "psdnorm": psdnorm.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    for name, section in (more or {}).items():
        if name in document:
            raise ArgumentError(f"more has the section {name!r}, which the summary has already")
        document[name] = section
    try:
        text = json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written as JSON: {error}") from error
    _write_lines(path, [text])


def _edf_text(stage: int) -> str:
    return f"Sleep stage {_EDF_NAMES[stage] if stage >= 0 else '?'}"


def _number(value: np.float64) -> str:
    return MISSING if np.isnan(value) else f"{value:.6f}"


def _write_lines(path: str | Path, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    with written(Path(path)) as file:
        file.write(content)


_STAGES = {name: stage for stage, name in enumerate(STAGES)} | {MISSING: UNSCORED}


def read_tsv(path: str | Path) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Read what :func:`~psdnorm.staging.write_tsv` wrote.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    stages : ndarray of int8, (E,)
    probabilities : ndarray of float64, (E, 5)
        To six decimals; NaN where n/a.

    Raises
    ------
    RecordingError
        If it cannot be read, is another table, or has an epoch missing or damaged. A scoring
        without probabilities is read by :func:`psdnorm.io.read_stages`.
    """
    rows = [line.split("\t") for line in _text(path).splitlines()]
    if not rows or tuple(rows[0]) != COLUMNS:
        found = ", ".join(rows[0]) if rows else "none"
        raise RecordingError(
            f"{path} has the columns {found[:100]!r}, expected {', '.join(COLUMNS)}"
        )
    stages = np.empty(len(rows) - 1, np.int8)
    probabilities = np.empty((len(rows) - 1, len(STAGES)))
    for epoch, row in enumerate(rows[1:]):
        line = f"{path} has in line {epoch + 2}"
        if len(row) != len(COLUMNS):
            raise RecordingError(f"{line} {len(row)} columns, expected {len(COLUMNS)}")
        onset_s, duration_s = _value(row[0], line), _value(row[1], line)
        if (onset_s, duration_s) != (EPOCH_S * epoch, EPOCH_S):
            raise RecordingError(
                f"{line} the onset {row[0]} and the duration {row[1]}, expected {EPOCH_S * epoch} "
                f"and {EPOCH_S}, as epochs follow each other"
            )
        if row[2] not in _STAGES:
            raise RecordingError(
                f"{line} {row[2][:50]!r} as a stage, expected one of {', '.join(_STAGES)}"
            )
        stages[epoch] = _STAGES[row[2]]
        probabilities[epoch] = [_value(cell, line) for cell in row[3:-1]]
    try:
        return stages, as_probabilities(probabilities)
    except PsdnormError as error:
        raise RecordingError(f"{path}: {error}") from error


def _value(cell: str, line: str) -> float:
    if cell == MISSING:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        raise RecordingError(f"{line} {cell[:50]!r}, expected a number or {MISSING}") from None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise RecordingError(f"{path} is no text, expected a table") from None


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
