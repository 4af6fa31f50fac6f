"""Packed results of studies: finished runs are packed, unpacked, and borrowed by other studies."""

import contextlib
import io
import json
import lzma
import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, StoreError, os_errors_as
from psdnorm.experiments import (
    CELLS,
    COST,
    FORMAT,
    GRID,
    ExperimentFolder,
    Unit,
    complete,
    merged_costs,
    read_cost,
    units_of,
)
from psdnorm.lab.study.study import (
    COUNTED,
    NIGHTS,
    Study,
    check_nights,
    note_nights,
    planned_amounts,
)
from psdnorm.runtime import held, holder, json_text, read_json, write_json, written
from psdnorm.training import CONFIG, DONE, HISTORY, KEEP, LENDER, SCORES, Run
from psdnorm.training import FILE as RESUME

NEEDED = (CONFIG, SCORES, DONE)  # AdaBN has no history of its own


class Archive:
    """The content of a file of packed results; names in it are never used as paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members: dict[str, bytes] = {}
        try:
            with tarfile.open(path, mode="r:xz") as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    if file is not None:
                        self._members[member.name] = file.read()
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise StoreError(f"{path} cannot be read as packed results: {error}") from error

    @cached_property
    def grid(self) -> dict[str, Any]:
        """The content of ``grid.json``."""
        document = self._document(GRID)
        if document.get("format") != FORMAT:
            raise StoreError(f"{self.path} has the {GRID} of another version of psdnorm")
        return document

    @property
    def settings(self) -> dict[str, Any]:
        """What all runs share, see :meth:`psdnorm.experiments.ExperimentFolder.settings`."""
        return {key: value for key, value in self.grid.items() if key not in ("format", "cells")}

    def optional(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file that need not exist."""
        return self._document(name) if name in self._members else None

    def has(self, run: Run) -> bool:
        """Tell whether a run is finished here."""
        return _member(run, DONE) in self._members

    def scores(self, run: Run) -> bytes:
        """Return the scores of a finished run as they are on disk."""
        return self._content(run, SCORES)

    def unpack(self, run: Run, folder: Path, lender: str | None = None) -> None:
        """Write the files of a finished run, over those of an interrupted one."""
        files = {name: self._content(run, name) for name in (CONFIG, SCORES)}
        if lender is not None:
            # if that study borrowed the run itself, the name of the study that trained it is kept
            described = {LENDER: lender} | self._document(_member(run, CONFIG))
            files[CONFIG] = json_text(described).encode()
        if _member(run, HISTORY) in self._members:
            files[HISTORY] = self._content(run, HISTORY)
        files[DONE] = self._content(run, DONE)  # last: the run then counts as finished
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with written(folder / name) as file:
                file.write(content)
        (folder / RESUME).unlink(missing_ok=True)

    def _content(self, run: Run, name: str) -> bytes:
        content = self._members.get(_member(run, name))
        if content is None:
            raise StoreError(
                f"{self.path} does not contain {name} of {run.name}, expected a packed study"
            )
        return content

    def _document(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads(self._members[name])
        except (KeyError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise StoreError(f"{self.path} has no valid {name}, expected a packed study")
        return document


def _member(run: Run, name: str) -> str:
    return f"{CELLS}/{run.name}/{name}"


def packed_path(study: Study, lender: str | None = None) -> Path:
    """Return the file of the packed results of a study, or of one from which it borrows."""
    folder = study.results or study.path.parent / "results"
    return folder / f"{lender or study.name}.tar.xz"


def pack(study: Study, experiment: ExperimentFolder) -> Path | None:
    """Pack the finished runs of a study; return None if there are none."""
    # a run only with all its AdaBN runs: weights are not packed, so it would be trained again
    finished = [unit for unit in units_of(study.runs) if all(map(experiment.is_done, unit))]
    runs = [run for unit in finished for run in unit]
    if not runs:
        return None
    path = packed_path(study)
    with os_errors_as(StoreError, None, "cannot be packed"):
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = list(_contents(experiment, runs))
    with written(path) as file, tarfile.open(fileobj=file, mode="w:xz", preset=6) as archive:
        for name, content in contents:
            member = tarfile.TarInfo(name)  # without owner and time: the same bytes every time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _contents(experiment: ExperimentFolder, runs: list[Run]) -> Iterator[tuple[str, bytes]]:
    for name in (GRID, COST, NIGHTS):
        if (experiment.path / name).exists():
            yield name, (experiment.path / name).read_bytes()
    for name in (CONFIG, HISTORY, SCORES):  # similar files together compress best
        for run in runs:
            if name in NEEDED or (experiment.folder(run) / name).exists():
                yield _member(run, name), (experiment.folder(run) / name).read_bytes()
    for run in runs:
        done = read_json(experiment.folder(run) / DONE) | {"keep": KEEP[0]}
        yield _member(run, DONE), json_text(done).encode()


def is_packed(study: Study) -> bool:
    """Tell whether every run of a study is in its packed results."""
    path = packed_path(study)
    return path.exists() and all(map(Archive(path).has, study.runs))


@dataclass(frozen=True)
class Packed:
    """Runs in packed results that a study can use."""

    archive: Archive
    runs: tuple[Run, ...]
    lender: str | None = None  # the other study that they come from


def available(
    study: Study, experiment: ExperimentFolder, lenders: Sequence[str | None] | None = None
) -> list[Packed]:
    """Return what can be unpacked: the study's own results first, then those it can borrow."""
    finished = {run: _scores(experiment, run) for run in study.runs if experiment.is_done(run)}
    place, settings = experiment.path, experiment.settings()
    found = []
    for lender in (None, *study.borrow) if lenders is None else lenders:
        path = packed_path(study, lender)
        if not path.exists() or (lender and len(finished) == len(study.runs)):
            continue
        archive = Archive(path)
        _check_same(study, archive, place, settings)
        place, settings = archive.path, archive.settings
        runs = usable(study, archive, experiment, finished)
        finished |= {run: archive.scores(run) for run in runs}
        if runs or lender is None:
            found.append(Packed(archive, tuple(runs), lender))
    return found


def _scores(experiment: ExperimentFolder, run: Run) -> bytes | None:
    with contextlib.suppress(OSError):
        return (experiment.folder(run) / SCORES).read_bytes()
    return None  # equal to no packed scores


def usable(
    study: Study,
    archive: Archive,
    experiment: ExperimentFolder,
    finished: Mapping[Run, bytes | None],
) -> list[Run]:
    """Return the runs in packed results that are not finished yet, and not in progress."""
    # a run and its AdaBN runs share one network: all of them must come from one place
    return [
        run
        for unit in units_of(study.runs)
        if all(
            archive.has(each) and (each not in finished or finished[each] == archive.scores(each))
            for each in unit
        )
        and not _in_progress(unit, experiment)
        for run in unit
        if run not in finished
    ]


def unusable(study: Study, experiment: ExperimentFolder) -> list[Run]:
    """Return packed runs of a study that cannot be unpacked because those of their unit differ."""
    path = packed_path(study)
    if not path.exists():
        return []
    archive = Archive(path)
    return [
        run
        for unit in units_of(study.runs)
        if not _in_progress(unit, experiment)
        for run in unit
        if archive.has(run) and not experiment.is_done(run)
    ]


def _in_progress(unit: Unit, experiment: ExperimentFolder) -> bool:
    return any(holder(experiment.folder(run)) is not None for run in unit)


def _check_same(study: Study, archive: Archive, place: Path, settings: Mapping[str, Any]) -> None:
    """Raise if packed results differ from the study in protocol, or from ``place`` in nights."""
    if archive.settings.get("protocol") != study.protocol.to_json():
        raise ArgumentError(
            f"{archive.path} was made with a different protocol than {study.path}: expected the "
            "same, or another folder of results"
        )
    nights = archive.optional(NIGHTS)  # missing in results of earlier versions
    if nights is not None:
        check_nights(study, archive.path, nights)
    for name, value in settings.items():
        if archive.settings.get(name) != value:
            raise ArgumentError(
                f"{archive.path} and {place} differ in their {name}, expected results of the same "
                "nights and protocol: move one of them away"
            )


def take(
    study: Study,
    archive: Archive,
    experiment: ExperimentFolder,
    runs: Collection[Run],
    lender: str | None = None,
) -> list[Run]:
    """Unpack runs and return them, except those that other processes have begun meanwhile."""
    taken: list[Run] = []
    for unit in units_of(study.runs):
        wanted = [run for run in unit if run in runs]
        with contextlib.ExitStack() as locks:
            if not all(locks.enter_context(held(experiment.folder(run))) for run in wanted):
                continue
            if any(map(experiment.is_done, wanted)):
                continue
            for run in wanted:
                archive.unpack(run, experiment.folder(run), lender)
        taken += wanted
    return taken


@contextlib.contextmanager
def grid_lock(experiment: ExperimentFolder) -> Iterator[None]:
    """Wait for the lock of a folder's grid, and hold it."""
    free = False
    while not free:
        with held(experiment.path) as free:
            if free:
                yield


def restore(study: Study, experiment: ExperimentFolder) -> int:
    """Unpack the study's own results, if any; return the number of runs."""
    for own in available(study, experiment, [None]):
        archive = own.archive
        with os_errors_as(StoreError, experiment.path, "cannot be written"):
            with grid_lock(experiment):
                if not (experiment.path / GRID).exists():
                    write_json(experiment.path / GRID, archive.grid)
                note_nights(experiment, archive.optional(NIGHTS))
            taken = take(study, archive, experiment, own.runs)
        cost = archive.optional(COST)
        if cost is not None:
            merged = merged_costs(cost, read_cost(experiment.path), counted=COUNTED)
            write_json(experiment.path / COST, merged)
        return len(taken)
    return 0


def loans(study: Study, experiment: ExperimentFolder) -> list[Packed]:
    """Return what a study can borrow beyond its own results."""
    return [packed for packed in available(study, experiment) if packed.lender]


def borrow(study: Study, experiment: ExperimentFolder) -> list[Packed]:
    """Unpack what other studies have finished; return it, after :func:`restore`."""
    found = loans(study, experiment)
    if not found:
        return found
    with os_errors_as(StoreError, experiment.path, "cannot be written"):
        with grid_lock(experiment):
            _write_grid(study, experiment, found[0].archive)
            note_nights(experiment, found[0].archive.optional(NIGHTS))
        taken = [take(study, each.archive, experiment, each.runs, each.lender) for each in found]
    pairs = zip(found, taken, strict=True)
    return [replace(packed, runs=tuple(runs)) for packed, runs in pairs if runs]


def _write_grid(study: Study, experiment: ExperimentFolder, archive: Archive) -> None:
    """Add the study's runs to ``grid.json``, with the settings of borrowed results."""
    known = {entry.run: entry.sequences for entry in experiment.entries()}
    if known.keys() >= set(study.runs):
        return
    amounts = planned_amounts(study)  # good enough for status; corrected when the study goes on
    known = {run: amounts.entry(run).sequences for run in study.runs} | known
    listed = [{"cell": run.to_json(), "sequences": known[run]} for run in complete(known)]
    write_json(experiment.path / GRID, {"format": FORMAT, **archive.settings, "cells": listed})
