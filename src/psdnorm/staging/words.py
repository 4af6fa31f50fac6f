"""What a staged night says in sentences."""

import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.staging.result import StagedNight
from psdnorm.staging.shift import IN_RANGE, NOT_TRUSTED, UNUSUAL, ShiftReport
from psdnorm.staging.sleep_statistics import SleepStatistics

DAY_S = 86400
_STEPS_S = (5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S)
_MOST_TICKS = 12


def clock_ticks(start: datetime | None, duration_s: float) -> tuple[list[float], list[str]]:
    r"""Return whole minutes, hours or days of a recording, and what stands below them.

    Parameters
    ----------
    start : datetime or None
        Of the recording; where it is not known, time is counted from there.
    duration_s : float

    Returns
    -------
    places : list of float
        Seconds from the start of the recording.
    labels : list of str
        Clock times, with the number of the day at midnight where there are several; or hours and
        minutes since the start.

    Examples
    --------
    >>> clock_ticks(datetime(2021, 3, 4, 22, 41), 3 * 3600)[1]
    ['23:00', '23:30', '00:00', '00:30', '01:00', '01:30']
    >>> clock_ticks(datetime(2021, 3, 4, 22, 41), 48 * 3600)[1][:2]
    ['00:00\nday 2', '06:00']
    """
    step_s = next((s for s in _STEPS_S if duration_s / s <= _MOST_TICKS), DAY_S)
    begin_s = _time_of_day_s(start)
    # a recording may start within a second
    first = -int(-begin_s // step_s)
    last = int((begin_s + duration_s) // step_s)
    times_s = [step_s * number for number in range(first, last + 1)]
    labels = [_label(time_s, start is not None, step_s < 60) for time_s in times_s]
    if start is not None and duration_s > DAY_S:
        days = [f"\nday {t // DAY_S + 1}" if t % DAY_S == 0 else "" for t in times_s]
        labels = [label + day for label, day in zip(labels, days, strict=True)]
    return [time_s - begin_s for time_s in times_s], labels


def time_words(start: datetime | None, seconds: float) -> str:
    """Return when something was: a clock time, or the time since a start that is not known.

    Examples
    --------
    >>> time_words(datetime(2021, 3, 4, 22, 41), 7260), time_words(None, 7260)
    ('00:42:00', '2:01:00 after the start')
    """
    if start is None:
        return f"{_label(seconds, False, True)} after the start"
    return _label(_time_of_day_s(start) + seconds, True, True)


def _time_of_day_s(start: datetime | None) -> float:
    if start is None:
        return 0.0
    return 3600 * start.hour + 60 * start.minute + start.second + start.microsecond / 1e6


def _label(time_s: float, on_clock: bool, with_seconds: bool) -> str:
    hours, rest_s = divmod(int(time_s % DAY_S if on_clock else time_s), 3600)
    minutes, seconds = divmod(rest_s, 60)
    text = f"{hours:02d}:{minutes:02d}" if on_clock else f"{hours}:{minutes:02d}"
    return f"{text}:{seconds:02d}" if with_seconds else text


UNKNOWN = "–"
_VERDICTS = {
    IN_RANGE: "In range: this night is like those that the model has learned from.",
    UNUSUAL: "Unusual: read this hypnogram with care.",
    NOT_TRUSTED: "Do not trust this hypnogram.",
}


def verdict_words(shift: ShiftReport) -> list[str]:
    """Say whether to trust a hypnogram, why not, and what weakens that; the verdict first.

    Parameters
    ----------
    shift : ShiftReport
    """
    return [_VERDICTS[shift.verdict], *shift.reasons, *shift.remarks]


def sleep_words(night: StagedNight) -> str:
    """Say in a sentence or two how long was slept, and how sure the epochs are.

    Parameters
    ----------
    night : StagedNight
    """
    found = night.statistics
    if math.isnan(found.tst_min):
        return "No epoch could be staged."
    slept = (
        f"{_hours(found.tst_min)} of sleep in {_hours(found.tib_min)} in bed "
        f"({found.sleep_efficiency_percent:.0f} %)."
    )
    confidence = night.confidence[night.hypnogram != UNSCORED]
    sure = (
        f" The median confidence is {100 * np.median(confidence):.0f} %, and "
        f"{100 * np.mean(confidence < 0.5):.0f} % of the epochs are below 50 %."
    )
    unstaged = np.count_nonzero(night.hypnogram == UNSCORED) * EPOCH_S / 60
    return slept + sure + (f" {unstaged:g} min could not be staged." if unstaged else "")


def picture_words(night: StagedNight) -> str:
    """Say what the picture of a night shows, for those who cannot see it.

    Parameters
    ----------
    night : StagedNight
    """
    hours = len(night.hypnogram) * EPOCH_S / 3600
    parts = [f"Hypnogram, probabilities, spectrogram and confidence over {hours:.2f} hours."]
    asleep = np.flatnonzero(night.hypnogram > 0)
    if asleep.size:
        first = time_words(night.start, EPOCH_S * int(asleep[0]))
        last = time_words(night.start, EPOCH_S * (int(asleep[-1]) + 1))
        parts.append(f"The first sleep begins at {first}, the last ends at {last}.")
    counts = [np.count_nonzero(night.hypnogram == stage) for stage in range(len(STAGES))]
    if any(counts):
        minutes = (f"{n * EPOCH_S / 60:g} min {s}" for s, n in zip(STAGES, counts, strict=True))
        parts.append(f"In all: {', '.join(minutes)}.")
    parts.append(sleep_words(night))
    if len(night.pairs) > 1 and any(counts):
        differs = 100 * np.mean(night.disagreement[night.hypnogram != UNSCORED] > 0)
        parts.append(f"In {differs:.0f} % of the epochs some of the pairs disagree.")
    return " ".join(parts)


def statistics_rows(night: StagedNight) -> list[Sequence[str]]:
    """Return name, value and definition of each sleep statistic; a single entry is a heading.

    Parameters
    ----------
    night : StagedNight
    """
    found = night.statistics
    return [
        ["Time"],
        *_time_rows(found, night),
        ["Falling asleep"],
        *_latency_rows(found),
        ["Continuity"],
        *_continuity_rows(found),
        ["Stages"],
        *_stage_rows(found),
    ]


def short_rows(found: SleepStatistics, *, shares: bool = True) -> list[tuple[str, str]]:
    """Return the statistics that are asked for first, name and value, for a terminal.

    Parameters
    ----------
    found : SleepStatistics
    shares : bool
        Whether stages are told as shares of sleep, too.
    """
    rows = [
        ("time in bed", _min(found.tib_min)),
        ("total sleep time", _min(found.tst_min)),
        ("sleep efficiency", _percent(found.sleep_efficiency_percent)),
        ("sleep onset latency", _min(found.sol_min)),
        ("wake after sleep onset", _min(found.waso_min)),
        ("REM latency", _min(found.rem_latency_min)),
        ("awakenings", str(found.awakenings)),
    ]
    for stage, minutes in found.stage_min.items():
        share = found.stage_percent.get(stage, math.nan)
        told = f" ({_percent(share)} of sleep)" if shares and not math.isnan(share) else ""
        rows.append((stage, _min(minutes) + told))
    return [*rows, ("not staged", _min(found.unscored_min))]


def _time_rows(found: SleepStatistics, night: StagedNight) -> list[Sequence[str]]:
    lights = f"taken from: {found.lights}"
    return [
        ["Lights off", time_words(night.start, found.lights_off_s), lights],
        ["Lights on", time_words(night.start, found.lights_on_s), lights],
        ["Time in bed (TIB)", _min(found.tib_min), "lights off to lights on"],
        ["Total sleep time (TST)", _min(found.tst_min), "N1, N2, N3 and REM"],
        ["Sleep efficiency (SE)", _percent(found.sleep_efficiency_percent), "TST over TIB"],
        ["Sleep period", _min(found.sleep_period_min), "first to last epoch of sleep"],
        [
            "Sleep maintenance",
            _percent(found.sleep_maintenance_percent),
            "TST over the sleep period",
        ],
        ["Not staged", _min(found.unscored_min), "in bed, neither wake nor sleep"],
    ]


def _latency_rows(found: SleepStatistics) -> list[Sequence[str]]:
    return [
        [
            "Sleep onset latency (SOL)",
            _min(found.sol_min),
            "lights off to the first epoch of sleep",
        ],
        [
            "Persistent sleep latency",
            _min(found.persistent_sol_min),
            "lights off to the first 5 min of unbroken sleep",
        ],
        ["REM latency", _min(found.rem_latency_min), "sleep onset to the first epoch of REM"],
        *(
            [f"Latency of {stage}", _min(minutes), f"lights off to the first epoch of {stage}"]
            for stage, minutes in found.latency_min.items()
        ),
    ]


def _continuity_rows(found: SleepStatistics) -> list[Sequence[str]]:
    return [
        ["Wake after sleep onset (WASO)", _min(found.waso_min), "until lights on"],
        [
            "WASO within the sleep period",
            _min(found.waso_sleep_period_min),
            "until the last epoch of sleep",
        ],
        ["Awakenings", str(found.awakenings), "sleep to wake, after which sleep went on"],
        ["Changes of stage", str(found.transitions), "from one epoch to the next"],
        [
            "Fragmentation",
            UNKNOWN if math.isnan(n := found.fragmentation_per_h) else f"{n:.1f} per h",
            "changes from sleep to wake per hour of sleep",
        ],
    ]


def _stage_rows(found: SleepStatistics) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for stage, minutes in found.stage_min.items():
        share = found.stage_percent.get(stage, math.nan)
        told = f"{_percent(share)} of total sleep time" if not math.isnan(share) else ""
        rows.append([stage, _min(minutes), told or "in bed"])
    return rows


def _min(minutes: float) -> str:
    return UNKNOWN if math.isnan(minutes) else f"{minutes:.1f} min"


def _percent(value: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:.1f} %"


def _hours(minutes: float) -> str:
    whole = round(minutes)
    return f"{whole // 60} h {whole % 60:02d} min"
