"""The user's own recordings: a manifest, a file name pattern, a folder or a BIDS dataset."""

import csv
import glob
import itertools
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from psdnorm.cohorts.file_layout import (
    Candidates,
    Found,
    NightFiles,
    Problem,
    below,
    check_root,
    children,
    duplicate,
    inaccessible,
    pattern_of,
    unscored,
)
from psdnorm.cohorts.people import Person, age_of, sex_of
from psdnorm.errors import ArgumentError, PsdnormError, RecordingError, os_errors_as
from psdnorm.io import candidates, check_expression, fold, holds_stages, read_rows

_SIGNALS = (".edf", ".bdf", ".rec")
_PACKED = tuple(signal + by for signal in _SIGNALS for by in (".gz", ".xz", ".bz2", ".zst", ".zip"))
_PLACES = ("subject", "visit")
_MANIFESTS = (".csv", ".tsv")
_NEEDED = ("subject", "signal")
_COLUMNS = (*_NEEDED, "visit", "scoring", "channels", "cohort", "family", "age", "sex")
_NOTHING = ("", "n/a", "na", "nan", "none")
# endings of a scoring beside its signal, preferred first
_ENDINGS = (
    *("-nsrr.xml", "-profusion.xml", ".xml", "_events.tsv", ".tsv", ".csv", ".txt", ".eannot"),
    *("-hypnogram.edf", "_hypnogram.edf", "base.edf"),
)
_SIGNAL_ENDINGS = ("-psg", "_psg", " psg", "_eeg")


def find_folder(source: str, channels: Candidates, cohort: str = "folder") -> Found:
    """Find nights from a manifest, by a pattern or in a folder; see :func:`find_nights`."""
    problems: list[Problem] = []
    if Path(source).suffix.lower() in _MANIFESTS:
        found = _from_manifest(Path(source), channels, cohort, problems)
    elif os.path.isdir(source):
        inside = below(Path(source), problems)
        paths = [path for path in inside if path.name.lower().endswith(_SIGNALS + _PACKED)]
        found = _from_files(paths, None, channels, cohort, problems)
    else:
        found = _from_pattern(source, channels, cohort, problems)
    if not found.nights:
        reason = f": {problems[0]}" if problems else ""
        raise RecordingError(f"{source} matches no recording{reason}")
    # S01 and s01 are one subject: as two, they could end up on both sides of a split
    spelt: dict[tuple[str, str], str] = {}
    nights: dict[tuple[str, str, str], NightFiles] = {}
    for night in found.nights:
        subject = spelt.setdefault((night.cohort, fold(night.subject)), night.subject)
        key = (night.cohort, subject, fold(night.visit))
        if key in nights:
            problems.append(duplicate(night.signal, subject, night.visit, nights[key].signal))
        else:
            nights[key] = replace(night, subject=subject)
    return found._replace(nights=list(nights.values()))


def _from_pattern(source: str, channels: Candidates, cohort: str, problems: list[Problem]) -> Found:
    unknown = [place for place in re.findall(r"\{([^{}/]*)\}", source) if place not in _PLACES]
    if unknown:
        raise RecordingError(
            f"{source} has the place {{{unknown[0]}}}, expected {{subject}} and {{visit}} alone"
        )
    wild = source.replace("{subject}", "*").replace("{visit}", "*")
    # glob silently skips inaccessible folders
    for path in (Path(wild), *Path(wild).parents):
        if glob.has_magic(str(path)):
            folders = filter(os.path.isdir, glob.glob(str(path.parent), recursive=True))
            for folder in sorted(folders):
                children(Path(folder), problems)
    closed = {problem.file for problem in problems}
    found = map(Path, sorted(glob.glob(wild, recursive=True)))
    paths = [path for path in found if not closed & {*path.parents}]
    return _from_files(paths, source if wild != source else None, channels, cohort, problems)


def _from_files(
    paths: list[Path],
    template: str | None,
    channels: Candidates,
    cohort: str,
    problems: list[Problem],
) -> Found:
    """Make nights from files; a template gives the places of subject and visit in their paths."""
    beside = _scorings_beside([path for path in paths if _is_file(path, problems)], problems)
    scorings = set(beside.values())
    pattern = None
    if template is not None:
        pattern = pattern_of(Path(template).as_posix(), dict.fromkeys(_PLACES, "[^/]+?"))
    nights = []
    for path, scoring in beside.items():
        if path in scorings or path.name.startswith("."):
            continue
        places = {"subject": _stem(path)}
        if pattern is not None:
            match = pattern.fullmatch(path.as_posix())
            if match is None:
                problems.append(Problem(path, f"does not say whose it is, expected {template}"))
                continue
            places |= match.groupdict()
        if scoring is None:
            problems.append(unscored(path, "one of its name"))
        subject, visit = places["subject"], places.get("visit", "")
        nights.append(NightFiles(cohort, subject, visit, path, scoring, channels))
    return Found(nights, problems, [])


