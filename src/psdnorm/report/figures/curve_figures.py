"""Scores against filter size, depth and size of the training set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate
from psdnorm.evaluation.statistics import FewerSubjectsResult, fewer_subjects_factor
from psdnorm.present import CannotDraw, Drawing, EndLabel, label_ends, look_of, panels
from psdnorm.report.figures.comparison import BATCH, SCORE, Comparison
from psdnorm.report.naming import norms_in_order
from psdnorm.report.results import Results
from psdnorm.runtime import listed, read_json
from psdnorm.training import AUTO_SIZE, CONFIG, model_name, norm_name, unusual

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MEANS = (MEAN_DATASET, MEAN_SUBJECT)
_LINES = ("--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """A norm at one or several settings.

    Attributes
    ----------
    norm : str
    label : str
    arms : dict of float to str
        Place on the axis and arm of :class:`~psdnorm.report.results.Results`; None as the only
        place stands for a baseline, which is the same everywhere.
    """

    norm: str
    label: str
    arms: dict[float | None, str]

    @property
    def is_baseline(self) -> bool:
        """Whether it is a horizontal line."""
        return None in self.arms


@dataclass(frozen=True)
class Means:
    """Scores of arms in percent, over the cohorts that all of them have.

    Attributes
    ----------
    by_seed : DataFrame, (n_arms · n_seeds, 2)
        Mean(Dataset) and Mean(Subject), indexed by ``arm`` and ``seed``.
    cohorts : list of str
    remark : str
        Which cohorts were left out, in a sentence; empty if none.
    """

    by_seed: pd.DataFrame
    cohorts: list[str]
    remark: str

    def of(self, curve: Curve, mean: str) -> pd.DataFrame:
        """Return ``mean`` and ``std`` over seeds of a curve's places, indexed by place.

        Places whose arm has no complete seed are left out.
        """
        known = {
            place: self.by_seed.loc[arm, mean]
            for place, arm in curve.arms.items()
            if arm in self.by_seed.index
        }
        rows = {place: (own.mean(), own.std(ddof=1)) for place, own in known.items()}
        table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "std"])
        return table.sort_index()

    @property
    def seeds(self) -> str:
        """How many seeds stand behind an arm, in words."""
        counts = self.by_seed.groupby(level="arm").size()
        low, high = int(counts.min()), int(counts.max())
        if high == 1:
            return "One seed, so there is no ±."
        number = str(high) if low == high else f"{low} to {high}"
        return f"Bands are ± the standard deviation over {number} seeds (ddof = 1)."


def means_of(results: Results, curves: Sequence[Curve], what: str) -> Means:
    """Average the scores of curves over the cohorts that every one of their arms has.

    Parameters
    ----------
    results : Results
    curves : sequence of Curve
    what : str
        What is to be drawn, for the sentence that says why it is not.
    """
    arms = {arm for curve in curves for arm in curve.arms.values()}
    cells = results.cells[results.cells["arm"].isin(arms)]
    everywhere = set.intersection(*cells.groupby("arm")["hold_out"].agg(set))
    if not everywhere:
        raise CannotDraw(f"{what}: there is no cohort that every setting has.")
    runs = results.runs
    runs = runs[runs["arm"].isin(arms) & runs["cohort"].isin(everywhere)]
    runs = runs[["arm", "seed", "cohort", "subject", SCORE]]
    table = aggregate(runs.assign(of_seed=runs["seed"]), by=["arm", "of_seed"])
    complete = table[table["dataset"].isin(MEANS) & (table["datasets"] == len(everywhere))]
    by_seed = complete.pivot(index=["arm", "of_seed"], columns="dataset", values="mean")
    by_seed = 100 * by_seed.rename_axis(["arm", "seed"]).dropna()
    if by_seed.empty:
        raise CannotDraw(f"{what}: there is no seed that has every cohort.")
    others = sorted(set(cells["hold_out"]) - everywhere)
    remark = f"{listed(others)} left out, which not every setting has." if others else ""
    return Means(by_seed, sorted(everywhere), remark)


def draw_curves(
    curves: Sequence[Curve], means: Means, *, x_label: str, is_log: bool = False
) -> "Canvas":
    """Draw both means over a setting: curves as lines, baselines across.

    Parameters
    ----------
    curves : sequence of Curve
    means : Means
    x_label : str
    is_log : bool
        Whether the axis is logarithmic.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per mean; lines are labelled with the curves' labels.
    """
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
    seen: list[str] = []
    for curve in curves:
        table, look = means.of(curve, mean), look_of(curve.norm)
        seen.append(curve.norm)
        if table.empty:
            continue
        x, y = table.index.to_numpy(), table["mean"].to_numpy()
        spread = table["std"].fillna(0).to_numpy()
        if curve.is_baseline:
            axes.axhline(y[0], color=look.colour, ls=look.line, lw=1.2, label=curve.label)
            axes.axhspan(y[0] - spread[0], y[0] + spread[0], color=look.colour, alpha=0.12, lw=0)
        else:
            number = seen.count(curve.norm) - 1  # a norm at several settings: other lines
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
    """Say every point of the curves in Mean(Dataset), and where it is highest."""
    sentences = []
    for curve in curves:
        table = means.of(curve, MEAN_DATASET)
        if table.empty:
            continue
        points = [_point(mean, std) for mean, std in table.to_numpy()]
        if curve.is_baseline:
            sentences.append(f"{curve.label} {points[0]} %.")
            continue
        said = [
            f"{point} at {place:,.0f}" for place, point in zip(table.index, points, strict=True)
        ]
        best = table["mean"].idxmax()
        sentences.append(
            f"{curve.label} {listed(said)} {unit}, in percent; highest at {best:,.0f}."
        )
    return f"{MEAN_DATASET} of balanced accuracy. {' '.join(sentences)}"


def _point(mean: float, std: float) -> str:
    return f"{mean:.2f}" + (f" ± {std:.2f}" if np.isfinite(std) else "")


def incomplete(curves: Sequence[Curve], means: Means, what: str) -> list[str]:
    """Name the arms that have no seed with every cohort."""
    known = set(means.by_seed.index.get_level_values("arm"))
    return [
        f"{what}: {arm} has no seed with every cohort."
        for curve in curves
        for arm in curve.arms.values()
        if arm not in known
    ]


@dataclass(frozen=True)
class Sweep:
    """A setting that is varied.

    Attributes
    ----------
    axis, fixed : str
        Columns of the cells: the one that is varied, and the one that stays.
    name, title, x_label, unit : str
    """

    axis: str
    fixed: str
    name: str
    title: str
    x_label: str
    unit: str


FILTER_SIZE = Sweep(
    axis="filter_size",
    fixed="norm_depth",
    name="filter-size",
    title="Balanced accuracy by filter size",
    x_label="filter size f of the first block (samples)",
    unit="samples",
)
NORM_DEPTH = Sweep(
    axis="norm_depth",
    fixed="filter_size",
    name="norm-depth",
    title="Balanced accuracy by number of layers with the norm",
    x_label="encoder blocks with the norm",
    unit="blocks",
)


def varied(results: Results, comparison: Comparison, sweep: Sweep) -> list[Curve]:
    """Return a curve for every norm that was run at two places of a sweep or more.

    Parameters
    ----------
    results : Results
        With all settings.
    comparison : Comparison
        Says which model and size.
    sweep : Sweep
    """
    cells = results.of(model=comparison.model, balanced=comparison.balanced).cells
    curves = []
    for norm in norms_in_order(cells["norm"]):
        own = cells[(cells["norm"] == norm) & cells[sweep.axis].notna()]
        own = own[own[sweep.axis] != AUTO_SIZE] if sweep is FILTER_SIZE else own
        for _, group in own.groupby(sweep.fixed, dropna=False):
            arms = dict(zip(group[sweep.axis].astype(int), group["arm"], strict=True))
            if len(arms) > 1:
                fixed = group.iloc[0][[sweep.fixed]].to_dict()
                curves.append(Curve(norm, norm_name(norm) + unusual(**fixed), arms))
    return curves


def _chosen(results: Results, comparison: Comparison) -> list[Curve]:
    """Return a line across for every norm whose filter size was chosen for each cohort."""
    cells = results.of(model=comparison.model, balanced=comparison.balanced).cells
    own = cells[cells["filter_size"] == AUTO_SIZE].drop_duplicates("arm")
    sizes = zip(own["norm"], own["filter_size"], own["norm_depth"], own["arm"], strict=True)
    return [
        Curve(norm, norm_name(norm) + unusual(f, depth), {None: arm})
        for norm, f, depth, arm in sizes
    ]


def draw_sweep(results: Results, comparison: Comparison, sweep: Sweep) -> Drawing:
    """Draw balanced accuracy over a setting; norms that do not vary are baselines.

    Parameters
    ----------
    results : Results
    comparison : Comparison
        Of which :func:`varied` finds curves.
    sweep : Sweep

    Returns
    -------
    Drawing
    """
    curves = varied(results, comparison, sweep)
    arms = comparison.results.cells.drop_duplicates("norm").set_index("norm")["arm"]
    is_varied = {curve.norm for curve in curves}
    curves += [
        Curve(norm, label, {None: arms[norm]})
        for norm, label in comparison.labels.items()
        if norm not in is_varied
    ]
    if sweep is FILTER_SIZE:
        drawn = {arm for curve in curves for arm in curve.arms.values()}
        curves += [curve for curve in _chosen(results, comparison) if curve.arms[None] not in drawn]
    title = f"{sweep.title}: {comparison.setting}"
    means = means_of(results, curves, title)
    return Drawing(
        name=f"{sweep.name}-{comparison.key}",
        title=title,
        words=words_of(curves, means, sweep.unit),
        caption=f"{len(means.cohorts)} held-out cohort{'s' * (len(means.cohorts) != 1)}. "
        f"{means.seeds} {means.remark}".strip(),
        canvas=draw_curves(curves, means, x_label=sweep.x_label),
        missing=incomplete(curves, means, title),
    )


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
