"""What a study cost, piece by piece: ``cost.json`` beside its cells.

Seconds are those of the wall, in which the device was held. Sequences are those that finished
cells learned from: what an interrupted cell did counts in the piece that finishes it.
"""

import os
import subprocess
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import psdnorm
from psdnorm.training.adabn import AdaptedCell
from psdnorm.training.cell import read_json
from psdnorm.training.grid import Runs
from psdnorm.training.process import resolve_device
from psdnorm.training.records import DONE, write_json
from psdnorm.training.work import FINISHED, Outcome

COST = "cost.json"


@dataclass
class Piece:
    """One call of the command.

    Attributes
    ----------
    began : str
        UTC, ISO 8601.
    seconds : float
        In which cells ran.
    simulation_seconds : float
        In which nights were made, before.
    cells, sequences : int
        Cells that it finished, and what these had learned from, epoch by epoch.
    workers : int
    device, psdnorm, torch : str
    commit : str or None
        Of the repository that the study's file is in, "+" behind it where that had changes; see
        :func:`commit_of`.
    """

    began: str
    seconds: float
    simulation_seconds: float
    cells: int
    sequences: int
    workers: int
    device: str
    psdnorm: str
    torch: str
    commit: str | None


class Meter:
    """Measures a piece, and writes it down after every cell: it may be killed.

    Parameters
    ----------
    runs : Runs
        The folder of the cells, which gets ``cost.json``.
    device : str
    workers : int
    batch_size : int
    commit : str or None
    """

    def __init__(
        self, runs: Runs, device: str, workers: int, batch_size: int, commit: str | None
    ) -> None:
        place = resolve_device(device)
        named = torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu"
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        versions = psdnorm.__version__, str(torch.__version__)
        self._piece = Piece(began, 0.0, 0.0, 0, 0, workers, named, *versions, commit)
        self._runs, self._batch_size = runs, batch_size
        self._began = time.monotonic()

    def simulated(self) -> None:
        """Take the time so far as that of the simulation."""
        self._piece.simulation_seconds = time.monotonic() - self._began
        self._began = time.monotonic()

    def count(self, outcome: Outcome) -> None:
        """Count a cell."""
        if outcome.status == FINISHED:
            self._piece.cells += 1
            if not isinstance(outcome.cell, AdaptedCell):
                steps = read_json(self._runs.folder(outcome.cell) / DONE)["steps"]
                self._piece.sequences += steps * self._batch_size
        self.write()

    def write(self) -> None:
        """Write down what the piece cost so far, beside those before it."""
        self._piece.seconds = time.monotonic() - self._began
        own = {"pieces": [asdict(self._piece)]}
        write_json(self._runs.path / COST, merged_costs(read_cost(self._runs.path), own))


def read_cost(folder: Path) -> dict[str, Any]:
    """Read what the pieces so far cost; of a study that was not begun, nothing.

    Parameters
    ----------
    folder : Path
    """
    return read_json(folder / COST) if (folder / COST).exists() else {"pieces": []}


def merged_costs(*documents: dict[str, Any]) -> dict[str, Any]:
    """Put pieces together, each once, the latest word on each.

    Parameters
    ----------
    *documents : dict
        From :func:`read_cost`, later ones later.

    Returns
    -------
    dict
        ``pieces``, and of all of them ``seconds`` (of cells and of simulation), ``cells``,
        ``sequences`` and ``sequences_per_second`` of the time in which cells ran.
    """
    known = {piece["began"]: piece for document in documents for piece in document["pieces"]}
    pieces = [known[began] for began in sorted(known)]
    names = ("seconds", "simulation_seconds", "cells", "sequences")
    sums = {name: sum(piece[name] for piece in pieces) for name in names}
    rate = sums["sequences"] / sums["seconds"] if sums["seconds"] else 0.0
    return {**sums, "sequences_per_second": rate, "pieces": pieces}


def commit_of(path: Path) -> str | None:
    """Return the commit of the repository that a file is in.

    Parameters
    ----------
    path : Path

    Returns
    -------
    str or None
        Where git tells none, as in a copy without history, what ``PSDNORM_COMMIT`` says.
    """

    def git(*words: str) -> str:
        run = subprocess.run(
            ["git", "-C", str(path.absolute().parent), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("PSDNORM_COMMIT")
