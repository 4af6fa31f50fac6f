"""Lines of mean scores over a setting, with their spread over seeds, for both means."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate
from psdnorm.present.figure import CannotDraw, panels
from psdnorm.present.style import EndLabel, label_ends, look_of
from psdnorm.report.figures.comparison import SCORE
from psdnorm.report.naming import listed
from psdnorm.report.results import Results

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
