"""Execute a grid of runs: in this process, in several, or on a Dask cluster."""

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from psdnorm.errors import ArgumentError, PsdnormError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate, read_scores, subject_metrics
from psdnorm.experiments.estimate import Amounts
from psdnorm.experiments.grid import FAILED, ExperimentFolder, Unit, units_of
from psdnorm.runtime import (
    ProcessBrokenError,
    check_scheduler,
    held,
    holder,
    plural,
    read_json,
    run_all,
    stream_all,
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

FINISHED, THERE, ELSEWHERE = "done", "already there", "elsewhere"
FAILURE = "failed"
OnProgress = Callable[[str, str], None]  # called with the name of a run and a message


@dataclass(frozen=True)
class Job:
    """The settings that all runs of a grid share; picklable."""

    store: Store
    runs: ExperimentFolder
    protocol: Protocol
    device: str = "auto"
    fast: bool | str = "auto"
    keep: str = "scores"  # "batch" runs always keep their weights, as AdaBN may be run later
    save_every_s: float = 300.0


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of executing a run."""

    run: Run
    status: str  # FINISHED, THERE, FAILURE or, if another process is working on it, ELSEWHERE
    reason: str = ""  # one sentence if it failed
    seconds: float = 0.0
    balanced_accuracy: float = math.nan


def cohorts_to_hold_out(store: Store, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the cohorts to hold out in turn, by default all cohorts of the store."""
    cohorts = sorted(store.index["cohort"].unique())
    if len(cohorts) < 2:
        raise ArgumentError(
            f"{store.path} has {plural(len(cohorts), 'cohort')}, expected at least two: one is "
            "held out, the others are the training set"
        )
    check_cohorts(store, wanted)
    return tuple(wanted) or tuple(cohorts)


def run_grid(
    store: Store,
    grid: Sequence[Run],
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
    on_progress: OnProgress = lambda name, message: None,
) -> Iterator[RunOutcome]:
    """Execute the runs of a grid: finished ones are kept, interrupted ones resume.

    If a run fails, the reason is written to its folder, the others continue, and it is retried the
    next time.

    Runs are added to those already in the folder. Closing the iterator, or Ctrl-C, interrupts the
    runs in progress, except those on a Dask cluster. Invalid arguments raise before anything is
    written.

    Parameters
    ----------
    device, fast, keep, save_every_s
        As in :func:`psdnorm.training.train_run`.
    jobs : int
        Number of parallel processes, which share the CPU threads; 1 uses the current process.
    gpus : sequence of str
        From :func:`visible_gpus`: use one process per GPU instead.
    dask : str, optional
        Address of a Dask scheduler whose workers are used instead, with the same files and paths.
    on_progress : callable
        Called with the name of a run and a message; not called on a Dask cluster.
    """
    protocol = protocol or Protocol()
    runs = runs if isinstance(runs, ExperimentFolder) else ExperimentFolder(runs)
    # a cluster's devices are not this machine's
    check_grid(store, grid, protocol, runs, device=None if dask else device, keep=keep)
    if dask is not None and not all(map(runs.is_done, grid)):
        check_scheduler(dask)
    amounts = Amounts(store, protocol)
    runs.extend(store, protocol, [amounts.entry(run) for run in grid])
    job = Job(store, runs, protocol, device, fast, keep, save_every_s)
    return run_units(units_of(grid), job, jobs=jobs, gpus=gpus, dask=dask, on_progress=on_progress)


def run_units(
    units: Sequence[Unit],
    job: Job,
    *,
    jobs: int = 1,
    gpus: Sequence[str] = (),
    dask: str | None = None,
    on_progress: OnProgress = lambda name, message: None,
) -> Iterator[RunOutcome]:
    """Execute units of work, see :func:`run_grid`."""
    waiting = [unit for unit in units if not all(map(job.runs.is_done, unit))]
    here = [*units] if jobs == 1 and not gpus and dask is None else []
    for unit in here or [unit for unit in units if unit not in waiting]:
        for run in unit:
            yield attempt(run, job, on_progress)
    if here or not waiting:
        return
    if dask is not None:
        lost = partial(_lost, job)
        for outcomes in run_all(partial(_all_of, job), waiting, dask=dask, lost=lost):
            yield from outcomes
        return
    places: list[Any] = [*gpus] or [None] * jobs
    places = places[: len(waiting)]
    threads = max(1, torch.get_num_threads() // len(places))
    seen: set[Run] = set()
    found: Any = stream_all(
        partial(_send_all, job),
        waiting,
        places,
        lost=partial(_lost_processes, job),
        begin=partial(_begin, threads),
        retry_alone=False,
        finish_item=False,
    )
    with contextlib.closing(found):
        for each in found:
            if not isinstance(each, RunOutcome):
                on_progress(*each)
            elif each.run not in seen:  # a retried unit may contain finished runs
                seen.add(each.run)
                yield each


# random generators and the cached network are shared within the process
_alone = threading.Lock()


def attempt(run: Run, job: Job, on_progress: OnProgress) -> RunOutcome:
    """Execute a run unless it is finished or running elsewhere; failures are returned."""
    with _alone:
        folder = job.runs.folder(run)
        if job.runs.is_done(run):
            return _finished(run, job, THERE)
        began = time.monotonic()
        try:
            with held(folder) as free:
                base_folder = job.runs.folder(run.base)
                needed = run.is_adapted and not job.runs.is_done(run.base)
                if not free or (needed and holder(base_folder) is not None):
                    return RunOutcome(run, ELSEWHERE)
                if job.runs.is_done(run):  # finished by the previous holder of the lock
                    return _finished(run, job, THERE)
                (folder / FAILED).unlink(missing_ok=True)
                on_progress(run.name, "begins")
                given = job.store, run, job.protocol, folder
                options: dict[str, Any] = {"device": job.device, "fast": job.fast}
                if run.is_adapted:
                    run_adapted(*given, base_folder, keep=job.keep, **options)
                else:
                    options["keep"] = "weights" if run.norm == "batch" else job.keep
                    options |= {"save_every_s": job.save_every_s, "lock": False}
                    train_run(*given, watcher=_Messages(run.name, on_progress), **options)
            return _finished(run, job, FINISHED)
        except PsdnormError as error:
            reason = str(error)
        except (MemoryError, torch.OutOfMemoryError) as error:
            where = "on the GPU" if isinstance(error, torch.OutOfMemoryError) else "on this machine"
            reason = f"there was not enough memory {where}"
        except Exception as error:  # one run must not stop the others
            detail = (str(error).strip().splitlines() or [""])[0]
            reason = f"internal error, a bug in psdnorm: {type(error).__name__} {detail:.200}"
        return _failed(run, job, reason, time.monotonic() - began)


def _finished(run: Run, job: Job, status: str) -> RunOutcome:
    done = read_json(job.runs.folder(run) / DONE)
    accuracy = done["balanced_accuracy"]
    return RunOutcome(run, status, "", done["seconds"], math.nan if accuracy is None else accuracy)


def _failed(run: Run, job: Job, reason: str, seconds: float = 0.0) -> RunOutcome:
    named = reason if run.name in reason else f"{run.name}: {reason}"
    document = {"reason": named, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    # the disk may be full or the folder missing: the outcome is still returned
    with contextlib.suppress(PsdnormError, OSError):
        job.runs.folder(run).mkdir(parents=True, exist_ok=True)
        write_json(job.runs.folder(run) / FAILED, document)
    return RunOutcome(run, FAILURE, named, seconds)


class _Messages:
    """A watcher that reports the progress of a training as messages."""

    def __init__(self, name: str, on_progress: OnProgress) -> None:
        self._name, self._on_progress = name, on_progress
        self._epoch, self._n_batches = 0, 0
        self._before = ""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        self._epoch, self._n_batches = epoch, n_batches
        self._say(f"batch {first_batch} of {n_batches}")

    def step(self, batch: int, loss: float) -> None:
        self._say(f"batch {batch} of {self._n_batches}, loss {loss:.3f}")

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        self._before = (
            f"; epoch {self._epoch + 1}: loss {row['train_loss']:.3f}, validation "
            f"{row['validation_loss']:.3f}, balanced accuracy "
            f"{row['validation_balanced_accuracy']:.3f}"
        )

    def _say(self, message: str) -> None:
        self._on_progress(self._name, f"epoch {self._epoch + 1}, {message}{self._before}")


def _all_of(job: Job, unit: Unit) -> list[RunOutcome]:
    return [attempt(run, job, lambda name, message: None) for run in unit]


def _lost(job: Job, unit: Unit, reason: str) -> list[RunOutcome]:
    """Return the outcomes of a unit that cannot be finished."""
    outcomes = []
    for run in unit:
        if job.runs.is_done(run):
            outcomes.append(_finished(run, job, FINISHED))
        elif holder(job.runs.folder(run)) is not None:
            outcomes.append(RunOutcome(run, ELSEWHERE))
        else:
            outcomes.append(_failed(run, job, reason))
    return outcomes


def _lost_processes(job: Job, unit: Unit, reasons: Sequence[str]) -> list[RunOutcome]:
    said = [words for words in reasons if words]
    why = "perhaps out of memory"
    if said:
        times = "each time" if len(said) == len(reasons) else "once"
        why = f"{times} as its GPU was lost ({said[-1]})"
    return _lost(job, unit, f"its process died twice, {why}")


def _begin(threads: int, gpu: str | None) -> None:
    """Initialize a worker process, with only ``gpu`` visible unless it is None."""
    signal.signal(signal.SIGTERM, _leave)
    torch.set_num_threads(threads)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # takes effect, as CUDA is not initialised yet


def _send_all(job: Job, unit: Unit, send: Callable[[Any], None]) -> None:
    """Send messages and outcomes of a unit."""
    for run in unit:
        outcome = attempt(run, job, lambda name, message: send((name, message)))
        if outcome.status == FAILURE and not _gpu_answers():
            raise ProcessBrokenError(outcome.reason)
        send(outcome)


def _leave(*_: object) -> None:
    # under NVIDIA's MPS, a process killed in the middle of a kernel also kills its neighbours
    _gpu_answers()
    os._exit(0)


def _gpu_answers() -> bool:
    """Synchronize with the GPU, if this process uses one; return whether that succeeded."""
    if torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
    return True


def visible_gpus(wanted: int | None = None) -> list[str]:
    """Return the GPUs visible to this process, named as in ``CUDA_VISIBLE_DEVICES``."""
    count = torch.cuda.device_count()
    if not count or (wanted is not None and wanted > count):
        raise ArgumentError(
            f"{'a GPU was' if wanted is None else f'{wanted} GPUs were'} asked for, found {count} "
            "CUDA devices"
        )
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(count)] if named is None else named.split(",")
    return [name.strip() for name in names][: count if wanted is None else wanted]


def check_grid(
    store: Store,
    grid: Sequence[Run],
    protocol: Protocol,
    runs: ExperimentFolder,
    *,
    device: str | None = None,
    keep: str = "scores",
) -> None:
    """Raise if a grid cannot be executed as requested; nothing is written."""
    if keep not in KEEP:
        raise ArgumentError(f"keep is {keep!r}, expected one of {', '.join(KEEP)}")
    done = [run for run in grid if runs.is_done(run)]
    kept = {run: read_json(runs.folder(run) / DONE)["keep"] for run in done}
    less = [run for run in done if KEEP.index(kept[run]) < KEEP.index(keep)]
    if less:
        raise ArgumentError(
            f"keep is {keep!r}, but {plural(len(less), 'finished run')} in {runs.path} kept less, "
            f"such as {less[0].name} with {kept[less[0]]!r}: delete their folders to run them again"
        )
    cohorts_to_hold_out(store, sorted({run.hold_out for run in grid}))
    runs.check(store, protocol)
    if device is not None:
        resolve_device(device)
    left = [run for run in grid if run not in kept]
    shapes = {(r.model, r.norm, r.filter_size, r.norm_depth): r for r in (r.base for r in left)}
    for run in shapes.values():
        check_model(run, protocol, store.layout)
    splits = {(r.hold_out, r.balanced, r.seed, r.filter_size == AUTO): r for r in left}
    for run in splits.values():
        split_of(store, run, protocol)


def means(
    runs: ExperimentFolder, grid: Sequence[Run], metric: str = "balanced_accuracy"
) -> dict[str, dict[str, tuple[float, float]]]:
    """Average the scores of the finished runs of a grid, see :func:`psdnorm.evaluation.aggregate`.

    Returns mean and standard deviation over seeds, by label, in the order of the grid, and by
    "Mean(Dataset)" and "Mean(Subject)"; NaN if no seed has all cohorts of the grid.
    """
    tables, cohorts = [], dict[str, set[str]]()
    for run in grid:
        cohorts.setdefault(run.label, set()).add(run.hold_out)
        if runs.is_done(run):
            metrics = subject_metrics(read_scores(runs.folder(run) / SCORES))
            own = metrics[["cohort", "subject", metric]]
            tables.append(own.assign(label=run.label, seed=run.seed))
    if not tables:
        return {}
    import pandas as pd

    table = aggregate(pd.concat(tables), by=["label"])
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name in cohorts:
        rows = table[table["label"] == name].set_index("dataset")
        for mean in (MEAN_DATASET, MEAN_SUBJECT) if len(rows) else ():
            row = rows.loc[mean]
            is_whole = row["datasets"] == len(cohorts[name])
            figures = (float(row["mean"]), float(row["std"])) if is_whole else (math.nan, math.nan)
            found.setdefault(name, {})[mean] = figures
    return found
