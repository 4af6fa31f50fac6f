"""Which norm won, by how much and how surely, in plain words; and what cannot be said."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import BEST_BASELINE, bootstrap_gains, friedman
from psdnorm.report.contest import Contest
from psdnorm.report.duels import (
    DUEL_HEAD,
    UNSURE,
    Duel,
    Gain,
    duel_cells,
    duels,
    gain_words,
    gains_of,
    people_words,
    percent,
    spread,
)
from psdnorm.report.naming import norm_name
from psdnorm.report.results import Results

BATCH = "batch"
PAPER_NORMS = (BATCH, "layer", "instance", "tma", "psd")
MEANS = (MEAN_DATASET, MEAN_SUBJECT)
_NAMED_ARMS = 4


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a contest came to.

    Attributes
    ----------
    results : Results
    contest : Contest
    winner : str
        The norm with the highest Mean(Dataset).
    focus : str
        The norm that the sentences are about: PSDNorm where it was run, else the winner.
    duels : dict of str to Duel
        Every other norm against BatchNorm; empty where that was not run.
    over_best : dict of str to Gain
        The focus against the best of the baselines, by mean; empty where it is one itself.
    """

    results: Results
    contest: Contest
    winner: str
    focus: str
    duels: dict[str, Duel]
    over_best: dict[str, Gain]

    @property
    def headline(self) -> str:
        """Who won and by how much."""
        return _headline(self)

    @cached_property
    def sentences(self) -> list[str]:
        """How much, how sure, for whom, on what data."""
        return _sentences(self) if len(self.contest.subjects) else []

    @cached_property
    def limits(self) -> list[str]:
        """What cannot be said."""
        return _limits(self)

    def rows(self) -> list[list[str]]:
        """Return one row per norm, see :attr:`head`."""
        contest = self.contest
        return [
            [
                norm_name(norm),
                *(
                    spread(contest.means.loc[mean, norm], contest.seeds[mean][norm])
                    for mean in MEANS
                ),
                *duel_cells(self.duels.get(norm)),
            ]
            for norm in self.contest.arms
        ]

    @property
    def head(self) -> list[str]:
        """Names of the columns of :meth:`rows`."""
        return ["norm", *(f"{mean}, %" for mean in MEANS), *DUEL_HEAD]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: words, and numbers as shares."""
        return {
            "contest": self.contest.name,
            "winner": self.winner,
            "headline": self.headline,
            "sentences": self.sentences,
            "limits": self.limits,
            "gains_over_batchnorm": {
                norm: {mean: vars(gain) for mean, gain in duel.gains.items()}
                for norm, duel in self.duels.items()
            },
            "gains_over_best_baseline": {
                self.focus: {mean: vars(gain) for mean, gain in self.over_best.items()}
            },
        }


def judge(results: Results, contest: Contest) -> Verdict:
    """Say what a contest came to.

    Parameters
    ----------
    results : Results
    contest : Contest
        From :func:`psdnorm.report.contest.contests`.

    Returns
    -------
    Verdict
    """
    values = contest.subjects
    winner = next(iter(contest.arms))
    if len(values):
        winner = str(contest.means.loc[MEAN_DATASET].idxmax())
    ours = [norm for norm in ("psd", "psd-white") if norm in contest.arms]
    focus = winner if winner in ours or not ours else ours[0]
    found = duels(values, BATCH) if BATCH in values and len(values) else {}
    over_best = _over_best(values, focus) if len(values) else {}
    return Verdict(results, contest, winner, focus, found, over_best)


def _over_best(values: pd.DataFrame, focus: str) -> dict[str, Gain]:
    baselines = [norm for norm in values if not str(norm).startswith("psd")]
    if focus in baselines or not baselines:
        return {}
    return gains_of(bootstrap_gains(values, BEST_BASELINE, baselines=baselines).gains, focus)


def _headline(verdict: Verdict) -> str:
    if not len(verdict.contest.subjects):
        return "No norm has a score that can be compared."
    mean = float(verdict.contest.means.loc[MEAN_DATASET, verdict.winner])
    name, found = norm_name(verdict.winner), verdict.duels.get(verdict.winner)
    if len(verdict.contest.arms) == 1:
        return f"Only {name} can be judged: {percent(mean)} % balanced accuracy (Mean(Dataset))."
    told = f"{name} has the highest balanced accuracy, {percent(mean)} % (Mean(Dataset))"
    if verdict.winner == BATCH:
        return f"{told}: no other norm gained over it."
    if found is None:
        return f"{told}; BatchNorm is not among the norms, so that no gain over it can be told."
    gain = found.gains[MEAN_DATASET]
    if gain.judgement == UNSURE:
        return f"{told}, but is not distinguishable from BatchNorm: {gain.words}."
    return f"{told}: {gain.words} over BatchNorm."


def _sentences(verdict: Verdict) -> list[str]:
    told, name = [], norm_name(verdict.focus)
    duel = verdict.duels.get(verdict.focus)
    if duel is not None:
        told.append(gain_words(name, "BatchNorm", duel.gains))
    if verdict.over_best:
        best = norm_name(verdict.over_best[MEAN_DATASET].reference)
        several = sum(not norm.startswith("psd") for norm in verdict.contest.arms) > 1
        chosen = f"the best baseline ({best} in this data, chosen anew in every draw)"
        reference = chosen if several else f"{best}, the only baseline"
        told.append(gain_words(name, reference, verdict.over_best))
    if duel is not None:
        told += people_words(name, "BatchNorm", duel)
    told += _by_mean_over_subjects(verdict)
    tested = friedman(verdict.contest.tables.datasets)
    if tested.p == tested.p:
        told.append(
            f"Friedman's test over {tested.counted}: p = {tested.p:.2g} "
            "(that all norms rank alike)."
        )
    return [*told, _data(verdict.results, verdict.contest)]


def _by_mean_over_subjects(verdict: Verdict) -> list[str]:
    best = str(verdict.contest.means.loc[MEAN_SUBJECT].idxmax())
    if best == verdict.winner:
        return []
    return [
        f"By Mean(Subject), in which large cohorts weigh more, {norm_name(best)} is first, not "
        f"{norm_name(verdict.winner)}."
    ]


def _data(results: Results, contest: Contest) -> str:
    cohorts = contest.cohorts
    each = ", ".join(f"{cohort} {n:,}" for cohort, n in cohorts.items())
    nights = "simulated nights" if results.simulated else "real nights"
    n = len(cohorts)
    return (
        f"Data: {n} cohort{'s' * (n != 1)}, each held out once ({each}: {cohorts.sum():,} "
        f"subjects), {nights}, recipe {results.recipe}; {contest.name}; {_seeds(contest)}."
    )


def _seeds(contest: Contest) -> str:
    low, high = contest.n_seeds
    return f"{high} seed{'s' * (high != 1)}" if low == high else f"{low} to {high} seeds"


def _limits(verdict: Verdict) -> list[str]:
    """Say what the data cannot."""
    results, told = verdict.results, []
    if results.simulated:
        told.append(
            "Nights are simulated: nothing here is about patients, or ranks norms for them."
        )
    told += [*_limits_of_seeds(verdict), *_limits_of_norms(verdict.contest)]
    if results.lacking:
        n = len(results.lacking)
        told.append(
            f"{n} cell{'s' * (n != 1)} that {'were' if n > 1 else 'was'} asked for gave "
            "no result; they are listed below."
        )
    told.append(
        f"The recipe is {results.recipe}: with another one, other differences between clinics "
        "reach the network, and gains may differ."
    )
    return told


def _limits_of_seeds(verdict: Verdict) -> list[str]:
    """Say what seeds, cohorts and intervals cannot."""
    contest, told = verdict.contest, []
    fewest, most = contest.n_seeds
    if most == 1:
        told.append(
            "One seed: how much of this is the luck of one training is not known, and there is "
            "no ±."
        )
    if fewest != most or (most and contest.seeds[MEAN_DATASET].empty):
        told.append(
            "Cohorts have different seeds. The verdict takes each subject's mean over those that "
            "all norms have; the tables take only seeds that have all cohorts, so that their "
            "means differ."
        )
    if len(contest.arms) > 2:
        told.append(
            "The first of several norms is partly the luckiest; its interval over BatchNorm does "
            "not allow for that."
        )
    if verdict.duels:
        told.append(
            "Intervals allow for other cohorts and other people, not for other trainings: scores "
            "are averaged over seeds first."
        )
    captions = {duel.caption: None for duel in verdict.duels.values()}
    if not captions and len(contest.cohorts) == 1:
        told.append("One cohort: nothing is said of other cohorts.")
    return [*told, *captions]


def _limits_of_norms(contest: Contest) -> list[str]:
    """Say which norms, settings and scores are not compared."""
    told = []
    there = {*contest.arms, *contest.dropped}
    absent = [norm_name(norm) for norm in PAPER_NORMS if norm not in there]
    if absent:
        told.append(f"Without a result here, so that nothing is said of them: {', '.join(absent)}.")
    if contest.dropped:
        names = ", ".join(map(norm_name, contest.dropped))
        told.append(f"Left out, as no cohort and seed is shared with the other norms: {names}.")
    told += [f"Left out of the comparison: {_named(words)}." for words in contest.tables.left_out]
    if contest.others:
        more = len(contest.others) - _NAMED_ARMS
        named = [*contest.others[:_NAMED_ARMS], *([f"{more} more"] if more > 0 else [])]
        told.append(
            f"Norms stand here with {', '.join(contest.arms.values())}; what other filter sizes "
            f"and depths came to ({', '.join(named)}) is in tables and figures."
        )
    return told


def _named(left_out: str) -> str:
    """Name the norm of a sentence of :attr:`BlockTables.left_out` as the paper does."""
    norm, _, rest = left_out.partition(" ")
    return f"{norm_name(norm)} {rest}"
