"""Progress of an experiment, read from its folder, both while it runs and after a crash."""

import csv
import time
from dataclasses import dataclass
from pathlib import Path

from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import from_finished
from psdnorm.experiments.grid import FAILED, GRID, ExperimentFolder
from psdnorm.runtime import LOCK, Holder, holder, read_json
from psdnorm.training import CONFIG, DONE, HISTORY, Run

STATES = ("done", "running", "interrupted", "waiting", "failed")  # interrupted: no process on it
DONE_STATE, RUNNING, INTERRUPTED, WAITING, FAILED_STATE = STATES


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run."""

    run: Run
    state: str  # one of STATES
    epochs: int = 0
    seconds: float | None = None  # if it is done
    reason: str = ""  # if it failed
    holder: Holder | None = None  # the process working on it


@dataclass(frozen=True)
class Status:
    """Progress of an experiment, and the remaining work, without failed runs."""

    runs: list[RunStatus]
    work_s: float | None  # for one worker; None before the first training is finished
    left_s: float | None  # for the current number of workers; None if there are none

    def counts(self) -> dict[str, int]:
        """Return the number of runs in each state."""
        return {state: sum(run.state == state for run in self.runs) for state in STATES}


def status_of(folder: ExperimentFolder) -> Status:
    """Read the progress of an experiment."""
    entries = folder.entries()
    if not entries:
        raise ArgumentError(f"{folder.path} has no {GRID}, expected the folder of psdnorm lodo")
    runs = [_run_status(entry.run, folder.folder(entry.run)) for entry in entries]
    expected = from_finished(entries, {r.run: r.seconds for r in runs if r.seconds is not None})
    if expected is None:
        return Status(runs, None, None)
    work, now = 0.0, time.time()
    for each in runs:
        if each.state in (WAITING, INTERRUPTED):
            work += expected[each.run]
        elif each.holder is not None:
            work += max(0.0, expected[each.run] - (now - each.holder.since))
    n_running = sum(each.state == RUNNING for each in runs)
    return Status(runs, work, work / n_running if n_running else None)


def _run_status(run: Run, folder: Path) -> RunStatus:
    if (folder / DONE).exists():
        done = read_json(folder / DONE)
        return RunStatus(run, DONE_STATE, done["epochs"], done["seconds"])
    try:
        with open(folder / HISTORY, newline="") as file:
            epochs = sum(1 for _ in csv.DictReader(file))
    except OSError:
        epochs = 0
    who = holder(folder)
    if who is not None:
        return RunStatus(run, RUNNING, epochs, holder=who)
    if (folder / FAILED).exists():
        reason = str(read_json(folder / FAILED).get("reason"))
        return RunStatus(run, FAILED_STATE, epochs, reason=reason)
    begun = (folder / CONFIG).exists() or (folder / LOCK).exists()
    return RunStatus(run, INTERRUPTED if begun else WAITING, epochs)
