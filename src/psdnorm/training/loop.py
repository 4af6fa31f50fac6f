"""The training loop: objective, early stopping, resume files and progress."""

import contextlib
import math
import random
import time
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from psdnorm.adaptation import domains
from psdnorm.batches import Loader, available_memory, class_weights, resolve_residence
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, TrainingError
from psdnorm.evaluation import balanced_accuracy
from psdnorm.runtime import errors, progress_bar, say
from psdnorm.store import Store
from psdnorm.training.aligned_nights import AlignedStore
from psdnorm.training.network import network_for
from psdnorm.training.predict import NotFiniteError, logits_of, model_by_domain
from psdnorm.training.run import (
    Protocol,
    Run,
    filter_size_of,
    is_by_night,
    sequences_per_night_of,
    with_size,
)
from psdnorm.training.run_folder import (
    CHOICE,
    Logs,
    Position,
    State,
    generator_states,
    read_state,
    restore_generators,
    write_state,
)

if TYPE_CHECKING:
    import pandas as pd

_Rows = typing.TypeVar("_Rows", Tensor, NDArray[np.int64])

_N = len(STAGES)
_LOOK = 50  # losses kept on the device, as reading them makes the host wait for it


class Watcher(typing.Protocol):
    """Callbacks during training; none may take long."""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Begin an epoch, or resume it at a batch."""
        return

    def step(self, batch: int, loss: float) -> None:
        """Report the number of batches done in the epoch, and the latest loss."""
        return

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """End an epoch; ``row`` is its row in the history."""
        return


class Silent(Watcher):
    """A watcher that shows nothing."""


class Bars:
    """A progress bar per epoch with losses and balanced accuracy; without a terminal, a line each.

    Writes to standard error or ``file``. Use a ``with`` statement to restore the terminal even if
    training fails.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def _console(self) -> Console:  # not an attribute, as this object is pickled
        return errors if self._file is None else Console(file=self._file)

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Start a bar."""
        if self._console.is_terminal:
            self._bar = progress_bar(self._console)
            self._bar.add_task(f"epoch {epoch + 1}", total=n_batches, completed=first_batch)
            self._bar.start()

    def step(self, batch: int, loss: float) -> None:
        """Move the bar."""
        if self._bar is not None:
            name = self._bar.tasks[0].description.partition(":")[0]
            self._bar.update(0, completed=batch, description=f"{name}: loss {loss:.4f}")

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Close the bar and print the results of the epoch."""
        if self._bar is not None:
            self._bar.update(0, completed=self._bar.tasks[0].total)
            self._bar.stop()
            self._bar = None
        say(
            self._console,
            f"epoch {int(row['epoch']) + 1}: loss {row['train_loss']:.4f}, validation "
            f"{row['validation_loss']:.4f}, balanced accuracy "
            f"{row['validation_balanced_accuracy']:.3f}",
        )


def weighted_sums(logits: Tensor, stages: Tensor, weights: Tensor) -> Tensor:
    """Sum the weighted cross-entropies of the scored epochs, and their weights, (2,).

    ``logits`` are (N, 5, S), ``stages`` (N, S) with -1 where unscored, ``weights`` (5,). The loss
    of a set is the ratio of its sums, regardless of how it is split into batches.
    """
    scored = stages >= 0
    weight = torch.where(scored, weights[stages.clamp(min=0)], 0.0)  # (N, S)
    losses = F.cross_entropy(logits, stages, ignore_index=-1, reduction="none")
    return torch.stack([(losses * weight).sum(), weight.sum()])


def confusion_counts(logits: Tensor, stages: Tensor) -> Tensor:
    """Count scored epochs by true and predicted stage, (5, 5), without a device sync."""
    places = torch.where(stages >= 0, stages * _N + logits.argmax(dim=1), _N * _N).flatten()
    counts = torch.zeros(_N * _N + 1, dtype=torch.int64, device=logits.device)
    return counts.index_add_(0, places, torch.ones_like(places))[:-1].view(_N, _N)


