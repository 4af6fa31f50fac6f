"""The files of staged nights: found, written, read back, and reviewed by a person."""

import csv
import dataclasses
import glob
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

import psdnorm
from psdnorm import runtime
from psdnorm.cohorts import Problem, below
from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import (
    ArgumentError,
    MissingExtraError,
    PsdnormError,
    RecordingError,
    StoreError,
    os_errors_as,
)
from psdnorm.io import (
    EDF_STAGE_NAMES,
    epochs_as_bouts,
    holds_only_annotations,
    place,
    read_bouts,
    write_annotations,
    write_stages,
)
from psdnorm.runtime import check_writable, remove_leftovers, written
from psdnorm.staging.night_statistics import (
    Agreement,
    SleepStatistics,
    checked_probabilities,
    checked_stages,
    confidence_of,
    given_lights,
    name_of,
    plain,
    sleep_statistics,
)

if TYPE_CHECKING:
    from psdnorm.staging.stager import StagedNight

TABLE, SUMMARY = ".tsv", ".json"
# an EDF beside a signal of the same name would look like the signal
FILES = (TABLE, "-hypnogram.edf", ".txt", ".html", ".png")
MISSING = "n/a"
_KIND = "psdnorm staging"
_OF_SHIFT = ("verdict", "reasons", "remarks", "channels")
_COLUMNS = ("onset", "duration", "stage", *(f"p_{name}" for name in STAGES), "confidence")
_EDF_YEARS = range(1985, 2085)  # an EDF header has two digits for the year
_SIGNALS = (".edf", ".bdf", ".vhdr", ".fif", ".fif.gz")
_EDFS = (".edf", ".bdf")


class FoundRecordings(NamedTuple):
    """Recordings by the names of their outputs, unreadable folders, and scorings left out."""

    names: dict[str, Path]
    problems: list[str]
    n_scorings: int


def find_recordings(arguments: Sequence[str]) -> FoundRecordings:
    """Find recordings by files, folders (searched recursively) and patterns (``in/*.edf``)."""
    problems: list[Problem] = []
    found: dict[Path, Path] = {}
    n_scorings = 0
    for argument in arguments:
        named, searched = _paths(argument, problems)
        searched = [path for path in searched if path.resolve() not in found]
        signals = [path for path in searched if not _is_scoring(path)]
        n_scorings += len(searched) - len(signals)
        for path in (*named, *signals):
            found.setdefault(path.resolve(), path)
        if not named and not signals:
            why = f": {problems[0]}" if problems else ""
            raise ArgumentError(
                f"{argument} matches no recording, expected a file, a pattern, or a folder with "
                f"{', '.join(_SIGNALS)}{why}"
            )
    return FoundRecordings(distinct_names(list(found.values())), [*map(str, problems)], n_scorings)


def distinct_names(paths: Sequence[Path]) -> dict[str, Path]:
    """Name files by their stems, with folders before them where needed.

    >>> list(distinct_names([Path("a/night.edf"), Path("b/night.edf"), Path("b/other.edf")]))
    ['a-night', 'b-night', 'other']
    """
    parts = [[*path.absolute().parts[1:-1], _stem(path)] for path in paths]
    used = [1] * len(paths)
    while True:
        names = ["-".join(part[-n:]) for part, n in zip(parts, used, strict=True)]
        folded = [name.casefold() for name in names]  # some file systems ignore case
        times = Counter(folded)
        twice = [index for index, name in enumerate(folded) if times[name] > 1]
        ambiguous = [index for index in twice if used[index] < len(parts[index])]
        if not ambiguous:
            break
        for index in ambiguous:
            used[index] += 1
    for index in twice:  # night.edf and night.bdf in one folder
        names[index] = paths[index].name
    return dict(zip(names, paths, strict=True))


def _paths(argument: str, problems: list[Problem]) -> tuple[list[Path], list[Path]]:
    """Return the files that an argument names, and those that a search finds in it."""
    if os.path.isdir(argument):
        inside = below(Path(argument), problems)
        return [], [p for p in inside if p.name.lower().endswith(_SIGNALS) and p.is_file()]
    if os.path.lexists(argument) or not glob.has_magic(argument):
        return ([Path(argument)] if os.path.lexists(argument) else []), []
    matches = sorted(glob.glob(argument, recursive=True))
    return [], [Path(match) for match in matches if os.path.isfile(match)]


