"""Whether a channel is usable: flat, clipped, loose or paused."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import RecordingError
from psdnorm.io import PausedRecording, Recording, Weights, read_channels

# the quietest sleep EEG deviates by several µV, an open or shorted input by less than this
FLAT_UV = 0.5
# no EEG deviates by this much, but an amplifier that drifts may
LARGE_UV = 1000.0
# an unclipped signal is at its extremes for a few samples of a night, not for this share of 30 s
SATURATED_SHARE = 0.05
_EXTREME = 1e-4  # of the signal's range: as near as rounding leaves a sample to an extreme
# the samples of a sine meet its extreme once or twice in every period, an amplifier stays there
_RUN = 3
LEAST_FLAGGED = 0.01  # of the epochs, or of the samples that a recipe clips
MOST_BAD = 0.5  # the same
_LARGE = "above 1 mV"


class Quality(NamedTuple):
    """Which epochs of which channel are bad, and how; each (E, C)."""

    not_finite: NDArray[np.bool_]
    flat: NDArray[np.bool_]
    saturated: NDArray[np.bool_]
    large: NDArray[np.bool_]

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Epochs, (E, C), of which nothing can be learned; what is only large can be scaled."""
        return self.not_finite | self.flat | self.saturated

    def within(self, epochs: slice) -> "Quality":
        """Return the quality of some of the epochs."""
        return Quality(*(part[epochs] for part in self))


def examine(recording: Recording) -> Quality:
    """Look at every epoch and channel of a recording as it was read.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Quality
        Not finite: an epoch with at least one such sample. Flat: its standard deviation is below
        0.5 µV. Saturated: 5 % of its samples or more are at the channel's extremes of the night,
        three or more in a row. Large: its standard deviation is above 1 mV.
    """
    signal = recording.signal
    shape = (len(recording.stages), len(signal))
    quality = Quality(*(np.zeros(shape, bool) for _ in range(len(Quality._fields))))
    edges = _edges(recording.sfreq, shape[0])
    for channel, row in enumerate(signal):
        deviation_uv = deviations_uv(row, recording.sfreq, shape[0])
        quality.not_finite[:, channel] = np.isnan(deviation_uv)
        quality.flat[:, channel] = deviation_uv < FLAT_UV
        quality.large[:, channel] = deviation_uv > LARGE_UV
        usable = row if np.isfinite(row).all() else row[np.isfinite(row)]
        if not len(usable):
            continue
        low, high = usable.min(), usable.max()
        near = _EXTREME * (high - low)
        for epoch in np.flatnonzero(deviation_uv >= FLAT_UV):
            samples = row[edges[epoch] : edges[epoch + 1]]
            n_stuck = _n_in_runs(samples <= low + near) + _n_in_runs(samples >= high - near)
            quality.saturated[epoch, channel] = n_stuck >= SATURATED_SHARE * len(samples)
    return quality


def deviations_uv(samples: NDArray[np.float32], sfreq: float, n_epochs: int) -> NDArray[np.float64]:
    """Return the standard deviation of each epoch, (E,); NaN where a sample is not finite.

    Parameters
    ----------
    samples : ndarray, (T,)
        Of one channel, in µV.
    sfreq : float
    n_epochs : int
    """
    edges = _edges(sfreq, n_epochs)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        epochs = (samples[first:end] for first, end in pairwise(edges))
        return np.array([epoch.std(dtype=np.float64) for epoch in epochs])


def _edges(sfreq: float, n_epochs: int) -> NDArray[np.intp]:
    """Return where epochs begin, and where the last one ends, (E + 1,)."""
    return np.rint(np.arange(n_epochs + 1) * EPOCH_S * sfreq).astype(int)


def _n_in_runs(is_extreme: NDArray[np.bool_]) -> int:
    """Count the samples, of (T,), that are among three or more in a row."""
    if np.count_nonzero(is_extreme) < _RUN:
        return 0
    edges = np.flatnonzero(np.diff(is_extreme, prepend=False, append=False))
    lengths = edges[1::2] - edges[::2]
    return int(lengths[lengths >= _RUN].sum())


