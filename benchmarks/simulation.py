"""Time the simulation of one night: ``python -m benchmarks.simulation``.

In three ways: the night alone, written as the cohort's files (scoring and EDF), and prepared by the
recipe ``robust`` into a store; the last two include the first. Wall time, median of several nights
after one that warms up; ``OMP_NUM_THREADS=1`` for one core. The command fails if the night alone
takes more than 3 s, or if one is not finite, not as long as asked for, or not there afterwards.
"""

import argparse
import csv
import itertools
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy

from benchmarks import check_table
from psdnorm.lab.simulate import (
    PROFILES,
    Settings,
    add_nights,
    bytes_missing,
    bytes_missing_in,
    plan_nights,
    simulate_night,
    write_nights,
)
from psdnorm.prepare import RECIPES

COLUMNS = ("cohort", "way", "sfreq", "hours", "seconds", "device", "numpy", "scipy")
WAYS = ("night", "files", "store")
MOST_SECONDS = 3.0


def measure(cohort: str, way: str, hours: float, repeats: int) -> float:
    """Median seconds that a night of a cohort takes."""
    if way == "night":
        return measure_night(cohort, hours, repeats)
    nights = plan_nights([cohort], repeats + 1, 1, Settings(hours=hours))
    with tempfile.TemporaryDirectory() as folder:
        robust, begin = RECIPES["robust"], time.perf_counter()
        if way == "files":
            done = write_nights(folder, nights)
        else:
            done = add_nights(folder, nights, robust)
        seconds = [begin, *(time.perf_counter() for _ in done)]
        missing = (bytes_missing(folder, nights), bytes_missing_in(folder, nights, robust))
    if missing[WAYS.index(way) - 1]:
        raise ValueError(f"{cohort}: not every night is in the {way}")
    return statistics.median(np.diff(seconds)[1:].tolist())


def measure_night(cohort: str, hours: float, repeats: int) -> float:
    """Median seconds that simulating alone takes."""
    seconds = []
    for subject in range(repeats + 1):
        begin = time.perf_counter()
        night = simulate_night(cohort, subject, hours=hours)
        seconds.append(time.perf_counter() - begin)
        expected = int(hours * 120) * 30 * int(night.sfreq)
        if night.signal.shape != (2, expected) or not np.isfinite(night.signal).all():
            raise ValueError(f"{cohort}: a night of shape {night.signal.shape}, or not finite")
    return statistics.median(seconds[1:])


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if the bar is missed or a night was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohorts", nargs="+", default=["PHYS", "SHHS", "MROS"], choices=PROFILES)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=Path("simulation.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    where = {
        "device": platform.machine(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    missed = False
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for cohort, way in itertools.product(chosen.cohorts, WAYS):
            try:
                seconds = measure(cohort, way, chosen.hours, chosen.repeats)
            except ValueError as error:
                print(error, file=sys.stderr)
                return 1
            sfreq = PROFILES[cohort].sfreq
            row = {"cohort": cohort, "way": way, "sfreq": sfreq, "hours": chosen.hours}
            table.writerow(row | {"seconds": f"{seconds:.3f}"} | where)
            print(
                f"{cohort:8} {way:6} {sfreq:5.0f} Hz, {chosen.hours:g} h: {seconds:.2f} s",
                flush=True,
            )
            missed |= misses(way, seconds)
    return int(missed)


def misses(way: str, seconds: float) -> bool:
    """Return whether the bar is missed; writing to disk has none."""
    return way == "night" and seconds > MOST_SECONDS


if __name__ == "__main__":
    sys.exit(main())
