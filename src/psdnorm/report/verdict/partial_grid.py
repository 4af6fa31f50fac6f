"""What a grid lacks, and how what is there is counted, in words."""

from collections.abc import Collection, Sequence

import pandas as pd

from psdnorm.evaluation.statistics import BlockTables
from psdnorm.report.naming import listed, norm_name

Place = tuple[str, int]  # a held-out cohort and a seed


def whole_seeds(known: pd.DataFrame) -> list[int]:
    """Return the seeds that have a score in every cohort, sorted.

    Parameters
    ----------
    known : DataFrame, (n_scores, n_norms)
        Indexed by ``cohort``, ``subject`` and ``seed``, without NaN.
    """
    cohorts = known.reset_index().groupby("seed")["cohort"].nunique()
    return cohorts.index[cohorts == known.index.get_level_values("cohort").nunique()].to_list()


def partial_grid(
    places: Sequence[set[Place]], asked: Collection[Place], whole: Sequence[int]
) -> str:
    """Say how much of a grid lacks, and how the rest is counted.

    Parameters
    ----------
    places : sequence of set of (str, int)
        Of each norm: held-out cohorts and seeds of its finished cells.
    asked : collection of (str, int)
        Those of cells that were asked for and have no result.
    whole : sequence of int
        The seeds that have all cohorts that count.

    Returns
    -------
    str
        Empty where every norm has every place that another has or that was asked for.

    Examples
    --------
    >>> both = {("ABC", 0), ("ABC", 1), ("SOF", 0), ("SOF", 1)}
    >>> partial_grid([both, both - {("SOF", 1)}], [("SOF", 1)], [0])[:56]
    'Not complete: 1 of 8 cells has no result; norms are comp'
    """
    known = {*asked}.union(*places)
    cohorts, expected = {cohort for cohort, _ in known}, len(known)
    total, there = len(places) * expected, sum(map(len, places))
    if there == total:
        return ""
    shared = set.intersection(*places)
    without = sorted(cohorts - {cohort for cohort, _ in shared})
    left_out = f" ({listed(without)} {_are(len(without))} left out)" if without else ""
    compared = ""
    if len(places) > 1:
        compared = (
            f"norms are compared on the {len(shared):,} of {expected:,} places (a cohort in a "
            "seed) that all of them have, where "
        )
    return (
        f"Not complete: {total - there:,} of {total:,} cells {_have(total - there)} no result; "
        f"{compared}each cohort counts by the mean over its seeds{left_out}; {_spread(whole)}."
    )


def _spread(whole: Sequence[int]) -> str:
    """Say over which seeds ± is."""
    if len(whole) > 1:
        return f"± is over seeds {listed([*map(str, whole)])}, which have all of these cohorts"
    found = f"only seed {whole[0]} has" if whole else "no seed has"
    return f"there is no ±, as {found} all of these cohorts"


def lacking_scores(tables: BlockTables) -> list[str]:
    """Say what of compared norms does not count: cohorts, and parts of cohorts.

    Parameters
    ----------
    tables : BlockTables

    Returns
    -------
    list of str
        A sentence for each cohort and number of scores that norms lack there.
    """
    told = []
    there = {*tables.by_seed.dropna().index.get_level_values("cohort")}
    totals = tables.by_seed.groupby(level="cohort", observed=True).size()
    for cohort, lacking in tables.lacking.iterrows():
        total = totals[cohort]
        if cohort in there:
            told += [
                f"{listed(norms)} {'each lack' if len(norms) > 1 else 'lacks'} {count:,} of the "
                f"{total:,} scores of {cohort}."
                for count, norms in _by_number(lacking[lacking > 0]).items()
            ]
            continue
        without = [norm_name(str(norm)) for norm in lacking.index[lacking == total]]
        reason = f"{listed(without)} {_have(len(without))} no score there"
        if not without:
            reason = "no subject has a score of every norm in the same seed"
        told.append(f"{cohort} is left out for all norms, as {reason}.")
    return told


def _by_number(lacking: "pd.Series[int]") -> dict[int, list[str]]:
    """Return the names of norms by how many scores they lack."""
    named: dict[int, list[str]] = {}
    for norm, count in lacking.items():
        named.setdefault(int(count), []).append(norm_name(str(norm)))
    return named


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
