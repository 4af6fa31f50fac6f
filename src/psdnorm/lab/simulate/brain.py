"""The simulated brain: background, texture, events, eyes, differences between people."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.fft
import scipy.signal
import scipy.special
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, SIMULATED_BANDS_HZ
from psdnorm.lab.simulate.hypnograms import N2, N3, WAKE
from psdnorm.lab.simulate.profiles import (
    ACTIVE,
    N_BANDS,
    REFERENCE_AGE_Y,
    STATES,
    CohortProfile,
    Fitted,
)
from psdnorm.lab.simulate.recorder import BACKGROUND

# Effects of age: directions after the literature, sizes set by hand, nothing from our files.
# Amplitudes and slow waves fall from childhood (Feinberg and Campbell 2010, Carrier et al. 2001),
# spindles quicken, then thin out (Purcell et al. 2017), the alpha peak rises until twenty and slows
# after sixty (Klimesch 1999), deep sleep gives way to light sleep and wake (Ohayon et al. 2004).
AGES_Y = (5.0, 10.0, 18.0, REFERENCE_AGE_Y, 45.0, 60.0, 75.0, 90.0)
AGE_EFFECTS = {
    "delta_db": (7.0, 6.0, 3.0, 0.0, -1.8, -3.0, -4.0, -4.5),
    "theta_db": (7.0, 5.5, 2.5, 0.0, -1.0, -1.7, -2.0, -2.0),
    "alpha_db": (4.0, 4.0, 2.0, 0.0, -0.7, -1.5, -2.1, -2.3),
    "beta_db": (3.0, 3.0, 1.5, 0.0, -0.3, -0.5, -0.6, -0.6),
    "gamma_db": (3.0, 2.5, 1.0, 0.0, 0.0, 0.3, 0.5, 0.5),
    "alpha_hz": (7.8, 9.0, 9.8, 10.1, 10.0, 9.6, 9.1, 8.7),
    "spindle_hz": (11.8, 12.4, 13.0, 13.2, 13.3, 13.4, 13.5, 13.5),
    "spindle_rate": (0.8, 1.0, 1.25, 1.0, 0.85, 0.7, 0.55, 0.45),
    "spindle_gain": (1.2, 1.3, 1.2, 1.0, 0.9, 0.75, 0.65, 0.6),
    "slow_gain": (2.0, 1.9, 1.4, 1.0, 0.85, 0.72, 0.6, 0.55),
    "wake_log_odds": (-0.3, -0.3, -0.2, 0.0, 0.3, 0.6, 0.9, 1.1),
    "n1_log_odds": (-0.4, -0.3, -0.1, 0.0, 0.15, 0.3, 0.45, 0.5),
    "n3_log_odds": (1.0, 0.9, 0.5, 0.0, -0.4, -0.8, -1.2, -1.4),
    "rem_log_odds": (0.1, 0.1, 0.05, 0.0, -0.05, -0.1, -0.2, -0.3),
}


def age_effects(age_y: float) -> dict[str, float]:
    """Effects of an age, interpolated; neutral at the age of the reference population."""
    return {name: float(np.interp(age_y, AGES_Y, values)) for name, values in AGE_EFFECTS.items()}


@dataclass(frozen=True)
class Subject:
    """Traits that stay the same over a subject's nights."""

    age_y: float
    sex: str  # "F" or "M"
    deviation_db: NDArray  # (10,): band powers relative to the reference population, age included
    tendency: NDArray  # (5,): log-odds of entering each stage, relative to the reference population
    alpha_hz: float
    spindle_hz: float
    alpha_height: float  # factor on the height of the alpha peak over the background
    # factors on the rate and the height of events, by kind
    rates: dict[str, float]
    gains: dict[str, float]
    # (6,): events per minute of kinds that are not typical of a state, by kind
    stray: dict[str, NDArray] = field(default_factory=dict)


