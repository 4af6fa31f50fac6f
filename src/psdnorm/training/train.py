"""Train a run and evaluate it on the held-out cohort; interrupted runs resume."""

import contextlib
import logging
import math
import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.multiprocessing
import torch.utils.deterministic

from psdnorm.batches import Split, leave_one_dataset_out
from psdnorm.drift import measure_spread
from psdnorm.errors import ArgumentError, TrainingError
from psdnorm.evaluation import read_scores, subject_metrics
from psdnorm.functional import check_size
from psdnorm.models import Pretrained, from_pretrained
from psdnorm.runtime import (
    LOCK,
    ctrl_c_waits,
    held,
    holder,
    read_json,
    remove_leftovers,
    undisturbed,
    write_json,
)
from psdnorm.store import Store
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter
from psdnorm.training.filter_size import check_choosable, choice_for
from psdnorm.training.loop import Silent, Task, Watcher, learn
from psdnorm.training.network import build_model, check_model, network_for
from psdnorm.training.predict import (
    NightPrediction,
    NotFiniteError,
    adapted_predictions,
    finite_predictions,
    origin,
    predict_nights,
)
from psdnorm.training.run import AUTO, TMA, Protocol, Run, filter_size_of
from psdnorm.training.run_folder import (
    CHOICE,
    DONE,
    FILE,
    SCORES,
    WEIGHTS,
    State,
    Timed,
    choice_before,
    claim_folder,
    configuration,
    predicted_sequences,
    read_state,
    write_outcome,
)

if TYPE_CHECKING:
    import pandas as pd

