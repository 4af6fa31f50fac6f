"""Time ``psdnorm stage`` from command to outputs: ``python -m benchmarks.stage``.

A simulated night of 8 h with two channels at 256 Hz is staged by the command in a process of its
own, once for each repeat, all outputs included; ``imports`` is a command that does nothing but load
what staging needs. The wall times are medians, the memory is the largest peak of a process. The
model is the one that comes with psdnorm, another by ``--model``, or, where tfound none, a U-Sleep
with PSDNorm of full size whose weights are random. The bars: 30 s and 2 GB for 8 h.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import torch

from benchmarks import check_table
from psdnorm.errors import CheckpointError
from psdnorm.lab.simulate import Trace, simulate_night, write_edf
from psdnorm.models import USleep
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import load_model

COLUMNS = (
    *("what", "figure", "unit", "bar", "hours", "sfreq", "channels", "model", "threads"),
    *("device", "python", "torch"),
)
MOST = {"stage": 30.0, "peak memory": 2.0}
COHORT, LABELS = "MASS", ("C3-M2", "C4-M1")
_COMMAND = "from psdnorm.cli import main; main()"
_IMPORTS = "import psdnorm.staging, psdnorm.cli, scipy.signal, matplotlib.figure"


def write_night(path: Path, hours: float) -> float:
    """Write a simulated night of two channels; return its rate in Hz."""
    night = simulate_night(COHORT, 0, hours=hours)
    traces = [
        Trace(label, row, int(night.sfreq)) for label, row in zip(LABELS, night.signal, strict=True)
    ]
    write_edf(path, traces, datetime(2001, 1, 1, 22, 30))
    return night.sfreq


def model_folder(asked: str | None, folder: Path) -> tuple[str | None, str]:
    """Return the folder of the model, None for the one in the box, and what to call it."""
    if asked is not None:
        return asked, Path(asked).name
    try:
        load_model()
    except CheckpointError:
        torch.manual_seed(0)
        place = folder / "random"
        USleep(norm="psd").save_pretrained(place, recipe=RECIPES["robust"].to_dict())
        return str(place), "random"
    return None, "shipped"


def run(code: str, arguments: list[str]) -> tuple[float, float]:
    """Run Python in a fresh process; return its wall time in s and its peak of memory in GB."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the command failed with exit code {process.returncode}: {said}")
    return time.perf_counter() - begin, used.ru_maxrss * 1024 / 1e9  # kB, as Linux counts


def measure(night: Path, out: Path, model: str | None, repeats: int) -> dict[str, float]:
    """Return what staging a night takes."""
    arguments = ["stage", str(night), "--device", "cpu"]
    arguments += [] if model is None else ["--model", model]
    imports = [run(_IMPORTS, [])[0] for _ in range(repeats)]
    runs = [run(_COMMAND, [*arguments, "-o", str(out / str(n))]) for n in range(repeats)]
    left = {path.name.removeprefix(night.stem) for path in (out / "0").iterdir()}
    expected = {".json", ".tsv", "-hypnogram.edf", ".txt", ".html", ".png"}
    if left != expected:
        raise RuntimeError(f"the command left {sorted(left)}, expected {sorted(expected)}")
    return {
        "imports": statistics.median(imports),
        "stage": statistics.median(seconds for seconds, _ in runs),
        "peak memory": max(peak for _, peak in runs),
    }


def misses(found: dict[str, float]) -> list[str]:
    """Return what is above its bar."""
    return [name for name, most in MOST.items() if found[name] > most]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", help="folder of a model")
    parser.add_argument("--csv", type=Path, default=Path("stage.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    with tempfile.TemporaryDirectory() as folder:
        night = Path(folder, "night.edf")
        sfreq = write_night(night, chosen.hours)
        model, called = model_folder(chosen.model, Path(folder))
        found = measure(night, Path(folder, "out"), model, chosen.repeats)
    where = {"hours": chosen.hours, "sfreq": sfreq, "channels": len(LABELS), "model": called}
    where |= {"threads": torch.get_num_threads(), "device": platform.machine()}
    where |= {"python": platform.python_version(), "torch": torch.__version__}
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name, figure in found.items():
            unit = "GB" if name == "peak memory" else "s"
            row = {"what": name, "figure": f"{figure:.2f}", "unit": unit}
            table.writerow(row | {"bar": MOST.get(name, "")} | where)
            print(f"{name:12} {figure:8.2f} {unit}")
    missed = misses(found)
    print(json.dumps({"missed": missed}) if missed else "all bars are met")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
