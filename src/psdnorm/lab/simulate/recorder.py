"""The simulated recorder: electrodes, montage, amplifier, other channels."""

from dataclasses import dataclass

import numpy as np
import scipy.fft
import scipy.signal
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate.profiles import CohortProfile

BACKGROUND = ("anterior", "posterior", "left", "right")
DERIVATIONS = (
    "Fpz-Cz", "Pz-Oz", "C3-A2", "C4-A1", "Fp1+Fp2-Cz", "Pz-Oz (LER)", "F3-A2", "F4-A1", "O1-A2",
    "O2-A1", "Cz-A1",
)  # fmt: skip
REFERENCE = ("Fpz-Cz", "Pz-Oz")
# weight of each source in the derivations above; Fpz-Cz and Pz-Oz weigh their own source by 1
_WEIGHTS = {
    # background
    "anterior":  (  1,    0, 0.75, 0.75, 1.05, 0.05, 0.95, 0.95,  0.2,   0.2,   0.8),
    "posterior": (  0,    1, 0.55, 0.55,    0, 0.95, 0.25, 0.25, 0.95,  0.95,   0.5),
    "left":      (  0,    0,  0.5,  0.1, 0.15,    0, 0.45,  0.1,  0.4,  0.05,   0.2),
    "right":     (  0,    0,  0.1,  0.5, 0.15,    0,  0.1, 0.45, 0.05,   0.4,   0.3),
    # sleep
    "slow":      (  1, 0.65,  0.9,  0.9, 1.05,  0.6, 1.05, 1.05,  0.6,   0.6,     1),
    "spindle":   (0.8,  0.7,  1.1, 1.05, 0.85, 0.75, 0.95,  0.9,  0.6,  0.55,   1.2),
    "k_complex": (  1, 0.45,    1,    1, 1.05,  0.4,  1.1,  1.1,  0.5,   0.5,   1.2),
    "vertex":    (0.8,  0.4,  1.3,  1.3,  0.8, 0.35,    1,    1,  0.4,   0.4,   1.5),
    "sawtooth":  (0.8,  0.4,  1.3,  1.3,  0.8, 0.35,    1,    1,  0.4,   0.4,   1.4),
    # artefacts; the right electrodes see eyes and heart from the other side
    "eye":       (  1,  0.1, 0.25, -0.2,  1.2, 0.08,  0.6, -0.5,  0.1, -0.08, -0.15),
    "muscle":    (  1,  0.9,  0.7,  0.7,  0.8,  0.7,  0.9,  0.9,  0.8,   0.8,   0.6),
    "movement":  (  1,  0.6,    1,    1,    1,  0.6,    1,    1,    1,     1,     1),
    "heart":     (  0,    0,    1, -0.6,    0, 0.05,    1, -0.6,    1,  -0.6,  -0.6),
}  # fmt: skip


def weights(channels: tuple[str, str], shift: float) -> dict[str, NDArray]:
    """Weight of every source in two derivations, (2,), blended from the reference montage."""
    unknown = [name for name in channels if name not in DERIVATIONS]
    if unknown:
        known = ", ".join(DERIVATIONS)
        raise ArgumentError(f"channel {unknown[0]!r} is no known derivation, expected {known}")
    blend = min(shift, 1.0)
    usual, own = ([DERIVATIONS.index(name) for name in pair] for pair in (REFERENCE, channels))
    rows = {source: np.array(row, dtype=float) for source, row in _WEIGHTS.items()}
    return {source: (1 - blend) * row[usual] + blend * row[own] for source, row in rows.items()}


# the tilt pivots at this frequency and ends about an octave below the slowest waves
PIVOT_HZ = 10.0
TAPS_S = 4.0


