"""Fit the simulator to real nights: ``PSDNORM_REALDATA=… python scripts/fit_simulation.py``.

Reads the hypnograms and band powers of Sleep-EDF that ``PSDNORM_REALDATA`` names and writes the
table that the package ships. Subject 00 (SC4001, SC4002) is the test subject: the script fails if
it is there. Needs pandas and pyarrow.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from psdnorm.constants import EPOCH_S, SIMULATED_BANDS_HZ
from psdnorm.lab.simulate import band_powers_db
from psdnorm.lab.simulate.hypnograms import (
    N_CYCLES,
    N_PLACES,
    NightPosition,
    bouts,
    simulate_sleep,
    sleep_period,
)
from psdnorm.lab.simulate.profiles import ACTIVE, Fitted
from psdnorm.lab.simulate.recorder import REFERENCE
from psdnorm.lab.simulate.simulated_night import (
    CONTRAST_DB,
    simulate_night,
    wide_profile,
    wide_table,
)

TARGET = Path("src/psdnorm/lab/simulate/fitted.json")
TEST_SUBJECT = "SC400"
STAGE_OF = {"W": 0, "1": 1, "2": 2, "3": 3, "4": 3, "R": 4}
ANNOTATION = re.compile(rb"\+(\d+(?:\.\d+)?)\x15(\d+(?:\.\d+)?)\x14([^\x14]+)\x14")
# wake this close to sleep belongs to the night
MARGIN_EPOCHS = 60
# pseudo-counts that shrink the transitions of rare contexts towards those of all cycles
PRIOR = 3.0


def read_stages(path: Path) -> np.ndarray:
    """Stages of a Sleep-EDF hypnogram, unscored as -1, (E,)."""
    found = ANNOTATION.findall(path.read_bytes())
    ends = [float(onset) + float(length) for onset, length, _ in found]
    stages = np.full(int(max(ends) / EPOCH_S), -1, dtype=np.int8)
    for (onset, _, text), end in zip(found, ends, strict=True):
        stage = STAGE_OF.get(text.decode().removeprefix("Sleep stage "), -1)
        stages[int(float(onset) / EPOCH_S) : int(end / EPOCH_S)] = stage
    return stages


def read_hypnograms(folder: Path) -> dict[str, np.ndarray]:
    """Whole hypnograms by recording, without the test subject's."""
    paths = sorted((folder / "sleep-edf" / "hypnograms").glob("*-Hypnogram.edf"))
    stages = {path.name[:6]: read_stages(path) for path in paths}
    assert stages, f"no hypnograms in {folder}"
    assert not any(name.startswith(TEST_SUBJECT) for name in stages), "the test subject is here"
    return stages


def sleep_of(stages: np.ndarray) -> np.ndarray:
    """Cut out the main sleep period, with movement time given to the stage before it."""
    sleep = stages[sleep_period(stages)].copy()
    for epoch in np.flatnonzero(sleep < 0):
        sleep[epoch] = sleep[epoch - 1]
    return sleep


def read_powers(folder: Path, hypnograms: dict[str, np.ndarray]) -> pd.DataFrame:
    """Band powers in dB of the epochs within 30 min of the main sleep period, and their state."""
    powers = pd.read_parquet(folder / "sleep-edf" / "band_powers.parquet")
    assert not powers.recording.str.startswith(TEST_SUBJECT).any(), "the test subject is here"
    kept = []
    for name, rows in powers.groupby("recording"):
        stages = hypnograms[name]
        # the file numbers scored epochs only
        epoch = np.flatnonzero(stages >= 0)[rows.epoch]
        assert (stages[epoch] == rows.stage).all(), f"{name}: hypnogram and powers disagree"
        sleep = sleep_period(stages)
        outside = (epoch < sleep.start) | (epoch >= sleep.stop)
        near = (epoch >= sleep.start - MARGIN_EPOCHS) & (epoch < sleep.stop + MARGIN_EPOCHS)
        near &= ~(outside & (rows.stage > 0))
        kept.append(
            rows.assign(subject=name[:5], state=np.where(outside, ACTIVE, rows.stage))[near]
        )
    table = pd.concat(kept, ignore_index=True)
    for channel in ("fpzcz", "pzoz"):
        for band in SIMULATED_BANDS_HZ:
            table[f"{channel} {band}"] = 10 * np.log10(table[f"{channel}_{band}"])
    return table


