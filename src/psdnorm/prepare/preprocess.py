"""A night as it was read becomes one as a network sees it; training and staging both do this."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.io.recording import EPOCH_S, UNSCORED, Recording
from psdnorm.prepare.quality import LEAST_FLAGGED, MOST_BAD, examine, flags_of, percent, refuse_bad
from psdnorm.prepare.recipe import Recipe
from psdnorm.prepare.resampling import lowpass_resample

# what is divided by less is not EEG, but the rounding of a value that does not change
LEAST_IQR_UV = 0.1


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

    @property
    def kept(self) -> slice:
        """Which epochs of the recording these are."""
        return slice(self.first_epoch, self.first_epoch + len(self.stages))


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
        If the rate is too low for the filter, the number of channels is not the recipe's, a
        channel is not finite, flat or saturated in more than half of the epochs, the recipe would
        clip more than half of its samples, or divide by an interquartile range that is none.
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
    _scale(epochs, recording, recipe, (quality.not_finite | quality.flat).T)
    epochs = np.ascontiguousarray(epochs[:, kept].swapaxes(0, 1))  # (E, C, T)
    stages = np.where(quality.not_finite.any(axis=1), np.int8(UNSCORED), recording.stages)[kept]
    flags = flags_of(quality.within(kept), recording.channels)
    if recipe.clip is not None:
        flags += _clip(epochs, recording, recipe.name, recipe.clip)
    return Prepared(epochs, stages, tuple(flags), kept.start)


def _kept(stages: NDArray[np.int8], recipe: Recipe) -> slice:
    """Return the epochs from some wake before sleep to some after it; all where there is none."""
    asleep = np.flatnonzero(stages > 0)
    if not len(asleep):
        return slice(0, len(stages))
    margin = int(recipe.trim_margin_s // EPOCH_S)
    return slice(max(0, int(asleep[0]) - margin), min(len(stages), int(asleep[-1]) + margin + 1))


def _scale(
    epochs: NDArray[np.float32], recording: Recording, recipe: Recipe, unusable: NDArray[np.bool_]
) -> None:
    """Scale epochs, (C, E, T), in place; those that are ``unusable``, (C, E), decide nothing."""
    if recipe.scaling == "epoch":
        for channel in epochs:  # one at a time, as copies of a night are large
            channel -= channel.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            spread = channel.std(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
            channel /= np.where(spread > 0, spread, 1)
        epochs[unusable] = 0  # else rounding would be blown up to the size of a signal
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
    """Clip epochs, (E, C, T), in place; flag channels that lose much by it, refuse half of one."""
    flags = []
    for index, name in enumerate(recording.channels):
        share = float(np.mean(np.abs(epochs[:, index]) > clip))
        if share > MOST_BAD:
            raise RecordingError(
                f"{recording.source}: {percent(share)} of the samples of {name} are beyond "
                f"±{clip:g}, where the recipe {recipe_name!r} clips, expected at most "
                f"{percent(MOST_BAD)}: is its unit right, has it an offset?"
            )
        if share >= LEAST_FLAGGED:
            flags.append(f"{name} clipped {percent(share)}")
    np.clip(epochs, -clip, clip, out=epochs)
    return flags
