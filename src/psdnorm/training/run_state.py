"""Where a training stands: all that it needs to go on as if it had never stopped."""

import io
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psdnorm.errors import TrainingError
from psdnorm.runtime.files import written

FILE = "resume.pt"
FORMAT = 1
Row = dict[str, float | int]


@dataclass
class Position:
    """How far a training has come.

    Attributes
    ----------
    epoch, batch : int
        The next batch to learn from.
    step : int
        Steps taken.
    sums : list of float, [2]
        Of this epoch: weighted losses and weights.
    best_loss : float
        Lowest validation loss, infinite before the first.
    best_epoch : int
        The epoch that had it, -1 before the first.
    finished : bool
    history : list of dict
        One row per epoch.
    seconds : float
        Spent on it so far, by all processes that worked on it.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])
    best_loss: float = float("inf")
    best_epoch: int = -1
    finished: bool = False
    history: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def end_epoch(self, row: Row, patience: int, max_epochs: int) -> bool:
        """Move on to the next epoch, or finish; tell whether this one was the best."""
        loss = float(row["validation_loss"])
        is_best = loss < self.best_loss
        if is_best:
            self.best_loss, self.best_epoch = loss, self.epoch
        self.history.append(row)
        self.finished = self.epoch - self.best_epoch >= patience or self.epoch + 1 >= max_epochs
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, [0.0, 0.0]
        return is_best


@dataclass
class State:
    """What a resume file holds.

    Attributes
    ----------
    run : str
        Digest of the configuration: another run's file is refused.
    position : Position
    model, best : dict of str to Tensor
        Weights as they are, and those with the lowest validation loss (None before the first).
    optimizer : dict
    generators : list of dict
        States of the random generators, one dict per process.
    """

    run: str
    position: Position
    model: dict[str, Tensor]
    best: dict[str, Tensor] | None
    optimizer: dict[str, Any]
    generators: list[dict[str, Any]]


def write_state(folder: Path, state: State) -> None:
    """Write the resume file of a run, whole or not at all."""
    content = io.BytesIO()
    # not asdict(state), which would copy every tensor
    fields = {**vars(state), "position": asdict(state.position), "format": FORMAT}
    torch.save(fields, content)
    # through memory: torch's writer hides what the system says, such as a full disk
    with written(folder / FILE) as file:
        file.write(content.getbuffer())


def read_state(folder: Path, run: str) -> State | None:
    """Read the resume file of a run; None if there is none.

    Parameters
    ----------
    folder : Path
    run : str
        Digest that the file must state.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        file = io.BytesIO(path.read_bytes())
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror}") from error
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
        if content.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        state = State(**{**content, "position": Position(**content["position"])})
    except Exception as error:  # whatever a damaged file breaks
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"{path} is damaged, {reason:.80}; delete it to train from the beginning"
        ) from error
    if state.run != run:
        raise TrainingError(
            f"{path} belongs to another run than {folder} describes; delete it to train from the "
            "beginning"
        )
    return state


def generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of all random generators of this process, as plain values."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 (others may draw from it)
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys, np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(states: dict[str, Any], device: torch.device) -> None:
    """Set the random generators of this process to states from :func:`generator_states`."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
