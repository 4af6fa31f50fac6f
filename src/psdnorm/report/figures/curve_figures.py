"""Scores against filter size, depth and size of the training set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.present import Drawing, EndLabel, label_ends, look_of, panels
from psdnorm.report.contest import MEANS, Contest
from psdnorm.report.curves import (
    TRAINING_SIZE,
    Curve,
    Factors,
    Means,
    curves_over,
    factor_words,
    factors_of,
    means_of,
    training_size_curves,
)
from psdnorm.report.results import Results
from psdnorm.report.tables import figure
from psdnorm.runtime import listed
from psdnorm.training import AUTO_SIZE, Arm, model_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_LINES = ("--", ":", "-.")


def draw_curves(
    curves: Sequence[Curve], means: Means, *, x_label: str, is_log: bool = False
) -> "Canvas":
    """Plot both means against a setting: curves as lines, baselines as horizontal lines."""
    canvas, axes = panels(2, columns=2, width=10, height=3.5, sharey=True)
    for panel, mean in zip(axes, MEANS, strict=True):
        _draw(panel, curves, means, mean, is_log)
        panel.set_title(mean, loc="left")
        panel.set_xlabel(x_label)
    axes[0].set_ylabel("balanced accuracy (%)")
    axes[0].margins(y=0.08)
    axes[0].autoscale_view()
    for panel, mean in zip(axes, MEANS, strict=True):
        label_ends(panel, _ends(panel, curves, means, mean))
    return canvas


def _draw(axes: "Axes", curves: Sequence[Curve], means: Means, mean: str, is_log: bool) -> None:
    places = sorted({place for curve in curves for place in curve.arms if place is not None})
    if is_log:
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:,.0f}" for place in places])
    axes.minorticks_off()
    for place, curve in enumerate(curves):
        table, look = means.of(curve, mean), look_of(curve.norm)
        if table.empty:
            continue
        x, y = table.index.to_numpy(), table["mean"].to_numpy()
        spread = table["std"].fillna(0).to_numpy()
        if curve.is_baseline:
            axes.axhline(y[0], color=look.colour, ls=look.line, lw=1.2, label=curve.label)
            axes.axhspan(y[0] - spread[0], y[0] + spread[0], color=look.colour, alpha=0.12, lw=0)
        else:
            # a norm with several curves: other line styles
            number = sum(other.norm == curve.norm for other in curves[:place])
            style = {"linestyle": _LINES[number % 3 - 1], "mfc": "white"} if number else {}
            axes.plot(x, y, **look.styled(ms=4.5, lw=1.4, label=curve.label, **style))
            axes.fill_between(x, y - spread, y + spread, color=look.colour, alpha=0.15, lw=0)


def _ends(axes: "Axes", curves: Sequence[Curve], means: Means, mean: str) -> list[EndLabel]:
    right = axes.get_xlim()[1]
    ends = []
    for curve in curves:
        table = means.of(curve, mean)
        if not table.empty:
            x = right if curve.is_baseline else float(table.index[-1])
            look = look_of(curve.norm)
            ends.append(EndLabel(x, float(table["mean"].iloc[-1]), curve.label, look.colour))
    return ends


def words_of(curves: Sequence[Curve], means: Means, unit: str) -> str:
    """Return every point of the curves in Mean(Dataset), and where it is highest, in words."""
    sentences = []
    for curve in curves:
        table = means.of(curve, MEAN_DATASET)
        if table.empty:
            continue
        points = [figure(mean, std) for mean, std in table.to_numpy()]
        if curve.is_baseline:
            sentences.append(f"{curve.label} {points[0]} %.")
            continue
        places = zip(points, table.index, strict=True)
        said = listed([f"{point} at {place:,.0f}" for point, place in places])
        best = f"{table['mean'].idxmax():,.0f}"
        sentences.append(f"{curve.label} {said} {unit}, in percent; highest at {best}.")
    return f"{MEAN_DATASET} of balanced accuracy. {' '.join(sentences)}"


def incomplete(curves: Sequence[Curve], means: Means, what: str) -> list[str]:
    """Return a sentence for each arm without a seed that has every cohort."""
    known = set(means.by_seed.index.get_level_values("arm"))
    return [
        f"{what}: {arm} has no seed with every cohort."
        for curve in curves
        for arm in curve.arms.values()
        if arm not in known
    ]


@dataclass(frozen=True)
class Sweep:
    """A setting that is varied."""

    axis: str  # column of the runs that is varied
    fixed: str  # column that stays fixed
    title: str
    x_label: str
    unit: str


FILTER_SIZE = Sweep(
    axis="filter_size",
    fixed="norm_depth",
    title="Balanced accuracy by filter size",
    x_label="filter size f of the first block (samples)",
    unit="samples",
)
NORM_DEPTH = Sweep(
    axis="norm_depth",
    fixed="filter_size",
    title="Balanced accuracy by number of layers with the norm",
    x_label="encoder blocks with the norm",
    unit="blocks",
)


def varied(results: Results, contest: Contest, sweep: Sweep) -> list[Curve]:
    """Return a curve for every norm that was run at two or more places of a sweep."""
    runs = results.of(model=contest.model, balanced=contest.balanced).runs
    runs = runs[runs[sweep.axis].notna()]
    runs = runs[runs[sweep.axis] != AUTO_SIZE] if sweep is FILTER_SIZE else runs
    return curves_over(runs.assign(place=runs[sweep.axis].astype(int)), [sweep.fixed])


def draw_sweep(results: Results, contest: Contest, sweep: Sweep) -> Drawing:
    """Plot balanced accuracy against a setting; norms that do not vary are baselines."""
    curves = varied(results, contest, sweep)
    others = contest.labels.keys() - {curve.norm for curve in curves}
    baselines = [norm for norm in contest.labels if norm in others]
    curves += [Curve(norm, contest.labels[norm], {None: contest.arms[norm]}) for norm in baselines]
    if sweep is FILTER_SIZE:
        # a horizontal line for every norm whose filter size was chosen for each cohort
        drawn = {arm for curve in curves for arm in curve.arms.values()}
        runs = results.of(model=contest.model, balanced=contest.balanced).runs
        chosen = runs[(runs["filter_size"] == AUTO_SIZE) & ~runs["arm"].isin(drawn)]
        arms = map(Arm.of_row, chosen.drop_duplicates("arm").to_dict("records"))
        curves += [Curve(arm.norm, arm.named(), {None: arm.label}) for arm in arms]
    title = f"{sweep.title}: {contest.name}"
    means = means_of(results, curves, title)
    return Drawing(
        name=f"{sweep.axis.replace('_', '-')}-{contest.key}",
        title=title,
        words=words_of(curves, means, sweep.unit),
        caption=means.caption,
        canvas=draw_curves(curves, means, x_label=sweep.x_label),
        missing=incomplete(curves, means, title),
    )


def draw_training_size(results: Results, model: str) -> Drawing:
    """Plot balanced accuracy against the number of training subjects of all cohorts together."""
    title = f"{TRAINING_SIZE}: {model_name(model)}"
    curves, means, repeated = training_size_curves(results, model, title)
    canvas = draw_curves(
        curves, means, x_label="training subjects (mean over held-out cohorts)", is_log=True
    )
    factors = factors_of(curves, means)
    _mark(canvas.axes[0], curves, factors)
    said = " ".join(factor_words(label, *found) for label, found in factors.items())
    return Drawing(
        name=f"training-size-{model}",
        title=title,
        words=f"{words_of(curves, means, 'subjects')} {said}".strip(),
        caption=f"{means.caption} Factors are read off the curves in {MEAN_DATASET}, made to rise "
        "and linear in log N; where curves are flat, a small difference in score is a large "
        f"factor. {' '.join(repeated)}".strip(),
        canvas=canvas,
        missing=incomplete(curves, means, title),
    )


def _mark(axes: "Axes", curves: list[Curve], factors: Factors) -> None:
    """Join the sizes at which BatchNorm and PSDNorm are equally good, and write the factors."""
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
