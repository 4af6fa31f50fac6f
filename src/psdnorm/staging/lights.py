"""From when to when somebody was in bed: as given, or around sleep."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.io import EPOCH_S

GIVEN = "given"
AROUND_SLEEP = "sleep period ± 30 min"
AROUND_MAIN_SLEEP = f"main {AROUND_SLEEP}"
NO_SLEEP = "whole recording, as no epoch is sleep"
_MARGIN_EPOCHS = 30 * 60 // EPOCH_S
# no night in bed is longer: what is goes on by day
_LONGEST_NIGHT_EPOCHS = 14 * 3600 // EPOCH_S


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
        the last epoch of sleep that the other one leaves, within the recording; of the main sleep
        period alone where more than 14 h are left; all of it where nobody slept.

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
    asleep = stages > 0
    open_to = slice(first, end)
    around = AROUND_SLEEP if asleep[open_to].any() else NO_SLEEP
    if asleep[open_to].any() and (lights_off is None or lights_on is None):
        onset, stop, around = _sleep_period(asleep[open_to])
        if lights_on is None:
            end = min(end, first + stop + _MARGIN_EPOCHS)
        if lights_off is None:
            first = max(first, first + onset - _MARGIN_EPOCHS)
        outside = asleep[open_to].sum() - asleep[first:end].sum()
        if outside:
            around += f", {outside * EPOCH_S / 60:g} min of sleep outside"
    return Lights(first, end, _source(lights_off is not None, lights_on is not None, around))


def _sleep_period(asleep: NDArray[np.bool_]) -> tuple[int, int, str]:
    """Return where sleep begins and before which epoch it ends, and what was taken for it."""
    found = np.flatnonzero(asleep)
    whole = int(found[0]), int(found[-1]) + 1
    if len(asleep) <= _LONGEST_NIGHT_EPOCHS:
        return *whole, AROUND_SLEEP
    main = _main_sleep(asleep)
    return *main, AROUND_SLEEP if main == whole else AROUND_MAIN_SLEEP


def _main_sleep(asleep: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the stretch in which sleep outweighs what is no sleep the most, with what is near.

    Naps stay out, and so do wrong epochs of sleep, however regularly they come by day; a waking by
    night is within if more sleep follows than it takes. Sleep within 30 min of the stretch, dozing
    at its ends, belongs to it.
    """
    gained = np.concatenate([[0], np.cumsum(np.where(asleep, 1, -1))])  # (E + 1,)
    lowest = np.minimum.accumulate(gained)
    stop = int((gained - lowest).argmax())
    # the last of equal beginnings: a stretch begins and ends with sleep
    onset = stop - int(gained[stop::-1].argmin())
    near = max(0, onset - _MARGIN_EPOCHS)
    found = near + np.flatnonzero(asleep[near : stop + _MARGIN_EPOCHS])
    return int(found[0]), int(found[-1]) + 1


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


def given_lights(statistics: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return lights off and on of a night's statistics as far as somebody gave them, else None.

    Parameters
    ----------
    statistics : mapping
        Of :meth:`SleepStatistics.to_dict <psdnorm.staging.SleepStatistics.to_dict>`.
    """
    source = str(statistics.get("lights"))
    off = source == GIVEN or source.startswith(f"lights off {GIVEN}")
    on = source == GIVEN or source.startswith(f"lights on {GIVEN}")
    off_s, on_s = statistics.get("lights_off_s"), statistics.get("lights_on_s")
    return off_s if off else None, on_s if on else None


def _source(off: bool, on: bool, around: str) -> str:
    if off and on:
        return GIVEN
    if not (off or on):
        return around
    return f"lights {'off' if off else 'on'} {GIVEN}, lights {'on' if off else 'off'} by {around}"
