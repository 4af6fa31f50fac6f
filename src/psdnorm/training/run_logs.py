"""What a training writes down as it goes: a table of epochs, and curves for TensorBoard."""

import csv
import io
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psdnorm.errors import MissingExtraError, StoreError
from psdnorm.runtime.files import written
from psdnorm.training.run_state import Row

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
