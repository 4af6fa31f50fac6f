"""The reference population, fitted to real nights, and the cohorts that differ from it."""

import json
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from math import inf
from typing import Any

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from psdnorm.cohorts import COHORTS
from psdnorm.constants import EPOCH_S, SIMULATED_BANDS_HZ
from psdnorm.errors import ArgumentError

# spectral states: quiet wake, N1, N2, N3 and REM carry the number of their stage; active wake
# (before lights off, after rising) looks different and is the sixth
STATES = ("quiet W", "N1", "N2", "N3", "REM", "active W")
ACTIVE = 5
N_BANDS = len(SIMULATED_BANDS_HZ)


@dataclass(frozen=True)
class Fitted:
    """The reference population: young adults, Fpz-Cz and Pz-Oz.

    An axis of 10 runs over channels, then bands. Powers are mean densities in dB re 1 µV²/Hz.
    """

    # (5, 4, 11, 5): next stage, given the stage, the cycle and the place in it (see NightPosition)
    probabilities: NDArray
    bout_quantiles: NDArray  # (5, 4, 41): epochs, at 41 probabilities, by stage and cycle
    # (5,): log-odds of entering each stage, on top of the probabilities above: a correction that
    # gives the shares of real nights, and the spread between subjects
    tendency_mean: NDArray
    tendency_sd: NDArray
    real_bout_quantiles: NDArray  # (5, 101): of the real nights, to compare with
    real_shares: NDArray  # (5,): of stages within the sleep period; mean and spread over nights
    real_share_sd: NDArray
    real_median_db: NDArray  # (6, 10): of the real epochs in each state
    real_wake_median_db: NDArray  # (10,): of all wake within 30 min of sleep
    # (6, 10): spread of epochs around their subject's median, and of those medians
    real_within_sd_db: NDArray
    real_between_sd_db: NDArray
    # (6, 10): background spectrum at the bands' centres, calibrated so that, with everything else
    # that is simulated on top, the medians come out as above
    knot_db: NDArray
    within_factor: NDArray  # (6, 10, 10): square root of the covariance of an epoch's deviations
    subject_factor: NDArray  # (10, 10): the same for a subject's deviations, common to all states
    night_sd_db: NDArray  # (6, 10): spread of what is specific to a state in one night
    autocorrelation: float  # of an epoch's deviations, from one epoch to the next


def parse(text: str) -> Fitted:
    """Make the arrays of a fitted table in JSON."""
    table = json.loads(text)
    numbers: dict[str, Any] = {field.name: np.array(table[field.name]) for field in fields(Fitted)}
    numbers["autocorrelation"] = float(table["autocorrelation"])
    return Fitted(**numbers)


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """Return the table that the package ships."""
    return parse(files(__package__).joinpath("fitted.json").read_text())


SEGMENT_S = 4.0


def band_powers_db(signal: NDArray, sfreq: float) -> NDArray:
    """Band powers of each epoch, (C, T) in µV → (E, C, 5), measured like those of the real nights.

    Mean density in dB re 1 µV²/Hz in each of `SIMULATED_BANDS_HZ` (Welch, Hann windows of 4 s).
    """
    length = round(EPOCH_S * sfreq)
    n_epochs = signal.shape[1] // length
    epochs = signal[:, : n_epochs * length].reshape(len(signal), n_epochs, length)
    frequency_hz, density = scipy.signal.welch(epochs, sfreq, nperseg=round(SEGMENT_S * sfreq))
    means = [
        density[..., (frequency_hz >= low) & (frequency_hz < high)].mean(axis=-1)
        for low, high in SIMULATED_BANDS_HZ.values()
    ]
    # a flat channel gets a power below any ever recorded
    return 10 * np.log10(np.maximum(np.stack(means, axis=-1), 1e-6)).swapaxes(0, 1)


REFERENCE_AGE_Y = 29.0
# rates of artefacts grow exponentially with the shift: beyond this, a night is all artefacts
MOST_SHIFT = 10.0
# half an epoch minus half a transition: an epoch beside one change of stage is mostly its own
# stage, one between two of them may not be
MOST_BOUNDARY_S = 12.0


