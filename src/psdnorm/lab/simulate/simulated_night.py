"""One simulated night."""

import zlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import ArgumentError
from psdnorm.io import Recording
from psdnorm.lab.simulate import brain, recorder
from psdnorm.lab.simulate.hypnograms import score, simulate_hypnogram
from psdnorm.lab.simulate.profiles import ACTIVE, CohortProfile, Fitted, fitted, profile_of

# one branch of the seed per part, so that a change to one does not move the others
_OF_SUBJECT = ("subject", "amplifier", "scorer", "variety", "texture", "eyes")
_OF_NIGHT = (
    *("hypnogram", "spectrum", "background", "events", "disturbances", "labels"),
    *("unrest", "gaze", "boundaries"),
)


@dataclass(frozen=True)
class SimulatedNight:
    """A simulated night.

    Attributes
    ----------
    signal : ndarray of float32, (2, T)
        µV at ``sfreq``, T = E · 30 · sfreq.
    sfreq : float
        Sampling rate in Hz.
    stages : ndarray of int8, (E,)
        The cohort's scoring of each 30 s epoch: W, N1, N2, N3, REM as 0…4.
    true_stages : ndarray of int8, (E,)
        What was simulated.
    is_active : ndarray of bool, (E,)
        Wake before lights off or after rising.
    channels : tuple of str
        The two derivations.
    unit : str
        Physical dimension that the cohort's files declare; writers convert to it.
    sex : {"F", "M"}
    events : dict of str to ndarray
        Onsets of each kind of event in seconds.
    """

    signal: NDArray[np.float32]
    sfreq: float
    stages: NDArray[np.int8]
    true_stages: NDArray[np.int8]
    is_active: NDArray[np.bool_]
    channels: tuple[str, str]
    unit: str
    age_y: float
    sex: str
    cohort: str
    subject: str
    night: int
    seed: int
    shift: float
    events: dict[str, NDArray]


def simulate_night(
    profile: CohortProfile | str,
    subject: int | str,
    night: int = 0,
    seed: int = 0,
    *,
    hours: float = 8.0,
    shift: float = 1.0,
    table: Fitted | None = None,
) -> SimulatedNight:
    """Simulate one night of one subject.

    Parameters
    ----------
    profile : CohortProfile or str
        The cohort, or the name of one in `PROFILES`.
    subject : int or str
        Traits, amplifier and scorer are the same in all of a subject's nights.
    night : int
        From 0.
    seed : int
        The same cohort, subject, night and seed give the same bytes.
    hours : float
        Rounded down to whole epochs of 30 s.
    shift : float
        How far the cohort is from the reference: 0 not at all, 1 as its profile says.
    table : Fitted, optional
        The reference population; by default the one that was fitted to real nights.

    Examples
    --------
    >>> night = simulate_night("SHHS", subject=7, hours=0.5)
    >>> night.signal.shape, night.sfreq, night.stages.shape
    ((2, 225000), 125.0, (60,))
    """
    cohort = profile_of(profile) if isinstance(profile, str) else profile
    scaled = cohort.at(shift)
    n_epochs, sfreq = check_length(cohort, night, seed, hours)
    table = fitted() if table is None else table
    rngs = _streams(seed, cohort.name, str(subject), night)
    who = brain.draw_subject(scaled, table, rngs["subject"])
    weights = recorder.weights(cohort.channels, shift)
    variety = brain.draw_variety(scaled, len(weights), rngs["variety"])
    if variety is not None:
        who, weights = variety.of(who), variety.seen(weights)
    before, after = _day(scaled, n_epochs, rngs["variety"])
    asleep = n_epochs - before - after
    stages, is_active = simulate_hypnogram(asleep, table, who.tendency, rngs["hypnogram"])
    stages, is_active = np.pad(stages, (before, after)), np.pad(is_active, (before, after))
    is_active[:before] = is_active[n_epochs - after :] = True
    states = np.where(is_active, ACTIVE, stages)
    deviation_db, power_db = brain.draw_spectra(states, table, who, scaled, rngs["spectrum"])
    if variety is not None:
        power_db = power_db + brain.blend(variety.state_db[states])
    signal, events = _record(states, deviation_db, power_db, weights, who, scaled, rngs)
    depth_db = brain.depth_of(states, deviation_db, table)
    labels = score(stages, depth_db, scaled, rngs["scorer"], rngs["labels"])
    about = (cohort.channels, cohort.unit, who.age_y, who.sex, cohort.name, str(subject), night)
    return SimulatedNight(
        signal, float(sfreq), labels, stages, is_active, *about, seed, float(shift), events
    )


