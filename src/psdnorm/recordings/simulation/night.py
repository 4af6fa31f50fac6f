"""One simulated night: hypnogram, background, events, recorder and scorer, in that order."""

import zlib
from dataclasses import dataclass

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.recordings.simulation import montage
from psdnorm.recordings.simulation.background import Background, synthesize
from psdnorm.recordings.simulation.events import Sleeper, add_events
from psdnorm.recordings.simulation.fitted import ACTIVE, N_BANDS, Fitted, fitted
from psdnorm.recordings.simulation.hypnograms import EPOCH_S, N2, N3, simulate_hypnogram
from psdnorm.recordings.simulation.physiology import Subject, draw_subject
from psdnorm.recordings.simulation.profiles import CohortProfile, profile_of
from psdnorm.recordings.simulation.recorder import add_disturbances, amplify, draw_amplifier
from psdnorm.recordings.simulation.scorer import score
from psdnorm.recordings.simulation.variety import draw_variety

# height of the alpha peak over the spectrum under it, by state
ALPHA_HEIGHT = np.array([6.0, 1.0, 0.0, 0.0, 0.5, 1.5])
# one branch of the seed for each part, so that a change to one leaves the others where they were
_OF_SUBJECT = ("subject", "amplifier", "scorer", "variety")
_OF_NIGHT = ("hypnogram", "spectrum", "background", "events", "disturbances", "labels")


