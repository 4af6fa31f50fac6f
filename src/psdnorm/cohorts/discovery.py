"""Find the nights of a cohort in a folder."""

import re
from collections.abc import Iterator
from pathlib import Path

from psdnorm.cohorts.file_layout import (
    Candidates,
    Found,
    NightFiles,
    Problem,
    check_root,
    children,
    duplicate,
    folders_named,
    pattern_of,
)
from psdnorm.cohorts.known_cohorts import COHORTS, Cohort, central
from psdnorm.cohorts.own_folder import find_bids, find_folder
from psdnorm.cohorts.people import person_in, read_people
from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import (
    Recording,
    Source,
    Wanted,
    candidates,
    fold,
    read_header,
    read_recording,
    resolve,
)
from psdnorm.runtime import plural

_Night = tuple[str, str]  # subject, visit
_Scorings = dict[_Night, dict[str, list[Path]]]  # by kind, in order of preference
_OWN = {"folder": find_folder, "bids": find_bids}
NAMES = (*COHORTS, *_OWN)


def find_nights(
    cohort: str, source: str | Path, channels: Wanted | None = None, name: str | None = None
) -> Found:
    """Find the nights of a cohort, with problems and notes.

    No file of a night is opened, except an EDF+ that a manifest lists without a scoring: it may
    contain its own stages. A source that is unreadable or has no nights raises RecordingError.

    Parameters
    ----------
    cohort : str
        One of :data:`NAMES`, case-insensitive: a known cohort, ``folder`` or ``bids``.
    source : str or Path
        The root of the download or of the BIDS dataset. For ``folder``: a manifest (``.csv``,
        ``.tsv``), a pattern such as ``data/{subject}/night{visit}.edf``, or a folder of EDFs.
    channels : sequence or mapping, optional
        Channels to read instead of the cohort's, as in :func:`psdnorm.io.read_channels`.
    name : str, optional
        Name of the cohort for ``folder`` and ``bids``, by default just that; lets two sources
        share a store. A manifest's ``cohort`` column takes precedence.
    """
    known = next((known for known in NAMES if fold(known) == fold(cohort)), None)
    if known is None:
        raise ArgumentError(f"cohort is {cohort!r}, expected one of {', '.join(NAMES)}")
    called = known if name is None else _checked(name, known)
    wanted = None if channels is None else candidates(channels)
    if known in _OWN:
        found = _OWN[known](str(source), wanted or central("A", "M"), called)
    else:
        found = _find(COHORTS[known], Path(source), wanted)
    nights = sorted(found.nights, key=lambda night: (night.cohort, night.subject, night.visit))
    return found._replace(nights=nights)


def read_night(night: NightFiles, source: Source | None = None) -> Recording:
    """Read a night that was found; :func:`channels_used` tells which channels are read.

    ``source`` is its signal if it is already open. A file that is damaged or has none of the
    candidates for a channel raises RecordingError.
    """
    return read_recording(source or night.signal, night.channels, night.scoring)


def channels_used(night: NightFiles) -> dict[str, str]:
    """Return, for each channel of a night, the candidate that the file's header provides."""
    labels = read_header(night.signal).labels
    return {
        name: resolve(options, labels, night.signal)[0] for name, options in night.channels.items()
    }


def _checked(name: str, cohort: str) -> str:
    """Validate the name of a user's own source; raise ArgumentError if it is another cohort's."""
    if cohort not in _OWN:
        raise ArgumentError(
            f"name is {name!r} for {cohort}, expected none: only folder and bids take one"
        )
    name = name.strip()
    if not name or not name.isprintable():
        raise ArgumentError(f"name is {name!r}, expected a text of printable letters")
    others = [known for known in NAMES if known != cohort]
    if fold(name) in map(fold, others):
        raise ArgumentError(
            f"name is {name!r}, which is a cohort's own, expected another than {', '.join(others)}"
        )
    return name


def _find(cohort: Cohort, root: Path, wanted: Candidates | None) -> Found:
    check_root(root, f"a download of {cohort.name}")
    problems: list[Problem] = []
    scorings: _Scorings = {}
    for template in cohort.scorings:
        for path, key in fitting(cohort, template, root, problems):
            if key:
                scorings.setdefault(key, {}).setdefault(template, []).append(path)
    signals = _signals(cohort, root, scorings, problems)
    if not signals:
        # the first problem found explains it
        reason = f": {problems[0]}" if problems else ""
        raise RecordingError(
            f"{root} has no night of {cohort.name}, expected {cohort.signals[0]}{reason}"
        )
    census, notes = read_people(cohort, root)
    nights = []
    for (subject, visit), signal in signals.items():
        person = person_in(census, subject, visit, cohort.visits)
        # the preferred kind among those that exist
        own = next(iter(scorings.pop((subject, visit), {}).values()), [])
        if not own:
            problems.append(Problem(signal, f"has no scoring, expected {cohort.scorings[0]}"))
        elif len(own) > 1:
            others = " and ".join(path.name for path in own[1:])
            problems.append(Problem(own[0], f"is used, though {others} scores the same night"))
        files = (signal, own[0] if own else None, wanted or cohort.channels)
        nights.append(NightFiles(cohort.name, subject, visit, *files, **person._asdict()))
    lone = {night.subject for night in nights if night.family is None}
    if cohort.people is not None and cohort.people.family and lone:
        subjects = plural(len({night.subject for night in nights}), "subject")
        notes.append(
            f"the family of {len(lone)} of {subjects} of {cohort.name} is unknown: "
            "relatives may be on both sides of a split"
        )
    if scorings:
        notes.append(f"{root} has {plural(len(scorings), 'scoring')} without a recording")
    return Found(nights, problems, notes)


def _signals(
    cohort: Cohort, root: Path, scorings: _Scorings, problems: list[Problem]
) -> dict[_Night, Path]:
    """Return the signal of each night; report files that match no night and duplicates."""
    found: dict[Path, _Night | None] = {}
    for template in cohort.signals:
        for path, night in fitting(cohort, template, root, problems):
            if path.suffix.lower() == ".edf":
                found[path] = found.get(path) or night
    others = {path for kinds in scorings.values() for paths in kinds.values() for path in paths}
    signals: dict[_Night, Path] = {}
    for path, night in found.items():
        another = cohort.beside and fold(path.name).startswith(fold(cohort.beside))
        if path in others or (night is None and another):
            continue
        if night is None:
            what = f"does not say whose it is, expected {cohort.signals[0]}"
            problems.append(Problem(path, what))
        elif night in signals:
            problems.append(duplicate(path, *night, signals[night]))
        else:
            signals[night] = path
    return signals


def fitting(
    cohort: Cohort, template: str, root: Path, problems: list[Problem]
) -> Iterator[tuple[Path, _Night | None]]:
    """Yield each file in a template's folder with its night, or None if it does not match."""
    visits = "|".join(re.escape(fold(visit)) for visit in cohort.visits)
    pattern = pattern_of(fold(template), {"subject": cohort.subject, "visit": visits})
    above, _, _ = template.rpartition("/")
    folders = [above.replace("{visit}", visit) for visit in cohort.visits or ("",)]
    for folder in dict.fromkeys(folders):
        for place in folders_named(root, folder.split("/") if folder else [], problems):
            for path in children(place, problems):
                match = pattern.fullmatch(fold(f"{folder}/{path.name}" if folder else path.name))
                groups = match.groupdict() if match else {}
                yield path, (groups["subject"], groups.get("visit", "")) if match else None