def _record(
    states: NDArray,
    deviation_db: NDArray,
    power_db: NDArray,
    weights: dict[str, NDArray],
    who: brain.Subject,
    profile: CohortProfile,
    rngs: dict[str, np.random.Generator],
) -> tuple[NDArray[np.float32], dict[str, NDArray]]:
    """Signal of a night, (2, T), and the onsets of its events."""
    sfreq = int(profile.sfreq)
    if profile.unrest_sd_db > 0:
        power_db = power_db + brain.draw_unrest(states, profile.unrest_sd_db, rngs["unrest"])
    texture = brain.draw_texture(profile, who.alpha_height, rngs["texture"])
    if texture is not None:
        power_db = power_db + brain.blend(texture.bands_db()[states])
    edges_s = brain.draw_edges_s(len(states), profile.boundary_s, rngs["boundaries"])
    amplifier = recorder.draw_amplifier(profile, rngs["amplifier"])
    height = brain.ALPHA_HEIGHT if texture is None else texture.alpha_height
    alpha = brain.blend(height[states][:, None])[:, 0] * who.alpha_height
    parts = brain.Background(
        *(power_db, alpha, who.alpha_hz, weights),
        *(amplifier.electrode_uv, states, edges_s, texture),
    )
    signal = brain.synthesize(parts, sfreq, rngs["background"])
    slow_gain = 10 ** (np.clip(deviation_db, -9, 9) / 20)
    traits = (who.rates, who.gains, slow_gain, who.spindle_hz, who.stray)
    sleeper = brain.Sleeper(states, *traits, edges_s if profile.boundary_s > 0 else None)
    events = brain.add_events(signal, sfreq, sleeper, weights, rngs["events"])
    if profile.gaze > 0:
        seen = profile.gaze * weights["eye"]
        brain.add_gaze(signal, sfreq, states, edges_s, seen, rngs["eyes"], rngs["gaze"])
    recorder.add_disturbances(signal, sfreq, profile, weights["heart"], rngs["disturbances"])
    return recorder.amplify(signal, sfreq, amplifier), events