def _is_scoring(path: Path) -> bool:
    """Whether an EDF holds only annotations; an unreadable one raises when it is staged."""
    return path.suffix.lower() in _EDFS and holds_only_annotations(path)


def _stem(path: Path) -> str:
    return path.with_suffix("").stem if path.name.lower().endswith(".fif.gz") else path.stem


def write_table(path: Path, rows: list[Sequence[str]]) -> None:
    """Write a tab-separated table atomically."""
    text = pd.DataFrame(rows).to_csv(sep="\t", header=False, index=False, lineterminator="\n")
    with written(path) as file:
        file.write(text.encode())


def write_tsv(path: str | Path, stages: ArrayLike, probabilities: ArrayLike) -> None:
    """Write a hypnogram as BIDS events, one row per 30 s epoch.

    Parameters
    ----------
    stages : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored, which is written as n/a.
    probabilities : array of float, (E, 5)
        Written with six decimals; n/a where NaN. ``confidence`` is that of the row's stage.
    """
    night = checked_stages(stages)
    known = checked_probabilities(probabilities, len(night))
    confidence = confidence_of(night, known)
    rows: list[Sequence[str]] = [_COLUMNS]
    for epoch, stage in enumerate(night):
        cells = [MISSING if np.isnan(x) else f"{x:.6f}" for x in (*known[epoch], confidence[epoch])]
        rows.append([str(EPOCH_S * epoch), str(EPOCH_S), name_of(stage, MISSING), *cells])
    write_table(Path(path), rows)


_STAGES = {name: stage for stage, name in enumerate(STAGES)} | {MISSING: UNSCORED}


