"""A norm against a reference: how much it gains, how sure that is, and who gains."""

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

BETTER, WORSE, UNSURE = "better", "worse", "not distinguishable"
NOT_THERE = "–"


@dataclass(frozen=True)
class Gain:
    """A gain in one of the two means, its interval, and the share of draws in which it is above 0.

    Attributes
    ----------
    reference : str
        The norm that it is over; of several, the one that is best in the data.
    gain, low, high, share_above_0 : float
    """

    reference: str
    gain: float
    low: float
    high: float
    share_above_0: float

    @property
    def judgement(self) -> str:
        """:data:`BETTER`, :data:`WORSE`, or :data:`UNSURE` where the interval covers 0."""
        if self.low > 0:
            return BETTER
        return WORSE if self.high < 0 else UNSURE

    @property
    def words(self) -> str:
        """The gain and its interval, in points."""
        return (
            f"{points(self.gain)} points (95 % interval {points(self.low)} to {points(self.high)})"
        )


@dataclass(frozen=True)
class Duel:
    """One norm against one reference.

    Attributes
    ----------
    norm, reference : str
    gains : dict of str to Gain
        By "Mean(Dataset)" and "Mean(Subject)".
    improved : ImprovedResult
    hardest : HardestResult
        Of the fifth with the lowest mean of both scores.
    hardest_by_reference : HardestResult
        Of the fifth with the lowest scores under the reference, which favours the norm.
    caption : str
        What the intervals stand on, and do not say.
    """

    norm: str
    reference: str
    gains: dict[str, Gain]
    improved: ImprovedResult
    hardest: HardestResult
    hardest_by_reference: HardestResult
    caption: str


def duels(values: pd.DataFrame, reference: str) -> dict[str, Duel]:
    """Compare every other norm with a reference.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms)
        Indexed by ``cohort`` and ``subject``; scores, higher is better.
    reference : str
        One of the norms.

    Returns
    -------
    dict of str to Duel
        By norm, in the order of ``values``.
    """
    drawn = bootstrap_gains(values, reference)
    made = {}
    for norm in values.columns:
        if norm != reference:
            made[norm] = Duel(
                norm=norm,
                reference=reference,
                gains=gains_of(drawn.gains, norm),
                improved=share_improved(values, norm, reference),
                hardest=gain_on_hardest(values, norm, reference, by="mean"),
                hardest_by_reference=gain_on_hardest(values, norm, reference),
                caption=drawn.caption,
            )
    return made


def gains_of(gains: pd.DataFrame, norm: str) -> dict[str, Gain]:
    """Return the gains of a norm from the table of a bootstrap, by mean."""
    own = gains[gains["norm"] == norm].set_index("mean")
    columns = ["reference", "gain", "low", "high", "share_above_0"]
    return {str(mean): Gain(*row) for mean, *row in own[columns].itertuples()}


def duel_cells(duel: Duel | None, mean: str = MEAN_DATASET) -> list[str]:
    """Return a duel as cells of a table, see :data:`DUEL_HEAD`; gains of one of the means."""
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

    Examples
    --------
    >>> percent(0.79514), percent(float("nan"))
    ('79.51', '–')
    """
    return NOT_THERE if np.isnan(value) else f"{100 * value:.2f}"


def points(value: float) -> str:
    """Return a difference of shares in percentage points, with its sign.

    Examples
    --------
    >>> points(0.012), points(-0.004), points(0.00001)
    ('+1.20', '−0.40', '0.00')
    """
    if np.isnan(value):
        return NOT_THERE
    text = f"{abs(100 * value):.2f}"
    if float(text) == 0:
        return text
    return f"{'+' if value > 0 else '−'}{text}"


def spread(mean: float, by_seed: "pd.Series[float]") -> str:
    """Return a mean in percent and its standard deviation over seeds, where there are two.

    Examples
    --------
    >>> spread(0.71, pd.Series([0.70, 0.72])), spread(0.7, pd.Series([0.7]))
    ('71.00 ± 1.41', '70.00')
    """
    deviation = f" ± {percent(by_seed.std(ddof=1))}" if len(by_seed) > 1 else ""
    return percent(mean) + deviation


def gain_words(name: str, reference: str, gains: dict[str, Gain]) -> str:
    """Say how much something gains over a reference, in both means.

    Parameters
    ----------
    name, reference : str
        As a sentence names them.
    gains : dict of str to Gain
        By mean; whether it is better at all goes by Mean(Dataset).
    """
    words = {BETTER: "is better than", WORSE: "is worse than"}
    relation = words.get(gains[MEAN_DATASET].judgement, "is not distinguishable from")
    both = "; ".join(
        f"{mean} {gain.words}, above 0 in {percent(gain.share_above_0)} % of draws"
        for mean, gain in gains.items()
    )
    return f"{name} {relation} {reference}: {both}."


def people_words(name: str, reference: str, duel: Duel) -> list[str]:
    """Say who gains: how many subjects, and the hardest.

    Parameters
    ----------
    name, reference : str
        As a sentence names them.
    duel : Duel
    """
    better, hard, own = duel.improved, duel.hardest, duel.hardest_by_reference
    return [
        f"{percent(better.share)} % of {better.n_blocks:,} subjects do better with {name} than "
        f"with {reference} (95 % interval {percent(better.low)} to {percent(better.high)} %): "
        f"{better.improved:,} better, {better.tied:,} alike, {better.worse:,} worse.",
        f"The hardest 20 % ({hard.n_hardest:,} subjects, by the mean of both scores) gain "
        f"{points(hard.gain)} points; by the scores of {reference} itself, a choice that favours "
        f"{name}, {points(own.gain)} points.",
    ]
