"""A night as it was read becomes one as a network sees it; training and staging both do this."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.recordings.quality import LEAST_FLAGGED, examine, flags_of, percent, refuse_bad
from psdnorm.recordings.recipe import Recipe
from psdnorm.recordings.recording import EPOCH_S, UNSCORED, Recording
from psdnorm.recordings.resampling import lowpass_resample


class Prepared(NamedTuple):
    """A night as a network sees it.

    Attributes
    ----------
    signals : ndarray, (E, C, T), float32
    stages : ndarray, (E,), int8
        -1 where unscored.
    flags : tuple of str
        What is wrong with the signal, in a few words each.
    first_epoch : int
        Which epoch of the recording the first one is: 0 unless wake was cut off.
    """

    signals: NDArray[np.float32]
    stages: NDArray[np.int8]
    flags: tuple[str, ...]
    first_epoch: int


def preprocess(recording: Recording, recipe: Recipe, cohort: str = "") -> Prepared:
    """Filter, resample, cut into epochs, scale, trim and clip a night.

    Parameters
    ----------
    recording : Recording
    recipe : Recipe
    cohort : str
        Some recipes cut off wake in some cohorts.

    Returns
    -------
    Prepared

    Raises
    ------
    RecordingError
        If the rate is too low for the filter, the number of channels is not the recipe's, or a
        channel is not finite, flat or saturated in more than half of the epochs.
    """
    if len(recording.signal) != recipe.n_channels:
        raise RecordingError(
            f"{recording.source}: {len(recording.signal)} channels were read, the recipe "
            f"{recipe.name!r} expects {recipe.n_channels}"
        )
    n_epochs = len(recording.stages)
    if n_epochs == 0:
        raise RecordingError(f"{recording.source}: no whole epoch of {EPOCH_S} s was read")
    kept = _kept(recording.stages, recipe) if recipe.trims(cohort) else slice(0, n_epochs)
    quality = examine(recording)
    refuse_bad(quality.within(kept), recording.channels, recording.source)
    # the rest after the last whole epoch too, as the filter sees it
    finite = np.isfinite(recording.signal)
    signal = recording.signal if finite.all() else np.where(finite, recording.signal, np.float32(0))
    layout = recipe.layout()
    signal = lowpass_resample(
        signal, recording.sfreq, recipe, n_epochs * layout.n_times, recording.source
    )
    epochs = signal.reshape(len(signal), n_epochs, layout.n_times)  # (C, E, T)
    # what was not measured says nothing about how large the signal is
    _scale(epochs, recipe.scaling, (quality.not_finite | quality.flat).T)
    epochs = np.ascontiguousarray(epochs[:, kept].swapaxes(0, 1))  # (E, C, T)
    stages = np.where(quality.not_finite.any(axis=1), np.int8(UNSCORED), recording.stages)[kept]
    flags = flags_of(quality.within(kept), recording.channels)
    if recipe.clip is not None:
        flags += _clip(epochs, recipe.clip, recording.channels)
    return Prepared(epochs, stages, tuple(flags), kept.start)


def _kept(stages: NDArray[np.int8], recipe: Recipe) -> slice:
    """Return the epochs from some wake before sleep to some after it; all where there is none."""
    asleep = np.flatnonzero(stages > 0)
    if not len(asleep):
        return slice(0, len(stages))
    margin = int(recipe.trim_margin_s // EPOCH_S)
    return slice(max(0, int(asleep[0]) - margin), min(len(stages), int(asleep[-1]) + margin + 1))


def _scale(epochs: NDArray[np.float32], scaling: str, unusable: NDArray[np.bool_]) -> None:
    """Scale epochs, (C, E, T), in place; those that are ``unusable``, (C, E), decide nothing."""
    if scaling == "epoch":
        for channel in epochs:  # one at a time, as copies of a night are large
            channel -= channel.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            spread = channel.std(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            channel /= np.where(spread > 0, spread, 1)
        epochs[unusable] = 0  # else rounding would be blown up to the size of a signal
    elif scaling == "recording":
        for channel, out in zip(epochs, unusable, strict=True):
            low, middle, high = np.percentile(channel[~out], (25, 50, 75))
            channel -= np.float32(middle)
            channel /= np.float32(high - low if high > low else 1)


def _clip(epochs: NDArray[np.float32], clip: float, channels: tuple[str, ...]) -> list[str]:
    """Clip epochs, (E, C, T), in place; return flags for channels that lost much by it."""
    flags = []
    for index, name in enumerate(channels):
        share = float(np.mean(np.abs(epochs[:, index]) > clip))
        if share >= LEAST_FLAGGED:
            flags.append(f"{name} clipped {percent(share)}")
    np.clip(epochs, -clip, clip, out=epochs)
    return flags
