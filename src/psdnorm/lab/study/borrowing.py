"""Cells that another study has finished, taken from its packed results instead of run again.

They are the same cells: the studies have nights and protocol in common. Their ``config.json`` says
where they ran (``borrowed_from``); what they cost stays with the study that ran them.
"""

from dataclasses import dataclass, replace

from psdnorm.errors import StoreError
from psdnorm.experiments.grid import FORMAT, GRID, Runs, complete
from psdnorm.lab.study.archive import Archive
from psdnorm.lab.study.definition import Study
from psdnorm.lab.study.packing import check_same, note_nights, packed_path, restorable
from psdnorm.lab.study.study_nights import planned_amounts
from psdnorm.lab.study.taking import alone_with, finished_scores, takable, take
from psdnorm.training import Cell
from psdnorm.training.run_folder import write_json


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
    results have; see :func:`psdnorm.lab.study.taking.takable`.

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
        Without what another process began meanwhile.
    """
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


def _write_grid(study: Study, runs: Runs, archive: Archive) -> None:
    """Write down the cells of a study as asked for, under the settings of borrowed results."""
    known = {entry.cell: entry.sequences for entry in runs.entries()}
    if known.keys() >= set(study.cells):
        return
    amounts = planned_amounts(study)  # close enough for status; the nights say it when it is run
    known = {cell: amounts.entry(cell).sequences for cell in study.cells} | known
    cells = [{"cell": cell.to_json(), "sequences": known[cell]} for cell in complete(known)]
    write_json(runs.path / GRID, {"format": FORMAT, **archive.settings, "cells": cells})
