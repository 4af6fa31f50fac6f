"""Write all files of a staged night, and reopen them."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import MissingExtraError, RecordingError, StoreError
from psdnorm.runtime import check_writable, remove_leftovers
from psdnorm.staging.result import StagedNight
from psdnorm.staging.result_files import edf_start, read_tsv, write_json, write_text
from psdnorm.staging.shift import ShiftReport
from psdnorm.staging.sleep_statistics import (
    Agreement,
    SleepStatistics,
    given_lights,
    plain,
    sleep_statistics,
)

SUMMARY = ".json"
# an EDF beside a signal of the same name would look like the signal
FILES = (".tsv", "-hypnogram.edf", ".txt", ".html", ".png")
_KIND = "psdnorm staging"


def write_night(
    folder: str | os.PathLike[str],
    night: StagedNight,
    name: str | None = None,
    *,
    agreement: Agreement | None = None,
    marks: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a night as table, EDF+ annotations, text, page, picture and summary.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    night : StagedNight
    name : str, optional
        What the files are called: ``NAME.json``, ``NAME.tsv``, ``NAME-hypnogram.edf``,
        ``NAME.txt``, ``NAME.html`` and ``NAME.png``; the recording's name without its suffix.
    agreement : Agreement, optional
        With a human scoring, for the summary and the page.
    marks : mapping of str to str, optional
        Hashes by which the recording and the way it was staged are known again.

    Returns
    -------
    list of Path
        The summary first. Page and picture are missing where matplotlib is, and the summary's
        notes say so.

    Raises
    ------
    StoreError
        If a file cannot be written, or would take the place of one that is not a staging's.
    """
    place = Path(folder)
    stem = Path(night.source).stem if name is None else name
    marks = dict(marks or {})
    open_folder(place)
    check_free(place, stem, night.source, marks.get("recording"))
    summary = place / f"{stem}{SUMMARY}"
    _write_summary(summary, night, agreement, marks, finished=False)
    paths = {ending: place / f"{stem}{ending}" for ending in FILES}
    night.to_tsv(paths[".tsv"])
    night.to_edf(paths["-hypnogram.edf"])
    write_text(paths[".txt"], night.hypnogram)
    undrawn = _draw(paths[".html"], paths[".png"], night, agreement)
    if undrawn:
        night = dataclasses.replace(night, notes=(*night.notes, undrawn))
    _write_summary(summary, night, agreement, marks, finished=True)
    return [summary, *(path for path in paths.values() if path.exists())]


