"""Simulated nights on disk, in the layouts in which the cohorts are downloaded."""

import contextlib
import functools
import json
import shutil
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import psdnorm
from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io.edf import read_header
from psdnorm.io.scoring import read_stages, write_stages
from psdnorm.lab.simulate.edf_writing import write_edf
from psdnorm.lab.simulate.hypnograms import EPOCH_S
from psdnorm.lab.simulate.layouts import labels_of, scoring_paths, signal_path, size_of, traces_of
from psdnorm.lab.simulate.making import make_nights
from psdnorm.lab.simulate.people_tables import people_tables
from psdnorm.lab.simulate.plan import PlannedNight, plan_nights
from psdnorm.runtime.files import remove_leftovers, written

MARK = "simulated.json"
_NOTE = "simulated by psdnorm: nobody slept these nights"


def bytes_missing(folder: str | Path, nights: Sequence[PlannedNight]) -> int:
    """Return the bytes of the signals that are not there yet; scorings are small beside them."""
    root = Path(folder)
    there = [root / night.cohort / signal_path(night) for night in nights]
    return sum(
        size_of(night) for night, path in zip(nights, there, strict=True) if not path.exists()
    )


def write_nights(
    folder: str | Path, nights: Sequence[PlannedNight], jobs: int = 1
) -> Generator[PlannedNight, None, None]:
    """Simulate nights and write them below a folder, each cohort in a folder of its own.

    Files that are there and whole are left as they are, so that a run that was ended can be
    started again, or another one can add subjects and visits.

    Parameters
    ----------
    folder : str or Path
        Made if it does not exist.
    nights : sequence of PlannedNight
        All of the same settings.
    jobs : int
        Processes at a time.

    Yields
    ------
    PlannedNight
        As each is done.

    Raises
    ------
    ArgumentError
        If a cohort's folder holds nights of other settings, or files that were not simulated.
    StoreError
        If a file cannot be written.
    """
    root = Path(folder).absolute()  # other processes may be started elsewhere
    by_cohort = {cohort: [n for n in nights if n.cohort == cohort] for cohort in _cohorts(nights)}
    # nothing is made before everything was looked at
    marks = {cohort: _mark(root / cohort, own) for cohort, own in by_cohort.items()}
    _check_room(root, bytes_missing(root, nights))
    for cohort, own in by_cohort.items():
        _open_cohort(root / cohort, marks[cohort], own[0])
    folders = {root / n.cohort / path.parent for n in nights for path in _paths(n)}
    for each in sorted(folders):
        _make(each)
        remove_leftovers(each)
    yield from make_nights(functools.partial(_write_night, root), nights, jobs)


def _cohorts(nights: Sequence[PlannedNight]) -> list[str]:
    return sorted({night.cohort for night in nights})


def _paths(night: PlannedNight) -> list[Path]:
    return [signal_path(night), *scoring_paths(night)]


def _write_night(folder: Path, night: PlannedNight) -> PlannedNight:
    root = folder / night.cohort
    duration_s = night.n_epochs * EPOCH_S
    signal = root / signal_path(night)
    scorings = {root / path: form for path, form in scoring_paths(night).items()}
    missing = [path for path in scorings if not _is_scoring(path, duration_s)]
    has_signal = _is_signal(signal, labels_of(night), duration_s)
    if has_signal and not missing:
        return night
    made = night.simulate()
    if not has_signal:
        write_edf(signal, traces_of(night, made), night.start)
    for path in missing:
        with written(path) as file:
            write_stages(file.name, made.stages.tolist(), scorings[path], night.start)
    return night


def _is_signal(path: Path, labels: tuple[str, ...], duration_s: float) -> bool:
    try:
        header = read_header(path)
    except RecordingError:
        return False
    return header.simulated and header.labels == labels and header.duration_s == duration_s


def _is_scoring(path: Path, duration_s: float) -> bool:
    try:
        return bool((read_stages(path, duration_s) >= 0).all())
    except RecordingError:
        return False


def _mark(root: Path, nights: list[PlannedNight]) -> dict[str, Any]:
    """Return what a cohort's folder will say of itself; refuse one of other settings."""
    settings = nights[0].settings
    mark: dict[str, Any] = {
        "note": _NOTE,
        "psdnorm": psdnorm.__version__,
        "seed": settings.seed,
        "shift": settings.shift,
        "hours": settings.hours,
    }
    before = _read_mark(root)
    for name, asked in mark.items():
        if before and before.get(name) != asked:
            raise ArgumentError(
                f"{root} has nights of {name} {before.get(name)!r:.50}, found {asked!r}: expected "
                "the same, or another folder"
            )
    # never fewer than there were: tables must not lose those that a run before this one made
    return mark | {
        "subjects": max(before.get("subjects", 0), *(night.index + 1 for night in nights)),
        "nights": max(before.get("nights", 0), *(night.night + 1 for night in nights)),
    }


def _read_mark(root: Path) -> dict[str, Any]:
    """Return what a folder says of itself; nothing if it is empty. Refuse one that is not ours."""
    path = root / MARK
    try:
        others = sorted(p.name for p in root.iterdir() if not p.name.startswith("."))
        mark = json.loads(path.read_text(encoding="utf-8")) if MARK in others else {}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ArgumentError(f"{root} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ArgumentError(f"{path} is no JSON: {error}") from error
    if others and MARK not in others:
        raise ArgumentError(
            f"{root} holds {others[0]!r:.80} and no {MARK}, expected an empty folder or simulated "
            "nights"
        )
    counts = [mark.get(count) for count in ("subjects", "nights")] if isinstance(mark, dict) else []
    if others and not (counts and all(isinstance(count, int) for count in counts)):
        raise ArgumentError(f"{path} was changed: it does not say how many nights there are")
    return mark


def _open_cohort(root: Path, mark: dict[str, Any], night: PlannedNight) -> None:
    """Make a cohort's folder, say in it what it is, and write its tables."""
    _make(root)
    remove_leftovers(root)
    _write_text(root / MARK, json.dumps(mark, indent=2) + "\n")
    everybody = plan_nights([night.cohort], mark["subjects"], mark["nights"], night.settings)
    for path, text in people_tables(everybody).items():
        _make((root / path).parent)
        remove_leftovers((root / path).parent)
        _write_text(root / path, text)


def _write_text(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):  # what cannot be read is written, or refused, below
        if path.read_bytes() == text.encode():
            return
    with written(path) as file:
        file.write(text.encode())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{folder} cannot be made: {error.strerror or error}") from error


def _check_room(folder: Path, n_bytes: int) -> None:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if n_bytes > free:
        raise ArgumentError(
            f"{folder} has room for {free} bytes, expected {n_bytes} for the nights"
        )
