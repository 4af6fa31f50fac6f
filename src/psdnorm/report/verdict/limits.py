"""What a verdict, or a comparison of two sides, cannot say."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.evaluation.statistics import cohort_caveat
from psdnorm.report.results import Results
from psdnorm.report.verdict.duels import Contest, Duel
from psdnorm.runtime import plural
from psdnorm.training import PAPER_NORMS, SIZES, norm_name

if TYPE_CHECKING:
    from psdnorm.report.verdict.verdict import Verdict

SIMULATED = "Nights are simulated: nothing here is about patients, or ranks norms for them."
_NAMED_ARMS = 4


def limits_of(verdict: "Verdict") -> list[str]:
    """Say what the data cannot.

    Parameters
    ----------
    verdict : Verdict
    """
    results, contest = verdict.results, verdict.contest
    told = [SIMULATED] if results.simulated else []
    told += [
        *of_one_seed(contest.n_seeds),
        *_of_seeds(contest),
        *_of_intervals(verdict),
        *_of_norms(results, contest),
    ]
    n = len(results.lacking)
    if n:
        told.append(
            f"{plural(n, 'cell')} that {'were' if n > 1 else 'was'} asked for gave "
            f"no result; the page lists {'them' if n > 1 else 'it'}."
        )
    told.append(
        f"The recipe is {results.recipe}: with another one, other differences between clinics "
        "reach the network, and gains may differ."
    )
    return told


def of_one_seed(n_seeds: tuple[int, int]) -> list[str]:
    """Say what one seed cannot.

    Parameters
    ----------
    n_seeds : (int, int)
        Fewest and most seeds that count in a cohort.
    """
    fewest, most = n_seeds
    if fewest != 1:
        return []
    where = " in some cohorts" if most > 1 else ""
    return [f"One seed{where}: how much of this is the luck of one training is not known."]


def of_draws(n_seeds: tuple[int, int], n_cohorts: int) -> str:
    """Say what intervals allow for.

    Parameters
    ----------
    n_seeds : (int, int)
        Fewest and most seeds that count in a cohort.
    n_cohorts : int
    """
    fewest, most = n_seeds
    others = f"{'other cohorts and ' * (n_cohorts > 1)}other people"
    if most == 1:
        return f"Intervals allow for {others}, not for other trainings: of one seed, none is known."
    seeds = plural(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    return (
        f"Intervals allow for {others}, and for other trainings as far as {seeds} show "
        "them, which is little: they are still too narrow for that."
    )


def of_duels(duels: Iterable[Duel]) -> list[str]:
    """Say what duels stand on and what their intervals take for granted, each once.

    Parameters
    ----------
    duels : iterable of Duel
    """
    found = list(duels)
    captions = [*dict.fromkeys(duel.caption for duel in found)]
    for caveat in dict.fromkeys(duel.improved.caveat for duel in found):
        words = "The interval of the share that does better takes subjects for independent."
        is_told = any(caveat in caption for caption in captions)
        captions.append(words if is_told else f"{words} {caveat}")
    return [*filter(None, captions)]


def _of_seeds(contest: Contest) -> list[str]:
    """Say what seeds that differ between cohorts cannot."""
    if not contest.n_seeds[1] or not contest.seeds[MEAN_DATASET].empty:
        return []
    return [
        "Cohorts have different seeds, and no seed has all of them: the verdict takes each "
        "subject's mean over the seeds that all norms have, and there is no ±."
    ]


def _of_intervals(verdict: "Verdict") -> list[str]:
    """Say what intervals do not allow for."""
    contest, told = verdict.contest, []
    n_cohorts = len(contest.cohorts)
    if len(contest.arms) > 2:
        told.append(
            "The first of several norms is partly the luckiest; its interval does not allow for "
            "that."
        )
    if verdict.duels or verdict.over_best:
        told.append(of_draws(contest.n_seeds, n_cohorts))
    if verdict.duels:
        told += of_duels(verdict.duels.values())
    elif n_cohorts == 1:
        told.append("One cohort: nothing is said of other cohorts.")
    elif verdict.over_best:
        told.append(cohort_caveat(n_cohorts))
    return told


def _of_norms(results: Results, contest: Contest) -> list[str]:
    """Say which norms, settings and scores are not compared."""
    told = []
    there = {*contest.arms, *contest.dropped}
    absent = [norm_name(norm) for norm in PAPER_NORMS if norm not in there]
    if absent:
        told.append(f"Without a result here, so that nothing is said of them: {', '.join(absent)}.")
    told += contest.left_out
    if contest.others:
        shown = [results.named(arm, SIZES) for arm in contest.arms.values()]
        others = [results.named(arm, SIZES) for arm in contest.others]
        more = len(others) - _NAMED_ARMS
        named = [*others[:_NAMED_ARMS], *([f"{more} more"] if more > 0 else [])]
        told.append(
            f"Norms stand here as {', '.join(shown)}; what other filter sizes and depths came to "
            f"({', '.join(named)}) is in tables and figures."
        )
    return told
