"""Figures: the style of norms and stages, drawing, and reproducible PNG and SVG output."""

import contextlib
import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psdnorm.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's palette, which colour-blind readers can tell apart
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
# lighter from the bottom of a stack to its top, so that they also differ in greyscale
STAGE_COLOURS = {"N3": BLACK, "N2": BLUE, "N1": GREEN, "REM": "#F0A500", "W": "#F5EBCB"}
# a few points in one of these may be all that identifies a norm
TELLING = tuple(
    dict.fromkeys(
        [BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY, *STAGE_COLOURS.values()]
    )
)
DPI = 130
_SVG_BYTES = 200_000  # above this, the points and areas within an SVG are made coarser
_SVG_DPI = (DPI, 100, 75, 50)
_COLOURS_IN_PNG = 256
_LETTERS_PER_INCH = 9  # of a title
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "psdnorm",
}
Line = str | tuple[int, tuple[int, ...]]


class Look(NamedTuple):
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
    "psd-unit": Look(VERMILION, "d", "--"),
    "psd-night": Look(VERMILION, "h", (0, (1, 1))),
    "psd-night-unit": Look(VERMILION, "p", (0, (4, 1, 1, 1))),
    "psd": Look(VERMILION, "D", "-"),
    "B": Look(VERMILION, "D", "-"),  # of two sides that are compared, A and B
}
_OTHER = Look(GREY, "X", (0, (2, 2)))


def look_of(norm: str) -> Look:
    return _LOOKS.get(norm, _OTHER)


class EndLabel(NamedTuple):
    """A label for the end of a line, at its last point."""

    x: float
    y: float
    text: str
    colour: str


def label_ends(axes: "Axes", labels: Sequence[EndLabel]) -> None:
    """Write labels right of the axes, each as close to the end of its line as the others allow.

    Call it once the limits of the axes are final.
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

    >>> [round(at, 3) for at in spread([0.5, 0.52, 0.9], 0.1)]
    [0.46, 0.56, 0.9]
    """
    if not wanted:
        return []
    from scipy.optimize import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    placed = np.empty(len(wanted))
    # the nearest numbers at least a gap apart: with the gaps subtracted, an isotonic regression
    placed[order] = isotonic_regression(np.asarray(wanted, float)[order] - steps).x + steps
    return placed.tolist()


class CannotDraw(Exception):
    """Why a figure is missing, in one sentence; not a user's error."""


@dataclass(frozen=True)
class Figure:
    """A figure as a page shows it."""

    name: str  # of a file, without its extension
    title: str
    words: str  # alternative text: what the figure shows, with its numbers
    caption: str  # who was counted, caveats, what was left out, the recipe
    png: bytes
    svg: bytes


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn but not yet written; title and caption do not name the recipe yet."""

    name: str
    title: str
    words: str
    caption: str
    canvas: "Canvas"
    missing: list[str] = field(default_factory=list)  # a sentence for what could not be drawn


def matplotlib() -> Any:
    try:
        import matplotlib as library
        import matplotlib.figure
    except ImportError as error:
        raise MissingExtraError('figures need matplotlib: pip install "psdnorm[report]"') from error
    return library


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw and write in the style of a report; earlier settings are restored afterwards."""
    with matplotlib().rc_context(_STYLE):
        yield


def new_canvas(width: float, height: float) -> "Canvas":
    """Return an empty figure of a size in inches, without pyplot."""
    canvas: Canvas = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    return canvas


def panels(
    n: int, *, columns: int, width: float, height: float, **shared: Any
) -> tuple["Canvas", list["Axes"]]:
    """Return a figure of n panels in rows that are ``height`` inches high, and their axes."""
    columns = min(n, columns)
    rows = -(-n // columns)
    canvas = new_canvas(width, height * rows + 0.4)
    table = canvas.subplots(rows, columns, squeeze=False, **shared)
    axes = list(np.ravel(table))
    for place, unused in enumerate(axes[n:], start=n):
        unused.remove()
        # the panel above has no panel below it to show tick labels
        table[place // columns - 1, place % columns].tick_params(labelbottom=True)
    return canvas, axes[:n]


def rendered(drawing: Drawing, *, simulated: bool, recipe: str) -> Figure:
    """Write a drawing as PNG and SVG; title and caption say whether nights were simulated."""
    title = f"SIMULATED: {drawing.title}" if simulated else drawing.title
    width = int(drawing.canvas.get_size_inches()[0] * _LETTERS_PER_INCH)
    drawing.canvas.suptitle(
        textwrap.fill(title, width), x=0.01, ha="left", fontsize=11, fontweight="bold"
    )
    caption = f"{drawing.caption} Recipe: {recipe}."
    if simulated:
        caption += " Simulated nights: they say nothing about patients."
    png, svg = _png(drawing.canvas), _svg(drawing.canvas)  # in this order: it fixes the layout
    return Figure(drawing.name, title, drawing.words, caption, png, svg)


def _png(canvas: "Canvas") -> bytes:
    """Return a PNG with a palette: a third of the size, as a page holds dozens of them."""
    from PIL import Image  # matplotlib's own

    image = io.BytesIO()
    canvas.savefig(image, format="png", dpi=DPI)
    canvas.set_layout_engine("none")  # keep the layout
    picture = np.asarray(Image.open(image).convert("RGB"))
    packed = picture.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    codes, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1).astype(np.int32)
    # colours of norms and stages are kept, and so are the most common ones, those of areas, lines
    # and letters; the rest are shades of edges, which get the nearest colour
    telling = np.array([int(colour[1:], 16) for colour in TELLING])
    first = np.where(np.isin(codes, telling), 0, 1)
    palette = colours[np.lexsort([-counts.astype(np.int64), first])[:_COLOURS_IN_PNG]]
    nearest = np.concatenate(
        [
            np.abs(part[:, None] - palette).sum(axis=2).argmin(axis=1)
            for part in np.array_split(colours, -(-len(colours) // 4096))
        ]
    )
    reduced = Image.fromarray(nearest.astype(np.uint8)[places].reshape(packed.shape))
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    small = io.BytesIO()
    reduced.save(small, format="png", optimize=True)
    return small.getvalue()


def _svg(canvas: "Canvas") -> bytes:
    for dpi in _SVG_DPI:
        image = io.BytesIO()
        canvas.savefig(image, format="svg", dpi=dpi, metadata={"Date": None})
        if image.tell() <= _SVG_BYTES:
            break
    return image.getvalue()
