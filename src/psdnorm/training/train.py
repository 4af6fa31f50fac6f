"""One cell, from a store to scores: trained, or taken up where it stopped, then evaluated once."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from psdnorm.batches import Split, leave_one_dataset_out
from psdnorm.drift import measure_spread
from psdnorm.errors import ArgumentError, TrainingError
from psdnorm.evaluation import read_scores, subject_metrics
from psdnorm.functional import check_size
from psdnorm.models import Pretrained
from psdnorm.runtime import LOCK, held, holder, read_json, remove_leftovers, write_json
from psdnorm.store import Store
from psdnorm.training import run_folder as records
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter
from psdnorm.training.filter_size import check_choosable, choice_for
from psdnorm.training.finite import NotFiniteError, finite_predictions, origin
from psdnorm.training.loop import Silent, Task, Watcher, learn
from psdnorm.training.network import Network, build_model, check_model, network_for
from psdnorm.training.predict import predict_nights
from psdnorm.training.process import launch, quiet_libraries, reproducible, resolve_device
from psdnorm.training.run import AUTO, TMA, Protocol, Run, filter_size_of
from psdnorm.training.run_folder import FILE, State, read_state

if TYPE_CHECKING:
    import pandas as pd

KEEP = ("scores", "predictions", "weights")
_MOST_MEASURED = 200  # training nights: limits at 99 % need some hundred, and each takes time


@dataclass(frozen=True)
class Result:
    """What came of a cell.

    Attributes
    ----------
    cell : Run
    folder : Path
    balanced_accuracy : float
        Mean over the subjects of the held-out cohort, of central epochs; NaN if none is scored.
    subjects : int
        Held-out subjects.
    epochs, best_epoch, steps : int
        Epochs trained, the one whose weights were kept (from 0), steps taken.
    seconds : float
        Of all processes that worked on it; what a killed one did after its last resume file is
        not counted.
    prediction_seconds : float, optional
        Of these, what the prediction of the held-out nights took; None in a run of psdnorm before
        it was recorded.
    nights, sequences : int, optional
        That were predicted then.
    filter_size_choice : dict, optional
        What :meth:`psdnorm.training.filter_size.Choice.to_json` says, where the cell's is "auto".
    """

    cell: Run
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
        """Counts per held-out subject, see :mod:`psdnorm.evaluation.scores`."""
        return read_scores(self.folder / records.SCORES)


def train_run(
    store: Store,
    cell: Run,
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
    """Train a cell and evaluate it on the cohort that it holds out.

    Killed at any moment and called again, it goes on from the last resume file; on a CPU it ends
    bit-equal to a run that was never stopped. A finished cell is not run again.

    Parameters
    ----------
    store : Store
    cell : Run
    protocol : Protocol, optional
    folder : path
        Of this run alone, see :mod:`psdnorm.training.run_folder`; one process at a time.
    device : str or torch.device
        "auto" takes a CUDA device where there is one.
    devices : int
        Several of them share every batch, each in a process of its own.
    fast : {"auto", True, False}
        As in :func:`psdnorm.models.accelerate`.
    keep : {"scores", "predictions", "weights"}
        What to keep: each one keeps those before it too.
    residence : str
        Where the nights are meanwhile, see :class:`psdnorm.batches.Loader`.
    save_every_s : float
        Seconds between resume files; there is one at the end of every epoch, too.
    save_every_steps : int, optional
        Steps between them.
    watcher : Watcher, optional
        Is told how it goes, such as :class:`psdnorm.training.Bars`.
    lock : bool
        False where the caller holds the lock of the folder.

    Returns
    -------
    Result

    Raises
    ------
    TrainingError
        The loss is not finite; the last good weights are kept. Or another process works in the
        folder.
    ArgumentError
        Arguments that do not fit, or a folder that holds another run.
    StoreError
        A night that cannot be read, or a disk that is full.
    """
    began = time.monotonic()
    protocol = protocol or Protocol()
    _check(keep, protocol, devices, save_every_steps)
    place = resolve_device(device, devices)
    split = split_of(store, cell, protocol)
    check_model(cell, protocol, store.layout)
    described = records.configuration(store, cell, protocol, split)
    task = Task(
        store=store,
        train=split.train,
        validation=split.validation,
        cell=cell,
        protocol=protocol,
        folder=Path(folder),
        run=described["run"],
        fast=fast,
        residence=residence,
        save_every_s=save_every_s,
        save_every_steps=save_every_steps,
        watcher=watcher or Silent(),
    )
    if not _is_done(task.folder, described):
        with _alone_in(task.folder) if lock else contextlib.nullcontext():
            if not _is_done(task.folder, described):  # whoever held the lock may have finished it
                if cell.filter_size == AUTO:
                    task = _with_choice(task, described)
                    described[records.CHOICE] = task.choice
                records.claim_folder(task.folder, described)
                remove_leftovers(task.folder)
                with quiet_libraries(), reproducible(place):
                    _run(task, split, place, devices, keep, began)
    return _finished(cell, task.folder, keep)


def _is_done(folder: Path, described: dict[str, Any]) -> bool:
    """Tell whether a run is finished; refuse the folder of another one."""
    if not (folder / records.DONE).exists():
        return False
    records.claim_folder(folder, described)
    return True


def _with_choice(task: Task, described: dict[str, Any]) -> Task:
    """Choose the filter size of a run; one that was begun before keeps its own."""
    choice = records.choice_before(task.folder, described)
    if choice is None:
        choice = choice_for(task.store, task.train, task.cell.norm, task.protocol.length)
    return replace(task, choice=choice)


def _run(
    task: Task, split: Split, device: torch.device, devices: int, keep: str, began: float
) -> None:
    """Train a cell, or go on with it, and evaluate it."""
    cell, store = task.cell, task.store
    if cell.norm == TMA:
        recordings, size = split.train["recording"], filter_size_of(cell)
        barycenter = training_barycenter(store, recordings, size, device)
        task = replace(task, sqrt_barycenter=barycenter)
    before = read_state(task.folder, task.run)
    if before is not None:
        began -= before.position.seconds
    state = _trained(task, before, device, devices)
    network = network_for(task.network_cell, task.protocol, store.layout, device, fast=task.fast)
    _evaluate(task, state, network, split, device, keep, began)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    with held(folder) as free:
        if not free:
            who = holder(folder)
            whose = f"process {who.pid} on {who.host}" if who else "another process"
            raise TrainingError(f"{whose} works in {folder} now, expected one at a time")
        yield


def _trained(task: Task, state: State | None, device: torch.device, devices: int) -> State:
    """Train on from a state until it is finished, and return where it ended."""
    if state is None or not state.position.finished:
        try:
            launch(learn, task, device, devices)
        except TrainingError as error:
            raise _explained(task, error) from error
        state = read_state(task.folder, task.run)
    assert state is not None
    return state


def _explained(task: Task, error: TrainingError) -> TrainingError:
    """Keep the weights from before a training went wrong; say where, and what to look at."""
    state = read_state(task.folder, task.run)
    if state is None:
        kept = "no weights had been saved before"
    else:
        # a model of its own: the network that is compiled serves the next cell
        _save_weights(task, state, build_model(task.network_cell, task.protocol, task.store.layout))
        kept = f"the last good weights are in {task.folder / records.WEIGHTS}"
    if not isinstance(error, NotFiniteError):
        return TrainingError(f"{error}; {kept}")
    used = (*task.train["recording"], *task.validation["recording"])
    return NotFiniteError(f"{error}; {kept}; {origin(task.store, used)}")


def _evaluate(
    task: Task,
    state: State,
    network: Network,
    split: Split,
    device: torch.device,
    keep: str,
    began: float,
) -> None:
    """Predict the held-out cohort with the best weights, and write all that is kept."""
    assert state.best is not None
    folder, protocol, store = task.folder, task.protocol, task.store
    network.model.load_state_dict(state.best)
    network.model.eval()
    if task.sqrt_barycenter is not None:
        store = AlignedStore(store, task.sqrt_barycenter, filter_size_of(task.cell), device)
    predictions = predict_nights(
        network.forward,
        store,
        split.test,
        length=protocol.length,
        stride=protocol.stride,
        batch_size=protocol.batch_size,
        device=device,
    )
    timed = records.Timed(finite_predictions(store, split.test, predictions))
    scores = records.write_outcome(folder, split.test, timed, keep=keep != "scores")
    if keep == "weights":
        _save_weights(task, state, network.model, _training_spread(task, network.model))
    accuracy = float(subject_metrics(scores)["balanced_accuracy"].mean())
    position = state.position
    done = {
        "balanced_accuracy": accuracy if accuracy == accuracy else None,
        "subjects": len(scores),
        "epochs": position.epoch,
        "best_epoch": position.best_epoch,
        "steps": position.step,
        "seconds": time.monotonic() - began,
        **timed.spent_on(split.test, protocol),
        "keep": keep,
    }
    if task.choice is not None:
        done[records.CHOICE] = task.choice
    write_json(folder / records.DONE, done)


def _finished(cell: Run, folder: Path, keep: str) -> Result:
    """Return the result of a finished run; refuse one that kept less than is asked for."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
        if holder(folder) is None:  # what a process left that was killed as it finished
            (folder / LOCK).unlink(missing_ok=True)
    done = read_json(folder / records.DONE)
    kept = done.pop("keep")
    if KEEP.index(kept) < KEEP.index(keep):
        raise ArgumentError(
            f"{folder} was finished with keep={kept!r}, found keep={keep!r}: delete it to run the "
            "cell again"
        )
    if done["balanced_accuracy"] is None:
        done["balanced_accuracy"] = float("nan")
    return Result(cell, folder, **done)


