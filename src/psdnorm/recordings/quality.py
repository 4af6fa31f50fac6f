"""What is wrong with a signal: not finite, flat, saturated, epoch by epoch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.recordings.recording import EPOCH_S, Recording

# the quietest sleep EEG deviates by several µV, an open or shorted input by less than this
FLAT_UV = 0.5
# an unclipped signal is at its extremes for a few samples of a night, not for this share of 30 s
SATURATED_SHARE = 0.05
_EXTREME = 1e-4  # of the signal's range: as near as rounding leaves a sample to an extreme
LEAST_FLAGGED = 0.01  # of the epochs
MOST_BAD = 0.5  # of the epochs


class Quality(NamedTuple):
    """Which epochs of which channel are bad, and how; each (E, C)."""

    not_finite: NDArray[np.bool_]
    flat: NDArray[np.bool_]
    saturated: NDArray[np.bool_]

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Epochs, (E, C), that are any of it."""
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
        0.5 µV. Saturated: 5 % of its samples or more are at the channel's extremes of the night.
    """
    signal = recording.signal
    shape = (len(recording.stages), len(signal))
    quality = Quality(*(np.zeros(shape, bool) for _ in range(3)))
    edges = np.rint(np.arange(shape[0] + 1) * EPOCH_S * recording.sfreq).astype(int)  # (E + 1,)
    for channel, row in enumerate(signal):
        finite = np.isfinite(row).all()
        usable = row if finite else row[np.isfinite(row)]
        if not len(usable):
            quality.not_finite[:, channel] = True
            continue
        low, high = usable.min(), usable.max()
        near = _EXTREME * (high - low)
        for epoch in range(shape[0]):
            samples = row[edges[epoch] : edges[epoch + 1]]
            if not finite and not np.isfinite(samples).all():
                quality.not_finite[epoch, channel] = True
                continue
            if samples.std(dtype=np.float64) < FLAT_UV:
                quality.flat[epoch, channel] = True
                continue
            n_extreme = np.count_nonzero((samples <= low + near) | (samples >= high - near))
            quality.saturated[epoch, channel] = n_extreme >= SATURATED_SHARE * len(samples)
    return quality


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
    """
    flags = []
    for channel, name in enumerate(channels):
        for kind, epochs in _named(quality, channel).items():
            share = epochs.mean()
            if share >= LEAST_FLAGGED or (share and kind == "not finite"):
                flags.append(f"{name} {kind} {percent(share)}")
    return flags


def refuse_bad(quality: Quality, channels: tuple[str, ...], source: str) -> None:
    """Refuse a night of which a channel is bad for more than half."""
    for channel, name in enumerate(channels):
        share = quality.bad[:, channel].mean()
        if share <= MOST_BAD:
            continue
        kinds = {kind: epochs.mean() for kind, epochs in _named(quality, channel).items()}
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
    return {name.replace("_", " "): part[:, channel] for name, part in quality._asdict().items()}