def draw_subject(profile: CohortProfile, table: Fitted, rng: np.random.Generator) -> Subject:
    """Draw a subject of a cohort; the profile is already scaled."""
    age_y = float(np.clip(profile.age_mean_y + profile.age_sd_y * rng.standard_normal(), 4, 95))
    sex = "F" if rng.random() < profile.female_share else "M"
    effect = age_effects(age_y)
    bands_db = [effect[f"{band}_db"] for band in SIMULATED_BANDS_HZ]
    own = table.subject_factor @ rng.standard_normal(2 * N_BANDS)
    of_age = [effect["wake_log_odds"], effect["n1_log_odds"], 0, effect["n3_log_odds"]]
    tendency = np.array([*of_age, effect["rem_log_odds"]])
    tendency[0] += profile.wake_log_odds
    tendency += table.tendency_mean + table.tendency_sd * rng.standard_normal(5)
    spread = dict(zip(("alpha", "spindle", "k_complex"), rng.standard_normal(3), strict=True))
    hertz = rng.standard_normal(2)
    artefacts = float(np.exp(profile.artefact_log_rate + 0.3 * rng.standard_normal()))
    return Subject(
        age_y=age_y,
        sex=sex,
        deviation_db=own + np.tile(bands_db, 2),
        tendency=tendency,
        alpha_hz=effect["alpha_hz"] + 0.5 * hertz[0],
        spindle_hz=effect["spindle_hz"] + 0.35 * hertz[1],
        alpha_height=float(np.exp(0.4 * spread["alpha"])),
        rates={
            "spindle": effect["spindle_rate"] * float(np.exp(0.3 * spread["spindle"])),
            "k_complex": float(np.exp(0.3 * spread["k_complex"])),
            "muscle": artefacts,
            "movement": artefacts,
        },
        gains={
            "spindle": effect["spindle_gain"],
            "slow_wave": effect["slow_gain"],
            "k_complex": effect["slow_gain"],
            "vertex": effect["slow_gain"],
        },
    )


# correlation of active wake from one epoch to the next
UNREST_MEMORY = 0.97


