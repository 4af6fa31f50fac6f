"""Time the model's share of staging a night: ``python -m benchmarks.stage_model --device cuda``.

A simulated night of 8 h is prepared in memory, without an EDF, so that neither MNE nor edfio is
needed. ``votes`` is what one pair of channels says of every epoch, on overlapping windows;
``verdict`` is how far the night's spectra are from the training's; both with the signals on the
host before and the result on the host after. Medians, after a first call that is not counted. The
bar on a GPU: 1 s for both together.
"""

import argparse
import csv
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import check_table
from psdnorm.io import Recording
from psdnorm.lab.simulate import simulate_night
from psdnorm.prepare.signals import preprocess
from psdnorm.staging import load_model
from psdnorm.staging.derivations import PreparedNight
from psdnorm.staging.models import StagingModel
from psdnorm.staging.trust import shift_report
from psdnorm.staging.vote import predict_groups

COLUMNS = ("what", "seconds", "bar", "hours", "epochs", "model", "device", "python", "torch")
BAR_S = 1.0
COHORT = "MASS"


def prepared_night(model: StagingModel, hours: float) -> np.ndarray:
    """Return a simulated night as the model is shown it, (E, C, T)."""
    night = simulate_night(COHORT, 0, hours=hours)
    recording = Recording(
        night.signal, night.channels, night.sfreq, night.stages, None, f"simulated {COHORT}"
    )
    return preprocess(recording, model.recipe).signals


def median_s(call: Callable[[], Any], repeats: int) -> float:
    """Return the median of the seconds of a call whose result is on the host."""
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def measure(
    model: StagingModel, signals: np.ndarray, device: torch.device, repeats: int
) -> dict[str, float]:
    """Return the seconds of each part of what the model does."""
    names = tuple(f"channel {place + 1}" for place in range(signals.shape[1]))
    prepared = {name: np.ascontiguousarray(signals[:, n]) for n, name in enumerate(names)}
    measured = {name: np.ones(len(signals), bool) for name in names}
    night = PreparedNight(len(signals), prepared, measured)
    found = {
        "votes": median_s(lambda: predict_groups(model, night, [names], device), repeats),
        "verdict": median_s(
            lambda: shift_report(model.network, signals, names, model.recipe.sfreq), repeats
        ),
    }
    return found | {"model": sum(found.values())}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if the bar of a GPU is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--model", help="folder of a model")
    parser.add_argument("--csv", type=Path, default=Path("stage-model.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    device = torch.device(chosen.device)
    model = load_model(chosen.model)
    signals = prepared_night(model, chosen.hours)
    found = measure(model, signals, device, chosen.repeats)
    on_gpu = device.type == "cuda"
    where = {
        "hours": chosen.hours,
        "epochs": len(signals),
        "model": model.description["name"],
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name, seconds in found.items():
            bar = BAR_S if on_gpu and name == "model" else ""
            table.writerow({"what": name, "seconds": f"{seconds:.3f}", "bar": bar} | where)
            print(f"{name:8} {seconds:8.3f} s")
    return int(on_gpu and found["model"] > BAR_S)


if __name__ == "__main__":
    sys.exit(main())
