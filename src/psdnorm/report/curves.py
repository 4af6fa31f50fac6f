"""Curves of scores: against filter size, depth, and the number of training subjects."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, aggregate
from psdnorm.evaluation.statistics import FewerSubjectsResult, fewer_subjects_factor
from psdnorm.present import CannotDraw
from psdnorm.report.contest import BATCH, MEANS, METRIC
from psdnorm.report.results import Results, norms_in_order
from psdnorm.runtime import listed, plural, read_json
from psdnorm.training import CONFIG, norm_name, unusual

TRAINING_SIZE = "Balanced accuracy by number of training subjects"
# by label: the result, with scores in percent, and the factors of single seeds if there are several
Factors = dict[str, tuple[FewerSubjectsResult, list[float]]]


@dataclass(frozen=True)
class Curve:
    """A norm at one or several settings."""

    norm: str
    label: str
    # by place on the axis; a baseline, which is the same everywhere, has only the place None
    arms: dict[float | None, str]

    @property
    def is_baseline(self) -> bool:
        """Whether it is a horizontal line."""
        return None in self.arms


@dataclass(frozen=True)
class Means:
    """Scores of arms in percent, over the cohorts that all of them have."""

    by_seed: pd.DataFrame  # both means, indexed by arm and seed
    cohorts: list[str]
    remark: str  # names the cohorts that do not count; empty if all do

    def of(self, curve: Curve, mean: str) -> pd.DataFrame:
        """Return ``mean`` and ``std`` over seeds of a curve's places, indexed by place."""
        known = {place: arm for place, arm in curve.arms.items() if arm in self.by_seed.index}
        values = {place: self.by_seed.loc[arm, mean] for place, arm in known.items()}
        rows = {place: (own.mean(), own.std(ddof=1)) for place, own in values.items()}
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "std"])
        return table.sort_index()

    @property
    def seeds(self) -> str:
        """A sentence on the number of seeds of an arm."""
        counts = self.by_seed.groupby(level="arm").size()
        low, high = int(counts.min()), int(counts.max())
        if high == 1:
            return "One seed, so there is no ±."
        number = str(high) if low == high else f"{low} to {high}"
        return f"Bands are ± the standard deviation over {number} seeds (ddof = 1)."

    @property
    def caption(self) -> str:
        """Which cohorts and seeds the means are over, in sentences."""
        return f"{plural(len(self.cohorts), 'held-out cohort')}. {self.seeds} {self.remark}".strip()


def means_of(results: Results, curves: Sequence[Curve], what: str) -> Means:
    """Average the scores of curves over the cohorts that all of their arms have."""
    arms = {arm for curve in curves for arm in curve.arms.values()}
    runs = results.runs[results.runs["arm"].isin(arms)]
    everywhere = set.intersection(*runs.groupby("arm")["hold_out"].agg(set))
    if not everywhere:
        raise CannotDraw(f"{what}: there is no cohort that every setting has.")
    scores = results.scores
    scores = scores[scores["arm"].isin(arms) & scores["cohort"].isin(everywhere)]
    scores = scores[["arm", "seed", "cohort", "subject", METRIC]]
    table = aggregate(scores.assign(of_seed=scores["seed"]), by=["arm", "of_seed"])
    complete = table[table["dataset"].isin(MEANS) & (table["datasets"] == len(everywhere))]
    by_seed = complete.pivot(index=["arm", "of_seed"], columns="dataset", values="mean")
    by_seed = 100 * by_seed.rename_axis(["arm", "seed"]).dropna()
    if by_seed.empty:
        raise CannotDraw(f"{what}: there is no seed that has every cohort.")
    others = sorted(set(runs["hold_out"]) - everywhere)
    remark = f"Without {listed(others)}, where some settings have no result." if others else ""
    return Means(by_seed, sorted(everywhere), remark)


def size_factors(results: Results, model: str) -> Factors:
    """Return how many times fewer subjects each PSDNorm needs than BatchNorm; empty if unknown."""
    try:
        curves, means, _ = training_size_curves(results, model, TRAINING_SIZE)
    except CannotDraw:
        return {}
    return factors_of(curves, means)


def factor_words(label: str, result: FewerSubjectsResult, by_seed: list[float]) -> str:
    """Return a sentence on how many times fewer subjects are enough, or why that is unknown."""
    equal = f"{label} is as good as BatchNorm with {result.reference_size:,.0f} subjects"
    if result.at_least <= 1:
        return f"{equal}, and was not run with fewer: there is no factor."
    if np.isfinite(result.at_least):
        return f"{equal} from its smallest size on: at least ×{result.at_least:.2g} fewer."
    if not np.isfinite(result.factor):
        return f"{label}: {result.note}."
    seeds = f", {min(by_seed):.2g} to {max(by_seed):.2g} in single seeds" if by_seed else ""
    return f"{equal} from {result.norm_size:,.0f} on: ×{result.factor:.2g} fewer{seeds}."


