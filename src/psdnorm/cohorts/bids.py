"""Datasets after BIDS, the Brain Imaging Data Structure."""

import csv
import os
from fnmatch import fnmatchcase
from pathlib import Path

from psdnorm.cohorts.file_layout import (
    Candidates,
    Found,
    NightFiles,
    Problem,
    check_root,
    children,
    duplicate,
    unscored,
)
from psdnorm.cohorts.people import Person, age_of, read_rows, sex_of
from psdnorm.errors import RecordingError
from psdnorm.io import fold

_SIGNALS = ("_eeg.edf", "_eeg.bdf", "_eeg.vhdr", "_eeg.set", "_eeg.fif")
_FACTS = {"age", "sex", "family", "family_id"}
_SCORINGS = ("_events.tsv", "_stages.tsv", "_hypnogram.tsv", "_annotations.tsv")


def find_bids(source: str, channels: Candidates, cohort: str = "bids") -> Found:
    """Find the nights of a BIDS dataset; see :func:`find_nights`.

    ``sub-*/[ses-*/]eeg/*_eeg.edf`` (or ``.bdf``, ``.vhdr``, ``.set``, ``.fif``) with
    ``*_events.tsv`` beside it, and ``participants.tsv``.

    Parameters
    ----------
    source : str
        The dataset's root.
    channels : mapping of str to tuple of str
    cohort : str
        What the cohort is called.
    """
    root = Path(source)
    check_root(root, "the root of a BIDS dataset")
    problems: list[Problem] = []
    people, notes = _participants(root)
    signals = _signals(root, problems)
    if not signals:
        raise RecordingError(
            f"{root} has no night, expected sub-01/eeg/sub-01_task-sleep_eeg.edf and the like"
        )
    nights: dict[tuple[str, str], NightFiles] = {}
    for path in signals:
        entities = _entities(path)
        if "sub" not in entities:
            problems.append(Problem(path, "does not say whose it is, expected sub-<label>_…"))
            continue
        key = subject, visit = entities.pop("sub"), _visit(entities)
        if key in nights:
            problems.append(duplicate(path, subject, visit, nights[key].signal))
            continue
        scoring = _scoring(path, problems)
        if scoring is None:
            problems.append(unscored(path, f"…{_SCORINGS[0]}"))
        person = people.get(fold(subject), Person())
        nights[key] = NightFiles(
            *(cohort, subject, visit, path, scoring, channels), **person._asdict()
        )
    return Found(list(nights.values()), problems, notes)


def _signals(root: Path, problems: list[Problem]) -> list[Path]:
    """Return sub-*/eeg/* and sub-*/ses-*/eeg/*; derivatives and sourcedata are not looked at."""
    found = []
    for subject in _folders(root, "sub-*", problems):
        for session in (subject, *_folders(subject, "ses-*", problems)):
            for eeg in _folders(session, "eeg", problems):
                found += [p for p in children(eeg, problems) if p.name.lower().endswith(_SIGNALS)]
    return found


def _folders(above: Path, pattern: str, problems: list[Problem]) -> list[Path]:
    inside = children(above, problems)
    return [path for path in inside if fnmatchcase(path.name, pattern) and os.path.isdir(path)]


def _entities(path: Path) -> dict[str, str]:
    """Return what a name says: sub-01_ses-2_eeg.edf is sub 01, ses 2."""
    pairs = (part.partition("-") for part in path.stem.split("_"))
    return {name: value for name, dash, value in pairs if dash and value}


def _visit(entities: dict[str, str]) -> str:
    """Return the session, and what else the name says; the task goes without saying if it is sleep.

    It depends on nothing but the name: a file that is added must rename no other night.
    """
    if fold(entities.get("task", "")) == "sleep":
        del entities["task"]
    session = entities.pop("ses", "")
    rest = [f"{name}-{value}" for name, value in entities.items()]
    return "_".join([session] * bool(session) + rest)


def _scoring(path: Path, problems: list[Problem]) -> Path | None:
    begin = path.stem.rpartition("_")[0]
    names = {fold(other.name): other for other in children(path.parent, problems)}
    found = (names.get(fold(begin + ending)) for ending in _SCORINGS)
    return next((other for other in found if other is not None), None)


def _participants(root: Path) -> tuple[dict[str, Person], list[str]]:
    path = root / "participants.tsv"
    try:
        rows = read_rows(path)
    except FileNotFoundError:
        return {}, []
    except (OSError, csv.Error) as error:
        return {}, [f"{path} was not read: {error}"]
    names = [fold(cell) for cell in rows[0]] if rows else []
    if "participant_id" not in names or not _FACTS & set(names):
        return {}, [
            f"{path} has the columns {', '.join(names) or 'none'}, so age, sex and family are left "
            "out: expected participant_id and one of age, sex and family"
        ]
    people = {}
    for row in rows[1:]:
        cells = dict(zip(names, row, strict=False))
        family = (cells.get("family") or cells.get("family_id") or "").strip()
        people[fold(cells.get("participant_id", "")).removeprefix("sub-")] = Person(
            age_of(cells.get("age", "")),
            sex_of(cells.get("sex", "")),
            family if fold(family) not in ("", "n/a") else None,
        )
    return people, []