@dataclass(frozen=True)
class Amplifier:
    """One subject's electrodes and amplifier."""

    gain_db: NDArray  # (2,)
    highpass_hz: float  # first-order corners; 0 and infinity for none
    lowpass_hz: float
    tilt_db_per_octave: float  # around 10 Hz
    electrode_uv: float = 0.0  # RMS of the electrodes' noise, before the amplifier

    def response(self, frequency_hz: NDArray) -> NDArray:
        """Magnitude of the response without the gain, (F,) → (F,)."""
        f = np.maximum(frequency_hz, 1e-3)
        high = 1 / np.sqrt(1 + (self.highpass_hz / f) ** 2)
        low = 1 / np.sqrt(1 + (f / self.lowpass_hz) ** 2)
        octaves = np.log2(np.clip(f, 0.25, 200) / PIVOT_HZ)
        return high * low * 10 ** (self.tilt_db_per_octave * octaves / 20)

    @property
    def is_flat(self) -> bool:
        """Whether the response is 1 at all frequencies."""
        no_filter = self.highpass_hz == 0 and np.isinf(self.lowpass_hz)
        return bool(no_filter and self.tilt_db_per_octave == 0)


def draw_amplifier(profile: CohortProfile, rng: np.random.Generator) -> Amplifier:
    """Draw a subject's electrodes and amplifier from a scaled profile."""
    common, *own = rng.standard_normal(3)
    octaves = profile.response_sd * rng.standard_normal(3)
    return Amplifier(
        # devices differ more than the two channels of one device
        profile.gain_db + profile.gain_sd_db * (0.9 * common + 0.44 * np.array(own)),
        profile.highpass_hz * 2 ** octaves[0],
        profile.lowpass_hz * 2 ** octaves[1],
        profile.tilt_db_per_octave + octaves[2],
        # skin differs from subject to subject
        profile.electrode_uv * float(np.exp(0.4 * rng.standard_normal())),
    )


def amplify(signal: NDArray[np.float32], sfreq: int, amplifier: Amplifier) -> NDArray[np.float32]:
    """Pass a recording, (2, T) in µV, through an amplifier."""
    gain = 10 ** (amplifier.gain_db / 20)
    if amplifier.is_flat:
        return gain.astype(np.float32)[:, None] * signal
    # minimum phase, as analogue filters nearly are: a zero-phase mapping that restores the spectrum
    # does not restore the waveform
    taps = minimum_phase(amplifier, sfreq)
    filtered = np.empty_like(signal)
    for row, into, factor in zip(signal, filtered, gain, strict=True):
        into[:] = scipy.signal.oaconvolve(row, (factor * taps).astype(np.float32))[: len(row)]
    return filtered


