"""Figures of a staged night."""

import io
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.present import (
    BLACK,
    BLUE,
    DPI,
    GREY,
    SKY,
    STAGE_COLOURS,
    VERMILION,
    matplotlib,
    new_canvas,
    styled,
)
from psdnorm.report.figures import STAGE_LEVELS, draw_probabilities, draw_stages
from psdnorm.runtime import written
from psdnorm.staging.result import StagedNight
from psdnorm.staging.shift import Distance, ShiftReport
from psdnorm.staging.sleep_statistics import GIVEN
from psdnorm.staging.words import clock_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_WIDTH, _HEIGHT = 10.0, 8.4
_LETTERS_PER_LINE = 100
_MOST_LETTERS = 300  # of a title
# page and picture show the same, and drawing takes longer than all else that is written
_PICTURES: WeakKeyDictionary[StagedNight, bytes] = WeakKeyDictionary()
_UNNAMED = "_"  # matplotlib's, of what is in no legend
_REM, _REM_COLOUR = STAGES.index("REM"), STAGE_COLOURS["REM"]
# more epochs than this would fill the panel with ink: then means are drawn
_MOST_DRAWN = 24 * 3600 // EPOCH_S
_MEAN_OVER = 5 * 60 // EPOCH_S


def draw_night(night: StagedNight) -> "Canvas":
    """Draw a night: hypnogram, hypnodensity, spectrogram, and how sure each epoch is.

    Parameters
    ----------
    night : StagedNight

    Returns
    -------
    matplotlib.figure.Figure
        Four panels above each other with one time axis: the clock's where the start is known. Its
        title says the verdict; what must stand on every output stands at the bottom.
    """
    with styled():
        canvas = new_canvas(_WIDTH, _HEIGHT)
        axes = canvas.subplots(4, sharex=True, height_ratios=[1.2, 1.3, 1.5, 1.0])
        edges_s = np.arange(len(night.hypnogram) + 1) * EPOCH_S
        draw_stages(axes[0], night.hypnogram, edges_s, label="stage")
        draw_probabilities(axes[1], night.probabilities, edges_s)
        _hatch_unstaged(axes[0], night, "not staged")
        _hatch_unstaged(axes[1], night)
        _hatch_unstaged(axes[3], night)
        _finish_hypnogram(axes[0], night, edges_s)
        _legend(axes[1], upwards=True)
        _draw_spectrogram(canvas, axes[2], night, edges_s)
        _draw_confidence(axes[3], night, edges_s)
        _draw_time(axes[3], night, edges_s)
        canvas.suptitle(_title(night), x=0.01, ha="left", fontsize=11, fontweight="bold")
        if night.notice:
            canvas.supxlabel(night.notice, x=0.01, ha="left", fontsize=9, fontweight="bold")
        as_they_are(canvas)
    return canvas


def write_png(path: str | Path, night: StagedNight) -> None:
    """Write the picture of a night as PNG, whole or not at all.

    Parameters
    ----------
    path : str or Path
    night : StagedNight
    """
    picture = night_png(night)
    with written(Path(path)) as file:
        file.write(picture)


def night_png(night: StagedNight) -> bytes:
    """Return the picture of a night as PNG.

    Parameters
    ----------
    night : StagedNight
    """
    if night not in _PICTURES:
        _PICTURES[night] = as_png(draw_night(night))
    return _PICTURES[night]


def as_png(canvas: "Canvas") -> bytes:
    """Return a drawing as PNG; letters that the font does not have become boxes, in silence."""
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        picture = io.BytesIO()
        canvas.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def as_they_are(canvas: "Canvas") -> None:
    """Take the texts of a drawing for text: a $ in the name of a file begins no formula."""
    for text in canvas.findobj(matplotlib().text.Text):
        text.set_parse_math(False)


