"""Filter, resample, scale and clip a recording."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, UNSCORED
from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.io import Recording
from psdnorm.prepare.quality import (
    LEAST_FLAGGED,
    MOST_BAD,
    Quality,
    check_usable,
    examine,
    flags_of,
    share_in_words,
)
from psdnorm.prepare.recipe import NARROWEST_HZ, TRANSITION, Recipe

_HAMMING = 3.3  # length of a Hamming-windowed FIR filter times its transition bandwidth
_LARGEST = 10_000  # denominator of a ratio of rates; the filter has some 40 taps per unit of it
_MOST_DRIFT_S = 1e-6  # at the end of a recording, from rounding its rate to a ratio
_STEP_S = 1e-5  # rounding of times if there is no such ratio
_AT_ONCE = 2**18  # samples in the windows held in memory at a time


def lowpass_resample(
    signal: NDArray[np.float32], sfreq: float, recipe: Recipe, n_out: int, source: str = "signal"
) -> NDArray[np.float32]:
    """Low-pass filter and resample (C, T) in one pass, without delay; return (C, n_out)."""
    # a linear-phase FIR filter with a Hamming window, like MNE's: flat up to lowpass_hz, half the
    # amplitude at an eighth above it, below -50 dB from a quarter above it
    slope_hz = max(TRANSITION * recipe.lowpass_hz, NARROWEST_HZ)
    transition_hz = min(slope_hz, sfreq / 2 - recipe.lowpass_hz)
    if transition_hz < NARROWEST_HZ:
        raise RecordingError(
            f"{source} has {sfreq:g} Hz, expected at least "
            f"{2 * (recipe.lowpass_hz + NARROWEST_HZ):g} Hz for a signal up to "
            f"{recipe.lowpass_hz:g} Hz"
        )
    exact = recipe.sfreq / sfreq
    ratio = Fraction(exact).limit_denominator(_LARGEST)
    is_ratio = abs(float(ratio) / exact - 1) * n_out / recipe.sfreq < _MOST_DRIFT_S
    up = ratio.numerator if is_ratio else math.ceil(1 / (_STEP_S * sfreq))
    taps = _taps(up, sfreq, recipe.lowpass_hz, transition_hz)
    margin = min(math.ceil(len(taps) / 2 / up) + 2, signal.shape[1] - 1)  # samples beyond each end
    # extended by point reflection, so that the ends have no transient
    continued = np.pad(signal, ((0, 0), (margin, margin)), "reflect", reflect_type="odd")
    if is_ratio:
        return _by_ratio(continued, taps, ratio, margin, n_out)
    places = margin + np.arange(n_out) * (sfreq / recipe.sfreq)  # in samples
    return _at_places(continued, taps, up, places)


def _taps(up: int, sfreq: float, lowpass_hz: float, transition_hz: float) -> NDArray[np.float32]:
    """Design the filter at ``up`` times the signal's rate, with an odd number of taps."""
    firwin = _scipy_signal().firwin
    rate = up * sfreq
    n_taps = 2 * math.ceil(_HAMMING / transition_hz * rate / 2) + 1
    taps = firwin(n_taps, lowpass_hz + transition_hz / 2, window="hamming", fs=rate)
    # each output uses every `up`-th tap: each such phase must have unit gain at 0 Hz, or an offset
    # of the signal becomes a tone
    phases = np.pad(taps, (0, -n_taps % up)).reshape(-1, up)
    phases /= phases.sum(axis=0)
    return phases.ravel()[:n_taps].astype(np.float32)


def _by_ratio(
    signal: NDArray[np.float32], taps: NDArray[np.float32], ratio: Fraction, margin: int, n_out: int
) -> NDArray[np.float32]:
    """Filter (C, T) at ``up`` times its rate and keep every ``down``-th sample after the margin."""
    up, down = ratio.as_integer_ratio()
    delay = len(taps) // 2 + margin * up
    lead = -delay % down  # aligns the first output with the first sample
    shifted = np.concatenate([np.zeros(lead, np.float32), taps])
    filtered = _scipy_signal().upfirdn(shifted, signal, up, down)
    first = (delay + lead) // down
    return np.ascontiguousarray(filtered[:, first : first + n_out])


