"""Sleep statistics, lights out, and agreement with a scoring."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.evaluation import accuracy, balanced_accuracy, cohen_kappa, confusion_matrix, macro_f1


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: None for NaN, lists for tuples and arrays."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


# probabilities in half precision do not sum to 1 more precisely
_SUM_TOLERANCE = 1e-2


def checked_stages(values: ArrayLike, name: str = "stages") -> NDArray[np.int8]:
    """Validate the stages of a night, (E,); ``name`` is the argument's."""
    stages = np.asarray(values)
    if stages.ndim != 1:
        raise ShapeError(f"{name} has shape {stages.shape}, expected (E,), one stage per epoch")
    if stages.size == 0:
        return stages.astype(np.int8)
    if stages.dtype.kind not in "iu":
        raise ArgumentError(f"{name} is of type {stages.dtype}, expected integers")
    if stages.min() < UNSCORED or stages.max() >= len(STAGES):
        raise ArgumentError(
            f"{name} has values from {stages.min()} to {stages.max()}, expected stages 0 to "
            f"{len(STAGES) - 1}, or {UNSCORED} where unscored"
        )
    return stages.astype(np.int8)


def checked_probabilities(values: ArrayLike, n_epochs: int | None = None) -> NDArray[np.float64]:
    """Validate the probabilities of a night, (E, 5)."""
    probabilities = np.asarray(values)
    two_axes = probabilities.ndim == 2 and probabilities.shape[1] == len(STAGES)
    if not two_axes or n_epochs not in (None, len(probabilities)):
        epochs = "E" if n_epochs is None else n_epochs
        raise ShapeError(
            f"probabilities has shape {probabilities.shape}, expected ({epochs}, {len(STAGES)})"
        )
    if probabilities.dtype.kind != "f":
        raise ArgumentError(f"probabilities is of type {probabilities.dtype}, expected floats")
    probabilities = probabilities.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        off = np.abs(probabilities.sum(axis=1) - 1) > _SUM_TOLERANCE  # False where NaN
    outside = (probabilities < 0) | (probabilities > 1 + _SUM_TOLERANCE)
    missing = np.isnan(probabilities)
    wrong = off | outside.any(axis=1) | (missing.any(axis=1) & ~missing.all(axis=1))
    if wrong.any():
        epoch = int(np.flatnonzero(wrong)[0])
        raise ArgumentError(
            f"probabilities has {probabilities[epoch].tolist()} at epoch {epoch}, expected five "
            "from 0 to 1 that sum to 1, or NaN where it could not be staged"
        )
    return probabilities


