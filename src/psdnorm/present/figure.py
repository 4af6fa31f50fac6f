"""A figure on its way to the page: drawn, then written as PNG and SVG, the same bytes each time."""

import contextlib
import io
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from psdnorm.errors import MissingExtraError
from psdnorm.present.style import TELLING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

DPI = 130
_SVG_BYTES = 200_000  # above which the points and areas within an SVG are made coarser
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


class CannotDraw(Exception):
    """Why a figure is not there, in one sentence; no error of the user's."""


@dataclass(frozen=True)
class Figure:
    """A figure of a report.

    Attributes
    ----------
    name : str
        Of a file, without its ending.
    title : str
    words : str
        What is to be seen, with its numbers, for those who cannot see it.
    caption : str
        What it stands on: who was counted, caveats, what was left out, the recipe.
    png, svg : bytes
    """

    name: str
    title: str
    words: str
    caption: str
    png: bytes
    svg: bytes


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn but not yet written.

    Attributes
    ----------
    name, title, words, caption : str
        As in :class:`Figure`; title and caption do not name recipe and simulation yet.
    canvas : matplotlib.figure.Figure
    missing : list of str
        A sentence for each thing that could not be drawn into it.
    """

    name: str
    title: str
    words: str
    caption: str
    canvas: "Canvas"
    missing: list[str] = field(default_factory=list)


def matplotlib() -> Any:
    """Return matplotlib with the part that draws figures."""
    try:
        import matplotlib as library
        import matplotlib.figure
    except ImportError as error:
        raise MissingExtraError('figures need matplotlib: pip install "psdnorm[report]"') from error
    return library


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw and write in the style of a report; what was set before comes back."""
    with matplotlib().rc_context(_STYLE):
        yield


def new_canvas(width: float, height: float) -> "Canvas":
    """Return an empty figure of so many inches, of no pyplot."""
    canvas: Canvas = matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    return canvas


def panels(
    n: int, *, columns: int, width: float, height: float, **shared: Any
) -> tuple["Canvas", list["Axes"]]:
    """Return a figure of n panels in rows.

    Parameters
    ----------
    n, columns : int
        Panels, and the most of them side by side.
    width, height : float
        Of the whole and of each row, in inches.
    **shared
        ``sharex`` and ``sharey`` of matplotlib.

    Returns
    -------
    canvas : matplotlib.figure.Figure
    axes : list of matplotlib.axes.Axes, n
    """
    columns = min(n, columns)
    rows = -(-n // columns)
    canvas = new_canvas(width, height * rows + 0.4)
    table = canvas.subplots(rows, columns, squeeze=False, **shared)
    axes = list(np.ravel(table))
    for place, unused in enumerate(axes[n:], start=n):
        unused.remove()
        # the panel above has no neighbour below whose ticks would serve it
        table[place // columns - 1, place % columns].tick_params(labelbottom=True)
    return canvas, axes[:n]


def rendered(drawing: Drawing, *, simulated: bool, recipe: str) -> Figure:
    """Write a drawing as PNG and SVG.

    Parameters
    ----------
    drawing : Drawing
    simulated : bool
        Then title and caption say so.
    recipe : str
        Its name, for the caption.

    Returns
    -------
    Figure
    """
    title = f"SIMULATED: {drawing.title}" if simulated else drawing.title
    width = int(drawing.canvas.get_size_inches()[0] * _LETTERS_PER_INCH)
    drawing.canvas.suptitle(
        textwrap.fill(title, width), x=0.01, ha="left", fontsize=11, fontweight="bold"
    )
    caption = f"{drawing.caption} Recipe: {recipe}."
    if simulated:
        caption += " Simulated nights: they say nothing about patients."
    return Figure(
        name=drawing.name,
        title=title,
        words=drawing.words,
        caption=caption,
        png=_png(drawing.canvas),
        svg=_svg(drawing.canvas),
    )


def _png(canvas: "Canvas") -> bytes:
    image = io.BytesIO()
    canvas.savefig(image, format="png", dpi=DPI)
    canvas.set_layout_engine("none")  # it stays as laid out
    return _with_palette(image)


def _with_palette(image: io.BytesIO) -> bytes:
    """Return a PNG with a palette: a third of the bytes, as a page holds dozens of them.

    Colours that tell norms and stages apart stay as they are, and so do the commonest, those of
    areas, lines and letters; what is left are shades of edges, which get the nearest.
    """
    from PIL import Image  # matplotlib's own

    picture = np.asarray(Image.open(image).convert("RGB"))
    packed = picture.astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
    codes, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1).astype(np.int32)
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
