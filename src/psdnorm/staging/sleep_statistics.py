"""Sleep statistics of a hypnogram, as the AASM's manual defines them."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.io import EPOCH_S, STAGES, UNSCORED
from psdnorm.staging.checks import as_stages
from psdnorm.staging.lights import find_lights
from psdnorm.staging.plain import plain

_WAKE, _REM = 0, 4
_EPOCH_MIN = EPOCH_S / 60
_PERSISTENT_EPOCHS = 5 * 60 // EPOCH_S


@dataclass(frozen=True)
class SleepStatistics:
    """What a night amounts to; NaN where it is not defined.

    Everything is counted between lights off and lights on, and what is scored alone counts as wake
    or sleep: unscored epochs are in no stage, but time goes on in them.

    Attributes
    ----------
    lights : str
        What lights off and on were taken from: ``"given"``, ``"sleep period ± 30 min"``, ``"main
        sleep period ± 30 min"`` and how much sleep lies outside, or words that say which of them
        was given, or that no epoch is sleep.
    lights_off_s, lights_on_s : float
        Seconds from the start of the recording, on the border of an epoch.
    tib_min : float
        Time in bed: lights off to lights on, the AASM's total recording time.
    tst_min : float
        Total sleep time: N1, N2, N3 and REM.
    sleep_efficiency_percent : float
        Total sleep time over time in bed.
    sol_min : float
        Sleep onset latency: lights off to the first epoch of any sleep.
    persistent_sol_min : float
        Lights off to the first 5 min of sleep that nothing breaks; YASA's ``SOL_5min``.
    sleep_period_min : float
        First to last epoch of sleep, both included.
    sleep_maintenance_percent : float
        Total sleep time over sleep period.
    waso_min : float
        Wake after sleep onset, until lights on: the AASM's, so that without unscored epochs time
        in bed is ``sol_min + tst_min + waso_min``.
    waso_sleep_period_min : float
        Wake within the sleep period: YASA's, which does not depend on when lights went on.
    rem_latency_min : float
        Sleep onset to the first epoch of REM.
    latency_min : dict of float
        Lights off to the first epoch of N1, N2, N3 and REM.
    stage_min : dict of float
        Minutes of W, N1, N2, N3 and REM.
    stage_percent : dict of float
        Shares of N1, N2, N3 and REM in total sleep time.
    awakenings : int
        How often sleep turned to wake and went on later; the final awakening is none of them.
    transition_counts : tuple of tuple of int, (5, 5)
        How often an epoch of one stage (row) was followed by one of another (column) or the same.
    transitions : int
        How often the stage changed from one epoch to the next.
    fragmentation_per_h : float
        Changes from sleep to wake, the final awakening included, per hour of sleep; YASA's ``SFI``.
    unscored_min : float
    """

    lights: str
    lights_off_s: float
    lights_on_s: float
    tib_min: float
    tst_min: float
    sleep_efficiency_percent: float
    sol_min: float
    persistent_sol_min: float
    sleep_period_min: float
    sleep_maintenance_percent: float
    waso_min: float
    waso_sleep_period_min: float
    rem_latency_min: float
    latency_min: dict[str, float]
    stage_min: dict[str, float]
    stage_percent: dict[str, float]
    awakenings: int
    transition_counts: tuple[tuple[int, ...], ...]
    transitions: int
    fragmentation_per_h: float
    unscored_min: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: None for NaN, lists for tuples."""
        return {name: plain(value) for name, value in dataclasses.asdict(self).items()}


def sleep_statistics(
    stages: ArrayLike, *, lights_off: float | None = None, lights_on: float | None = None
) -> SleepStatistics:
    """Return the sleep statistics of a night of 30 s epochs.

    Parameters
    ----------
    stages : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored.
    lights_off, lights_on : float, optional
        In seconds from the start of the recording, taken to the nearest border of an epoch. Where
        absent: 30 min before the first and after the last epoch of sleep, within the recording; of
        more than 14 h, 30 min around the stretch in which sleep outweighs wake the most, so that a
        nap or a wrong epoch by day does not stretch the night.

    Returns
    -------
    SleepStatistics
        Without sleep, total sleep time and sleep period are 0 and what needs an onset is NaN.
        Without a scored epoch, minutes of stages and of sleep are NaN, too.

    Raises
    ------
    ArgumentError, ShapeError
        If stages are none, or the lights do not fit the recording.

    Examples
    --------
    >>> night = [0] * 40 + [1] * 4 + [2] * 100 + [0] * 6 + [4] * 50 + [0] * 20
    >>> found = sleep_statistics(night, lights_off=600, lights_on=6600)
    >>> found.tib_min, found.tst_min, found.sol_min, found.waso_min, found.rem_latency_min
    (100.0, 77.0, 10.0, 13.0, 55.0)
    """
    night = as_stages(stages)
    lights = find_lights(night, lights_off, lights_on)
    in_bed = night[lights.first : lights.end]
    durations = _durations(in_bed)
    return SleepStatistics(
        lights=lights.source,
        lights_off_s=float(EPOCH_S * lights.first),
        lights_on_s=float(EPOCH_S * lights.end),
        **durations,
        **_around_onset(in_bed, durations["tst_min"]),
        **_changes(in_bed, durations["tst_min"]),
    )


