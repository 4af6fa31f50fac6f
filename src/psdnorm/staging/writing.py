"""All files of a staged night, in a folder.

The summary, ``NAME.json``, is written twice: first to say whose files these are and that they are
not all there, last when they are. So a run that was interrupted is told from one that was not, and
a file that somebody else put there, such as a human scoring of that name, is never replaced.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from psdnorm.errors import MissingExtraError, StoreError
from psdnorm.runtime.files import check_writable, remove_leftovers
from psdnorm.staging.agreement import Agreement
from psdnorm.staging.plain import plain
from psdnorm.staging.result import StagedNight
from psdnorm.staging.result_files import write_json, write_text
from psdnorm.staging.shift import ShiftReport

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
