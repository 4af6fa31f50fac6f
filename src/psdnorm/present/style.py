"""How norms and stages look: one colour, marker and line each, in every figure of a report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's, which the colour-blind tell apart
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
# from the bottom of a stack: ever lighter, so that they are told apart in grey, too
STAGE_COLOURS = {"N3": BLACK, "N2": BLUE, "N1": GREEN, "REM": "#F0A500", "W": "#F5EBCB"}
# a few points of these may be all that tells a norm
TELLING = tuple(
    dict.fromkeys(
        [BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY, *STAGE_COLOURS.values()]
    )
)
Line = str | tuple[int, tuple[int, ...]]


class Look(NamedTuple):
    """How a norm is drawn."""

    colour: str
    marker: str
    line: Line

    def styled(self, **others: Any) -> dict[str, Any]:
        """Return the arguments of a line with markers."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line} | others


_LOOKS = {
    "batch": Look(BLACK, "o", "-"),
    "adabn3": Look(BLUE, "<", (0, (1, 1))),
    "adabn12": Look(BLUE, ">", (0, (4, 1, 1, 1))),
    "adabnall": Look(BLUE, "*", (0, (6, 2))),
    "layer": Look(ORANGE, "s", "--"),
    "instance": Look(SKY, "^", "-."),
    "tma": Look(GREEN, "v", ":"),
    "psd-white": Look(PURPLE, "P", (0, (3, 1, 1, 1, 1, 1))),
    "psd": Look(VERMILION, "D", "-"),
    "B": Look(VERMILION, "D", "-"),  # of two sides that are compared, A and B
}
_OTHER = Look(GREY, "X", (0, (2, 2)))


def look_of(norm: str) -> Look:
    """Return how a norm looks; those without a look of their own share one."""
    return _LOOKS.get(norm, _OTHER)


class EndLabel(NamedTuple):
    """A label for the end of a line, at its last point."""

    x: float
    y: float
    text: str
    colour: str


def label_ends(axes: "Axes", labels: Sequence[EndLabel]) -> None:
    """Write labels right of the axes, each as near to the end of its line as others let it.

    Call it when the limits of the axes are final.
    """
    low, high = axes.get_ylim()
    height = axes.get_window_extent().height / axes.figure.dpi  # inches, before the layout
    gap = 0.19 / max(height, 1)
    at = spread([(label.y - low) / (high - low) for label in labels], gap)
    for label, place in zip(labels, at, strict=True):
        axes.annotate(
            label.text,
            xy=(label.x, label.y),
            xytext=(1.04, place),
            textcoords="axes fraction",
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": label.colour, "lw": 0.5, "alpha": 0.6},
            annotation_clip=False,
        )


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Move numbers apart until they are ``gap`` from each other, in their order, centred.

    Examples
    --------
    >>> [round(at, 3) for at in spread([0.5, 0.52, 0.9], 0.1)]
    [0.46, 0.56, 0.9]
    """
    order = np.argsort(wanted, kind="stable")
    groups: list[list[float]] = []  # each is packed closely: [sum of wanted, count]
    for value in np.asarray(wanted, float)[order]:
        groups.append([value, 1])
        while len(groups) > 1 and _first(groups[-1], gap) < _last(groups[-2], gap) + gap:
            total, count = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += count
    placed = np.concatenate(
        [_first(group, gap) + gap * np.arange(group[1]) for group in groups] or [np.empty(0)]
    )
    result = np.empty(len(wanted))
    result[order] = placed
    return result.tolist()


def _first(group: list[float], gap: float) -> float:
    return group[0] / group[1] - gap * (group[1] - 1) / 2


def _last(group: list[float], gap: float) -> float:
    return group[0] / group[1] + gap * (group[1] - 1) / 2