def read_summary(folder: str | os.PathLike[str], name: str) -> dict[str, Any] | None:
    """Return the summary of a night that was staged before; None where there is none.

    Parameters
    ----------
    folder : path
    name : str
        What its files are called.
    """
    try:
        document = json.loads(Path(folder, f"{name}{SUMMARY}").read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("kind") == _KIND else None


def is_finished(folder: str | os.PathLike[str], name: str, marks: Mapping[str, str]) -> bool:
    """Tell whether a night was staged before from the same recording in the same way.

    Parameters
    ----------
    folder : path
    name : str
    marks : mapping of str to str
        As in :func:`write_night`.
    """
    known = read_summary(folder, name)
    if known is None or not known.get("finished") or known.get("marks") != dict(marks):
        return False
    return all(Path(folder, f"{name}{ending}").exists() for ending in known.get("files", FILES))


def check_free(folder: Path, name: str, source: str, recording: str | None) -> None:
    """Refuse to write where files are that no staging of the same recording wrote.

    Parameters
    ----------
    folder : Path
    name, source : str
        What the files are called, and the recording.
    recording : str or None
        Its hash, where it is known.
    """
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise StoreError(f"{folder} is no folder, expected one for what is written (-o)")
    taken = [path for e in (SUMMARY, *FILES) if os.path.lexists(path := folder / f"{name}{e}")]
    if not taken:
        return
    known = read_summary(folder, name)
    if known is None:
        raise StoreError(
            f"{taken[0]} is there already and was not written by psdnorm stage: expected another "
            "folder for what it writes (-o)"
        )
    before = (known.get("marks") or {}).get("recording")
    another = None not in (before, recording) and before != recording
    if another or known.get("source") != source:
        raise StoreError(
            f"{taken[0]} is the staging of another recording, {known.get('source')!r}: "
            "expected another folder for what is written (-o)"
        )


def check_place(folder: Path) -> None:
    """Refuse a folder that could not be written to, or not be made; nothing is made yet.

    Parameters
    ----------
    folder : Path
    """
    place = folder.absolute()
    check_writable(next(each for each in (place, *place.parents) if each.is_dir()))


def open_folder(folder: Path) -> None:
    """Make the folder of outputs; refuse one that cannot be written to, before what takes long.

    What a killed process left half written in it is removed.

    Parameters
    ----------
    folder : Path
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror or error}") from error
    check_writable(folder)
    remove_leftovers(folder)


def _draw(page: Path, picture: Path, night: StagedNight, agreement: Agreement | None) -> str:
    """Write page and picture; say what is missing, "" if nothing."""
    missing = []
    for path, write in ((page, _write_page), (picture, _write_picture)):
        try:
            write(path, night, agreement)
        except MissingExtraError as error:
            path.unlink(missing_ok=True)  # of an older staging, which this one replaces
            missing.append(f"{path.name} was not written: {error}")
    return "; ".join(missing)


def _write_page(path: Path, night: StagedNight, agreement: Agreement | None) -> None:
    from psdnorm.staging.page import write_page

    write_page(path, night, agreement)


def _write_picture(path: Path, night: StagedNight, agreement: Agreement | None) -> None:
    from psdnorm.staging.hypnogram_figures import write_png

    write_png(path, night)


def _write_summary(
    path: Path,
    night: StagedNight,
    agreement: Agreement | None,
    marks: Mapping[str, str],
    finished: bool,
) -> None:
    names = [ending for ending in FILES if (path.parent / f"{path.stem}{ending}").exists()]
    more: dict[str, Any] = {
        "kind": _KIND,
        "finished": finished,
        "files": names if finished else [],
        "marks": dict(marks),
        "source": night.source,
        "start": None if night.start is None else night.start.isoformat(),
        "epochs": len(night.hypnogram),
        "mean_confidence": _mean(night.confidence),
        "channels": [list(pair) for pair in night.pairs],
        "mean_disagreement": _mean(night.disagreement),
        "shift": _shift(night.shift),
        "notes": list(night.notes),
    }
    write_json(
        path,
        night.statistics,
        model=night.model,
        agreement=agreement,
        notice=night.notice,
        more=more,
    )


def _shift(report: ShiftReport) -> dict[str, Any]:
    return plain(
        {
            "verdict": report.verdict,
            "reasons": report.reasons,
            "remarks": report.remarks,
            "channels": report.channels,
            "distances": [
                {name: _finite(value) for name, value in dataclasses.asdict(distance).items()}
                for distance in report.distances
            ],
        }
    )


def _finite(value: str | float) -> str | float | None:
    """Return a value as JSON can hold it: a flat channel is infinitely far from all."""
    return value if isinstance(value, str) or math.isfinite(value) else None


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


TABLE = ".tsv"


@dataclass(frozen=True, eq=False)
class ReopenedNight:
    """What the files of a staged night say.

    Attributes
    ----------
    folder : Path
    name : str
        What its files are called, without their endings.
    stages : ndarray of int8, (E,)
    probabilities : ndarray of float64, (E, 5)
    start : datetime or None
        When the recording starts, where the summary knows it and EDF+ can hold it.
    lights_off, lights_on : float or None
        In seconds from the start, as far as they were given.
    notice : str or None
        What must stand on every output.
    has_summary : bool
        Whether ``NAME.json`` was there; without it start, lights and notice are None.
    """

    folder: Path
    name: str
    stages: NDArray[np.int8]
    probabilities: NDArray[np.float64]
    start: datetime | None
    lights_off: float | None
    lights_on: float | None
    notice: str | None
    has_summary: bool

    def statistics(self, stages: NDArray[np.int8]) -> SleepStatistics:
        """Return the statistics of stages, (E,), under the lights that were given."""
        return sleep_statistics(stages, lights_off=self.lights_off, lights_on=self.lights_on)


def reopen(path: str | Path) -> ReopenedNight:
    """Open the table of a staged night, and the summary beside it.

    Parameters
    ----------
    path : str or Path
        ``NAME.tsv``, or the same without its ending.

    Raises
    ------
    RecordingError
        If there is no such table, it is damaged, or the summary is of another staging.
    """
    given = Path(path)
    table = given if given.suffix == TABLE else given.with_name(f"{given.name}{TABLE}")
    if not table.is_file():
        raise RecordingError(
            f"{given} is no staged night: expected NAME{TABLE}, as psdnorm stage writes it, or the "
            "same without its ending"
        )
    stages, probabilities = read_tsv(table)
    name = table.name.removesuffix(TABLE)
    summary = read_summary(table.parent, name)
    if summary is not None and summary.get("epochs") != len(stages):
        raise RecordingError(
            f"{table} has {len(stages)} epochs and {name}{SUMMARY} beside it "
            f"{summary.get('epochs')}, expected files of one staging"
        )
    known: dict[str, Any] = summary or {}
    off_s, on_s = given_lights(known.get("statistics") or {})
    return ReopenedNight(
        folder=table.parent,
        name=name,
        stages=stages,
        probabilities=probabilities,
        start=_start(known.get("start")),
        lights_off=off_s,
        lights_on=on_s,
        notice=known.get("notice"),
        has_summary=summary is not None,
    )


def _start(text: Any) -> datetime | None:
    try:
        start = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return edf_start(start.replace(tzinfo=None))  # EDF+ knows no time zones
