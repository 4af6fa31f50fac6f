"""Reliability: how often a network is right when it says how sure it is."""

from typing import TYPE_CHECKING

import numpy as np

from psdnorm.evaluation import CalibrationBins, bins_of, expected_calibration_error
from psdnorm.present.figure import CannotDraw, Drawing, panels
from psdnorm.present.style import look_of
from psdnorm.report.figures.comparison import Comparison, shortened
from psdnorm.report.naming import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Calibration"


def draw_calibration(comparison: Comparison) -> Drawing:
    """Draw accuracy over confidence for each norm.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel per norm; the line labelled "accuracy" has a point for each bin with epochs.
    """
    bins = {norm: _pooled(comparison, norm) for norm in comparison.labels}
    known = {norm: each for norm, each in bins.items() if each.counts.sum()}
    if not known:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): no epoch was scored.")
    canvas, axes = panels(len(known), columns=5, width=9, height=2.2, sharex=True, sharey=True)
    if len(known) < 4:
        canvas.set_size_inches(2.6 * len(known) + 0.8, 3.1)
    errors = {norm: float(expected_calibration_error(each)) for norm, each in known.items()}
    for panel, (norm, each) in zip(axes, known.items(), strict=True):
        _draw(panel, each, norm)
        panel.set_title(f"{comparison.labels[norm]}\nECE {100 * errors[norm]:.2f} %", loc="left")
    canvas.supxlabel("confidence (%)", fontsize=9)
    canvas.supylabel("accuracy (%)", fontsize=9)
    said = [f"{comparison.labels[norm]} {100 * error:.2f} %" for norm, error in errors.items()]
    unlike = shortened(_unlike(comparison))
    if comparison.contest.lacking:
        unlike.append("Cells count here, too, that the verdict leaves out.")
    return Drawing(
        name=f"calibration-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}",
        words="Accuracy over confidence in 15 bins; the expected calibration error (ECE) of all "
        f"epochs together is {listed(said)}.",
        caption="Epochs of all held-out subjects and seeds together, so that large cohorts weigh "
        "most. Bars are the share of epochs in a bin; points below the diagonal are too "
        f"sure. {' '.join([*unlike, *comparison.left_out])}".strip(),
        canvas=canvas,
    )


def _pooled(comparison: Comparison, norm: str) -> CalibrationBins:
    bins = bins_of(comparison.results.of(norm=norm).subjects)
    return CalibrationBins(
        bins.counts.sum(axis=0), bins.correct.sum(axis=0), bins.confidence_sums.sum(axis=0)
    )


def _unlike(comparison: Comparison) -> list[str]:
    """Name the norms that lack cells which another has: other people are in their epochs."""
    cells = comparison.results.cells
    places = cells.groupby("norm").apply(
        lambda own: {*zip(own["hold_out"], own["seed"], strict=True)}, include_groups=False
    )
    any_has = set().union(*places)
    return [
        f"{label} has {len(places[norm])} of {len(any_has)} cells."
        for norm, label in comparison.labels.items()
        if places[norm] != any_has
    ]


def _draw(axes: "Axes", bins: CalibrationBins, norm: str) -> None:
    look = look_of(norm)
    edges = 100 * np.linspace(0, 1, len(bins.counts) + 1)
    share = 100 * bins.counts / bins.counts.sum()
    axes.bar(edges[:-1], share, np.diff(edges), align="edge", color="#CCCCCC", label="epochs")
    axes.plot([0, 100], [0, 100], color="black", lw=0.8, ls="--")
    used = bins.counts > 0
    axes.plot(
        100 * bins.mean_confidence[used],
        100 * bins.accuracy[used],
        **look.styled(ms=3.5, lw=1, label="accuracy"),
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks([0, 50, 100])
    axes.set_box_aspect(1)
