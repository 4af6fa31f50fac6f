"""What is known of one night once it is read."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import RecordingError

_ROUNDING_S = 1e-6  # less than a sample at any rate that is read: it touches no epoch


def whole_epochs(duration_s: float) -> int:
    """Return the number E of 30 s epochs that a duration in seconds holds whole."""
    # a quotient of floats may fall just short of the whole number that it stands for
    return int(duration_s / EPOCH_S + 1e-6)


@dataclass(frozen=True, eq=False)
class Recording:
    """One night: a signal, its stages in place in time, and where it came from.

    Nothing in it says who slept: names, birth dates and patient ids stay in the file.

    Attributes
    ----------
    signal : ndarray, (C, T), float32
        In µV.
    channels : tuple of str
        C names.
    sfreq : float
        Sampling rate in Hz.
    stages : ndarray, (E,), int8
        W, N1, N2, N3, REM = 0…4 and -1 where unscored, for each of the E whole 30 s epochs of the
        signal, counted from its first sample.
    start : datetime or None
        When the first sample was taken, without a time zone, where the file says so.
    source : str
        The file that it was read from.

    Raises
    ------
    RecordingError
        If the parts do not fit together.
    """

    signal: NDArray[np.float32]
    channels: tuple[str, ...]
    sfreq: float
    stages: NDArray[np.int8]
    start: datetime | None
    source: str

    def __post_init__(self) -> None:
        if self.signal.ndim != 2 or self.signal.dtype != np.float32:
            raise RecordingError(
                f"{self.source}: signal has shape {self.signal.shape} and type "
                f"{self.signal.dtype}, expected (C, T) and float32"
            )
        if len(self.channels) != len(self.signal):
            raise RecordingError(
                f"{self.source}: channels has {len(self.channels)} names, expected one for each "
                f"of the signal's {len(self.signal)} rows"
            )
        if not 0 < self.sfreq < np.inf:
            raise RecordingError(f"{self.source}: sfreq is {self.sfreq}, expected a rate in Hz")
        expected = whole_epochs(self.signal.shape[1] / self.sfreq)
        if self.stages.shape != (expected,) or self.stages.dtype != np.int8:
            raise RecordingError(
                f"{self.source}: stages has shape {self.stages.shape} and type "
                f"{self.stages.dtype}, expected ({expected},), the signal's whole 30 s epochs, "
                "and int8"
            )
        if np.any((self.stages < UNSCORED) | (self.stages >= len(STAGES))):
            raise RecordingError(
                f"{self.source}: stages reach from {self.stages.min()} to {self.stages.max()}, "
                f"expected {UNSCORED} to {len(STAGES) - 1}"
            )


@dataclass(frozen=True, eq=False)
class PausedRecording(Recording):
    """A night that was recorded with pauses.

    Attributes
    ----------
    in_gap : ndarray of bool, (E,)
        The epochs that have a gap in them; their stage is unscored, and their signal is 0 in it.
    """

    in_gap: NDArray[np.bool_]


def epochs_in_gaps(
    gaps_s: Iterable[tuple[float, float]], n_epochs: int, cut_s: float = 0.0
) -> NDArray[np.bool_]:
    """Return the epochs, (E,), that have a gap in them.

    Parameters
    ----------
    gaps_s : iterable of (float, float)
        Where they begin and end, in seconds.
    n_epochs : int
        E.
    cut_s : float
        When the first epoch begins.
    """
    in_gap = np.zeros(n_epochs, bool)
    for begin_s, end_s in gaps_s:
        first = np.floor((begin_s - cut_s + _ROUNDING_S) / EPOCH_S)
        end = np.ceil((end_s - cut_s - _ROUNDING_S) / EPOCH_S)
        in_gap[max(0, int(first)) : max(0, int(end))] = True
    return in_gap