def decibels(table: pd.DataFrame) -> np.ndarray:
    """Return the ten columns of band powers, (epochs, 10)."""
    columns = [f"{c} {band}" for c in ("fpzcz", "pzoz") for band in SIMULATED_BANDS_HZ]
    return table[columns].to_numpy(float)


def fit_hypnograms(nights: list[np.ndarray]) -> dict:
    """Transition probabilities, bout lengths and stage shares."""
    counts = np.zeros((5, N_CYCLES, N_PLACES, 5))
    lengths: dict[tuple[int, int], list[int]] = {}
    for night in nights:
        position, epoch = NightPosition(), 0
        stages, sizes = bouts(night)
        for stage, size, after in zip(stages, sizes, [*stages[1:], -1], strict=True):
            position.enter(stage, epoch * EPOCH_S / 60)
            epoch += size
            position.leave(stage, epoch * EPOCH_S / 60)
            if after >= 0:
                place = position.place(epoch * EPOCH_S / 60)
                counts[stage, position.group, place, after] += 1
                lengths.setdefault((stage, position.group), []).append(size)
    shares = np.array([[np.mean(night == stage) for stage in range(5)] for night in nights])
    all_bouts = [np.concatenate([v for (s, _), v in lengths.items() if s == k]) for k in range(5)]
    quantiles = np.array(
        [
            [
                _quantiles(own if len(own := lengths.get((k, g), [])) >= 25 else all_bouts[k], 41)
                for g in range(N_CYCLES)
            ]
            for k in range(5)
        ]
    )
    return {
        "probabilities": _smoothed(counts),
        "bout_quantiles": quantiles,
        "real_bout_quantiles": np.array([_quantiles(b, 101) for b in all_bouts]),
        "real_shares": shares.mean(axis=0),
        "real_share_sd": shares.std(axis=0, ddof=1),
    }


def _quantiles(lengths, n_levels: int) -> np.ndarray:
    return np.quantile(lengths, np.linspace(0, 1, n_levels), method="inverted_cdf")


def _smoothed(counts: np.ndarray) -> np.ndarray:
    """Probabilities from counts: a context with few of them borrows from less special ones."""
    # before the first REM period time counts from sleep onset: that cycle borrows from itself
    parts = [counts[:, :1], counts[:, 1:]]
    return np.concatenate([_drawn_to_common(part) for part in parts], axis=1)


def _drawn_to_common(counts: np.ndarray) -> np.ndarray:
    of_stage = counts.sum(axis=(1, 2), keepdims=True) + 1e-3
    of_stage[np.arange(5), ..., np.arange(5)] = 0
    of_stage /= of_stage.sum(axis=-1, keepdims=True)
    of_place = counts.sum(axis=1, keepdims=True) + PRIOR * of_stage
    of_place /= of_place.sum(axis=-1, keepdims=True)
    smoothed = counts + PRIOR * of_place
    return smoothed / smoothed.sum(axis=-1, keepdims=True)


def fit_tendencies(table: Fitted, lengths: list[int]) -> Fitted:
    """Log-odds, and their spread between subjects, that give stage shares as they really are."""
    mean, sd = np.zeros(5), np.zeros(5)
    for _ in range(10):
        rng = np.random.default_rng(0)
        shares = []
        for length in np.tile(lengths, 8):
            night = simulate_sleep(length, table, mean + sd * rng.standard_normal(5), rng)
            shares.append(np.bincount(night, minlength=5) / length)
        # N2 is what the others leave
        missing = (table.real_share_sd - np.std(shares, axis=0)) * [1, 1, 0, 1, 1]
        sd = np.clip(sd + 4 * missing, 0, 0.8)
        mean += 0.4 * np.log(table.real_shares / np.mean(shares, axis=0)) * [1, 1, 0, 1, 1]
    return replace(table, tendency_mean=mean, tendency_sd=sd)