def draw_spectra(
    states: NDArray, table: Fitted, who: Subject, profile: CohortProfile, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Each epoch's slow power relative to its state's, (E,), and its spectrum, (E, 10), in dB."""
    innovation = rng.standard_normal((len(states), 2 * N_BANDS))
    own = table.night_sd_db * rng.standard_normal(table.night_sd_db.shape)
    rho = float(np.clip(table.autocorrelation + profile.epoch_memory, 0, 0.97))
    # starts in its stationary distribution
    innovation[1:] *= np.sqrt(1 - rho**2)
    chain = scipy.signal.lfilter([1.0], [1.0, -rho], innovation, axis=0)
    within = np.einsum("eij,ej->ei", table.within_factor[states], chain)
    within = np.clip(np.exp(profile.epoch_log_spread) * within, -15, 15)
    level = blend((table.knot_db + own)[states])
    # slow waves follow the power of the delta band in both channels
    deviation = within[:, [0, N_BANDS]].mean(axis=1)
    return deviation, level + within + who.deviation_db


def draw_unrest(states: NDArray, sd_db: float, rng: np.random.Generator) -> NDArray:
    """Draw slow changes of active wake, mostly common to all bands: (E, 10) in dB."""
    steps = rng.standard_normal((len(states), 2 * N_BANDS))
    of_channel = np.repeat(rng.standard_normal((len(states), 2)), N_BANDS, axis=1)
    fresh = (0.6 * steps + 0.8 * of_channel) * np.sqrt(1 - UNREST_MEMORY**2)
    # one process for night and day; it starts in its stationary distribution
    fresh[0] /= np.sqrt(1 - UNREST_MEMORY**2)
    slow = scipy.signal.lfilter([1.0], [1.0, -UNREST_MEMORY], fresh, axis=0)
    return sd_db * slow * (states == ACTIVE)[:, None]


def draw_edges_s(n_epochs: int, most_s: float, rng: np.random.Generator) -> NDArray:
    """Where each epoch's state begins and the last one ends: sleep ignores the grid of epochs."""
    edges = np.arange(n_epochs + 1.0) * EPOCH_S
    if most_s > 0:
        edges[1:-1] += rng.uniform(-most_s, most_s, n_epochs - 1)
    return edges


def blend(values: NDArray) -> NDArray:
    """Mix each epoch with its neighbours: stages do not change abruptly every 30 s."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return 0.15 * padded[:-2] + 0.7 * padded[1:-1] + 0.15 * padded[2:]


def depth_of(states: NDArray, deviation_db: NDArray, table: Fitted) -> NDArray:
    """Slow-wave power of each epoch, relative to halfway between N2 and N3: (E,)."""
    delta = table.real_median_db[:, [0, N_BANDS]].mean(axis=1)
    return delta[states] + deviation_db - (delta[N2] + delta[N3]) / 2


# height of the alpha peak relative to the spectrum under it, by state, and its width
ALPHA_HEIGHT = np.array([6.0, 1.0, 0.0, 0.0, 0.5, 1.5])
ALPHA_SD_HZ = 0.8
# replaces a height of 0 where heights are multiplied by random factors
_LEAST_HEIGHT = 0.1
_ALPHA = list(SIMULATED_BANDS_HZ).index("alpha")
_ALPHA_WIDTH_HZ = SIMULATED_BANDS_HZ["alpha"][1] - SIMULATED_BANDS_HZ["alpha"][0]
N_PEAKS = 4
PEAKS_HZ, PEAK_SD_HZ = (1.0, 28.0), (0.5, 3.0)
# slower waves are in no band
SLOWEST_BAND_HZ = SIMULATED_BANDS_HZ["delta"][0]


@dataclass(frozen=True)
class Texture:
    """The fine structure of one subject's background."""

    alpha_height: NDArray  # (6,): of the alpha peak in each state, before the subject's factor
    alpha_sd_hz: float  # width of the alpha peak
    alpha_db: NDArray  # (6,): added to the alpha band to keep the alpha power of a state
    # (4,): place and width of other peaks and troughs
    peak_hz: NDArray
    peak_sd_hz: NDArray
    peak_db: NDArray  # (6, 4): their heights in each state
    infraslow_db: float  # added below all bands
    coherence: NDArray  # (6,): added to the correlation of the anterior and the posterior source
    waxing_sd_db: float  # spread of each band's power within an epoch

    def fine_db(self, frequency_hz: NDArray) -> NDArray:
        """Return what is added to the spectrum of each state, (F,) → (6, F)."""
        away = (frequency_hz - self.peak_hz[:, None]) / self.peak_sd_hz[:, None]
        fine = self.peak_db @ np.exp(-0.5 * away**2)
        return fine + self.infraslow_db * (frequency_hz < SLOWEST_BAND_HZ)

    def bands_db(self) -> NDArray:
        """Return what is added to the bands of each state, (6, 10)."""
        added = np.zeros((len(STATES), 2 * N_BANDS))
        added[:, [_ALPHA, N_BANDS + _ALPHA]] = self.alpha_db[:, None]
        return added


def draw_texture(
    profile: CohortProfile, alpha_height: float, rng: np.random.Generator
) -> Texture | None:
    """Draw the fine structure of a subject's background; None if the profile does not vary it."""
    knobs = (profile.alpha_sd, profile.peak_sd_db, profile.infraslow_db, profile.coherence_sd)
    if not any((*knobs, profile.waxing_sd_db)):
        return None
    n_states = len(STATES)
    for_alpha, for_peaks, for_coherence = rng.spawn(3)
    spread = profile.alpha_sd * for_alpha.standard_normal(n_states + 1)
    least = _LEAST_HEIGHT if profile.alpha_sd > 0 else 0.0
    height = np.maximum(ALPHA_HEIGHT, least) * np.exp(spread[:-1])
    width_hz = float(np.clip(ALPHA_SD_HZ * np.exp(0.5 * spread[-1]), 0.4, 1.6))
    usual = _mean_gain(alpha_height * ALPHA_HEIGHT, ALPHA_SD_HZ)
    alpha_db = 10 * np.log10(usual / _mean_gain(alpha_height * height, width_hz))
    own = for_peaks.standard_normal(N_PEAKS)
    of_state = for_peaks.standard_normal((n_states, N_PEAKS))
    common, *by_state = for_coherence.standard_normal(n_states + 1)
    return Texture(
        height,
        width_hz,
        alpha_db,
        np.exp(for_peaks.uniform(np.log(PEAKS_HZ[0]), np.log(PEAKS_HZ[1]), N_PEAKS)),
        np.exp(for_peaks.uniform(np.log(PEAK_SD_HZ[0]), np.log(PEAK_SD_HZ[1]), N_PEAKS)),
        profile.peak_sd_db * (0.8 * own + 0.6 * of_state),
        profile.infraslow_db,
        profile.coherence_sd * (0.8 * common + 0.6 * np.array(by_state)),
        profile.waxing_sd_db,
    )


def _mean_gain(height: NDArray, width_hz: float) -> NDArray:
    """Factor by which a peak changes the mean power of the alpha band."""
    return 1 + height * np.sqrt(2 * np.pi) * width_hz / _ALPHA_WIDTH_HZ


HOP_S = 2.0
CHUNK = 64
# duration of the transition from one epoch's spectrum to the next one's
TRANSITION_S = 6.0
LOWEST_HZ = 0.1
COUPLING_HZ = 0.5
# correlation of the power from one block to the next
WAXING_MEMORY = 0.7
# correlation of the anterior and the posterior source, falling with frequency: an assumption, as
# the files that we fit to hold no cross-spectra
COHERENCE_HZ = (0.5, 4.0, 13.0, 30.0)
COHERENCE = (0.40, 0.35, 0.25, 0.10)
COHERENCE_RANGE = (-0.6, 0.85)


@dataclass(frozen=True)
class Background:
    """The ingredients of the background of a night."""

    power_db: NDArray  # (E, 10): at the bands' centres, dB re 1 µV²/Hz, anterior and posterior
    alpha_height: NDArray  # (E,): of the alpha peak, as a multiple of the spectrum under it
    alpha_hz: float
    weights: dict[str, NDArray]  # (2,): the montage, see recorder.weights
    electrode_uv: float  # RMS of the electrodes' noise between 0.5 and 50 Hz
    states: NDArray  # (E,): see profiles.STATES
    edges_s: NDArray  # (E + 1,): where epochs begin and the last one ends
    texture: Texture | None = None


def synthesize(parts: Background, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the background of a night, (2, T) in µV."""
    n_epochs, hop = len(parts.power_db), round(HOP_S * sfreq)
    n_hops = round(n_epochs * EPOCH_S / HOP_S)
    frequency_hz = scipy.fft.rfftfreq(2 * hop, 1 / sfreq)
    # one-sided density → variance of a coefficient's parts: the signal's variance is the density
    # summed over bins of width sfreq / n, half of it real and half imaginary
    density = _Density(parts, frequency_hz, n_hops + 1, sfreq * hop / 2, rng)
    window = np.sin(np.pi * (np.arange(2 * hop) + 0.5) / (2 * hop)).astype(np.float32)
    signal = np.empty((2, n_hops + 1, hop), dtype=np.float32)
    rest = np.zeros((2, hop), dtype=np.float32)
    for start in range(0, n_hops + 1, CHUNK):
        stop = min(start + CHUNK, n_hops + 1)
        shape = (2, stop - start, 2 * len(frequency_hz))
        noise = rng.standard_normal(shape, dtype=np.float32).view(np.complex64)
        first, mixed, second = density.factor(start, stop)
        noise[1] *= second
        noise[1] += mixed * noise[0]
        noise[0] *= first
        blocks = scipy.fft.irfft(noise, n=2 * hop, axis=-1, overwrite_x=True)
        blocks *= window
        # a hop holds the second half of one block and the first half of the next
        signal[:, start:stop] = blocks[..., :hop]
        signal[:, start] += rest
        signal[:, start + 1 : stop] += blocks[:, :-1, hop:]
        rest = blocks[:, -1, hop:]
    # the first block ramps up with nothing before it
    return signal[:, 1:].reshape(2, -1)


class _Density:
    """Cross-spectral density of the two channels, block by block, as a triangular square root."""

    def __init__(
        self,
        parts: Background,
        frequency_hz: NDArray,
        n_blocks: int,
        scale: float,
        rng: np.random.Generator,
    ) -> None:
        power_db = parts.power_db + 10 * np.log10(scale)
        self.blocks_db = _from_epochs(power_db, parts.edges_s, n_blocks)
        sd = 0.8
        waxing = scipy.signal.lfilter([0.8], [1, -0.6], rng.standard_normal(n_blocks))
        self.alpha = _from_epochs(parts.alpha_height[:, None], parts.edges_s, n_blocks)
        self.alpha *= np.exp(sd * waxing - sd**2 / 2)[:, None].astype(np.float32)
        width_hz = parts.texture.alpha_sd_hz if parts.texture else ALPHA_SD_HZ
        away = (frequency_hz - parts.alpha_hz) / width_hz
        self.peak = np.exp(-0.5 * away**2).astype(np.float32)
        # dB to natural logarithm, so that one exponential is enough
        self.basis = (_interpolation(frequency_hz) * np.log(10) / 10).astype(np.float32)
        self.coherence = np.interp(frequency_hz, COHERENCE_HZ, COHERENCE).astype(np.float32)
        self.texture = parts.texture
        if self.texture:
            self.blocks_db += _waxing(self.texture.waxing_sd_db, n_blocks, rng.spawn(1)[0])
            self.shares = _from_epochs(np.eye(len(STATES))[parts.states], parts.edges_s, n_blocks)
            self.fine = (self.texture.fine_db(frequency_hz) * np.log(10) / 10).astype(np.float32)
            fading = np.interp(frequency_hz, COHERENCE_HZ, COHERENCE) / COHERENCE[0]
            self.added = np.outer(self.texture.coherence, fading).astype(np.float32)
        noise = scale * _electrode_density(frequency_hz, parts.electrode_uv)
        self.noise = noise.astype(np.float32)
        self.is_heard = (frequency_hz >= LOWEST_HZ).astype(np.float32)
        self.weights = {name: w.astype(np.float32) for name, w in parts.weights.items()}

    def factor(self, start: int, stop: int) -> tuple[NDArray, NDArray, NDArray]:
        """Square root of the density of a run of blocks: three times (blocks, F)."""
        knots = self.blocks_db[start:stop].reshape(stop - start, 2, N_BANDS)
        log_density, coherence = knots @ self.basis, self.coherence
        if self.texture:
            shares = self.shares[start:stop]
            log_density += (shares @ self.fine)[:, None]
            coherence = np.clip(coherence + shares @ self.added, *COHERENCE_RANGE)
        density = np.exp(log_density)  # (blocks, 2, F)
        density *= (1 + self.alpha[start:stop] * self.peak)[:, None]
        density *= self.is_heard
        anterior, posterior = density[:, 0], density[:, 1]
        cross = np.sqrt(anterior * posterior)
        shared = 2 * coherence * cross

        def between(i: int, j: int) -> NDArray:
            a, p, left, right = (self.weights[name] for name in BACKGROUND)
            mixed = (a[i] * p[j] + p[i] * a[j]) / 2
            # the lateral sources are as strong as the geometric mean of the two others
            at_sides = left[i] * left[j] + right[i] * right[j]
            total = mixed * shared + at_sides * cross
            return total + (a[i] * a[j]) * anterior + (p[i] * p[j]) * posterior

        first = np.sqrt(between(0, 0) + self.noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            mixed = np.where(first > 0, between(0, 1) / first, 0)
        left_over = between(1, 1) + self.noise - mixed**2
        return first, mixed, np.sqrt(np.maximum(left_over, 0))


def _waxing(sd_db: float, n_blocks: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw changes of each band from block to block in dB that keep its mean power, (B, 10)."""
    fresh = rng.standard_normal((n_blocks, 2 * N_BANDS)) * np.sqrt(1 - WAXING_MEMORY**2)
    waves = scipy.signal.lfilter([1.0], [1.0, -WAXING_MEMORY], fresh, axis=0)
    return (sd_db * waves - np.log(10) / 20 * sd_db**2).astype(np.float32)


def _from_epochs(values: NDArray, edges_s: NDArray, n_blocks: int) -> NDArray[np.float32]:
    """Values of blocks from those of epochs, with a ramp at each boundary: (E, K) → (B, K)."""
    centre_s = np.arange(n_blocks) * HOP_S
    nearest = np.clip(np.round(centre_s / EPOCH_S), 1, len(values) - 1).astype(int)
    after = np.clip(0.5 + (centre_s - edges_s[nearest]) / TRANSITION_S, 0, 1)[:, None]
    if len(values) == 1:
        return np.repeat(values, n_blocks, axis=0).astype(np.float32)
    return ((1 - after) * values[nearest - 1] + after * values[nearest]).astype(np.float32)


def _interpolation(frequency_hz: NDArray) -> NDArray:
    """Matrix that interpolates linearly between bands in log-log coordinates, (5, F)."""
    centres = np.log([np.sqrt(low * high) for low, high in SIMULATED_BANDS_HZ.values()])
    where = np.log(np.maximum(frequency_hz, LOWEST_HZ))
    basis = np.array([np.interp(where, centres, row) for row in np.eye(N_BANDS)])
    # below the first band the first line continues at half its slope, down to the AC coupling
    below = np.maximum(centres[0] - np.maximum(where, np.log(COUPLING_HZ)), 0)
    below /= centres[1] - centres[0]
    basis[0] += below * 0.5
    basis[1] -= below * 0.5
    # above the last band the last line continues at half its slope
    beyond = np.maximum(where - centres[-1], 0) / (centres[-1] - centres[-2])
    basis[-1] += beyond * 0.5
    basis[-2] -= beyond * 0.5
    return basis


def _electrode_density(frequency_hz: NDArray, rms_uv: float) -> NDArray:
    """Density of electrode noise: 70 % of its power 1/f, 30 % white, between 0.5 and 50 Hz."""
    pink = 0.7 / np.log(100) / np.maximum(frequency_hz, 0.25)
    return rms_uv**2 * (pink + 0.3 / 49.5) * (frequency_hz > 0)


Waveform = Callable[[NDArray, NDArray, NDArray, np.random.Generator], NDArray]


def spindle(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Waxing and waning oscillation whose frequency falls a little, as in real spindles."""
    cycles = hertz * (t - 0.02 * t**2)
    return _bump(t, duration) * np.sin(2 * np.pi * cycles + rng.uniform(0, 6.28, duration.shape))


def k_complex(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Sharp negative wave, then a slower positive one."""
    sharp = np.exp(-(((t / duration - 0.25) / 0.09) ** 2))
    blunt = np.exp(-(((t / duration - 0.6) / 0.16) ** 2))
    return _bump(t, duration) ** 0.25 * (0.65 * blunt - sharp)


def slow_wave(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """One cycle, down then up; the down state is steeper."""
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
    """Quick turn of the eyes to either side; the AC amplifier makes it decay."""
    side = rng.choice([-1.0, 1.0], duration.shape)
    rise = 1 - np.exp(-t / 0.03)
    return side * rise * np.exp(-3 * t / duration) * (t <= duration)


def slow_eye_movement(
    t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator
) -> NDArray:
    """One roll of the eyes, to and fro."""
    side = rng.choice([-1.0, 1.0], duration.shape)
    return side * _bump(t, duration) ** 0.5 * np.sin(2 * np.pi * t / duration)


def muscle(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Burst of high-pass noise."""
    noise = np.diff(rng.standard_normal((len(t), t.shape[1] + 1)), axis=1) / np.sqrt(2)
    return _bump(t, duration) ** 0.25 * noise


def movement(t: NDArray, duration: NDArray, hertz: NDArray, rng: np.random.Generator) -> NDArray:
    """Sway of the cables, and the muscle tension that causes it."""
    steps = rng.standard_normal((len(t), 1, 6)) * np.sin(
        2 * np.pi * t[..., None] * np.linspace(0.3, 2.5, 6) + rng.uniform(0, 6.28, (len(t), 1, 6))
    )
    return _bump(t, duration) ** 0.5 * (steps.sum(-1) / 2 + 0.2 * muscle(t, duration, hertz, rng))


@dataclass(frozen=True)
class EventKind:
    """One kind of event."""

    waveform: Waveform  # (n, L), of height about 1
    source: str  # whose weight in the montage applies
    # in quiet wake, N1, N2, N3, REM and active wake
    per_minute: tuple[float, float, float, float, float, float]
    duration_s: tuple[float, float]
    height_uv: tuple[float, float]  # at weight 1
    hertz: tuple[float, float] = (0.0, 0.0)  # if the kind oscillates


KINDS = {
    "spindle": EventKind(
        spindle, "spindle", (0, 0.1, 3, 1, 0, 0), (0.5, 1.5), (12, 30), (-0.5, 0.5)
    ),
    "k_complex": EventKind(k_complex, "k_complex", (0, 0, 1.5, 0.5, 0, 0), (0.8, 1.3), (60, 130)),
    "slow_wave": EventKind(slow_wave, "slow", (0, 0, 1.5, 14, 0, 0), (0.7, 1.5), (35, 75)),
    "vertex": EventKind(vertex, "vertex", (0, 1.5, 0.2, 0, 0, 0), (0.2, 0.3), (40, 80)),
    "sawtooth": EventKind(sawtooth, "sawtooth", (0, 0, 0, 0, 0.8, 0), (2, 5), (10, 25), (2, 4.5)),
    "blink": EventKind(blink, "eye", (2, 0.2, 0, 0, 0, 10), (0.2, 0.4), (50, 130)),
    "eye_movement": EventKind(eye_movement, "eye", (0.5, 0, 0, 0, 4, 3), (0.3, 1.0), (20, 50)),
    "slow_eye_movement": EventKind(
        slow_eye_movement, "eye", (1.5, 3, 0, 0, 0, 0), (2, 4), (15, 40)
    ),
    "muscle": EventKind(muscle, "muscle", (0.5, 0.2, 0.05, 0.02, 0.1, 2), (0.5, 4), (5, 20)),
    "movement": EventKind(
        movement, "movement", (0.1, 0.03, 0.02, 0.01, 0.03, 0.5), (2, 8), (50, 200)
    ),
}
ARTEFACTS = ("muscle", "movement")
# chance that the body moves when the sleeper wakes
MOVES_ON_WAKING = 0.5


@dataclass(frozen=True)
class Sleeper:
    """What events depend on, apart from chance."""

    states: NDArray  # (E,): see profiles.STATES
    # by kind; 1 for kinds that are not named
    rates: dict[str, float]
    gains: dict[str, float]
    slow_gain: NDArray  # (E,): factor on slow waves, from the epoch's slow power
    spindle_hz: float
    stray: dict[str, NDArray]  # see Subject
    edges_s: NDArray | None = None  # (E + 1,): where epochs begin, if not every 30 s


def add_events(
    signal: NDArray[np.float32],
    sfreq: int,
    sleeper: Sleeper,
    weights: dict[str, NDArray],
    rng: np.random.Generator,
) -> dict[str, NDArray]:
    """Add a night's events to its background, in place; return onsets in seconds by kind."""
    # one stream per kind, so that a change to one does not move the others
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


# in quiet wake, N1, N2, N3, REM and active wake: jumps per second within a burst, share of the time
# in bursts, size of the jumps and of the rolls; set by hand, varied between subjects
JUMPS_PER_S = np.array([0.5, 0.1, 0.0, 0.0, 1.0, 1.2])
IN_BURSTS = np.array([0.4, 0.3, 0.0, 0.0, 0.25, 0.8])
JUMP_UV = np.array([16.0, 8.0, 0.0, 0.0, 14.0, 16.0])
ROLL_UV = np.array([14.0, 3.0, 0.5, 0.5, 1.5, 8.0])
SUBJECT_SD = 0.5
# correlations from one second to the next
BURST_MEMORY = 0.8
ROLL_MEMORY = 0.7
JUMP_S = (0.03, 0.09)


def add_gaze(
    signal: NDArray[np.float32],
    sfreq: int,
    states: NDArray,
    edges_s: NDArray,
    eye_weights: NDArray,
    subject: np.random.Generator,
    rng: np.random.Generator,
) -> None:
    """Add the gaze potential to a recording, in place; ``subject`` is the eyes' random stream."""
    habits = np.exp(SUBJECT_SD * subject.standard_normal((4, len(STATES))))
    jump_s = subject.uniform(*JUMP_S)
    # one value per second, and one beyond the last second
    at_s = np.arange(round(len(states) * EPOCH_S) + 1)
    second = states[np.clip(np.searchsorted(edges_s, at_s, "right") - 1, 0, len(states) - 1)]
    share = np.clip(IN_BURSTS * habits[0], 0, 1)[second]
    chance = (JUMPS_PER_S * habits[1])[second] * _bursts(share, rng)
    place = _jumps(chance[:-1], (JUMP_UV * habits[2])[second], sfreq, jump_s, rng)
    place += _rolls((ROLL_UV * habits[3])[second], sfreq, rng)
    signal += eye_weights.astype(np.float32)[:, None] * place


def _bursts(share: NDArray, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each second is in a burst: this share of the time, in stretches."""
    fresh = rng.standard_normal(len(share))
    fresh[1:] *= np.sqrt(1 - BURST_MEMORY**2)
    urge = scipy.signal.lfilter([1.0], [1.0, -BURST_MEMORY], fresh)
    return scipy.special.ndtr(urge) > 1 - share


def _jumps(
    per_s: NDArray, reach_uv: NDArray, sfreq: int, jump_s: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Gaze of eyes that jump from one place around the centre to another, (T,)."""
    counts = rng.poisson(per_s)
    second = np.repeat(np.arange(len(counts)), counts)
    at = np.sort(second * sfreq + rng.integers(sfreq, size=len(second)))
    far = np.exp(0.4 * rng.standard_normal(len(at)))
    goals = reach_uv[at // sfreq] * far * rng.standard_normal(len(at))
    place = np.zeros(len(per_s) * sfreq, dtype=np.float32)
    np.add.at(place, at, np.diff(goals, prepend=0.0).astype(np.float32))
    np.cumsum(place, out=place)
    kernel = scipy.signal.windows.hann(max(round(2 * jump_s * sfreq), 3) + 2)
    return scipy.signal.oaconvolve(place, (kernel / kernel.sum()).astype(np.float32), mode="same")


def _rolls(rms_uv: NDArray, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Gaze of eyes that roll slowly, with this RMS in each second, (T,)."""
    fresh = rng.standard_normal(len(rms_uv)) * np.sqrt(1 - ROLL_MEMORY**2)
    knots = rms_uv * scipy.signal.lfilter([1.0], [1.0, -ROLL_MEMORY], fresh)
    at_s = np.arange((len(rms_uv) - 1) * sfreq) / sfreq
    return np.interp(at_s, np.arange(len(rms_uv)), knots).astype(np.float32)


@dataclass(frozen=True)
class Variety:
    """One subject's departures from the templates."""

    # see Subject
    rates: dict[str, float]
    gains: dict[str, float]
    state_db: NDArray  # (6, 10): added to the spectrum of each state
    montage: NDArray  # (sources, 2): factors on the montage's weights
    stray: dict[str, NDArray]

    def of(self, who: Subject) -> Subject:
        """Return the subject with these events."""
        rates = {kind: who.rates.get(kind, 1.0) * self.rates[kind] for kind in KINDS}
        gains = {kind: who.gains.get(kind, 1.0) * self.gains[kind] for kind in KINDS}
        return replace(who, rates=rates, gains=gains, stray=self.stray)

    def seen(self, weights: dict[str, NDArray]) -> dict[str, NDArray]:
        """Return a montage's weights, each (2,), times these factors."""
        factors = zip(weights.items(), self.montage, strict=True)
        return {source: weight * factor for (source, weight), factor in factors}


def draw_variety(
    profile: CohortProfile, n_sources: int, rng: np.random.Generator
) -> Variety | None:
    """Draw a subject's departures from the templates; None for a profile that has none."""
    knobs = (profile.event_rate_sd, profile.event_gain_sd, profile.state_sd_db, profile.montage_sd)
    if not any((*knobs, profile.event_leak)):
        return None
    often, large = rng.standard_normal((2, len(KINDS)))
    state_db = profile.state_sd_db * rng.standard_normal((len(STATES), 2 * N_BANDS))
    return Variety(
        dict(zip(KINDS, np.exp(profile.event_rate_sd * often).tolist(), strict=True)),
        dict(zip(KINDS, np.exp(profile.event_gain_sd * large).tolist(), strict=True)),
        state_db,
        np.exp(profile.montage_sd * rng.standard_normal((n_sources, 2))),
        _draw_stray(profile.event_leak, rng.spawn(1)[0]),
    )


def _draw_stray(leak: float, rng: np.random.Generator) -> dict[str, NDArray]:
    shares = leak * np.exp(rng.standard_normal((len(KINDS), len(STATES))))
    most = [max(kind.per_minute) for kind in KINDS.values()]
    # artefacts occur in all states anyway
    return {
        name: share * rate
        for name, share, rate in zip(KINDS, np.minimum(shares, 0.5), most, strict=True)
        if name not in ARTEFACTS
    }