def printable(text: str) -> str:
    """Return a text with ? for what cannot be printed, as names of files may hold it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _finish_hypnogram(axes: "Axes", night: StagedNight, edges_s: NDArray[np.int64]) -> None:
    """Add REM sleep as bars, which the eye finds at once, and the lights."""
    level = np.where(night.hypnogram == _REM, float(STAGE_LEVELS["REM"]), np.nan)  # (E,)
    ends_s = np.repeat(edges_s, 2)[1:-1]
    axes.plot(ends_s, np.repeat(level, 2), color=_REM_COLOUR, lw=4, solid_capstyle="butt")
    found = night.statistics
    label = "lights off, on" if found.lights == GIVEN else "lights off, on\n(from sleep)"
    for light_s in (found.lights_off_s, found.lights_on_s):
        if edges_s[0] < light_s < edges_s[-1]:
            axes.axvline(light_s, color=GREY, ls=(0, (2, 2)), lw=1, label=label)
            label = _UNNAMED  # once is enough
    axes.set_ylabel("stage")
    _legend(axes)


def _hatch_unstaged(axes: "Axes", night: StagedNight, label: str = _UNNAMED) -> None:
    for begin, end in _runs(night.hypnogram == UNSCORED):
        span = axes.axvspan(EPOCH_S * begin, EPOCH_S * end, lw=0, zorder=0, label=label)
        span.set(facecolor="0.93", edgecolor="0.75", hatch="///")
        label = _UNNAMED


def _draw_spectrogram(
    canvas: "Canvas", axes: "Axes", night: StagedNight, edges_s: NDArray[np.int64]
) -> None:
    shown, frequencies = night.spectrogram, night.spectrogram.frequencies_hz
    power = np.where(np.isfinite(shown.power_db), shown.power_db, np.nan)  # flat: minus infinity
    known = power[~np.isnan(power)]
    if not known.size:
        axes.text(0.5, 0.5, "no signal", transform=axes.transAxes, ha="center", va="center")
    low, high = np.percentile(known, [2, 98]) if known.size else (0.0, 1.0)
    half_hz = (frequencies[-1] - frequencies[0]) / max(len(frequencies) - 1, 1) / 2 or 0.5
    image = axes.imshow(
        power.T,
        origin="lower",
        aspect="auto",
        extent=(edges_s[0], edges_s[-1], frequencies[0] - half_hz, frequencies[-1] + half_hz),
        cmap="viridis",
        interpolation_stage="data",
        vmin=low,
        vmax=max(high, low + 1),
    )
    axes.set_facecolor("0.92")
    axes.set_ylim(max(0.0, frequencies[0] - half_hz), frequencies[-1])
    axes.set_ylabel(f"{printable(shown.channel)}\nfrequency (Hz)")
    if known.size:
        # beside the axes, not out of them: all panels keep one width
        bar = canvas.colorbar(image, cax=axes.inset_axes((1.015, 0, 0.015, 1)))
        bar.set_label("power (dB of 1 µV²/Hz)", fontsize=8)


def _draw_confidence(axes: "Axes", night: StagedNight, edges_s: NDArray[np.int64]) -> None:
    step = _MEAN_OVER if len(night.hypnogram) > _MOST_DRAWN else 1
    means = "\n(means of 5 min)" if step > 1 else ""
    borders_s = np.append(edges_s[:-1:step], edges_s[-1])
    if len(night.pairs) > 1:
        axes.stairs(
            100 * _means(night.disagreement, step),
            borders_s,
            fill=True,
            color=VERMILION,
            lw=0,
            label=f"of {len(night.pairs)} pairs,\ndisagree{means}",
        )
    confidence = 100 * _means(night.confidence, step)
    label = f"confidence{means}"
    axes.stairs(confidence, borders_s, baseline=None, color=BLACK, lw=0.8, label=label)
    axes.axhline(50, color=GREY, lw=0.5, ls=":")
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("share (%)")
    _legend(axes, upwards=True)


def _means(values: NDArray[np.float32], step: int) -> NDArray[np.float64]:
    """Return means of so many values each, NaN where none is known."""
    known = ~np.isnan(values)
    starts = np.arange(0, len(values), step)
    counts = np.add.reduceat(known.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _draw_time(axes: "Axes", night: StagedNight, edges_s: NDArray[np.int64]) -> None:
    places, labels = clock_ticks(night.start, float(edges_s[-1]))
    axes.set_xticks(places, labels)
    axes.set_xlim(edges_s[0], edges_s[-1])
    seconds = ":s" if labels and labels[-1].count(":") == 2 else ""
    what = "time from the start of the recording" if night.start is None else "clock time"
    axes.set_xlabel(f"{what} (h:min{seconds})")


def _legend(axes: "Axes", upwards: bool = False) -> None:
    """Write right of a panel what is in it; its own line, the hypnogram, needs no words."""
    found = zip(*axes.get_legend_handles_labels(), strict=True)
    kept = [(handle, name) for handle, name in found if name != "stage"]
    if kept:
        handles, names = zip(*(kept[::-1] if upwards else kept), strict=True)
        axes.legend(handles, names, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _runs(found: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield where each run of True begins, and before which place it ends."""
    borders = np.flatnonzero(np.diff(found.astype(np.int8), prepend=0, append=0))
    yield from zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True)


def _title(night: StagedNight) -> str:
    first = f"{printable(night.source)}: {night.shift.verdict}"
    if night.shift.reasons:
        first += f". {night.shift.reasons[0]}"
        others = len(night.shift.reasons) - 1
        first += f" And {others} more reason{'s' * (others > 1)}." if others else ""
    return textwrap.fill(textwrap.shorten(first, _MOST_LETTERS), _LETTERS_PER_LINE)


