"""The background: noise of two channels with a spectrum that changes from block to block.

Blocks of 4 s that overlap by half are drawn in the frequency domain and added under a sine window,
whose squares sum to one: the variance is right everywhere, and spectra change smoothly.
"""

from dataclasses import dataclass

import numpy as np
import scipy.fft
import scipy.signal
from numpy.typing import NDArray

from psdnorm.lab.simulate.fitted import BANDS_HZ, N_BANDS, STATES
from psdnorm.lab.simulate.hypnograms import EPOCH_S
from psdnorm.lab.simulate.scalp import BACKGROUND
from psdnorm.lab.simulate.texture import ALPHA_SD_HZ, Texture

HOP_S = 2.0
CHUNK = 64
# an epoch's spectrum gives way to the next one's over this long
TRANSITION_S = 6.0
LOWEST_HZ = 0.1
COUPLING_HZ = 0.5
# power within an epoch remembers itself from one block to the next by this much
WAXING_MEMORY = 0.7
# correlation of the anterior and the posterior source: falls with frequency. The files that we fit
# to hold no cross-spectra, so this is an assumption
COHERENCE_HZ = (0.5, 4.0, 13.0, 30.0)
COHERENCE = (0.40, 0.35, 0.25, 0.10)
COHERENCE_RANGE = (-0.6, 0.85)


@dataclass(frozen=True)
class Background:
    """What the background of a night is made of.

    Attributes
    ----------
    power_db : ndarray, (E, 10)
        Density at the bands' centres in dB re 1 µV²/Hz, anterior and posterior.
    alpha_height : ndarray, (E,)
        Height of the alpha peak, as a multiple of the spectrum under it.
    alpha_hz : float
        Its frequency.
    weights : dict of str to ndarray, (2,)
        The montage, see `montage.weights`.
    electrode_uv : float
        RMS of the electrodes' noise between 0.5 and 50 Hz.
    states : ndarray, (E,)
        Spectral state of each epoch, see `fitted.STATES`.
    edges_s : ndarray, (E + 1,)
        Where epochs begin and the last one ends.
    texture : Texture, optional
        The grain of the background, where it is not the usual one.
    """

    power_db: NDArray
    alpha_height: NDArray
    alpha_hz: float
    weights: dict[str, NDArray]
    electrode_uv: float
    states: NDArray
    edges_s: NDArray
    texture: Texture | None = None