def read_tsv(path: str | Path) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Read what :func:`~psdnorm.staging.write_tsv` wrote: stages, (E,), and probabilities, (E, 5).

    Raises RecordingError for other tables and where an epoch is missing or damaged;
    :func:`psdnorm.io.read_stages` reads scorings without probabilities.
    """
    try:
        with os_errors_as(RecordingError, path, "cannot be read"):
            text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordingError(f"{path} is not a text file, expected a table") from None
    rows = list(csv.reader(text.splitlines(), "excel-tab"))
    if not rows or tuple(rows[0]) != _COLUMNS:
        found = ", ".join(rows[0]) if rows else "none"
        raise RecordingError(
            f"{path} has the columns {found[:100]!r}, expected {', '.join(_COLUMNS)}"
        )
    stages = np.empty(len(rows) - 1, np.int8)
    probabilities = np.empty((len(rows) - 1, len(STAGES)))
    for epoch, row in enumerate(rows[1:]):
        line = f"{path} has in line {epoch + 2}"
        if len(row) != len(_COLUMNS):
            raise RecordingError(f"{line} {len(row)} columns, expected {len(_COLUMNS)}")
        onset_s, duration_s = _number(row[0], line), _number(row[1], line)
        if (onset_s, duration_s) != (EPOCH_S * epoch, EPOCH_S):
            raise RecordingError(
                f"{line} the onset {row[0]} and the duration {row[1]}, expected {EPOCH_S * epoch} "
                f"and {EPOCH_S}"
            )
        if row[2] not in _STAGES:
            raise RecordingError(
                f"{line} {row[2][:50]!r} as a stage, expected one of {', '.join(_STAGES)}"
            )
        stages[epoch] = _STAGES[row[2]]
        probabilities[epoch] = [_number(cell, line) for cell in row[3:-1]]
    try:
        return stages, checked_probabilities(probabilities)
    except PsdnormError as error:
        raise RecordingError(f"{path}: {error}") from error


def _number(cell: str, line: str) -> float:
    if cell == MISSING:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        raise RecordingError(f"{line} {cell[:50]!r}, expected a number or {MISSING}") from None


def write_edf_annotations(
    path: str | Path, stages: ArrayLike, start: datetime | None = None, *, notice: str | None = None
) -> None:
    """Write a hypnogram as an annotations-only EDF+ file, one annotation per 30 s epoch.

    Parameters
    ----------
    stages : array of int, (E,)
        Written as ``Sleep stage W``, ``1``, ``2``, ``3``, ``R`` and ``?``.
    start : datetime, optional
        Of the recording; if unknown, 1 January 1985, midnight, is written.
    notice : str, optional
        An annotation at 0 s without a duration, for readers of the file.
    """
    bouts = epochs_as_bouts(checked_stages(stages).tolist())
    named = [(b.onset_s, b.duration_s, f"Sleep stage {EDF_STAGE_NAMES[b.stage]}") for b in bouts]
    _annotate(path, named, start, notice)


def edf_start(start: datetime | None) -> datetime | None:
    """Return a start if EDF+ can hold it, else None: anonymised files may have others."""
    return start if start is not None and start.year in _EDF_YEARS else None


def _annotate(
    path: str | Path,
    annotations: list[tuple[float, float, str]],
    start: datetime | None,
    notice: str | None,
) -> None:
    """Write annotations (onset and duration in seconds, text) as EDF+, atomically."""
    if start is not None and start.year not in _EDF_YEARS:
        raise ArgumentError(
            f"start is in {start.year}, expected {_EDF_YEARS[0]} to {_EDF_YEARS[-1]}, which EDF+ "
            "can hold"
        )
    first = [] if notice is None else [(0.0, 0.0, notice)]
    with written(Path(path)) as file:
        write_annotations(file.name, first + annotations, start)


def write_text(path: str | Path, stages: ArrayLike) -> None:
    """Write a hypnogram as text, one of W, N1, N2, N3, REM and ? per line and 30 s epoch."""
    with written(Path(path)) as file:
        write_stages(file.name, checked_stages(stages).tolist(), "text")


def write_json(
    path: str | Path,
    statistics: SleepStatistics,
    *,
    model: Mapping[str, Any] | None = None,
    agreement: Agreement | None = None,
    notice: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write the summary of a night: statistics, model, versions, agreement.

    ``notice`` is the first line of the file; ``more`` holds further sections by name. Raises
    ArgumentError if something in it cannot be JSON, or ``more`` repeats a section.
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
    for name in document.keys() & (more or {}).keys():
        raise ArgumentError(f"more has the section {name!r}, which the summary has already")
    try:
        text = runtime.json_text(plain(document | dict(more or {})))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written as JSON: {error}") from error
    with written(Path(path)) as file:
        file.write(text.encode())


def write_night(
    folder: str | os.PathLike[str],
    night: "StagedNight",
    name: str | None = None,
    *,
    agreement: Agreement | None = None,
    marks: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a night as table, EDF+ annotations, text, page, picture and summary.

    Parameters
    ----------
    folder : path
        Created if it does not exist. Files that psdnorm did not write are not replaced: StoreError.
    name : str, optional
        The files are ``NAME.json``, ``NAME.tsv``, ``NAME-hypnogram.edf``, ``NAME.txt``,
        ``NAME.html`` and ``NAME.png``; by default the name of the recording without its suffix.
    agreement : Agreement, optional
        With a human scoring, for the summary and the page.
    marks : mapping of str to str, optional
        Hashes of the recording and of how it was staged, to recognise the night later.

    Returns
    -------
    list of Path
        The summary first. Without matplotlib there is no page and no picture, and the notes of the
        summary say so.
    """
    parent = Path(folder)
    stem = Path(night.source).stem if name is None else name
    marks = dict(marks or {})
    with os_errors_as(StoreError, parent, "cannot be made"):
        parent.mkdir(parents=True, exist_ok=True)
    check_writable(parent)
    remove_leftovers(parent)
    check_free(parent, stem, night.source, marks.get("recording"))
    summary = parent / f"{stem}{SUMMARY}"
    paths = {ending: parent / f"{stem}{ending}" for ending in FILES}
    _write_summary(summary, night, agreement, marks, None)
    night.to_tsv(paths[TABLE])
    night.to_edf(paths["-hypnogram.edf"])
    write_text(paths[".txt"], night.hypnogram)
    missing = _draw(paths, night, agreement)
    if missing:
        night = dataclasses.replace(night, notes=(*night.notes, missing))
    endings = [ending for ending, path in paths.items() if path.exists()]
    _write_summary(summary, night, agreement, marks, endings)
    return [summary, *(paths[ending] for ending in endings)]


def _draw(paths: Mapping[str, Path], night: "StagedNight", agreement: Agreement | None) -> str:
    """Write page and picture; return what is missing, "" if nothing."""
    missing = []
    for path in (paths[".html"], paths[".png"]):
        try:
            from psdnorm.staging import night_page

            if path.suffix == ".html":
                night_page.write_page(path, night, agreement)
            else:
                night_page.write_png(path, night)
        except MissingExtraError as error:
            path.unlink(missing_ok=True)  # from a former staging, which this one replaces
            missing.append(f"{path.name} was not written: {error}")
    return "; ".join(missing)


