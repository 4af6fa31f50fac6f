"""What a verdict cannot say."""

from typing import TYPE_CHECKING

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.evaluation.statistics import cohort_caveat
from psdnorm.report.contest import Contest
from psdnorm.report.naming import norm_name
from psdnorm.report.tables.notes import counted

if TYPE_CHECKING:
    from psdnorm.report.verdict import Verdict

PAPER_NORMS = ("batch", "layer", "instance", "tma", "psd")
_NAMED_ARMS = 4


def limits_of(verdict: "Verdict") -> list[str]:
    """Say what the data cannot.

    Parameters
    ----------
    verdict : Verdict
    """
    results, told = verdict.results, []
    if results.simulated:
        told.append(
            "Nights are simulated: nothing here is about patients, or ranks norms for them."
        )
    told += [
        *_of_seeds(verdict.contest),
        *_of_intervals(verdict),
        *_of_norms(verdict.contest),
    ]
    n = len(results.lacking)
    if n:
        told.append(
            f"{counted(n, 'cell')} that {'were' if n > 1 else 'was'} asked for gave "
            f"no result; the page lists {'them' if n > 1 else 'it'}."
        )
    told.append(
        f"The recipe is {results.recipe}: with another one, other differences between clinics "
        "reach the network, and gains may differ."
    )
    return told


def _of_seeds(contest: Contest) -> list[str]:
    """Say what seeds cannot."""
    told = []
    most = contest.n_seeds[1]
    if most == 1:
        told.append(
            "One seed: how much of this is the luck of one training is not known, and there is "
            "no ±."
        )
    if most and contest.seeds[MEAN_DATASET].empty:
        told.append(
            "Cohorts have different seeds, and no seed has all of them: the verdict takes each "
            "subject's mean over the seeds that all norms have, and there is no ±."
        )
    return told


def _of_intervals(verdict: "Verdict") -> list[str]:
    """Say what intervals do not allow for."""
    contest, told = verdict.contest, []
    fewest, most = contest.n_seeds
    if len(contest.arms) > 2:
        told.append(
            "The first of several norms is partly the luckiest; its interval does not allow for "
            "that."
        )
    captions = [*dict.fromkeys(duel.caption for duel in verdict.duels.values())]
    if verdict.duels or verdict.over_best:
        others = f"{'other cohorts and ' * (len(contest.cohorts) > 1)}other people"
        drawn = (
            f"Intervals allow for {others}, not for other trainings: of one seed, none is known."
        )
        if most > 1:
            seeds = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
            drawn = (
                f"Intervals allow for {others}, and for other trainings as far as {seeds} show "
                "them, which is little: they are still too narrow for that."
            )
        told.append(drawn)
    if not captions and len(contest.cohorts) == 1:
        told.append("One cohort: nothing is said of other cohorts.")
    elif not captions and verdict.over_best:
        captions.append(cohort_caveat(len(contest.cohorts)))
    caveats = dict.fromkeys(duel.improved.caveat for duel in verdict.duels.values())
    for caveat in caveats:
        words = "The interval of the share that does better takes subjects for independent."
        is_told = any(caveat in caption for caption in captions)
        captions.append(words if is_told else f"{words} {caveat}")
    return [*told, *filter(None, captions)]


def _of_norms(contest: Contest) -> list[str]:
    """Say which norms, settings and scores are not compared."""
    told = []
    there = {*contest.arms, *contest.dropped}
    absent = [norm_name(norm) for norm in PAPER_NORMS if norm not in there]
    if absent:
        told.append(f"Without a result here, so that nothing is said of them: {', '.join(absent)}.")
    told += contest.left_out
    if contest.others:
        more = len(contest.others) - _NAMED_ARMS
        named = [*contest.others[:_NAMED_ARMS], *([f"{more} more"] if more > 0 else [])]
        told.append(
            f"Norms stand here with {', '.join(contest.arms.values())}; what other filter sizes "
            f"and depths came to ({', '.join(named)}) is in tables and figures."
        )
    return told
