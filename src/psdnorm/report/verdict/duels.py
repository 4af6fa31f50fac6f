"""Arms against each other: all of them, and pair by pair."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import (
    BlockTables,
    HardestResult,
    ImprovedResult,
    block_tables,
    bootstrap_gains,
    gain_on_hardest,
    share_improved,
)
from psdnorm.report.naming import model_place, norms_in_order, standing_arm
from psdnorm.report.results import Results
from psdnorm.runtime import listed, plural
from psdnorm.training import norm_name, setting_name

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


METRIC = "balanced_accuracy"
_TIE = 1e-12  # as blocks are tied


@dataclass(frozen=True, eq=False)
class Contest:
    """Norms of one model and one training size, on the scores that all of them have.

    A cohort counts with the seeds in which all norms have it, in means and gains alike: a cell that
    one norm lacks costs the others this cell, not its seed. The spread over seeds is of those that
    have all cohorts, since other means are of other people.

    Attributes
    ----------
    model : str
    balanced : int, optional
        balanced@N; None for all subjects.
    arms : dict of str to str
        The arm that stands for each norm, in the order of the paper.
    others : list of str
        Arms of the same model and size that stand for none, say of other filter sizes.
    dropped : dict of str to str
        Norms that share too few cells with the others, and their arms; see
        :func:`norms_to_compare`.
    tables : BlockTables
        Balanced accuracies, blocks by norms.
    reasons : dict of str to str
        By dropped norm, a sentence that says why.
    lacking : list of str
        A sentence for each cohort, or part of one, that does not count, and why.
    partial : str
        What lacks in all and how the rest is counted, a sentence; empty where nothing lacks.
    """

    model: str
    balanced: int | None
    arms: dict[str, str]
    others: list[str]
    dropped: dict[str, str]
    tables: BlockTables
    reasons: dict[str, str]
    lacking: list[str]
    partial: str

    @property
    def name(self) -> str:
        """Model and training size, in words."""
        return setting_name(self.model, self.balanced)

    @cached_property
    def subjects(self) -> pd.DataFrame:
        """Mean over seeds, of the subjects that every norm has; (n_subjects, n_norms)."""
        return self.tables.subjects.dropna()

    @cached_property
    def means(self) -> pd.DataFrame:
        """Both means, each subject's mean over seeds first; (2, n_norms)."""
        over_datasets = self.subjects.groupby(level="cohort").mean().mean()
        return pd.DataFrame({MEAN_DATASET: over_datasets, MEAN_SUBJECT: self.subjects.mean()}).T

    def leaders(self, mean: str = MEAN_DATASET) -> list[str]:
        """Return the norm that is highest in a mean, or those that share this."""
        means = self.means.loc[mean]
        return [str(norm) for norm in means.index[means >= means.max() - _TIE]]

    @property
    def n_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds that count in a cohort; 0 where there is none."""
        known = self.tables.by_seed.dropna().reset_index("seed")["seed"]
        numbers = known.groupby(level="cohort").nunique()
        return (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)

    @cached_property
    def seeds(self) -> dict[str, pd.DataFrame]:
        """By mean: its values in every seed that has all cohorts, (n_seeds, n_norms).

        Without a row where no seed has all cohorts.
        """
        known = self.tables.by_seed.dropna()
        cohorts = known.groupby(level=["seed", "cohort"]).mean()
        whole = whole_seeds(known)
        return {
            MEAN_DATASET: cohorts.groupby(level="seed").mean().loc[whole],
            MEAN_SUBJECT: known.groupby(level="seed").mean().loc[whole],
        }

    @property
    def left_out(self) -> list[str]:
        """All that does not count, a sentence each: norms, then scores."""
        return [*self.reasons.values(), *self.lacking]

    @property
    def cohorts(self) -> "pd.Series[int]":
        """Number of subjects that count, by cohort."""
        return self.subjects.groupby(level="cohort").size()


def contests(results: Results) -> list[Contest]:
    """Return what can be compared: one contest per model and training size, the largest first.

    A norm that was run with several filter sizes or depths is represented by the paper's, f = 5 in
    three blocks, else by the arm with most cells. :func:`norms_to_compare` says which norms count.

    Parameters
    ----------
    results : Results

    Returns
    -------
    list of Contest
        Sorted by the number of norms, then of cells; U-Sleep and all subjects first among equals.
    """
    groups = results.cells.groupby(["model", "balanced"], dropna=False, sort=False)
    made = [_contest(results, cells) for _, cells in groups]
    return sorted(made, key=_place)


def means_of_others(results: Results, contest: Contest) -> "pd.Series[float]":
    """Return Mean(Dataset) of the arms that stand for no norm, on the scores that count.

    Parameters
    ----------
    results : Results
    contest : Contest

    Returns
    -------
    Series, (n_arms,)
        By arm; without those that lack one of these scores.
    """
    counted = contest.tables.by_seed.dropna().index
    arms = results.cells[results.cells["arm"].isin(contest.others)][["cell", "arm", "seed"]]
    scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(arms, on="cell")
    values = scores.pivot(index=list(counted.names), columns="arm", values=METRIC)
    subjects = values.reindex(counted).dropna(axis="columns").groupby(["cohort", "subject"]).mean()
    return subjects.groupby(level="cohort").mean().mean()


def norms_to_compare(places: Mapping[str, set[Place]]) -> tuple[list[str], set[Place]]:
    """Choose the norms to compare, so that one with few cells does not cost the others theirs.

    These have the most cells to compare: places that all of them have, times pairs of norms. Of
    sets that are equal in this, it is the one with most places, then one with BatchNorm, then one
    with PSDNorm. Of five norms, say, one that lacks a tenth of the places stays, and one that has a
    third of them does not.

    Parameters
    ----------
    places : mapping of str to set of (str, int)
        By norm: held-out cohorts and seeds of its finished cells.

    Returns
    -------
    norms : list of str
        In the order of ``places``; one alone where no two share a place.
    shared : set of (str, int)
        The places that all of them have.

    Examples
    --------
    >>> norms_to_compare({"batch": {("A", 0), ("A", 1)}, "psd": {("A", 0)}, "tma": {("B", 0)}})
    (['batch', 'psd'], {('A', 0)})
    """
    shared: dict[frozenset[Place], None] = {}
    for own in map(frozenset, places.values()):
        shared |= dict.fromkeys([own, *(own & other for other in shared)])

    def worth(common: frozenset[Place]) -> tuple:
        norms = _having(places, common)
        pairs = len(norms) * (len(norms) - 1) // 2
        return pairs * len(common), len(common), "batch" in norms, "psd" in norms

    best = max(filter(None, shared), key=worth)
    return _having(places, best), set(best)


def _having(places: Mapping[str, set[Place]], common: frozenset[Place]) -> list[str]:
    return [norm for norm, own in places.items() if common <= own]


def _place(contest: Contest) -> tuple:
    return (
        -len(contest.arms),
        -len(contest.tables.by_seed.dropna()),
        model_place(contest.model),
        contest.balanced is not None,
        -(contest.balanced or 0),
    )


def _contest(results: Results, cells: pd.DataFrame) -> Contest:
    norms = norms_in_order(cells["norm"])
    arms = {norm: standing_arm(cells[cells["norm"] == norm]) for norm in norms}
    places = {norm: _places(cells[cells["arm"] == arm]) for norm, arm in arms.items()}
    kept, shared = norms_to_compare(places)
    dropped = {norm: arm for norm, arm in arms.items() if norm not in kept}
    chosen = cells[cells["arm"].isin([arms[norm] for norm in kept])][["cell", "norm", "seed"]]
    scores = results.subjects[["cell", "cohort", "subject", METRIC]].merge(chosen, on="cell")
    tables = block_tables(scores, METRIC, norms=kept)
    first = cells.iloc[0]
    return Contest(
        model=str(first["model"]),
        balanced=None if pd.isna(first["balanced"]) else int(first["balanced"]),
        arms={norm: arms[norm] for norm in kept},
        others=sorted({*cells["arm"]} - {*arms.values()}),
        dropped=dropped,
        tables=tables,
        reasons={norm: _reason(norm, places[norm], kept, shared) for norm in dropped},
        lacking=lacking_scores(tables),
        partial=_partial(results, {arms[norm]: places[norm] for norm in kept}, tables),
    )


def _places(cells: pd.DataFrame) -> set[Place]:
    return {*zip(cells["hold_out"], cells["seed"], strict=True)}


def _partial(results: Results, places: dict[str, set[Place]], tables: BlockTables) -> str:
    """Say what of compared arms lacks, that was asked for or that others have."""
    unfinished = [(cell.row()["arm"], cell) for cell in results.unfinished]
    asked = {(cell.hold_out, cell.seed) for arm, cell in unfinished if arm in places}
    return partial_grid(list(places.values()), asked, whole_seeds(tables.by_seed.dropna()))


def _reason(norm: str, own: set[Place], kept: list[str], shared: set[Place]) -> str:
    whose = "the other norms share" if len(kept) > 1 else f"{norm_name(kept[0])} has"
    count = len(own & shared) or "none"
    return (
        f"{norm_name(norm)} is left out: it has {count} of the {len(shared)} cells (a cohort in a "
        f"seed) that {whose}."
    )


BETTER, WORSE, UNSURE = "better", "worse", "not distinguishable"
NOT_THERE = "–"
ENOUGH_COHORTS = 5  # with fewer, intervals are far too narrow for claims about other cohorts
_FEW_SUBJECTS = 100  # of which a percentage with decimals says more than is known
_CLAIMS = {BETTER: "is better than", WORSE: "is worse than"}
_RESERVED = {BETTER: "is ahead of", WORSE: "is behind"}
_UNDECIDED = "is not distinguishable from"


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
    reservation : str
        Why nothing can be claimed beyond this data, see :func:`reservation`; empty if it can.
    """

    norm: str
    reference: str
    gains: dict[str, Gain]
    improved: ImprovedResult
    hardest: HardestResult
    hardest_by_reference: HardestResult
    caption: str
    reservation: str


