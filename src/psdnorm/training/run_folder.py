"""The folder of one run: config, state, logs, scores."""

import contextlib
import csv
import io
import os
import platform
import random
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

import psdnorm
from psdnorm.batches import Split, window_starts
from psdnorm.errors import ArgumentError, MissingExtraError, StoreError, TrainingError
from psdnorm.evaluation import PROBABILITIES, merge_scores, score_night, write_scores
from psdnorm.runtime import digest, read_json, write_json, written
from psdnorm.store import Store
from psdnorm.training.predict import NightPrediction
from psdnorm.training.run import Protocol, Run

if TYPE_CHECKING:
    import pandas as pd

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


HISTORY = "history.csv"
TENSORBOARD = "tensorboard"


class Logs:
    """The logs of a run.

    Curves are written at once: TensorBoard's own writer does it in a thread, where an error, such
    as a full disk, is a traceback and no more.

    Parameters
    ----------
    folder : Path
        Of the run.
    step : int
        Steps that were taken before: what an earlier process wrote beyond them is dropped.
    """

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import (  # type: ignore[import-untyped]
                Event,
                SessionLog,
            )
            from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]
                RecordWriter,
            )
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                'the curves of a training need tensorboard: pip install "psdnorm[train]"'
            ) from error
        self._folder, self._event, self._writer = folder, Event, RecordWriter
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / TENSORBOARD / name
        self._add(file_version="brain.Event:2")
        self._add(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def curve(self, step: int, values: Row) -> None:
        """Add points to the curves."""
        points = [{"tag": name, "simple_value": value} for name, value in values.items()]
        self._add(step=step, summary={"value": points})

    def history(self, rows: Sequence[Row]) -> None:
        """Write the table of all epochs so far, whole or not at all."""
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        with written(self._folder / HISTORY) as file:
            file.write(text.getvalue().encode())

    def _add(self, **event: Any) -> None:
        record = self._event(wall_time=time.time(), **event).SerializeToString()
        try:
            self._path.parent.mkdir(exist_ok=True)
            with open(self._path, "ab") as file:
                self._writer(file).write(record)
        except OSError as error:
            reason = error.strerror or error
            raise StoreError(f"{self._path.parent} cannot be written: {reason}") from error


CONFIG, SCORES, PREDICTIONS = "config.json", "scores.parquet", "predictions.parquet"
WEIGHTS, DONE = "weights", "done.json"
CHOICE = "filter_size_choice"  # in config.json, done.json and the checkpoint
LENDER = "borrowed_from"  # in config.json: the study that ran a cell which another one took
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("cohort", "subject", "visit", "recording")),
        ("epoch", pa.int32()),
        ("central", pa.bool_()),
        ("true", pa.int8()),
        *((name, pa.float32()) for name in PROBABILITIES),
    ]
)


def configuration(store: Store, cell: Run, protocol: Protocol, split: Split) -> dict[str, Any]:
    """Describe a run: what ``config.json`` says.

    Parameters
    ----------
    store : Store
    cell : Run
    protocol : Protocol
    split : Split
    """
    nights = {
        role: {
            "cohorts": sorted(rows["cohort"].unique().tolist()),
            "subjects": len(rows[["cohort", "subject"]].drop_duplicates()),
            "nights": len(rows),
            "sha256": digest(sorted(zip(rows["recording"], rows["digest"], strict=True))),
        }
        for role, rows in split._asdict().items()
    }
    decisive = {
        "cell": cell.to_json(),
        "protocol": protocol.to_json(),
        "recipe_sha256": store.hash,
        "data": nights,
    }
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
    """Write ``config.json`` into a folder; refuse one that another run has.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    described : dict
        From :func:`configuration`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{folder} cannot be made: {error.strerror}") from error
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
            f"{folder} holds another run, which differs in {what}, expected an empty folder or the "
            "same run"
        )


def choice_before(folder: Path, described: dict[str, Any]) -> dict[str, Any] | None:
    """Return what was chosen when a run was begun: it goes on with the same; None if it was not.

    Parameters
    ----------
    folder : Path
    described : dict
        From :func:`configuration`.
    """
    if not (folder / CONFIG).exists():
        return None
    claim_folder(folder, described)  # refuses that of another run
    return read_json(folder / CONFIG)[CHOICE]


def chosen_filter_size(done: Mapping[str, Any]) -> int | None:
    """Return the filter size that was chosen for a finished run; None where none was to be.

    Parameters
    ----------
    done : mapping
        What ``done.json`` says.
    """
    choice = done.get(CHOICE)
    return None if choice is None else int(choice["filter_size"])


def write_outcome(
    folder: Path, index: "pd.DataFrame", predictions: Iterable[NightPrediction], *, keep: bool
) -> "pd.DataFrame":
    """Score the held-out nights and write the tables; return the scores per subject.

    Parameters
    ----------
    folder : Path
    index : DataFrame
        The held-out nights.
    predictions : iterable of NightPrediction
        Of these nights, gone through once.
    keep : bool
        Whether to keep the predictions too.

    Returns
    -------
    DataFrame
        As :func:`psdnorm.evaluation.read_scores` reads it; of central epochs.
    """
    nights = index[["cohort", "subject", "visit", "recording", "stages"]].to_dict("records")
    scores = []
    with _table(folder / PREDICTIONS) if keep else contextlib.nullcontext() as table:
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
    """Predictions that count the seconds in which they are made: what follows on them is not in it.

    Nights are read, aligned or adapted to within these seconds, too. Of a run that was stopped
    while it predicted, they are those of the last time, in which all nights were predicted.

    Parameters
    ----------
    predictions : iterable of NightPrediction
        Made as they are asked for.

    Attributes
    ----------
    seconds : float
        So far.
    """

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

    def spent_on(self, index: "pd.DataFrame", protocol: Protocol) -> dict[str, Any]:
        """Return what ``done.json`` says of it: seconds, and what was predicted in them.

        Parameters
        ----------
        index : DataFrame
            The nights that were predicted.
        protocol : Protocol
            Whose windows are the sequences; each counts once.
        """
        return {
            "prediction_seconds": self.seconds,
            "nights": len(index),
            "sequences": predicted_sequences(index, protocol),
        }


def predicted_sequences(index: "pd.DataFrame", protocol: Protocol) -> int:
    """Count the sequences in which nights are predicted: their windows, each once.

    Parameters
    ----------
    index : DataFrame
        The nights.
    protocol : Protocol
    """
    return sum(
        len(window_starts(int(n), protocol.length, protocol.stride)) for n in index["epochs"]
    )


@contextlib.contextmanager
def _table(path: Path) -> Iterator[pq.ParquetWriter]:
    with written(path) as file, pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        yield writer