def minimum_phase(amplifier: Amplifier, sfreq: int) -> NDArray:
    """Impulse response of an amplifier without its gain, 4 s long, by the cepstrum."""
    n = 8 * round(TAPS_S * sfreq)
    magnitude = amplifier.response(scipy.fft.rfftfreq(n, 1 / sfreq))
    # a zero at 0 Hz has no logarithm; use -80 dB instead
    cepstrum = scipy.fft.irfft(np.log(np.maximum(magnitude, 1e-4)), n=n)
    cepstrum[1 : n // 2] *= 2
    cepstrum[n // 2 + 1 :] = 0
    return scipy.fft.irfft(np.exp(scipy.fft.rfft(cepstrum)), n=n)[: n // 8]


def add_disturbances(
    signal: NDArray[np.float32],
    sfreq: int,
    profile: CohortProfile,
    heart_weights: NDArray,
    rng: np.random.Generator,
) -> None:
    """Add hum, electrode pops, heart beats and drift to a recording, in place."""
    for_hum, for_pops, for_heart, for_drift = rng.spawn(4)
    if profile.line_uv > 0:
        _add_hum(signal, sfreq, profile, for_hum)
    if profile.pops_per_hour > 0:
        _add_pops(signal, sfreq, profile.pops_per_hour, for_pops)
    if profile.ecg_uv > 0 and np.any(heart_weights):
        add_heart_beats(signal, sfreq, profile.ecg_uv * heart_weights, for_heart)
    if profile.drift_uv > 0:
        _add_drift(signal, sfreq, profile.drift_uv, for_drift)


def _add_drift(
    signal: NDArray[np.float32], sfreq: int, median_uv: float, rng: np.random.Generator
) -> None:
    """Add independent noise to each channel that falls with frequency and ends near 0.5 Hz."""
    n_seconds = signal.shape[1] // sfreq + 2
    rms_uv = median_uv * np.exp(0.6 * rng.standard_normal((2, 1)))
    knots = scipy.signal.lfilter([1.0], [1.0, -0.9], rng.standard_normal((2, n_seconds)), axis=1)
    knots *= rms_uv / knots.std(axis=1, keepdims=True)
    at_s = np.arange(signal.shape[1]) / sfreq
    for channel, values in zip(signal, knots, strict=True):
        channel += np.interp(at_s, np.arange(n_seconds), values).astype(np.float32)


def _add_hum(
    signal: NDArray[np.float32], sfreq: int, profile: CohortProfile, rng: np.random.Generator
) -> None:
    height = profile.line_uv * np.exp(0.5 * rng.standard_normal(2))
    phase = rng.uniform(0, 2 * np.pi)
    # sampling at whole hertz repeats a mains period every second: one second is the whole wave
    second = np.arange(sfreq) / sfreq
    wave = np.zeros(sfreq)
    for harmonic, share in ((1, 1.0), (3, 0.3)):
        # the anti-aliasing filter removes what lies at half the rate or above
        if harmonic * profile.line_hz < 0.99 * sfreq / 2:
            wave += share * np.sin(2 * np.pi * harmonic * profile.line_hz * second + phase)
    n_seconds = signal.shape[1] // sfreq
    slow = scipy.signal.lfilter([0.05], [1, -0.995], rng.standard_normal(n_seconds))
    envelope = np.exp(0.5 * slow)[:, None]
    hum = (envelope * wave).astype(np.float32).reshape(-1)
    signal += height.astype(np.float32)[:, None] * hum


def _add_pops(
    signal: NDArray[np.float32], sfreq: int, per_hour: float, rng: np.random.Generator
) -> None:
    n_samples = signal.shape[1]
    decay = np.exp(-np.arange(3 * sfreq) / (0.6 * sfreq))
    for channel in signal:
        n = rng.poisson(per_hour * n_samples / sfreq / 3600)
        heights = rng.choice([-1, 1], n) * rng.uniform(80, 300, n)
        for start, height in zip(rng.integers(0, n_samples, n), heights, strict=True):
            piece = channel[start : start + len(decay)]
            piece += (height * decay[: len(piece)]).astype(np.float32)


def add_heart_beats(
    signal: NDArray[np.float32], sfreq: int, heights_uv: NDArray, rng: np.random.Generator
) -> None:
    """Add the R waves of one heart to a recording, (C, T) in µV, in place."""
    n_samples = signal.shape[1]
    mean_s = rng.uniform(0.8, 1.15)
    n = int(n_samples / sfreq / mean_s * 1.2) + 2
    drift = scipy.signal.lfilter([0.1], [1, -0.95], rng.standard_normal(n))
    beats_s = np.cumsum(mean_s * np.clip(1 + 0.1 * drift + 0.02 * rng.standard_normal(n), 0.6, 1.5))
    t = np.arange(int(0.1 * sfreq)) / sfreq - 0.05
    wave = np.exp(-((t / 0.012) ** 2)) - 0.25 * np.exp(-(((t - 0.025) / 0.012) ** 2))
    starts = (beats_s * sfreq).astype(int)
    where = starts[starts < n_samples - len(wave), None] + np.arange(len(wave))
    # beats are further apart than a wave is long, so no sample is written twice
    signal[:, where] += (heights_uv[:, None, None] * wave).astype(np.float32)
