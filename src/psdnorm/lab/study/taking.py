"""What can be taken from packed results into a folder of runs, though others may work there."""

import contextlib
from collections.abc import Collection, Iterator, Mapping

from psdnorm.experiments.grid import Runs, Unit, units_of
from psdnorm.lab.study.archive import Archive
from psdnorm.lab.study.definition import Study
from psdnorm.runtime.locks import held, holder
from psdnorm.training import Cell
from psdnorm.training.run_folder import SCORES


def finished_scores(study: Study, runs: Runs) -> dict[Cell, bytes | None]:
    """Return the scores of the cells that are finished in a folder; None where they are gone.

    Parameters
    ----------
    study : Study
    runs : Runs
    """
    return {cell: _scores(runs, cell) for cell in study.cells if runs.is_done(cell)}


def takable(
    study: Study, archive: Archive, runs: Runs, finished: Mapping[Cell, bytes | None]
) -> list[Cell]:
    """Return what of a study packed results have beyond what is finished.

    A training and the AdaBN evaluations that the study asks for are of one network: they come from
    one place, all of them or none. What a process works on is left to it.

    Parameters
    ----------
    study : Study
    archive : Archive
    runs : Runs
        The folder that they would go to.
    finished : mapping of Cell to bytes
        What is finished elsewhere, with its scores.
    """
    return [
        cell
        for unit in units_of(study.cells)
        if _is_whole(unit, archive, finished) and not is_in_work(unit, runs)
        for cell in unit
        if cell not in finished
    ]


def take(
    study: Study, archive: Archive, runs: Runs, cells: Collection[Cell], lender: str | None = None
) -> list[Cell]:
    """Unpack cells from :func:`takable`; return them, but for those that others began meanwhile.

    Parameters
    ----------
    study : Study
    archive : Archive
    runs : Runs
    cells : collection of Cell
    lender : str, optional
        As in :meth:`Archive.unpack`.
    """
    taken: list[Cell] = []
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


def is_in_work(unit: Unit, runs: Runs) -> bool:
    """Tell whether a process works on a cell of a unit.

    Parameters
    ----------
    unit : tuple of Cell
    runs : Runs
    """
    return any(holder(runs.folder(cell)) is not None for cell in unit)


@contextlib.contextmanager
def alone_with(runs: Runs) -> Iterator[None]:
    """Wait until no other process changes the grid of a folder, and keep them waiting.

    Parameters
    ----------
    runs : Runs
        Made if it does not exist.
    """
    free = False
    while not free:
        with held(runs.path) as free:
            if free:
                yield


def _is_whole(unit: Unit, archive: Archive, finished: Mapping[Cell, bytes | None]) -> bool:
    """Tell whether a unit is finished in an archive, and what is here of it is that very one."""
    return all(
        archive.has(cell) and (cell not in finished or finished[cell] == archive.scores(cell))
        for cell in unit
    )


def _scores(runs: Runs, cell: Cell) -> bytes | None:
    try:
        return (runs.folder(cell) / SCORES).read_bytes()
    except OSError:
        return None  # like no other
