"""Execute a grid of runs: here, in processes, or on a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

import torch

from psdnorm.errors import ArgumentError, PsdnormError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate, read_scores, subject_metrics
from psdnorm.experiments.estimate import Amounts
from psdnorm.experiments.grid import FAILED, ExperimentFolder, Unit, units_of
from psdnorm.runtime import (
    begin_worker,
    check_scheduler,
    ctrl_c_waits,
    held,
    holder,
    read_json,
    run_all,
    undisturbed,
    write_json,
)
from psdnorm.store import Store
from psdnorm.training import (
    AUTO,
    DONE,
    KEEP,
    SCORES,
    Protocol,
    Run,
    check_cohorts,
    check_model,
    resolve_device,
    run_adapted,
    split_of,
    train_run,
)

if TYPE_CHECKING:
    import pandas as pd

FINISHED, THERE, ELSEWHERE = "done", "already there", "elsewhere"
FAILURE = "failed"
Told = Callable[[str, str], None]  # of a cell's name, and words on how it goes

# random generators, and the network that cells of one shape share, are the process's
_alone = threading.Lock()


@dataclass(frozen=True)
class Job:
    """What all cells of a grid have in common where they run; other processes can be given it."""

    store: Store
    runs: ExperimentFolder
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
    cell : Run
    status : {"done", "already there", "elsewhere", "failed"}
        "elsewhere" where another process works on it.
    reason : str
        One sentence where it failed, else "".
    seconds : float
    balanced_accuracy : float
        NaN unless it is done.
    """

    cell: Run
    status: str
    reason: str = ""
    seconds: float = 0.0
    balanced_accuracy: float = float("nan")


def work_on(unit: Unit, job: Job, told: Told) -> Iterator[Outcome]:
    """Run the cells of a unit one after the other."""
    for cell in unit:
        with _alone:
            outcome = _attempt(cell, job, told)
        yield outcome


def give_up(unit: Unit, job: Job, reason: str) -> list[Outcome]:
    """Say of the cells of a unit that were not finished why they never will be."""
    outcomes = []
    for cell in unit:
        if job.runs.is_done(cell):
            outcomes.append(_finished(cell, job, FINISHED))
        elif holder(job.runs.folder(cell)) is not None:
            outcomes.append(Outcome(cell, ELSEWHERE))
        else:
            outcomes.append(_failed(cell, job, reason, 0.0))
    return outcomes


def _attempt(cell: Run, job: Job, told: Told) -> Outcome:
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