def synthesize(parts: Background, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw the background of a night.

    Parameters
    ----------
    parts : Background
    sfreq : int
        Sampling rate in Hz.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float32, (2, T)
        µV, T = E · 30 · sfreq.
    """
    n_epochs, hop = len(parts.power_db), round(HOP_S * sfreq)
    n_hops = round(n_epochs * EPOCH_S / HOP_S)
    frequency_hz = scipy.fft.rfftfreq(2 * hop, 1 / sfreq)
    # one-sided density → square of a coefficient's parts: the variance is its sum over bins of
    # sfreq / n, half of it real and half imaginary
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
        self.blocks_db = _from_epochs(
            parts.power_db + 10 * np.log10(scale), parts.edges_s, n_blocks
        )
        sd = 0.8
        waxing = scipy.signal.lfilter([0.8], [1, -0.6], rng.standard_normal(n_blocks))
        self.alpha = _from_epochs(parts.alpha_height[:, None], parts.edges_s, n_blocks)
        self.alpha *= np.exp(sd * waxing - sd**2 / 2)[:, None].astype(np.float32)
        width_hz = parts.texture.alpha_sd_hz if parts.texture else ALPHA_SD_HZ
        self.peak = np.exp(-0.5 * ((frequency_hz - parts.alpha_hz) / width_hz) ** 2)
        self.peak = self.peak.astype(np.float32)
        # dB to natural logarithm, so that one exponential is all it takes
        self.basis = (_interpolation(frequency_hz) * np.log(10) / 10).astype(np.float32)
        self.coherence = np.interp(frequency_hz, COHERENCE_HZ, COHERENCE).astype(np.float32)
        self.grain = _Grain(parts, frequency_hz, n_blocks)
        if parts.texture:
            self.blocks_db += _waxing(parts.texture.waxing_sd_db, n_blocks, rng.spawn(1)[0])
        noise = scale * _electrode_density(frequency_hz, parts.electrode_uv)
        self.noise = noise.astype(np.float32)
        self.is_heard = (frequency_hz >= LOWEST_HZ).astype(np.float32)
        self.weights = {name: w.astype(np.float32) for name, w in parts.weights.items()}

    def factor(self, start: int, stop: int) -> tuple[NDArray, NDArray, NDArray]:
        """Square root of the density of a run of blocks: three times (blocks, F)."""
        knots = self.blocks_db[start:stop].reshape(stop - start, 2, N_BANDS)
        density = np.exp(self.grain.add_fine(knots @ self.basis, start, stop))  # (blocks, 2, F)
        density *= (1 + self.alpha[start:stop] * self.peak)[:, None]
        density *= self.is_heard
        anterior, posterior = density[:, 0], density[:, 1]
        cross = np.sqrt(anterior * posterior)
        shared = 2 * self.grain.add_coherence(self.coherence, start, stop) * cross

        def between(i: int, j: int) -> NDArray:
            a, p, left, right = (self.weights[name] for name in BACKGROUND)
            mixed = (a[i] * p[j] + p[i] * a[j]) / 2
            # sources at the sides are as strong as the two others' geometric mean
            at_sides = left[i] * left[j] + right[i] * right[j]
            total = mixed * shared + at_sides * cross
            total += (a[i] * a[j]) * anterior
            total += (p[i] * p[j]) * posterior
            return total

        first = np.sqrt(between(0, 0) + self.noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            mixed = np.where(first > 0, between(0, 1) / first, 0)
        left_over = between(1, 1) + self.noise - mixed**2
        return first, mixed, np.sqrt(np.maximum(left_over, 0))


class _Grain:
    """A subject's texture, block by block; without one, nothing is added."""

    def __init__(self, parts: Background, frequency_hz: NDArray, n_blocks: int) -> None:
        texture = parts.texture
        self.is_plain = texture is None
        if texture is None:
            return
        self.shares = _from_epochs(np.eye(len(STATES))[parts.states], parts.edges_s, n_blocks)
        self.fine = (texture.fine_db(frequency_hz) * np.log(10) / 10).astype(np.float32)
        fading = np.interp(frequency_hz, COHERENCE_HZ, COHERENCE) / COHERENCE[0]
        self.coherence = np.outer(texture.coherence, fading).astype(np.float32)

    def add_fine(self, log_density: NDArray, start: int, stop: int) -> NDArray:
        """Add peaks and troughs to both channels of a run of blocks, (blocks, 2, F)."""
        if not self.is_plain:
            log_density += (self.shares[start:stop] @ self.fine)[:, None]
        return log_density

    def add_coherence(self, usual: NDArray, start: int, stop: int) -> NDArray:
        """Return the correlation of the two sources, (F,) or (blocks, F)."""
        if self.is_plain:
            return usual
        return np.clip(usual + self.shares[start:stop] @ self.coherence, *COHERENCE_RANGE)


def _waxing(sd_db: float, n_blocks: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Deviations in dB of each band from block to block that leave its mean power, (B, 10)."""
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
    """Matrix that draws straight lines between bands in log-log coordinates, (5, F)."""
    centres = np.log([np.sqrt(low * high) for low, high in BANDS_HZ.values()])
    where = np.log(np.maximum(frequency_hz, LOWEST_HZ))
    basis = np.array([np.interp(where, centres, row) for row in np.eye(N_BANDS)])
    # below the first band the first line goes on at half its slope, until AC coupling ends it
    below = np.maximum(centres[0] - np.maximum(where, np.log(COUPLING_HZ)), 0)
    below /= centres[1] - centres[0]
    basis[0] += below * 0.5
    basis[1] -= below * 0.5
    # above the last band the last line goes on at half its slope
    beyond = np.maximum(where - centres[-1], 0) / (centres[-1] - centres[-2])
    basis[-1] += beyond * 0.5
    basis[-2] -= beyond * 0.5
    return basis


def _electrode_density(frequency_hz: NDArray, rms_uv: float) -> NDArray:
    """Density of electrode noise: 70 % of its power 1/f, 30 % white, between 0.5 and 50 Hz."""
    pink = 0.7 / np.log(100) / np.maximum(frequency_hz, 0.25)
    return rms_uv**2 * (pink + 0.3 / 49.5) * (frequency_hz > 0)