@dataclass(frozen=True)
class CohortProfile:
    """What makes a cohort's nights differ from the reference, the young adults of Sleep-EDF.

    All knobs but the first five are scaled by ``shift`` (`at`): at 0 they do nothing, at 1 they
    have the value given here. Spreads are over subjects unless they say otherwise.

    - ``name``: the cohort, as in the paper.
    - ``sfreq``: sampling rate in Hz.
    - ``unit``: physical dimension that the cohort's files declare; arrays are always in µV.
    - ``line_hz``: mains frequency.
    - ``channels``: the two derivations, from `recorder.DERIVATIONS`. The shift blends from Fpz-Cz
      and Pz-Oz to them and is complete at 1.
    - ``age_mean_y``, ``age_sd_y``: age in years; the reference is 29 ± 3.
    - ``female_share``: share of women; the reference is one half. Only the label depends on it.
    - ``gain_db``, ``gain_sd_db``: amplifier gain, and its spread over subjects and channels.
    - ``highpass_hz``, ``lowpass_hz``: first-order corners; shift moves them in from 0 and infinity.
    - ``tilt_db_per_octave``: slope of the response around 10 Hz.
    - ``response_sd``: spread of the corners (octaves) and of the tilt (dB per octave).
    - ``line_uv``: median amplitude of the mains' hum.
    - ``electrode_uv``: median RMS of electrode noise, 1/f and white, independent between channels.
    - ``pops_per_hour``: rate of electrode pops, per channel.
    - ``ecg_uv``: height of the heart's R wave at a mastoid reference.
    - ``artefact_log_rate``: log of the factor on the rates of muscle bursts and movements.
    - ``wake_log_odds``: added to the log-odds of waking: fragmented sleep of patients.
    - ``n1_bias``: epochs by which the scorer draws the N1–N2 boundary later (negative: earlier).
    - ``n3_bias``: readiness to call N3, from -1 to 1: the chance that an N2 epoch with as much
      slow-wave activity as N3 is called N3 (negative: that a shallow N3 epoch is called N2).
    - ``transition_noise``: chance that an epoch beside a transition has its neighbour's label.
    - ``scorer_sd``: spread between scorers of ``n1_bias``, and half as much of ``n3_bias``.
    - ``event_rate_sd``, ``event_gain_sd``: spread of the log rate and the log amplitude of each
      kind of event.
    - ``state_sd_db``: spread of each state's band powers, one by one.
    - ``montage_sd``: spread of the logarithms of the montage's weights.
    - ``drift_uv``: median RMS of signals slower than the EEG: sweat, breathing and cables.
    - ``day_h``: hours of a recording before and after the night, up and about.
    - ``unrest_sd_db``: spread of active wake, over hours and nights.
    - ``epoch_log_spread``: log of the factor on the spread of a stage's epochs.
    - ``epoch_memory``: added to the correlation of one epoch with the next.
    - ``waxing_sd_db``: spread of each band's power within an epoch.
    - ``alpha_sd``: spread of the logarithm of the alpha peak's height in each state, and half as
      much of its width; the alpha band's power is kept.
    - ``peak_sd_db``: spread of peaks and troughs anywhere from 1 to 28 Hz, in each state.
    - ``infraslow_db``: added to the power below 0.5 Hz.
    - ``coherence_sd``: spread of the correlation between the sources of the background.
    - ``event_leak``: median share of an event's rate at which it also occurs in states for which it
      is not typical.
    - ``boundary_s``: how far a boundary between two epochs may lie from the grid, at most 12.
    - ``gaze``: factor on the effect of jumping and rolling eyes on frontal channels: 1 is typical.
    """

    name: str
    sfreq: float = 100.0
    unit: str = "uV"
    line_hz: float = 50.0
    channels: tuple[str, str] = ("Fpz-Cz", "Pz-Oz")
    age_mean_y: float = REFERENCE_AGE_Y
    age_sd_y: float = 3.0
    female_share: float = 0.5
    gain_db: float = 0.0
    gain_sd_db: float = 0.0
    highpass_hz: float = 0.0
    lowpass_hz: float = inf
    tilt_db_per_octave: float = 0.0
    response_sd: float = 0.0
    line_uv: float = 0.0
    electrode_uv: float = 0.0
    pops_per_hour: float = 0.0
    ecg_uv: float = 0.0
    artefact_log_rate: float = 0.0
    wake_log_odds: float = 0.0
    n1_bias: float = 0.0
    n3_bias: float = 0.0
    transition_noise: float = 0.0
    scorer_sd: float = 0.0
    event_rate_sd: float = 0.0
    event_gain_sd: float = 0.0
    state_sd_db: float = 0.0
    montage_sd: float = 0.0
    drift_uv: float = 0.0
    day_h: float = 0.0
    unrest_sd_db: float = 0.0
    epoch_log_spread: float = 0.0
    epoch_memory: float = 0.0
    waxing_sd_db: float = 0.0
    alpha_sd: float = 0.0
    peak_sd_db: float = 0.0
    infraslow_db: float = 0.0
    coherence_sd: float = 0.0
    event_leak: float = 0.0
    boundary_s: float = 0.0
    gaze: float = 0.0

    def at(self, shift: float) -> "CohortProfile":
        """Return the profile with its knobs scaled."""
        if not 0 <= shift <= MOST_SHIFT:
            raise ArgumentError(f"shift is {shift}, expected a number from 0 to {MOST_SHIFT:g}")
        neutral = CohortProfile(self.name)
        scaled = {}
        for name in (f.name for f in fields(self) if f.name not in _AS_THEY_ARE):
            zero = getattr(neutral, name)
            scaled[name] = zero + shift * (getattr(self, name) - zero)
        scaled["female_share"] = min(max(scaled["female_share"], 0.0), 1.0)
        scaled["transition_noise"] = min(scaled["transition_noise"], 0.5)
        scaled["boundary_s"] = min(scaled["boundary_s"], MOST_BOUNDARY_S)
        scaled["age_sd_y"] = max(scaled["age_sd_y"], 0.0)
        # a corner at infinity is no filter: scale the reciprocal
        scaled["lowpass_hz"] = self.lowpass_hz / shift if shift > 0 else inf
        return replace(self, **scaled)


