"""Time the preparation of one night: ``python -m benchmarks.prepare``.

A night of 8 h in an EDF: two derivations of four channels at 256 Hz, beside an EOG, an EMG, an ECG
at 512 Hz and an oximeter that are not needed, in the system's cache; ``OMP_NUM_THREADS=1`` for one
core. First each step alone (read: header, channels, scoring and fingerprint; filter: low-pass,
resample, scale, clip and look for faults; write: checksum of the whole source, half precision, to
disk), then all of it as ``psdnorm prepare`` does it. The bar is 6 s, the goal 3 s. ``times_read``
compares with a plain read of the file's bytes. Medians of several turns, after one that warms up.
"""

import argparse
import csv
import platform
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import scipy

from benchmarks import check_table
from psdnorm.cohorts import NightFiles, find_nights, read_night
from psdnorm.io.scoring import write_stages
from psdnorm.lab.simulate import Trace, write_edf
from psdnorm.prepare.prepare import checksum, fingerprint, prepare_night
from psdnorm.prepare.recipe import RECIPES
from psdnorm.prepare.signals import preprocess
from psdnorm.store import Night, Store

COLUMNS = ("what", "recipe", "seconds", "times_read", "device", "numpy", "scipy")
STEPS = ("plain read", "read", "filter", "write", "all")
CHANNELS = {"C3": 256, "C4": 256, "M1": 256, "M2": 256, "E1": 256, "EMG": 256, "ECG": 512}
MOST_SECONDS = 6.0


def make_night(folder: Path, hours: float) -> NightFiles:
    """Write a night of coloured noise and its scoring, and find it as a user's file."""
    rng = np.random.default_rng(0)
    n_seconds = int(hours * 3600)
    traces = []
    for label, sfreq in CHANNELS.items():
        white = rng.standard_normal(n_seconds * sfreq, dtype=np.float32)
        slow = scipy.signal.lfilter(np.float32([1]), np.float32([1, -0.97]), white)
        traces.append(Trace(label, 5 * slow, sfreq, "uV"))
    traces.append(Trace("SaO2", np.full(n_seconds, 97, np.float32), 1, "%"))
    write_edf(folder / "night.edf", traces, datetime(2001, 2, 3, 22, 0))
    stages = rng.integers(0, 5, n_seconds // 30)
    write_stages(folder / "night.xml", stages.tolist(), "nsrr")
    return find_nights("folder", folder).nights[0]


def time_once(night: NightFiles, recipe_name: str) -> dict[str, float]:
    """Return the seconds of every step, each done once and checked."""
    seconds = {}
    recipe = RECIPES[recipe_name]
    began = time.perf_counter()

    def step(name: str) -> None:
        nonlocal began
        seconds[name] = time.perf_counter() - began
        began = time.perf_counter()

    with tempfile.TemporaryDirectory(dir=night.signal.parent) as folder:
        stores = [
            Store.create(Path(folder, name), recipe.to_dict(), recipe.layout()) for name in "ab"
        ]
        began = time.perf_counter()
        night.signal.read_bytes()
        step("plain read")
        recording = read_night(night)
        mark = fingerprint(night.signal, night.scoring, {"C3-A2": "C3-M2", "C4-A1": "C4-M1"})
        step("read")
        prepared = preprocess(recording, recipe)
        step("filter")
        stores[0].add(
            Night(
                *("n", "folder", "night", prepared.signals, prepared.stages),
                checksum=checksum(night.signal),
                fingerprint=mark,
            )
        )
        step("write")
        outcome = prepare_night(night, stores[1].path, recipe)
        step("all")
        if outcome.status != "prepared" or not stores[1].verify() == stores[0].verify() == []:
            raise ValueError(f"the night was not prepared: {outcome.reason}")
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=Path("prepare.csv"))
    parser.add_argument("--folder", help="temporary files go here")
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    where = {"device": platform.machine(), "numpy": np.__version__, "scipy": scipy.__version__}
    missed = False
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, chosen.csv.open("w") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        night = make_night(Path(folder), chosen.hours)
        for recipe in chosen.recipes:
            turns = [time_once(night, recipe) for _ in range(chosen.repeats + 1)][1:]
            medians = {name: statistics.median(turn[name] for turn in turns) for name in STEPS}
            for name, seconds in medians.items():
                times_read = f"{seconds / medians['plain read']:.1f}"
                row = {"what": name, "recipe": recipe, "seconds": f"{seconds:.3f}"}
                table.writerow(row | where | {"times_read": times_read})
                print(f"{recipe:12} {name:11} {seconds:7.3f} s  {times_read:>6} times a plain read")
            missed |= misses(medians)
    return int(missed)


def misses(medians: dict[str, float]) -> bool:
    """Return whether the bar is missed."""
    return medians["all"] > MOST_SECONDS


if __name__ == "__main__":
    sys.exit(main())