def _day(profile: CohortProfile, n_epochs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return the number of epochs of a recording before the night and after it."""
    if profile.day_h == 0:
        return 0, 0
    n_day = int(min(profile.day_h * 3600 / EPOCH_S, n_epochs - 2))
    before = int(rng.integers(n_day + 1))
    return before, n_day - before


def traits_of(profile: CohortProfile, subject: int | str, seed: int, shift: float) -> brain.Subject:
    """Return a subject's traits, as `simulate_night` draws them from the fitted table."""
    rng = _streams(seed, profile.name, str(subject), 0)["subject"]
    return brain.draw_subject(profile.at(shift), fitted(), rng)


def check_length(profile: CohortProfile, night: int, seed: int, hours: float) -> tuple[int, int]:
    """Check that a night can be simulated; return its number of epochs and its rate in Hz."""
    if not 0 < hours <= 48:
        raise ArgumentError(f"hours is {hours}, expected more than 0 and at most 48")
    if night < 0 or seed < 0:
        raise ArgumentError(f"night is {night} and seed is {seed}, expected at least 0")
    if profile.sfreq != int(profile.sfreq) or not 100 <= profile.sfreq <= 512:
        raise ArgumentError(f"sfreq is {profile.sfreq} Hz, expected whole hertz from 100 to 512")
    n_epochs = int(hours * 3600 / EPOCH_S)
    if n_epochs < 2:
        raise ArgumentError(f"hours is {hours}, expected at least two epochs of 30 s")
    return n_epochs, int(profile.sfreq)


def _streams(seed: int, cohort: str, subject: str, night: int) -> dict[str, np.random.Generator]:
    """Independent random streams; those of the subject do not depend on the night."""
    # Python's own hash of a string differs between processes
    who = [seed, zlib.crc32(cohort.encode()), zlib.crc32(subject.encode())]
    of_subject = np.random.SeedSequence(who).spawn(len(_OF_SUBJECT))
    of_night = np.random.SeedSequence([*who, night + 1]).spawn(len(_OF_NIGHT))
    names = (*_OF_SUBJECT, *_OF_NIGHT)
    return {
        name: np.random.default_rng(sequence)
        for name, sequence in zip(names, (*of_subject, *of_night), strict=True)
    }


# commonly recorded pairs of derivations, drawn more often than other pairs
USUAL_PAIRS = (
    recorder.REFERENCE,
    ("C3-A2", "C4-A1"),
    ("F3-A2", "F4-A1"),
    ("F4-A1", "C4-A1"),
    ("C3-A2", "O1-A2"),
    ("Fp1+Fp2-Cz", "Pz-Oz (LER)"),
)
USUAL_SHARE = 0.75
# of nights with a single channel, which is given twice
SINGLE_SHARE = 0.15
# of channels with inverted polarity
REVERSED_SHARE = 0.1
# of recordings that begin before the night or continue after it, and by how many hours
DAY_SHARE, DAY_H = 0.3, (0.5, 6.0)
_RATES_HZ = (100.0, 128.0)
# added to the background of each state, axes as in `Fitted`: stages then differ from their night's
# N2 as in real nights, to 1 dB on average. ``scripts/fit_simulation.py --wide 40`` prints the next
# step; these are two steps from 0, and a third would change them by 0.7 dB at most. Not for gamma,
# where filters and noise dominate
CONTRAST_DB = np.array([
    [-0.7, -2.9, -0.9, -0.6, 0.0, 1.0, -2.2, 1.0, 1.7, 0.0],
    [-1.3, -1.4, -0.4, -0.3, 0.0, 0.1, 0.4, 2.2, -0.2, 0.0],
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [0.6, -0.5, -1.5, -2.1, 0.0, 1.5, 0.8, 0.1, -0.3, 0.0],
    [-2.1, -1.1, -1.1, -1.6, 0.0, 0.1, -0.2, 0.5, -0.9, 0.0],
    [-1.5, -2.0, -0.6, -0.1, 0.0, -1.1, -0.4, 1.5, 1.7, 0.0],
])  # fmt: skip


def wide_profile(rng: np.random.Generator, name: str = "wide") -> CohortProfile:
    """Draw the profile of a laboratory, to be used at a shift of 1."""
    if rng.random() < USUAL_SHARE:
        pair = USUAL_PAIRS[rng.integers(len(USUAL_PAIRS))]
    else:
        pair = tuple(rng.choice(list(recorder.DERIVATIONS), 2, replace=False).tolist())
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
    """Return the population of wide nights: the fitted one with `CONTRAST_DB` added."""
    table = fitted()
    return replace(table, knot_db=table.knot_db + CONTRAST_DB)


def wide_recording(number: int, seed: int = 0, *, hours: float = 8.0) -> Recording:
    """Simulate one night of a subject in a laboratory of their own."""
    rng = np.random.default_rng([seed, number, zlib.crc32(b"wide")])
    profile = wide_profile(rng)
    night = simulate_night(profile, number, 0, seed, hours=hours, table=wide_table())
    order = rng.permutation(2)
    if rng.random() < SINGLE_SHARE:
        order[1] = order[0]
    signs = np.where(rng.random(2) < REVERSED_SHARE, -1, 1).astype(np.float32)
    signal = np.ascontiguousarray((signs[:, None] * night.signal)[order])
    # a store needs distinct names, also for one channel given twice
    names = tuple(f"{night.channels[each]} {place + 1}" for place, each in enumerate(order))
    return Recording(signal, names, night.sfreq, night.stages, None, f"wide {number}")


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return np.exp(rng.uniform(np.log(low), np.log(high)))
