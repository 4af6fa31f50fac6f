"""Bootstrap over subjects and datasets."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.means import MEAN_DATASET, MEAN_SUBJECT, overall_means
from psdnorm.evaluation.statistics.basis import DECIMALS, Basis, check_share, complete_blocks

Scores = NDArray[np.float64]  # of one cohort, (n_subjects, n_seeds, n_norms)
Means = NDArray[np.float64]

# weights of subjects that are worked on at a time
_CHUNK = 2**19


def drawn_means(
    cohorts: list[Scores], n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> tuple[Means, Means]:
    """Draw cohorts, and within each drawn one its subjects, and its seeds if they are to be.

    Parameters
    ----------
    cohorts : list of ndarray, (n_subjects, n_seeds, n_norms)
    n_draws : int
    resample_seeds : bool
    rng : Generator

    Returns
    -------
    tuple of ndarray, (n_draws, n_norms)
        Mean(Dataset) and Mean(Subject) of every draw.
    """
    n_cohorts = len(cohorts)
    times = rng.multinomial(n_cohorts, np.full(n_cohorts, 1 / n_cohorts), size=n_draws)
    over_datasets, over_subjects = np.zeros((2, n_draws, cohorts[0].shape[2]))
    people = times @ [len(scores) for scores in cohorts]  # (n_draws,)
    for scores, count in zip(cohorts, times.T, strict=True):
        # a cohort that is drawn twice has its subjects drawn twice, each time others
        owners = np.repeat(np.arange(n_draws), count)
        means = _drawn_within(scores, len(owners), resample_seeds, rng)
        np.add.at(over_datasets, owners, means / n_cohorts)
        np.add.at(over_subjects, owners, means * len(scores))
    return over_datasets, over_subjects / people[:, None]


def _drawn_within(
    scores: Scores, n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> Means:
    """Return the means of one cohort with its subjects drawn anew, (n_draws, n_norms)."""
    n_subjects, n_seeds, n_norms = scores.shape
    flat = scores.reshape(n_subjects, -1)
    means = np.empty((n_draws, n_norms))
    step = max(1, _CHUNK // n_subjects)
    for begin in range(0, n_draws, step):
        rows = min(step, n_draws - begin)
        # how often each subject is drawn: a product with these is faster than looking scores up
        drawn = rng.integers(n_subjects, size=(rows, n_subjects))
        drawn += np.arange(rows)[:, None] * n_subjects
        times = np.bincount(drawn.ravel(), minlength=rows * n_subjects).reshape(rows, n_subjects)
        by_seed = (times.astype(np.float64) @ flat / n_subjects).reshape(rows, n_seeds, n_norms)
        weights = np.full((rows, n_seeds), 1 / n_seeds)
        if resample_seeds:
            weights = rng.multinomial(n_seeds, weights[0], size=rows) / n_seeds
        means[begin : begin + rows] = np.einsum("ds,dsk->dk", weights, by_seed)
    return means


KEYS = ["cohort", "subject", "seed"]


@dataclass(frozen=True, eq=False)
class BlockTables:
    """Scores of the same people under every norm.

    A row of which a norm lacks the score is NaN throughout, so that every statistic leaves the same
    blocks out, and counts them.

    Attributes
    ----------
    by_seed : DataFrame, (n_scores, n_norms)
        Indexed by ``cohort``, ``subject`` and ``seed``.
    subjects : DataFrame, (n_subjects, n_norms)
        Mean over the seeds that every norm has; indexed by ``cohort`` and ``subject``.
    datasets : DataFrame, (n_cohorts, n_norms)
        Mean over the subjects of a cohort that every norm has; indexed by ``cohort``.
    lacking : DataFrame of int, (n_cohorts, n_norms)
        Scores (of a subject in a seed) that a norm lacks and another has.
    """

    by_seed: pd.DataFrame
    subjects: pd.DataFrame
    datasets: pd.DataFrame
    lacking: pd.DataFrame

    @property
    def left_out(self) -> list[str]:
        """What was left out and because of which norm, a sentence each."""
        total = self.by_seed.groupby(level="cohort", observed=True).size()
        return [
            f"{norm} lacks {count:,} of the {total[cohort]:,} scores of {cohort}"
            for cohort, counts in self.lacking.iterrows()
            for norm, count in counts.items()
            if count
        ]


def block_tables(
    scores: pd.DataFrame, metric: str = "value", norms: Sequence[str] | None = None
) -> BlockTables:
    """Arrange scores for a comparison of norms, over datasets and over subjects.

    A score counts if every norm has it for the same subject in the same seed; a seed decides who
    trains and who validates, so that only scores of the same seed are alike.

    Parameters
    ----------
    scores : DataFrame
        One row per ``norm``, ``cohort``, ``subject`` and ``seed``. NaN counts as lacking.
    metric : str
        The column that holds the score. Higher is better.
    norms : sequence of str, optional
        Those to compare, in this order; else all, in order of appearance.

    Returns
    -------
    BlockTables
    """
    lacking = [name for name in ("norm", *KEYS, metric) if name not in scores]
    if lacking:
        raise ArgumentError(f"scores lack the columns {', '.join(lacking)}")
    if scores.empty:
        raise ArgumentError("scores has no row, expected one per norm, cohort, subject and seed")
    unknown = scores[["norm", *KEYS]].isna().any()
    if unknown.any():
        raise ArgumentError(f"scores has rows without {unknown.idxmax()}")
    table = _wide(scores, metric, norms)
    by_seed = table.where(table.notna().all(axis=1))
    subjects = by_seed.groupby(level=["cohort", "subject"], observed=True).mean()  # NaN aside
    return BlockTables(
        by_seed=by_seed,
        subjects=subjects,
        datasets=subjects.groupby(level="cohort", observed=True).mean(),
        lacking=table.isna().groupby(level="cohort", observed=True).sum(),
    )


def _wide(scores: pd.DataFrame, metric: str, norms: Sequence[str] | None) -> pd.DataFrame:
    """Return scores with a column for each norm, NaN where it has none."""
    known = list(dict.fromkeys(scores["norm"]))
    wanted = known if norms is None else list(dict.fromkeys(norms))
    if not wanted or not {*wanted} <= {*known}:
        raise ArgumentError(
            f"norms are {', '.join(map(str, wanted)) or 'none'}, expected some of those that "
            f"scores has, {', '.join(map(str, known)) or 'none'}"
        )
    chosen = scores[scores["norm"].isin(wanted)]
    twice = chosen.duplicated(["norm", *KEYS])
    if twice.any():
        row = ", ".join(f"{name} {chosen.loc[twice, name].iloc[0]}" for name in ("norm", *KEYS))
        raise ArgumentError(f"scores has {row} more than once")
    return chosen.set_index([*KEYS, "norm"])[metric].unstack("norm")[wanted]


BEST_BASELINE = "best baseline"
# of intervals meant to hold 95 % of the time, how many did, by number of cohorts: see the test
HELD = {2: 0.65, 3: 0.77, 5: 0.84, 10: 0.91, 40: 0.94}
_MEANS = (MEAN_DATASET, MEAN_SUBJECT)
_COLUMNS = ["norm", "mean", "reference", "gain", "low", "high", "share_above_0"]


@dataclass(frozen=True, eq=False, kw_only=True)
class BootstrapResult(Basis):
    """Gains of norms over a reference.

    Attributes
    ----------
    gains : DataFrame
        One row per ``norm`` and ``mean``, which is Mean(Dataset) or Mean(Subject): ``reference``,
        ``gain``, the ends of its interval ``low`` and ``high``, ``share_above_0`` of the draws.
    n_draws : int
    resampled : tuple of str
        What was drawn with replacement, from the top: "cohorts", "subjects", "seeds".
    confidence : float
        How often the interval is meant to hold the gain.
    """

    gains: pd.DataFrame
    n_draws: int
    resampled: tuple[str, ...]
    confidence: float

    @property
    def counted(self) -> str:
        """The numbers of subjects and cohorts."""
        return f"{super().counted} of {self.n_cohorts} cohort{'s' * (self.n_cohorts != 1)}"

    @property
    def caveat(self) -> str:
        """:func:`cohort_caveat`, or that of subjects where cohorts could not be drawn."""
        return super().caveat if self.n_cohorts < 2 else cohort_caveat(self.n_cohorts)


def cohort_caveat(n_cohorts: int) -> str:
    """Say how far intervals from so many cohorts can be trusted; nothing from forty on.

    Parameters
    ----------
    n_cohorts : int
        Two or more; the simulations with the number nearest to it in proportion are quoted.

    Examples
    --------
    >>> cohort_caveat(40), cohort_caveat(2)[-35:]
    ('', 'held 65 % with two, in simulations.')
    """
    if n_cohorts >= max(HELD):
        return ""
    nearest = min(HELD, key=lambda n: abs(log(n / n_cohorts)))
    number = {2: "two", 3: "three", 5: "five", 10: "ten"}.get(nearest, str(nearest))
    return (
        "Intervals from few cohorts are rough: where the gain differs between cohorts, those "
        f"meant to hold 95 % of the time held {100 * HELD[nearest]:.0f} % with {number}, in "
        "simulations."
    )


def bootstrap_gains(
    values: pd.DataFrame,
    reference: str,
    *,
    baselines: Sequence[str] | None = None,
    among_baselines: bool = False,
    n_draws: int = 10_000,
    resample_seeds: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
) -> BootstrapResult:
    """Estimate how much better norms are than a reference, and how sure that is.

    Each draw takes as many cohorts as there are, with replacement, and of each as many subjects as
    it has, with replacement; all norms share the draws. The interval lies between percentiles of
    the draws' gains. One cohort is not drawn: then the interval is about its subjects alone.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms) or (n_scores, n_norms)
        Indexed by ``cohort`` and ``subject``, and ``seed`` for scores of each seed, as in
        :class:`~psdnorm.evaluation.statistics.bootstrap.BlockTables`. Rows with a NaN are left out.
    reference : str
        A norm, or :data:`BEST_BASELINE`: the baseline with the highest mean, chosen anew in each
        draw, as another might have been best. ``gains`` names the one that is best in ``values``.
    baselines : sequence of str, optional
        For :data:`BEST_BASELINE`; unless given, all norms whose name does not begin with ``psd``.
        Gains are then those of the other norms.
    among_baselines : bool
        Give gains of the baselines, too, where there are several: each over the best of the others.
    resample_seeds : bool
        Draw seeds, too, in each drawn cohort, the same for all its subjects and norms, as a seed
        is one training of each. Subjects who lack a seed of their cohort are then left out. Else
        the mean over seeds is taken first.
    confidence : float
    n_draws, seed : int
        The same seed gives the same draws.

    Returns
    -------
    BootstrapResult
        NaN where nobody is left; a note says so.
    """
    check_share("confidence", confidence)
    if not isinstance(n_draws, Integral) or n_draws < 1:
        raise ArgumentError(f"n_draws is {n_draws}, expected a whole number from 1 on")
    cohorts, basis = _cohorts(values, resample_seeds)
    norms = list(values.columns)
    against = _against(norms, reference, baselines)
    rivals = _rivals(norms, against, among_baselines)
    rows: list[tuple] = [
        (norm, mean, reference, *[np.nan] * 4) for mean in _MEANS for norm in rivals
    ]
    if cohorts:
        # differences of norms that are equal in everybody are then 0 in every draw
        centred = [scores - scores[:, :, against[:1]] for scores in cohorts]
        draws = drawn_means(centred, n_draws, resample_seeds, np.random.default_rng(seed))
        by_subject = {n: pd.DataFrame(scores.mean(axis=1)) for n, scores in enumerate(centred)}
        means = overall_means(pd.concat(by_subject, names=["cohort"]))
        points = [means[name].to_numpy() for name in _MEANS]
        rows = _gains(norms, rivals, points, draws, confidence)
    return BootstrapResult(
        gains=pd.DataFrame(rows, columns=_COLUMNS),
        n_draws=n_draws,
        resampled=("cohorts",) * (len(cohorts) > 1) + ("subjects",) + ("seeds",) * resample_seeds,
        confidence=confidence,
        note=_note(len(cohorts)),
        **basis,
    )


def _cohorts(values: pd.DataFrame, resample_seeds: bool) -> tuple[list[Scores], dict[str, Any]]:
    """Return the scores of each cohort and the basis; one seed, the mean, unless they are drawn."""
    kept, _ = complete_blocks(values)
    names = list(values.index.names)
    if names not in (["cohort", "subject"], ["cohort", "subject", "seed"]):
        raise ArgumentError(
            f"values is indexed by {', '.join(map(str, names))}, expected cohort and subject, or "
            "cohort, subject and seed"
        )
    everybody = values.index
    if "seed" in names:
        everybody = everybody.droplevel("seed").unique()
        if not resample_seeds:
            kept = kept.groupby(level=["cohort", "subject"], observed=True).mean()
    elif resample_seeds:
        raise ArgumentError("values is not indexed by seed, expected it where seeds are drawn")
    cohorts, counted = [], set()
    for _, scores in kept.sort_index().groupby(level="cohort", observed=True):
        n_seeds, people = 1, scores.index
        if resample_seeds:
            n_seeds = people.get_level_values("seed").nunique()
            of_each = scores.groupby(level="subject", observed=True)[scores.columns[0]]
            scores = scores[of_each.transform("size") == n_seeds]
            people = scores.index.droplevel("seed").unique()
        if len(people):
            cohorts.append(scores.to_numpy().reshape(len(people), n_seeds, -1))
            counted.update(people)
    left_out = tuple(person for person in everybody if person not in counted)
    basis = {"blocks": "subjects", "n_blocks": len(counted), "left_out": left_out}
    return cohorts, {**basis, "n_cohorts": len(cohorts)}


def _against(norms: list[str], reference: str, baselines: Sequence[str] | None) -> list[int]:
    """Return the places of the norms that the others are compared with."""
    against = [reference]
    if reference == BEST_BASELINE:
        others = (norm for norm in norms if not str(norm).lower().startswith("psd"))
        against = list(others if baselines is None else baselines)
    unknown = [norm for norm in against if norm not in norms]
    if unknown or not against:
        what = "baselines are" if reference == BEST_BASELINE else "reference is"
        raise ArgumentError(
            f"{what} {', '.join(map(str, unknown)) or 'none'}, expected some of the norms of "
            f"values, {', '.join(map(str, norms))}"
        )
    return [norms.index(norm) for norm in against]


def _rivals(norms: list[str], against: list[int], among: bool) -> dict[str, list[int]]:
    """Return the places of the norms that each norm is compared with, by norm."""
    rivals = {
        norm: [place for place in against if norms[place] != norm]
        for norm in norms
        if among or norms.index(norm) not in against
    }
    return {norm: places for norm, places in rivals.items() if places}


def _gains(
    norms: list[str],
    rivals: dict[str, list[int]],
    points: list[Means],
    draws: tuple[Means, Means],
    confidence: float,
) -> list[tuple]:
    """Return the rows of the table of gains, over the best of each norm's rivals."""
    rows = []
    for mean, point, drawn in zip(_MEANS, points, draws, strict=True):
        for norm, against in rivals.items():
            place, best = norms.index(norm), against[int(np.argmax(point[against]))]
            gain = round(float(point[place] - point[best]), DECIMALS)
            gains = (drawn[:, place] - drawn[:, against].max(axis=1)).round(DECIMALS)
            ends = np.quantile(gains, [(1 - confidence) / 2, (1 + confidence) / 2])
            rows.append((norm, mean, norms[best], gain, *ends, (gains > 0).mean()))
    return rows


def _note(n_cohorts: int) -> str:
    if n_cohorts == 0:
        return "no subject is left that every norm has"
    if n_cohorts == 1:
        return "one cohort: only its subjects were drawn, and nothing is said of other cohorts"
    return ""