def fit_spectra(table: pd.DataFrame) -> dict:
    """Medians of each state, and spread within and between subjects."""
    values, state = decibels(table), table.state.to_numpy()
    medians = np.array([np.median(values[state == k], axis=0) for k in range(6)])
    own = table.groupby(["subject", "state"]).indices
    subjects = sorted(table.subject.unique())
    of_subject = np.array(
        [[np.median(values[own[s, k]], axis=0) for k in range(6)] for s in subjects]
    )
    deviation = of_subject - of_subject.mean(axis=0)
    common = deviation.mean(axis=1)
    order = np.searchsorted(subjects, table.subject)
    residual = values - of_subject[order, state]
    within_sd = np.array([_robust_sd(residual[state == k]) for k in range(6)])
    factors = []
    for k in range(6):
        # movement makes tails that events simulate: they are not part of the Gaussian spread
        rows = np.clip(residual[state == k] / within_sd[k], -2.5, 2.5)
        factors.append(within_sd[k][:, None] * _root(np.corrcoef(rows.T)))
    same = (np.diff(table.state) == 0) & (np.diff(table.epoch) == 1) & (table.state[1:] != ACTIVE)
    scaled = np.clip(residual / within_sd[state], -2.5, 2.5)
    return {
        "real_median_db": medians,
        "real_wake_median_db": np.median(values[table.stage == 0], axis=0),
        "real_within_sd_db": within_sd,
        "real_between_sd_db": of_subject.std(axis=0, ddof=1),
        "knot_db": medians,
        "within_factor": np.array(factors),
        "subject_factor": _root(_shrunk(common)),
        "night_sd_db": (deviation - common[:, None]).std(axis=0, ddof=1),
        "autocorrelation": float(np.mean(scaled[:-1][same] * scaled[1:][same])),
    }


def _robust_sd(rows: np.ndarray) -> np.ndarray:
    low, high = np.percentile(rows, [25, 75], axis=0)
    return (high - low) / 1.349


def _shrunk(rows: np.ndarray, share: float = 0.3) -> np.ndarray:
    """Covariance drawn to its diagonal: nine subjects do not tell 45 correlations."""
    covariance = np.cov(rows.T)
    return (1 - share) * covariance + share * np.diag(np.diag(covariance))


