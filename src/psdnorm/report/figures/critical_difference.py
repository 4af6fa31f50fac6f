"""Critical-difference diagrams: mean ranks, and bars over norms that were not shown to differ."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.evaluation.statistics import (
    NemenyiResult,
    WilcoxonHolmResult,
    friedman,
    nemenyi,
    wilcoxon_holm,
)
from psdnorm.present import CannotDraw, Drawing, look_of, new_canvas
from psdnorm.report.figures.comparison import Comparison
from psdnorm.runtime import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Compared = NemenyiResult | WilcoxonHolmResult
_BAR, _ROW = 0.42, 0.62  # heights of a bar and of a label, in the unit of y
_SIDE = 0.36  # room for labels on either side, as a share of the axis
_TESTS = ("Nemenyi", "Wilcoxon–Holm")


def draw_ranks(comparison: Comparison, blocks: str) -> Drawing:
    """Draw the mean ranks of norms, as Nemenyi's test and as Wilcoxon's see them.

    Parameters
    ----------
    comparison : Comparison
    blocks : {"datasets", "subjects"}

    Returns
    -------
    Drawing
        Two panels; in each a line labelled with a norm's name marks its mean rank.
    """
    title = f"Critical differences over {blocks}"
    comparison.needs_two_norms(title)
    values: pd.DataFrame = getattr(comparison.tables, blocks)
    if len(values.dropna()) < 2:
        raise CannotDraw(
            f"{title} ({comparison.setting}): ranks need two {blocks} that every norm has, found "
            f"{len(values.dropna())}."
        )
    results: tuple[Compared, Compared] = nemenyi(values), wilcoxon_holm(values)
    heights = [_height(result) for result in results]
    canvas = new_canvas(8, 0.28 * sum(heights) + 0.9)
    axes = canvas.subplots(2, height_ratios=heights)
    for panel, result, test in zip(axes, results, _TESTS, strict=True):
        _draw(panel, result, comparison.labels)
        panel.set_title(_heading(result, test), loc="left")
    return Drawing(
        name=f"ranks-{blocks}-{comparison.key}",
        title=f"{title}: {comparison.setting}",
        words=_words(results, comparison.labels),
        caption=_caption(comparison, values, results),
        canvas=canvas,
    )


def _draw(axes: "Axes", result: Compared, labels: dict[str, str]) -> None:
    ranks = result.mean_ranks.sort_values(kind="stable")
    n = len(ranks)
    side = _SIDE * (n - 1)
    axes.set_xlim(1 - side, n + side)
    axes.set_ylim(-_height(result) + 1.4, 1.4)
    axes.axis("off")
    axes.plot([1, n], [0, 0], color="black", lw=1)
    for tick in range(1, n + 1):
        axes.plot([tick, tick], [0, 0.18], color="black", lw=1)
        axes.text(tick, 0.28, str(tick), ha="center", va="bottom", fontsize=8)
    axes.text(1 - 0.04 * (n - 1), 0.28, "mean rank", ha="right", va="bottom", fontsize=8)
    first_row = -(len(_bars(result)) * _BAR + _ROW)
    for place, (norm, rank) in enumerate(ranks.items()):
        is_left = place < (n + 1) // 2
        row = first_row - _ROW * (place if is_left else n - 1 - place)
        edge, align = (1 - 0.05 * side, "right") if is_left else (n + 0.05 * side, "left")
        look = look_of(str(norm))
        axes.plot([rank, rank, edge], [0, row, row], color=look.colour, lw=0.9)
        axes.plot([rank], [0], marker=look.marker, color=look.colour, label=labels[str(norm)])
        text = f" {labels[str(norm)]}  {rank:.2f} "
        axes.text(edge, row, text, ha=align, va="center", fontsize=8.5)
    _draw_bars(axes, result)


def _draw_bars(axes: "Axes", result: Compared) -> None:
    for number, clique in enumerate(_bars(result)):
        at = result.mean_ranks[list(clique)]
        y = -(number + 0.75) * _BAR
        axes.plot([at.min(), at.max()], [y, y], color="black", lw=3, solid_capstyle="round")
        # a bar may pass a norm that is not of the group: dots mark those that are
        axes.plot(at, [y] * len(at), "o", ms=5, mfc="white", mec="black", label="members")
    if isinstance(result, NemenyiResult) and result.critical_difference <= len(result.p) - 1:
        ends = [1, 1 + result.critical_difference]
        axes.plot(ends, [1.15, 1.15], color="black", lw=1.5, marker="|", label="CD")
        axes.text(ends[1], 1.15, f"  CD {result.critical_difference:.2f}", va="center", fontsize=8)


def _bars(result: Compared) -> list[tuple[str, ...]]:
    """Return the groups to draw; none where nothing was tested."""
    is_tested = result.p.notna().all(axis=None)
    return result.cliques if is_tested else []


def _height(result: Compared) -> float:
    rows = (len(result.mean_ranks) + 1) // 2
    return 1.9 + len(_bars(result)) * _BAR + rows * _ROW


def _heading(result: Compared, test: str) -> str:
    heading = f"{test}, α = {result.alpha:g}"
    if isinstance(result, NemenyiResult) and np.isnan(result.critical_difference):
        heading += ": not tested"
    return f"{heading}: {result.note}" if result.note else heading


def _words(results: tuple[Compared, Compared], labels: dict[str, str]) -> str:
    ranks = results[0].mean_ranks.sort_values(kind="stable")
    named = listed([f"{labels[str(norm)]} {rank:.2f}" for norm, rank in ranks.items()])
    sentences = [f"Mean ranks over {results[0].counted}, 1 is best: {named}."]
    for result, test in zip(results, _TESTS, strict=True):
        groups = [listed([labels[norm] for norm in clique]) for clique in result.cliques]
        found = "; ".join(groups) or "none, all pairs differ"
        distance = ""
        if isinstance(result, NemenyiResult):
            if np.isnan(result.critical_difference):
                continue
            distance = f" (critical difference {result.critical_difference:.2f})"
        sentences.append(f"{test}{distance}, groups without a shown difference: {found}.")
    return " ".join(sentences)


def _caption(
    comparison: Comparison, values: pd.DataFrame, results: tuple[Compared, Compared]
) -> str:
    test = friedman(values)
    p = "p < 1e-300" if test.p == 0 else f"p = {test.p:.2g}"
    overall = "" if np.isnan(test.p) else f"Friedman: χ² = {test.statistic:.2f}, {p}."
    counted = test.counted
    if test.left_out:
        counted += f"; {len(test.left_out):,} left out, which not every norm has"
    notes = [f"{t}: {r.note}." for r, t in zip(results, _TESTS, strict=True) if r.note]
    bars = (
        "Bars join norms that were not shown to differ, which is not equality; dots mark the "
        "members, as Wilcoxon's groups need not be neighbours."
    )
    said = [f"{counted}.", overall, *notes, bars, test.caveat, comparison.remarks]
    return " ".join(filter(None, said))
