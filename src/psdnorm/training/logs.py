"""What a training writes down as it goes: a table of epochs, and curves for TensorBoard."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from psdnorm.errors import MissingExtraError
from psdnorm.store.atomic import written
from psdnorm.training.state import Row

HISTORY = "history.csv"
TENSORBOARD = "tensorboard"


class Logs:
    """The logs of a run.

    Parameters
    ----------
    folder : Path
        Of the run.
    step : int
        Steps that were taken before: what an earlier process wrote beyond them is dropped.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from lightning.fabric.loggers import TensorBoardLogger

        self._folder = folder
        try:
            self._curves = TensorBoardLogger(folder, TENSORBOARD, version="", purge_step=step + 1)
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                'the curves of a training need tensorboard: pip install "psdnorm[train]"'
            ) from error

    def curve(self, step: int, values: Row) -> None:
        """Add points to the curves."""
        self._curves.log_metrics(values, step)

    def history(self, rows: Sequence[Row]) -> None:
        """Write the table of all epochs so far, whole or not at all."""
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        with written(self._folder / HISTORY) as file:
            file.write(text.getvalue().encode())

    def close(self) -> None:
        """Write what is not written yet."""
        self._curves.finalize("")