def flags_of(quality: Quality, channels: tuple[str, ...]) -> list[str]:
    """Return what deserves a word: ``C3-A2 flat 12 %``.

    Parameters
    ----------
    quality : Quality
    channels : tuple of str
        C names.

    Returns
    -------
    list of str
        From 1 % of the epochs on; samples that are not finite always, as their epochs are unscored.
        A channel that is too large for EEG in more than half of them has its unit doubted.
    """
    flags = []
    for channel, name in enumerate(channels):
        for kind, epochs in _named(quality, channel).items():
            share = epochs.mean()
            if share >= LEAST_FLAGGED or (share and kind == "not finite"):
                doubt = " (is its unit right?)" if kind == _LARGE and share > MOST_BAD else ""
                flags.append(f"{name} {kind}{doubt} {percent(share)}")
    return flags


def refuse_bad(quality: Quality, channels: tuple[str, ...], source: str) -> None:
    """Refuse a night of which a channel is bad for more than half."""
    for channel, name in enumerate(channels):
        share = quality.bad[:, channel].mean()
        if share <= MOST_BAD:
            continue
        kinds = {kind: epochs.mean() for kind, epochs in _named(quality, channel).items()}
        del kinds[_LARGE]
        found = ", ".join(f"{kind} in {percent(part)}" for kind, part in kinds.items() if part)
        unit = f", below {FLAT_UV:g} µV: is its unit right?" if kinds["flat"] > MOST_BAD else ""
        raise RecordingError(
            f"{source}: {name} is {found} of the epochs, expected at most {percent(MOST_BAD)} of "
            f"them to be bad{unit}"
        )


def percent(share: float) -> str:
    """Return a share in words: ``12 %``, ``0.3 %``."""
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1g} %"


def _named(quality: Quality, channel: int) -> dict[str, NDArray[np.bool_]]:
    names = ("not finite", "flat", "saturated", _LARGE)
    return {name: part[:, channel] for name, part in zip(names, quality, strict=True)}


def electrodes_of(weights: Weights, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of what a derivation holds against a reference.

    Parameters
    ----------
    weights : dict of int to float
        By place in ``labels``, from :func:`psdnorm.io.channels.resolve`.
    labels : sequence of str
        The file's channels.

    Returns
    -------
    tuple of str
        None where the file holds the channel itself. References are not among them: files may hold
        the electrode that all others were recorded against, which is flat by right.
    """
    if len(weights) == 1:
        return ()
    return tuple(labels[index].strip() for index, weight in weights.items() if weight > 0)


def flat_epochs(
    electrode: NDArray[np.float32], sfreq: float, speaks: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return the epochs, (E,), in which an electrode is flat and the derivation from it is not.

    Parameters
    ----------
    electrode : ndarray, (T,)
        As it was recorded, in µV.
    sfreq : float
    speaks : ndarray of bool, (E,)
        Whether an epoch of the derivation holds a signal.
    """
    return speaks & (deviations_uv(electrode, sfreq, len(speaks)) < FLAT_UV)


def electrode_flags(
    recording: Recording, electrodes: Mapping[str, Sequence[str]], kept: slice
) -> list[str]:
    """Return which derivations are without one of their electrodes: ``C3-A2 without C3 12 %``.

    Parameters
    ----------
    recording : Recording
        As it was read from its file, in which the electrodes are looked up.
    electrodes : mapping of str to sequence of str
        Labels of the electrodes of each channel, from :func:`electrodes_of`.
    kept : slice
        The epochs that count.

    Returns
    -------
    list of str
        From 1 % of the epochs on that have no gap in them.
    """
    n_epochs, n_samples = len(recording.stages), recording.signal.shape[1]
    measured = np.ones(n_epochs, bool)
    if isinstance(recording, PausedRecording):
        measured = ~recording.in_gap
    flags = []
    for name, derived in zip(recording.channels, recording.signal, strict=True):
        if not electrodes[name]:
            continue
        speaks = deviations_uv(derived, recording.sfreq, n_epochs) >= FLAT_UV
        for label in electrodes[name]:
            # what the recording lacks of the file was cut off its beginning
            electrode = read_channels(recording.source, [label]).signal[0, -n_samples:]
            flat = flat_epochs(electrode, recording.sfreq, speaks)
            counted = flat[kept][measured[kept]]
            share = float(counted.mean()) if counted.size else 0.0
            if share >= LEAST_FLAGGED:
                flags.append(f"{name} without {_in_words(label)} {percent(share)}")
    return flags


def _in_words(label: str) -> str:
    """Return a label as an index can hold it: flags have semicolons between them."""
    return "".join(sign if sign.isprintable() and sign != ";" else "?" for sign in label)
