"""Duels: one norm against another, in numbers and in sentences."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.evaluation.statistics import (
    HardestResult,
    ImprovedResult,
    bootstrap_gains,
    gain_on_hardest,
    share_improved,
)
from psdnorm.report.contest import has_seeds, seeds_of_cohorts
from psdnorm.runtime import listed, plural
from psdnorm.training import norm_name

BETTER, WORSE, UNSURE = "better", "worse", "not distinguishable"
NOT_THERE = "–"
ENOUGH_COHORTS = 5  # with fewer, intervals are far too narrow for claims about other cohorts
_FEW_SUBJECTS = 100  # fewer give percentages without decimals
_CLAIMS = {BETTER: "is better than", WORSE: "is worse than"}
_RESERVED = {BETTER: "is ahead of", WORSE: "is behind"}
_UNDECIDED = "is not distinguishable from"


@dataclass(frozen=True)
class Gain:
    """A gain in one of the two means, and its bootstrap interval."""

    reference: str  # of several references, the one that is best in the data
    gain: float
    low: float
    high: float
    share_above_0: float  # of the draws

    @property
    def judgement(self) -> str:
        if self.low > 0:
            return BETTER
        return WORSE if self.high < 0 else UNSURE  # the interval covers 0

    @property
    def words(self) -> str:
        """The gain and its interval, in points."""
        interval = f"{points(self.low)} to {points(self.high)}"
        return f"{points(self.gain)} points (95 % interval {interval})"


@dataclass(frozen=True)
class Duel:
    """One norm against one reference."""

    norm: str
    reference: str
    gains: dict[str, Gain]  # by "Mean(Dataset)" and "Mean(Subject)"
    improved: ImprovedResult
    hardest: HardestResult  # of the fifth with the lowest mean of both scores
    hardest_by_reference: HardestResult  # of the lowest under the reference, favours the norm
    caption: str  # what the intervals are based on, and what they do not cover
    reservation: str  # why claims cannot go beyond this data; empty if they can


def duels(values: pd.DataFrame, reference: str) -> dict[str, Duel]:
    """Compare every other norm with a reference; scores are shares by cohort, subject and seed."""
    drawn = bootstrap_gains(values, reference, resample_seeds=has_seeds(values))
    reserved, people = reservation(values), values
    if "seed" in values.index.names:
        people = values.groupby(level=["cohort", "subject"], observed=True).mean()
    return {
        norm: Duel(
            norm=norm,
            reference=reference,
            gains=gains_of(drawn.gains, norm),
            improved=share_improved(people, norm, reference),
            hardest=gain_on_hardest(people, norm, reference, by="mean"),
            hardest_by_reference=gain_on_hardest(people, norm, reference),
            caption=drawn.caption,
            reservation=reserved,
        )
        for norm in values.columns
        if norm != reference
    }


def reservation(values: pd.DataFrame) -> str:
    """Return why nothing can be claimed beyond these scores, as "one seed and 2 cohorts"."""
    # docs/statistics.md: how often equal norms seem to differ with so little data
    reasons, seeds = [], seeds_of_cohorts(values)
    if len(seeds) and seeds.min() == 1:
        reasons.append("one seed" if seeds.max() == 1 else "one seed in some cohorts")
    n_cohorts = values.dropna().index.get_level_values("cohort").nunique()
    if n_cohorts < ENOUGH_COHORTS:
        reasons.append(plural(n_cohorts, "cohort"))
    return listed(reasons)


def gains_of(gains: pd.DataFrame, norm: str) -> dict[str, Gain]:
    """Return the gains of a norm from the table of a bootstrap, by mean."""
    own = gains[gains["norm"] == norm].set_index("mean")
    columns = ["reference", "gain", "low", "high", "share_above_0"]
    return {str(mean): Gain(*row) for mean, *row in own[columns].itertuples()}


def duel_cells(duel: Duel | None, mean: str = MEAN_DATASET) -> list[str]:
    """Return the cells of a table with the head DUEL_HEAD; gains are in one of the means."""
    if duel is None:
        return [NOT_THERE] * len(DUEL_HEAD)
    gain = duel.gains[mean]
    return [
        points(gain.gain),
        f"{points(gain.low)} to {points(gain.high)}",
        percent(gain.share_above_0),
        percent(duel.improved.share),
        points(duel.hardest.gain),
    ]


DUEL_HEAD = (
    "gain",
    "95 % interval",
    "% of draws above 0",
    "% improved",
    "gain of the hardest fifth",
)


def percent(value: float) -> str:
    """Return a share as a percentage.

    >>> percent(0.79514), percent(float("nan"))
    ('79.51', '–')
    """
    return NOT_THERE if np.isnan(value) else f"{100 * value:.2f}"


def points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign.

    >>> points(0.012), points(-0.004), points(0.00001)
    ('+1.20', '−0.40', '0.00')
    """
    if np.isnan(value):
        return NOT_THERE
    text = f"{abs(100 * value):.2f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def spread(mean: float, by_seed: "pd.Series[float]") -> str:
    """Return a mean in percent and its standard deviation over seeds, if there are several.

    >>> spread(0.71, pd.Series([0.70, 0.72])), spread(0.7, pd.Series([0.7]))
    ('71.00 ± 1.41', '70.00')
    """
    deviation = f" ± {percent(by_seed.std(ddof=1))}" if len(by_seed) > 1 else ""
    return percent(mean) + deviation