class Objective(nn.Module):
    """A network and its loss, as one module that can be wrapped for several devices."""

    weights: Tensor

    def __init__(self, model: nn.Module, forward, weights: Tensor) -> None:
        super().__init__()
        self.model = model
        self._run = [forward]  # in a list, so that a module is not registered twice
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor, stages: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the logits, (N, 5, S), and with stages :func:`weighted_sums`, (2,)."""
        logits = self._run[0](x)
        return logits, None if stages is None else weighted_sums(logits, stages, self.weights)


class _Evaluation:
    """The network of a training as a forward function."""

    def __init__(self, objective: nn.Module, model: nn.Module) -> None:
        self._objective, self.model = objective, model

    def __call__(self, x: Tensor) -> Tensor:
        return self._objective(x)[0]  # through DDP, which gives all processes the same buffers


@dataclass(frozen=True)
class Task:
    """Everything that a training needs; picklable."""

    store: Store
    train: "pd.DataFrame"  # rows of the store's index
    validation: "pd.DataFrame"
    run: Run
    protocol: Protocol
    folder: Path
    digest: str  # of the configuration
    sqrt_barycenter: Tensor | None = None  # (C, F), of the training set, if it is to be aligned
    choice: dict[str, Any] | None = None  # the filter size chosen for "auto", and why
    fast: bool | str = "auto"
    residence: str = "auto"
    save_every_s: float = 300.0
    save_every_steps: int | None = None
    watcher: Watcher = field(default_factory=Silent)

    @property
    def network_run(self) -> Run:
        """The run with its chosen filter size, whose network is trained."""
        return self.run if self.choice is None else with_size(self.run, self.choice["filter_size"])

    @property
    def training_data(self) -> dict[str, Any]:
        """Description of the training data, for the checkpoint."""
        described: dict[str, Any] = {
            "cell": self.run.to_json(),
            "cohorts": sorted(self.train["cohort"].unique().tolist()),
            "nights": len(self.train),
            "simulated": bool(self.train["simulated"].any()),
        }
        if self.sqrt_barycenter is not None:  # the model cannot be used without it
            described["sqrt_barycenter"] = self.sqrt_barycenter.tolist()
        if self.choice is not None:
            described[CHOICE] = self.choice
        return described


def learn(task: Task, device: torch.device, rank: int = 0, size: int = 1) -> None:
    """Train to the end, as one of ``size`` processes; the result is the resume file."""
    training = _Training(task, device, rank, size)
    try:
        while not training.position.finished:
            training.train_epoch()
            training.end_epoch()
    finally:
        if training.logs is not None:
            training.logs.close()


class _Training:
    def __init__(self, task: Task, device: torch.device, rank: int, size: int) -> None:
        self.task, self.device, self.rank, self.size = task, device, rank, size
        run, protocol = task.run, task.protocol
        self.loaders = _loaders(task, device)
        _seed_everything(run.seed)
        shape = task.network_run, protocol, task.store.layout, device
        self.network = network_for(*shape, fast=task.fast, synchronised=size > 1)
        self.by_night = model_by_domain(self.network.model) is not None
        # again, as the number of networks built in this process must not matter
        _seed_everything((run.seed + 7919 * rank) % 2**32)
        objective = Objective(self.network.model, self.network.forward, class_weights(task.train))
        self.objective: nn.Module = objective.to(device)
        self.weights = objective.weights
        if size > 1:
            ids = [device.index] if device.type == "cuda" else None
            self.objective = nn.parallel.DistributedDataParallel(self.objective, device_ids=ids)
        parameters = self.network.model.parameters()
        fused = device.type == "cuda"
        self.optimizer = torch.optim.Adam(parameters, lr=protocol.lr, fused=fused)
        self.position = Position()
        self.best: dict[str, Tensor] | None = None
        state = read_state(task.folder, task.digest)
        if state is not None:
            self.position, self.best = state.position, state.best
            self.network.model.load_state_dict(state.model)
            self.optimizer.load_state_dict(state.optimizer)
            if len(state.generators) == size:
                restore_generators(state.generators[rank], device)
        self.sums = torch.tensor(self.position.sums, dtype=torch.float64, device=device)
        self.losses = torch.zeros(_LOOK, device=device)
        self.look_every = _LOOK if device.type == "cuda" else 1
        self.looked_at = self.position.step
        self.latest_loss = math.nan
        self.saved_at = time.monotonic()
        self.began = self.saved_at - self.position.seconds
        self.logs = Logs(task.folder, self.position.step) if rank == 0 else None
        self.watcher = task.watcher if rank == 0 else Silent()

    def train_epoch(self) -> None:
        position, (train, _) = self.position, self.loaders
        self.watcher.begin_epoch(position.epoch, position.batch, len(train))
        self.objective.train()
        place = position.epoch, position.batch
        for nights, (x, stages) in zip(train.nights(*place), train.epoch(*place), strict=True):
            self._step(x, stages, nights)
            position.batch, position.step = position.batch + 1, position.step + 1
            if position.step % self.look_every == 0:
                self._look()
            if self._should_save():
                self._save()
            if self.logs is not None and position.step % _LOOK == 0:
                self.logs.curve(position.step, {"loss": self.latest_loss})
        self._look()

    def end_epoch(self) -> None:
        """Validate, check early stopping, and save."""
        position, protocol = self.position, self.task.protocol
        train_loss = float(self.sums[0] / self.sums[1])
        row = {"epoch": position.epoch, "step": position.step, "train_loss": train_loss}
        row |= self._validate()
        if position.end_epoch(row, protocol.patience, protocol.max_epochs):
            weights = self.network.model.state_dict()
            self.best = {name: value.detach().cpu().clone() for name, value in weights.items()}
        self.sums.zero_()
        if self.logs is not None:
            self.logs.history(position.history)
        self._save()
        if self.logs is not None:  # after the resume file, which is worth more than curves
            self.logs.curve(position.step, row)
        self.watcher.end_epoch(row)

    def _step(self, x: Tensor, stages: Tensor, nights: NDArray[np.int64]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with domains(self._share(nights)) if self.by_night else contextlib.nullcontext():
            _, own = self.objective(self._share(x), self._share(stages))
        sums = self._over_processes(own.detach().double())
        # scaled so that averaging gradients over processes gives the mean over the whole batch
        loss = own[0] * (self.size / sums[1]).to(own.dtype)
        loss.backward()
        self.optimizer.step()
        self.sums += sums
        self.losses[self.position.step % _LOOK] = sums[0] / sums[1]

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.objective.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        confusion = torch.zeros(_N, _N, dtype=torch.int64, device=self.device)
        forward = _Evaluation(self.objective, self.network.model)
        share = slice(self.rank, None, self.size)
        for logits, stages, _ in logits_of(forward, self.loaders[1], share):
            sums += weighted_sums(logits, stages, self.weights)
            confusion += confusion_counts(logits, stages)
        sums, confusion = self._over_processes(sums), self._over_processes(confusion)
        if sums[1] == 0:
            raise TrainingError(
                f"{self.task.run.name}: no epoch of the validation set has a stage that occurs in "
                "the training set"
            )
        loss = float(sums[0] / sums[1])
        if not math.isfinite(loss):
            raise self._bad_loss("validation loss", loss, self.position.step)
        accuracy = float(balanced_accuracy(confusion.cpu().numpy()))
        return {"validation_loss": loss, "validation_balanced_accuracy": accuracy}

    def _look(self) -> None:
        """Read the losses since the last call; raise if one is not finite."""
        first, step = self.looked_at, self.position.step
        if first == step:
            return
        recent = self.losses.tolist()
        for taken in range(first, step):
            loss = recent[taken % _LOOK]
            if not math.isfinite(loss):
                raise self._bad_loss("loss", loss, taken + 1)
        self.looked_at = step
        self.latest_loss = recent[(step - 1) % _LOOK]
        self.watcher.step(self.position.batch, self.latest_loss)

    def _bad_loss(self, what: str, loss: float, step: int) -> NotFiniteError:
        return NotFiniteError(
            f"{self.task.run.name}: the {what} is {loss} at step {step}, in epoch "
            f"{self.position.epoch + 1}"
        )

    def _should_save(self) -> bool:
        every, step = self.task.save_every_steps, self.position.step
        if every is not None and step % every == 0:
            return True
        if step % self.look_every:
            return False
        is_late = [time.monotonic() - self.saved_at > self.task.save_every_s]
        if self.size > 1:
            torch.distributed.broadcast_object_list(is_late)
        return is_late[0]

    def _save(self) -> None:
        self._look()
        for name, value in self.network.model.named_parameters():  # save only finite weights
            if not value.isfinite().all():
                raise self._bad_loss(f"gradient of {name}", math.nan, self.position.step)
        self.position.sums = self.sums.tolist()
        generators: list[Any] = [generator_states(self.device)]
        if self.size > 1:
            generators *= self.size
            torch.distributed.all_gather_object(generators, generators[0])
        if self.rank == 0:
            self.position.seconds = time.monotonic() - self.began
            model, optimizer = self.network.model.state_dict(), self.optimizer.state_dict()
            state = State(self.task.digest, self.position, model, self.best, optimizer, generators)
            write_state(self.task.folder, state)
        self.saved_at = time.monotonic()

    def _share(self, batch: _Rows) -> _Rows:
        """Return this process's part of a batch."""
        return batch[self.rank :: self.size]

    def _over_processes(self, sums: Tensor) -> Tensor:
        if self.size > 1:
            torch.distributed.all_reduce(sums)
        return sums


