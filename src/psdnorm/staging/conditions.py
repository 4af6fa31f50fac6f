"""What is wrong with the channels of a night as it was recorded, before any recipe scales it.

The limits are of EEG, not of a training: a recipe that scales by recording hides a wrong gain from
the network, and a store of its nights does not know the gain.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.drift.feature_spectra import EEG_HZ, SEGMENT_S, bin_weights, frequencies_hz
from psdnorm.io.recording import EPOCH_S, UNSCORED, Recording, whole_epochs
from psdnorm.ops import reference
from psdnorm.prepare.quality import MOST_BAD, Quality, examine, percent
from psdnorm.staging.trust_verdict import NOT_TRUSTED, UNUSUAL
from psdnorm.store.summary import BANDS_HZ

UNUSUAL_SHARE = 0.1  # of the epochs that are bad in the same way
# median over the night of the RMS from 0.5 to 30 Hz: sleep EEG has some 5 to 50 µV. The largest
# possible is 50 times the least usual one, so that no night passes that is 50 times too large
USUAL_UV = (3.0, 100.0)
POSSIBLE_UV = (1.0, 50 * USUAL_UV[0])
# mean density of beta beside that of delta; 0 dB is white noise, -11 dB is 1/f, and EEG is steeper
USUAL_SLOPE_DB = -6.0
POSSIBLE_SLOPE_DB = 0.0
_LINES_HZ = (50.0, 60.0)
_LINE_WIDTH_HZ = 1.0
_EXTREME = 1e-4  # of the signal's range, and
_RUN = 3  # samples in a row: as in psdnorm.prepare.quality
_MOST_EPOCHS = 240  # whose spectra are taken, evenly spaced


@dataclass(frozen=True)
class Condition:
    """One thing that is wrong with a channel.

    Attributes
    ----------
    channel : str
    kind : {"not finite", "flat", "saturated", "clipped", "amplitude", "noise", "line", "electrode"}
    share : float
        Of the epochs that it concerns.
    verdict : {"unusual", "do not trust"}
        What it makes of the night.
    sentence : str
        For a reader.
    """

    channel: str
    kind: str
    share: float
    verdict: str
    sentence: str


def channel_conditions(
    signal_uv: NDArray[np.floating],
    sfreq: float,
    names: Sequence[str],
    source: str = "the recording",
) -> tuple[Condition, ...]:
    """Look for flat, saturated, clipped, noisy and implausibly large channels.

    Parameters
    ----------
    signal_uv : ndarray, (C, T)
        In µV, as it was read: neither filtered nor scaled.
    sfreq : float
    names : sequence of str
        C names.
    source : str
        Whose signal it is, for an error.

    Returns
    -------
    tuple of Condition
        Empty where nothing is wrong.

    Raises
    ------
    RecordingError
        If the arguments do not fit together.
    """
    signal = np.ascontiguousarray(signal_uv, dtype=np.float32)
    n_epochs = whole_epochs(signal.shape[-1] / sfreq) if sfreq > 0 else 0
    stages = np.full(n_epochs, UNSCORED, np.int8)
    recording = Recording(signal, tuple(names), sfreq, stages, None, source)
    if not n_epochs:
        return ()
    quality = examine(recording)
    found: list[Condition] = []
    for channel, name in enumerate(recording.channels):
        found += _of_epochs(name, quality, channel)
        usable = np.flatnonzero(~(quality.not_finite | quality.flat)[:, channel])
        if not len(usable):
            continue
        if not any(each.channel == name and each.kind == "saturated" for each in found):
            found += _of_clipping(name, signal[channel], sfreq, n_epochs)
        found += _of_spectrum(name, *_densities(signal[channel], sfreq, usable), len(usable))
    return tuple(found)


def _of_epochs(name: str, quality: Quality, channel: int) -> list[Condition]:
    kinds = {
        "not finite": quality.not_finite,
        "flat": quality.flat,
        "saturated": quality.saturated,
    }
    found = []
    for kind, epochs in kinds.items():
        share = float(epochs[:, channel].mean())
        if share >= UNUSUAL_SHARE:
            verdict = NOT_TRUSTED if share > MOST_BAD else UNUSUAL
            sentence = f"{name} is {kind} in {percent(share)} of the epochs."
            found.append(Condition(name, kind, share, verdict, sentence))
    return found


def _of_clipping(
    name: str, row: NDArray[np.float32], sfreq: float, n_epochs: int
) -> list[Condition]:
    """Look for epochs, fewer samples of which are cut off than make it saturated."""
    finite = row[np.isfinite(row)]
    low, high = finite.min(), finite.max()
    near = _EXTREME * (high - low)
    is_extreme = (row <= low + near) | (row >= high - near)
    edges = np.flatnonzero(np.diff(is_extreme, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    epochs = starts[ends - starts >= _RUN] // (EPOCH_S * sfreq)
    share = len(np.unique(epochs[epochs < n_epochs])) / n_epochs
    if share < UNUSUAL_SHARE:
        return []
    sentence = f"{name} is clipped at its extremes in {percent(share)} of the epochs."
    return [Condition(name, "clipped", share, UNUSUAL, sentence)]


def _densities(
    row: NDArray[np.float32], sfreq: float, usable: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return frequencies, (F,), and the power of each bin in some of the epochs, (n, F)."""
    some = usable[np.linspace(0, len(usable) - 1, min(len(usable), _MOST_EPOCHS)).astype(int)]
    length = int(EPOCH_S * sfreq)
    starts = np.minimum(np.rint(some * EPOCH_S * sfreq).astype(int), len(row) - length)
    epochs = torch.from_numpy(row[starts[:, None] + np.arange(length)])
    size = min(round(SEGMENT_S * sfreq), length)
    psd = reference.welch_psd(reference.center(epochs), size, "hann").double().numpy()
    return frequencies_hz(size, sfreq), psd * bin_weights(size)