_AS_THEY_ARE = ("name", "sfreq", "unit", "line_hz", "channels", "lowpass_hz")
# Ages and sexes are from the paper's first table (except phys-st). Everything else but SHHS's rate
# is an unchecked guess: the cohorts need a data agreement.
_NAMES = (
    "ABC", "CCSHS", "CFS", "HPAP", "MROS", "PHYS", "SHHS", "MASS", "CHAT", "SOF", "phys-st",
)  # fmt: skip
_KNOBS = {
    "sfreq":              (  256,  128,  128,  200,  256,  100,  125,  256,  200,  128,  100),
    "age_mean_y":         ( 48.8, 17.7, 41.7, 46.5, 76.4, 58.8, 63.1, 42.5,  6.6, 82.8, 40.2),
    "age_sd_y":           (  9.8,  0.4,   20, 11.9,  5.5,   22, 11.2, 18.9,  1.4,  3.1,   18),
    "female_share":       ( 0.43,  0.5, 0.55, 0.43,    0, 0.33, 0.52, 0.55, 0.52,    1, 0.68),
    "gain_db":            (    1, -1.5, -2.5,    2,   -1,    0,   -3,  1.5,  0.5, -1.5,  0.5),
    "gain_sd_db":         (    1,    1,  1.5,  2.5,  1.5,  0.8,  1.5,  0.8,    2,  1.5,  0.8),
    "highpass_hz":        ( 0.16,  0.3,  0.3,  0.3, 0.15,    0, 0.15,  0.3,  0.3,  0.3,  0.3),
    "lowpass_hz":         (  100,   50,   45,   70,   60,  inf,   40,  100,   70,   50,  inf),
    "tilt_db_per_octave": (  0.3, -0.3, -0.4,  0.5, -0.2,    0, -0.6,  0.4,  0.3, -0.3,    0),
    "response_sd":        ( 0.15, 0.15,  0.2,  0.4,  0.2,  0.1,  0.2,  0.1,  0.3,  0.2,  0.1),
    "line_uv":            (  1.5,    1,    2,    3,    2,    0,  2.5,  0.8,    2,    2,    0),
    "electrode_uv":       (    1,  1.5,  1.5,    2,  1.5,  0.5,    2,  0.8,    2,  1.5,  0.8),
    "pops_per_hour":      (  0.5,    1,    1,    2,  1.5,  0.5,    2,  0.3,    2,  1.5,  0.5),
    "ecg_uv":             (   12,   12,   12,   12,   12,    0,   12,    0,   12,   12,    0),
    "artefact_log_rate":  (  0.3,    0,  0.3,  0.5,  0.4,  0.2,  0.5,    0,  0.6,  0.4,    0),
    "wake_log_odds":      (  0.4,    0,  0.3,  0.6,  0.3,    0,  0.3,    0,    0,  0.3,  0.2),
    "n1_bias":            (  0.5, -0.5, -0.7,    1, -0.5,  0.2,   -1,  0.3,  0.5, -0.5,  0.3),
    "n3_bias":            (-0.25,  0.4, 0.25, -0.5, 0.15,    0, 0.25, 0.15, 0.25, 0.15,    0),
    "transition_noise":   (  0.1, 0.08,  0.1, 0.15,  0.1, 0.05, 0.12, 0.06,  0.1,  0.1, 0.05),
    "scorer_sd":          (  0.3,  0.3,  0.4,  0.6,  0.3,  0.3,  0.4,  0.2,  0.4,  0.3,  0.3),
}  # fmt: skip
_CHANNELS = {
    "PHYS": ("Fpz-Cz", "Pz-Oz"),
    "phys-st": ("Fpz-Cz", "Pz-Oz"),
    "MASS": ("Fp1+Fp2-Cz", "Pz-Oz (LER)"),
}


def _profile(name: str, knobs: dict[str, Any]) -> CohortProfile:
    channels, unit = _CHANNELS.get(name, ("C3-A2", "C4-A1")), "mV" if name == "HPAP" else "uV"
    line_hz = float(COHORTS[name].line_hz)
    return CohortProfile(name, unit=unit, line_hz=line_hz, channels=channels, **knobs)


PROFILES: dict[str, CohortProfile] = {
    name: _profile(name, {knob: float(row[place]) for knob, row in _KNOBS.items()})
    for place, name in enumerate(_NAMES)
}
"""The paper's ten cohorts, and Sleep-EDF's telemetry."""


def profile_of(name: str) -> CohortProfile:
    """Return a cohort's profile by name, in any case."""
    for profile in PROFILES.values():
        if profile.name.lower() == name.lower():
            return profile
    raise ArgumentError(f"cohort {name!r} has no profile, expected one of {', '.join(PROFILES)}")
