"""The sentences of a verdict: who won, how much, how sure, for whom, on what data."""

from typing import TYPE_CHECKING

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import friedman
from psdnorm.report.figures import BATCH, factor_words
from psdnorm.report.verdict.duels import (
    UNSURE,
    Contest,
    gain_words,
    means_of_others,
    people_words,
    percent,
    reservation,
)
from psdnorm.runtime import listed, plural
from psdnorm.training import model_name, norm_name

if TYPE_CHECKING:
    from psdnorm.report.verdict.verdict import Verdict


def headline_of(verdict: "Verdict") -> str:
    """Say who won, by how much, and on how many cohorts and seeds.

    Parameters
    ----------
    verdict : Verdict
    """
    contest = verdict.contest
    if not len(contest.subjects):
        return "No norm has a score that can be compared."
    mean, name = float(contest.means.loc[MEAN_DATASET, verdict.winner]), norm_name(verdict.winner)
    if len(contest.arms) == 1:
        told = f"Only {name} can be judged: {percent(mean)} % balanced accuracy (Mean(Dataset))"
    elif len(contest.leaders()) > 1:
        names = listed([norm_name(norm) for norm in contest.leaders()])
        told = f"{names} share the highest balanced accuracy, {percent(mean)} % (Mean(Dataset))"
    else:
        told = f"{name} has the highest balanced accuracy, {percent(mean)} % (Mean(Dataset))"
        told += _lead(verdict)
    told += f" ({plural(len(contest.cohorts), 'cohort')}, {_seeds(contest)})."
    return told + _higher_setting(verdict, mean)


def _higher_setting(verdict: "Verdict", mean: float) -> str:
    """Name the best of other filter sizes and depths where it is above the winner."""
    others = means_of_others(verdict.results, verdict.contest)
    highest = float(others.max())  # NaN where there is none
    if not highest > mean or percent(highest) == percent(mean):
        return ""
    best, which = verdict.results.named(str(others.idxmax())), "the only other setting"
    if len(others) > 1:
        which = f"the best of {len(others)} other settings by these very scores"
    return f" {best}, {which}, has more: {percent(highest)} %."


def _lead(verdict: "Verdict") -> str:
    """Say how far the winner is ahead: of BatchNorm, or BatchNorm of the next."""
    if verdict.winner == BATCH:
        means = verdict.contest.means.loc[MEAN_DATASET].drop(BATCH)
        following = str(means.idxmax())
        gain, name = verdict.duels[following].gains[MEAN_DATASET], norm_name(following)
        if gain.judgement == UNSURE:
            return f", but is not distinguishable from the next, {name}: {gain.words} against it"
        return f"; the next is {name}, {gain.words} against it"
    if verdict.winner not in verdict.duels:
        return "; BatchNorm is not among the norms, so that no gain over it can be told"
    gain = verdict.duels[verdict.winner].gains[MEAN_DATASET]
    if gain.judgement == UNSURE:
        return f", but is not distinguishable from BatchNorm: {gain.words}"
    return f": {gain.words} over BatchNorm{_beside_the_next(verdict)}"


def _beside_the_next(verdict: "Verdict") -> str:
    """Name the next norm, unless it is BatchNorm, where it is not told apart from the winner."""
    means = verdict.contest.means.loc[MEAN_DATASET].drop(verdict.winner)
    following = str(means.idxmax())
    if following == BATCH:
        return ""
    for norm, reference in ((verdict.winner, following), (following, verdict.winner)):
        # of two PSDNorms neither is the other's baseline, and nothing is known of their difference
        gain = verdict.over_best.get(norm, {}).get(MEAN_DATASET)
        if gain is not None and gain.reference == reference and gain.judgement == UNSURE:
            return f", but not distinguishable from {norm_name(following)}"
    return ""


def sentences_of(verdict: "Verdict") -> list[str]:
    """Say how much, how sure, for whom, on what data.

    Parameters
    ----------
    verdict : Verdict
    """
    told, name = [], norm_name(verdict.focus)
    duel = verdict.duels.get(verdict.focus)
    if duel is not None:
        told.append(gain_words(name, "BatchNorm", duel.gains, duel.reservation))
    told += _over_best(verdict)
    if duel is not None:
        told += people_words(name, "BatchNorm", duel)
    told += _by_mean_over_subjects(verdict)
    if verdict.factors:
        said = [factor_words(label, *found) for label, found in verdict.factors.items()]
        model = model_name(verdict.contest.model)
        told.append(f"By the training sizes of {model} (Mean(Dataset)): {' '.join(said)}")
    tested = friedman(verdict.contest.tables.datasets)
    if tested.p == tested.p:
        rough = f"; {tested.note}" if tested.note else ""
        told.append(
            f"Friedman's test over {tested.counted}: p = {tested.p:.2g} "
            f"(that all norms rank alike{rough})."
        )
    return [*told, *filter(None, [verdict.contest.partial]), _data(verdict)]


def _over_best(verdict: "Verdict") -> list[str]:
    """Compare the focus with the best baseline, in each mean with its own."""
    if verdict.focus not in verdict.over_best:
        return []
    contest, gains = verdict.contest, verdict.over_best[verdict.focus]
    is_baseline = not verdict.focus.startswith("psd")
    n_baselines = sum(not norm.startswith("psd") for norm in contest.arms) - is_baseline
    references = dict.fromkeys(norm_name(gain.reference) for gain in gains.values())
    best = next(iter(references))
    if is_baseline and n_baselines == 1 and best == norm_name(BATCH):
        return []  # the sentence before says it
    kind = "the best of the other norms" if is_baseline else "the best baseline"
    reference = f"{best}, the only {'other norm' if is_baseline else 'baseline'}"
    if n_baselines > 1:
        named = f"here {best}, " if len(references) == 1 else ""
        reference = f"{kind} ({named}chosen anew in every draw)"
    reserved = reservation(contest.tables.by_seed)
    return [gain_words(norm_name(verdict.focus), reference, gains, reserved)]


def _by_mean_over_subjects(verdict: "Verdict") -> list[str]:
    winners, others = verdict.contest.leaders(), verdict.contest.leaders(MEAN_SUBJECT)
    if {*winners} & {*others}:
        return []
    first, instead = (listed([norm_name(norm) for norm in norms]) for norms in (winners, others))
    return [
        f"By Mean(Subject), in which large cohorts weigh more, {instead} "
        f"{'is' if len(others) == 1 else 'are'} first, not {first}."
    ]


def _data(verdict: "Verdict") -> str:
    results, contest = verdict.results, verdict.contest
    cohorts = contest.cohorts
    each = ", ".join(f"{cohort} {n:,}" for cohort, n in cohorts.items())
    if len(cohorts) > 1:
        held = f"{len(cohorts)} cohorts, each held out once"
        each += f": {plural(int(cohorts.sum()), 'subject')}"
    else:
        held = "1 cohort, held out"
        each += " subject" + "s" * (int(cohorts.sum()) != 1)
    nights = "simulated nights" if results.simulated else "real nights"
    return (
        f"Data: {held} ({each}), {nights}, recipe {results.recipe}; {contest.name}; "
        f"{_seeds(contest)}."
    )


def _seeds(contest: Contest) -> str:
    low, high = contest.n_seeds
    return plural(high, "seed") if low == high else f"{low} to {high} seeds"