def _of_spectrum(
    name: str, hz: NDArray[np.float64], power: NDArray[np.float64], n_usable: int
) -> list[Condition]:
    eeg = _sum(hz, power, *EEG_HZ)  # (n,)
    found = []
    amplitude = float(np.sqrt(np.median(eeg)))
    verdict = _outside(amplitude, USUAL_UV, POSSIBLE_UV)
    if verdict:
        low, high = USUAL_UV
        sentence = (
            f"{name} has an amplitude of {amplitude:.3g} µV, expected {low:g} to {high:g} µV of "
            "sleep EEG: is its unit right?"
        )
        found.append(Condition(name, "amplitude", 1.0, verdict, sentence))
    density = {
        band: _sum(hz, power, *BANDS_HZ[band]) / np.diff(BANDS_HZ[band])
        for band in ("delta", "beta")
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_db = float(np.nanmedian(10 * np.log10(density["beta"] / density["delta"])))
    verdict = _outside(slope_db, (-np.inf, USUAL_SLOPE_DB), (-np.inf, POSSIBLE_SLOPE_DB))
    if verdict:
        sentence = (
            f"{name} is noise: its density in beta is {slope_db:.0f} dB beside that in delta, "
            f"expected below {USUAL_SLOPE_DB:.0f} dB of EEG."
        )
        found.append(Condition(name, "noise", 1.0, verdict, sentence))
    for line_hz in _LINES_HZ:
        if line_hz + _LINE_WIDTH_HZ > hz[-1]:
            continue  # what there was of it is aliased or was removed
        line = _sum(hz, power, line_hz - _LINE_WIDTH_HZ, line_hz + _LINE_WIDTH_HZ)
        share = float(np.mean(line > eeg))
        if share > MOST_BAD:
            sentence = f"{name} has more power at {line_hz:g} Hz than in all of its EEG."
            found.append(Condition(name, "line", share, UNUSUAL, sentence))
    return found


def _sum(
    hz: NDArray[np.float64], power: NDArray[np.float64], low_hz: float, high_hz: float
) -> NDArray[np.float64]:
    return power[:, (low_hz <= hz) & (hz < high_hz)].sum(axis=1)


def _outside(value: float, usual: tuple[float, float], possible: tuple[float, float]) -> str | None:
    if not possible[0] <= value <= possible[1]:
        return NOT_TRUSTED
    return None if usual[0] <= value <= usual[1] else UNUSUAL