def training_size_curves(
    results: Results, model: str, title: str
) -> tuple[list[Curve], Means, list[str]]:
    """Return curves over training subjects, their means, and a sentence for each repeated size."""
    runs = results.of(model=model).runs
    sizes = runs["balanced"].astype("Float64").fillna(np.inf).astype(float)
    sized = curves_over(runs.assign(place=sizes), ["filter_size", "norm_depth"])
    if not sized:
        raise CannotDraw(f"{title}: no norm was run with two training sizes.")
    means = means_of(results, sized, title)
    curves, repeated = _placed(sized, _training_subjects(runs, means.cohorts))
    if not curves:
        raise CannotDraw(f"{title}: all sizes have as many training subjects. {' '.join(repeated)}")
    return curves, means, repeated


def curves_over(runs: pd.DataFrame, fixed: list[str]) -> list[Curve]:
    """Return a curve over the column "place" for every norm and fixed setting with two places."""
    curves = []
    for norm in norms_in_order(runs["norm"]):
        for _, group in runs[runs["norm"] == norm].groupby(fixed, dropna=False):
            arms = dict(zip(group["place"], group["arm"], strict=True))
            if len(arms) > 1:
                label = norm_name(norm) + unusual(**group.iloc[0][fixed].to_dict())
                curves.append(Curve(norm, label, arms))
    return curves


def _training_subjects(runs: pd.DataFrame, cohorts: list[str]) -> dict[float, float]:
    """Return the training subjects of a network of each size, averaged over held-out cohorts."""
    counts: dict[float, dict[str, list[int]]] = {}
    for run in runs[runs["hold_out"].isin(cohorts)].itertuples():
        path = run.folder / CONFIG
        try:
            number = int(read_json(path)["data"]["train"]["subjects"])
        except (KeyError, TypeError, ValueError) as error:
            why = f"{path} has no number of training subjects"
            raise CannotDraw(f"{TRAINING_SIZE}: {why}.") from error
        size = np.inf if pd.isna(run.balanced) else float(run.balanced)
        counts.setdefault(size, {}).setdefault(run.hold_out, []).append(number)
    # average within cohorts first: a missing run must not make one size look like another
    return {
        size: float(np.mean([np.mean(own[cohort]) for cohort in sorted(own)]))
        for size, own in counts.items()
    }


def _placed(curves: list[Curve], subjects: dict[float, float]) -> tuple[list[Curve], list[str]]:
    """Place curves by training subjects; of sizes with equal numbers, keep the largest N."""
    largest = {number: size for size, number in sorted(subjects.items())}
    placed = []
    for curve in curves:
        arms: dict[float | None, str] = {}
        for number, size in largest.items():
            same = [n for n, each in subjects.items() if each == number and n in curve.arms]
            if same:
                arms[number] = curve.arms[size if size in curve.arms else max(same)]
        placed.append(Curve(curve.norm, curve.label, arms))
    repeated = [
        f"balanced@{size:.0f} has as many training subjects as a larger N, and is drawn once."
        for size, number in sorted(subjects.items())
        if largest[number] != size
    ]
    return [curve for curve in placed if len(curve.arms) > 1], repeated


def factors_of(curves: list[Curve], means: Means) -> Factors:
    """Return the factor of each PSDNorm over BatchNorm, and those of single seeds, by label."""
    reference = next((curve for curve in curves if curve.norm == BATCH), None)
    if reference is None:
        return {}
    found = {}
    for curve in curves:
        if not curve.norm.startswith("psd"):
            continue
        tables = [means.of(each, MEAN_DATASET)["mean"] for each in (reference, curve)]
        scores = pd.concat(tables, axis=1)
        seeds = means.by_seed.index.get_level_values("seed").unique()
        by_seed = [_of_seed(reference, curve, means, seed) for seed in seeds]
        factors = [each.factor for each in by_seed if np.isfinite(each.factor)]
        result = fewer_subjects_factor(scores.index, *scores.to_numpy().T)
        found[curve.label] = (result, factors if len(seeds) > 1 else [])
    return found


def _of_seed(reference: Curve, curve: Curve, means: Means, seed: int) -> FewerSubjectsResult:
    own = means.by_seed.xs(seed, level="seed")[MEAN_DATASET]
    sizes = sorted({*reference.arms, *curve.arms})  # type: ignore[type-var]
    scores = [[own.get(c.arms.get(size, ""), np.nan) for size in sizes] for c in (reference, curve)]
    return fewer_subjects_factor(sizes, *scores)  # type: ignore[arg-type]
