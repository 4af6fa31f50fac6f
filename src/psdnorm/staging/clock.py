"""Where on the clock a night is: ticks of a time axis, and times in words."""

from datetime import datetime

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