def _run(cell: Run, job: Job, told: Told) -> bool:
    """Run a cell that nobody else runs; tell whether it could be."""
    folder = job.runs.folder(cell)
    if not cell.is_adapted:
        train_run(
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


def _finished(cell: Run, job: Job, status: str) -> Outcome:
    done = read_json(job.runs.folder(cell) / DONE)
    accuracy = done["balanced_accuracy"]
    return Outcome(
        cell,
        status,
        seconds=done["seconds"],
        balanced_accuracy=float("nan") if accuracy is None else accuracy,
    )


def _failed(cell: Run, job: Job, reason: str, seconds: float) -> Outcome:
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


_DEATHS = 2  # of processes with the same unit, after which it is not tried again
_LEAVE_S = 10  # in which a process that is asked to end must have ended
Deaths = dict[Unit, list[str]]  # last words of the processes that died with a unit


def run_units(
    units: Sequence[Unit],
    job: Job,
    *,
    jobs: int = 1,
    gpus: Sequence[str] = (),
    dask: str | None = None,
    told: Told = lambda name, words: None,
) -> Iterator[Outcome]:
    """Run units of work and yield what became of each cell, as it comes.

    Cells in work are given up, and can be resumed, when the iterator is closed or interrupted;
    only a Dask cluster goes on with those that it has begun.
    """
    gone = {unit for unit in units if all(map(job.runs.is_done, unit))}
    for unit in units:
        if unit in gone:  # no process has to be started for it
            yield from work_on(unit, job, told)
    units = [unit for unit in units if unit not in gone]
    if not units:
        return
    if dask is not None:
        lost = partial(_lost, job)
        for outcomes in run_all(partial(_on_worker, job=job), units, dask=dask, lost=lost):
            yield from outcomes
    elif gpus or jobs > 1:
        each: list[str | None] = [*gpus] or [None] * jobs
        seen: set[Run] = set()
        for outcome in _in_processes(units, job, each[: len(units)], told):
            if outcome.cell not in seen:  # a unit that was taken up again has cells that are done
                yield outcome
            seen.add(outcome.cell)
    else:
        for unit in units:
            yield from work_on(unit, job, told)


def visible_gpus(wanted: int | None = None) -> list[str]:
    """Return the GPUs that this process may use, by the names of ``CUDA_VISIBLE_DEVICES``."""
    count = torch.cuda.device_count()
    if not count or (wanted is not None and wanted > count):
        raise ArgumentError(
            f"{'a GPU was' if wanted is None else f'{wanted} GPUs were'} asked for, found {count} "
            "CUDA devices"
        )
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if named is None else named.split(",")
    return [name.strip() for name in names][: count if wanted is None else wanted]


def _on_worker(unit: Unit, job: Job) -> list[Outcome]:
    return list(work_on(unit, job, lambda name, words: None))


def _lost(job: Job, unit: Unit, reason: str) -> list[Outcome]:
    return give_up(unit, job, reason)


class _Worker:
    """A process that runs one unit at a time, and a new one where it dies.

    Unlike in a pool of the standard library, a death is that of one process alone: cells take long.
    """

    def __init__(self, job: Job, gpu: str | None, threads: int) -> None:
        self._arguments = job, gpu, threads
        self._process: Any = None
        self.unit: Unit | None = None
        self.last_words = ""  # of the process, on why it dies

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        with ctrl_c_waits():
            self.pipe, theirs = context.Pipe()
            process: Any = context.Process(target=_serve, args=(theirs, *self._arguments))
            process.start()
            self._process = process  # one that could not be started cannot be ended
            theirs.close()  # or its end would not be seen when the process dies

    def give(self, unit: Unit) -> None:
        self.unit = unit
        with contextlib.suppress(OSError):  # it died: the next look at the pipe says so
            self.pipe.send(unit)

    def ask_to_end(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def end(self) -> None:
        if self._process is not None:
            self.ask_to_end()
            self._process.join(_LEAVE_S)
            self._process.kill()
            self._process.join()
            self.pipe.close()


def _serve(pipe: Any, job: Job, gpu: str | None, threads: int) -> None:
    """Do what comes through the pipe; answer with words, outcomes, and None after a unit.

    A string is the last that is heard of the process.
    """
    begin_worker()
    signal.signal(signal.SIGTERM, _leave)
    torch.set_num_threads(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # nothing has asked for a GPU before
    while True:
        for outcome in work_on(pipe.recv(), job, lambda *words: pipe.send(words)):
            if outcome.status == FAILURE and not _gpu_answers():
                pipe.send(outcome.reason)
                os._exit(1)  # whatever came next would fail too: a new process tries once more
            pipe.send(outcome)
        pipe.send(None)


def _leave(*_: object) -> None:
    """End this process, but not while its GPU is at work.

    Where processes share a GPU by NVIDIA's MPS, one that is killed in the midst of a kernel takes
    those of its neighbours down with it.
    """
    _gpu_answers()
    os._exit(0)


def _gpu_answers() -> bool:
    """Wait for the GPU, if this process uses one; tell whether that was possible."""
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
    return True


def _in_processes(
    units: Sequence[Unit], job: Job, gpus: Sequence[str | None], told: Told
) -> Iterator[Outcome]:
    threads = max(1, torch.get_num_threads() // len(gpus))
    waiting = deque(units)
    deaths: Deaths = {unit: [] for unit in units}
    workers = [_Worker(job, gpu, threads) for gpu in gpus]
    try:
        for worker in workers:
            worker.start()
        while waiting or any(worker.unit for worker in workers):
            for worker in workers:
                if worker.unit is None and waiting:
                    worker.give(waiting.popleft())
            busy: dict[Any, _Worker] = {w.pipe: w for w in workers if w.unit is not None}
            for pipe in connection.wait(list(busy)):
                yield from _heard(busy[pipe], job, waiting, deaths, told)
    finally:
        with undisturbed():
            for worker in workers:
                worker.ask_to_end()  # all at once, then one after the other is waited for
            for worker in workers:
                worker.end()


def _heard(
    worker: _Worker, job: Job, waiting: deque[Unit], deaths: Deaths, told: Told
) -> Iterator[Outcome]:
    """Take one message from a worker, or notice that it died."""
    unit = worker.unit
    assert unit is not None
    try:
        message = worker.pipe.recv()
    except (EOFError, OSError):
        deaths[unit].append(worker.last_words)
        worker.end()
        worker.start()
        worker.unit, worker.last_words = None, ""
        if len(deaths[unit]) < _DEATHS:
            waiting.appendleft(unit)
        else:
            yield from give_up(unit, job, f"its process died twice, {_why(deaths[unit])}")
        return
    if message is None:
        worker.unit = None
    elif isinstance(message, Outcome):
        yield message
    elif isinstance(message, str):
        worker.last_words = message
    else:
        told(*message)


def _why(last_words: Sequence[str]) -> str:
    said = [words for words in last_words if words]
    if not said:
        return "perhaps for want of memory"
    times = "each time" if len(said) == len(last_words) else "once"
    return f"{times} as its GPU was lost ({said[-1]})"


def cohorts_to_hold_out(store: Store, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the cohorts to hold out one after the other; refuse those that are not there."""
    cohorts = sorted(store.index["cohort"].unique())
    if len(cohorts) < 2:
        raise ArgumentError(
            f"{store.path} has {len(cohorts)} cohort{'s' * (len(cohorts) != 1)}, expected two at "
            "least: one is held out, the others train"
        )
    check_cohorts(store, wanted)
    return tuple(wanted) or tuple(cohorts)


def run_grid(
    store: Store,
    cells: Sequence[Run],
    protocol: Protocol | None = None,
    runs: ExperimentFolder | str | os.PathLike[str] = "runs",
    *,
    device: str = "auto",
    fast: bool | str = "auto",
    keep: str = "scores",
    jobs: int = 1,
    gpus: Sequence[str] = (),
    dask: str | None = None,
    save_every_s: float = 300.0,
    told: Told = lambda name, words: None,
) -> Iterator[Outcome]:
    """Run the cells of a grid: what is finished stays, what was interrupted goes on.

    A cell that fails leaves its reason in its folder and does not stop the others; it is tried
    again the next time.

    Parameters
    ----------
    store : Store
    cells : sequence of Run
        From :func:`psdnorm.experiments.grid.grid_of`.
    protocol : Protocol, optional
    runs : ExperimentFolder or path
        The folder of the experiment; one that has other cells gets these besides.
    device, fast, keep, save_every_s
        As in :func:`psdnorm.training.train_run`.
    jobs, gpus, dask, told
        Where it runs, see :func:`psdnorm.experiments.execute.run_units`.

    Yields
    ------
    Outcome
        One for each cell, as they come.

    Raises
    ------
    ArgumentError
        Before anything is written, see :func:`check_grid`; or if no scheduler answers that some
        cell needs.
    """
    protocol = protocol or Protocol()
    runs = runs if isinstance(runs, ExperimentFolder) else ExperimentFolder(runs)
    # a cluster's devices are not this machine's
    check_grid(store, cells, protocol, runs, device=None if dask else device, keep=keep)
    if dask is not None and not all(map(runs.is_done, cells)):
        check_scheduler(dask)
    amounts = Amounts(store, protocol)
    runs.extend(store, protocol, [amounts.entry(cell) for cell in cells])
    job = Job(store, runs, protocol, device, fast, keep, save_every_s)
    return run_units(units_of(cells), job, jobs=jobs, gpus=gpus, dask=dask, told=told)


def check_grid(
    store: Store,
    cells: Sequence[Run],
    protocol: Protocol,
    runs: ExperimentFolder,
    *,
    device: str | None = None,
    keep: str = "scores",
) -> None:
    """Refuse a grid that cannot be run as it is asked for; nothing is written.

    That is: a folder of other settings, finished cells that kept less, cohorts that are not there,
    a device that this machine has not, and cells whose network cannot be built or run or that leave
    nobody to learn from.
    """
    check_keep(runs, cells, keep)
    cohorts_to_hold_out(store, sorted({cell.hold_out for cell in cells}))
    runs.check(store, protocol)
    if device is not None:
        resolve_device(device)
    left = [cell for cell in cells if not runs.is_done(cell)]
    trained = (run.base for run in left)
    shapes = {(c.model, c.norm, c.filter_size, c.norm_depth): c for c in trained}
    for cell in shapes.values():
        check_model(cell, protocol, store.layout)
    splits = {(c.hold_out, c.balanced, c.seed, c.filter_size == AUTO): c for c in left}
    for cell in splits.values():
        split_of(store, cell, protocol)


def check_keep(runs: ExperimentFolder, cells: Sequence[Run], keep: str) -> None:
    """Refuse to keep more than finished cells did: they are not run again."""
    if keep not in KEEP:
        raise ArgumentError(f"keep is {keep!r}, expected one of {', '.join(KEEP)}")
    less = []
    for cell in cells:
        if runs.is_done(cell):
            kept = read_json(runs.folder(cell) / DONE)["keep"]
            if KEEP.index(kept) < KEEP.index(keep):
                less.append((cell, kept))
    if less:
        cell, kept = less[0]
        raise ArgumentError(
            f"keep is {keep!r}, but {len(less)} finished cells in {runs.path} kept less, such as "
            f"{cell.name} with {kept!r}: delete their folders to run them again"
        )


def means(
    runs: ExperimentFolder, cells: Sequence[Run], metric: str = "balanced_accuracy"
) -> dict[str, dict[str, tuple[float, float]]]:
    """Average what finished cells came to, see :func:`psdnorm.evaluation.aggregate`.

    Parameters
    ----------
    runs : ExperimentFolder
    cells : sequence of Run
        Those that are not finished are left out.
    metric : str

    Returns
    -------
    dict of str to dict
        By label, in the order of ``cells``: mean and standard deviation over seeds, by
        "Mean(Dataset)" and "Mean(Subject)". NaN where no seed has all cohorts of the grid.
    """
    tables = [_scored(runs, cell, metric) for cell in cells if runs.is_done(cell)]
    if not tables:
        return {}
    import pandas as pd

    cohorts = {cell.label: set[str]() for cell in cells}
    for cell in cells:
        cohorts[cell.label].add(cell.hold_out)
    table = aggregate(pd.concat(tables), by=["label"])
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name in cohorts:
        rows = table[table["label"] == name].set_index("dataset")
        for mean in (MEAN_DATASET, MEAN_SUBJECT) if len(rows) else ():
            row = rows.loc[mean]
            whole = row["datasets"] == len(cohorts[name])
            figures = (float(row["mean"]), float(row["std"]))
            found.setdefault(name, {})[mean] = figures if whole else (float("nan"),) * 2
    return found


def _scored(runs: ExperimentFolder, cell: Run, metric: str) -> "pd.DataFrame":
    scores = subject_metrics(read_scores(runs.folder(cell) / SCORES))
    return scores[["cohort", "subject", metric]].assign(label=cell.label, seed=cell.seed)
