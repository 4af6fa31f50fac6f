"""From measures to words: what a night's distances mean, in sentences."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from psdnorm.drift.feature_spectra import NightSpectra
from psdnorm.drift.spread import FEW, Spread, swap_gap
from psdnorm.models.checkpoint import Pretrained
from psdnorm.store.summary import BANDS_HZ

IN_RANGE, UNUSUAL, NOT_TRUSTED = "in range", "unusual", "do not trust"
VERDICTS = (IN_RANGE, UNUSUAL, NOT_TRUSTED)
# as many limits away from the middle of the training nights: a limit is some 2.5 standard
# deviations away, so that this is more than 4
TRUSTED_EXCESS = 1.75
# of a channel's power, in dB: where a band has less as a rule and even that is lacking, hardly
# anything of the signal is
WEAK_BAND_DB = -6.0
OF_INPUT, OF_LAYERS = ("input",), ("layers",)  # what reasons are about


class Reason(NamedTuple):
    """Why a night is not in range.

    Attributes
    ----------
    verdict : {"unusual", "do not trust"}
    sentence : str
        It names its channels.
    about : tuple of str
        What it is about: ``dead`` or ``channel`` and the channel, ``input``, ``layers``. Of several
        that are about the same, :func:`told` tells the worst. Empty where it stands for itself.
    excess : float
        How far beyond, in limits.
    """

    verdict: str
    sentence: str
    about: tuple[str, ...] = ()
    excess: float = 0.0

    @property
    def weight(self) -> tuple[int, float]:
        """What it is compared by: the verdict, then the excess."""
        return VERDICTS.index(self.verdict), self.excess


def dead(channel: str) -> Reason:
    """Return the reason of a channel without any power: nothing is worse."""
    sentence = f"{channel} is flat or was not measured."
    return Reason(NOT_TRUSTED, sentence, ("dead", channel), math.inf)


def together(channels: Iterable[str]) -> str:
    """Return how the channels of a pair are called; one that is fed twice is named once."""
    return " and ".join(dict.fromkeys(channels))


def worst_of(verdicts: Sequence[str]) -> str:
    """Return the worst of some verdicts, "in range" of none."""
    return max(verdicts, key=VERDICTS.index, default=IN_RANGE)


def verdict_of(excess: float) -> str:
    """Return what an excess over a limit means; one is at the limit."""
    if excess <= 1:
        return IN_RANGE
    return UNUSUAL if excess <= TRUSTED_EXCESS else NOT_TRUSTED


def told(reasons: Iterable[Reason]) -> list[Reason]:
    """Return what is worth telling of the reasons of several pairs, the worst verdict first.

    Of those that are about the same, the worst is left, and says how many other pairs are beyond
    the same limit. Those of the same verdict stay in their order.
    """
    by_subject: dict[tuple[str, ...], list[Reason]] = {}
    for reason in reasons:
        by_subject.setdefault(reason.about or (reason.sentence,), []).append(reason)
    kept = []
    for about, same in by_subject.items():
        worst = max(same, key=lambda reason: reason.weight)
        n_others = len(same) - 1
        if about in (OF_INPUT, OF_LAYERS) and n_others:
            others = "1 other pair is" if n_others == 1 else f"{n_others} other pairs are"
            worst = worst._replace(sentence=f"{worst.sentence} {others} beyond the limit, too.")
        kept.append(worst)
    return sorted(kept, key=lambda reason: VERDICTS.index(reason.verdict), reverse=True)


def reasons_of(
    night: NightSpectra, found: Mapping[str, float], spread: Spread, channels: Sequence[str]
) -> list[Reason]:
    """Say in what a night is out of the range of the training nights.

    Parameters
    ----------
    night : NightSpectra
    found : dict of str to float
        Its :func:`~psdnorm.drift.spread.measures`.
    spread : Spread
    channels : sequence of str
        C names.

    Returns
    -------
    list of Reason
        Empty where the night is in range.
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
    names = together(channels)
    what = f"The spectrum of {names}"
    reasons += _of_distance("input", what, OF_INPUT, found, spread, excess)
    layers = {name: each for name, each in excess.items() if name.startswith("layer/")}
    if layers:
        worst = max(layers, key=lambda name: layers[name])
        what = f"What reaches {worst.removeprefix('layer/')} of {names}"
        reasons += _of_distance(worst, what, OF_LAYERS, found, spread, excess)
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
    beyond = [excess.get(f"channel/{place}", 0.0)]
    lost: list[float] = []
    for name, each in levels.items():
        limits, level = spread.ranges[start + name], found[start + name]
        is_lost = name != "power" and level < limits.typical < WEAK_BAND_DB
        (lost if is_lost else beyond).append(each)
    # a weak band or two may lack; where a third one does, most of what tells stages is gone
    lost.sort()
    beyond += [*lost[:-2], *(min(each, TRUSTED_EXCESS) for each in lost[-2:])]
    verdict = verdict_of(max(beyond))
    if verdict == IN_RANGE:
        return []
    more_db = {name: found[start + name] - spread.ranges[start + name].typical for name in levels}
    power_db = more_db.pop("power")
    if levels["power"] == max(levels.values()) or not more_db:
        sentence = f"{channel} has {_more(power_db)} power than a typical training night."
        return [Reason(verdict, sentence, ("channel", channel), max(beyond))]
    # shares of power: one band that has more leaves less for all others
    middle_db = statistics.median(more_db.values())
    band = max(more_db, key=lambda name: abs(more_db[name] - middle_db))
    low_hz, high_hz = BANDS_HZ[band]
    sentence = (
        f"{channel} has {_more(more_db[band] - middle_db)} power in {band} "
        f"({low_hz:g}–{high_hz:g} Hz), beside its other bands, than a typical training night."
    )
    return [Reason(verdict, sentence, ("channel", channel), max(beyond))]


def _more(decibels: float) -> str:
    return f"{abs(decibels):.0f} dB {'more' if decibels > 0 else 'less'}"


def _of_distance(
    name: str,
    what: str,
    about: tuple[str, ...],
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
    return [Reason(verdict, sentence, about, excess[name])]


def _of_swap(night: NightSpectra, spread: Spread, channels: Sequence[str]) -> list[Reason]:
    # a swapped night has the gap of one that is not, with the other sign; nights that are apart by
    # less than 99 % of the training nights may be anything
    if spread.least_gap <= 0 or len(channels) != 2 or channels[0] == channels[1]:
        return []
    gap = swap_gap(night.sqrt_psd, spread.sqrt_barycenter, night.size)
    if not gap <= -spread.least_gap:  # NaN, if a channel was not measured
        return []
    first, second = channels
    sentence = (
        f"{first} and {second} look swapped: each has the spectrum that the other one has in the "
        "training nights."
    )
    return [Reason(UNUSUAL, sentence)]
