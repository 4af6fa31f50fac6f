"""What a study cost, piece by piece: ``cost.json`` beside its cells.

Sequences are those that finished cells learned from: what an interrupted cell did counts in the
piece that finishes it.
"""

from psdnorm.experiments.cost import PieceMeter
from psdnorm.experiments.grid import Runs
from psdnorm.experiments.work import FINISHED, Outcome
from psdnorm.training.adabn import AdaptedCell
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import DONE

COUNTED = "cells"


class Meter(PieceMeter):
    """Measures a piece, and writes it down after every cell.

    Parameters
    ----------
    runs : Runs
        The folder of the cells, which gets ``cost.json``.
    device : str
    workers : int
    batch_size : int
    commit : str or None
        Of the repository that the study's file is in.
    """

    def __init__(
        self, runs: Runs, device: str, workers: int, batch_size: int, commit: str | None
    ) -> None:
        super().__init__(runs.path, device, commit, counted=COUNTED, workers=workers)
        self._runs, self._batch_size = runs, batch_size

    def count(self, outcome: Outcome) -> None:
        """Count a cell that was finished, and what it learned from, epoch by epoch."""
        if outcome.status == FINISHED:
            self.add(self._learned_from(outcome))
        self.write()

    def _learned_from(self, outcome: Outcome) -> int:
        if isinstance(outcome.cell, AdaptedCell):  # which learns from none
            return 0
        steps = read_json(self._runs.folder(outcome.cell) / DONE)["steps"]
        return steps * self._batch_size
