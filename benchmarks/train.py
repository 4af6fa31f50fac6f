"""Time training from a store to the optimizer: ``python -m benchmarks.train``.

A run is trained on nights of noise by :func:`psdnorm.training.train_run`, from every residence of
the nights; then the same compiled network takes the same steps on one batch that is there already,
as in ``benchmarks/step.py``. Their ratio is what the way from the store costs (the bar: 0.85). How
long a run takes besides, compiling, validating, predicting, is in the table too. ``--nights 50 100
400`` shows how the time grows with nights.
"""

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks import check_table
from benchmarks.norms import environment
from benchmarks.step import N_CHANS, seconds, training_step
from psdnorm.batches.loader import RESIDENCES
from psdnorm.store import Layout, Night, Store
from psdnorm.training import Protocol, Run, Silent, train_run
from psdnorm.training.network import network_for
from psdnorm.training.run import MODELS
from psdnorm.training.train import resolve_device

N_EPOCHS, N_TIMES = 960, 3000
# the first is compiled in; of the others the fastest counts, as neighbours only slow things down
EPOCHS = 4
ITERATIONS = 50
BAR = 0.85
COLUMNS = (
    "model", "norm", "residence", "nights", "sequences", "training_per_s", "bare_per_s",
    "share_of_bare", "first_epoch_s", "validation_s", "cell_s", "device", "torch", "triton",
    "commit",
)  # fmt: skip


class Clock(Silent):
    """Notes when each epoch began, was trained and was validated."""

    def __init__(self) -> None:
        self.times: list[list[float]] = []

    def begin_epoch(self, epoch: int, first_batch: int, n_batches: int) -> None:
        """Note the beginning."""
        self.times.append([time.perf_counter()] * 3)

    def step(self, batch: int, loss: float) -> None:
        """Note the latest step; the device was waited for."""
        self.times[-1][1] = time.perf_counter()

    def end_epoch(self, row: object) -> None:
        """Note the end of validation."""
        self.times[-1][2] = time.perf_counter()


def fill(folder: Path, n_nights: int) -> Store:
    """Make a store of two cohorts with nights of noise."""
    layout = Layout(N_CHANS, N_TIMES, N_TIMES / 30)
    store = Store.create(folder, {"name": "noise"}, layout)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((N_EPOCHS, N_CHANS, N_TIMES), dtype=np.float32)
    for number in range(n_nights):
        # another order of the same epochs: drawing each anew would take longer than training
        signals = noise[rng.permutation(N_EPOCHS)]
        stages = rng.integers(0, 5, N_EPOCHS)
        cohort = "held out" if number < 2 else "noise"
        store.add(Night(f"n{number}", cohort, str(number), signals, stages, simulated=True))
    store.finish()
    return store


def rows(folder: Path, chosen: argparse.Namespace, n_nights: int) -> Iterator[dict]:
    """Measure one model with one norm on a number of nights from each residence."""
    store = fill(folder / "store", n_nights)
    device = resolve_device(chosen.device)
    run = Run(chosen.model, chosen.norm, hold_out="held out")
    protocol = Protocol(batch_size=chosen.batch, max_epochs=EPOCHS, patience=EPOCHS)
    measured = []
    for residence in chosen.residences:
        clock = Clock()
        began = time.perf_counter()
        train_run(
            store, run, protocol, folder / residence,
            device=device, residence=residence, watcher=clock,
        )  # fmt: skip
        measured.append((residence, clock.times, time.perf_counter() - began))
    bare = chosen.batch / _bare_step_s(run, protocol, store, device)
    n_train = chosen.batch * _steps_of_an_epoch(folder / chosen.residences[0])
    for residence, times, run_s in measured:
        train_s = min(trained - begun for begun, trained, _ in times[1:])
        yield {
            "model": run.model,
            "norm": run.norm,
            "residence": residence,
            "nights": n_nights,
            "sequences": n_train,
            "training_per_s": f"{n_train / train_s:.0f}",
            "bare_per_s": f"{bare:.0f}",
            "share_of_bare": f"{n_train / train_s / bare:.2f}",
            "first_epoch_s": f"{times[0][1] - times[0][0]:.1f}",
            "validation_s": f"{min(end - trained for _, trained, end in times[1:]):.2f}",
            "cell_s": f"{run_s:.1f}",
        }


def _bare_step_s(run: Run, protocol: Protocol, store: Store, device: torch.device) -> float:
    network = network_for(run, protocol, store.layout, device)  # the one that was just trained
    network.model.train()
    shape = (protocol.batch_size, protocol.length, N_CHANS, N_TIMES)
    step = training_step(network.model, network.forward, torch.randn(shape, device=device))
    step()
    step()
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    return seconds(step, ITERATIONS, wait)


def _steps_of_an_epoch(folder: Path) -> int:
    with (folder / "history.csv").open() as file:
        return int(next(csv.DictReader(file))["step"])


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if the bar is missed on a CUDA device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--model", choices=MODELS, default="usleep")
    parser.add_argument("--norm", default="psd")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--nights", type=int, nargs="+", default=[100], help="sizes of the store")
    parser.add_argument("--residences", nargs="+", choices=RESIDENCES, default=list(RESIDENCES))
    parser.add_argument("--csv", default="train.csv")
    parser.add_argument("--folder", help="temporary files go here")
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    where = environment(chosen.device)
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    missed = 0
    with open(chosen.csv, "w") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for n_nights in chosen.nights:
            with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
                for row in rows(Path(folder), chosen, n_nights):
                    table.writerow(row | where)
                    file.flush()
                    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                    missed |= chosen.device == "cuda" and float(row["share_of_bare"]) < BAR
    return missed


if __name__ == "__main__":
    sys.exit(main())
