"""One simulated night: hypnogram, background, events, recorder and scorer, in that order."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate import scalp as montage
from psdnorm.lab.simulate.background import Background, synthesize
from psdnorm.lab.simulate.course import blend, depth_of, draw_edges_s, draw_spectra, draw_unrest
from psdnorm.lab.simulate.events import Sleeper, add_events
from psdnorm.lab.simulate.fitted import ACTIVE, Fitted, fitted
from psdnorm.lab.simulate.gaze import add_gaze
from psdnorm.lab.simulate.hypnograms import EPOCH_S, simulate_hypnogram
from psdnorm.lab.simulate.physiology import Subject, draw_subject
from psdnorm.lab.simulate.profiles import CohortProfile, profile_of
from psdnorm.lab.simulate.recorder import add_disturbances, amplify, draw_amplifier
from psdnorm.lab.simulate.scorer import score
from psdnorm.lab.simulate.texture import ALPHA_HEIGHT, Texture, draw_texture
from psdnorm.lab.simulate.variety import draw_variety

# one branch of the seed for each part, so that a change to one leaves the others where they were
_OF_SUBJECT = ("subject", "amplifier", "scorer", "variety", "texture", "eyes")
_OF_NIGHT = (
    *("hypnogram", "spectrum", "background", "events", "disturbances", "labels"),
    *("unrest", "gaze", "boundaries"),
)


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
    deviation_db, power_db = draw_spectra(states, table, who, scaled, rngs["spectrum"])
    if variety is not None:
        power_db = power_db + blend(variety.state_db[states])
    scene = _draw_scene(states, deviation_db, power_db, weights, who, scaled, rngs)
    signal, events = _record(scene, who, scaled, rngs)
    depth_db = depth_of(states, deviation_db, table)
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
    edges_s: NDArray  # (E + 1,)
    texture: Texture | None


def _draw_scene(
    states: NDArray,
    deviation_db: NDArray,
    power_db: NDArray,
    weights: dict[str, NDArray],
    who: Subject,
    profile: CohortProfile,
    rngs: dict[str, np.random.Generator],
) -> _Scene:
    """Add to a night's spectra what the subject's texture and unrest do to them."""
    if profile.unrest_sd_db > 0:
        power_db = power_db + draw_unrest(states, profile.unrest_sd_db, rngs["unrest"])
    texture = draw_texture(profile, who.alpha_height, rngs["texture"])
    if texture is not None:
        power_db = power_db + blend(texture.bands_db()[states])
    edges_s = draw_edges_s(len(states), profile.boundary_s, rngs["boundaries"])
    return _Scene(states, deviation_db, power_db, weights, edges_s, texture)


def _record(
    scene: _Scene, who: Subject, profile: CohortProfile, rngs: dict[str, np.random.Generator]
) -> tuple[NDArray[np.float32], dict[str, NDArray]]:
    """Signal of a night, (2, T), and the onsets of its events."""
    sfreq = int(profile.sfreq)
    amplifier = draw_amplifier(profile, rngs["amplifier"])
    texture = scene.texture
    height = ALPHA_HEIGHT if texture is None else texture.alpha_height
    alpha = blend(height[scene.states][:, None])[:, 0] * who.alpha_height
    parts = Background(
        *(scene.power_db, alpha, who.alpha_hz, scene.weights),
        *(amplifier.electrode_uv, scene.states, scene.edges_s, texture),
    )
    signal = synthesize(parts, sfreq, rngs["background"])
    slow_gain = 10 ** (np.clip(scene.deviation_db, -9, 9) / 20)
    traits = (who.rates, who.gains, slow_gain, who.spindle_hz, who.stray)
    sleeper = Sleeper(scene.states, *traits, scene.edges_s if profile.boundary_s > 0 else None)
    events = add_events(signal, sfreq, sleeper, scene.weights, rngs["events"])
    if profile.gaze > 0:
        seen = profile.gaze * scene.weights["eye"]
        add_gaze(signal, sfreq, scene.states, scene.edges_s, seen, rngs["eyes"], rngs["gaze"])
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
