"""The folder of one run: config, state, logs, scores."""

import contextlib
import io
import platform
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

import psdnorm
from psdnorm.batches import Split, window_starts
from psdnorm.errors import ArgumentError, MissingExtraError, StoreError, TrainingError, os_errors_as
from psdnorm.evaluation import PROBABILITIES, merge_scores, score_night, write_scores
from psdnorm.runtime import digest, read_json, write_json, written
from psdnorm.store import Store
from psdnorm.training.predict import NightPrediction
from psdnorm.training.run import Protocol, Run

FILE = "resume.pt"
FORMAT = 1
Row = dict[str, float | int]


@dataclass
class Position:
    """Progress of a training: the next batch, and the history up to it."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0, 0.0])  # weighted losses, weights
    best_loss: float = float("inf")
    best_epoch: int = -1  # before the first
    finished: bool = False
    history: list[Row] = field(default_factory=list)
    seconds: float = 0.0  # total over all resumed processes

    def end_epoch(self, row: Row, patience: int, max_epochs: int) -> bool:
        """Advance to the next epoch, or finish; return whether this one was the best."""
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
    """The contents of a resume file."""

    run: str  # digest of the configuration
    position: Position
    model: dict[str, Tensor]
    best: dict[str, Tensor] | None  # weights with the lowest validation loss; None before any
    optimizer: dict[str, Any]
    generators: list[dict[str, Any]]  # random states, one per process


def write_state(folder: Path, state: State) -> None:
    """Write the resume file of a run atomically."""
    content = io.BytesIO()
    # not asdict(state), which would copy every tensor
    fields = {**vars(state), "position": asdict(state.position), "format": FORMAT}
    torch.save(fields, content)
    # through memory, as torch's writer hides system errors, such as a full disk
    with written(folder / FILE) as file:
        file.write(content.getbuffer())


def read_state(folder: Path, run: str) -> State | None:
    """Read the resume file of the run with this digest; None if it does not exist."""
    path = folder / FILE
    if not path.exists():
        return None
    with os_errors_as(TrainingError, path, "cannot be read"):
        file = io.BytesIO(path.read_bytes())
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
        if content.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        state = State(**{**content, "position": Position(**content["position"])})
    except Exception as error:  # a damaged file can raise anything
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
    """Return the states of all random generators of this process, as basic types."""
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


HISTORY = "history.csv"
TENSORBOARD = "tensorboard"


class Logs:
    """History and TensorBoard curves of a run; existing points after ``step`` are dropped."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                'the curves of a training need tensorboard: pip install "psdnorm[train]"'
            ) from error
        self._folder, self._curves = folder, folder / TENSORBOARD
        with os_errors_as(StoreError, self._curves, "cannot be written"):
            self._writer = SummaryWriter(str(self._curves), purge_step=step + 1)

    def curve(self, step: int, values: Row) -> None:
        """Add points to the curves."""
        with os_errors_as(StoreError, self._curves, "cannot be written"):
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()

    def history(self, rows: Sequence[Row]) -> None:
        """Atomically write the table of all epochs so far."""
        text = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n", na_rep="nan")
        with written(self._folder / HISTORY) as file:
            file.write(text.encode())


CONFIG, SCORES, PREDICTIONS = "config.json", "scores.parquet", "predictions.parquet"
WEIGHTS, DONE = "weights", "done.json"
CHOICE = "filter_size_choice"  # in config.json, done.json and the checkpoint
LENDER = "borrowed_from"  # in config.json: the study whose results were reused
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("cohort", "subject", "visit", "recording")),
        ("epoch", pa.int32()),
        ("central", pa.bool_()),
        ("true", pa.int8()),
        *((name, pa.float32()) for name in PROBABILITIES),
    ]
)