def _durations(in_bed: NDArray[np.int8]) -> dict[str, Any]:
    """Return the fields that say how long each stage was, and when it was first."""
    minutes = [_minutes(in_bed == stage) for stage in range(len(STAGES))]
    if (in_bed == UNSCORED).all():  # nobody knows
        minutes = [math.nan] * len(STAGES)
    tib_min, tst_min = _EPOCH_MIN * len(in_bed), sum(minutes[1:])
    firsts = [_EPOCH_MIN * _first(in_bed == stage) for stage in range(len(STAGES))]
    percents = [100 * _ratio(part, tst_min) for part in minutes]
    return {
        "tib_min": tib_min,
        "tst_min": tst_min,
        "sleep_efficiency_percent": 100 * _ratio(tst_min, tib_min),
        "latency_min": dict(zip(STAGES[1:], firsts[1:], strict=True)),
        "stage_min": dict(zip(STAGES, minutes, strict=True)),
        "stage_percent": dict(zip(STAGES[1:], percents[1:], strict=True)),
        "unscored_min": _minutes(in_bed == UNSCORED),
    }


def _around_onset(in_bed: NDArray[np.int8], tst_min: float) -> dict[str, Any]:
    """Return the fields that begin with sleep onset."""
    asleep = in_bed > _WAKE
    onset = _first(asleep)
    slept = not math.isnan(onset)
    first = int(onset) if slept else len(in_bed)
    last = len(in_bed) - int(_first(asleep[::-1])) if slept else first
    period = in_bed[first:last]
    # NaN too where nothing is scored: then nobody knows whether there was a period
    period_min = math.nan if math.isnan(tst_min) else _EPOCH_MIN * len(period)
    scored = period[period != UNSCORED]
    return {
        "sol_min": _EPOCH_MIN * onset,
        "persistent_sol_min": _EPOCH_MIN * _first_run(asleep, _PERSISTENT_EPOCHS),
        "sleep_period_min": period_min,
        "sleep_maintenance_percent": 100 * _ratio(tst_min, period_min),
        "waso_min": _minutes(in_bed[first:] == _WAKE) if slept else math.nan,
        "waso_sleep_period_min": _minutes(period == _WAKE) if slept else math.nan,
        "rem_latency_min": _EPOCH_MIN * _first(period == _REM),
        # an unscored epoch in between neither hides an awakening nor makes one
        "awakenings": int(np.count_nonzero((scored[:-1] > _WAKE) & (scored[1:] == _WAKE))),
    }


def _changes(in_bed: NDArray[np.int8], tst_min: float) -> dict[str, Any]:
    """Return the fields that count what follows what; pairs with an unscored epoch do not."""
    counts = np.zeros((len(STAGES), len(STAGES)), np.int64)
    before, after = in_bed[:-1], in_bed[1:]
    scored = (before != UNSCORED) & (after != UNSCORED)
    np.add.at(counts, (before[scored], after[scored]), 1)
    return {
        "transition_counts": tuple(map(tuple, counts.tolist())),
        "transitions": int(counts.sum() - counts.trace()),
        "fragmentation_per_h": 60 * _ratio(int(counts[1:, _WAKE].sum()), tst_min),
    }


def _minutes(found: NDArray[np.bool_]) -> float:
    return _EPOCH_MIN * int(np.count_nonzero(found))


def _first(found: NDArray[np.bool_]) -> float:
    """Return where the first True is; NaN where there is none."""
    return float(found.argmax()) if found.any() else math.nan


def _first_run(found: NDArray[np.bool_], length: int) -> float:
    """Return where the first run of so many True begins; NaN where there is none."""
    if len(found) < length:
        return math.nan
    windows = np.lib.stride_tricks.sliding_window_view(found, length)  # (E - length + 1, length)
    return _first(np.asarray(windows.all(axis=1)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
