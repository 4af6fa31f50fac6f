"""Simulated nights beside real ones: stage shares, bout lengths, band powers, traces.

Draws docs/images/simulation.png from simulated nights at shift 0 and the real data that
``PSDNORM_REALDATA`` names (hypnograms and band powers; no real signal is needed), and prints the
table of docs/simulation.md.

    PSDNORM_REALDATA=… python examples/simulated_against_real.py --out docs/images
"""

import argparse
import importlib.util
import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ks_2samp

from psdnorm.recordings.simulation import simulate_night
from psdnorm.recordings.simulation.fitted import BANDS_HZ
from psdnorm.recordings.simulation.hypnograms import bouts, sleep_period
from psdnorm.recordings.simulation.measure import band_powers_db

STAGES = ("W", "N1", "N2", "N3", "REM")
CHANNELS = ("Fpz-Cz", "Pz-Oz")
# distinguishable in print and to the colour-blind (Okabe and Ito)
COLOURS = ("#E69F00", "#56B4E9", "#0072B2", "#009E73", "#D55E00")
TRACE_S = 15


def fitting_script():
    path = Path(__file__).parents[1] / "scripts" / "fit_simulation.py"
    spec = importlib.util.spec_from_file_location("fit_simulation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shares(nights):
    """Stage shares of sleep periods, (nights, 5)."""
    return np.array([np.bincount(night, minlength=5) / len(night) for night in nights])


def lengths(nights, stage):
    """Bout lengths of a stage in minutes, without the last bout, which the night's end cuts."""
    found = [(s[:-1], n[:-1]) for s, n in map(bouts, nights)]
    return np.concatenate([n[s == stage] for s, n in found]) / 2


def draw_shares(axis, real, simulated):
    for offset, nights, label in ((-0.2, real, "real"), (0.2, simulated, "simulated")):
        values = shares(nights)
        axis.bar(np.arange(5) + offset, values.mean(axis=0), 0.38, yerr=values.std(axis=0),
                 color=COLOURS, alpha=1.0 if label == "real" else 0.5, label=label)  # fmt: skip
    axis.set_xticks(range(5), STAGES)
    axis.set_title("Stage shares (solid: real, pale: simulated)", fontsize=10)


def draw_bouts(axis, real, simulated):
    for stage, colour in enumerate(COLOURS):
        for nights, style in ((real, "-"), (simulated, "--")):
            x = np.sort(lengths(nights, stage))
            axis.step(x, np.arange(1, len(x) + 1) / len(x), style, color=colour, linewidth=1.2)
        axis.plot([], [], color=colour, label=STAGES[stage])
    axis.set_xscale("log")
    axis.set_xlabel("bout length (min)")
    axis.set_title("Bout lengths (dashed: simulated)", fontsize=10)
    axis.legend(fontsize=8)


def draw_powers(axis, channel, real, simulated):
    """Draw medians and quartiles; both map a stage to dB, (epochs, 10)."""
    place = np.arange(len(BANDS_HZ))
    for stage, colour in enumerate(COLOURS):
        for values, style, step in ((real[stage], "-o", -0.05), (simulated[stage], "--s", 0.05)):
            own = values[:, 5 * channel : 5 * channel + 5]
            low, middle, high = np.percentile(own, [25, 50, 75], axis=0)
            x = place + step + 0.08 * (stage - 2)
            axis.errorbar(x, middle, (middle - low, high - middle), fmt=style, color=colour,
                          markersize=3, linewidth=0.9)  # fmt: skip
    axis.set_xticks(place, BANDS_HZ)
    axis.set_ylabel("dB re 1 µV²/Hz")
    axis.set_title(f"{CHANNELS[channel]}: medians and quartiles", fontsize=10)


def draw_traces(axis, night):
    step = 220
    for row, stage in enumerate(STAGES):
        is_stage = (night.true_stages == row) & ~night.is_active
        # from the middle of a stretch of the stage
        epoch = np.flatnonzero(is_stage)[is_stage.sum() // 2]
        start = int((epoch * 30 + 5) * night.sfreq)
        piece = night.signal[:, start : start + int(TRACE_S * night.sfreq)]
        t = np.arange(piece.shape[1]) / night.sfreq
        for channel, shade in ((0, 1.0), (1, 0.55)):
            at = -step * (2 * row + channel)
            axis.plot(t, piece[channel] + at, color=COLOURS[row], alpha=shade, linewidth=0.5)
        axis.text(-0.3, -step * (2 * row + 0.5), stage, ha="right", va="center", fontsize=9)
    axis.plot([TRACE_S + 0.2] * 2, [0, 100], "k", linewidth=2)
    axis.text(TRACE_S + 0.3, 50, "100 µV", va="center", fontsize=8)
    axis.set_yticks([])
    axis.set_xlabel("seconds (each stage: Fpz-Cz above, Pz-Oz below)")
    axis.set_title("Simulated traces", fontsize=10)


def print_tables(real, simulated, real_db, simulated_db):
    print("stage  share real  simulated  bout KS  | median off by (dB), Fpz-Cz then Pz-Oz")
    for stage, name in enumerate(STAGES):
        distance = ks_2samp(lengths(real, stage), lengths(simulated, stage)).statistic
        off = np.median(simulated_db[stage], axis=0) - np.median(real_db[stage], axis=0)
        print(f"{name:5} {shares(real)[:, stage].mean():10.3f} "
              f"{shares(simulated)[:, stage].mean():10.3f} {distance:8.3f}  | "
              + " ".join(f"{value:+.1f}" for value in off))  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    parser.add_argument("--subjects", type=int, default=24, help="to simulate")
    chosen = parser.parse_args(arguments)
    if "PSDNORM_REALDATA" not in os.environ:
        parser.error("PSDNORM_REALDATA is not set, expected the folder of the real data")
    if not chosen.out.is_dir():
        parser.error(f"--out {chosen.out} is no folder")
    fit = fitting_script()
    hypnograms = fit.read_hypnograms(Path(os.environ["PSDNORM_REALDATA"]))
    powers = fit.read_powers(Path(os.environ["PSDNORM_REALDATA"]), hypnograms)
    real = [fit.sleep_of(stages) for stages in hypnograms.values()]
    real_db = [fit.decibels(powers)[powers.stage == stage] for stage in range(5)]
    nights = [simulate_night("PHYS", f"figure {n}", shift=0.0) for n in range(chosen.subjects)]
    simulated = [n.true_stages[sleep_period(n.true_stages)] for n in nights]
    decibels = np.concatenate([band_powers_db(n.signal, n.sfreq).reshape(-1, 10) for n in nights])
    labels = np.concatenate([n.true_stages for n in nights])
    simulated_db = [decibels[labels == stage] for stage in range(5)]
    print_tables(real, simulated, real_db, simulated_db)
    figure, axes = plt.subplot_mosaic("abt;cdt", figsize=(16, 8), width_ratios=(1, 1, 1.2))
    draw_shares(axes["a"], real, simulated)
    draw_bouts(axes["b"], real, simulated)
    for channel, name in enumerate("cd"):
        draw_powers(axes[name], channel, real_db, simulated_db)
    draw_traces(axes["t"], nights[0])
    figure.tight_layout()
    path = chosen.out / "simulation.png"
    figure.savefig(path, dpi=90)
    plt.close(figure)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