def _save_weights(
    task: Task, state: State, model: Pretrained, spread: dict[str, Any] | None = None
) -> None:
    """Keep the best weights of a run, or the latest good ones if no epoch has ended."""
    model.load_state_dict(state.best or state.model)
    model.save_pretrained(
        task.folder / records.WEIGHTS,
        recipe=task.store.recipe,
        training_data=task.training_data,
        training_spread=spread,
    )


def _training_spread(task: Task, model: Pretrained) -> dict[str, Any] | None:
    """Measure how the training nights of a run spread, evenly drawn where they are many."""
    recordings = task.train["recording"].to_numpy(object)
    n = min(len(recordings), _MOST_MEASURED)
    drawn = recordings[np.linspace(0, len(recordings) - 1, n).round().astype(int)]
    # of the store itself: a night that is to be staged is not aligned yet when it is looked at
    return measure_spread(model, (task.store.signals(each) for each in drawn))


def split_of(store: Store, cell: Run, protocol: Protocol) -> Split:
    """Return who trains, validates and tests in a cell; refuse one that lacks somebody.

    Parameters
    ----------
    store : Store
    cell : Run
    protocol : Protocol
    """
    check_cohorts(store, [cell.hold_out])
    split = leave_one_dataset_out(
        store.index,
        cell.hold_out,
        seed=cell.seed,
        n_subjects=cell.balanced,
        fraction=protocol.validation_fraction,
    )
    for role, rows in split._asdict().items():
        if rows.empty:
            of_them = "" if cell.balanced is None else f" with balanced {cell.balanced}"
            raise ArgumentError(
                f"{store.path} has nobody for {role} beside {cell.hold_out}{of_them}, expected two "
                "subjects of another cohort at least"
            )
    if cell.filter_size == AUTO:
        check_choosable(store, split.train)
    return split


def check_cohorts(store: Store, hold_outs: Iterable[str]) -> None:
    """Refuse to hold out what a store does not have.

    Parameters
    ----------
    store : Store
    hold_outs : iterable of str
    """
    cohorts = sorted(store.index["cohort"].unique())
    for cohort in hold_outs:
        if cohort not in cohorts:
            raise ArgumentError(f"hold_out is {cohort!r}, expected one of {', '.join(cohorts)}")


def _check(keep: str, protocol: Protocol, devices: int, save_every_steps: int | None) -> None:
    if keep not in KEEP:
        raise ArgumentError(f"keep is {keep!r}, expected one of {', '.join(KEEP)}")
    check_size("devices", devices)
    if protocol.batch_size % devices:
        raise ArgumentError(
            f"batch_size is {protocol.batch_size}, expected a multiple of the {devices} devices"
        )
    if save_every_steps is not None:
        check_size("save_every_steps", save_every_steps)