def _write_summary(
    path: Path,
    night: "StagedNight",
    agreement: Agreement | None,
    marks: Mapping[str, str],
    endings: Sequence[str] | None,  # of the other files; None until they are finished
) -> None:
    shift = night.shift
    # infinite in a flat channel
    distances = [
        {name: None if x in (math.inf, -math.inf) else x for name, x in vars(distance).items()}
        for distance in shift.distances
    ]
    more = {
        "kind": _KIND,
        "finished": endings is not None,
        "files": endings or [],
        "marks": marks,
        "source": night.source,
        "start": None if night.start is None else night.start.isoformat(),
        "epochs": len(night.hypnogram),
        "mean_confidence": _mean(night.confidence),
        "channels": night.pairs,
        "mean_disagreement": _mean(night.disagreement),
        "shift": {name: getattr(shift, name) for name in _OF_SHIFT} | {"distances": distances},
        "notes": night.notes,
    }
    about: dict[str, Any] = {"model": night.model, "agreement": agreement, "notice": night.notice}
    write_json(path, night.statistics, **about, more=more)


def _mean(values: NDArray[np.floating]) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def read_summary(folder: str | os.PathLike[str], name: str) -> dict[str, Any] | None:
    """Return the summary of a night that was staged before, None if there is none."""
    try:
        document = runtime.read_json(Path(folder, f"{name}{SUMMARY}"))
    except ArgumentError:
        return None
    return document if isinstance(document, dict) and document.get("kind") == _KIND else None


def is_finished(folder: str | os.PathLike[str], name: str, marks: Mapping[str, str]) -> bool:
    """Whether the same recording was staged before in the same way, with all files."""
    known = read_summary(folder, name)
    if known is None or not known.get("finished") or known.get("marks") != dict(marks):
        return False
    return all(Path(folder, f"{name}{ending}").exists() for ending in known.get("files", FILES))


def check_free(folder: Path, name: str, source: str, recording: str | None) -> None:
    """Raise if existing files were not staged from the same ``recording``, a hash."""
    taken = [path for e in (SUMMARY, *FILES) if os.path.lexists(path := folder / f"{name}{e}")]
    if not taken:
        return
    known = read_summary(folder, name)
    if known is None:
        raise StoreError(
            f"{taken[0]} exists and was not written by psdnorm stage: expected another folder (-o)"
        )
    before = (known.get("marks") or {}).get("recording")
    is_other = None not in (before, recording) and before != recording
    if is_other or known.get("source") != source:
        raise StoreError(
            f"{taken[0]} is the staging of another recording, {known.get('source')!r}: expected "
            "another folder (-o)"
        )