def configuration(store: Store, run: Run, protocol: Protocol, split: Split) -> dict[str, Any]:
    """Describe a run, for ``config.json``."""
    nights = {
        role: {
            "cohorts": sorted(rows["cohort"].unique().tolist()),
            "subjects": len(rows[["cohort", "subject"]].drop_duplicates()),
            "nights": len(rows),
            "sha256": digest(sorted(zip(rows["recording"], rows["digest"], strict=True))),
        }
        for role, rows in split._asdict().items()
    }
    decisive: dict[str, Any] = {"cell": run.to_json(), "protocol": protocol.to_json()}
    decisive |= {"recipe_sha256": store.hash, "data": nights}
    return {
        **decisive,
        "run": digest(decisive),
        "recipe": store.recipe,
        "simulated": bool(any(rows["simulated"].any() for rows in split)),
        "versions": {
            "psdnorm": psdnorm.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def claim_folder(folder: Path, described: dict[str, Any]) -> None:
    """Write ``config.json`` to a folder, creating it if needed; raise if it is another run's."""
    with os_errors_as(ArgumentError, folder, "cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / CONFIG
    if not path.exists():
        write_json(path, described)
        return
    there = read_json(path)
    if not isinstance(there, dict) or there.get("run") != described["run"]:
        names = ("cell", "protocol", "recipe_sha256", "data")
        differs = isinstance(there, dict) and [n for n in names if there.get(n) != described[n]]
        what = ", ".join(differs) if differs else "what it describes"
        raise ArgumentError(
            f"{folder} holds another run, whose {CONFIG} differs in {what}, expected an empty "
            "folder or the same run"
        )


def choice_before(folder: Path, described: dict[str, Any]) -> dict[str, Any] | None:
    """Return the filter size choice of a run that was started before, else None."""
    if not (folder / CONFIG).exists():
        return None
    claim_folder(folder, described)  # raises if it is another run's
    return read_json(folder / CONFIG)[CHOICE]


def chosen_filter_size(done: Mapping[str, Any]) -> int | None:
    """Return the chosen filter size in ``done.json``, or None."""
    choice = done.get(CHOICE)
    return None if choice is None else int(choice["filter_size"])


def write_outcome(
    folder: Path, index: pd.DataFrame, predictions: Iterable[NightPrediction], *, keep: bool
) -> pd.DataFrame:
    """Score the held-out nights by subject; write the scores and, if ``keep``, the predictions."""
    nights = index[["cohort", "subject", "visit", "recording", "stages"]].to_dict("records")
    scores = []
    with contextlib.ExitStack() as stack:
        table = None
        if keep:
            file = stack.enter_context(written(folder / PREDICTIONS))
            table = stack.enter_context(pq.ParquetWriter(file, _SCHEMA, compression="zstd"))
        for night, probabilities, central in predictions:
            row = nights[night]
            true = np.frombuffer(row.pop("stages"), np.int8)
            scores.append(score_night(row["cohort"], row["subject"], true, probabilities, central))
            if table is not None:
                columns: dict[str, Any] = {name: [value] * len(true) for name, value in row.items()}
                columns |= {"epoch": np.arange(len(true)), "central": central, "true": true}
                columns |= dict(zip(PROBABILITIES, probabilities.T, strict=True))
                table.write_table(pa.table(columns, _SCHEMA))
    merged = merge_scores(scores)
    write_scores(folder / SCORES, merged)
    return merged


class Timed:
    """Times an iterator of predictions: its ``seconds`` include reading, alignment, adaptation."""

    def __init__(self, predictions: Iterable[NightPrediction]) -> None:
        self._predictions = predictions
        self.seconds = 0.0

    def __iter__(self) -> Iterator[NightPrediction]:
        source = iter(self._predictions)
        while True:
            began = time.monotonic()
            prediction = next(source, None)
            self.seconds += time.monotonic() - began
            if prediction is None:
                return
            yield prediction


def predicted_sequences(index: pd.DataFrame, protocol: Protocol) -> int:
    """Count the windows needed to predict all nights once."""
    size = protocol.length, protocol.stride
    return sum(len(window_starts(int(n), *size)) for n in index["epochs"])
