"""Nights as different as we can make them, for a network that will see recordings of any clinic.

Every subject has a clinic of their own: montage, gain, filters, noise, artefacts, age and scorer
are drawn from ranges that reach beyond those of the cohorts' profiles.
"""

import zlib
from dataclasses import replace
from functools import lru_cache

import numpy as np

from psdnorm.io.recording import Recording
from psdnorm.lab.simulate.fitted import Fitted, fitted
from psdnorm.lab.simulate.profiles import CohortProfile
from psdnorm.lab.simulate.scalp import DERIVATIONS, REFERENCE
from psdnorm.lab.simulate.simulated_night import simulate_night

# pairs as clinics record them come more often than any two derivations
USUAL_PAIRS = (
    REFERENCE,
    ("C3-A2", "C4-A1"),
    ("F3-A2", "F4-A1"),
    ("F4-A1", "C4-A1"),
    ("C3-A2", "O1-A2"),
    ("Fp1+Fp2-Cz", "Pz-Oz (LER)"),
)
USUAL_SHARE = 0.75
# of nights in which one channel is all there is, and is shown twice
SINGLE_SHARE = 0.15
# of channels that were connected the other way round
REVERSED_SHARE = 0.1
# of recordings that begin before the night or go on after it, and for how many hours
DAY_SHARE, DAY_H = 0.3, (0.5, 6.0)
_RATES_HZ = (100.0, 128.0)
# added to the background of each state, channels and bands as in `Fitted`: with it, stages depart
# from their own night's N2 as they do in real nights, on average to 1 dB. ``--wide 40`` of
# scripts/fit_simulation.py prints the next step; these are two steps from 0, and a third would move
# them by 0.7 dB at most. Gamma is left out, as filters and noise decide there
CONTRAST_DB = np.array([
    [-0.7, -2.9, -0.9, -0.6, 0.0, 1.0, -2.2, 1.0, 1.7, 0.0],
    [-1.3, -1.4, -0.4, -0.3, 0.0, 0.1, 0.4, 2.2, -0.2, 0.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.6, -0.5, -1.5, -2.1, 0.0, 1.5, 0.8, 0.1, -0.3, 0.0],
    [-2.1, -1.1, -1.1, -1.6, 0.0, 0.1, -0.2, 0.5, -0.9, 0.0],
    [-1.5, -2.0, -0.6, -0.1, 0.0, -1.1, -0.4, 1.5, 1.7, 0.0],
])  # fmt: skip


def wide_profile(rng: np.random.Generator, name: str = "wide") -> CohortProfile:
    """Draw a clinic.

    Parameters
    ----------
    rng : numpy.random.Generator
    name : str
        Of the profile.

    Returns
    -------
    CohortProfile
        To be used at a shift of 1.
    """
    if rng.random() < USUAL_SHARE:
        pair = USUAL_PAIRS[rng.integers(len(USUAL_PAIRS))]
    else:
        pair = tuple(rng.choice(list(DERIVATIONS), 2, replace=False).tolist())
    return CohortProfile(
        name,
        sfreq=float(rng.choice(_RATES_HZ)),
        line_hz=float(rng.choice((50.0, 60.0))),
        channels=(pair[0], pair[1]),
        age_mean_y=float(rng.uniform(6, 85)),
        age_sd_y=0.0,
        gain_db=float(rng.uniform(-6, 6)),
        gain_sd_db=1.5,
        highpass_hz=float(_log_uniform(rng, 0.03, 0.6)),
        lowpass_hz=float(_log_uniform(rng, 20, 150)),
        tilt_db_per_octave=float(0.5 * rng.standard_normal()),
        response_sd=0.2,
        line_uv=float(_log_uniform(rng, 0.2, 8)),
        electrode_uv=float(_log_uniform(rng, 0.3, 5)),
        pops_per_hour=float(_log_uniform(rng, 0.2, 6)),
        ecg_uv=float(rng.uniform(0, 25)),
        artefact_log_rate=float(rng.uniform(-2.0, 1.0)),
        wake_log_odds=float(rng.uniform(-0.2, 0.9)),
        n1_bias=float(0.4 * rng.standard_normal()),
        n3_bias=float(0.2 * rng.standard_normal()),
        transition_noise=0.08,
        event_rate_sd=0.9,
        event_gain_sd=0.45,
        state_sd_db=1.0,
        montage_sd=0.25,
        drift_uv=float(_log_uniform(rng, 1, 25)),
        day_h=float(rng.uniform(*DAY_H)) if rng.random() < DAY_SHARE else 0.0,
        unrest_sd_db=float(rng.uniform(1, 5)),
        epoch_log_spread=float(rng.uniform(-0.7, 0.1)),
        epoch_memory=float(rng.uniform(-0.7, 0.1)),
        waxing_sd_db=float(rng.uniform(0.0, 3.0)),
        alpha_sd=0.8,
        peak_sd_db=1.2,
        infraslow_db=float(rng.uniform(-2, 9)),
        coherence_sd=0.25,
        event_leak=float(_log_uniform(rng, 0.003, 0.06)),
        boundary_s=12.0,
        gaze=float(_log_uniform(rng, 0.25, 2.0)),
    )


@lru_cache(maxsize=1)
def wide_table() -> Fitted:
    """Return the population of wide nights: the fitted one, with contrasts between stages set."""
    table = fitted()
    return replace(table, knot_db=table.knot_db + CONTRAST_DB)


def wide_recording(number: int, seed: int = 0, *, hours: float = 8.0) -> Recording:
    """Simulate one subject's night in a clinic of their own.

    Parameters
    ----------
    number : int
        The subject.
    seed : int
        The same number, seed and hours give the same bytes.
    hours : float

    Returns
    -------
    Recording
        Of two channels, in either order, either way round, or the same one twice.
    """
    rng = np.random.default_rng([seed, number, zlib.crc32(b"wide")])
    profile = wide_profile(rng)
    night = simulate_night(profile, number, 0, seed, hours=hours, table=wide_table())
    order = rng.permutation(2)
    if rng.random() < SINGLE_SHARE:
        order[1] = order[0]
    signs = np.where(rng.random(2) < REVERSED_SHARE, -1, 1).astype(np.float32)
    signal = np.ascontiguousarray((signs[:, None] * night.signal)[order])
    # names that a store can hold: one channel twice has two of them
    names = tuple(f"{night.channels[each]} {place + 1}" for place, each in enumerate(order))
    return Recording(signal, names, night.sfreq, night.stages, None, f"wide {number}")


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return np.exp(rng.uniform(np.log(low), np.log(high)))
