"""Gains over BatchNorm as a forest: of each cohort and of all, with intervals."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import bootstrap_gains
from psdnorm.report.duels import has_seeds
from psdnorm.report.figures.comparison import BATCH, Comparison
from psdnorm.report.figures.drawing import CannotDraw, Drawing, panels
from psdnorm.report.figures.looks import look_of
from psdnorm.report.naming import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Gain over BatchNorm"
_DRAWS_OF_A_COHORT = 2000


def draw_gains(comparison: Comparison) -> Drawing:
    """Draw each norm's gain over BatchNorm in every cohort and in both means.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel per norm; a point for each row of it, from the top.
    """
    if BATCH not in comparison.labels:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): BatchNorm has no result.")
    comparison.needs_two_norms(_TITLE)
    values = comparison.tables.by_seed.dropna()
    is_seeded = has_seeds(values)
    overall = bootstrap_gains(values, BATCH, resample_seeds=is_seeded)
    gains = pd.concat([_of_cohorts(values), overall.gains.assign(row=overall.gains["mean"])])
    norms = [norm for norm in comparison.labels if norm != BATCH]
    rows = list(dict.fromkeys(gains["row"]))
    height = 0.21 * len(rows) + 0.75
    width = 2.3 * min(len(norms), 4) + 1.6
    canvas, axes = panels(
        len(norms), columns=4, width=width, height=height, sharex=True, sharey=True
    )
    for panel, norm in zip(axes, norms, strict=True):
        own = gains[gains["norm"] == norm].set_index("row").loc[rows]
        _draw(panel, own, norm)
        panel.set_title(comparison.labels[norm], loc="left")
    axes[0].invert_yaxis()
    canvas.supxlabel("gain in balanced accuracy (points)", fontsize=9)
    caption = (
        f"Points and {overall.confidence:.0%} bootstrap intervals. Of a cohort, its subjects"
        f"{' and seeds' * is_seeded} are drawn; of the means, {listed(overall.resampled)}. "
        f"{overall.caption} "
    )
    return Drawing(
        name=f"gains-{comparison.key}",
        title=f"{_TITLE}, by cohort: {comparison.setting}",
        words=_words(gains, norms, comparison.labels),
        caption=(caption + comparison.remarks).strip(),
        canvas=canvas,
    )


def _of_cohorts(values: pd.DataFrame) -> pd.DataFrame:
    tables = []
    for cohort, own in values.groupby(level="cohort", observed=True):
        table = bootstrap_gains(
            own, BATCH, n_draws=_DRAWS_OF_A_COHORT, resample_seeds=has_seeds(own)
        ).gains
        tables.append(table[table["mean"] == MEAN_DATASET].assign(row=cohort))
    return pd.concat(tables)


def _draw(axes: "Axes", gains: pd.DataFrame, norm: str) -> None:
    look = look_of(norm)
    at = np.arange(len(gains))
    is_mean = gains.index.isin([MEAN_DATASET, MEAN_SUBJECT])
    gain = gains["gain"].to_numpy()
    reach = np.abs(gains[["low", "high"]].to_numpy().T - gain)
    axes.axvline(0, color="black", lw=0.8, ls="--")
    axes.axhspan(at[is_mean].min() - 0.5, at.max() + 0.5, color="#EEEEEE", lw=0)
    for mask, size, width in ((~is_mean, 4, 1.0), (is_mean, 6, 2.0)):
        axes.errorbar(
            gain[mask],
            at[mask],
            xerr=reach[:, mask],
            fmt=look.marker,
            color=look.colour,
            ms=size,
            lw=width,
            label="means" if mask is is_mean else "cohorts",
        )
    axes.set_yticks(at, [str(row) for row in gains.index])
    axes.set_ylim(-0.7, at.max() + 0.5)
    axes.margins(x=0.05)
    axes.grid(axis="x", color="#DDDDDD", lw=0.5)
    axes.set_axisbelow(True)


def _words(gains: pd.DataFrame, norms: list[str], labels: dict[str, str]) -> str:
    sentences = []
    for norm in norms:
        own = gains[gains["norm"] == norm].set_index("row")
        cohorts = own.drop([MEAN_DATASET, MEAN_SUBJECT])
        means = [f"{name} {_interval(own.loc[name])}" for name in (MEAN_DATASET, MEAN_SUBJECT)]
        ahead = int((cohorts["gain"] > 0).sum())
        each = listed([f"{name} {row['gain']:+.2f}" for name, row in cohorts.iterrows()])
        sentences.append(
            f"{labels[norm]} over BatchNorm, in points: {', '.join(means)}; ahead in {ahead} of "
            f"{len(cohorts)} cohorts: {each}."
        )
    return " ".join(sentences)


def _interval(row: "pd.Series[float]") -> str:
    return f"{row['gain']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
