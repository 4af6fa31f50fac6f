"""A thousand nights in one command: ``python -m benchmarks.many``.

A folder of EDF recordings, copies of a few simulated ones of different lengths, cohorts and rates,
with some bad ones among them, is staged by ``psdnorm stage`` in a process of its own. At about half
it is interrupted (SIGINT) and the same command is given again; a third one finds nothing to do.

Checked: exit codes; that what was staged is not staged again, and copies come out alike; that the
summary has each recording once and every failure its sentence; that no output is missing or left
over. Memory is the resident set of the processes that stage, night by night: ``growth`` is from the
median over a process's first tenth of nights to that over its last, the larger of both processes,
and the bar is 100 MB; ``slope`` is a line through all its nights. Processes are looked at where
Linux tells of them, in ``/proc``.
"""

import argparse
import csv
import platform
import signal
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.many_checks import what_is_wrong
from benchmarks.many_nights import make_folder
from benchmarks.many_process import Run, run_command

COLUMNS = (
    *("what", "figure", "unit", "bar", "nights", "bad", "distinct", "minutes", "threads"),
    *("device", "python", "torch"),
)
MOST_GROWTH_MB = 100.0


def growth_mb(run: Run) -> float:
    """Return by how much a process's memory grew from its first tenth of nights to its last."""
    first, *_, last = _tenths(run)
    return last - first


def slope_mb(run: Run) -> float:
    """Return the growth of a process's memory in MB per 100 nights, by a line through all."""
    nights = [sample.n_begun for sample in run.samples]
    return 100 * statistics.linear_regression(nights, [s.rss_mb for s in run.samples]).slope


def _tenths(run: Run) -> list[float]:
    """Return the median memory of a process in the tenths of its nights, in MB."""
    first, last = run.samples[0].n_begun, run.samples[-1].n_begun
    tenths: list[list[float]] = [[] for _ in range(10)]
    for sample in run.samples:
        share = (sample.n_begun - first) / max(1, last - first)
        tenths[min(9, int(10 * share))].append(sample.rss_mb)
    return [statistics.median(each) for each in tenths if each]


def figures_of(runs: list[Run]) -> dict[str, tuple[float, str]]:
    """Return what was measured of the three commands, with units."""
    staging = runs[:2]
    seconds = sum(run.seconds for run in staging)
    return {
        "seconds a night": (seconds / sum(run.n_staged for run in staging), "s"),
        "both commands": (seconds, "s"),
        "nothing to do": (runs[2].seconds, "s"),
        "interrupt": (runs[0].stop_s, "s"),
        "peak memory": (max(run.peak_mb for run in runs), "MB"),
        "growth": (max(growth_mb(run) for run in staging), "MB"),
        "slope": (max(slope_mb(run) for run in staging), "MB per 100 nights"),
    }


def _write_table(chosen: argparse.Namespace, figures: dict[str, tuple[float, str]]) -> None:
    """Write and print what was measured."""
    where = {"nights": chosen.nights, "bad": chosen.bad, "distinct": chosen.distinct}
    where |= {"minutes": chosen.minutes, "threads": torch.get_num_threads()}
    where |= {"device": platform.machine(), "python": platform.python_version()}
    where |= {"torch": torch.__version__}
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name, (figure, unit) in figures.items():
            bar = MOST_GROWTH_MB if name == "growth" else ""
            row = {"what": name, "figure": f"{figure:.2f}", "unit": unit, "bar": bar}
            table.writerow(row | where)
            print(f"{name:16} {figure:8.2f} {unit}")


def main(arguments: list[str] | None = None) -> int:
    """Stage, check, print and write the table; 1 if a check or the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=1000, help="recordings, bad ones included")
    parser.add_argument("--bad", type=int, default=20, help="of them, of six kinds in turn")
    parser.add_argument("--distinct", type=int, default=20, help="that are not copies")
    parser.add_argument("--minutes", type=float, default=10, help="mean length")
    parser.add_argument("--csv", type=Path, default=Path("many.csv"))
    chosen = parser.parse_args(arguments)
    if not chosen.csv.absolute().parent.is_dir():
        parser.error(f"--csv {chosen.csv} lies in a folder that does not exist")
    if chosen.nights - chosen.bad < 6 or min(chosen.bad, chosen.distinct) < 1:
        parser.error("expected at least six good nights, a bad one and a distinct one")
    # in the background, a shell lets what it starts ignore it, and children would do so, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as place:
        nights = make_folder(
            Path(place, "in"), chosen.nights, chosen.bad, chosen.distinct, chosen.minutes
        )
        out = Path(place, "out")
        half = (chosen.nights - chosen.bad) // 2
        runs = [run_command(nights.path, out, interrupt_at) for interrupt_at in (half, None, None)]
        wrong = what_is_wrong(nights, runs, out)
    figures = figures_of(runs)
    _write_table(chosen, figures)
    if figures["growth"][0] > MOST_GROWTH_MB:
        wrong.append(f"memory grew by more than {MOST_GROWTH_MB:g} MB")
    for sentence in wrong:
        print(f"wrong: {sentence}")
    print(f"{len(wrong)} checks or bars are missed" if wrong else "all checks and bars are met")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