_SHIFT_FIGURES_WIDTH = 8.5
_NEAR, _FAR = 1.5, 3.0  # in limits: what is farther is drawn as an arrow
_LEGEND = ("99 % of training nights", "their median", "this night")


def draw_distances(distances: tuple[Distance, ...]) -> "Canvas":
    """Draw how far a night is, each distance against what 99 % of the training nights stay below.

    Parameters
    ----------
    distances : tuple of Distance
        At least one.

    Returns
    -------
    matplotlib.figure.Figure
        A strip per distance, from 0 to its limit, with the training nights' median and the night.
    """
    with styled():
        canvas = new_canvas(_SHIFT_FIGURES_WIDTH, 0.9 + 0.34 * len(distances))
        axes = canvas.subplots()
        all_near = all(_in_limits(each)[1] <= _NEAR for each in distances)
        farthest = _NEAR if all_near else _FAR
        for place, distance in enumerate(distances):
            _draw_strip(axes, place, distance, farthest)
        axes.set_yticks(range(len(distances)), [printable(each.where) for each in distances])
        axes.set_ylim(len(distances) - 0.5, -0.5)
        axes.axvline(1, color=BLACK, lw=0.8, ls="--")
        axes.set_xlim(0, 1.2 * farthest)
        axes.set_xlabel("distance (1 = what 99 % of the training nights stay below)")
        canvas.legend(loc="outside upper left", ncols=4, fontsize=8)
        as_they_are(canvas)
    return canvas


def draw_spectra(shift: ShiftReport) -> "Canvas":
    """Draw the night's spectra beside those of the training, and the filter between the two.

    Parameters
    ----------
    shift : ShiftReport
        Of a channel at least.

    Returns
    -------
    matplotlib.figure.Figure
        For each channel a panel of spectra and one of the filter, both in dB.
    """
    with styled():
        # a channel that is fed twice is drawn once
        places = sorted({shift.channels.index(channel) for channel in shift.channels})
        canvas = new_canvas(_SHIFT_FIGURES_WIDTH, 2.3 * len(places) + 0.5)
        table = canvas.subplots(len(places), 2, sharex=True, squeeze=False)
        for (spectra, response), place in zip(table, places, strict=True):
            channel = printable(shift.channels[place])
            _draw_psds(spectra, shift, place)
            spectra.set_title(f"{channel}: spectrum", loc="left")
            _draw_filter(response, shift, place)
            response.set_title(f"{channel}: filter", loc="left")
        for axes in table[-1]:
            axes.set_xlabel("frequency (Hz)")
        as_they_are(canvas)
    return canvas


def _draw_psds(axes: "Axes", shift: ShiftReport, place: int) -> None:
    night, training = _db(shift.night_psd[place]), _db(shift.training_psd[place])
    axes.plot(shift.frequencies_hz, night, color=VERMILION, lw=1.4, label="this night")
    if np.isfinite(training).any():
        label = "training nights"
        axes.plot(shift.frequencies_hz, training, color=BLACK, ls="--", lw=1.2, label=label)
    axes.set_ylabel("power density (dB)")
    axes.legend()


def _draw_filter(axes: "Axes", shift: ShiftReport, place: int) -> None:
    gain_db = np.where(np.isfinite(shift.filter_db[place]), shift.filter_db[place], np.nan)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.plot(shift.frequencies_hz, gain_db, color=BLUE, lw=1.4)
    axes.set_ylabel("gain (dB)")
    if np.isnan(gain_db).all():
        axes.set_yticks([])
        axes.text(0.5, 0.6, "not known", transform=axes.transAxes, ha="center")


def _draw_strip(axes: "Axes", place: int, distance: Distance, farthest: float) -> None:
    of_training, of_median, of_night = _LEGEND if place == 0 else ("_",) * len(_LEGEND)
    axes.barh(place, 1, height=0.5, color=SKY, alpha=0.35, label=of_training)
    typical, value = _in_limits(distance)
    axes.plot(typical, place, marker="|", ms=14, mew=2, ls="", color=BLUE, label=of_median)
    # NaN is beyond all, as a flat channel has no distance
    is_far = not value <= farthest
    marker, at = (">", farthest) if is_far else ("D", value)
    axes.plot(at, place, marker=marker, ms=8, ls="", color=VERMILION, mec=BLACK, label=of_night)
    if is_far:
        text = f"{value:.3g}" if np.isfinite(value) else "beyond all"
        axes.annotate(f"   {text}", (at, place), fontsize=8, va="center")


def _in_limits(distance: Distance) -> tuple[float, float]:
    """Return the training's median and the night's distance over the limit; NaN without one."""
    limit = distance.limit if distance.limit > 0 else np.nan
    return distance.typical / limit, distance.value / limit


def _db(power: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return dB, and NaN where there is no power, as in a flat channel."""
    known = np.where(power > 0, power, np.nan)
    return 10 * np.log10(known)
