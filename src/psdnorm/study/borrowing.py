"""Cells that another study has finished, taken from its packed results instead of run again.

They are the same cells: the studies have nights and protocol in common. Their ``config.json`` says
where they ran (``borrowed_from``); what they cost stays with the study that ran them.
"""

from dataclasses import dataclass

from psdnorm.errors import StoreError
from psdnorm.study.archive import Archive
from psdnorm.study.nights import planned_amounts
from psdnorm.study.packing import check_same, packed_path, restorable
from psdnorm.study.reading import Study
from psdnorm.training import Cell
from psdnorm.training.grid import FORMAT, GRID, Runs, Unit, complete, units_of
from psdnorm.training.locking import holder
from psdnorm.training.records import SCORES, write_json


@dataclass(frozen=True)
class Loan:
    """Cells that one study takes from another.

    Attributes
    ----------
    lender : str
        The other study.
    archive : Archive
        Its packed results.
    cells : tuple of Cell
    """

    lender: str
    archive: Archive
    cells: tuple[Cell, ...]


def loans(study: Study, runs: Runs) -> list[Loan]:
    """Look what a study would borrow; nothing is written.

    That is what other studies have finished, and neither ``runs`` nor the study's own packed
    results have. A training and the AdaBN evaluations that this study asks for are of one network:
    they come from one place, all of them or none. What a process works on is left to it.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells, which need not exist.

    Returns
    -------
    list of Loan
        One for each study that has any, in the order of ``study.borrow``.

    Raises
    ------
    ArgumentError
        Results of another protocol than the study's, or of other nights than ``runs`` or each
        other.
    """
    finished = {cell: _scores(runs, cell) for cell in study.cells if runs.is_done(cell)}
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
        cells = [
            cell
            for unit in units_of(study.cells)
            if _is_whole(unit, archive, finished) and not _is_in_work(unit, runs)
            for cell in unit
            if cell not in finished
        ]
        finished |= {cell: archive.scores(cell) for cell in cells}
        if cells:
            found.append(Loan(lender, archive, tuple(cells)))
    return found


def borrow(study: Study, runs: Runs) -> list[Loan]:
    """Take from other studies what :func:`loans` finds, after the study's own results.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells; made if it does not exist and there is something to take. Its
        ``grid.json`` then has all cells of the study.

    Returns
    -------
    list of Loan
    """
    found = loans(study, runs)
    if not found:
        return found
    try:
        runs.path.mkdir(parents=True, exist_ok=True)
        _write_grid(study, runs, found[0].archive)
        for loan in found:
            for cell in loan.cells:
                loan.archive.unpack(cell, runs.folder(cell), loan.lender)
    except OSError as error:
        raise StoreError(f"{runs.path} cannot be written: {error.strerror}") from error
    return found


def _is_whole(unit: Unit, archive: Archive, finished: dict[Cell, bytes | None]) -> bool:
    """Tell whether a unit is finished in an archive, and what is here of it is that very one."""
    return all(
        archive.has(cell) and (cell not in finished or finished[cell] == archive.scores(cell))
        for cell in unit
    )


def _is_in_work(unit: Unit, runs: Runs) -> bool:
    return any(holder(runs.folder(cell)) is not None for cell in unit)


def _scores(runs: Runs, cell: Cell) -> bytes | None:
    try:
        return (runs.folder(cell) / SCORES).read_bytes()
    except OSError:
        return None  # like no other


def _write_grid(study: Study, runs: Runs, archive: Archive) -> None:
    """Write down the cells of a study as asked for, under the settings of borrowed results."""
    known = {entry.cell: entry.sequences for entry in runs.entries()}
    if known.keys() >= set(study.cells):
        return
    amounts = planned_amounts(study)  # close enough for status; the nights say it when it is run
    known = {cell: amounts.entry(cell).sequences for cell in study.cells} | known
    cells = [{"cell": cell.to_json(), "sequences": known[cell]} for cell in complete(known)]
    write_json(runs.path / GRID, {"format": FORMAT, **archive.settings, "cells": cells})
