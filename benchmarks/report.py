"""Time and weigh a report on a full grid: ``python -m benchmarks.report``.

Ten cohorts of the paper's sizes, 11,032 subjects, under five norms and three seeds: 150 runs whose
scores are drawn, not trained. ``OMP_NUM_THREADS=1`` for one core. Each part is timed in turn, in a
process of its own, whose peak of memory is read off at the end; ``page`` is the size of index.html.
The bars: 120 s and 4 GB in all, a page below 5 MB.
"""

import argparse
import csv
import itertools
import json
import multiprocessing
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import check_table
from psdnorm.evaluation.scores import (
    BIN_CONFIDENCE,
    BIN_CORRECT,
    BIN_EPOCHS,
    CONFUSION,
    SCHEMA,
    write_scores,
)
from psdnorm.experiments.grid import CELLS, FORMAT, GRID, Axes, grid_of
from psdnorm.experiments.presets import PAPER_COHORTS
from psdnorm.report import PAGE, build_report
from psdnorm.runtime import write_json
from psdnorm.training import Protocol, Run
from psdnorm.training.run_folder import CONFIG, DONE, SCORES

COLUMNS = ("what", "figure", "unit", "bar", "subjects", "cells", "device", "python", "pandas")
MOST = {"all": 120.0, "peak memory": 4.0, "page": 5.0}
_EPOCHS = 900
_PREVALENCE = np.array([0.2, 0.1, 0.4, 0.15, 0.15])
_MERIT = {"batch": 0.0, "layer": -0.02, "instance": 0.01, "tma": 0.01, "psd": 0.03}
_BIN = 10  # all epochs lie in one bin of confidence


def write_grid(folder: Path, share: float) -> tuple[int, int]:
    """Write a full grid with drawn scores; return its numbers of subjects and runs.

    Parameters
    ----------
    folder : Path
    share : float
        Of the paper's subjects.
    """
    sizes = {name: max(2, round(share * n)) for name, (n, _) in PAPER_COHORTS.items()}
    runs = grid_of([Axes(hold_outs=tuple(sizes))])
    protocol = Protocol().to_json()
    for run in runs:
        place = folder / CELLS / run.name
        place.mkdir(parents=True)
        write_scores(place / SCORES, drawn_scores(run, sizes[run.hold_out]))
        write_json(place / CONFIG, _config(run, protocol, sizes))
        (place / "history.csv").write_text(
            "epoch,step,train_loss,validation_loss,validation_balanced_accuracy\n"
            + "".join(f"{n},{100 * n},{1.6 * 0.7**n},{1.7 * 0.7**n},{0.5}\n" for n in range(10))
        )
        done = {"balanced_accuracy": 0.7, "subjects": sizes[run.hold_out], "epochs": 10}
        done |= {"best_epoch": 7, "steps": 1000, "seconds": 60.0, "keep": "scores"}
        write_json(place / DONE, done)
    settings = {"protocol": protocol, "recipe_sha256": "0" * 64, "nights": sum(sizes.values())}
    document = {"format": FORMAT, **settings, "data": "0" * 64, "simulated": True}
    document["cells"] = [{"cell": run.to_json(), "sequences": 100} for run in runs]
    write_json(folder / GRID, document)
    return sum(sizes.values()), len(runs)


def _config(run: Run, protocol: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    others = sorted(name for name in sizes if name != run.hold_out)
    nights = {
        role: {"cohorts": cohorts, "subjects": n, "nights": n, "sha256": "0" * 64}
        for role, cohorts, n in (
            ("train", others, round(0.8 * sum(sizes[name] for name in others))),
            ("validation", others, round(0.2 * sum(sizes[name] for name in others))),
            ("test", [run.hold_out], sizes[run.hold_out]),
        )
    }
    return {
        "cell": run.to_json(),
        "protocol": protocol,
        "recipe_sha256": "0" * 64,
        "data": nights,
        "run": "0" * 64,
        "recipe": {"name": "paper", "sfreq": 100.0, "lowpass_hz": 30.0},
        "simulated": True,
        "versions": {"psdnorm": "0", "torch": "0", "python": "0"},
    }


def drawn_scores(run: Run, n_subjects: int) -> pd.DataFrame:
    """Draw the counts of all subjects of a run at once."""
    people = np.random.default_rng([*run.hold_out.encode()])
    stages = people.multinomial(_EPOCHS, _PREVALENCE, size=n_subjects)  # (n, 5)
    skill = 0.7 + 0.1 * people.standard_normal(n_subjects) + _MERIT[run.norm]
    rng = np.random.default_rng([run.seed, *run.name.encode()])
    skill = np.clip(skill + 0.02 * rng.standard_normal(n_subjects), 0.05, 0.98)
    chances = np.broadcast_to(((1 - skill) / 4)[:, None, None], (n_subjects, 5, 5)).copy()
    chances[:, np.arange(5), np.arange(5)] = skill[:, None]
    confusion = rng.multinomial(stages, chances)  # (n, 5, 5)
    table = dict(zip(CONFUSION, confusion.reshape(n_subjects, 25).T, strict=True))
    right = np.einsum("nii->n", confusion)
    for names, counts in ((BIN_EPOCHS, _EPOCHS), (BIN_CORRECT, right), (BIN_CONFIDENCE, 630.0)):
        table |= dict.fromkeys(names, np.zeros(n_subjects, np.int64)) | {names[_BIN]: counts}
    names = {"cohort": run.hold_out, "subject": [f"{n:06}" for n in range(n_subjects)]}
    return pd.DataFrame({**names, **table})[SCHEMA.names]


def measure(runs: str, out: str, told: Any) -> None:
    """Build a report in a process of its own and tell what it took."""
    marks: list[tuple[str, float]] = []
    began = time.perf_counter()
    build_report(runs, out, progress=lambda words: marks.append((words, time.perf_counter())))
    marks.append(("", time.perf_counter()))
    found = {
        words.lower(): after - before for (words, before), (_, after) in itertools.pairwise(marks)
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kB, as Linux counts
    found |= {"all": marks[-1][1] - began, "peak memory": peak / 1e9}
    told.put(found | {"page": Path(out, PAGE).stat().st_size / 1e6})


def misses(found: dict[str, float]) -> list[str]:
    """Return what is above its bar."""
    return [name for name, most in MOST.items() if found[name] > most]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="share of the paper's subjects")
    parser.add_argument("--csv", type=Path, default=Path("report.csv"))
    parser.add_argument("--folder", help="temporary files go here")
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        n_subjects, n_runs = write_grid(Path(folder, "runs"), chosen.share)
        fresh = multiprocessing.get_context("spawn")
        told = fresh.Queue()
        paths = (str(Path(folder, "runs")), str(Path(folder, "report")))
        process = fresh.Process(target=measure, args=(*paths, told))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"the report failed with exit code {process.exitcode}")
        found = told.get()
    where = {"device": platform.machine(), "python": platform.python_version()}
    where |= {"pandas": pd.__version__, "subjects": n_subjects, "cells": n_runs}
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name, figure in found.items():
            unit = {"peak memory": "GB", "page": "MB"}.get(name, "s")
            row = {"what": name, "figure": f"{figure:.2f}", "unit": unit}
            table.writerow(row | {"bar": MOST.get(name, "")} | where)
            print(f"{name:18} {figure:8.2f} {unit}")
    missed = misses(found)
    print(json.dumps({"missed": missed}) if missed else "all bars are met")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
