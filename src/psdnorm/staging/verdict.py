"""From measures to words: what a night's distances mean, in sentences."""

import math
import statistics
from collections.abc import Mapping, Sequence

from psdnorm.models.checkpoint import Pretrained
from psdnorm.store.summary import BANDS_HZ
from psdnorm.training.spectra import NightSpectra
from psdnorm.training.spread import FEW, Spread, swap_gap

IN_RANGE, UNUSUAL, NOT_TRUSTED = "in range", "unusual", "do not trust"
VERDICTS = (IN_RANGE, UNUSUAL, NOT_TRUSTED)
# as many limits away from the middle of the training nights: a limit is some 2.5 standard
# deviations away, so that this is as far again
TRUSTED_EXCESS = 2.0
# of a channel's power, in dB: where a band has less as a rule and even that is lacking, hardly
# anything of the signal is
WEAK_BAND_DB = -6.0

Reason = tuple[str, str]  # a verdict, and why


def worst_of(verdicts: Sequence[str]) -> str:
    """Return the worst of some verdicts, "in range" of none."""
    return max(verdicts, key=VERDICTS.index, default=IN_RANGE)


def verdict_of(excess: float) -> str:
    """Return what an excess over a limit means; one is at the limit."""
    if excess <= 1:
        return IN_RANGE
    return UNUSUAL if excess <= TRUSTED_EXCESS else NOT_TRUSTED


def reasons_of(
    night: NightSpectra, found: Mapping[str, float], spread: Spread, channels: Sequence[str]
) -> list[Reason]:
    """Say in what a night is out of the range of the training nights.

    Parameters
    ----------
    night : NightSpectra
    found : dict of str to float
        Its :func:`~psdnorm.training.spread.measures`.
    spread : Spread
    channels : sequence of str
        C names.

    Returns
    -------
    list of (str, str)
        The verdict and the sentence of each; empty where the night is in range.
    """
    excess = {
        name: limits.excess(found[name])
        for name, limits in spread.ranges.items()
        if math.isfinite(found.get(name, math.nan))
    }
    reasons: list[Reason] = []
    for place, channel in enumerate(channels):
        if night.sqrt_psd[place].sum() > 0:  # else it is dead, and no band of it stands out
            reasons += _of_channel(place, channel, found, spread, excess)
    reasons += _of_distance("input", "the night's spectrum", found, spread, excess)
    layers = {name: each for name, each in excess.items() if name.startswith("layer/")}
    if layers:
        worst = max(layers, key=lambda name: layers[name])
        what = f"what reaches {worst.removeprefix('layer/')}"
        reasons += _of_distance(worst, what, found, spread, excess)
    return reasons + _of_swap(night, spread, channels)


def remarks_of(model: Pretrained, spread: Spread | None) -> tuple[str, ...]:
    """Say what weakens every verdict of a model."""
    remarks = []
    facts = (model.card or {}).get("training_data")
    if isinstance(facts, dict) and facts.get("simulated") is True:
        remarks.append("The model learned from simulated nights: the verdict compares with those.")
    if spread is not None and spread.n_nights < FEW:
        remarks.append(
            f"The model knows only {spread.n_nights} of its training nights, so that its limits "
            "are wide and little is called unusual."
        )
    return tuple(remarks)


def _of_channel(
    place: int,
    channel: str,
    found: Mapping[str, float],
    spread: Spread,
    excess: Mapping[str, float],
) -> list[Reason]:
    """Say that a channel is out of range, and name its power or the band that stands out."""
    start = f"level/{place}/"
    levels = {name.removeprefix(start): e for name, e in excess.items() if name.startswith(start)}
    verdicts = [verdict_of(excess.get(f"channel/{place}", 0.0))]
    for name, each in levels.items():
        limits, level = spread.ranges[start + name], found[start + name]
        is_lost = name != "power" and level < limits.typical < WEAK_BAND_DB
        verdicts.append(verdict_of(min(each, TRUSTED_EXCESS) if is_lost else each))
    verdict = worst_of(verdicts)
    if verdict == IN_RANGE:
        return []
    more_db = {name: found[start + name] - spread.ranges[start + name].typical for name in levels}
    power_db = more_db.pop("power")
    if levels["power"] == max(levels.values()) or not more_db:
        return [(verdict, f"{channel} has {_more(power_db)} power than a typical training night.")]
    # shares of power: one band that has more leaves less for all others
    middle_db = statistics.median(more_db.values())
    band = max(more_db, key=lambda name: abs(more_db[name] - middle_db))
    low_hz, high_hz = BANDS_HZ[band]
    sentence = (
        f"{channel} has {_more(more_db[band] - middle_db)} power in {band} "
        f"({low_hz:g}–{high_hz:g} Hz), beside its other bands, than a typical training night."
    )
    return [(verdict, sentence)]


def _more(decibels: float) -> str:
    return f"{abs(decibels):.0f} dB {'more' if decibels > 0 else 'less'}"


def _of_distance(
    name: str,
    what: str,
    found: Mapping[str, float],
    spread: Spread,
    excess: Mapping[str, float],
) -> list[Reason]:
    verdict = verdict_of(excess.get(name, 0.0))
    if verdict == IN_RANGE:
        return []
    times = found[name] / spread.ranges[name].typical
    sentence = (
        f"{what} is {times:.1f} times as far from the training's barycenter as a typical training "
        "night's."
    )
    return [(verdict, sentence[0].upper() + sentence[1:])]


def _of_swap(night: NightSpectra, spread: Spread, channels: Sequence[str]) -> list[Reason]:
    # a swapped night has the gap of one that is not, with the other sign; nights that are apart by
    # less than 99 % of the training nights may be anything
    if spread.least_gap <= 0 or len(channels) != 2 or channels[0] == channels[1]:
        return []
    gap = swap_gap(night.sqrt_psd, spread.sqrt_barycenter, night.size)
    if not gap <= -spread.least_gap:  # NaN, if a channel was not measured
        return []
    first, second = channels
    return [
        (
            UNUSUAL,
            f"{first} and {second} look swapped: each has the spectrum that the other one has in "
            "the training nights.",
        )
    ]
