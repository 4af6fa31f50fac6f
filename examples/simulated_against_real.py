"""Simulated nights beside real ones: stage shares, bout lengths, band powers, traces.

Draws docs/images/simulation.png from simulated nights at shift 0 and the real data that
``PSDNORM_REALDATA`` names (hypnograms and band powers; no real signal is needed), and prints the
numbers of docs/simulation.md.

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
import pandas as pd
from scipy.stats import ks_2samp

from psdnorm.constants import SIMULATED_BANDS_HZ
from psdnorm.lab.simulate import simulate_night
from psdnorm.lab.simulate.hypnograms import (
    NEW_PERIOD_MIN,
    REM,
    bouts,
    simulate_sleep,
    sleep_period,
)
from psdnorm.lab.simulate.profiles import ACTIVE, STATES, band_powers_db, fitted

STAGES = ("W", "N1", "N2", "N3", "REM")
CHANNELS = ("Fpz-Cz", "Pz-Oz")
# distinguishable in print and to the colour-blind (Okabe and Ito)
COLOURS = ("#E69F00", "#56B4E9", "#0072B2", "#009E73", "#D55E00")
TRACE_S = 15
SLEEPS_PER_REAL_ONE = 10
# what the variances of the real table have too much, in every recording, stage and channel
TABLE_EXCESS_UV2 = 100.0


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
    place = np.arange(len(SIMULATED_BANDS_HZ))
    for stage, colour in enumerate(COLOURS):
        for values, style, step in ((real[stage], "-o", -0.05), (simulated[stage], "--s", 0.05)):
            own = values[:, 5 * channel : 5 * channel + 5]
            low, middle, high = np.percentile(own, [25, 50, 75], axis=0)
            x = place + step + 0.08 * (stage - 2)
            axis.errorbar(x, middle, (middle - low, high - middle), fmt=style, color=colour,
                          markersize=3, linewidth=0.9)  # fmt: skip
    axis.set_xticks(place, SIMULATED_BANDS_HZ)
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


def describe_rem(sleeps):
    """Mean number of REM periods, median latency in minutes, spread of the share of REM sleep."""
    rem = [np.flatnonzero(sleep == REM) for sleep in sleeps]
    n_periods = [np.count_nonzero(np.diff(at, prepend=-np.inf) / 2 > NEW_PERIOD_MIN) for at in rem]
    latency = np.median([at[0] / 2 for at in rem if at.size])
    return np.mean(n_periods), latency, shares(sleeps)[:, REM].std()


def simulate_sleeps(real):
    """Sleep periods as long as the real ones, ten for each."""
    table, rng = fitted(), np.random.default_rng(0)
    sleeps = []
    for length in np.repeat([len(sleep) for sleep in real], SLEEPS_PER_REAL_ONE):
        own = table.tendency_mean + table.tendency_sd * rng.standard_normal(5)
        sleeps.append(simulate_sleep(length, table, own, rng))
    return sleeps


def variances(night):
    """Variance of each epoch and channel of a night, (E, 2), in µV²."""
    epochs = night.signal.reshape(2, len(night.stages), -1)
    return epochs.var(axis=2, dtype=np.float64).T


def in_bands(decibels):
    """Power of the five bands together, (E, 10) in dB → (E, 2) in µV²."""
    widths_hz = [high - low for low, high in SIMULATED_BANDS_HZ.values()]
    return 10 ** (decibels.reshape(-1, 2, len(SIMULATED_BANDS_HZ)) / 10) @ widths_hz


def print_variances(powers, real_db, nights, simulated_db):
    """Print how far variances are off by state, and what of them is in no band."""
    real = powers[["fpzcz_var", "pzoz_var"]].to_numpy(float) - TABLE_EXCESS_UV2
    simulated = np.concatenate([variances(night) for night in nights])
    states = [np.where(night.is_active, ACTIVE, night.true_stages) for night in nights]
    both = (
        (real, in_bands(real_db), powers.state.to_numpy()),
        (simulated, in_bands(simulated_db), np.concatenate(states)),
    )
    print("off by (dB), both channels | variance | what of it is in no band")
    for state, name in enumerate(STATES):
        medians = [
            np.median([total[of == state], (total - inside)[of == state]], axis=1)
            for total, inside, of in both
        ]
        off = 10 * np.log10(medians[1] / medians[0]).ravel()
        print(f"{name:8} | {off[0]:+.1f} {off[1]:+.1f} | {off[2]:+.1f} {off[3]:+.1f}")


def print_what_is_off(real, daytime_db, wake_db):
    """Print what the simulator does not get right."""
    for name, sleeps in (("real", real), ("simulated", simulate_sleeps(real))):
        periods, latency, spread = describe_rem(sleeps)
        print(f"{len(sleeps)} {name} sleep periods: {periods:.1f} REM periods, latency "
              f"{latency:.0f} min, share of REM spreads by {spread:.2f}")  # fmt: skip
    off = np.median(wake_db, axis=0) - np.median(daytime_db, axis=0)
    print("wake beside all of the real wake, daytime included: "
          + " ".join(f"{value:+.1f}" for value in off))  # fmt: skip


def read_all_wake(folder):
    """Band powers in dB of all that is scored wake, (epochs, 10): of the day, too."""
    table = pd.read_parquet(folder / "sleep-edf" / "band_powers.parquet")
    columns = [f"{channel}_{band}" for channel in ("fpzcz", "pzoz") for band in SIMULATED_BANDS_HZ]
    return 10 * np.log10(table.loc[table.stage == 0, columns].to_numpy(float))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    parser.add_argument("--subjects", type=int, default=24, help="to simulate")
    chosen = parser.parse_args(arguments)
    if "PSDNORM_REALDATA" not in os.environ:
        parser.error("PSDNORM_REALDATA is not set, expected the folder of the real data")
    if not chosen.out.is_dir():
        parser.error(f"--out {chosen.out} is no folder")
    fit, folder = fitting_script(), Path(os.environ["PSDNORM_REALDATA"])
    hypnograms = fit.read_hypnograms(folder)
    powers = fit.read_powers(folder, hypnograms)
    real = [fit.sleep_of(stages) for stages in hypnograms.values()]
    real_db = [fit.decibels(powers)[powers.stage == stage] for stage in range(5)]
    nights = [simulate_night("PHYS", f"figure {n}", shift=0.0) for n in range(chosen.subjects)]
    simulated = [n.true_stages[sleep_period(n.true_stages)] for n in nights]
    decibels = np.concatenate([band_powers_db(n.signal, n.sfreq).reshape(-1, 10) for n in nights])
    labels = np.concatenate([n.true_stages for n in nights])
    simulated_db = [decibels[labels == stage] for stage in range(5)]
    print_tables(real, simulated, real_db, simulated_db)
    print(f"real band powers: {len(powers)} epochs")
    print_what_is_off(real, read_all_wake(folder), simulated_db[0])
    print_variances(powers, fit.decibels(powers), nights, decibels)
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
