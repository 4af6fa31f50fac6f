"""Estimated and recorded costs of a grid."""

import math
import os
import subprocess
import time
import timeit
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import psdnorm
from psdnorm.adaptation import domains
from psdnorm.batches import leave_one_dataset_out, window_starts
from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import PlannedRun
from psdnorm.runtime import plural, read_json, write_json
from psdnorm.store import Layout, Store
from psdnorm.training import CANDIDATES, Protocol, Run, build_model, resolve_device, with_size

COST = "cost.json"
_SUMMED = ("seconds", "simulation_seconds", "sequences")


class PieceMeter:
    """Records the cost of a command's call while it runs, so that killed calls are counted, too."""

    def __init__(
        self, folder: Path, device: str, commit: str | None, *, counted: str, **processes: int
    ) -> None:
        place = resolve_device(device)
        for piece in read_cost(folder)["pieces"]:  # fail before any work is done
            if counted not in piece:
                raise ArgumentError(
                    f"{folder / COST} has a piece without {counted}, expected how many it finished"
                )
        self._folder, self._counted = folder, counted
        self._piece: dict[str, Any] = {
            "began": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": 0.0,  # of work, after nights were simulated
            "simulation_seconds": 0.0,
            counted: 0,
            "sequences": 0,  # of finished work
            **processes,
            "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
            "psdnorm": psdnorm.__version__,
            "torch": str(torch.__version__),
            # these determine the bits of simulated nights
            **{library: version(library) for library in ("numpy", "scipy")},
            "commit": commit,
        }
        self._passing, self._began = "simulation_seconds", time.monotonic()

    def simulated(self) -> None:
        """Attribute the elapsed time to the simulation."""
        self._note_time()
        self._passing, self._began = "seconds", time.monotonic()

    def add(self, sequences: int) -> None:
        """Count one finished item and its sequences."""
        self._piece[self._counted] += 1
        self._piece["sequences"] += sequences

    def write(self) -> None:
        """Record the cost of the piece so far, after earlier pieces."""
        self._note_time()
        before, own = read_cost(self._folder), {"pieces": [self._piece]}
        write_json(self._folder / COST, merged_costs(before, own, counted=self._counted))

    def _note_time(self) -> None:
        self._piece[self._passing] = time.monotonic() - self._began


def read_cost(folder: Path) -> dict[str, Any]:
    """Read the recorded pieces of a folder; an empty list if there are none."""
    path = folder / COST
    if not path.exists():
        return {"pieces": []}
    found = read_json(path)
    try:
        is_good = isinstance(found["pieces"], list) and all(
            isinstance(piece["began"], str)
            and all(isinstance(piece[name], int | float) for name in _SUMMED)
            for piece in found["pieces"]
        )
    except (KeyError, TypeError):
        is_good = False
    if not is_good:
        raise ArgumentError(f"{path} has no list of pieces, expected one of what each piece cost")
    return found


def merged_costs(*documents: dict[str, Any], counted: str) -> dict[str, Any]:
    """Merge pieces, keeping the last version of each, and sum their costs."""
    known = {piece["began"]: piece for document in documents for piece in document["pieces"]}
    pieces = [known[began] for began in sorted(known)]
    sums = {name: sum(piece[name] for piece in pieces) for name in (*_SUMMED, counted)}
    rate = sums["sequences"] / sums["seconds"] if sums["seconds"] else 0.0
    return {**sums, "sequences_per_second": rate, "pieces": pieces}