def check_place(folder: Path) -> None:
    """Raise if a folder cannot be created or written to; does not create it."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise StoreError(f"{folder} is not a folder, expected one for the outputs (-o)")
    check_writable(next(each for each in (folder, *folder.absolute().parents) if each.is_dir()))


@dataclass(frozen=True, eq=False)
class ReopenedNight:
    """A staged night, read back from its files."""

    folder: Path
    name: str
    stages: NDArray[np.int8]
    probabilities: NDArray[np.float64]
    start: datetime | None  # None also if EDF+ cannot hold it
    lights_s: tuple[float | None, float | None]  # off and on, None if not given
    notice: str | None
    has_summary: bool  # without NAME.json start, lights and notice are None

    def statistics(self, stages: NDArray[np.int8]) -> SleepStatistics:
        """Return the statistics of stages, (E,), with the lights that were given."""
        return sleep_statistics(stages, lights_off=self.lights_s[0], lights_on=self.lights_s[1])


def reopen(path: str | Path) -> ReopenedNight:
    """Open ``NAME.tsv``, named with or without its extension, and the summary beside it."""
    given = Path(path)
    table = given if given.suffix == TABLE else given.with_name(f"{given.name}{TABLE}")
    if not table.is_file():
        raise RecordingError(
            f"{given} is not a staged night: expected NAME{TABLE} from psdnorm stage, or the same "
            "without its ending"
        )
    stages, probabilities = read_tsv(table)
    name = table.name.removesuffix(TABLE)
    summary = read_summary(table.parent, name)
    if summary is not None and summary.get("epochs") != len(stages):
        raise RecordingError(
            f"{table} has {len(stages)} epochs and {name}{SUMMARY} beside it "
            f"{summary.get('epochs')}, expected files of one staging"
        )
    known = summary or {}
    try:
        start = edf_start(datetime.fromisoformat(known.get("start", "")).replace(tzinfo=None))
    except (TypeError, ValueError):
        start = None
    lights_s = given_lights(known.get("statistics") or {})
    facts = (start, lights_s, known.get("notice"), summary is not None)
    return ReopenedNight(table.parent, name, stages, probabilities, *facts)


def least_confident(probabilities: ArrayLike, n: int) -> NDArray[np.intp]:
    """Return the ``n`` epochs with the least likely top stage, least confident first.

    Epochs that could not be staged (NaN) come first; all E are returned if there are fewer.

    >>> least_confident([[0.9, 0.1, 0, 0, 0], [0, 0.4, 0.3, 0.3, 0], [0, 0.2, 0.8, 0, 0]], 2)
    array([1, 2])
    """
    if n < 1:
        raise ArgumentError(f"n is {n}, expected at least one epoch")
    highest = checked_probabilities(probabilities).max(axis=1)  # (E,)
    return np.argsort(np.where(np.isnan(highest), -1.0, highest), kind="stable")[:n]


def write_review(
    path: str | Path,
    stages: ArrayLike,
    probabilities: ArrayLike,
    n: int = 50,
    start: datetime | None = None,
    *,
    notice: str | None = None,
) -> NDArray[np.intp]:
    """Write the least confident epochs as EDF+ annotations, for review in EDFbrowser.

    Each holds the stage and its probability as a question, ``N2? 0.41``: readers do not take it for
    a scoring until a person replaces it by a stage.

    Parameters are those of :func:`write_edf_annotations` and :func:`least_confident`; EDFbrowser
    aligns the annotations with a signal by ``start``. Returns the epochs written, by time.
    """
    night = checked_stages(stages)
    known = checked_probabilities(probabilities, len(night))
    confidence = confidence_of(night, known)
    epochs = np.sort(least_confident(known, n))
    questions = []
    for epoch in epochs.tolist():
        sure = "" if np.isnan(confidence[epoch]) else f" {confidence[epoch]:.2f}"
        name = name_of(night[epoch], "unscored")
        questions.append((EPOCH_S * epoch, float(EPOCH_S), f"{name}?{sure}"))
    _annotate(path, questions, start, notice)
    return epochs


class Change(NamedTuple):
    """An epoch, from 0, that was corrected; ``pandas.DataFrame`` takes a list of them."""

    epoch: int
    onset_s: int
    before: str  # W, N1, N2, N3, REM or unscored
    after: str


@dataclass(frozen=True, eq=False)
class Correction:
    """A scoring after a review: stages, (E,), epochs covered (changed or not), changes by time."""

    stages: NDArray[np.int8]
    n_covered: int
    changes: list[Change]


def read_corrected(
    path: str | Path, stages: ArrayLike, start: datetime | None = None
) -> Correction:
    """Read a corrected scoring, of a whole night or of the epochs in a review, and what changed.

    Raises RecordingError if it cannot be read, goes beyond the recording or scores no epoch.

    Parameters
    ----------
    path : str or Path
        In any format of :func:`psdnorm.io.read_stages`. Epochs that it does not mention keep their
        stage; those that it calls unscored become unscored.
    stages : array of int, (E,)
        Before the correction.
    start : datetime, optional
        Of the recording, as in :func:`psdnorm.io.read_stages`.
    """
    before = checked_stages(stages)
    bouts = read_bouts(path, start)
    found = place(bouts, EPOCH_S * len(before), path)
    middles_s = EPOCH_S * (np.arange(len(before)) + 0.5)  # (E,)
    covered = found != UNSCORED
    for bout in bouts:
        if bout.stage == UNSCORED:
            covered |= (bout.onset_s <= middles_s) & (middles_s < bout.onset_s + bout.duration_s)
    after = np.where(covered, found, before)
    names = [[name_of(each, "unscored") for each in stages] for stages in (before, after)]
    changes = [
        Change(epoch, EPOCH_S * epoch, names[0][epoch], names[1][epoch])
        for epoch in np.flatnonzero(before != after).tolist()
    ]
    return Correction(after, int(covered.sum()), changes)
