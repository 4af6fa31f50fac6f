"""One cell of a grid, whatever becomes of it; the same code wherever it runs."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import torch

from psdnorm.errors import PsdnormError
from psdnorm.experiments.grid import FAILED, Runs, Unit
from psdnorm.runtime.locks import held, holder
from psdnorm.store import Store
from psdnorm.training.adabn import AdaptedCell, run_adapted
from psdnorm.training.cell import Cell, Protocol, read_json
from psdnorm.training.run import run_cell
from psdnorm.training.run_folder import DONE, write_json

FINISHED, THERE, ELSEWHERE = "done", "already there", "elsewhere"
FAILURE = "failed"
Told = Callable[[str, str], None]  # of a cell's name, and words on how it goes

# random generators, and the network that cells of one shape share, are the process's
_alone = threading.Lock()


@dataclass(frozen=True)
class Job:
    """What all cells of a grid have in common where they run; other processes can be given it.

    Attributes
    ----------
    store : Store
    runs : Runs
        The folder of the experiment.
    protocol : Protocol
    device, fast, keep, save_every_s
        As in :func:`psdnorm.training.run_cell`. BatchNorm cells keep their weights in any case:
        AdaBN may be asked for later.
    """

    store: Store
    runs: Runs
    protocol: Protocol
    device: str = "auto"
    fast: bool | str = "auto"
    keep: str = "scores"
    save_every_s: float = 300.0


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Attributes
    ----------
    cell : Cell
    status : {"done", "already there", "elsewhere", "failed"}
        "elsewhere" where another process works on it.
    reason : str
        One sentence where it failed, else "".
    seconds : float
    balanced_accuracy : float
        NaN unless it is done.
    """

    cell: Cell
    status: str
    reason: str = ""
    seconds: float = 0.0
    balanced_accuracy: float = float("nan")


def work_on(unit: Unit, job: Job, told: Told) -> Iterator[Outcome]:
    """Run the cells of a unit one after the other.

    Parameters
    ----------
    unit : tuple of Cell
        From :func:`psdnorm.experiments.grid.units_of`.
    job : Job
    told : callable
        Is told how it goes.

    Yields
    ------
    Outcome
    """
    for cell in unit:
        with _alone:
            outcome = _attempt(cell, job, told)
        yield outcome


def give_up(unit: Unit, job: Job, reason: str) -> list[Outcome]:
    """Say of the cells of a unit that were not finished why they never will be.

    Parameters
    ----------
    unit : tuple of Cell
    job : Job
    reason : str
    """
    outcomes = []
    for cell in unit:
        if job.runs.is_done(cell):
            outcomes.append(_finished(cell, job, FINISHED))
        elif holder(job.runs.folder(cell)) is not None:
            outcomes.append(Outcome(cell, ELSEWHERE))
        else:
            outcomes.append(_failed(cell, job, reason, 0.0))
    return outcomes


def _attempt(cell: Cell, job: Job, told: Told) -> Outcome:
    folder = job.runs.folder(cell)
    if job.runs.is_done(cell):
        return _finished(cell, job, THERE)
    began = time.monotonic()
    try:
        with held(folder) as free:
            if not free:
                return Outcome(cell, ELSEWHERE)
            if job.runs.is_done(cell):  # the one who held it finished it
                return _finished(cell, job, THERE)
            (folder / FAILED).unlink(missing_ok=True)
            told(cell.name, "begins")
            if not _run(cell, job, told):
                return Outcome(cell, ELSEWHERE)
        return _finished(cell, job, FINISHED)
    except PsdnormError as error:
        reason = str(error)
    except (MemoryError, torch.OutOfMemoryError) as error:
        where = "on the GPU" if isinstance(error, torch.OutOfMemoryError) else "on this machine"
        reason = f"there was not enough memory {where}"
    except Exception as error:  # one cell must not stop the others
        detail = (str(error).strip().splitlines() or [""])[0]
        reason = f"it stopped by a fault of psdnorm: {type(error).__name__} {detail:.200}"
    return _failed(cell, job, reason, time.monotonic() - began)


def _run(cell: Cell, job: Job, told: Told) -> bool:
    """Run a cell that nobody else runs; tell whether it could be."""
    folder = job.runs.folder(cell)
    if not isinstance(cell, AdaptedCell):
        run_cell(
            job.store,
            cell,
            job.protocol,
            folder,
            device=job.device,
            fast=job.fast,
            keep="weights" if cell.norm == "batch" else job.keep,
            save_every_s=job.save_every_s,
            watcher=_Telling(cell.name, told),
            lock=False,
        )
        return True
    base_folder = job.runs.folder(cell.base)
    if not job.runs.is_done(cell.base) and holder(base_folder) is not None:
        return False
    run_adapted(
        job.store,
        cell,
        job.protocol,
        folder,
        base_folder,
        device=job.device,
        fast=job.fast,
        keep=job.keep,
    )
    return True


def _finished(cell: Cell, job: Job, status: str) -> Outcome:
    done = read_json(job.runs.folder(cell) / DONE)
    accuracy = done["balanced_accuracy"]
    return Outcome(
        cell,
        status,
        seconds=done["seconds"],
        balanced_accuracy=float("nan") if accuracy is None else accuracy,
    )


def _failed(cell: Cell, job: Job, reason: str, seconds: float) -> Outcome:
    named = reason if cell.name in reason else f"{cell.name}: {reason}"
    document = {"reason": named, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    # the disk may be full, or the folder never have been made: the outcome is told all the same
    with contextlib.suppress(PsdnormError, OSError):
        job.runs.folder(cell).mkdir(parents=True, exist_ok=True)
        write_json(job.runs.folder(cell) / FAILED, document)
    return Outcome(cell, FAILURE, named, seconds)


class _Telling:
    """Puts into words how a training goes."""

    def __init__(self, name: str, told: Told) -> None:
        self._name, self._told = name, told
        self._epoch, self._n_batches = 0, 0
        self._before = ""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        self._epoch, self._n_batches = epoch, n_batches
        self._tell(f"batch {first_batch} of {n_batches}")

    def step(self, batch: int, loss: float) -> None:
        self._tell(f"batch {batch} of {self._n_batches}, loss {loss:.3f}")

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        self._before = (
            f"; epoch {self._epoch + 1}: loss {row['train_loss']:.3f}, validation "
            f"{row['validation_loss']:.3f}, balanced accuracy "
            f"{row['validation_balanced_accuracy']:.3f}"
        )

    def _tell(self, words: str) -> None:
        self._told(self._name, f"epoch {self._epoch + 1}, {words}{self._before}")
