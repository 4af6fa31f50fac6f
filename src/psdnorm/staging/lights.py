"""From when to when somebody was in bed: as given, or around sleep."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.recordings import EPOCH_S

GIVEN = "given"
AROUND_SLEEP = "sleep period ± 30 min"
NO_SLEEP = "whole recording, as no epoch is sleep"
_MARGIN_EPOCHS = 30 * 60 // EPOCH_S


class Lights(NamedTuple):
    """Epochs ``first`` to before ``end`` lie between lights off and lights on."""

    first: int
    end: int
    source: str


def find_lights(
    stages: NDArray[np.int8], lights_off: float | None, lights_on: float | None
) -> Lights:
    """Put lights off and on upon the nearest borders of epochs.

    Parameters
    ----------
    stages : ndarray of int8, (E,)
    lights_off, lights_on : float or None
        In seconds from the start of the recording. Where absent: 30 min before the first and after
        the last epoch of sleep that the other one leaves, within the recording; all of it where
        nobody slept.

    Raises
    ------
    ArgumentError
        If one of them lies outside the recording, or no whole epoch between them.
    """
    first = 0 if lights_off is None else _border("lights_off", lights_off, len(stages))
    end = len(stages) if lights_on is None else _border("lights_on", lights_on, len(stages))
    if end <= first and not (lights_off is None and lights_on is None):
        raise ArgumentError(
            f"lights_off is {EPOCH_S * first} s and lights_on {EPOCH_S * end} s to the nearest "
            f"epoch, expected lights_on to be at least {EPOCH_S} s later"
        )
    asleep = first + np.flatnonzero(stages[first:end] > 0)
    around = AROUND_SLEEP if asleep.size else NO_SLEEP
    if asleep.size and lights_off is None:
        first = max(first, int(asleep[0]) - _MARGIN_EPOCHS)
    if asleep.size and lights_on is None:
        end = min(end, int(asleep[-1]) + 1 + _MARGIN_EPOCHS)
    return Lights(first, end, _source(lights_off is not None, lights_on is not None, around))


def _border(name: str, time_s: float, n_epochs: int) -> int:
    """Return the epoch whose beginning is nearest."""
    duration_s = EPOCH_S * n_epochs
    # a recording may go on for part of an epoch after its last whole one
    if not 0 <= time_s < duration_s + EPOCH_S:
        raise ArgumentError(
            f"{name} is {time_s:g} s, expected seconds from the start of the recording, 0 to "
            f"{duration_s}"
        )
    return min(n_epochs, math.floor(time_s / EPOCH_S + 0.5))


def _source(off: bool, on: bool, around: str) -> str:
    if off and on:
        return GIVEN
    if not (off or on):
        return around
    return f"lights {'off' if off else 'on'} {GIVEN}, lights {'on' if off else 'off'} by {around}"
