"""Gains of norms: bootstrap intervals, subjects who improve, and training subjects saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from numbers import Integral
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.evaluation.means import MEAN_DATASET, MEAN_SUBJECT, overall_means
from psdnorm.evaluation.statistics.blocks import (
    DECIMALS,
    KEYS,
    Basis,
    check_share,
    complete_blocks,
    scipy,
)
from psdnorm.runtime import plural

Scores = NDArray[np.float64]  # of one cohort, (n_subjects, n_seeds, n_norms)
Means = NDArray[np.float64]
BEST_BASELINE = "best baseline"
# simulated coverage of nominal 95 % intervals, by number of cohorts: see the test
HELD = {2: 0.65, 3: 0.77, 5: 0.84, 10: 0.91, 40: 0.94}
_MEANS = (MEAN_DATASET, MEAN_SUBJECT)
_COLUMNS = ["norm", "mean", "reference", "gain", "low", "high", "share_above_0"]
_CHUNK = 2**19  # subject weights processed at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class BootstrapResult(Basis):
    """Gains of norms over a reference.

    ``gains`` has a row per ``norm`` and ``mean`` (Mean(Dataset) or Mean(Subject)), with
    ``reference``, ``gain``, its interval from ``low`` to ``high``, and ``share_above_0``, the share
    of draws with a positive gain.
    """

    gains: pd.DataFrame
    n_draws: int
    resampled: tuple[str, ...]  # levels drawn, top first: "cohorts", "subjects", "seeds"
    confidence: float

    @property
    def counted(self) -> str:
        return f"{super().counted} of {plural(self.n_cohorts, 'cohort')}"

    @property
    def caveat(self) -> str:
        """:func:`cohort_caveat`, or :func:`subject_caveat` if cohorts could not be drawn."""
        return super().caveat if self.n_cohorts < 2 else cohort_caveat(self.n_cohorts)


def cohort_caveat(n_cohorts: int) -> str:
    """Explain how far intervals from two or more cohorts can be trusted; "" from forty on.

    Quotes the simulation with the nearest number of cohorts, by ratio.

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
    """Estimate the gains of norms over a reference, with bootstrap intervals.

    Each draw resamples the cohorts with replacement, and the subjects of each drawn cohort with
    replacement; all norms share the draws. Intervals are percentiles of the drawn gains. A single
    cohort is not resampled: the interval then reflects its subjects only.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms) or (n_scores, n_norms)
        ``subjects`` or ``by_seed`` of :class:`BlockTables`. Rows with a NaN are dropped; gains are
        NaN if no subject is left.
    reference : str
        A norm, or :data:`BEST_BASELINE`: the baseline with the highest mean, chosen anew in each
        draw, as another might have been best. ``gains`` names the best one in ``values``.
    baselines : sequence of str, optional
        For :data:`BEST_BASELINE`; by default, all norms whose name does not begin with ``psd``.
        Gains are then computed for the other norms.
    among_baselines : bool
        If there are several baselines, also compute the gain of each over the best of the others.
    resample_seeds : bool
        Also resample the seeds within each drawn cohort, identically for all its subjects and
        norms, as a seed is one training of each. Subjects without all seeds of their cohort are
        then dropped. If False, scores are first averaged over seeds.
    """
    check_share("confidence", confidence)
    if not isinstance(n_draws, Integral) or n_draws < 1:
        raise ArgumentError(f"n_draws is {n_draws}, expected a whole number from 1 on")
    cohorts, basis = _cohorts(values, resample_seeds)
    norms = list(values.columns)
    against = _places_of_baselines(norms, reference, baselines)
    rivals = {
        norm: [place for place in against if norms[place] != norm]
        for norm in norms
        if among_baselines or norms.index(norm) not in against
    }
    rivals = {norm: places for norm, places in rivals.items() if places}
    rows: list[tuple] = [
        (norm, mean, reference, *[np.nan] * 4) for mean in _MEANS for norm in rivals
    ]
    if cohorts:
        # norms with equal scores in all subjects then differ by exactly 0 in every draw
        centred = [scores - scores[:, :, against[:1]] for scores in cohorts]
        by_subject = {n: pd.DataFrame(scores.mean(axis=1)) for n, scores in enumerate(centred)}
        points = overall_means(pd.concat(by_subject, names=["cohort"]))
        draws = drawn_means(centred, n_draws, resample_seeds, np.random.default_rng(seed))
        ends = (1 - confidence) / 2, (1 + confidence) / 2
        rows = []
        for mean, drawn in zip(_MEANS, draws, strict=True):
            point = points[mean].to_numpy()
            for norm, places in rivals.items():
                own, best = norms.index(norm), places[int(np.argmax(point[places]))]
                gain = round(float(point[own] - point[best]), DECIMALS)
                gains = (drawn[:, own] - drawn[:, places].max(axis=1)).round(DECIMALS)
                interval = np.quantile(gains, ends)
                rows.append((norm, mean, norms[best], gain, *interval, (gains > 0).mean()))
    notes = {
        0: "no subject is left that every norm has",
        1: "one cohort: only its subjects were drawn, and nothing is said of other cohorts",
    }
    return BootstrapResult(
        gains=pd.DataFrame(rows, columns=_COLUMNS),
        n_draws=n_draws,
        resampled=("cohorts",) * (len(cohorts) > 1) + ("subjects",) + ("seeds",) * resample_seeds,
        confidence=confidence,
        note=notes.get(len(cohorts), ""),
        **basis,
    )


