"""The verdict on a contest: its sentences, its limits, its table, and its numbers for programs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import (
    BEST_BASELINE,
    FewerSubjectsResult,
    HardestResult,
    bootstrap_gains,
    cohort_caveat,
    friedman,
    nemenyi,
    wilcoxon_holm,
)
from psdnorm.report.contest import BATCH, MEANS, Contest, has_seeds, means_of_others
from psdnorm.report.curves import Factors, factor_words, size_factors
from psdnorm.report.results import Results
from psdnorm.report.tables import TableCell, with_best
from psdnorm.report.verdict.duel import (
    DUEL_HEAD,
    NOT_THERE,
    UNSURE,
    Duel,
    Gain,
    duel_cells,
    duels,
    gain_words,
    gains_of,
    people_words,
    percent,
    points,
    reservation,
    spread,
)
from psdnorm.runtime import listed, plural
from psdnorm.training import PAPER_NORMS, SIZES, WITH_PSD_NORM, model_name, norm_name

SIMULATED = "Nights are simulated: nothing here is about patients, or ranks norms for them."
_OVER_BEST = "gain over the best other baseline (95 % interval)"
_NAMED_ARMS = 4


@dataclass(frozen=True, eq=False)
class Verdict:
    """The result of a contest."""

    results: Results
    contest: Contest
    winner: str  # the norm with the highest Mean(Dataset), the first one if several tie
    focus: str  # the norm that the sentences are about: PSDNorm where it was run, else the winner
    duels: dict[str, Duel]  # every other norm against BatchNorm; empty if that was not run
    # by norm and mean: the gain over the best baseline (for a baseline, over the best of the
    # others); empty if BatchNorm is the only baseline: see duels
    over_best: dict[str, dict[str, Gain]]
    factors: Factors  # how many times fewer training subjects PSDNorm needs than BatchNorm

    @property
    def headline(self) -> str:
        """Who won, by how much, and on how many cohorts and seeds."""
        contest = self.contest
        if not len(contest.subjects):
            return "No norm has a score that can be compared."
        mean, name = float(contest.means.loc[MEAN_DATASET, self.winner]), norm_name(self.winner)
        score = f"{percent(mean)} % balanced accuracy (Mean(Dataset))"
        highest = f"the highest balanced accuracy, {percent(mean)} % (Mean(Dataset))"
        if len(contest.arms) == 1:
            result = f"Only {name} can be judged: {score}"
        elif len(contest.leaders()) > 1:
            result = f"{listed([norm_name(norm) for norm in contest.leaders()])} share {highest}"
        else:
            result = f"{name} has {highest}{self._lead()}"
        data = f"{plural(len(contest.cohorts), 'cohort')}, {_seeds(contest.n_seeds)}"
        return f"{result} ({data}).{self._better_setting(mean)}"

    def _better_setting(self, mean: float) -> str:
        """Name the best other filter size or depth if it is above the winner."""
        others = means_of_others(self.results, self.contest)
        highest = float(others.max())  # NaN where there is none
        if not highest > mean or percent(highest) == percent(mean):
            return ""
        best, which = self.results.named(str(others.idxmax())), "the only other setting"
        if len(others) > 1:
            which = f"the best of {len(others)} other settings by these same scores"
        return f" {best}, {which}, has more: {percent(highest)} %."

    def _next(self) -> str:
        """Return the norm with the highest Mean(Dataset) after the winner."""
        return str(self.contest.means.loc[MEAN_DATASET].drop(self.winner).idxmax())

    def _lead(self) -> str:
        """Say how far the winner is ahead of BatchNorm, or BatchNorm, if it won, of the next."""
        if self.winner == BATCH:
            name, gain = norm_name(self._next()), self.duels[self._next()].gains[MEAN_DATASET]
            if gain.judgement == UNSURE:
                return (
                    f", but is not distinguishable from the next, {name}: {gain.words} against it"
                )
            return f"; the next is {name}, {gain.words} against it"
        if self.winner not in self.duels:
            return "; BatchNorm is not among the norms, so its gain over BatchNorm is unknown"
        gain = self.duels[self.winner].gains[MEAN_DATASET]
        if gain.judgement == UNSURE:
            return f", but is not distinguishable from BatchNorm: {gain.words}"
        return f": {gain.words} over BatchNorm{self._close_second()}"

    def _close_second(self) -> str:
        """Name the next norm if it cannot be distinguished from the winner and is not BatchNorm."""
        following = self._next()
        if following == BATCH:
            return ""
        for norm, reference in ((self.winner, following), (following, self.winner)):
            # neither of two PSDNorms is the other's baseline: their difference is unknown
            gain = self.over_best.get(norm, {}).get(MEAN_DATASET)
            if gain is not None and gain.reference == reference and gain.judgement == UNSURE:
                return f", but not distinguishable from {norm_name(following)}"
        return ""

    @cached_property
    def sentences(self) -> list[str]:
        """How much, how certain, for whom, on what data."""
        contest = self.contest
        if not len(contest.subjects):
            return []
        found, duel = [], self.duels.get(self.focus)
        name, reference = norm_name(self.focus), norm_name(BATCH)
        if duel is not None:
            found.append(gain_words(name, reference, duel.gains, duel.reservation))
        found += self._over_best_words()
        if duel is not None:
            found += people_words(name, reference, duel)
        first, instead = contest.leaders(), contest.leaders(MEAN_SUBJECT)
        if not {*first} & {*instead}:
            those, these = (listed([*map(norm_name, norms)]) for norms in (instead, first))
            found.append(
                f"By Mean(Subject), in which large cohorts weigh more, {those} "
                f"{'is' if len(instead) == 1 else 'are'} first, not {these}."
            )
        if self.factors:
            words = [factor_words(label, *each) for label, each in self.factors.items()]
            model = model_name(contest.model)
            found.append(f"By the training sizes of {model} (Mean(Dataset)): {' '.join(words)}")
        test = friedman(contest.tables.datasets)
        if test.p == test.p:
            alike = "; ".join(filter(None, ["that all norms rank alike", test.note]))
            found.append(f"Friedman's test over {test.counted}: p = {test.p:.2g} ({alike}).")
        return [*found, *filter(None, [contest.partial]), self._data()]

    def _over_best_words(self) -> list[str]:
        """Compare the focus with the best baseline of each mean."""
        if self.focus not in self.over_best:
            return []
        contest, gains = self.contest, self.over_best[self.focus]
        is_baseline = not self.focus.startswith("psd")
        n_baselines = sum(not norm.startswith("psd") for norm in contest.arms) - is_baseline
        references = dict.fromkeys(norm_name(gain.reference) for gain in gains.values())
        best = next(iter(references))
        if is_baseline and n_baselines == 1 and best == norm_name(BATCH):
            return []  # the previous sentence says it
        kind = "the best of the other norms" if is_baseline else "the best baseline"
        reference = f"{best}, the only {'other norm' if is_baseline else 'baseline'}"
        if n_baselines > 1:
            named = f"here {best}, " if len(references) == 1 else ""
            reference = f"{kind} ({named}chosen anew in every draw)"
        reserved = reservation(contest.tables.by_seed)
        return [gain_words(norm_name(self.focus), reference, gains, reserved)]

    def _data(self) -> str:
        cohorts, people = self.contest.cohorts, plural(int(self.contest.cohorts.sum()), "subject")
        held = "1 cohort, held out"
        each = f"{cohorts.index[0]} {people}"
        if len(cohorts) > 1:
            held = f"{len(cohorts)} cohorts, each held out once"
            each = f"{', '.join(f'{cohort} {n:,}' for cohort, n in cohorts.items())}: {people}"
        nights = "simulated nights" if self.results.simulated else "real nights"
        return (
            f"Data: {held} ({each}), {nights}, recipe {self.results.recipe}; {self.contest.name}; "
            f"{_seeds(self.contest.n_seeds)}."
        )

    @cached_property
    def limits(self) -> list[str]:
        """What cannot be concluded."""
        results, contest = self.results, self.contest
        found = [SIMULATED] if results.simulated else []
        found += limits_of_seeds(contest.n_seeds)
        if contest.n_seeds[1] and contest.seeds[MEAN_DATASET].empty:
            found.append(
                "Cohorts have different seeds, and no seed has all of them: the verdict takes each "
                "subject's mean over the seeds that all norms have, and there is no ±."
            )
        found += [*self._interval_limits(), *self._norm_limits()]
        if n := len(results.missing):
            them = "them" if n > 1 else "it"
            found.append(f"{plural(n, 'requested run')} gave no result; the page lists {them}.")
        found.append(
            f"The recipe is {results.recipe}: with another one, other differences between cohorts "
            "reach the network, and gains may differ."
        )
        return found

    def _interval_limits(self) -> list[str]:
        found, n_cohorts = [], len(self.contest.cohorts)
        if len(self.contest.arms) > 2:
            lucky = "The first of several norms is partly the luckiest"
            found.append(f"{lucky}; its interval does not allow for that.")
        if self.duels or self.over_best:
            found.append(limits_of_intervals(self.contest.n_seeds, n_cohorts))
        if self.duels:
            found += limits_of_duels(self.duels.values())
        elif n_cohorts == 1:
            found.append("One cohort: nothing is said of other cohorts.")
        elif self.over_best:
            found.append(cohort_caveat(n_cohorts))
        return found

    def _norm_limits(self) -> list[str]:
        """Say which norms, settings and scores are not compared."""
        contest, found = self.contest, []
        known = {*contest.arms, *contest.dropped}
        absent = [norm_name(norm) for norm in PAPER_NORMS if norm not in known]
        if absent:
            found.append(f"No result here, so nothing is said of: {', '.join(absent)}.")
        found += [*contest.reasons.values(), *contest.uncounted]
        if contest.others:
            shown = [self.results.named(arm, SIZES) for arm in contest.arms.values()]
            others = [self.results.named(arm, SIZES) for arm in contest.others]
            more = len(others) - _NAMED_ARMS
            named = [*others[:_NAMED_ARMS], *([f"{more} more"] if more > 0 else [])]
            found.append(
                f"Norms are compared as {', '.join(shown)}; the results of other filter sizes and "
                f"depths ({', '.join(named)}) are in tables and figures."
            )
        return found

    @property
    def head(self) -> list[str]:
        """Names of the columns of :meth:`rows`."""
        last = [_OVER_BEST] if self.over_best else []
        return ["norm", *(f"{mean}, %" for mean in MEANS), *DUEL_HEAD, *last]

    def rows(self) -> list[list[str | TableCell]]:
        """Return one row per norm; the highest means are in bold."""
        contest = self.contest
        columns = []
        for mean in MEANS:
            values, seeds = contest.means.loc[mean], contest.seeds[mean]
            entries = [
                TableCell(spread(values[norm], seeds[norm]), 100 * float(values[norm]))
                for norm in contest.arms
            ]
            columns.append(with_best(entries))
        rows = []
        for norm, *means in zip(contest.arms, *columns, strict=True):
            row = [norm_name(norm), *means, *duel_cells(self.duels.get(norm))]
            if self.over_best:
                gain = self.over_best.get(norm, {}).get(MEAN_DATASET)
                interval = "" if gain is None else f"{points(gain.low)} to {points(gain.high)}"
                row.append(NOT_THERE if gain is None else f"{points(gain.gain)} ({interval})")
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for programs: words, and numbers as shares; None for NaN."""
        duels, tables = self.duels.items(), self.contest.tables
        counts = ("share", "low", "high", "improved", "tied", "worse")
        document = {
            "contest": self.contest.name,
            "winner": self.winner,
            "headline": self.headline,
            "sentences": self.sentences,
            "limits": self.limits,
            "gains_over_batchnorm": {norm: duel.gains for norm, duel in duels},
            "gains_over_best_baseline": self.over_best,
            "improved": {
                norm: {name: getattr(duel.improved, name) for name in counts}
                | {"subjects": duel.improved.n_blocks}
                for norm, duel in duels
            },
            "hardest_fifth": {
                norm: {
                    "by_mean_of_both": _hardest(duel.hardest),
                    "by_reference": _hardest(duel.hardest_by_reference),
                }
                for norm, duel in duels
            },
            "tests": {"datasets": _tests(tables.datasets), "subjects": _tests(tables.subjects)},
            "fewer_subjects": {label: _fewer(*found) for label, found in self.factors.items()},
        }
        return _known(document)


