"""The training loop: objective, early stopping, and what a person sees of it."""

import sys
import time
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdnorm.batches import Loader, available_memory, class_weights, resolve_residence
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, TrainingError
from psdnorm.evaluation import balanced_accuracy
from psdnorm.store import Store
from psdnorm.training.aligned_nights import AlignedStore
from psdnorm.training.finite import NotFiniteError
from psdnorm.training.network import network_for
from psdnorm.training.run import Protocol, Run, filter_size_of, with_size
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
    from lightning import Fabric


class Watcher(typing.Protocol):
    """Is told how a training goes; no call may take long."""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Hear that an epoch begins, or goes on from a batch."""

    def step(self, batch: int, loss: float) -> None:
        """Hear how many batches of the epoch are done, and the latest loss."""

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Hear that an epoch ended with this row of the history."""


class Silent:
    """Shows nothing."""

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Show nothing."""

    def step(self, batch: int, loss: float) -> None:
        """Show nothing."""

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Show nothing."""


class Bars:
    """A bar per epoch with losses and balanced accuracy; a line per epoch where no one looks.

    Parameters
    ----------
    file : TextIO, optional
        Standard error, if it is not given.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._bar: Any = None

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Start a bar."""
        from tqdm import tqdm  # type: ignore[import-untyped]

        file = self._file or sys.stderr
        self._bar = tqdm(
            total=n_batches,
            initial=first_batch,
            desc=f"epoch {epoch + 1}",
            unit="batch",
            file=file,
            disable=not file.isatty(),
        )

    def step(self, batch: int, loss: float) -> None:
        """Move the bar."""
        self._bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self._bar.update(batch - self._bar.n)

    def end_epoch(self, row: Mapping[str, float | int]) -> None:
        """Close the bar with what the epoch came to."""
        figures = {
            "loss": f"{row['train_loss']:.4f}",
            "validation": f"{row['validation_loss']:.4f}",
            "balanced accuracy": f"{row['validation_balanced_accuracy']:.3f}",
        }
        if self._bar.disable:
            words = ", ".join(f"{name} {value}" for name, value in figures.items())
            print(
                f"epoch {int(row['epoch']) + 1}: {words}", file=self._file or sys.stderr, flush=True
            )
        self._bar.set_postfix(figures)
        self._bar.update(self._bar.total - self._bar.n)
        self._bar.close()


_N = len(STAGES)


def weighted_sums(logits: Tensor, stages: Tensor, weights: Tensor) -> Tensor:
    """Sum the weighted cross-entropies of the scored epochs, and their weights.

    The loss of any set of epochs, be it a batch or all that validates, is the first over the
    second, each added up over the set: it does not depend on how the set was cut into batches.

    Parameters
    ----------
    logits : Tensor, (N, 5, S)
    stages : Tensor of int64, (N, S)
        -1 where unscored.
    weights : Tensor, (5,)

    Returns
    -------
    Tensor, (2,)
    """
    scored = stages >= 0
    weight = torch.where(scored, weights[stages.clamp(min=0)], 0.0)  # (N, S)
    losses = F.cross_entropy(logits, stages, ignore_index=-1, reduction="none")
    return torch.stack([(losses * weight).sum(), weight.sum()])


def confusion_counts(logits: Tensor, stages: Tensor) -> Tensor:
    """Count scored epochs by true and predicted stage, without asking the host.

    Parameters
    ----------
    logits : Tensor, (N, 5, S)
    stages : Tensor of int64, (N, S)

    Returns
    -------
    Tensor of int64, (5, 5)
    """
    cells = torch.where(stages >= 0, stages * _N + logits.argmax(dim=1), _N * _N)
    counts = torch.zeros(_N * _N + 1, dtype=torch.int64, device=logits.device)
    ones = torch.ones_like(cells.flatten())
    return counts.index_add_(0, cells.flatten(), ones)[:-1].view(_N, _N)