def duels(values: pd.DataFrame, reference: str) -> dict[str, Duel]:
    """Compare every other norm with a reference.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms) or (n_scores, n_norms)
        Indexed by ``cohort`` and ``subject``, and ``seed`` for scores of each seed, which are then
        drawn anew, too, where there are two; higher is better.
    reference : str
        One of the norms.

    Returns
    -------
    dict of str to Duel
        By norm, in the order of ``values``.
    """
    drawn = bootstrap_gains(values, reference, resample_seeds=has_seeds(values))
    reserved, people = reservation(values), values
    if "seed" in values.index.names:
        people = values.groupby(level=["cohort", "subject"], observed=True).mean()
    made = {}
    for norm in values.columns:
        if norm != reference:
            made[norm] = Duel(
                norm=norm,
                reference=reference,
                gains=gains_of(drawn.gains, norm),
                improved=share_improved(people, norm, reference),
                hardest=gain_on_hardest(people, norm, reference, by="mean"),
                hardest_by_reference=gain_on_hardest(people, norm, reference),
                caption=drawn.caption,
                reservation=reserved,
            )
    return made


def has_seeds(values: pd.DataFrame) -> bool:
    """Tell whether a cohort has two seeds or more, so that trainings can be drawn anew."""
    return bool((_n_seeds(values) > 1).any())