KEEP = ("scores", "predictions", "weights")
_MOST_MEASURED = 200  # training nights: limits at 99 % need about a hundred, and each takes time


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes
    ----------
    balanced_accuracy : float
        Mean over the held-out cohort's subjects, for central epochs; NaN if none is scored.
    epochs, best_epoch, steps : int
        Epochs trained, the epoch whose weights were kept (from 0), optimizer steps.
    seconds : float
        Total over all resumed processes; one that was killed counts up to its last resume file.
    prediction_seconds : float, optional
        Part of these spent on predicting the held-out nights; None in runs that did not record it.
    nights, sequences : int, optional
        Number predicted in that time.
    filter_size_choice : dict, optional
        If the run's is "auto", the chosen filter size and the table it is based on.
    """

    run: Run
    folder: Path
    balanced_accuracy: float
    subjects: int
    epochs: int
    best_epoch: int
    steps: int
    seconds: float
    prediction_seconds: float | None = None
    nights: int | None = None
    sequences: int | None = None
    filter_size_choice: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def scores(self) -> "pd.DataFrame":
        """Counts for each held-out subject, see :mod:`psdnorm.evaluation.scores`."""
        return read_scores(self.folder / SCORES)


def train_run(
    store: Store,
    run: Run,
    protocol: Protocol | None = None,
    folder: str | os.PathLike[str] = "run",
    *,
    device: str | torch.device = "auto",
    devices: int = 1,
    fast: bool | str = "auto",
    keep: str = "scores",
    residence: str = "auto",
    save_every_s: float = 300.0,
    save_every_steps: int | None = None,
    watcher: Watcher | None = None,
    lock: bool = True,
) -> Result:
    """Train a run and evaluate it on its held-out cohort.

    If killed at any time and called again, it resumes from the last resume file; on a CPU the
    result is bitwise equal to that of an uninterrupted run. A finished run is not run again.

    Parameters
    ----------
    run : Run
        Any run except AdaBN, which is not trained.
    folder : path
        For this run only, see :mod:`psdnorm.training.run_folder`; used by one process at a time.
    devices : int
        Number of devices that share every batch, each with its own process.
    fast : {"auto", True, False}
        As in :func:`psdnorm.models.accelerate`.
    keep : {"scores", "predictions", "weights"}
        What to keep; each option includes those before it.
    residence : str
        Where the nights are stored during training, see :class:`psdnorm.batches.Loader`.
    save_every_s, save_every_steps
        Interval between resume files; one is also written at the end of every epoch.
    lock : bool
        False if the caller already holds the lock of the folder.

    Raises
    ------
    TrainingError
        The loss is not finite (the last good weights are kept), or another process is using the
        folder.
    ArgumentError
        An argument is invalid, or the folder contains another run.
    StoreError
        A night cannot be read, or the disk is full.
    """
    began = time.monotonic()
    protocol = protocol or Protocol()
    _check(run, keep, protocol, devices, save_every_steps)
    place = resolve_device(device, devices)
    split = split_of(store, run, protocol)
    check_model(run, protocol, store.layout)
    described = configuration(store, run, protocol, split)
    task = Task(
        store=store,
        train=split.train,
        validation=split.validation,
        run=run,
        protocol=protocol,
        folder=Path(folder),
        digest=described["run"],
        fast=fast,
        residence=residence,
        save_every_s=save_every_s,
        save_every_steps=save_every_steps,
        watcher=watcher or Silent(),
    )
    if _is_done(task.folder, described):
        return _finished(run, task.folder, keep)
    with _alone_in(task.folder) if lock else contextlib.nullcontext():
        if _is_done(task.folder, described):  # finished by the previous holder of the lock
            return _finished(run, task.folder, keep)
        task = _begun(task, described)
        with quiet_libraries(), reproducible(place):
            if run.norm == TMA:
                recordings, size = split.train["recording"], filter_size_of(run)
                barycenter = training_barycenter(store, recordings, size, place)
                task = replace(task, sqrt_barycenter=barycenter)
            state = read_state(task.folder, task.digest)
            if state is not None:
                began -= state.position.seconds
            if state is None or not state.position.finished:
                try:
                    if devices == 1:
                        learn(task, place)
                    else:
                        launch(learn, task, place, devices)
                except TrainingError as error:
                    raise _explained(task, error) from error
                state = read_state(task.folder, task.digest)
            assert state is not None
            _evaluate(task, state, split.test, place, keep, began)
    return _finished(run, task.folder, keep)


def run_adapted(
    store: Store,
    run: Run,
    protocol: Protocol,
    folder: Path,
    base_folder: Path,
    *,
    device: str | torch.device = "auto",
    fast: bool | str = "auto",
    keep: str = "scores",
) -> None:
    """Evaluate an AdaBN run with the weights of its base, writing the files of a trained run."""
    began = time.monotonic()
    base = run.base.name
    if not (base_folder / DONE).exists():
        raise ArgumentError(f"{run.name} adapts the network of {base}, which is not trained yet")
    trained = read_json(base_folder / DONE)
    if trained["keep"] != KEEP[-1]:
        raise ArgumentError(
            f"{run.name} needs the weights of {base}, which was finished with "
            f"keep={trained['keep']!r}: delete {base_folder} to train it again"
        )
    split = split_of(store, run, protocol)
    described = configuration(store, run, protocol, split)
    claim_folder(folder, {**described, "weights_of": base})
    remove_leftovers(folder)
    place = resolve_device(device)
    with quiet_libraries(), reproducible(place):
        network = network_for(run.base, protocol, store.layout, place, fast=fast)
        network.model.load_state_dict(from_pretrained(base_folder / WEIGHTS).state_dict())
        network.model.eval()
        nights = store, split.test, protocol
        predictions = adapted_predictions(network, *nights, run.layers, device=place)
        found = _score(folder, *nights, predictions, keep)
    found["seconds"] = time.monotonic() - began
    write_json(folder / DONE, {**trained, **found, "keep": keep})


def _check(
    run: Run, keep: str, protocol: Protocol, devices: int, save_every_steps: int | None
) -> None:
    if run.is_adapted:
        raise ArgumentError(
            f"norm is {run.norm!r}, which has no training of its own: psdnorm lodo evaluates it"
        )
    if keep not in KEEP:
        raise ArgumentError(f"keep is {keep!r}, expected one of {', '.join(KEEP)}")
    check_size("devices", devices)
    if protocol.batch_size % devices:
        raise ArgumentError(
            f"batch_size is {protocol.batch_size}, expected a multiple of the {devices} devices"
        )
    if save_every_steps is not None:
        check_size("save_every_steps", save_every_steps)


def _is_done(folder: Path, described: dict[str, Any]) -> bool:
    """Return whether a run is finished; raise if the folder is another run's."""
    if not (folder / DONE).exists():
        return False
    claim_folder(folder, described)
    return True