def commit_of(path: Path, *, only_tracked: bool = False) -> str | None:
    """Return the commit of a file's repository, plus "+" if modified; else $PSDNORM_COMMIT."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(path.absolute().parent), *words]
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()

    try:
        if only_tracked:  # a file installed into a repository's folder does not belong to a commit
            git("ls-files", "--error-unmatch", path.name)
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("PSDNORM_COMMIT")


# until early stopping; the paper does not state it, but its 1,500 GPU-hours, at its 173 seconds
# per epoch for balanced@400, correspond to 18 for each training of our presets
EPOCHS = 15


@dataclass(frozen=True)
class Rates:
    """Sequences per second of training and of prediction."""

    training: float
    prediction: float


# on one H200, of the step alone in the fast configuration (docs/performance.md); training U-Sleep
# from a store reached 93 to 98 % of it (docs/scaling.md)
_OF_THE_STEP = 0.93
H200 = {
    "usleep": Rates(5122 * _OF_THE_STEP, 16881 * _OF_THE_STEP),
    "cnn-transformer": Rates(11394 * _OF_THE_STEP, 41779 * _OF_THE_STEP),
}


@dataclass(frozen=True)
class Amount:
    """Number of sequences in the training, validation and test set of a run."""

    training: float
    validation: float
    test: float

    def seconds(self, run: Run, rates: Rates, epochs: float = EPOCHS) -> float:
        """Return the time that a run takes; AdaBN processes the test set twice."""
        if run.is_adapted:
            return 2 * self.test / rates.prediction
        once = self.training / rates.training + self.validation / rates.prediction
        return epochs * once + self.test / rates.prediction

    def in_batches(self, batch_size: int) -> "Amount":
        """Return the number of sequences computed, as incomplete batches are filled."""
        parts = self.training, self.validation, self.test
        return Amount(*(batch_size * math.ceil(part / batch_size) for part in parts))


class Amounts:
    """Amounts of runs on a store."""

    def __init__(self, store: Store, protocol: Protocol) -> None:
        self._index, self._fraction = store.index, protocol.validation_fraction
        self._windows = self._index["epochs"].map(
            lambda n: len(window_starts(int(n), protocol.length, protocol.stride))
        )
        self._known: dict[tuple[str, int | None], Amount] = {}

    def of(self, run: Run) -> Amount:
        """Return the number of sequences of a run, assumed to be independent of the seed."""
        key = run.hold_out, run.balanced
        if key not in self._known:
            split = leave_one_dataset_out(
                self._index, run.hold_out, n_subjects=run.balanced, fraction=self._fraction
            )
            self._known[key] = Amount(*(int(self._windows[part.index].sum()) for part in split))
        return self._known[key]

    def entry(self, run: Run) -> PlannedRun:
        """Return a run with the number of sequences that its time is proportional to."""
        amount = self.of(run)
        return PlannedRun(run, int(amount.test if run.is_adapted else amount.training))


def from_finished(
    entries: Iterable[PlannedRun], seconds: Mapping[Run, float]
) -> dict[Run, float] | None:
    """Estimate the seconds of every run from finished ones; None if no training is finished."""
    entries = list(entries)
    # by model and, under "", over all models, for models without a finished run
    sums: dict[tuple[str, bool], list[float]] = {}
    for entry in entries:
        if entry.run in seconds and entry.sequences:
            for key in ((entry.run.model, entry.run.is_adapted), ("", entry.run.is_adapted)):
                sums.setdefault(key, [0.0, 0.0])
                sums[key][0] += seconds[entry.run]
                sums[key][1] += entry.sequences
    if ("", False) not in sums:
        return None
    # before any is finished, an AdaBN run is assumed to cost as much as an epoch of training
    sums.setdefault(("", True), [sums["", False][0] / EPOCHS, sums["", False][1]])
    rate = {key: total / count for key, (total, count) in sums.items()}
    kinds = {run: (run.model, run.is_adapted) for run, _ in entries}
    return {run: n * rate.get(kinds[run], rate["", run.is_adapted]) for run, n in entries}


def relative_work(entry: PlannedRun) -> float:
    """Return how long a run takes relative to others, before any is finished."""
    rates, n = H200[entry.run.model], entry.sequences
    return 2 * n / rates.prediction if entry.run.is_adapted else EPOCHS * n / rates.training


def from_rates(
    runs: Iterable[Run], amounts: Amounts, rates: Mapping[str, Rates], protocol: Protocol
) -> dict[Run, float]:
    """Estimate the seconds of every run from the rates of its model."""
    epochs, size = min(EPOCHS, protocol.max_epochs), protocol.batch_size
    return {
        run: amounts.of(run).in_batches(size).seconds(run, rates[run.model], epochs) for run in runs
    }


def measured_rates(run: Run, protocol: Protocol, layout: Layout, batch_size: int = 4) -> Rates:
    """Time a training and a prediction step on this machine's CPU."""
    one_domain = domains([0] * batch_size)
    with torch.random.fork_rng([]), one_domain:
        model = build_model(with_size(run, CANDIDATES[-1]), protocol, layout)
        x = torch.randn(batch_size, protocol.length, layout.n_channels, layout.n_times)
        training = _seconds(lambda: model.train()(x).square().mean().backward())
        with torch.no_grad():
            prediction = _seconds(lambda: model.eval()(x))
    return Rates(batch_size / training, batch_size / prediction)


def _seconds(step) -> float:
    step()  # warm-up: the first step is slower
    return timeit.timeit(step, number=1)


# of patience: in a simulated study, two norms of four scored 18 points less with 70 than with 260;
# nothing in between was tested, so there is no warning from 200 on
FEW_STEPS, ENOUGH_STEPS = 200, 260


def short_patience(runs: Iterable[Run], amounts: Amounts, protocol: Protocol) -> str | None:
    """Return a warning if a protocol's patience is too few steps for some run, else None."""
    sizes = {run: amounts.of(run).training for run in runs}
    # the first epoch is always the best so far, so stopping takes at least patience + 1 epochs
    if not sizes or protocol.patience + 1 >= protocol.max_epochs:
        return None
    shortest = min(sizes, key=sizes.__getitem__)
    steps = max(1, math.ceil(sizes[shortest] / protocol.batch_size))
    if steps * protocol.patience >= FEW_STEPS:
        return None
    enough = math.ceil(ENOUGH_STEPS / steps)
    advice = f"a patience of {protocol.max_epochs} would stop none before its last epoch"
    if enough + 1 < protocol.max_epochs:
        advice = f"a patience of {enough} would be {enough * steps}"
    return (
        f"an epoch of {shortest.name} has {plural(steps, 'step')}, so that a patience of "
        f"{protocol.patience} is {steps * protocol.patience} of them: a noisy validation may stop "
        f"such a training before it has learned; {advice}"
    )
