"""The shift report as pictures: distances against the training nights, spectra, the filter."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psdnorm.present.figure import new_canvas, styled
from psdnorm.present.style import BLACK, BLUE, GREY, SKY, VERMILION
from psdnorm.staging.hypnogram_figures import as_they_are, printable
from psdnorm.staging.shift import Distance, ShiftReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_WIDTH = 8.5
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
        canvas = new_canvas(_WIDTH, 0.9 + 0.34 * len(distances))
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
        canvas = new_canvas(_WIDTH, 2.3 * len(places) + 0.5)
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