def _loaders(task: Task, device: torch.device) -> tuple[Loader, Loader]:
    """Return the training and validation loaders, both with batches of one shape."""
    protocol, store = task.protocol, task.store
    layout = store.layout
    itemsize = 2 if layout.dtype == "float16" else 4
    n_epochs = int(task.train["epochs"].sum() + task.validation["epochs"].sum())
    n_bytes = n_epochs * layout.n_channels * layout.n_times * itemsize
    residence = resolve_residence(task.residence, n_bytes, device)  # for both together
    if task.sqrt_barycenter is not None:
        store = AlignedStore(store, task.sqrt_barycenter, filter_size_of(task.run), device)
        if residence == "map":  # aligned nights are not on disk
            free = available_memory()
            if n_bytes > free > 0:
                raise ArgumentError(
                    f"TMA keeps the aligned nights in memory, which take {n_bytes / 2**30:.1f} "
                    f"GiB, more than the {free / 2**30:.1f} GiB that are free"
                )
            residence = "pinned"
    shared: dict[str, Any] = {"last": "fill", "device": device, "residence": residence}
    shared |= protocol.windows
    n = sequences_per_night_of(task.run, protocol)
    train = Loader(store, task.train, seed=task.run.seed, sequences_per_night=n, **shared)
    # statistics of a night are those of all its windows, scored or not
    by_night = is_by_night(task.run, protocol)
    whole: dict[str, Any] = {"whole_nights": by_night, "only_scored": not by_night}
    return train, Loader(store, task.validation, seed=None, **whole, **shared)


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (others may draw from it)
    torch.manual_seed(seed)
