"""Balanced accuracy over the number of training subjects, and how many fewer would do."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.evaluation.statistics import FewerSubjectsResult, fewer_subjects_factor
from psdnorm.present.figure import CannotDraw, Drawing
from psdnorm.present.style import look_of
from psdnorm.report.figures.comparison import BATCH
from psdnorm.report.figures.curves import Curve, Means, draw_curves, incomplete, means_of, words_of
from psdnorm.report.naming import model_name, norm_name, norms_in_order, unusual
from psdnorm.report.results import Results
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import CONFIG

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Balanced accuracy by number of training subjects"


def draw_training_size(results: Results, model: str) -> Drawing:
    """Draw balanced accuracy over the training subjects of all cohorts together.

    Parameters
    ----------
    results : Results
    model : str

    Returns
    -------
    Drawing
    """
    title = f"{_TITLE}: {model_name(model)}"
    curves, means, repeated = _curves(results, model, title)
    canvas = draw_curves(
        curves, means, x_label="training subjects (mean over held-out cohorts)", is_log=True
    )
    factors = _factors(curves, means)
    _mark(canvas.axes[0], curves, factors)
    said = " ".join(
        factor_words(label, result, by_seed) for label, (result, by_seed) in factors.items()
    )
    return Drawing(
        name=f"training-size-{model}",
        title=title,
        words=f"{words_of(curves, means, 'subjects')} {said}".strip(),
        caption=f"{len(means.cohorts)} held-out cohort{'s' * (len(means.cohorts) != 1)}. "
        f"{_sentences(means.seeds, means.remark)} Factors are read off the curves in "
        f"{MEAN_DATASET}, straight over log N and made to rise; where curves are flat, a small "
        f"difference in score is a large factor. {' '.join(repeated)}".strip(),
        canvas=canvas,
        missing=incomplete(curves, means, title),
    )


def size_factors(
    results: Results, model: str
) -> dict[str, tuple[FewerSubjectsResult, list[float]]]:
    """Read off the curves how many times fewer subjects each PSDNorm needs than BatchNorm.

    Parameters
    ----------
    results : Results
    model : str

    Returns
    -------
    dict of str to tuple
        By label: the result, with scores in percent, and the factors of single seeds where there
        are several. Empty where BatchNorm or PSDNorm has no curve.
    """
    try:
        curves, means, _ = _curves(results, model, _TITLE)
    except CannotDraw:
        return {}
    return _factors(curves, means)


def factor_words(label: str, result: FewerSubjectsResult, by_seed: list[float]) -> str:
    """Say how many times fewer subjects are enough, or why that cannot be said.

    Parameters
    ----------
    label : str
        Of the curve.
    result : FewerSubjectsResult
    by_seed : list of float
        Factors of single seeds.
    """
    if result.at_least <= 1:
        return (
            f"{label} is as good as BatchNorm with {result.reference_size:,.0f} subjects, and was "
            "not run with fewer: there is no factor."
        )
    if np.isfinite(result.at_least):
        return (
            f"{label} is as good as BatchNorm with {result.reference_size:,.0f} subjects from its "
            f"smallest size on: at least ×{result.at_least:.2g} fewer."
        )
    if not np.isfinite(result.factor):
        return f"{label}: {result.note}."
    seeds = f", {min(by_seed):.2g} to {max(by_seed):.2g} in single seeds" if by_seed else ""
    return (
        f"{label} is as good as BatchNorm with {result.reference_size:,.0f} subjects from "
        f"{result.norm_size:,.0f} on: ×{result.factor:.2g} fewer{seeds}."
    )


def _curves(results: Results, model: str, title: str) -> tuple[list[Curve], Means, list[str]]:
    """Return curves over training subjects, their means, and which sizes came to as many."""
    cells = results.of(model=model).cells
    sized = _sized(cells)
    if not sized:
        raise CannotDraw(f"{title}: no norm was run with two training sizes.")
    means = means_of(results, sized, title)
    curves, repeated = _placed(sized, _training_subjects(cells, means.cohorts))
    if not curves:
        raise CannotDraw(f"{title}: all sizes have as many training subjects. {' '.join(repeated)}")
    return curves, means, repeated


def _sentences(*each: str) -> str:
    return " ".join(filter(None, each))


def _sized(cells: pd.DataFrame) -> list[Curve]:
    """Return a curve over balanced@N, infinity for all, for every norm with two sizes or more."""
    curves = []
    for norm in norms_in_order(cells["norm"]):
        own = cells[cells["norm"] == norm]
        for _, group in own.groupby(["filter_size", "norm_depth"], dropna=False):
            sizes = group["balanced"].astype("Float64").fillna(np.inf).astype(float)
            arms: dict[float | None, str] = dict(zip(sizes, group["arm"], strict=True))
            if len(arms) > 1:
                setting = group.iloc[0][["filter_size", "norm_depth"]].to_dict()
                curves.append(Curve(norm, norm_name(norm) + unusual(**setting), arms))
    return curves


def _training_subjects(cells: pd.DataFrame, cohorts: list[str]) -> dict[float, float]:
    """Return how many subjects a network of each size learned from, mean over held-out cohorts."""
    counts: dict[float, dict[str, list[int]]] = {}
    for cell in cells[cells["hold_out"].isin(cohorts)].itertuples():
        path = cell.folder / CONFIG
        try:
            number = int(read_json(path)["data"]["train"]["subjects"])
        except (KeyError, TypeError, ValueError) as error:
            raise CannotDraw(f"{_TITLE}: {path} does not say how many subjects trained.") from error
        size = np.inf if pd.isna(cell.balanced) else float(cell.balanced)
        counts.setdefault(size, {}).setdefault(cell.hold_out, []).append(number)
    # cohorts first: a cell that lacks must not make one size look like another
    return {
        size: float(np.mean([np.mean(own[cohort]) for cohort in sorted(own)]))
        for size, own in counts.items()
    }


def _placed(curves: list[Curve], subjects: dict[float, float]) -> tuple[list[Curve], list[str]]:
    """Place curves by training subjects; of sizes that come to as many, the largest N stays."""
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


def _factors(
    curves: list[Curve], means: Means
) -> dict[str, tuple[FewerSubjectsResult, list[float]]]:
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
    scores = [
        [own.get(each.arms.get(size, ""), np.nan) for size in sizes] for each in (reference, curve)
    ]
    return fewer_subjects_factor(sizes, *scores)  # type: ignore[arg-type]


def _mark(
    axes: "Axes", curves: list[Curve], factors: dict[str, tuple[FewerSubjectsResult, list[float]]]
) -> None:
    """Join the sizes at which BatchNorm and PSDNorm are as good, and write the factors."""
    lines = []
    for curve in curves:
        if curve.label not in factors:
            continue
        result, _ = factors[curve.label]
        if np.isfinite(result.factor):
            lines.append(f"{curve.label}: ×{result.factor:.2g} fewer subjects")
            ends = [result.norm_size, result.reference_size]
            look = look_of(curve.norm)
            axes.plot(ends, [result.target] * 2, color=look.colour, lw=1, ls=":", marker="|")
        elif result.at_least > 1:
            lines.append(f"{curve.label}: at least ×{result.at_least:.2g} fewer subjects")
    if lines:
        axes.text(0.98, 0.03, "\n".join(lines), transform=axes.transAxes, ha="right", fontsize=8)