def _is_file(path: Path, problems: list[Problem]) -> bool:
    """Return whether a path is an uncompressed file; report a signal that is not."""
    name = path.name.lower()
    if name.endswith(_PACKED):
        if os.path.exists(path.with_suffix("")):  # an unpacked copy is beside it
            return False
        what = "is compressed, expected it unpacked"
    elif os.path.isfile(path):  # pathlib's raises in an inaccessible folder
        return True
    elif os.path.isdir(path):
        what = "is a folder, expected a file"
    else:
        lost = os.path.islink(path)
        what = "is a link to a file that does not exist" if lost else "is not a file"
    if name.endswith(_SIGNALS + _PACKED):
        problems.append(Problem(path, what))
    return False


def _stem(path: Path) -> str:
    stem = path.stem
    for ending in _SIGNAL_ENDINGS:
        if stem.lower().endswith(ending) and len(stem) > len(ending):
            return stem[: -len(ending)].rstrip()
    return stem


def _scorings_beside(paths: Sequence[Path], problems: list[Problem]) -> dict[Path, Path | None]:
    """Return the scoring of each signal, or None; each folder is listed only once."""
    names = {
        folder: {fold(path.name): path for path in children(folder, problems)}
        for folder in dict.fromkeys(path.parent for path in paths)
    }
    beside = {}
    for path in paths:
        stems = dict.fromkeys((fold(path.stem), fold(_stem(path))))
        found = (names[path.parent].get(stem + ending) for stem in stems for ending in _ENDINGS)
        beside[path] = next((other for other in found if other not in (None, path)), None)
    return beside


def _from_manifest(path: Path, channels: Candidates, cohort: str, problems: list[Problem]) -> Found:
    rows = _rows(path)
    if not rows:
        raise RecordingError(f"{path} is empty, expected the columns subject and signal")
    names = [fold(cell) for cell in rows[0]]
    if not set(_NEEDED) <= set(names):
        raise RecordingError(
            f"{path} has the columns {', '.join(names)}, expected subject and signal, "
            f"and perhaps {', '.join(_COLUMNS[2:])}"
        )
    unknown = [name for name in names if name not in _COLUMNS]
    notes = [f"{path} has the columns {', '.join(unknown)}, which are not used"] if unknown else []
    found = Found([], problems, notes)
    for line, row in enumerate(rows[1:], start=2):
        if len(row) > len(names):
            what = f"has in row {line} {len(row)} cells, expected {len(names)}"
            problems.append(Problem(path, what))
            continue
        cells = {
            name: "" if fold(cell) in _NOTHING else cell.strip()
            for name, cell in zip(names, row, strict=False)
        }
        cells = dict.fromkeys(_COLUMNS, "") | cells
        cells["cohort"] = cells["cohort"] or cohort
        _add_row(path, line, cells, channels, found)
    return found


def _rows(path: Path) -> list[list[str]]:
    try:
        with os_errors_as(RecordingError, path, "cannot be read"):
            return read_rows(path.read_bytes())
    except csv.Error as error:
        raise RecordingError(f"{path} is not a table: {error}") from error


def _add_row(
    path: Path, line: int, cells: dict[str, str], channels: Candidates, found: Found
) -> None:
    def problem(what: str) -> None:
        found.problems.append(Problem(path, f"has in row {line} {what}"))

    if not all(cells[name] for name in _NEEDED):
        problem("no subject or no signal")
        return
    signal = path.parent / cells["signal"]
    if fault := _fault(signal):
        problem(f"the signal {cells['signal']}, which {fault}")
        return
    named = path.parent / cells["scoring"]
    scoring: Path | None = named
    if not cells["scoring"]:
        why = ""
        try:
            scoring = signal if holds_stages(signal) else None
        except RecordingError as error:
            scoring, why = None, f", and none of its own: {error}"
        if scoring is None:
            found.problems.append(Problem(signal, f"has no scoring in row {line} of {path}{why}"))
    elif fault := _fault(named):
        problem(f"the scoring {cells['scoring']}, which {fault}")
        scoring = None
    age, sex = age_of(cells["age"]), sex_of(cells["sex"])
    if cells["age"] and age is None:
        problem(f"{cells['age']!r} as age, expected years")
    if cells["sex"] and sex is None:
        problem(f"{cells['sex']!r} as sex, expected F or M")
    try:
        own = parse_channels(cells["channels"]) if cells["channels"] else channels
    except PsdnormError as error:
        problem(f"{cells['channels']!r} as channels: {error}")
        return
    found.nights.append(
        NightFiles(
            *(cells["cohort"], cells["subject"], cells["visit"], signal, scoring, own),
            family=cells["family"] or None,
            age=age,
            sex=sex,
        )
    )