def _at_places(
    signal: NDArray[np.float32], taps: NDArray[np.float32], up: int, places: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Filter (C, T) and evaluate it at fractional positions, rounded to 1 / ``up`` samples."""
    phases = np.pad(taps, (0, -len(taps) % up)).reshape(-1, up)
    table = np.ascontiguousarray(phases[::-1].T)  # (up, K), in the order of the samples
    length = table.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)  # (C, T - K + 1, K)
    result = np.empty((len(signal), len(places)), np.float32)
    step = math.ceil(_AT_ONCE / length)
    for begin in range(0, len(places), step):
        some = slice(begin, begin + step)
        ticks = np.rint(places[some] * up).astype(np.int64) + len(taps) // 2
        last, phase = np.divmod(ticks, up)
        for row, channel in zip(result, windows, strict=True):
            row[some] = np.einsum("tk,tk->t", channel[last - length + 1], table[phase])
    return result


def _scipy_signal() -> Any:
    try:
        import scipy.signal  # needed only to prepare
    except ImportError as error:
        raise MissingExtraError(
            'filtering needs SciPy: pip install "psdnorm[recordings]"'
        ) from error
    return scipy.signal


# a signal that varies less is a constant with rounding noise
LEAST_IQR_UV = 0.1


class Prepared(NamedTuple):
    """A night as a network receives it."""

    signals: NDArray[np.float32]  # (E, C, T)
    stages: NDArray[np.int8]  # (E,), -1 where unscored
    flags: tuple[str, ...]  # problems of the signal
    first_epoch: int  # index in the recording; 0 unless wake was cut off
    quality: Quality  # of all epochs of the recording; those with a gap count as flat

    @property
    def kept(self) -> slice:
        """Slice of the recording's epochs that were kept."""
        return slice(self.first_epoch, self.first_epoch + len(self.stages))


def preprocess(
    recording: Recording, recipe: Recipe, cohort: str = "", quality: Quality | None = None
) -> Prepared:
    """Filter, resample, cut into epochs, scale, trim and clip a night.

    Epochs that contain a gap are 0 and unscored. Trimming does not count them as wake, and cuts
    them off before the first epoch and after the last. RecordingError is raised if the rate is too
    low for the filter, the number of channels differs from the recipe's, a channel is not finite,
    flat or saturated in more than half of the epochs, the recipe would clip more than half of its
    samples, or its interquartile range is too small to divide by.

    Parameters
    ----------
    cohort : str
        Decides whether the recipe cuts off wake.
    quality : Quality, optional
        Of the recording, if it has already been examined.
    """
    in_gap = recording.in_gap
    if not in_gap.any():
        quality = examine(recording) if quality is None else quality
        return _preprocess(recording, recipe, cohort, quality)
    between = between_gaps(recording)
    quality = examine(between) if quality is None else quality.at(~in_gap)
    prepared = _preprocess(between, recipe, cohort, quality)
    measured = np.flatnonzero(~in_gap)[prepared.first_epoch :][: len(prepared.stages)]
    within = in_gap[measured[0] : measured[-1] + 1]
    paused = [f"paused {share_in_words(float(within.mean()))}"] if within.any() else []
    return Prepared(
        in_time(prepared.signals, within),
        in_time(prepared.stages, within, UNSCORED),
        (*prepared.flags, *paused),
        int(measured[0]),
        Quality(in_time(quality.deviation_uv, in_gap), in_time(quality.saturated, in_gap)),
    )


def _preprocess(recording: Recording, recipe: Recipe, cohort: str, quality: Quality) -> Prepared:
    if len(recording.signal) != recipe.n_channels:
        raise RecordingError(
            f"{recording.source}: {len(recording.signal)} channels were read, the recipe "
            f"{recipe.name!r} expects {recipe.n_channels}"
        )
    n_epochs = len(recording.stages)
    if n_epochs == 0:
        raise RecordingError(f"{recording.source}: no whole epoch of {EPOCH_S} s was read")
    kept = _kept(recording.stages, recipe) if recipe.trims(cohort) else slice(0, n_epochs)
    check_usable(quality.at(kept), recording.channels, recording.source)
    # including samples after the last complete epoch, as the filter uses them
    finite = np.isfinite(recording.signal)
    signal = recording.signal if finite.all() else np.where(finite, recording.signal, np.float32(0))
    layout = recipe.layout()
    signal = lowpass_resample(
        signal, recording.sfreq, recipe, n_epochs * layout.n_times, recording.source
    )
    epochs = signal.reshape(len(signal), n_epochs, layout.n_times)  # (C, E, T)
    # epochs without a signal carry no information about its scale
    _scale(epochs, recording, recipe, ~quality.measured.T)
    epochs = np.ascontiguousarray(epochs[:, kept].swapaxes(0, 1))  # (E, C, T)
    stages = np.where(quality.not_finite.any(axis=1), np.int8(UNSCORED), recording.stages)[kept]
    flags = flags_of(quality.at(kept), recording.channels)
    if recipe.clip is not None:
        flags += _clip(epochs, recording, recipe.name, recipe.clip)
    return Prepared(epochs, stages, tuple(flags), kept.start, quality)


def _kept(stages: NDArray[np.int8], recipe: Recipe) -> slice:
    """Return the epochs of sleep and the wake margins around it; all epochs without sleep."""
    asleep = np.flatnonzero(stages > 0)
    if not len(asleep):
        return slice(0, len(stages))
    margin = int(recipe.trim_margin_s // EPOCH_S)
    return slice(max(0, int(asleep[0]) - margin), min(len(stages), int(asleep[-1]) + margin + 1))


def _scale(
    epochs: NDArray[np.float32], recording: Recording, recipe: Recipe, unusable: NDArray[np.bool_]
) -> None:
    """Scale epochs, (C, E, T), in place; ``unusable`` ones, (C, E), are ignored."""
    if recipe.scaling == "epoch":
        for channel in epochs:  # one at a time to save memory
            channel -= channel.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            spread = channel.std(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            channel /= np.where(spread > 0, spread, 1)
        epochs[unusable] = 0  # else rounding errors would be amplified to the size of a signal
    elif recipe.scaling == "recording":
        for name, channel, out in zip(recording.channels, epochs, unusable, strict=True):
            low, middle, high = np.percentile(channel[~out], (25, 50, 75))
            if high - low < LEAST_IQR_UV:
                raise RecordingError(
                    f"{recording.source}: half of the samples of {name} are within "
                    f"{LEAST_IQR_UV:g} µV, expected a signal that varies: the recipe "
                    f"{recipe.name!r} divides by its interquartile range"
                )
            channel -= np.float32(middle)
            channel /= np.float32(high - low)


def _clip(
    epochs: NDArray[np.float32], recording: Recording, recipe_name: str, clip: float
) -> list[str]:
    """Clip epochs, (E, C, T), in place; return flags of channels in which much is clipped."""
    flags = []
    for index, name in enumerate(recording.channels):
        share = float(np.mean(np.abs(epochs[:, index]) > clip))
        if share > MOST_BAD:
            raise RecordingError(
                f"{recording.source}: {share_in_words(share)} of the samples of {name} are beyond "
                f"±{clip:g}, where the recipe {recipe_name!r} clips, expected at most "
                f"{share_in_words(MOST_BAD)}: is its unit right, does it have an offset?"
            )
        if share >= LEAST_FLAGGED:
            flags.append(f"{name} clipped {share_in_words(share)}")
    np.clip(epochs, -clip, clip, out=epochs)
    return flags


def between_gaps(recording: Recording) -> Recording:
    """Return the recording's epochs without a gap, concatenated."""
    in_gap = recording.in_gap
    if not in_gap.any():
        return recording
    kept = np.flatnonzero(~in_gap)
    if not len(kept):
        raise RecordingError(
            f"{recording.source} pauses in each of its {len(in_gap)} epochs of {EPOCH_S} s, "
            "expected at least one without a pause"
        )
    length = EPOCH_S * recording.sfreq
    # epoch boundaries in the result, rounded as they may fall between samples
    edges = np.rint(np.arange(len(kept) + 1) * length).astype(int)
    signal = np.empty((len(recording.signal), int(np.ceil(len(kept) * length))), np.float32)
    for place, epoch in enumerate(kept.tolist()):
        end = signal.shape[1] if place == len(kept) - 1 else edges[place + 1]
        n_samples = end - edges[place]
        first = min(round(epoch * length), recording.signal.shape[1] - n_samples)
        signal[:, edges[place] : end] = recording.signal[:, first : first + n_samples]
    return replace(recording, signal=signal, stages=recording.stages[kept], gaps_s=())


def in_time(epochs: NDArray[Any], in_gap: NDArray[np.bool_], fill: int = 0) -> NDArray[Any]:
    """Put epochs without a gap, (n, ...), back at their places in time, (E, ...)."""
    if not in_gap.any():
        return epochs
    whole = np.full((len(in_gap), *epochs.shape[1:]), fill, epochs.dtype)
    whole[~in_gap] = epochs
    return whole
