"""F1 scores of each stage: how far a norm is from a reference, and how far its seeds differ."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation import MEAN_DATASET
from psdnorm.models.card import STAGES
from psdnorm.present.figure import CannotDraw, Drawing, new_canvas
from psdnorm.present.style import look_of
from psdnorm.report.figures.comparison import BATCH, Comparison
from psdnorm.report.naming import listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SEEDS_LEFT_OUT = "Seeds that lack a cohort are left out."
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
    seeds = comparison.contest.seeds[MEAN_DATASET].index
    if seeds.empty:
        raise CannotDraw(
            f"{_TITLE} ({comparison.setting}): there is no seed in which every norm has all "
            "cohorts."
        )
    runs = comparison.runs
    whole = runs[runs["seed"].isin(seeds)]
    left_out = "" if len(whole) == len(runs) else SEEDS_LEFT_OUT
    return by_stage(
        whole,
        BATCH,
        comparison.labels,
        name=f"stages-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}",
        remarks=f"{left_out} {comparison.remarks}".strip(),
    )


def by_stage(
    runs: pd.DataFrame,
    reference: str,
    labels: dict[str, str],
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Draw the differences to a reference in each stage's F1.

    Parameters
    ----------
    runs : DataFrame
        ``norm``, ``seed``, ``cohort`` and F1 as shares, a row for each subject; the same subjects
        for every norm.
    reference : str
    labels : dict of str to str
        What norms and reference are called.
    name, title : str
    remarks : str
        For the end of the caption.
    """
    found = _differences(runs, reference, [norm for norm in labels if norm != reference])
    spread_said = "one seed has no ±"
    if runs["seed"].nunique() > 1:
        spread_said = "bars are ± the standard deviation over seeds (ddof = 1)"
    return Drawing(
        name=name,
        title=title,
        words=_words(found, labels, labels[reference]),
        caption=f"Mean(Dataset) of subjects' F1 minus that of {labels[reference]} in the same "
        f"seed; {spread_said}. {remarks}".strip(),
        canvas=_draw(found, labels),
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


def _differences(runs: pd.DataFrame, reference: str, norms: list[str]) -> dict[str, pd.DataFrame]:
    """Return the differences of Mean(Dataset) in points, by norm: seeds by stages."""
    columns = [f"f1_{stage}" for stage in STAGES]
    means = runs.groupby(["norm", "seed", "cohort"])[columns].mean()  # NaN aside
    means = 100 * means.set_axis(list(STAGES), axis="columns")
    return {
        # cohort by cohort: one without a stage under either norm counts for neither
        norm: (means.loc[norm] - means.loc[reference]).groupby(level="seed").mean()
        for norm in norms
    }


def _words(known: dict[str, pd.DataFrame], labels: dict[str, str], reference: str) -> str:
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
        sentences.append(f"{labels[norm]}, points of F1 over {reference}: {each}.")
    return " ".join(sentences)