def gain_words(name: str, reference: str, gains: dict[str, Gain], reserved: str = "") -> str:
    """Return a sentence on how much a norm gains over a reference, in both means."""
    own = len({gain.reference for gain in gains.values()}) > 1
    parts: dict[str, str] = {}
    for mean, gain in gains.items():
        against = f"against {norm_name(gain.reference)} " if own else ""
        words = f"{against}{gain.words}, above 0 in {percent(gain.share_above_0)} % of draws"
        parts[mean] = "the same" if words in parts.values() else words
    numbers = "; ".join(f"{mean} {words}" for mean, words in parts.items())
    return f"{name} {_claim(reference, gains, reserved)}: {numbers}."


def _claim(reference: str, gains: dict[str, Gain], reserved: str) -> str:
    """Return the claim about a norm and a reference, or one per mean if the means disagree."""
    verbs = _RESERVED if reserved else _CLAIMS
    found = {mean: verbs.get(gain.judgement, _UNDECIDED) for mean, gain in gains.items()}
    if len({*found.values()}) == 1:
        claim = f"{next(iter(found.values()))} {reference}"
    else:
        whom = [reference, *["it"] * (len(found) - 1)]
        parts = zip(found.values(), whom, found, strict=True)
        claim = " and ".join(f"{verb} {who} by {mean}" for verb, who, mean in parts)
    if reserved and {*found.values()} != {_UNDECIDED}:
        claim += f" in this data ({reserved}: too few to claim more)"
    return claim


def people_words(name: str, reference: str, duel: Duel) -> list[str]:
    """Return sentences on how many subjects gain, and how much the hardest do."""
    better, hard, own = duel.improved, duel.hardest, duel.hardest_by_reference
    n = better.n_blocks
    share, low, high = (_share(value, n) for value in (better.share, better.low, better.high))
    return [
        f"{share} % of {plural(n, 'subject')} {'do' if n != 1 else 'does'} better with {name} "
        f"than with {reference} (95 % interval {low} to {high} %): "
        f"{better.improved:,} better, {better.tied:,} alike, {better.worse:,} worse.",
        f"The hardest 20 % ({plural(hard.n_hardest, 'subject')}, by the mean of both scores) gain "
        f"{points(hard.gain)} points; by the scores of {reference} itself, a choice that favours "
        f"{name}, {points(own.gain)} points.",
    ]


def _share(value: float, n: int) -> str:
    """Return a share of n people in percent, without decimals where these are few."""
    return f"{100 * value:.0f}" if n < _FEW_SUBJECTS and not np.isnan(value) else percent(value)