def confidence_of(
    stages: NDArray[np.int8], probabilities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probability of each epoch's stage, (E,); NaN where unscored."""
    of_stage = np.take_along_axis(probabilities, np.maximum(stages, 0)[:, None], axis=1)[:, 0]
    return np.where(stages == UNSCORED, np.nan, of_stage)


def name_of(stage: int, unscored: str) -> str:
    """Return a stage's AASM name."""
    return STAGES[stage] if stage != UNSCORED else unscored


GIVEN = "given"
AROUND_SLEEP = "sleep period ± 30 min"
_MARGIN_EPOCHS = 30 * 60 // EPOCH_S
# no night in bed is longer: a longer recording continues into the day
_LONGEST_NIGHT_EPOCHS = 14 * 3600 // EPOCH_S


def find_lights(
    stages: NDArray[np.int8], lights_off: float | None, lights_on: float | None
) -> tuple[int, int, str]:
    """Return the first epoch after lights off, the first after lights on, and their source.

    By default they are 30 min before the first and after the last epoch of sleep, within the
    recording; in more than 14 h, around the main sleep period.
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
    around = AROUND_SLEEP if asleep[open_to].any() else "whole recording, as no epoch is sleep"
    if asleep[open_to].any() and (lights_off is None or lights_on is None):
        found = np.flatnonzero(asleep[open_to])
        onset, stop = period = int(found[0]), int(found[-1]) + 1
        if end - first > _LONGEST_NIGHT_EPOCHS:
            onset, stop = _main_sleep(asleep[open_to])
            around = AROUND_SLEEP if (onset, stop) == period else f"main {AROUND_SLEEP}"
        if lights_on is None:
            end = min(end, first + stop + _MARGIN_EPOCHS)
        if lights_off is None:
            first = max(first, first + onset - _MARGIN_EPOCHS)
        outside = asleep[open_to].sum() - asleep[first:end].sum()
        if outside:
            around += f", {outside * EPOCH_S / 60:g} min of sleep outside"
    if lights_off is not None and lights_on is not None:
        return first, end, GIVEN
    if lights_off is not None:
        around = f"lights off {GIVEN}, lights on by {around}"
    elif lights_on is not None:
        around = f"lights on {GIVEN}, lights off by {around}"
    return first, end, around


def _main_sleep(asleep: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the stretch in which sleep outweighs wake the most, with dozing up to 30 min around.

    It excludes naps and epochs wrongly staged as sleep by day, and includes a long awakening if
    more sleep follows.
    """
    gained = np.concatenate([[0], np.cumsum(np.where(asleep, 1, -1))])  # (E + 1,)
    lowest = np.minimum.accumulate(gained)
    stop = int((gained - lowest).argmax())
    # the last of equal beginnings, so that the stretch begins with sleep
    onset = stop - int(gained[stop::-1].argmin())
    near = max(0, onset - _MARGIN_EPOCHS)
    found = near + np.flatnonzero(asleep[near : stop + _MARGIN_EPOCHS])
    return int(found[0]), int(found[-1]) + 1


def _border(name: str, time_s: float, n_epochs: int) -> int:
    """Return the epoch that begins nearest to a time."""
    duration_s = EPOCH_S * n_epochs
    # an incomplete epoch may follow the last complete one
    if not 0 <= time_s < duration_s + EPOCH_S:
        raise ArgumentError(
            f"{name} is {time_s:g} s, expected seconds from the start of the recording, 0 to "
            f"{duration_s}"
        )
    return min(n_epochs, math.floor(time_s / EPOCH_S + 0.5))


def given_lights(statistics: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return lights off and on of a summary's statistics, None where they were not given."""
    source = str(statistics.get("lights"))
    off = source == GIVEN or source.startswith(f"lights off {GIVEN}")
    on = source == GIVEN or source.startswith(f"lights on {GIVEN}")
    off_s, on_s = statistics.get("lights_off_s"), statistics.get("lights_on_s")
    return off_s if off else None, on_s if on else None


_WAKE, _REM = 0, 4
_EPOCH_MIN = EPOCH_S / 60
_PERSISTENT_EPOCHS = 5 * 60 // EPOCH_S


@dataclass(frozen=True)
class SleepStatistics:
    """Sleep statistics between lights off and lights on; NaN where they are not defined.

    Unscored epochs count as neither wake nor sleep, but as time.

    Attributes
    ----------
    lights : str
        Where lights off and on come from: ``"given"``, ``"sleep period ± 30 min"``, ``"main sleep
        period ± 30 min"`` and how much sleep is outside, which of the two was given, or that no
        epoch is sleep.
    lights_off_s, lights_on_s : float
        Seconds from the start of the recording, on an epoch boundary.
    tib_min, tst_min : float
        Time in bed, lights off to lights on; total sleep time: N1, N2, N3 and REM.
    sleep_efficiency_percent, sleep_maintenance_percent : float
        Total sleep time over time in bed, and over the sleep period.
    sol_min, persistent_sol_min : float
        Lights off to the first epoch of sleep, and to the first 5 min of unbroken sleep (YASA's
        ``SOL_5min``).
    sleep_period_min : float
        First to last epoch of sleep, both included.
    waso_min : float
        Wake after sleep onset until lights on, as the AASM defines it: without unscored epochs
        time in bed is ``sol_min + tst_min + waso_min``.
    waso_sleep_period_min : float
        Wake within the sleep period, YASA's ``WASO``, which does not depend on lights on.
    rem_latency_min : float
        Sleep onset to the first epoch of REM.
    latency_min, stage_min, stage_percent : dict of float
        By stage: lights off to its first epoch, its duration, its share of total sleep time.
    awakenings : int
        Changes from sleep to wake, without the final awakening.
    transition_counts : tuple of tuple of int, (5, 5)
        Epochs of one stage (row) followed by another (column) or the same.
    transitions : int
        Changes of stage from one epoch to the next.
    fragmentation_per_h : float
        Changes from sleep to wake, with the final awakening, per hour of sleep; YASA's ``SFI``.
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
        return plain(dataclasses.asdict(self))


def sleep_statistics(
    stages: ArrayLike, *, lights_off: float | None = None, lights_on: float | None = None
) -> SleepStatistics:
    """Return the sleep statistics of a night of 30 s epochs.

    Parameters
    ----------
    stages : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored.
    lights_off, lights_on : float, optional
        In seconds from the start of the recording, rounded to the nearest epoch boundary. By
        default 30 min before the first and after the last epoch of sleep, within the recording; in
        more than 14 h, 30 min around the stretch in which sleep outweighs wake the most, so that a
        nap or a wrong epoch by day does not stretch the night.

    Returns
    -------
    SleepStatistics
        Without sleep, total sleep time and sleep period are 0 and all that needs an onset is NaN.
        Without a scored epoch, minutes of stages and of sleep are NaN, too.

    Examples
    --------
    >>> night = [0] * 40 + [1] * 4 + [2] * 100 + [0] * 6 + [4] * 50 + [0] * 20
    >>> found = sleep_statistics(night, lights_off=600, lights_on=6600)
    >>> found.tib_min, found.tst_min, found.sol_min, found.waso_min, found.rem_latency_min
    (100.0, 77.0, 10.0, 13.0, 55.0)
    """
    night = checked_stages(stages)
    first, end, source = find_lights(night, lights_off, lights_on)
    in_bed = night[first:end]
    minutes = [_minutes(in_bed == stage) for stage in range(len(STAGES))]
    if (in_bed == UNSCORED).all():  # unknown, as is whether there was a sleep period
        minutes = [math.nan] * len(STAGES)
    tib_min, tst_min = _EPOCH_MIN * len(in_bed), sum(minutes[1:])

    asleep = in_bed > _WAKE
    onset = _first(asleep)
    slept = not math.isnan(onset)
    begin = int(onset) if slept else len(in_bed)
    period = in_bed[begin : len(in_bed) - int(_first(asleep[::-1])) if slept else begin]
    period_min = math.nan if math.isnan(tst_min) else _EPOCH_MIN * len(period)
    # an unscored epoch neither hides an awakening nor makes one
    scored = period[period != UNSCORED]
    awakenings = np.count_nonzero((scored[:-1] > _WAKE) & (scored[1:] == _WAKE))

    counts = np.zeros((len(STAGES), len(STAGES)), np.int64)
    before, after = in_bed[:-1], in_bed[1:]
    both = (before != UNSCORED) & (after != UNSCORED)
    np.add.at(counts, (before[both], after[both]), 1)
    return SleepStatistics(
        lights=source,
        lights_off_s=float(EPOCH_S * first),
        lights_on_s=float(EPOCH_S * end),
        tib_min=tib_min,
        tst_min=tst_min,
        sleep_efficiency_percent=100 * _ratio(tst_min, tib_min),
        sol_min=_EPOCH_MIN * onset,
        persistent_sol_min=_EPOCH_MIN * _first_run(asleep, _PERSISTENT_EPOCHS),
        sleep_period_min=period_min,
        sleep_maintenance_percent=100 * _ratio(tst_min, period_min),
        waso_min=_minutes(in_bed[begin:] == _WAKE) if slept else math.nan,
        waso_sleep_period_min=_minutes(period == _WAKE) if slept else math.nan,
        rem_latency_min=_EPOCH_MIN * _first(period == _REM),
        latency_min={s: _EPOCH_MIN * _first(in_bed == n) for n, s in enumerate(STAGES) if n},
        stage_min=dict(zip(STAGES, minutes, strict=True)),
        stage_percent={s: 100 * _ratio(minutes[n], tst_min) for n, s in enumerate(STAGES) if n},
        awakenings=int(awakenings),
        transition_counts=tuple(map(tuple, counts.tolist())),
        transitions=int(counts.sum() - counts.trace()),
        fragmentation_per_h=60 * _ratio(int(counts[1:, _WAKE].sum()), tst_min),
        unscored_min=_minutes(in_bed == UNSCORED),
    )


def _minutes(found: NDArray[np.bool_]) -> float:
    return _EPOCH_MIN * int(np.count_nonzero(found))


def _first(found: NDArray[np.bool_]) -> float:
    """Return where the first True is, NaN if there is none."""
    return float(found.argmax()) if found.any() else math.nan


def _first_run(found: NDArray[np.bool_], length: int) -> float:
    """Return where the first run of ``length`` True begins, NaN if there is none."""
    if len(found) < length:
        return math.nan
    windows = np.lib.stride_tricks.sliding_window_view(found, length)  # (E - length + 1, length)
    return _first(np.asarray(windows.all(axis=1)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


UNKNOWN = "–"
_SHORT = {
    "time in bed": "tib_min",
    "total sleep time": "tst_min",
    "sleep onset latency": "sol_min",
    "wake after sleep onset": "waso_min",
    "REM latency": "rem_latency_min",
}


def in_minutes(minutes: float | None) -> str:
    """Return minutes as text, a dash if they are unknown."""
    return UNKNOWN if minutes is None or math.isnan(minutes) else f"{minutes:.1f} min"


def in_percent(percent: float | None) -> str:
    """Return a percentage as text, a dash if it is unknown."""
    return UNKNOWN if percent is None or math.isnan(percent) else f"{percent:.1f} %"


def short_rows(statistics: Mapping[str, Any], *, shares: bool = True) -> list[tuple[str, str]]:
    """Return names and values of the main statistics, from ``SleepStatistics.to_dict()``."""
    rows = [(words, in_minutes(statistics[field])) for words, field in _SHORT.items()]
    rows.insert(2, ("sleep efficiency", in_percent(statistics["sleep_efficiency_percent"])))
    rows.append(("awakenings", str(statistics["awakenings"])))
    for stage, minutes in statistics["stage_min"].items():
        percent = statistics["stage_percent"].get(stage) if shares else None
        of_sleep = "" if percent is None else f" ({in_percent(percent)} of sleep)"
        rows.append((stage, in_minutes(minutes) + of_sleep))
    return [*rows, ("not staged", in_minutes(statistics["unscored_min"]))]


class Disagreement(NamedTuple):
    """An epoch on which scoring and prediction differ; ``pandas.DataFrame`` takes a list of them.

    Epochs are counted from 0, stages are names, and the confidence is the probability of the
    predicted stage, NaN if it is unknown.
    """

    epoch: int
    onset_s: int
    true: str
    predicted: str
    confidence: float


@dataclass(frozen=True, eq=False)
class Agreement:
    """Metrics (:mod:`psdnorm.evaluation`) of one night against a scoring; NaN where undefined.

    Attributes
    ----------
    n_compared, n_left_out : int
        Epochs that both score, and those that at least one of them leaves unscored.
    confusion : ndarray of int64, (5, 5)
        Rows are true stages, columns predicted ones.
    disagreements : list of Disagreement
        Most confident first, then by time.
    """

    n_compared: int
    n_left_out: int
    accuracy: float
    kappa: float
    balanced_accuracy: float
    macro_f1: float
    confusion: NDArray[np.int64]
    disagreements: list[Disagreement]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: None for NaN, disagreements as dicts."""
        fields = dict(vars(self))
        fields["disagreements"] = [epoch._asdict() for epoch in self.disagreements]
        return plain(fields)


def agreement(
    true: ArrayLike, predicted: ArrayLike, probabilities: ArrayLike | None = None
) -> Agreement:
    """Compare a staging with a human scoring, epoch by epoch.

    Parameters
    ----------
    true, predicted : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored. Epochs that either leaves unscored are not
        compared.
    probabilities : array of float, (E, 5), optional
        Of the prediction; without them confidences are NaN.

    Examples
    --------
    >>> found = agreement([0, 2, 2, -1], [0, 2, 1, 4])
    >>> found.n_compared, found.balanced_accuracy
    (3, 0.75)
    >>> found.disagreements[0].true, found.disagreements[0].predicted
    ('N2', 'N1')
    """
    scored, staged = checked_stages(true, "true"), checked_stages(predicted, "predicted")
    if len(scored) != len(staged):
        raise ShapeError(
            f"true has {len(scored)} epochs and predicted {len(staged)}, expected the same"
        )
    compared = (scored != UNSCORED) & (staged != UNSCORED)
    confusion = confusion_matrix(scored[compared], staged[compared])
    confidence = np.full(len(staged), np.nan)
    if probabilities is not None:
        confidence = confidence_of(staged, checked_probabilities(probabilities, len(staged)))
    differ = np.flatnonzero(compared & (scored != staged))
    # NaN comes last; a stable sort keeps ties in order of time
    ordered = differ[np.argsort(-confidence[differ], kind="stable")].tolist()
    return Agreement(
        n_compared=int(compared.sum()),
        n_left_out=int((~compared).sum()),
        accuracy=float(accuracy(confusion)),
        kappa=float(cohen_kappa(confusion)),
        balanced_accuracy=float(balanced_accuracy(confusion)),
        macro_f1=float(macro_f1(confusion)),
        confusion=confusion,
        disagreements=[
            Disagreement(e, EPOCH_S * e, STAGES[scored[e]], STAGES[staged[e]], float(confidence[e]))
            for e in ordered
        ],
    )
