"""Signal quality: flat, clipped, loose or paused channels; examined once per night."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import RecordingError
from psdnorm.io import Recording, Source, Weights

# the standard deviation of the quietest sleep EEG is several µV, of an open or shorted input less
FLAT_UV = 0.5
# no EEG has a standard deviation this large, but a drifting amplifier may
LARGE_UV = 1000.0
# an unclipped signal is at its extremes for a few samples of a night, not for this share of 30 s
SATURATED_SHARE = 0.05
EXTREME = 1e-4  # of the signal's range: the tolerance for rounding at an extreme
# a sine reaches its extreme for one or two samples per period, a saturated amplifier stays there
RUN = 3
LEAST_FLAGGED = 0.01  # of the epochs, or of the samples that a recipe clips
MOST_BAD = 0.5  # likewise
_LARGE = "above 1 mV"


class Quality(NamedTuple):
    """Quality measures of each epoch and channel of a recording."""

    deviation_uv: NDArray[np.float64]  # (E, C), standard deviation; NaN if a sample is not finite
    saturated: NDArray[np.bool_]  # (E, C), whether 5 % of the samples stay at the night's extremes

    @property
    def not_finite(self) -> NDArray[np.bool_]:
        return np.isnan(self.deviation_uv)

    @property
    def flat(self) -> NDArray[np.bool_]:
        return self.deviation_uv < FLAT_UV

    @property
    def large(self) -> NDArray[np.bool_]:
        return self.deviation_uv > LARGE_UV

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Epochs that contain a signal, (E, C)."""
        return self.deviation_uv >= FLAT_UV

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Unusable epochs, (E, C); epochs that are only large are not among them: scaling helps."""
        return ~self.measured | self.saturated

    def at(self, where: Any) -> "Quality":
        """Index by epoch, or by epoch and channel."""
        return Quality(self.deviation_uv[where], self.saturated[where])


def examine(recording: Recording) -> Quality:
    """Examine every epoch and channel of a raw recording."""
    n_epochs = len(recording.stages)
    edges = _edges(recording.sfreq, n_epochs)
    deviations, saturated = [], np.zeros((n_epochs, len(recording.signal)), bool)
    for channel, row in enumerate(recording.signal):
        deviation_uv = _deviations_uv(row, recording.sfreq, n_epochs)
        deviations.append(deviation_uv)
        usable = row if np.isfinite(row).all() else row[np.isfinite(row)]
        if not len(usable):
            continue
        low, high = usable.min(), usable.max()
        near = EXTREME * (high - low)
        for epoch in np.flatnonzero(deviation_uv >= FLAT_UV):
            samples = row[edges[epoch] : edges[epoch + 1]]
            n_stuck = _n_in_runs(samples <= low + near) + _n_in_runs(samples >= high - near)
            saturated[epoch, channel] = n_stuck >= SATURATED_SHARE * len(samples)
    return Quality(np.stack(deviations, axis=1), saturated)


def _deviations_uv(
    samples: NDArray[np.float32], sfreq: float, n_epochs: int
) -> NDArray[np.float64]:
    """Return the standard deviation of each epoch of a channel, (E,); NaN if not finite."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        epochs = (samples[first:end] for first, end in pairwise(_edges(sfreq, n_epochs)))
        return np.array([epoch.std(dtype=np.float64) for epoch in epochs])


def _edges(sfreq: float, n_epochs: int) -> NDArray[np.intp]:
    """Return the sample at which each epoch begins and the last one ends, (E + 1,)."""
    return np.rint(np.arange(n_epochs + 1) * EPOCH_S * sfreq).astype(int)


def _n_in_runs(is_extreme: NDArray[np.bool_]) -> int:
    """Count the samples, of (T,), in runs of three or more."""
    if np.count_nonzero(is_extreme) < RUN:
        return 0
    edges = np.flatnonzero(np.diff(is_extreme, prepend=False, append=False))
    lengths = edges[1::2] - edges[::2]
    return int(lengths[lengths >= RUN].sum())


def flags_of(quality: Quality, channels: tuple[str, ...]) -> list[str]:
    """Return the problems found in at least 1 % of the epochs: ``C3-A2 flat 12 %``."""
    flags = []
    for channel, name in enumerate(channels):
        for kind, epochs in _named(quality, channel).items():
            share = epochs.mean()
            # epochs with non-finite samples become unscored, so they are always flagged
            if share >= LEAST_FLAGGED or (share and kind == "not finite"):
                doubt = " (is its unit right?)" if kind == _LARGE and share > MOST_BAD else ""
                flags.append(f"{name} {kind}{doubt} {share_in_words(share)}")
    return flags


def check_usable(quality: Quality, channels: tuple[str, ...], source: str) -> None:
    """Raise RecordingError if a channel is bad in more than half of the epochs."""
    for channel, name in enumerate(channels):
        share = quality.bad[:, channel].mean()
        if share <= MOST_BAD:
            continue
        kinds = {kind: epochs.mean() for kind, epochs in _named(quality, channel).items()}
        del kinds[_LARGE]
        found = ", ".join(
            f"{kind} in {share_in_words(part)}" for kind, part in kinds.items() if part
        )
        unit = f", below {FLAT_UV:g} µV: is its unit right?" if kinds["flat"] > MOST_BAD else ""
        raise RecordingError(
            f"{source}: {name} is {found} of the epochs, expected at most "
            f"{share_in_words(MOST_BAD)} of them to be bad{unit}"
        )


def share_in_words(share: float) -> str:
    """Format a share: ``12 %``, ``0.3 %``."""
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1g} %"


def _named(quality: Quality, channel: int) -> dict[str, NDArray[np.bool_]]:
    kinds = {
        "not finite": quality.not_finite,
        "flat": quality.flat,
        "saturated": quality.saturated,
        _LARGE: quality.large,
    }
    return {kind: part[:, channel] for kind, part in kinds.items()}


def electrodes_of(weights: Weights, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of a derivation's electrodes, without its references."""
    if len(weights) == 1:  # the file stores the derivation itself
        return ()
    # not the references: a common recording reference is flat by design
    return tuple(labels[index].strip() for index, weight in weights.items() if weight > 0)


def flat_epochs(
    electrode: NDArray[np.float32], sfreq: float, measured: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return a mask of epochs, (E,), in which an electrode is flat but its derivation is not."""
    return measured & (_deviations_uv(electrode, sfreq, len(measured)) < FLAT_UV)


def electrode_flags(
    source: Source,
    electrodes: Mapping[str, Sequence[str]],
    recording: Recording,
    quality: Quality,
    kept: slice,
) -> list[str]:
    """Flag derivations in which an electrode carries no signal: ``C3-A2 without C3 12 %``."""
    n_samples, without_gap = recording.signal.shape[1], ~recording.in_gap[kept]
    flags = []
    for channel, name in enumerate(recording.channels):
        for label in electrodes[name]:
            # the beginning of a recording may have been cut off
            electrode = source.read([label]).signal[0, -n_samples:]
            flat = flat_epochs(electrode, recording.sfreq, quality.measured[:, channel])
            counted = flat[kept][without_gap]
            share = float(counted.mean()) if counted.size else 0.0
            if share >= LEAST_FLAGGED:
                # flags are separated by semicolons in an index
                words = "".join(c if c.isprintable() and c != ";" else "?" for c in label)
                flags.append(f"{name} without {words} {share_in_words(share)}")
    return flags