def _root(covariance: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(covariance + 1e-6 * np.eye(len(covariance)))


def measure(table: Fitted, n_subjects: int) -> tuple[np.ndarray, np.ndarray]:
    """Medians and within-subject spread of simulated reference nights, twice (6, 10)."""
    values, states, residuals = [], [], []
    for subject in range(n_subjects):
        night = simulate_night("PHYS", subject, seed=1, shift=0.0, table=table)
        powers = band_powers_db(night.signal, night.sfreq).reshape(len(night.stages), -1)
        state = np.where(night.is_active, ACTIVE, night.true_stages)
        residual = powers.copy()
        for k in np.unique(state):
            residual[state == k] -= np.median(powers[state == k], axis=0)
        values.append(powers)
        states.append(state)
        residuals.append(residual)
    value, state, residual = map(np.concatenate, (values, states, residuals))
    medians = np.array([np.median(value[state == k], axis=0) for k in range(6)])
    return medians, np.array([_robust_sd(residual[state == k]) for k in range(6)])


def calibrate(table: Fitted, rounds: int, n_subjects: int) -> Fitted:
    """Adapt the background until medians and spread, with events on top, match real nights."""
    for number in range(rounds):
        medians, within_sd = measure(table, n_subjects)
        off = table.real_median_db - medians
        ratio = np.clip(table.real_within_sd_db / within_sd, 0.7, 1.4)
        print(f"round {number}: medians are off by up to {np.abs(off).max():.2f} dB, spread by "
              f"a factor of {ratio.min():.2f} to {ratio.max():.2f}", flush=True)  # fmt: skip
        original = np.linalg.norm(table.within_factor, axis=2, keepdims=True)
        changed = np.clip(original * ratio[..., None] ** 0.7, 0.3, 8.0)
        table = replace(
            table,
            knot_db=np.clip(table.knot_db + 0.8 * off, table.real_median_db - 12, None),
            within_factor=table.within_factor * changed / original,
        )
    return table


def contrasts(values: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Medians of a night's states relative to N2, (6, 10); NaN for states with few epochs."""
    rows = [values[state == k] for k in range(6)]
    medians = [np.median(v, axis=0) if len(v) >= 10 else np.full(10, np.nan) for v in rows]
    return np.array(medians) - medians[2]


def fit_wide(powers: pd.DataFrame, n_nights: int) -> np.ndarray:
    """Return `CONTRAST_DB`, one step closer to the contrasts of real nights."""
    real = [
        contrasts(decibels(night), night.state.to_numpy())
        for _, night in powers.groupby("recording")
    ]
    simulated = []
    for number in range(n_nights):
        rng = np.random.default_rng([1, number])
        profile = replace(wide_profile(rng), channels=REFERENCE, day_h=0.0)
        night = simulate_night(profile, number, seed=1, table=wide_table())
        values = band_powers_db(night.signal, night.sfreq).reshape(len(night.stages), -1)
        simulated.append(contrasts(values, np.where(night.is_active, ACTIVE, night.true_stages)))
    missing = np.nanmean(real, axis=0) - np.nanmean(simulated, axis=0)
    is_gamma = np.tile([band == "gamma" for band in SIMULATED_BANDS_HZ], 2)
    return CONTRAST_DB + 0.8 * np.where(is_gamma, 0.0, missing)


def to_json(table: Fitted, about: dict) -> str:
    """Round to the digits that matter, one array per line."""
    rows = [f'  "{name}": {json.dumps(value)}' for name, value in about.items()]
    for name, value in asdict(table).items():
        digits = 4 if name == "probabilities" else 3
        numbers = np.round(value, digits).tolist()
        rows.append(f'  "{name}": {json.dumps(numbers, separators=(",", ":"))}')
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Fit, calibrate and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument("--rounds", type=int, default=7, help="of calibration")
    parser.add_argument("--subjects", type=int, default=40, help="simulated in each round")
    parser.add_argument(
        "--wide",
        type=int,
        metavar="NIGHTS",
        help="print the contrasts of wide nights (CONTRAST_DB) and write nothing",
    )
    chosen = parser.parse_args(arguments)
    if "PSDNORM_REALDATA" not in os.environ:
        parser.error("PSDNORM_REALDATA is not set, expected the folder of the real data")
    if chosen.wide is not None and chosen.wide < 1:
        parser.error(f"--wide is {chosen.wide}, expected one night at least")
    folder = Path(os.environ["PSDNORM_REALDATA"])
    hypnograms = read_hypnograms(folder)
    nights = [sleep_of(stages) for stages in hypnograms.values()]
    powers = read_powers(folder, hypnograms)
    if chosen.wide is not None:
        print(np.array2string(fit_wide(powers, chosen.wide).round(1), separator=", "))
        return 0
    numbers = fit_hypnograms(nights) | fit_spectra(powers)
    table = Fitted(tendency_mean=np.zeros(5), tendency_sd=np.zeros(5), **numbers)
    table = fit_tendencies(table, [len(night) for night in nights])
    table = calibrate(table, chosen.rounds, chosen.subjects)
    about = {
        "made_by": "scripts/fit_simulation.py",
        "source": "Sleep-EDF Expanded, PhysioNet, ODC-By 1.0: Kemp 2000, Goldberger 2000",
        "hypnograms": sorted(hypnograms),
        "band_powers": sorted(powers.recording.unique()),
    }
    chosen.out.write_text(to_json(table, about))
    print(f"{chosen.out}: {len(nights)} hypnograms, {len(powers)} epochs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