def _begun(task: Task, described: dict[str, Any]) -> Task:
    """Choose the filter size, if it is "auto", and claim the folder."""
    if task.run.filter_size == AUTO:
        choice = choice_before(task.folder, described)  # a resumed run keeps its choice
        if choice is None:
            choice = choice_for(task.store, task.train, task.run.norm, task.protocol.length)
        task = replace(task, choice=choice)
        described = {**described, CHOICE: choice}
    claim_folder(task.folder, described)
    remove_leftovers(task.folder)
    return task


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    with held(folder) as free:
        if not free:
            who = holder(folder)
            whose = f"process {who.pid} on {who.host}" if who else "another process"
            raise TrainingError(f"{whose} is already working in {folder}")
        yield


def _explained(task: Task, error: TrainingError) -> TrainingError:
    """Save the weights from before a failure; add to the error where they are and what to check."""
    state = read_state(task.folder, task.digest)
    if state is None:
        kept = "no weights had been saved before"
    else:
        # a separate model, as the compiled network is reused for the next run
        _save_weights(task, state, build_model(task.network_run, task.protocol, task.store.layout))
        kept = f"the last good weights are in {task.folder / WEIGHTS}"
    if not isinstance(error, NotFiniteError):
        return TrainingError(f"{error}; {kept}")
    used = (*task.train["recording"], *task.validation["recording"])
    return NotFiniteError(f"{error}; {kept}; {origin(task.store, used)}")


def _evaluate(
    task: Task, state: State, test: "pd.DataFrame", device: torch.device, keep: str, began: float
) -> None:
    """Predict the held-out cohort with the best weights, and write all results."""
    assert state.best is not None
    protocol, store = task.protocol, task.store
    network = network_for(task.network_run, protocol, store.layout, device, fast=task.fast)
    network.model.load_state_dict(state.best)
    network.model.eval()
    if task.sqrt_barycenter is not None:
        store = AlignedStore(store, task.sqrt_barycenter, filter_size_of(task.run), device)
    predictions = predict_nights(network.forward, store, test, device=device, **protocol.windows)
    found = _score(task.folder, store, test, protocol, predictions, keep)
    if keep == "weights":
        _save_weights(task, state, network.model, _training_spread(task, network.model))
    position = state.position
    done = {
        **found,
        "epochs": position.epoch,
        "best_epoch": position.best_epoch,
        "steps": position.step,
        "seconds": time.monotonic() - began,
        "keep": keep,
    }
    if task.choice is not None:
        done[CHOICE] = task.choice
    write_json(task.folder / DONE, done)


def _score(
    folder: Path,
    store: Store,
    test: "pd.DataFrame",
    protocol: Protocol,
    predictions: Iterable[NightPrediction],
    keep: str,
) -> dict[str, Any]:
    """Write the scores of predictions, and the predictions themselves if they are kept."""
    timed = Timed(finite_predictions(store, test, predictions))
    scores = write_outcome(folder, test, timed, keep=keep != "scores")
    accuracy = float(subject_metrics(scores)["balanced_accuracy"].mean())
    return {
        "balanced_accuracy": None if math.isnan(accuracy) else accuracy,
        "subjects": len(scores),
        "prediction_seconds": timed.seconds,
        "nights": len(test),
        "sequences": predicted_sequences(test, protocol),
    }