def judge(results: Results, contest: Contest) -> Verdict:
    """Return the verdict on a contest of all results."""
    winner = contest.leaders()[0] if len(contest.subjects) else next(iter(contest.arms))
    ours = [norm for norm in WITH_PSD_NORM if norm in contest.arms]
    values = contest.by_seed
    return Verdict(
        results=results,
        contest=contest,
        winner=winner,
        focus=winner if winner in ours or not ours else ours[0],
        duels=duels(values, BATCH) if BATCH in values and len(values) else {},
        over_best=_over_best(values) if len(values) else {},
        factors=size_factors(results, contest.model),
    )


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


def limits_of_seeds(n_seeds: tuple[int, int]) -> list[str]:
    """Return what one seed cannot show, given the fewest and most seeds counted in a cohort."""
    fewest, most = n_seeds
    where = " in some cohorts" if most > 1 else ""
    said = f"One seed{where}: one training cannot show how much of this is luck."
    return [said] if fewest == 1 else []


def limits_of_intervals(n_seeds: tuple[int, int], n_cohorts: int) -> str:
    """Return what intervals allow for, given the fewest and most seeds counted in a cohort."""
    others = f"{'other cohorts and ' * (n_cohorts > 1)}other people"
    if n_seeds[1] == 1:
        return (
            f"Intervals allow for {others}, not for the spread between trainings, which one seed "
            "cannot show."
        )
    return (
        f"Intervals allow for {others}, and for other trainings as far as {_seeds(n_seeds)} show "
        "them, which is little: they are still too narrow for that."
    )


