"""What scorers look for, and what they look past: transients on top of the background."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.hypnograms import EPOCH_S, WAKE

Waveform = Callable[[NDArray, NDArray, NDArray, np.random.Generator], NDArray]


def spindle(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Waxing and waning oscillation; the frequency falls a little, as it does."""
    cycles = hertz * (t - 0.02 * t**2)
    return _bump(t, duration) * np.sin(2 * np.pi * cycles + rng.uniform(0, 6.28, duration.shape))


def k_complex(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Sharp negative wave, then a slower positive one."""
    sharp = np.exp(-(((t / duration - 0.25) / 0.09) ** 2))
    blunt = np.exp(-(((t / duration - 0.6) / 0.16) ** 2))
    return _bump(t, duration) ** 0.25 * (0.65 * blunt - sharp)


def slow_wave(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """One cycle, down then up; its down state is the steeper one."""
    phase = np.clip(t / duration, 0, 1) ** 0.9
    return -(_bump(t, duration) ** 0.5) * np.sin(2 * np.pi * phase)


def vertex(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Sharp negative wave with a small rebound."""
    rebound = np.exp(-(((t / duration - 0.75) / 0.12) ** 2))
    return 0.3 * rebound - np.exp(-(((t / duration - 0.4) / 0.13) ** 2))


def sawtooth(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Train of notched triangles."""
    phase = (t * hertz) % 1.0
    return _bump(t, duration) ** 0.5 * (np.minimum(phase / 0.7, (1 - phase) / 0.3) - 0.5) * 2


def blink(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """One deflection."""
    return _bump(t, duration)


def eye_movement(
    t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator
) -> NDArray:
    """Quick turn of the eyes to either side, which an AC amplifier lets decay."""
    side = rng.choice([-1.0, 1.0], duration.shape)
    rise = 1 - np.exp(-t / 0.03)
    return side * rise * np.exp(-3 * t / duration) * (t <= duration)


def slow_eye_movement(
    t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator
) -> NDArray:
    """One rolling to and fro."""
    side = rng.choice([-1.0, 1.0], duration.shape)
    return side * _bump(t, duration) ** 0.5 * np.sin(2 * np.pi * t / duration)


def muscle(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Burst of noise without slow parts."""
    noise = np.diff(rng.standard_normal((len(t), t.shape[1] + 1)), axis=1) / np.sqrt(2)
    return _bump(t, duration) ** 0.25 * noise


def movement(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Sway of the cables and the tension of the muscles that cause it."""
    steps = rng.standard_normal((len(t), 1, 6)) * np.sin(
        2 * np.pi * t[..., None] * np.linspace(0.3, 2.5, 6) + rng.uniform(0, 6.28, (len(t), 1, 6))
    )
    return _bump(t, duration) ** 0.5 * (steps.sum(-1) / 2 + 0.2 * muscle(t, duration, hertz, rng))


@dataclass(frozen=True)
class Kind:
    """One kind of event.

    Attributes
    ----------
    waveform : callable
        Makes (n, L) values of height about 1.
    source : str
        Weight in the montage.
    per_minute : tuple of float
        Rates in quiet wake, N1, N2, N3, REM and active wake.
    duration_s : tuple of float
        Shortest and longest.
    height_uv : tuple of float
        Smallest and largest at weight 1.
    hertz : tuple of float
        Slowest and fastest, where the kind oscillates.
    """

    waveform: Waveform
    source: str
    per_minute: tuple[float, float, float, float, float, float]
    duration_s: tuple[float, float]
    height_uv: tuple[float, float]
    hertz: tuple[float, float] = (0.0, 0.0)


KINDS = {
    "spindle": Kind(spindle, "spindle", (0, 0.1, 3, 1, 0, 0), (0.5, 1.5), (12, 30), (-0.5, 0.5)),
    "k_complex": Kind(k_complex, "k_complex", (0, 0, 1.5, 0.5, 0, 0), (0.8, 1.3), (60, 130)),
    "slow_wave": Kind(slow_wave, "slow", (0, 0, 1.5, 14, 0, 0), (0.7, 1.5), (35, 75)),
    "vertex": Kind(vertex, "vertex", (0, 1.5, 0.2, 0, 0, 0), (0.2, 0.3), (40, 80)),
    "sawtooth": Kind(sawtooth, "sawtooth", (0, 0, 0, 0, 0.8, 0), (2, 5), (10, 25), (2, 4.5)),
    "blink": Kind(blink, "eye", (2, 0.2, 0, 0, 0, 10), (0.2, 0.4), (50, 130)),
    "eye_movement": Kind(eye_movement, "eye", (0.5, 0, 0, 0, 4, 3), (0.3, 1.0), (20, 50)),
    "slow_eye_movement": Kind(slow_eye_movement, "eye", (1.5, 3, 0, 0, 0, 0), (2, 4), (15, 40)),
    "muscle": Kind(muscle, "muscle", (0.5, 0.2, 0.05, 0.02, 0.1, 2), (0.5, 4), (5, 20)),
    "movement": Kind(movement, "movement", (0.1, 0.03, 0.02, 0.01, 0.03, 0.5), (2, 8), (50, 200)),
}
ARTEFACTS = ("muscle", "movement")
# chance that the body moves when the sleeper wakes
MOVES_ON_WAKING = 0.5


@dataclass(frozen=True)
class Sleeper:
    """What events depend on, besides chance.

    Attributes
    ----------
    states : ndarray, (E,)
        Spectral state of each epoch, see `fitted.STATES`.
    rates, gains : dict of str to float
        Factors by kind; 1 where a kind is not named.
    slow_gain : ndarray, (E,)
        Factor on slow waves that follows the epoch's slow power.
    spindle_hz : float
        The subject's spindle frequency.
    stray : dict of str to ndarray, (6,)
        Events a minute that come in each state besides those of `KINDS`, by kind.
    edges_s : ndarray, (E + 1,), optional
        Where epochs begin and the last one ends, if not every 30 s.
    """

    states: NDArray
    rates: dict[str, float]
    gains: dict[str, float]
    slow_gain: NDArray
    spindle_hz: float
    stray: dict[str, NDArray]
    edges_s: NDArray | None = None


def add_events(
    signal: NDArray[np.float32],
    sfreq: int,
    sleeper: Sleeper,
    weights: dict[str, NDArray],
    rng: np.random.Generator,
) -> dict[str, NDArray]:
    """Add a night's events to its background, in place.

    Parameters
    ----------
    signal : ndarray of float32, (2, T)
        µV; changed.
    sfreq : int
        Sampling rate in Hz.
    sleeper : Sleeper
    weights : dict of str to ndarray, (2,)
        The montage.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    dict of str to ndarray
        Onsets of each kind in seconds, in order.
    """
    # one stream for each kind, so that a change to one leaves the others where they were
    streams = dict(zip(KINDS, rng.spawn(len(KINDS)), strict=True))
    onsets = {name: _onsets(name, sleeper, streams[name]) for name in KINDS}
    for name, kind in KINDS.items():
        waves = _waves(name, onsets[name], sleeper, sfreq, streams[name])
        weight = weights[kind.source].astype(np.float32)[:, None]
        for onset, wave in zip((onsets[name] * sfreq).astype(int), waves, strict=True):
            piece = signal[:, onset : onset + len(wave)]
            piece += weight * wave[: piece.shape[1]]
    return onsets


def _onsets(name: str, sleeper: Sleeper, rng: np.random.Generator) -> NDArray:
    per_minute = np.array(KINDS[name].per_minute) + sleeper.stray.get(name, 0.0)
    rate = per_minute[sleeper.states] * sleeper.rates.get(name, 1.0)
    counts = rng.poisson(rate * EPOCH_S / 60)
    if name == "movement":
        asleep = (sleeper.states > WAKE) & (sleeper.states < 5)
        wakes = np.flatnonzero(asleep[:-1] & ~asleep[1:]) + 1
        counts[wakes] += rng.random(len(wakes)) < MOVES_ON_WAKING
    epochs = np.repeat(np.arange(len(counts)), counts)
    onsets = np.sort((epochs + rng.random(len(epochs))) * EPOCH_S)
    if sleeper.edges_s is None:
        return onsets
    return np.interp(onsets, np.arange(len(counts) + 1) * EPOCH_S, sleeper.edges_s)


def _waves(
    name: str, onsets: NDArray, sleeper: Sleeper, sfreq: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Waveforms in µV at weight 1, (n, L)."""
    kind, n = KINDS[name], len(onsets)
    duration = rng.uniform(*kind.duration_s, (n, 1))
    height = rng.uniform(*kind.height_uv, (n, 1)) * sleeper.gains.get(name, 1.0)
    hertz = rng.uniform(*kind.hertz, (n, 1))
    if name == "spindle":
        hertz += sleeper.spindle_hz
    if name in ("slow_wave", "k_complex"):
        height *= sleeper.slow_gain[(onsets / EPOCH_S).astype(int), None]
    t = np.arange(int(kind.duration_s[1] * sfreq)) / sfreq
    t = np.broadcast_to(t, (n, len(t)))
    return (height * kind.waveform(t, duration, hertz, rng)).astype(np.float32)


def _bump(t: NDArray, duration: NDArray) -> NDArray:
    """Smooth envelope from 0 over 1 to 0."""
    return np.sin(np.pi * np.clip(t / duration, 0, 1)) ** 2