def _finished(run: Run, folder: Path, keep: str) -> Result:
    """Return the result of a finished run; raise if it kept less than requested."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
        if holder(folder) is None:  # left by a process killed while finishing
            (folder / LOCK).unlink(missing_ok=True)
    done = read_json(folder / DONE)
    kept = done.pop("keep")
    if KEEP.index(kept) < KEEP.index(keep):
        raise ArgumentError(
            f"{folder} was finished with keep={kept!r}, found keep={keep!r}: delete it to train "
            "again"
        )
    if done["balanced_accuracy"] is None:
        done["balanced_accuracy"] = math.nan
    return Result(run, folder, **done)


def _save_weights(
    task: Task, state: State, model: Pretrained, spread: dict[str, Any] | None = None
) -> None:
    """Save the best weights of a run, or the latest good ones if no epoch has ended."""
    model.load_state_dict(state.best or state.model)
    model.save_pretrained(
        task.folder / WEIGHTS,
        recipe=task.store.recipe,
        training_data=task.training_data,
        training_spread=spread,
    )


def _training_spread(task: Task, model: Pretrained) -> dict[str, Any] | None:
    """Measure the spread of the training nights, or of a subset if there are many."""
    recordings = task.train["recording"].to_numpy(object)
    n = min(len(recordings), _MOST_MEASURED)
    drawn = recordings[np.linspace(0, len(recordings) - 1, n).round().astype(int)]
    # from the unaligned store, as a night to be staged is checked before it is aligned
    return measure_spread(model, (task.store.signals(each) for each in drawn))


def split_of(store: Store, run: Run, protocol: Protocol) -> Split:
    """Return the training, validation and test set of a run; raise if one is empty."""
    check_cohorts(store, [run.hold_out])
    split = leave_one_dataset_out(
        store.index,
        run.hold_out,
        seed=run.seed,
        n_subjects=run.balanced,
        fraction=protocol.validation_fraction,
    )
    for role, rows in split._asdict().items():
        if rows.empty:
            of_them = "" if run.balanced is None else f" with balanced {run.balanced}"
            raise ArgumentError(
                f"{store.path} has no subjects left for {role} when {run.hold_out} is held out"
                f"{of_them}, expected at least two subjects of another cohort"
            )
    if run.filter_size == AUTO:
        check_choosable(store, split.train["cohort"].unique())
    return split


def check_cohorts(store: Store, hold_outs: Iterable[str]) -> None:
    """Raise if a cohort to hold out is not in the store."""
    cohorts = sorted(store.index["cohort"].unique())
    for cohort in hold_outs:
        if cohort not in cohorts:
            raise ArgumentError(f"hold_out is {cohort!r}, expected one of {', '.join(cohorts)}")


def resolve_device(device: str | torch.device, devices: int = 1) -> torch.device:
    """Return the requested device, one of ``devices``; "auto" is CUDA if available, else CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ArgumentError(f"device is {device!r}, expected 'auto', 'cpu' or 'cuda'")
    if found.type == "cpu":
        return found
    index, there = found.index or 0, torch.cuda.device_count()
    if index >= there:
        raise ArgumentError(f"device is {device!r}, found {there} CUDA devices")
    if devices > there:
        raise ArgumentError(f"devices is {devices}, found {there} CUDA devices")
    return torch.device("cuda", index)


def launch(
    work: Callable[[Task, torch.device, int, int], None],
    task: Task,
    device: torch.device,
    devices: int,
) -> None:
    """Run a task in a process group with one process per device."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/processes"
        threads = max(1, torch.get_num_threads() // devices)
        arguments = work, task, device.type, devices, meeting, threads
        try:
            with ctrl_c_waits():  # inherited by the processes until they start to work
                processes = torch.multiprocessing.start_processes(
                    _work_as_one, arguments, devices, join=False, start_method="spawn"
                )
            try:
                while not processes.join():
                    pass
            except BaseException:
                with undisturbed():
                    for process in processes.processes:
                        process.kill()
                        process.join()
                raise
        except torch.multiprocessing.ProcessRaisedException as error:
            # errors of the processes arrive as text
            kind, _, sentence = str(error).strip().splitlines()[-1].partition(": ")
            raised = NotFiniteError if kind.endswith(NotFiniteError.__name__) else TrainingError
            is_ours = kind.startswith("psdnorm.")
            raise raised(sentence if is_ours else f"{kind}: {sentence}") from error
        except torch.multiprocessing.ProcessExitedException as error:
            raise TrainingError(f"a process of the training died: {error}") from error


def _work_as_one(
    rank: int,
    work: Callable[[Task, torch.device, int, int], None],
    task: Task,
    kind: str,
    devices: int,
    meeting: str,
    threads: int,
) -> None:
    if hasattr(signal, "pthread_sigmask"):
        # torch uses it to end a process whose parent was killed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    torch.set_num_threads(threads)
    device = torch.device("cuda", rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo", init_method=meeting, rank=rank, world_size=devices
    )
    with quiet_libraries(), reproducible(device):
        work(task, device, rank, devices)
    torch.distributed.destroy_process_group()


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence messages of torch's launcher and compiler that do not help users."""
    logger = logging.getLogger("torch.multiprocessing.spawn")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for module in ("torch._inductor", "torch._dynamo", "tensorboard"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Preserve the caller's random generators; on a CPU, compute deterministically."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 (the loop seeds it)
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fills = memory.fill_uninitialized_memory
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if device.type == "cpu":
                torch.use_deterministic_algorithms(True)
                memory.fill_uninitialized_memory = False
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
        memory.fill_uninitialized_memory = fills
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
