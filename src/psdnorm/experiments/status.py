"""How far an experiment has come, as its folder tells it: while it runs, and after a crash."""

import csv
import time
from dataclasses import dataclass
from pathlib import Path

from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import from_finished
from psdnorm.experiments.grid import FAILED, GRID, ExperimentFolder
from psdnorm.runtime import LOCK, Holder, holder, read_json
from psdnorm.training import CONFIG, DONE, HISTORY, Run

DONE_STATE, RUNNING, INTERRUPTED, WAITING, FAILED_STATE = STATES = (
    "done",
    "running",
    "interrupted",
    "waiting",
    "failed",
)


@dataclass(frozen=True)
class CellStanding:
    """How far a cell has come."""

    cell: Run
    state: str
    epochs: int = 0
    seconds: float | None = None
    reason: str = ""
    holder: Holder | None = None


@dataclass(frozen=True)
class Standing:
    """How far an experiment has come."""

    cells: list[CellStanding]
    work_s: float | None
    left_s: float | None

    def counts(self) -> dict[str, int]:
        """Return the number of cells in each state."""
        return {state: sum(cell.state == state for cell in self.cells) for state in STATES}


def standing(runs: ExperimentFolder) -> Standing:
    """Look how far an experiment has come."""
    entries = runs.entries()
    if not entries:
        raise ArgumentError(f"{runs.path} has no {GRID}, expected the folder of psdnorm lodo")
    cells = [_look(entry.cell, runs.folder(entry.cell)) for entry in entries]
    seconds = {c.cell: c.seconds for c in cells if c.seconds is not None}
    expected = from_finished(entries, seconds)
    if expected is None:
        return Standing(cells, None, None)
    work, now = 0.0, time.time()
    for cell in cells:
        if cell.state in (WAITING, INTERRUPTED):
            work += expected[cell.cell]
        elif cell.holder is not None:
            work += max(0.0, expected[cell.cell] - (now - cell.holder.since))
    n_running = sum(cell.state == RUNNING for cell in cells)
    return Standing(cells, work, work / n_running if n_running else None)


def _look(cell: Run, folder: Path) -> CellStanding:
    if (folder / DONE).exists():
        done = read_json(folder / DONE)
        return CellStanding(cell, DONE_STATE, done["epochs"], done["seconds"])
    epochs = _epochs(folder / HISTORY)
    who = holder(folder)
    if who is not None:
        return CellStanding(cell, RUNNING, epochs, holder=who)
    if (folder / FAILED).exists():
        reason = str(read_json(folder / FAILED).get("reason"))
        return CellStanding(cell, FAILED_STATE, epochs, reason=reason)
    begun = (folder / CONFIG).exists() or (folder / LOCK).exists()
    return CellStanding(cell, INTERRUPTED if begun else WAITING, epochs)


def _epochs(history: Path) -> int:
    try:
        with open(history, newline="") as file:
            return sum(1 for _ in csv.DictReader(file))
    except OSError:
        return 0