def limits_of_duels(found: Iterable[Duel]) -> list[str]:
    """Return what duels are based on and what their intervals assume, each once."""
    known = list(found)
    captions = [*dict.fromkeys(duel.caption for duel in known)]
    words = "The interval of the share that does better treats subjects as independent."
    for caveat in dict.fromkeys(duel.improved.caveat for duel in known):
        is_said = any(caveat in caption for caption in captions)
        captions.append(words if is_said else f"{words} {caveat}")
    return [*filter(None, captions)]


def _seeds(n_seeds: tuple[int, int]) -> str:
    low, high = n_seeds
    return plural(high, "seed") if low == high else f"{low} to {high} seeds"


def _hardest(found: HardestResult) -> dict[str, Any]:
    return {"gain": found.gain, "subjects": found.n_hardest}


def _tests(values: pd.DataFrame) -> dict[str, Any]:
    """Return Friedman's test, and Nemenyi's and Wilcoxon's of every pair."""
    overall, ranks, pairs = friedman(values), nemenyi(values), wilcoxon_holm(values)
    notes = {"Friedman": overall.note, "Nemenyi": ranks.note, "Wilcoxon": pairs.note}
    return {
        "blocks": overall.n_blocks,
        "mean_ranks": dict(overall.mean_ranks),
        "friedman": {"statistic": overall.statistic, "p": overall.p},
        "nemenyi": {"critical_difference": ranks.critical_difference, "p": _by_pair(ranks.p)},
        "wilcoxon_holm": {"p": _by_pair(pairs.p)},
        "notes": [f"{test}: {note}" for test, note in notes.items() if note],
        "caveat": overall.caveat,
    }


def _by_pair(p: pd.DataFrame) -> dict[str, dict[str, Any]]:
    return {norm: dict(row.drop(norm)) for norm, row in p.iterrows()}


def _fewer(result: FewerSubjectsResult, by_seed: list[float]) -> dict[str, Any]:
    names = ("factor", "at_least", "reference_size", "norm_size", "note")
    target = result.target / 100  # curves are in percent
    numbers = {name: getattr(result, name) for name in names}
    return {**numbers, "factors_of_seeds": by_seed, "target": target}


def _known(value: Any) -> Any:
    """Return a document in the types of JSON: gains as dicts, None for NaN."""
    if isinstance(value, dict | Gain):
        items = value if isinstance(value, dict) else vars(value)
        return {str(name): _known(each) for name, each in items.items()}
    if isinstance(value, list):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
