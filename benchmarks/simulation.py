"""Time the simulation of one night: ``python -m benchmarks.simulation``.

Wall time, median of several nights after one that warms up; ``OMP_NUM_THREADS=1`` for one core. A
night that is not finite or not as long as asked for is not timed, and the command fails.
"""

import argparse
import csv
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import scipy

from psdnorm.recordings.simulation import PROFILES, simulate_night

COLUMNS = ("cohort", "sfreq", "hours", "seconds", "device", "numpy", "scipy")


def measure(cohort: str, hours: float, repeats: int) -> float:
    """Median seconds that a night of a cohort takes."""
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
    """Measure, print and write the table; 1 if a night was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohorts", nargs="+", default=["PHYS", "SHHS", "MROS"], choices=PROFILES)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=Path("simulation.csv"))
    chosen = parser.parse_args(arguments)
    if not chosen.csv.absolute().parent.is_dir():
        parser.error(f"--csv {chosen.csv} lies in a folder that does not exist")
    where = {
        "device": platform.machine(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for cohort in chosen.cohorts:
            try:
                seconds = measure(cohort, chosen.hours, chosen.repeats)
            except ValueError as error:
                print(error, file=sys.stderr)
                return 1
            sfreq = PROFILES[cohort].sfreq
            row = {"cohort": cohort, "sfreq": sfreq, "hours": chosen.hours}
            table.writerow(row | {"seconds": f"{seconds:.3f}"} | where)
            print(f"{cohort:8} {sfreq:5.0f} Hz, {chosen.hours:g} h: {seconds:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
