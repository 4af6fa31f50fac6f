"""Results that are kept: packed, taken back, borrowed by other studies."""

import contextlib
import io
import json
import lzma
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.experiments import (
    CELLS,
    COST,
    FINISHED,
    FORMAT,
    GRID,
    ExperimentFolder,
    Outcome,
    PieceMeter,
    Unit,
    complete,
    merged_costs,
    read_cost,
    units_of,
)
from psdnorm.lab.study.definition import Study
from psdnorm.lab.study.study_nights import planned_amounts
from psdnorm.runtime import held, holder, read_json, write_json, written
from psdnorm.training import CONFIG, DONE, HISTORY, KEEP, LENDER, SCORES, Run
from psdnorm.training import FILE as RESUME

NIGHTS = "nights.json"
NEEDED = (CONFIG, SCORES, DONE)  # AdaBN has no history of its own


class Archive:
    """What a file of packed results has; it is read whole, and nothing is written by its names."""

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
        """What ``grid.json`` says."""
        document = self._document(GRID)
        if document.get("format") != FORMAT:
            raise StoreError(f"{self.path} has the {GRID} of another version of psdnorm")
        return document

    @property
    def settings(self) -> dict[str, Any]:
        """What all cells share, see :meth:`psdnorm.experiments.ExperimentFolder.settings`."""
        return {key: value for key, value in self.grid.items() if key not in ("format", "cells")}

    @property
    def cost(self) -> dict[str, Any] | None:
        """What ``cost.json`` says; None where nothing was run."""
        return self._document(COST) if COST in self._members else None

    @property
    def nights(self) -> dict[str, Any] | None:
        """What the nights were made from; None in results of a psdnorm that did not write it."""
        return self._document(NIGHTS) if NIGHTS in self._members else None

    def has(self, cell: Run) -> bool:
        """Tell whether a cell is finished here."""
        return self._named(cell, DONE) in self._members

    def scores(self, cell: Run) -> bytes:
        """Return the scores of a finished cell, as they are on disk."""
        return self._content(cell, SCORES)

    def unpack(self, cell: Run, folder: Path, lender: str | None = None) -> None:
        """Write the files of a finished cell, in place of what one that was interrupted left."""
        config, scores, done = (self._content(cell, name) for name in NEEDED)
        folder.mkdir(parents=True, exist_ok=True)
        if lender is None:
            _write(folder / CONFIG, config)
        else:
            described = self._document(self._named(cell, CONFIG))
            write_json(folder / CONFIG, {LENDER: lender} | described)
        if self._named(cell, HISTORY) in self._members:
            _write(folder / HISTORY, self._content(cell, HISTORY))
        _write(folder / SCORES, scores)
        _write(folder / DONE, done)  # last: then it counts as finished
        (folder / RESUME).unlink(missing_ok=True)

    def _content(self, cell: Run, name: str) -> bytes:
        content = self._members.get(self._named(cell, name))
        if content is None:
            raise StoreError(f"{self.path} lacks {name} of {cell.name}, expected a packed study")
        return content

    def _document(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads(self._members[name])
        except (KeyError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise StoreError(f"{self.path} has no sound {name}, expected a packed study")
        return document

    @staticmethod
    def _named(cell: Run, name: str) -> str:
        return f"{CELLS}/{cell.name}/{name}"


def _write(path: Path, content: bytes) -> None:
    with written(path) as file:
        file.write(content)


def finished_scores(study: Study, runs: ExperimentFolder) -> dict[Run, bytes | None]:
    """Return the scores of the cells that are finished in a folder; None where they are gone."""
    return {cell: _scores(runs, cell) for cell in study.cells if runs.is_done(cell)}


def takable(
    study: Study, archive: Archive, runs: ExperimentFolder, finished: Mapping[Run, bytes | None]
) -> list[Run]:
    """Return what of a study packed results have beyond what is finished."""
    return [
        cell
        for unit in units_of(study.cells)
        if _is_whole(unit, archive, finished) and not is_in_work(unit, runs)
        for cell in unit
        if cell not in finished
    ]


def take(
    study: Study,
    archive: Archive,
    runs: ExperimentFolder,
    cells: Collection[Run],
    lender: str | None = None,
) -> list[Run]:
    """Unpack cells from :func:`takable`; return them, but for those that others began meanwhile."""
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


def is_in_work(unit: Unit, runs: ExperimentFolder) -> bool:
    """Tell whether a process works on a cell of a unit."""
    return any(holder(runs.folder(cell)) is not None for cell in unit)


@contextlib.contextmanager
def alone_with(runs: ExperimentFolder) -> Iterator[None]:
    """Wait until no other process changes the grid of a folder, and keep them waiting."""
    free = False
    while not free:
        with held(runs.path) as free:
            if free:
                yield


def _is_whole(unit: Unit, archive: Archive, finished: Mapping[Run, bytes | None]) -> bool:
    """Tell whether a unit is finished in an archive, and what is here of it is that very one."""
    return all(
        archive.has(cell) and (cell not in finished or finished[cell] == archive.scores(cell))
        for cell in unit
    )


def _scores(runs: ExperimentFolder, cell: Run) -> bytes | None:
    try:
        return (runs.folder(cell) / SCORES).read_bytes()
    except OSError:
        return None  # like no other


COUNTED = "cells"


class Meter(PieceMeter):
    """Measures a piece, and writes it down after every cell."""

    def __init__(
        self, runs: ExperimentFolder, device: str, workers: int, batch_size: int, commit: str | None
    ) -> None:
        super().__init__(runs.path, device, commit, counted=COUNTED, workers=workers)
        self._runs, self._batch_size = runs, batch_size

    def count(self, outcome: Outcome) -> None:
        """Count a cell that was finished, and what it learned from, epoch by epoch."""
        if outcome.status == FINISHED:
            self.add(self._learned_from(outcome))
        self.write()

    def _learned_from(self, outcome: Outcome) -> int:
        if outcome.cell.is_adapted:  # which learns from none
            return 0
        steps = read_json(self._runs.folder(outcome.cell) / DONE)["steps"]
        return steps * self._batch_size


def packed_path(study: Study, lender: str | None = None) -> Path:
    """Return the file that the results of a study are packed into."""
    folder = study.results or study.path.parent / "results"
    return folder / f"{lender or study.name}.tar.xz"


def finished_units(study: Study, runs: ExperimentFolder) -> list[tuple[Run, ...]]:
    """Return trainings that are finished together with the AdaBN evaluations of their networks."""
    return [unit for unit in units_of(study.cells) if all(map(runs.is_done, unit))]


def pack(study: Study, runs: ExperimentFolder) -> Path | None:
    """Pack what is finished of a study."""
    cells = [cell for unit in finished_units(study, runs) for cell in unit]
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
            member = tarfile.TarInfo(name)  # of nobody, at no time: same bytes every time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _contents(runs: ExperimentFolder, cells: list[Run]) -> Iterator[tuple[str, bytes]]:
    for name in (GRID, COST, NIGHTS):
        if (runs.path / name).exists():
            yield name, (runs.path / name).read_bytes()
    for name in (CONFIG, HISTORY, SCORES):  # files that are alike together: they pack best so
        for cell in cells:
            if name in NEEDED or (runs.folder(cell) / name).exists():
                yield f"{CELLS}/{cell.name}/{name}", (runs.folder(cell) / name).read_bytes()
    for cell in cells:
        done = read_json(runs.folder(cell) / DONE) | {"keep": KEEP[0]}
        text = json.dumps(done, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        yield f"{CELLS}/{cell.name}/{DONE}", text.encode()


def is_packed(study: Study) -> bool:
    """Tell whether every cell of a study is in its packed results."""
    path = packed_path(study)
    return path.exists() and all(map(Archive(path).has, study.cells))


def restorable(study: Study, runs: ExperimentFolder) -> tuple[Archive, list[Run]] | None:
    """Look what :func:`restore` would unpack."""
    path = packed_path(study)
    if not path.exists():
        return None
    archive = Archive(path)
    check_same(study, archive, runs.path, runs.settings())
    return archive, takable(study, archive, runs, finished_scores(study, runs))


def left_behind(study: Study, runs: ExperimentFolder) -> list[Run]:
    """Return packed cells of a study that :func:`restore` left where they are."""
    path = packed_path(study)
    if not path.exists():
        return []
    archive = Archive(path)
    return [
        cell
        for unit in units_of(study.cells)
        if not is_in_work(unit, runs)
        for cell in unit
        if archive.has(cell) and not runs.is_done(cell)
    ]


def restore(study: Study, runs: ExperimentFolder) -> int:
    """Unpack the results of a study, where there are any; what is there already stays."""
    found = restorable(study, runs)
    if found is None:
        return 0
    archive, cells = found
    try:
        with alone_with(runs):
            if not (runs.path / GRID).exists():
                write_json(runs.path / GRID, archive.grid)
            note_nights(runs, archive.nights)
        taken = take(study, archive, runs, cells)
    except OSError as error:
        raise StoreError(f"{runs.path} cannot be written: {error.strerror}") from error
    if archive.cost is not None:
        cost = merged_costs(archive.cost, read_cost(runs.path), counted=COUNTED)
        write_json(runs.path / COST, cost)
    return len(taken)


def note_nights(runs: ExperimentFolder, nights: Mapping[str, Any] | None) -> None:
    """Write into a folder what its nights were made from, where that is known."""
    if nights is not None and not (runs.path / NIGHTS).exists():
        write_json(runs.path / NIGHTS, dict(nights))


def check_folder(study: Study, runs: ExperimentFolder) -> None:
    """Refuse a folder of cells of other nights than the study's file describes."""
    path = runs.path / NIGHTS
    if path.exists():
        _check_nights(study, runs.path, read_json(path))


def _check_nights(study: Study, place: Path, nights: Mapping[str, Any]) -> None:
    for name, value in study.nights.to_json().items():
        if nights.get(name) != value:
            raise ArgumentError(
                f"{place} has cells of nights whose {name} is {nights.get(name)!r}, expected "
                f"{value!r} as in {study.path}: move it away, or give the study another name"
            )


def check_same(study: Study, archive: Archive, place: Path, settings: Mapping[str, Any]) -> None:
    """Raise if packed results have another protocol than a study, or other nights."""
    if archive.settings.get("protocol") != study.protocol.to_json():
        raise ArgumentError(
            f"{archive.path} was made with another protocol than that of {study.path}: expected "
            "the same, or another folder of results"
        )
    if archive.nights is not None:
        _check_nights(study, archive.path, archive.nights)
    for name, value in settings.items():
        if archive.settings.get(name) != value:
            raise ArgumentError(
                f"{archive.path} and {place} differ in their {name}, expected results of the same "
                "nights and protocol: move one of them away"
            )


@dataclass(frozen=True)
class Loan:
    """Cells that one study takes from another."""

    lender: str  # the other study
    archive: Archive  # its packed results
    cells: tuple[Run, ...]


def loans(study: Study, runs: ExperimentFolder) -> list[Loan]:
    """Look what a study would borrow; nothing is written."""
    finished = finished_scores(study, runs)
    place, settings = runs.path, runs.settings()
    own = restorable(study, runs)
    if own is not None:
        place, settings = own[0].path, own[0].settings
        finished |= {cell: own[0].scores(cell) for cell in own[1]}
    found = []
    for lender in study.borrow:
        path = packed_path(study, lender)
        if len(finished) == len(study.cells) or not path.exists():
            continue
        archive = Archive(path)
        check_same(study, archive, place, settings)
        place, settings = archive.path, archive.settings
        cells = takable(study, archive, runs, finished)
        finished |= {cell: archive.scores(cell) for cell in cells}
        if cells:
            found.append(Loan(lender, archive, tuple(cells)))
    return found


def borrow(study: Study, runs: ExperimentFolder) -> list[Loan]:
    """Take from other studies what :func:`loans` finds, after the study's own results."""
    found = loans(study, runs)
    if not found:
        return found
    try:
        with alone_with(runs):
            _write_grid(study, runs, found[0].archive)
            note_nights(runs, found[0].archive.nights)
        taken = [tuple(take(study, loan.archive, runs, loan.cells, loan.lender)) for loan in found]
    except OSError as error:
        raise StoreError(f"{runs.path} cannot be written: {error.strerror}") from error
    return [replace(loan, cells=cells) for loan, cells in zip(found, taken, strict=True) if cells]


def _write_grid(study: Study, runs: ExperimentFolder, archive: Archive) -> None:
    """Write down the cells of a study as asked for, under the settings of borrowed results."""
    known = {entry.cell: entry.sequences for entry in runs.entries()}
    if known.keys() >= set(study.cells):
        return
    amounts = planned_amounts(study)  # close enough for status; the nights say it when it is run
    known = {cell: amounts.entry(cell).sequences for cell in study.cells} | known
    cells = [{"cell": cell.to_json(), "sequences": known[cell]} for cell in complete(known)]
    write_json(runs.path / GRID, {"format": FORMAT, **archive.settings, "cells": cells})
