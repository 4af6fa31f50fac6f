"""Packed results of studies: finished cells are packed, unpacked, and borrowed by other studies."""

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
        """What all cells share, see :meth:`psdnorm.experiments.ExperimentFolder.settings`."""
        return {key: value for key, value in self.grid.items() if key not in ("format", "cells")}

    def optional(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file that need not exist."""
        return self._document(name) if name in self._members else None

    def has(self, cell: Run) -> bool:
        """Tell whether a cell is finished here."""
        return _member(cell, DONE) in self._members

    def scores(self, cell: Run) -> bytes:
        """Return the scores of a finished cell as they are on disk."""
        return self._content(cell, SCORES)

    def unpack(self, cell: Run, folder: Path, lender: str | None = None) -> None:
        """Write the files of a finished cell, over those of an interrupted one."""
        files = {name: self._content(cell, name) for name in (CONFIG, SCORES)}
        if lender is not None:
            # if that study has borrowed the cell itself, the name of the study that ran it stays
            described = {LENDER: lender} | self._document(_member(cell, CONFIG))
            files[CONFIG] = json_text(described).encode()
        if _member(cell, HISTORY) in self._members:
            files[HISTORY] = self._content(cell, HISTORY)
        files[DONE] = self._content(cell, DONE)  # last: the cell then counts as finished
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with written(folder / name) as file:
                file.write(content)
        (folder / RESUME).unlink(missing_ok=True)

    def _content(self, cell: Run, name: str) -> bytes:
        content = self._members.get(_member(cell, name))
        if content is None:
            raise StoreError(f"{self.path} lacks {name} of {cell.name}, expected a packed study")
        return content

    def _document(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads(self._members[name])
        except (KeyError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise StoreError(f"{self.path} has no valid {name}, expected a packed study")
        return document


def _member(cell: Run, name: str) -> str:
    return f"{CELLS}/{cell.name}/{name}"


def packed_path(study: Study, lender: str | None = None) -> Path:
    """Return the file of the packed results of a study, or of one from which it borrows."""
    folder = study.results or study.path.parent / "results"
    return folder / f"{lender or study.name}.tar.xz"


def pack(study: Study, runs: ExperimentFolder) -> Path | None:
    """Pack what is finished of a study; return None if nothing is."""
    # a cell only with all its AdaBN cells: no weights are packed, so it would be trained again
    finished = [unit for unit in units_of(study.cells) if all(map(runs.is_done, unit))]
    cells = [cell for unit in finished for cell in unit]
    if not cells:
        return None
    path = packed_path(study)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = list(_contents(runs, cells))
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be packed: {error.strerror}") from error
    with written(path) as file, tarfile.open(fileobj=file, mode="w:xz", preset=6) as archive:
        for name, content in contents:
            member = tarfile.TarInfo(name)  # without owner and time: the same bytes every time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _contents(runs: ExperimentFolder, cells: list[Run]) -> Iterator[tuple[str, bytes]]:
    for name in (GRID, COST, NIGHTS):
        if (runs.path / name).exists():
            yield name, (runs.path / name).read_bytes()
    for name in (CONFIG, HISTORY, SCORES):  # similar files together compress best
        for cell in cells:
            if name in NEEDED or (runs.folder(cell) / name).exists():
                yield _member(cell, name), (runs.folder(cell) / name).read_bytes()
    for cell in cells:
        done = read_json(runs.folder(cell) / DONE) | {"keep": KEEP[0]}
        yield _member(cell, DONE), json_text(done).encode()


def is_packed(study: Study) -> bool:
    """Tell whether every cell of a study is in its packed results."""
    path = packed_path(study)
    return path.exists() and all(map(Archive(path).has, study.cells))


@dataclass(frozen=True)
class Packed:
    """Cells in packed results that a study can use."""

    archive: Archive
    cells: tuple[Run, ...]
    lender: str | None = None  # the other study that they are of


def available(
    study: Study, runs: ExperimentFolder, lenders: Sequence[str | None] | None = None
) -> list[Packed]:
    """Return what can be unpacked: the study's own results first, then those it can borrow."""
    finished = {cell: _scores(runs, cell) for cell in study.cells if runs.is_done(cell)}
    place, settings = runs.path, runs.settings()
    found = []
    for lender in (None, *study.borrow) if lenders is None else lenders:
        path = packed_path(study, lender)
        if not path.exists() or (lender and len(finished) == len(study.cells)):
            continue
        archive = Archive(path)
        _check_same(study, archive, place, settings)
        place, settings = archive.path, archive.settings
        cells = usable(study, archive, runs, finished)
        finished |= {cell: archive.scores(cell) for cell in cells}
        if cells or lender is None:
            found.append(Packed(archive, tuple(cells), lender))
    return found


def _scores(runs: ExperimentFolder, cell: Run) -> bytes | None:
    with contextlib.suppress(OSError):
        return (runs.folder(cell) / SCORES).read_bytes()
    return None  # equal to no packed scores


def usable(
    study: Study, archive: Archive, runs: ExperimentFolder, finished: Mapping[Run, bytes | None]
) -> list[Run]:
    """Return the cells in packed results that are not finished yet, and not in progress."""
    # a cell and its AdaBN cells are of one network: all of them come from one place
    return [
        cell
        for unit in units_of(study.cells)
        if all(
            archive.has(each) and (each not in finished or finished[each] == archive.scores(each))
            for each in unit
        )
        and not _in_progress(unit, runs)
        for cell in unit
        if cell not in finished
    ]


def unusable(study: Study, runs: ExperimentFolder) -> list[Run]:
    """Return packed cells of a study that cannot be unpacked as those of their unit differ."""
    path = packed_path(study)
    if not path.exists():
        return []
    archive = Archive(path)
    return [
        cell
        for unit in units_of(study.cells)
        if not _in_progress(unit, runs)
        for cell in unit
        if archive.has(cell) and not runs.is_done(cell)
    ]


def _in_progress(unit: Unit, runs: ExperimentFolder) -> bool:
    return any(holder(runs.folder(cell)) is not None for cell in unit)


def _check_same(study: Study, archive: Archive, place: Path, settings: Mapping[str, Any]) -> None:
    """Raise if packed results differ from the study in protocol, or from ``place`` in nights."""
    if archive.settings.get("protocol") != study.protocol.to_json():
        raise ArgumentError(
            f"{archive.path} was made with another protocol than that of {study.path}: expected "
            "the same, or another folder of results"
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
    runs: ExperimentFolder,
    cells: Collection[Run],
    lender: str | None = None,
) -> list[Run]:
    """Unpack cells; return them, without those that other processes have begun meanwhile."""
    taken: list[Run] = []
    for unit in units_of(study.cells):
        wanted = [cell for cell in unit if cell in cells]
        with contextlib.ExitStack() as locks:
            if not all(locks.enter_context(held(runs.folder(cell))) for cell in wanted):
                continue
            if any(map(runs.is_done, wanted)):
                continue
            for cell in wanted:
                archive.unpack(cell, runs.folder(cell), lender)
        taken += wanted
    return taken


@contextlib.contextmanager
def grid_lock(runs: ExperimentFolder) -> Iterator[None]:
    """Wait for the lock of a folder's grid, and hold it."""
    free = False
    while not free:
        with held(runs.path) as free:
            if free:
                yield


def restore(study: Study, runs: ExperimentFolder) -> int:
    """Unpack the study's own results, if any; return the number of cells."""
    for own in available(study, runs, [None]):
        archive = own.archive
        with os_errors_as(StoreError, runs.path, "cannot be written"):
            with grid_lock(runs):
                if not (runs.path / GRID).exists():
                    write_json(runs.path / GRID, archive.grid)
                note_nights(runs, archive.optional(NIGHTS))
            taken = take(study, archive, runs, own.cells)
        cost = archive.optional(COST)
        if cost is not None:
            merged = merged_costs(cost, read_cost(runs.path), counted=COUNTED)
            write_json(runs.path / COST, merged)
        return len(taken)
    return 0


def loans(study: Study, runs: ExperimentFolder) -> list[Packed]:
    """Return what a study can borrow beyond its own results."""
    return [packed for packed in available(study, runs) if packed.lender]


def borrow(study: Study, runs: ExperimentFolder) -> list[Packed]:
    """Unpack what other studies have finished; return it, after :func:`restore`."""
    found = loans(study, runs)
    if not found:
        return found
    with os_errors_as(StoreError, runs.path, "cannot be written"):
        with grid_lock(runs):
            _write_grid(study, runs, found[0].archive)
            note_nights(runs, found[0].archive.optional(NIGHTS))
        taken = [take(study, each.archive, runs, each.cells, each.lender) for each in found]
    pairs = zip(found, taken, strict=True)
    return [replace(packed, cells=tuple(cells)) for packed, cells in pairs if cells]


def _write_grid(study: Study, runs: ExperimentFolder, archive: Archive) -> None:
    """Add the study's cells to ``grid.json``, with the settings of borrowed results."""
    known = {entry.run: entry.sequences for entry in runs.entries()}
    if known.keys() >= set(study.cells):
        return
    amounts = planned_amounts(study)  # good enough for status; corrected when cells are run
    known = {cell: amounts.entry(cell).sequences for cell in study.cells} | known
    cells = [{"cell": cell.to_json(), "sequences": known[cell]} for cell in complete(known)]
    write_json(runs.path / GRID, {"format": FORMAT, **archive.settings, "cells": cells})