class Objective(nn.Module):
    """A network and what it minimises, as one module that can be wrapped for several devices.

    Parameters
    ----------
    model : nn.Module
    forward : callable
        What computes the model, see :func:`psdnorm.models.accelerate`.
    weights : Tensor, (5,)
        Of the stages.
    """

    weights: Tensor

    def __init__(self, model: nn.Module, forward, weights: Tensor) -> None:
        super().__init__()
        self.model = model
        self._run = [forward]  # in a list, or a module would be registered twice
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor, stages: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, (N, 5, S), and :func:`weighted_sums`, (2,)."""
        logits = self._run[0](x)
        return logits, weighted_sums(logits, stages, self.weights)


# losses that are kept on the device; at each look at them the host waits for the device
_LOOK = 50


@dataclass(frozen=True)
class Task:
    """All that a training needs, in a form that other processes can be given.

    Attributes
    ----------
    store : Store
    train, validation : DataFrame
        Rows of its index.
    cell : Run
    protocol : Protocol
    folder : Path
        Where the resume file and the logs go.
    run : str
        Digest of the configuration.
    sqrt_barycenter : Tensor, (C, F), optional
        Of the nights that train, where they are to be aligned.
    choice : dict, optional
        What :meth:`psdnorm.training.filter_size.Choice.to_json` says, where the cell has its filter
        size chosen.
    fast : {"auto", True, False}
    residence : str
        As in :class:`psdnorm.batches.Loader`.
    save_every_s : float
        Seconds between resume files, beside those at the end of every epoch.
    save_every_steps : int, optional
        Steps between them.
    watcher : Watcher
    """

    store: Store
    train: "pd.DataFrame"
    validation: "pd.DataFrame"
    cell: Run
    protocol: Protocol
    folder: Path
    run: str
    sqrt_barycenter: Tensor | None = None
    choice: dict[str, Any] | None = None
    fast: bool | str = "auto"
    residence: str = "auto"
    save_every_s: float = 300.0
    save_every_steps: int | None = None
    watcher: Watcher = field(default_factory=Silent)

    @property
    def network_cell(self) -> Run:
        """The cell whose network is trained: with the filter size that was chosen."""
        if self.choice is None:
            return self.cell
        return with_size(self.cell, self.choice["filter_size"])

    @property
    def training_data(self) -> dict[str, Any]:
        """What the model learns from, for its checkpoint."""
        described: dict[str, Any] = {
            "cell": self.cell.to_json(),
            "cohorts": sorted(self.train["cohort"].unique().tolist()),
            "nights": len(self.train),
            "simulated": bool(self.train["simulated"].any()),
        }
        if self.sqrt_barycenter is not None:  # without it the model cannot be used
            described["sqrt_barycenter"] = self.sqrt_barycenter.tolist()
        if self.choice is not None:
            described[CHOICE] = self.choice
        return described


def learn(fabric: "Fabric", task: Task) -> None:
    """Train until early stopping or the last epoch; what came of it is in the resume file.

    Parameters
    ----------
    fabric : lightning.Fabric
        Launched.
    task : Task
    """
    _Learning(fabric, task).run()


class _Learning:
    def __init__(self, fabric: "Fabric", task: Task) -> None:
        from lightning import seed_everything

        self.fabric, self.task, self.device = fabric, task, fabric.device
        cell, protocol = task.cell, task.protocol
        self.loaders = _loaders(task, self.device)
        seed_everything(cell.seed, verbose=False)
        several = fabric.world_size > 1
        self.network = network_for(
            task.network_cell,
            protocol,
            task.store.layout,
            self.device,
            fast=task.fast,
            synchronised=several,
        )
        # again: how often a network was built in this process must not matter
        seed_everything((cell.seed + 7919 * fabric.global_rank) % 2**32, verbose=False)
        objective = Objective(self.network.model, self.network.forward, class_weights(task.train))
        self.objective: Any = fabric.setup_module(objective.to(self.device))
        fused = self.device.type == "cuda"
        parameters = self.network.model.parameters()
        self.optimizer = torch.optim.Adam(parameters, lr=protocol.lr, fused=fused)
        self.position = Position()
        self.best: dict[str, Tensor] | None = None
        self._restore(read_state(task.folder, task.run))
        self.sums = torch.tensor(self.position.sums, dtype=torch.float64, device=self.device)
        self.losses = torch.zeros(_LOOK, device=self.device)
        self.look_every = _LOOK if self.device.type == "cuda" else 1
        self.looked_at = self.position.step
        self.latest_loss = float("nan")
        self.saved_at = time.monotonic()
        self.began = self.saved_at - self.position.seconds
        is_first = fabric.global_rank == 0
        self.logs = Logs(task.folder, self.position.step) if is_first else None
        self.watcher = task.watcher if is_first else Silent()

    def run(self) -> None:
        position, protocol = self.position, self.task.protocol
        while not position.finished:
            self._train_epoch()
            train_loss = _ratio(self.sums)
            row = {"epoch": position.epoch, "step": position.step, "train_loss": train_loss}
            row |= self._validate()
            if position.end_epoch(row, protocol.patience, protocol.max_epochs):
                self.best = _on_host(self.network.model)
            self.sums.zero_()
            if self.logs is not None:
                self.logs.history(position.history)
            self._save()
            if self.logs is not None:  # after the resume file: curves are worth less
                self.logs.curve(position.step, row)
            self.watcher.end_epoch(row)

    def _train_epoch(self) -> None:
        position, (train, _) = self.position, self.loaders
        self.watcher.begin_epoch(position.epoch, position.batch, len(train))
        self.objective.train()
        for x, stages in train.epoch(position.epoch, position.batch):
            self._step(x, stages)
            position.batch, position.step = position.batch + 1, position.step + 1
            if position.step % self.look_every == 0:
                self._look()
            if self._should_save():
                self._save()
            if self.logs is not None and position.step % _LOOK == 0:
                self.logs.curve(position.step, {"loss": self.latest_loss})
        self._look()

    def _step(self, x: Tensor, stages: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        _, own = self.objective(self._share(x), self._share(stages))
        sums = self._over_processes(own.detach().double())
        # processes average their gradients, and the mean is one over the whole batch
        loss = own[0] * (self.fabric.world_size / sums[1]).to(own.dtype)
        self.fabric.backward(loss)
        self.optimizer.step()
        self.sums += sums
        self.losses[self.position.step % _LOOK] = sums[0] / sums[1]

    @torch.no_grad()
    def _validate(self) -> dict[str, float]:
        self.objective.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        confusion = torch.zeros(5, 5, dtype=torch.int64, device=self.device)
        for x, stages in self.loaders[1].epoch(0):
            stages = self._share(stages)
            logits, own = self.objective(self._share(x), stages)
            sums += own
            confusion += confusion_counts(logits, stages)
        sums, confusion = self._over_processes(sums), self._over_processes(confusion)
        if sums[1] == 0:
            raise TrainingError(
                f"{self.task.cell.name}: no epoch that validates has a stage that occurs in "
                "training"
            )
        loss = _ratio(sums)
        if not torch.isfinite(torch.tensor(loss)):
            raise self._bad_loss("validation loss", loss, self.position.step)
        accuracy = float(balanced_accuracy(confusion.cpu().numpy()))
        return {"validation_loss": loss, "validation_balanced_accuracy": accuracy}

    def _look(self) -> None:
        """Read the losses since the last look; refuse one that is not finite."""
        first, step = self.looked_at, self.position.step
        if first == step:
            return
        recent = self.losses.tolist()
        for taken in range(first, step):
            loss = recent[taken % _LOOK]
            if not abs(loss) < float("inf"):
                raise self._bad_loss("loss", loss, taken + 1)
        self.looked_at = step
        self.latest_loss = recent[(step - 1) % _LOOK]
        self.watcher.step(self.position.batch, self.latest_loss)

    def _bad_loss(self, what: str, loss: float, step: int) -> NotFiniteError:
        return NotFiniteError(
            f"{self.task.cell.name}: the {what} is {loss} at step {step}, in epoch "
            f"{self.position.epoch + 1}"
        )

    def _refuse_bad_weights(self) -> None:
        for name, value in self.network.model.named_parameters():
            if not value.isfinite().all():
                raise self._bad_loss(f"gradient of {name}", float("nan"), self.position.step)

    def _should_save(self) -> bool:
        every, step = self.task.save_every_steps, self.position.step
        if every is not None and step % every == 0:
            return True
        if step % self.look_every:
            return False
        is_late = time.monotonic() - self.saved_at > self.task.save_every_s
        return self.fabric.broadcast(is_late) if self.fabric.world_size > 1 else is_late

    def _save(self) -> None:
        self._look()
        self._refuse_bad_weights()  # what is not finite is not kept
        self.position.sums = self.sums.tolist()
        generators: list[Any] = [generator_states(self.device)]
        if self.fabric.world_size > 1:
            generators *= self.fabric.world_size
            torch.distributed.all_gather_object(generators, generators[0])
        if self.fabric.global_rank == 0:
            self.position.seconds = time.monotonic() - self.began
            model, optimizer = self.network.model.state_dict(), self.optimizer.state_dict()
            state = State(self.task.run, self.position, model, self.best, optimizer, generators)
            write_state(self.task.folder, state)
        self.saved_at = time.monotonic()

    def _restore(self, state: State | None) -> None:
        if state is None:
            return
        self.position, self.best = state.position, state.best
        self.network.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        if len(state.generators) == self.fabric.world_size:
            restore_generators(state.generators[self.fabric.global_rank], self.device)

    def _share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch."""
        return batch[self.fabric.global_rank :: self.fabric.world_size]

    def _over_processes(self, sums: Tensor) -> Tensor:
        if self.fabric.world_size > 1:
            torch.distributed.all_reduce(sums)
        return sums


