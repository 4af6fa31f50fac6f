"""Where the cells of a grid run: in this process, in several, one per GPU, or on a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any

import torch

from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import Unit
from psdnorm.experiments.work import FAILURE, Job, Outcome, Told, give_up, work_on
from psdnorm.runtime.parallel import begin_worker, ctrl_c_waits, on_dask, undisturbed
from psdnorm.training.cell import Cell

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

    Parameters
    ----------
    units : sequence of tuple of Cell
    job : Job
    jobs : int
        Processes at a time; 1 is this one. They share the processor's threads.
    gpus : sequence of str
        From :func:`visible_gpus`: a process for each, instead.
    dask : str, optional
        Address of a scheduler whose workers do it instead; they must see the same files under the
        same paths.
    told : callable
        Of a cell's name and words on how it goes; a Dask cluster tells nothing.

    Yields
    ------
    Outcome
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
        for outcomes in on_dask(partial(_on_worker, job=job), units, dask, lost):
            yield from outcomes
    elif gpus or jobs > 1:
        each: list[str | None] = [*gpus] or [None] * jobs
        seen: set[Cell] = set()
        for outcome in _in_processes(units, job, each[: len(units)], told):
            if outcome.cell not in seen:  # a unit that was taken up again has cells that are done
                yield outcome
            seen.add(outcome.cell)
    else:
        for unit in units:
            yield from work_on(unit, job, told)


def visible_gpus(wanted: int | None = None) -> list[str]:
    """Return the GPUs that this process may use, by the names of ``CUDA_VISIBLE_DEVICES``.

    Parameters
    ----------
    wanted : int, optional
        The first so many; all if it is not given.
    """
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
