"""The channels of a file that were asked for, whatever the file's format."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.io.edf_header import Channel

# "" is no unit at all: EDF's own example and most of its writers mean µV
_MICROVOLTS = {"v": 1e6, "mv": 1e3, "uv": 1.0, "nv": 1e-3, "": 1.0}
_SPELLINGS = {
    "µ": "u",
    "μ": "u",
    "micro": "u",
    "milli": "m",
    "nano": "n",
    "volts": "v",
    "volt": "v",
}


@dataclass(frozen=True, eq=False)
class Channels:
    """Channels as they were read.

    Attributes
    ----------
    signal : ndarray, (C, T), float32
        In µV; 0 in gaps.
    names : tuple of str
        What they were asked for as.
    expressions : tuple of str
        What they were made from: of the candidates, the one that the file allowed.
    sfreq : float
        Sampling rate in Hz.
    start : datetime or None
        When the first sample was taken.
    gaps_s : tuple of (float, float)
        Where the recording paused, in seconds from the first sample.
    source : str
        The file.
    """

    signal: NDArray[np.float32]
    names: tuple[str, ...]
    expressions: tuple[str, ...]
    sfreq: float
    start: datetime | None
    gaps_s: tuple[tuple[float, float], ...]
    source: str


def microvolts(channel: Channel, path: str | Path) -> float:
    """Return what a channel's unit is in µV; refuse a channel that is not measured in volts."""
    unit = "".join(channel.unit.split()).casefold()
    for spelling, short in _SPELLINGS.items():
        unit = unit.replace(spelling, short)
    if unit not in _MICROVOLTS:
        raise RecordingError(
            f"{path} has {channel.label!r} in {channel.unit!r}, expected V, mV, uV or nV"
        )
    if not unit and not max(map(abs, channel.physical_range)) >= 1:
        low, high = channel.physical_range
        raise RecordingError(
            f"{path} gives no unit for {channel.label!r}, and its range, {low:g} to {high:g}, is "
            "none of µV"
        )
    return _MICROVOLTS[unit]


def one_rate(rates: Mapping[str, float], path: str | Path) -> float:
    """Return the rate in Hz that all channels have; refuse several."""
    lowest, highest = min(rates.values()), max(rates.values())
    if not 0 < lowest <= highest <= 1e5:
        raise RecordingError(
            f"{path} has channels of {lowest:g} to {highest:g} Hz, expected up to 100 kHz"
        )
    # a rate is a quotient of numbers in the header, exact to rounding
    if not math.isclose(lowest, highest, rel_tol=1e-9):
        found = ", ".join(f"{label} at {rate:g} Hz" for label, rate in rates.items())
        raise RecordingError(f"{path} has {found}, expected one rate for the channels wanted")
    return highest
