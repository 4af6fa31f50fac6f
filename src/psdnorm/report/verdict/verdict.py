"""Which norm won, by how much and how surely, in plain words; and what cannot be said."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import BEST_BASELINE, FewerSubjectsResult, bootstrap_gains
from psdnorm.report.figures import size_factors
from psdnorm.report.results import Results
from psdnorm.report.tables import Entry, with_best
from psdnorm.report.verdict.duels import (
    DUEL_HEAD,
    NOT_THERE,
    Contest,
    Duel,
    Gain,
    duel_cells,
    duels,
    gains_of,
    has_seeds,
    points,
    spread,
)
from psdnorm.report.verdict.limits import limits_of
from psdnorm.report.verdict.numbers import numbers_of
from psdnorm.report.verdict.sentences import headline_of, sentences_of
from psdnorm.training import norm_name

BATCH = "batch"
MEANS = (MEAN_DATASET, MEAN_SUBJECT)
_OVER_BEST = "gain over the best other baseline (95 % interval)"


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a contest came to.

    Attributes
    ----------
    results : Results
    contest : Contest
    winner : str
        The norm with the highest Mean(Dataset); of those that share it, the first.
    focus : str
        The norm that the sentences are about: PSDNorm where it was run, else the winner.
    duels : dict of str to Duel
        Every other norm against BatchNorm; empty where that was not run.
    over_best : dict of str to dict of str to Gain
        By norm and mean: its gain over the best baseline, of a baseline over the best of the
        others. Empty where there is none but BatchNorm, which ``duels`` are about.
    factors : dict of str to tuple
        How many times fewer training subjects PSDNorm needs than BatchNorm, see
        :func:`psdnorm.report.figures.curve_figures.size_factors`.
    """

    results: Results
    contest: Contest
    winner: str
    focus: str
    duels: dict[str, Duel]
    over_best: dict[str, dict[str, Gain]]
    factors: dict[str, tuple[FewerSubjectsResult, list[float]]]

    @property
    def headline(self) -> str:
        """Who won, by how much, and on how many cohorts and seeds."""
        return headline_of(self)

    @cached_property
    def sentences(self) -> list[str]:
        """How much, how sure, for whom, on what data."""
        return sentences_of(self) if len(self.contest.subjects) else []

    @cached_property
    def limits(self) -> list[str]:
        """What cannot be said."""
        return limits_of(self)

    def rows(self) -> list[list[str | Entry]]:
        """Return one row per norm, see :attr:`head`; the highest means are in bold."""
        contest = self.contest
        columns = []
        for mean in MEANS:
            values, seeds = contest.means.loc[mean], contest.seeds[mean]
            entries = [
                Entry(spread(values[norm], seeds[norm]), 100 * float(values[norm]))
                for norm in contest.arms
            ]
            columns.append(with_best(entries))
        return [
            [
                norm_name(norm),
                *means,
                *duel_cells(self.duels.get(norm)),
                *self._over_best_cell(norm),
            ]
            for norm, *means in zip(contest.arms, *columns, strict=True)
        ]

    def _over_best_cell(self, norm: str) -> list[str]:
        if not self.over_best:
            return []
        if norm not in self.over_best:
            return [NOT_THERE]
        gain = self.over_best[norm][MEAN_DATASET]
        return [f"{points(gain.gain)} ({points(gain.low)} to {points(gain.high)})"]

    @property
    def head(self) -> list[str]:
        """Names of the columns of :meth:`rows`."""
        last = [_OVER_BEST] if self.over_best else []
        return ["norm", *(f"{mean}, %" for mean in MEANS), *DUEL_HEAD, *last]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: words, and numbers as shares; None where there is none."""
        words = {
            "contest": self.contest.name,
            "winner": self.winner,
            "headline": self.headline,
            "sentences": self.sentences,
            "limits": self.limits,
        }
        return words | numbers_of(self)


def judge(results: Results, contest: Contest) -> Verdict:
    """Say what a contest came to.

    Parameters
    ----------
    results : Results
    contest : Contest
        From :func:`psdnorm.report.verdict.duels.contests`.

    Returns
    -------
    Verdict
    """
    winner = next(iter(contest.arms))
    if len(contest.subjects):
        winner = contest.leaders()[0]
    ours = [norm for norm in ("psd", "psd-white") if norm in contest.arms]
    focus = winner if winner in ours or not ours else ours[0]
    values = contest.tables.by_seed.dropna()
    found = duels(values, BATCH) if BATCH in values and len(values) else {}
    over_best = _over_best(values) if len(values) else {}
    factors = size_factors(results, contest.model)
    return Verdict(results, contest, winner, focus, found, over_best, factors)


def _over_best(values: pd.DataFrame) -> dict[str, dict[str, Gain]]:
    baselines = [norm for norm in values if not str(norm).startswith("psd")]
    if not baselines or baselines == [BATCH]:
        return {}
    drawn = bootstrap_gains(
        values,
        BEST_BASELINE,
        baselines=baselines,
        among_baselines=True,
        resample_seeds=has_seeds(values),
    )
    return {norm: gains_of(drawn.gains, norm) for norm in dict.fromkeys(drawn.gains["norm"])}