def _fault(path: Path) -> str:
    """Return what is wrong with a file in a manifest; "" if nothing."""
    try:
        return "" if stat.S_ISREG(os.stat(path).st_mode) else "is not a file"
    except PermissionError as error:
        return inaccessible(path, error).what
    except (OSError, ValueError):  # ValueError: not a valid file name
        return "does not exist"


def parse_channels(text: str) -> Candidates:
    """Parse the channels in a manifest: ``C3-M2; C4-M1``, ``C3-A2 = C3-M2 | EEG C3``."""
    wanted: dict[str, list[str]] = {}
    for part in filter(str.strip, text.split(";")):
        name, equals, options = (piece.strip() for piece in part.partition("="))
        if fold(name) in map(fold, wanted):
            raise ArgumentError(f"channels name {name!r} twice, expected each once")
        tried = (options if equals else name).split("|")
        wanted[name] = [option.strip() for option in tried if option.strip()]
    if not wanted or not all(wanted.values()):
        raise ArgumentError(f"channels must name at least one in each part, found {text!r}")
    for option in itertools.chain.from_iterable(wanted.values()):
        check_expression(option)
    return candidates(wanted)


_BIDS_SIGNALS = ("_eeg.edf", "_eeg.bdf", "_eeg.vhdr", "_eeg.set", "_eeg.fif")
_FACTS = {"age", "sex", "family", "family_id"}
_BIDS_SCORINGS = ("_events.tsv", "_stages.tsv", "_hypnogram.tsv", "_annotations.tsv")


def find_bids(source: str, channels: Candidates, cohort: str = "bids") -> Found:
    """Find the nights of a BIDS dataset, using ``participants.tsv``; see :func:`find_nights`."""
    root = Path(source)
    check_root(root, "the root of a BIDS dataset")
    problems: list[Problem] = []
    people, notes = _participants(root)
    signals = _bids_signals(root, problems)
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
        scoring = _bids_scoring(path, problems)
        if scoring is None:
            problems.append(unscored(path, f"…{_BIDS_SCORINGS[0]}"))
        person = people.get(fold(subject), Person())
        files = (path, scoring, channels)
        nights[key] = NightFiles(cohort, subject, visit, *files, **person._asdict())
    return Found(list(nights.values()), problems, notes)


def _bids_signals(root: Path, problems: list[Problem]) -> list[Path]:
    """Return the signals in sub-*/eeg and sub-*/ses-*/eeg, but not derivatives or sourcedata."""
    found = []
    for subject in _folders(root, "sub-*", problems):
        for session in (subject, *_folders(subject, "ses-*", problems)):
            for eeg in _folders(session, "eeg", problems):
                inside = children(eeg, problems)
                found += [path for path in inside if path.name.lower().endswith(_BIDS_SIGNALS)]
    return found


def _folders(above: Path, pattern: str, problems: list[Problem]) -> list[Path]:
    inside = children(above, problems)
    return [path for path in inside if fnmatchcase(path.name, pattern) and os.path.isdir(path)]


def _entities(path: Path) -> dict[str, str]:
    """Return the BIDS entities of a file name: sub-01_ses-2_eeg.edf has sub 01, ses 2."""
    pairs = (part.partition("-") for part in path.stem.split("_"))
    return {name: value for name, dash, value in pairs if dash and value}


def _visit(entities: dict[str, str]) -> str:
    """Return the session and the other entities, except the task if it is sleep."""
    # from the file name only: adding a file must not rename other nights
    if fold(entities.get("task", "")) == "sleep":
        del entities["task"]
    session = entities.pop("ses", "")
    rest = [f"{name}-{value}" for name, value in entities.items()]
    return "_".join([session] * bool(session) + rest)


def _bids_scoring(path: Path, problems: list[Problem]) -> Path | None:
    begin = path.stem.rpartition("_")[0]
    names = {fold(other.name): other for other in children(path.parent, problems)}
    found = (names.get(fold(begin + ending)) for ending in _BIDS_SCORINGS)
    return next((other for other in found if other is not None), None)


def _participants(root: Path) -> tuple[dict[str, Person], list[str]]:
    path = root / "participants.tsv"
    if not path.exists():
        return {}, []
    try:
        rows = _rows(path)
    except RecordingError as error:
        return {}, [str(error)]
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
