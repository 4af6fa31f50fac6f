"""What a run leaves in its folder.

::

    RUN/
      config.json           cell, protocol, recipe, who trained and tested, versions; where the
                            filter size is "auto", which one was chosen, and why
      history.csv           one row per epoch
      tensorboard/          the same and more as curves
      scores.parquet        per held-out subject: confusion matrix and calibration bins
      predictions.parquet   one row per epoch of the held-out cohort, if they are kept
      weights/              the best weights, as a checkpoint, if they are kept
      done.json             written last: the run is finished; what it came to, and its times
      resume.pt             only while it is not
"""

import contextlib
import hashlib
import json
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import psdnorm
from psdnorm.batches import Split, window_starts
from psdnorm.errors import ArgumentError
from psdnorm.evaluation.scores import PROBABILITIES, merge_scores, score_night, write_scores
from psdnorm.runtime.files import written
from psdnorm.store import Store
from psdnorm.training.cell import Cell, Protocol, read_json
from psdnorm.training.predict import NightPrediction

if TYPE_CHECKING:
    import pandas as pd

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


def configuration(store: Store, cell: Cell, protocol: Protocol, split: Split) -> dict[str, Any]:
    """Describe a run: what ``config.json`` says.

    Parameters
    ----------
    store : Store
    cell : Cell
    protocol : Protocol
    split : Split
    """
    nights = {
        role: {
            "cohorts": sorted(rows["cohort"].unique().tolist()),
            "subjects": len(rows[["cohort", "subject"]].drop_duplicates()),
            "nights": len(rows),
            "sha256": _digest(sorted(zip(rows["recording"], rows["digest"], strict=True))),
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
        "run": _digest(decisive),
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


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with written(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def _table(path: Path) -> Iterator[pq.ParquetWriter]:
    with written(path) as file, pq.ParquetWriter(file, _SCHEMA, compression="zstd") as writer:
        yield writer


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
