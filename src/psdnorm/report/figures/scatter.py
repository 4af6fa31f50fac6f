"""Every subject as a point: its score under a baseline, and under PSDNorm."""

from typing import TYPE_CHECKING

from psdnorm.evaluation.statistics import ImprovedResult, share_improved
from psdnorm.evaluation.statistics.basis import DECIMALS
from psdnorm.present.figure import CannotDraw, Drawing, panels
from psdnorm.present.style import BLUE, VERMILION
from psdnorm.report.figures.comparison import BATCH, Comparison

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_TITLE = "Balanced accuracy of each subject"


def draw_scatter(comparison: Comparison) -> Drawing:
    """Draw each subject's score under PSDNorm over that under BatchNorm and the best baseline.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel for each; points are labelled "improved" and "not improved".
    """
    norm = next((name for name in ("psd", "psd-white") if name in comparison.labels), None)
    if norm is None:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): there is no PSDNorm.")
    comparison.needs_two_norms(_TITLE)
    references = _references(comparison)
    best = comparison.labels[references[-1]]
    return scattered(
        comparison.tables.subjects,
        norm,
        references,
        comparison.labels,
        name=f"subjects-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}",
        remarks=f"The best baseline by Mean(Dataset) of the subjects whom every norm has is "
        f"{best}. Intervals are Wilson's. {comparison.remarks}".strip(),
    )


def scattered(
    subjects: "pd.DataFrame",
    norm: str,
    references: list[str],
    labels: dict[str, str],
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Draw each subject's score under a norm over that under references, a panel for each.

    Parameters
    ----------
    subjects : DataFrame, (n_subjects, n_norms)
        Balanced accuracies in percent.
    norm : str
    references : list of str
    labels : dict of str to str
        What norm and references are called.
    name, title : str
    remarks : str
        For the caption.
    """
    results = [share_improved(subjects, norm, reference) for reference in references]
    canvas, axes = panels(len(results), columns=2, width=4.2 * len(results) + 0.4, height=4.4)
    for panel, improved in zip(axes, results, strict=True):
        _draw(panel, subjects[[improved.reference, norm]], improved, labels)
    return Drawing(
        name=name,
        title=title,
        words=" ".join(_words(result, labels) for result in results),
        caption=f"Mean over seeds. {results[0].caption} {remarks}",
        canvas=canvas,
    )


def _references(comparison: Comparison) -> list[str]:
    """Return BatchNorm and the best baseline, each once, the best one last."""
    baselines = [name for name in comparison.labels if not name.startswith("psd")]
    if not baselines:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): there is no baseline.")
    best = str(comparison.tables.datasets[baselines].mean().idxmax())
    return [BATCH, best] if BATCH in baselines and best != BATCH else [best]


def _draw(
    axes: "Axes", values: "pd.DataFrame", improved: ImprovedResult, labels: dict[str, str]
) -> None:
    x, y = values.dropna().round(DECIMALS).to_numpy().T  # ties as share_improved counts them
    size, alpha = (22, 0.8) if len(x) < 300 else (7, 0.45) if len(x) < 3000 else (3, 0.25)
    is_better = y > x
    for mask, colour, marker, label in (
        (is_better, VERMILION, "^", "improved"),
        (~is_better, BLUE, "v", "not improved"),
    ):
        axes.scatter(
            x[mask],
            y[mask],
            s=size,
            c=colour,
            marker=marker,
            alpha=alpha,
            linewidths=0,
            label=label,
            zorder=-1,
        )
    low, high = (min(x.min(), y.min()), max(x.max(), y.max()))
    margin = max(1.0, 0.04 * (high - low))
    limits = (low - margin, high + margin)
    axes.plot(limits, limits, color="black", lw=0.8, ls="--")
    axes.set_xlim(limits)
    axes.set_ylim(limits)
    axes.set_box_aspect(1)
    axes.set_rasterization_zorder(0)  # all points in one image
    axes.set_xlabel(f"{labels[improved.reference]}: balanced accuracy (%)")
    axes.set_ylabel(f"{labels[improved.norm]}: balanced accuracy (%)")
    share = f"▲ improved: {100 * improved.share:.1f} % of {improved.n_blocks:,}"
    axes.set_title(share, loc="left", color="#A34700")
    axes.set_title("▼ not improved", loc="right", color="#005A8C")


def _words(result: ImprovedResult, labels: dict[str, str]) -> str:
    return (
        f"Of {result.n_blocks:,} subjects, {result.improved:,} ({100 * result.share:.2f} %, 95 % "
        f"interval {100 * result.low:.2f} to {100 * result.high:.2f} %) score higher with "
        f"{labels[result.norm]} than with {labels[result.reference]}, {result.tied:,} the same and "
        f"{result.worse:,} lower."
    )