def _loaders(task: Task, device: torch.device) -> tuple[Loader, Loader]:
    """Return the loaders of training and validation, both with batches of one shape."""
    protocol, store = task.protocol, task.store
    layout = store.layout
    itemsize = 2 if layout.dtype == "float16" else 4
    n_epochs = int(task.train["epochs"].sum() + task.validation["epochs"].sum())
    n_bytes = n_epochs * layout.n_channels * layout.n_times * itemsize
    residence = resolve_residence(task.residence, n_bytes, device)  # for both together
    if task.sqrt_barycenter is not None:
        store = AlignedStore(store, task.sqrt_barycenter, filter_size_of(task.cell), device)
        if residence == "map":  # aligned nights are nowhere on disk
            free = available_memory()
            if n_bytes > free > 0:
                raise ArgumentError(
                    f"TMA keeps the aligned nights in memory, which take {n_bytes / 2**30:.1f} "
                    f"GiB, more than the {free / 2**30:.1f} GiB that are free"
                )
            residence = "pinned"
    shared: dict[str, Any] = {
        "batch_size": protocol.batch_size,
        "length": protocol.length,
        "stride": protocol.stride,
        "last": "fill",
        "device": device,
        "residence": residence,
    }
    train = Loader(store, task.train, seed=task.cell.seed, **shared)
    return train, Loader(store, task.validation, seed=None, **shared)


def _ratio(sums: Tensor) -> float:
    total, weight = sums.tolist()
    return total / weight


def _on_host(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
