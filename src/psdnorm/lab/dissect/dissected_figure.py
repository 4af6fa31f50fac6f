"""The figure of a dissection: a heatmap of what each norm loses to each kind of shift."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from psdnorm.lab.dissect.dissected import CASE, CONFIDENCE, Losses, is_beyond_noise
from psdnorm.lab.dissect.troubles import Kind
from psdnorm.present.figure import Drawing, Figure, matplotlib, panels, rendered, styled
from psdnorm.report.naming import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

# orange and purple differ for the colour-blind, too, and both darken away from zero
_COLOURS, _SHADES = "PuOr_r", 11  # few enough for the palette of a PNG
_LEAST_SCALE = 5.0  # points: noise shall not look like a loss
_DARK = 7 / 11  # of the scale: letters turn white on the two darkest shades of each side
_COLUMNS = 4
_NO_SCORE = "–"


def draw_losses(losses: Losses) -> Drawing:
    """Draw the matrix: a panel per kind, norms down, strengths across, points lost in each cell.

    Parameters
    ----------
    losses : Losses

    Returns
    -------
    Drawing
        Numbers of losses whose interval holds zero are in brackets; a dash on hatching is where a
        norm has no score.
    """
    kinds, arms = losses.kinds(), losses.arms()
    scale = max(_LEAST_SCALE, float(losses.matrix["lost"].abs().max()))
    widest = max(len(name) for name in losses.names.values())
    columns = min(_COLUMNS, len(kinds))
    canvas, axes = panels(
        len(kinds),
        columns=_COLUMNS,
        width=max(4.5, 1.9 * columns + 0.075 * widest + 1.2),
        height=0.26 * len(arms) + 1.0,
        sharey=True,
    )
    for panel, kind in zip(axes, kinds, strict=True):
        own = losses.matrix[losses.matrix["kind"] == kind.name]
        image = _draw(panel, own, kind, arms, scale)
    axes[0].set_yticks(range(len(arms)), [losses.names[arm] for arm in arms])
    axes[0].set_ylim(len(arms) - 0.5, -0.5)
    bar = canvas.colorbar(image, ax=axes, shrink=0.8, aspect=30)
    bar.set_label("balanced accuracy lost (points)")
    notes = (
        f"In brackets: the {CONFIDENCE:.0%} bootstrap interval over subjects holds zero, or the "
        "number rounds to it. "
    )
    if len(losses.matrix) < len(arms) * len(losses.matrix[CASE].drop_duplicates()):
        notes += f"{_NO_SCORE} on hatching: the norm has no score there. "
    return Drawing(
        name="dissection",
        title="Balanced accuracy lost to one kind of shift at a time",
        words=_words(losses),
        caption=(
            "Points lost against the same subjects without the shift, mean over subjects and "
            f"trainings; orange is loss, purple gain. {notes}{counts_in_words(losses)}"
        ),
        canvas=canvas,
    )


def losses_figure(losses: Losses) -> Figure:
    """Return the figure as PNG and SVG.

    Parameters
    ----------
    losses : Losses
    """
    with styled():
        return rendered(draw_losses(losses), simulated=True, recipe=losses.recipe)


def _draw(
    axes: "Axes", own: pd.DataFrame, kind: Kind, arms: list[str], scale: float
) -> "AxesImage":
    strengths = list(dict.fromkeys(own["strength"]))
    table = own.pivot(index="arm", columns="strength", values="lost").reindex(arms)[strengths]
    shades = matplotlib().colormaps[_COLOURS].resampled(_SHADES)
    image = axes.imshow(table.to_numpy(), cmap=shades, vmin=-scale, vmax=scale, aspect="auto")
    # what is not there is transparent, and near white would be no loss
    axes.patch.set(facecolor="white", edgecolor="0.7", hatch="/////", linewidth=0)
    for down, across in zip(*np.nonzero(table.isna().to_numpy()), strict=True):
        axes.text(across, down, _NO_SCORE, ha="center", va="center", backgroundcolor="white")
    for row in own.itertuples():
        place = strengths.index(row.strength), arms.index(str(row.arm))
        is_dark = abs(float(row.lost)) > _DARK * scale
        axes.text(
            *place,
            cell_text(float(row.lost), float(row.low), float(row.high)),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if is_dark else "black",
        )
    axes.set_xticks(range(len(strengths)), [kind.number(each) for each in strengths])
    axes.set_xlabel(kind.unit)
    axes.set_title("\n".join(textwrap.wrap(kind.title, 22)), loc="left")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return image


def cell_text(lost: float, low: float, high: float) -> str:
    """Return a loss as a cell shows it: in brackets where it may be none.

    Examples
    --------
    >>> cell_text(12.34, 9, 15), cell_text(-0.2, -1, 1), cell_text(0.02, 0.01, 0.03)
    ('12.3', '(−0.2)', '(0.0)')
    """
    text = f"{lost:.1f}".replace("-0.0", "0.0").replace("-", "−")
    return text if is_beyond_noise(lost, low, high) else f"({text})"


def _words(losses: Losses) -> str:
    parts = []
    for kind in losses.kinds():
        own = losses.matrix[losses.matrix["kind"] == kind.name]
        strength = own["strength"].iloc[-1]
        rows = own[own["strength"] == strength]
        each = ", ".join(
            f"{row.norm} {cell_text(float(row.lost), float(row.low), float(row.high))}"
            for row in rows.itertuples()
        )
        absent = [losses.names[a] for a in losses.arms() if a not in set(rows["arm"])]
        without = f"; no score of {listed(absent)}" if absent else ""
        parts.append(f"{kind.title} at {kind.words(strength)}: {each}{without}.")
    return " ".join(parts)


def counts_in_words(losses: Losses) -> str:
    """Say of how many subjects and trainings the numbers are.

    Parameters
    ----------
    losses : Losses
    """
    subjects, trainings = (
        np.unique(losses.matrix[name]).tolist() for name in ("subjects", "trainings")
    )
    return f"Subjects: {_range(subjects)}; trainings of each norm: {_range(trainings)}."


def _range(counts: list[int]) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
