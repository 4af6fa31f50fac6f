"""F1 scores of each stage: how far a norm is from BatchNorm, and how far its seeds differ."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.models.card import STAGES
from psdnorm.report.figures.comparison import BATCH, Comparison
from psdnorm.report.figures.drawing import CannotDraw, Drawing, new_canvas
from psdnorm.report.figures.looks import look_of
from psdnorm.report.naming import listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_TITLE = "F1 of each stage, difference to BatchNorm"


def draw_stages(comparison: Comparison) -> Drawing:
    """Draw the difference to BatchNorm in each stage's F1, with its spread over seeds.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One container of error bars per norm, labelled with its name, a point for each stage.
    """
    if BATCH not in comparison.labels:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): BatchNorm has no result.")
    comparison.needs_two_norms(_TITLE)
    by_seed = {norm: _differences(comparison, norm) for norm in comparison.labels if norm != BATCH}
    known = {norm: table for norm, table in by_seed.items() if len(table)}
    if not known:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): no norm shares a seed with BatchNorm.")
    seeds = {len(table) for table in known.values()}
    spread_said = "bars are ± the standard deviation over seeds (ddof = 1)"
    if 1 in seeds:
        one = "a norm with one seed has no ±"
        spread_said = one if seeds == {1} else f"{spread_said}, {one}"
    missing = [
        f"{_TITLE} ({comparison.setting}): {comparison.labels[norm]} shares no seed with BatchNorm."
        for norm in by_seed
        if norm not in known
    ]
    return Drawing(
        name=f"stages-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}",
        words=_words(known, comparison.labels),
        caption=f"Mean(Dataset) of subjects' F1 minus BatchNorm's in the same seed, over the "
        f"cohorts that both have in it; {spread_said}. {comparison.remarks}".strip(),
        canvas=_draw(known, comparison.labels),
        missing=missing,
    )


def _draw(known: dict[str, pd.DataFrame], labels: dict[str, str]) -> "Canvas":
    canvas = new_canvas(8, 3.6)
    axes = canvas.subplots()
    step = 0.8 / len(known)
    for place, (norm, table) in enumerate(known.items()):
        look = look_of(norm)
        at = np.arange(len(STAGES)) + step * (place - (len(known) - 1) / 2)
        spread = table.std(ddof=1).fillna(0).to_numpy()
        axes.errorbar(
            at,
            table.mean().to_numpy(),
            yerr=spread,
            fmt=look.marker,
            color=look.colour,
            ms=5,
            capsize=2,
            lw=1,
            label=labels[norm],
        )
    axes.axhline(0, color="black", lw=0.8, ls="--")
    for border in np.arange(len(STAGES) - 1) + 0.5:
        axes.axvline(border, color="#DDDDDD", lw=0.6)
    axes.set_xticks(range(len(STAGES)), STAGES)
    axes.set_xlim(-0.5, len(STAGES) - 0.5)
    axes.set_ylabel("difference in F1 (points)")
    canvas.legend(loc="outside right center", handletextpad=0.3)
    return canvas


def _differences(comparison: Comparison, norm: str) -> pd.DataFrame:
    """Return the differences of Mean(Dataset) in points, seeds by stages.

    Of the cohorts that both have; a seed that lacks one of these has no mean.
    """
    runs = comparison.results.runs
    columns = [f"f1_{stage}" for stage in STAGES]
    pair = runs[runs["norm"].isin([norm, BATCH])]
    means = pair.groupby(["norm", "cohort", "seed"])[columns].mean()  # NaN aside
    if norm not in means.index.get_level_values("norm"):
        return pd.DataFrame(columns=list(STAGES))
    differences = (100 * (means.loc[norm] - means.loc[BATCH])).dropna(how="all")
    cohorts = differences.index.get_level_values("cohort").nunique()
    complete = differences.groupby(level="seed").filter(lambda own: len(own) == cohorts)
    return complete.groupby(level="seed").mean().set_axis(list(STAGES), axis="columns")


def _words(known: dict[str, pd.DataFrame], labels: dict[str, str]) -> str:
    sentences = []
    for norm, table in known.items():
        spread = table.std(ddof=1)
        each = listed(
            [
                f"{stage} {table[stage].mean():+.2f}"
                + (f" ± {spread[stage]:.2f}" if np.isfinite(spread[stage]) else "")
                for stage in STAGES
            ]
        )
        sentences.append(f"{labels[norm]}, points of F1 over BatchNorm: {each}.")
    return " ".join(sentences)