@dataclass(frozen=True)
class SimulatedNight:
    """A night that nobody slept.

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
        Wake that is up and about.
    channels : tuple of str
        The two derivations.
    unit : str
        What the cohort's files declare; a writer scales to it.
    age_y : float
        Age in years.
    sex : str
        ``"F"`` or ``"M"``.
    cohort, subject : str
    night : int
    seed : int
    shift : float
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
        Names the subject: traits, amplifier and scorer are the same in all of a subject's nights.
    night : int
        Number of the night, from 0.
    seed : int
        The same cohort, subject, night and seed give the same bytes.
    hours : float
        Length; rounded down to whole epochs of 30 s.
    shift : float
        How far the cohort is from the reference: 0 not at all, 1 as its profile says.
    table : Fitted, optional
        The reference population; the one that was fitted to real nights by default.

    Returns
    -------
    SimulatedNight

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
    who = draw_subject(scaled, table, rngs["subject"])
    weights = montage.weights(cohort.channels, shift)
    variety = draw_variety(scaled, len(weights), rngs["variety"])
    if variety is not None:
        who, weights = variety.of(who), variety.seen(weights)
    before, after = _day(scaled, n_epochs, rngs["variety"])
    asleep = n_epochs - before - after
    stages, is_active = simulate_hypnogram(asleep, table, who.tendency, rngs["hypnogram"])
    stages, is_active = np.pad(stages, (before, after)), np.pad(is_active, (before, after))
    is_active[:before] = is_active[n_epochs - after :] = True
    states = np.where(is_active, ACTIVE, stages)
    deviation_db, power_db = _spectrum(states, table, who, rngs["spectrum"])
    if variety is not None:
        power_db = power_db + _blend(variety.state_db[states])
    scene = _Scene(states, deviation_db, power_db, weights)
    signal, events = _record(scene, who, scaled, rngs)
    depth_db = _depth_db(states, deviation_db, table)
    labels = score(stages, depth_db, scaled, rngs["scorer"], rngs["labels"])
    about = (cohort.channels, cohort.unit, who.age_y, who.sex, cohort.name, str(subject), night)
    return SimulatedNight(
        signal, float(sfreq), labels, stages, is_active, *about, seed, float(shift), events
    )


@dataclass(frozen=True)
class _Scene:
    """What happens in a night, before anything is recorded of it."""

    states: NDArray  # (E,)
    deviation_db: NDArray  # (E,)
    power_db: NDArray  # (E, 10)
    weights: dict[str, NDArray]


def _record(
    scene: _Scene, who: Subject, profile: CohortProfile, rngs: dict[str, np.random.Generator]
) -> tuple[NDArray[np.float32], dict[str, NDArray]]:
    """Signal of a night, (2, T), and the onsets of its events."""
    sfreq = int(profile.sfreq)
    amplifier = draw_amplifier(profile, rngs["amplifier"])
    alpha = _blend(ALPHA_HEIGHT[scene.states][:, None])[:, 0] * who.alpha_height
    parts = Background(scene.power_db, alpha, who.alpha_hz, scene.weights, amplifier.electrode_uv)
    signal = synthesize(parts, sfreq, rngs["background"])
    slow_gain = 10 ** (np.clip(scene.deviation_db, -9, 9) / 20)
    sleeper = Sleeper(scene.states, who.rates, who.gains, slow_gain, who.spindle_hz)
    events = add_events(signal, sfreq, sleeper, scene.weights, rngs["events"])
    add_disturbances(signal, sfreq, profile, scene.weights["heart"], rngs["disturbances"])
    return amplify(signal, sfreq, amplifier), events


def _day(profile: CohortProfile, n_epochs: int, rng: np.random.Generator) -> tuple[int, int]:
    """Return how many epochs of a recording are day, before the night and after it."""
    if profile.day_h == 0:
        return 0, 0
    n_day = int(min(profile.day_h * 3600 / EPOCH_S, n_epochs - 2))
    before = int(rng.integers(n_day + 1))
    return before, n_day - before


def traits_of(profile: CohortProfile, subject: int | str, seed: int, shift: float) -> Subject:
    """Return the traits of a subject, as `simulate_night` draws them from the fitted table."""
    rng = _streams(seed, profile.name, str(subject), 0)["subject"]
    return draw_subject(profile.at(shift), fitted(), rng)


def check_length(profile: CohortProfile, night: int, seed: int, hours: float) -> tuple[int, int]:
    """Return the number of epochs and the rate in Hz; refuse what cannot be simulated."""
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
    """Independent streams: those of the subject do not depend on the night."""
    # Python's own hash of a string changes from run to run
    who = [seed, zlib.crc32(cohort.encode()), zlib.crc32(subject.encode())]
    of_subject = np.random.SeedSequence(who).spawn(len(_OF_SUBJECT))
    of_night = np.random.SeedSequence([*who, night + 1]).spawn(len(_OF_NIGHT))
    names = (*_OF_SUBJECT, *_OF_NIGHT)
    return {
        name: np.random.default_rng(sequence)
        for name, sequence in zip(names, (*of_subject, *of_night), strict=True)
    }


def _spectrum(
    states: NDArray, table: Fitted, who: Subject, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Each epoch's slow power beside its state's, (E,), and its spectrum, (E, 10), in dB."""
    innovation = rng.standard_normal((len(states), 2 * N_BANDS))
    own = table.night_sd_db * rng.standard_normal(table.night_sd_db.shape)
    rho = table.autocorrelation
    # starts in its stationary distribution
    innovation[1:] *= np.sqrt(1 - rho**2)
    chain = scipy.signal.lfilter([1.0], [1.0, -rho], innovation, axis=0)
    within = np.einsum("eij,ej->ei", table.within_factor[states], chain)
    within = np.clip(within, -15, 15)
    level = _blend((table.knot_db + own)[states])
    # slow waves follow the power of both channels' delta band
    deviation = within[:, [0, N_BANDS]].mean(axis=1)
    return deviation, level + within + who.deviation_db


def _blend(values: NDArray) -> NDArray:
    """Let an epoch carry some of its neighbours: stages do not change at the stroke of 30 s."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return 0.15 * padded[:-2] + 0.7 * padded[1:-1] + 0.15 * padded[2:]


def _depth_db(states: NDArray, deviation_db: NDArray, table: Fitted) -> NDArray:
    """Slow-wave power of each epoch, from half-way between N2 and N3: (E,)."""
    delta = table.real_median_db[:, [0, N_BANDS]].mean(axis=1)
    return delta[states] + deviation_db - (delta[N2] + delta[N3]) / 2