def _cohorts(values: pd.DataFrame, resample_seeds: bool) -> tuple[list[Scores], dict[str, Any]]:
    """Return the scores of each cohort and the basis; averaged over seeds unless resampled."""
    kept, _ = complete_blocks(values)
    names = list(values.index.names)
    if names not in (KEYS[:2], KEYS):
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


def _places_of_baselines(
    norms: list[str], reference: str, baselines: Sequence[str] | None
) -> list[int]:
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


def drawn_means(
    cohorts: list[Scores], n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> tuple[Means, Means]:
    """Return Mean(Dataset) and Mean(Subject) of every draw, (n_draws, n_norms) each."""
    n_cohorts = len(cohorts)
    times = rng.multinomial(n_cohorts, np.full(n_cohorts, 1 / n_cohorts), size=n_draws)
    over_datasets, over_subjects = np.zeros((2, n_draws, cohorts[0].shape[2]))
    people = times @ [len(scores) for scores in cohorts]  # (n_draws,)
    for scores, count in zip(cohorts, times.T, strict=True):
        # a cohort that is drawn twice has its subjects resampled independently each time
        owners = np.repeat(np.arange(n_draws), count)
        means = _drawn_within(scores, len(owners), resample_seeds, rng)
        np.add.at(over_datasets, owners, means / n_cohorts)
        np.add.at(over_subjects, owners, means * len(scores))
    return over_datasets, over_subjects / people[:, None]


def _drawn_within(
    scores: Scores, n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> Means:
    """Return the means of one cohort with its subjects resampled, (n_draws, n_norms)."""
    n_subjects, n_seeds, n_norms = scores.shape
    flat = scores.reshape(n_subjects, -1)
    means = np.empty((n_draws, n_norms))
    step = max(1, _CHUNK // n_subjects)
    for begin in range(0, n_draws, step):
        rows = min(step, n_draws - begin)
        # how often each subject is drawn: multiplying by counts is faster than indexing scores
        drawn = rng.integers(n_subjects, size=(rows, n_subjects))
        drawn += np.arange(rows)[:, None] * n_subjects
        times = np.bincount(drawn.ravel(), minlength=rows * n_subjects).reshape(rows, n_subjects)
        by_seed = (times.astype(np.float64) @ flat / n_subjects).reshape(rows, n_seeds, n_norms)
        weights = np.full((rows, n_seeds), 1 / n_seeds)
        if resample_seeds:
            weights = rng.multinomial(n_seeds, weights[0], size=rows) / n_seeds
        means[begin : begin + rows] = np.einsum("ds,dsk->dk", weights, by_seed)
    return means


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovedResult(Basis):
    """Number of subjects who score higher than, the same as, or lower than under the reference."""

    norm: str
    reference: str
    improved: int
    tied: int
    worse: int
    share: float  # of all subjects, including ties, who improved
    low: float  # bounds of its Wilson interval
    high: float
    confidence: float


@dataclass(frozen=True, eq=False, kw_only=True)
class HardestResult(Basis):
    """Mean gain of the subjects with the lowest scores, and of all subjects."""

    norm: str
    reference: str
    by: str
    n_hardest: int
    threshold: float  # the highest score among them, of the kind in ``by``
    gain: float
    gain_of_all: float


def share_improved(
    values: pd.DataFrame, norm: str, reference: str, confidence: float = 0.95
) -> ImprovedResult:
    """Count the subjects (rows of ``values``) who score higher under a norm than a reference.

    Subjects without a score under one of the two are excluded and counted. The Wilson interval
    assumes independent subjects. Share and interval are NaN if no subject is left.

    Examples
    --------
    >>> scores = pd.DataFrame({"batch": [0.5, 0.6, 0.7, 0.8], "psd": [0.6, 0.7, 0.7, 0.7]})
    >>> result = share_improved(scores, "psd", "batch")
    >>> result.share, result.tied, round(result.low, 2), round(result.high, 2)
    (0.5, 1, 0.15, 0.85)
    """
    check_share("confidence", confidence)
    kept, basis = _pair(values, norm, reference)
    gains = kept[norm] - kept[reference]
    n, improved = len(kept), int((gains > 0).sum())
    share = low = high = np.nan
    if n:
        share = improved / n
        test = scipy().stats.binomtest(improved, n)
        low, high = map(float, test.proportion_ci(confidence, method="wilson"))
    return ImprovedResult(
        improved=improved,
        tied=int((gains == 0).sum()),
        worse=int((gains < 0).sum()),
        share=share,
        low=low,
        high=high,
        confidence=confidence,
        **basis,
    )


def gain_on_hardest(
    values: pd.DataFrame,
    norm: str,
    reference: str,
    share: float = 0.2,
    by: Literal["reference", "mean"] = "reference",
) -> HardestResult:
    """Average the gain over the hardest subjects.

    Subjects who are hardest *under the reference* were partly unlucky there, and do better under
    anything else, even the same network with another seed: by regression to the mean, this choice
    favours the norm. The mean of both scores favours neither if both are equally noisy.

    Parameters
    ----------
    values : DataFrame, (n_subjects, n_norms)
        Subjects without a score under one of the two are excluded and counted.
    share : float
        Share of subjects that are hardest. Those who tie with the last of them are included.
    by : {"reference", "mean"}
        Lowest score under the reference, as a scatter plot shows it, or lowest mean of both.
    """
    check_share("share", share)
    if by not in ("reference", "mean"):
        raise ArgumentError(f"by is {by!r}, expected 'reference' or 'mean'")
    kept, basis = _pair(values, norm, reference)
    gains = kept[norm] - kept[reference]
    score = kept[reference] if by == "reference" else kept.mean(axis=1).round(DECIMALS)
    threshold = float(score.nsmallest(max(1, round(share * len(kept)))).max())
    hardest = score <= threshold
    if len(kept) and by == "reference":
        basis["note"] = f"hardest by the scores of {reference} itself, which favours {norm}"
    return HardestResult(
        by=by,
        n_hardest=int(hardest.sum()),
        threshold=threshold,
        gain=float(gains[hardest].mean()),
        gain_of_all=float(gains.mean()),
        **basis,
    )


def _pair(values: pd.DataFrame, norm: str, reference: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    for name, found in (("norm", norm), ("reference", reference)):
        if found not in values:
            known = ", ".join(map(str, values.columns))
            raise ArgumentError(f"{name} is {found!r}, expected one of {known}")
    if norm == reference:
        raise ArgumentError(f"norm and reference are both {norm!r}, expected two norms")
    kept, basis = complete_blocks(values[[norm, reference]])
    note = "" if len(kept) else f"no block is left that {norm} and {reference} both have"
    return kept, {**basis, "note": note, "norm": norm, "reference": reference}


@dataclass(frozen=True, kw_only=True)
class FewerSubjectsResult:
    """Training subjects of the reference over those that the norm needs for the same score."""

    factor: float  # NaN if it cannot be read off the curve
    at_least: float  # lower bound of the factor if the norm is as good at its smallest size, or NaN
    target: float  # score of the reference at its largest size
    reference_size: float
    norm_size: float
    n_sizes: int
    left_out: tuple[float, ...]  # sizes without a score of one of the two
    note: str  # why the factor is NaN, or that the norm's curve was smoothed


def fewer_subjects_factor(
    sizes: ArrayLike, reference_scores: ArrayLike, norm_scores: ArrayLike
) -> FewerSubjectsResult:
    """Estimate from training-size curves how many times fewer subjects a norm needs.

    The norm's scores are made non-decreasing in size (isotonic regression: where more subjects did
    worse, both get their mean) and interpolated linearly in log N. The factor is the largest size
    of the reference over the size at which that curve first reaches the reference's score there.

    Parameters
    ----------
    sizes : array of float, (n,)
        Total training subjects over all cohorts, in any order: ``balanced@400`` uses only 61 of a
        cohort with 61 subjects.
    reference_scores, norm_scores : array of float, (n,)
        Higher is better; NaN if a size was not run.

    Examples
    --------
    >>> result = fewer_subjects_factor([100, 400, 1600], [0.70, 0.74, 0.76], [0.74, 0.76, 0.78])
    >>> round(result.factor, 6), round(result.norm_size, 6)
    (4.0, 400.0)
    """
    n, reference, norm = (
        values.round(DECIMALS) for values in _by_rising_size(sizes, reference_scores, norm_scores)
    )
    known, on_curve = ~np.isnan(reference), ~np.isnan(norm)
    size = target = np.nan
    if known.any():
        size, target = float(n[known][-1]), float(reference[known][-1])
    norm_size, at_least, note = _read_off(n[on_curve], norm[on_curve], size, target)
    return FewerSubjectsResult(
        factor=size / norm_size,
        at_least=at_least,
        target=target,
        reference_size=size,
        norm_size=norm_size,
        n_sizes=int(on_curve.sum()),
        left_out=tuple(n[~(known & on_curve)].tolist()),
        note=note,
    )


def _read_off(
    sizes: NDArray, scores: NDArray, reference_size: float, target: float
) -> tuple[float, float, str]:
    """Return the size the norm needs, or else a lower bound of the factor, and a note."""
    if np.isnan(target):
        return np.nan, np.nan, "the reference has no score"
    if len(scores) < 2:
        return np.nan, np.nan, f"a curve needs two sizes or more, found {len(scores)} for the norm"
    rising = scipy().optimize.isotonic_regression(scores).x.round(DECIMALS)
    notes = []
    if (rising != scores).any():
        notes.append("the norm's scores do not rise throughout, and were smoothed")
    size = at_least = np.nan
    if rising[-1] < target:
        notes.append(
            f"the norm never reaches {target:.4g}, the reference's with {reference_size:,.0f}"
        )
    elif rising[0] >= target:
        at_least = float(reference_size / sizes[0])
        notes.append(f"the norm is as good from its smallest size on: at least ×{at_least:.3g}")
    else:
        after = int(np.searchsorted(rising, target))  # the first score not below the target
        step = slice(after - 1, after + 1)
        size = float(np.exp(np.interp(target, rising[step], np.log(sizes[step]))))
    return size, at_least, "; ".join(notes)


def _by_rising_size(sizes: ArrayLike, *scores: ArrayLike) -> list[NDArray[np.float64]]:
    try:
        arrays = [np.asarray(values, dtype=np.float64) for values in (sizes, *scores)]
    except (TypeError, ValueError):
        raise DtypeError(
            "sizes, reference_scores or norm_scores has entries that are not numbers, expected "
            "numbers of subjects and scores"
        ) from None
    shapes = [array.shape for array in arrays]
    if arrays[0].ndim != 1 or len(set(shapes)) > 1:
        raise ShapeError(
            f"sizes, reference_scores and norm_scores have shapes {shapes[0]}, {shapes[1]} and "
            f"{shapes[2]}, expected the same, (n,)"
        )
    if not (np.isfinite(arrays[0]) & (arrays[0] > 0)).all():
        raise ArgumentError("sizes has entries that are not above 0, expected numbers of subjects")
    if any(np.isinf(array).any() for array in arrays):
        raise ArgumentError("reference_scores or norm_scores has infinite entries, expected scores")
    if len(np.unique(arrays[0])) < len(arrays[0]):
        raise ArgumentError("sizes has a number more than once, expected one score for each")
    order = np.argsort(arrays[0])
    return [array[order] for array in arrays]