def reservation(values: pd.DataFrame) -> str:
    """Say why a gain in these scores may be that of this data alone.

    One seed does not show the luck of a training, and few cohorts not how cohorts differ:
    ``docs/statistics.md`` says how often norms that are alike then seem to differ.

    Parameters
    ----------
    values : DataFrame
        As :func:`duels` takes it; without ``seed``, nothing is said of seeds.

    Returns
    -------
    str
        As "one seed and 2 cohorts"; empty with two seeds and five cohorts.
    """
    reasons, seeds = [], _n_seeds(values)
    if len(seeds) and seeds.min() == 1:
        reasons.append("one seed" if seeds.max() == 1 else "one seed in some cohorts")
    n_cohorts = values.dropna().index.get_level_values("cohort").nunique()
    if n_cohorts < ENOUGH_COHORTS:
        reasons.append(plural(n_cohorts, "cohort"))
    return listed(reasons)


def _n_seeds(values: pd.DataFrame) -> "pd.Series[int]":
    """Return the number of seeds of every cohort; empty where values are not by seed."""
    if "seed" not in values.index.names:
        return pd.Series(dtype=int)
    known = values.dropna().index.to_frame(index=False)
    return known.groupby("cohort", observed=True)["seed"].nunique()


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


def gain_words(name: str, reference: str, gains: dict[str, Gain], reserved: str = "") -> str:
    """Say how much something gains over a reference, in both means.

    Parameters
    ----------
    name, reference : str
        As a sentence names them.
    gains : dict of str to Gain
        By mean. Where their judgements or references differ, each mean has its own.
    reserved : str
        Why nothing can be claimed beyond this data, see :func:`reservation`.
    """
    own = len({gain.reference for gain in gains.values()}) > 1
    parts: dict[str, str] = {}
    for mean, gain in gains.items():
        against = f"against {norm_name(gain.reference)} " if own else ""
        words = f"{against}{gain.words}, above 0 in {percent(gain.share_above_0)} % of draws"
        parts[mean] = "the same" if words in parts.values() else words
    numbers = "; ".join(f"{mean} {words}" for mean, words in parts.items())
    return f"{name} {_claim(reference, gains, reserved)}: {numbers}."


def _claim(reference: str, gains: dict[str, Gain], reserved: str) -> str:
    """Say how something stands to a reference: once, or by each mean where these disagree."""
    verbs = _RESERVED if reserved else _CLAIMS
    found = {mean: verbs.get(gain.judgement, _UNDECIDED) for mean, gain in gains.items()}
    if len({*found.values()}) == 1:
        claim = f"{next(iter(found.values()))} {reference}"
    else:
        whom = [reference, *["it"] * (len(found) - 1)]
        claim = " and ".join(
            f"{verb} {who} by {mean}" for who, (mean, verb) in zip(whom, found.items(), strict=True)
        )
    if reserved and {*found.values()} != {_UNDECIDED}:
        claim += f" in this data ({reserved}: too few to claim more)"
    return claim


def people_words(name: str, reference: str, duel: Duel) -> list[str]:
    """Say who gains: how many subjects, and the hardest.

    Parameters
    ----------
    name, reference : str
        As a sentence names them.
    duel : Duel
    """
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
