"""The page of a staged night: verdict, pictures, statistics, how far to trust it."""

import io
import json
import math
import platform
import textwrap
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

import psdnorm
from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.present import (
    BLACK,
    BLUE,
    DPI,
    GREY,
    SKY,
    STAGE_COLOURS,
    VERMILION,
    Page,
    matplotlib,
    new_canvas,
    styled,
)
from psdnorm.report.figures import STAGE_LEVELS, draw_hypnogram, draw_probabilities
from psdnorm.runtime import plural, written
from psdnorm.staging.night_statistics import GIVEN, UNKNOWN, Agreement, in_minutes, in_percent
from psdnorm.staging.trust import IN_RANGE, NOT_TRUSTED, UNUSUAL, Distance, ShiftReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from psdnorm.staging.stager import StagedNight

DAY_S = 86400
_STEPS_S = (5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S)
_MOST_TICKS = 12


def clock_ticks(start: datetime | None, duration_s: float) -> tuple[list[float], list[str]]:
    r"""Return round times of a recording, in seconds from its start, and their labels.

    >>> clock_ticks(datetime(2021, 3, 4, 22, 41), 3 * 3600)[1]
    ['23:00', '23:30', '00:00', '00:30', '01:00', '01:30']
    >>> clock_ticks(datetime(2021, 3, 4, 22, 41), 48 * 3600)[1][:2]
    ['00:00\nday 2', '06:00']
    """
    step_s = next((s for s in _STEPS_S if duration_s / s <= _MOST_TICKS), DAY_S)
    begin_s = _time_of_day_s(start)
    # a recording may start at a fraction of a second
    first = -int(-begin_s // step_s)
    last = int((begin_s + duration_s) // step_s)
    times_s = [step_s * number for number in range(first, last + 1)]
    labels = [_label(time_s, start is not None, step_s < 60) for time_s in times_s]
    if start is not None and duration_s > DAY_S:
        days = [f"\nday {t // DAY_S + 1}" if t % DAY_S == 0 else "" for t in times_s]
        labels = [label + day for label, day in zip(labels, days, strict=True)]
    return [time_s - begin_s for time_s in times_s], labels


def time_words(start: datetime | None, seconds: float) -> str:
    """Return a clock time, or the time since the start if the start is not known.

    >>> time_words(datetime(2021, 3, 4, 22, 41), 7260), time_words(None, 7260)
    ('00:42:00', '2:01:00 after the start')
    """
    if start is None:
        return f"{_label(seconds, False, True)} after the start"
    return _label(_time_of_day_s(start) + seconds, True, True)


def _time_of_day_s(start: datetime | None) -> float:
    if start is None:
        return 0.0
    return 3600 * start.hour + 60 * start.minute + start.second + start.microsecond / 1e6


def _label(time_s: float, on_clock: bool, with_seconds: bool) -> str:
    hours, rest_s = divmod(int(time_s % DAY_S if on_clock else time_s), 3600)
    minutes, seconds = divmod(rest_s, 60)
    text = f"{hours:02d}:{minutes:02d}" if on_clock else f"{hours}:{minutes:02d}"
    return f"{text}:{seconds:02d}" if with_seconds else text


_VERDICTS = {
    IN_RANGE: "In range: this night is like those that the model learned from.",
    UNUSUAL: "Unusual: read this hypnogram with care.",
    NOT_TRUSTED: "Do not trust this hypnogram.",
}


def sleep_words(night: "StagedNight") -> str:
    """Return the time asleep and the confidence of the epochs, in words."""
    found = night.statistics
    if math.isnan(found.tst_min):
        return "No epoch could be staged."
    confidence = night.confidence[night.hypnogram != UNSCORED]
    unstaged_min = np.count_nonzero(night.hypnogram == UNSCORED) * EPOCH_S / 60
    times_min = (found.tst_min, found.tib_min)
    asleep, in_bed = ("{} h {:02d} min".format(*divmod(round(x), 60)) for x in times_min)
    return (
        f"{asleep} of sleep in {in_bed} in bed "
        f"({found.sleep_efficiency_percent:.0f} %). The median confidence is "
        f"{100 * np.median(confidence):.0f} %, and {100 * np.mean(confidence < 0.5):.0f} % of the "
        "epochs are below 50 %."
    ) + (f" {unstaged_min:g} min could not be staged." if unstaged_min else "")


def picture_words(night: "StagedNight") -> str:
    """Return the alternative text for the picture of a night."""
    hours = len(night.hypnogram) * EPOCH_S / 3600
    parts = [f"Hypnogram, probabilities, spectrogram and confidence over {hours:.2f} hours."]
    asleep = np.flatnonzero(night.hypnogram > 0)
    if asleep.size:
        first = time_words(night.start, EPOCH_S * int(asleep[0]))
        last = time_words(night.start, EPOCH_S * (int(asleep[-1]) + 1))
        parts.append(f"The first sleep begins at {first}, the last ends at {last}.")
    counts = [np.count_nonzero(night.hypnogram == stage) for stage in range(len(STAGES))]
    if any(counts):
        minutes = (f"{n * EPOCH_S / 60:g} min {s}" for s, n in zip(STAGES, counts, strict=True))
        parts.append(f"In all: {', '.join(minutes)}.")
    parts.append(sleep_words(night))
    if len(night.pairs) > 1 and any(counts):
        differs = 100 * np.mean(night.disagreement[night.hypnogram != UNSCORED] > 0)
        parts.append(f"In {differs:.0f} % of the epochs some pairs disagree.")
    return " ".join(parts)


# name, field of SleepStatistics, definition; a single entry is a heading
_STATISTICS = (
    ("Time",),
    ("Lights off", "lights_off_s", "taken from: "),
    ("Lights on", "lights_on_s", "taken from: "),
    ("Time in bed (TIB)", "tib_min", "lights off to lights on"),
    ("Total sleep time (TST)", "tst_min", "N1, N2, N3 and REM"),
    ("Sleep efficiency (SE)", "sleep_efficiency_percent", "TST over TIB"),
    ("Sleep period", "sleep_period_min", "first to last epoch of sleep"),
    ("Sleep maintenance", "sleep_maintenance_percent", "TST over the sleep period"),
    ("Not staged", "unscored_min", "in bed, neither wake nor sleep"),
    ("Falling asleep",),
    ("Sleep onset latency (SOL)", "sol_min", "lights off to the first epoch of sleep"),
    ("Persistent sleep latency", "persistent_sol_min", "to the first 5 min of unbroken sleep"),
    ("REM latency", "rem_latency_min", "sleep onset to the first epoch of REM"),
    ("Latency of ", "latency_min", "lights off to the first epoch of "),
    ("Continuity",),
    ("Wake after sleep onset (WASO)", "waso_min", "until lights on"),
    ("WASO within the sleep period", "waso_sleep_period_min", "until the last epoch of sleep"),
    ("Awakenings", "awakenings", "sleep to wake, after which sleep went on"),
    ("Changes of stage", "transitions", "from one epoch to the next"),
    ("Fragmentation", "fragmentation_per_h", "changes from sleep to wake per hour of sleep"),
    ("Stages",),
    ("", "stage_min", ""),
)


def statistics_rows(night: "StagedNight") -> list[Sequence[str]]:
    """Return name, value and definition of each sleep statistic; a single entry is a heading."""
    found = night.statistics
    rows: list[Sequence[str]] = []
    for name, *others in _STATISTICS:
        if not others:
            rows.append([name])
            continue
        field, definition = others
        value = getattr(found, field)
        if field == "stage_min":
            for stage, minutes in value.items():
                percent = found.stage_percent.get(stage, math.nan)
                share = "in bed" if math.isnan(percent) else f"{percent:.1f} % of total sleep time"
                rows.append([stage, in_minutes(minutes), share])
        elif field == "latency_min":
            rows += [[name + s, in_minutes(v), definition + s] for s, v in value.items()]
        elif field.startswith("lights"):
            rows.append([name, time_words(night.start, value), definition + found.lights])
        else:
            rows.append([name, _with_unit(field, value), definition])
    return rows


def _with_unit(field: str, value: float) -> str:
    if field.endswith("_min"):
        return in_minutes(value)
    if field.endswith("_percent"):
        return in_percent(value)
    if field.endswith("_per_h"):
        return UNKNOWN if math.isnan(value) else f"{value:.1f} per h"
    return str(value)


_WIDTH, _HEIGHT = 10.0, 8.4
_LETTERS_PER_LINE, _MOST_LETTERS = 100, 300  # of a title
# page and PNG show the same picture, and drawing takes longer than everything else
_PICTURES: "WeakKeyDictionary[StagedNight, bytes]" = WeakKeyDictionary()
_UNNAMED = "_"  # leaves an artist out of the legend
_REM, _REM_COLOUR = STAGES.index("REM"), STAGE_COLOURS["REM"]
# for more epochs, means are drawn: single epochs would fill the panel with ink
_MOST_DRAWN = 24 * 3600 // EPOCH_S
_MEAN_OVER = 5 * 60 // EPOCH_S


def draw_night(night: "StagedNight") -> "Canvas":
    """Draw a night: hypnogram, hypnodensity, spectrogram, confidence; the verdict is the title."""
    with styled():
        canvas = new_canvas(_WIDTH, _HEIGHT)
        axes = canvas.subplots(4, sharex=True, height_ratios=[1.2, 1.3, 1.5, 1.0])
        edges_s = np.arange(len(night.hypnogram) + 1) * EPOCH_S
        draw_hypnogram(axes[0], night.hypnogram, edges_s, label="stage")
        draw_probabilities(axes[1], night.probabilities, edges_s)
        for place, label in ((0, "not staged"), (1, _UNNAMED), (3, _UNNAMED)):
            _hatch_unstaged(axes[place], night, label)
        _finish_hypnogram(axes[0], night, edges_s)
        _legend(axes[1], upwards=True)
        _draw_spectrogram(canvas, axes[2], night, edges_s)
        _draw_confidence(axes[3], night, edges_s)
        ticks_s, labels = clock_ticks(night.start, float(edges_s[-1]))
        axes[3].set_xticks(ticks_s, labels)
        axes[3].set_xlim(edges_s[0], edges_s[-1])
        what = "time from the start of the recording" if night.start is None else "clock time"
        seconds = ":s" if labels and labels[-1].count(":") == 2 else ""
        axes[3].set_xlabel(f"{what} (h:min{seconds})")
        canvas.suptitle(_title(night), x=0.01, ha="left", fontsize=11, fontweight="bold")
        if night.notice:
            canvas.supxlabel(night.notice, x=0.01, ha="left", fontsize=9, fontweight="bold")
        _without_formulas(canvas)
    return canvas


def write_png(path: str | Path, night: "StagedNight") -> None:
    """Write the picture of a night as PNG, atomically."""
    picture = night_png(night)
    with written(Path(path)) as file:
        file.write(picture)


def night_png(night: "StagedNight") -> bytes:
    """Return the picture of a night as PNG."""
    if night not in _PICTURES:
        _PICTURES[night] = as_png(draw_night(night))
    return _PICTURES[night]


def as_png(canvas: "Canvas") -> bytes:
    """Return a drawing as PNG; characters missing from the font silently become boxes."""
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        picture = io.BytesIO()
        canvas.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()


def _without_formulas(canvas: "Canvas") -> None:
    """Show texts literally: a $ in a file name does not begin a formula."""
    for text in canvas.findobj(matplotlib().text.Text):
        text.set_parse_math(False)


def printable(text: str) -> str:
    """Replace unprintable characters by ?: file names may contain anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _finish_hypnogram(axes: "Axes", night: "StagedNight", edges_s: NDArray[np.int64]) -> None:
    """Add REM sleep as bars, and the lights."""
    level = np.where(night.hypnogram == _REM, float(STAGE_LEVELS["REM"]), np.nan)  # (E,)
    ends_s = np.repeat(edges_s, 2)[1:-1]
    axes.plot(ends_s, np.repeat(level, 2), color=_REM_COLOUR, lw=4, solid_capstyle="butt")
    found = night.statistics
    label = "lights off, on" if found.lights == GIVEN else "lights off, on\n(from sleep)"
    for light_s in (found.lights_off_s, found.lights_on_s):
        if edges_s[0] < light_s < edges_s[-1]:
            axes.axvline(light_s, color=GREY, ls=(0, (2, 2)), lw=1, label=label)
            label = _UNNAMED  # one entry in the legend
    axes.set_ylabel("stage")
    _legend(axes)


def _hatch_unstaged(axes: "Axes", night: "StagedNight", label: str) -> None:
    unstaged = np.diff((night.hypnogram == UNSCORED).astype(np.int8), prepend=0, append=0)
    for begin, end in np.flatnonzero(unstaged).reshape(-1, 2).tolist():
        span = axes.axvspan(EPOCH_S * begin, EPOCH_S * end, lw=0, zorder=0, label=label)
        span.set(facecolor="0.93", edgecolor="0.75", hatch="///")
        label = _UNNAMED


def _draw_spectrogram(
    canvas: "Canvas", axes: "Axes", night: "StagedNight", edges_s: NDArray[np.int64]
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
        # beside the axes, so that all panels keep the same width
        bar = canvas.colorbar(image, cax=axes.inset_axes((1.015, 0, 0.015, 1)))
        bar.set_label("power (dB of 1 µV²/Hz)", fontsize=8)


def _draw_confidence(axes: "Axes", night: "StagedNight", edges_s: NDArray[np.int64]) -> None:
    step = _MEAN_OVER if len(night.hypnogram) > _MOST_DRAWN else 1
    means = "\n(means of 5 min)" if step > 1 else ""
    borders_s = np.append(edges_s[:-1:step], edges_s[-1])
    if len(night.pairs) > 1:
        label = f"of {len(night.pairs)} pairs,\ndisagree{means}"
        disagreement = 100 * _means(night.disagreement, step)
        axes.stairs(disagreement, borders_s, fill=True, color=VERMILION, lw=0, label=label)
    confidence = 100 * _means(night.confidence, step)
    label = f"confidence{means}"
    axes.stairs(confidence, borders_s, baseline=None, color=BLACK, lw=0.8, label=label)
    axes.axhline(50, color=GREY, lw=0.5, ls=":")
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("share (%)")
    _legend(axes, upwards=True)


def _means(values: NDArray[np.float32], step: int) -> NDArray[np.float64]:
    """Return means of ``step`` values each, NaN where all are unknown."""
    padded = np.pad(values.astype(np.float64), (0, -len(values) % step), constant_values=np.nan)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice")
        return np.nanmean(padded.reshape(-1, step), axis=1)


def _legend(axes: "Axes", upwards: bool = False) -> None:
    """Put a legend right of a panel, without the hypnogram itself."""
    found = zip(*axes.get_legend_handles_labels(), strict=True)
    kept = [(handle, name) for handle, name in found if name != "stage"]
    if kept:
        handles, names = zip(*(kept[::-1] if upwards else kept), strict=True)
        axes.legend(handles, names, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _title(night: "StagedNight") -> str:
    first = f"{printable(night.source)}: {night.shift.verdict}"
    if night.shift.reasons:
        first += f". {night.shift.reasons[0]}"
        others = len(night.shift.reasons) - 1
        first += f" And {plural(others, 'more reason')}." if others else ""
    return textwrap.fill(textwrap.shorten(first, _MOST_LETTERS), _LETTERS_PER_LINE)


_SHIFT_FIGURES_WIDTH = 8.5
_NEAR, _FAR = 1.5, 3.0  # in limits; farther distances are drawn as arrows
_LEGEND = ("99 % of training nights", "their median", "this night")


def draw_distances(distances: tuple[Distance, ...]) -> "Canvas":
    """Draw each distance in a strip from 0 to its limit, with the median of the training nights."""
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
        axes.set_xlabel("distance (1 = 99 % of the training nights are below)")
        canvas.legend(loc="outside upper left", ncols=4, fontsize=8)
        _without_formulas(canvas)
    return canvas


def draw_spectra(shift: ShiftReport) -> "Canvas":
    """Draw the spectra of a night and of the training nights, and the filter between them."""
    with styled():
        # a channel that is used twice is drawn once
        places = sorted({shift.channels.index(channel) for channel in shift.channels})
        canvas = new_canvas(_SHIFT_FIGURES_WIDTH, 2.3 * len(places) + 0.5)
        table = canvas.subplots(len(places), 2, sharex=True, squeeze=False)
        for (spectra, response), place in zip(table, places, strict=True):
            channel, hz = printable(shift.channels[place]), shift.frequencies_hz
            spectra.set_title(f"{channel}: spectrum", loc="left")
            powers = (shift.night_psd[place], shift.training_psd[place])  # 0 in a flat channel
            night, training = (10 * np.log10(np.where(p > 0, p, np.nan)) for p in powers)
            spectra.plot(hz, night, color=VERMILION, lw=1.4, label="this night")
            if np.isfinite(training).any():
                look = {"color": BLACK, "ls": "--", "lw": 1.2}
                spectra.plot(hz, training, label="training nights", **look)
            spectra.set_ylabel("power density (dB)")
            spectra.legend()
            gain_db = np.where(np.isfinite(shift.filter_db[place]), shift.filter_db[place], np.nan)
            response.set_title(f"{channel}: filter", loc="left")
            response.axhline(0, color=GREY, lw=0.8)
            response.plot(hz, gain_db, color=BLUE, lw=1.4)
            response.set_ylabel("gain (dB)")
            if np.isnan(gain_db).all():
                response.set_yticks([])
                response.text(0.5, 0.6, "not known", transform=response.transAxes, ha="center")
        for axes in table[-1]:
            axes.set_xlabel("frequency (Hz)")
        _without_formulas(canvas)
    return canvas


def _draw_strip(axes: "Axes", place: int, distance: Distance, farthest: float) -> None:
    of_training, of_median, of_night = _LEGEND if place == 0 else ("_",) * len(_LEGEND)
    axes.barh(place, 1, height=0.5, color=SKY, alpha=0.35, label=of_training)
    typical, value = _in_limits(distance)
    axes.plot(typical, place, marker="|", ms=14, mew=2, ls="", color=BLUE, label=of_median)
    # NaN counts as far, too: a flat channel has no distance
    is_far = not value <= farthest
    marker, at = (">", farthest) if is_far else ("D", value)
    axes.plot(at, place, marker=marker, ms=8, ls="", color=VERMILION, mec=BLACK, label=of_night)
    if is_far:
        text = f"{value:.3g}" if np.isfinite(value) else "beyond all"
        axes.annotate(f"   {text}", (at, place), fontsize=8, va="center")


def _in_limits(distance: Distance) -> tuple[float, float]:
    """Return the median and the night's distance in units of the limit; NaN without a limit."""
    limit = distance.limit if distance.limit > 0 else np.nan
    return distance.typical / limit, distance.value / limit


_KINDS = {UNUSUAL: "caution", NOT_TRUSTED: "alarm"}
_SHOWN_DISAGREEMENTS = 20


def write_page(path: str | Path, night: "StagedNight", agreement: Agreement | None = None) -> None:
    """Write the page of a night: one HTML file that needs no network."""
    night_page(night, agreement).write(path)


def night_page(night: "StagedNight", agreement: Agreement | None = None) -> Page:
    """Return the page of a night."""
    page = Page(f"Staging of {printable(night.source)}", contents=True, notice=night.notice)
    page.heading("Verdict")
    shift = night.shift
    part = page.part().text(_VERDICTS[shift.verdict]).items([*shift.reasons, *shift.remarks])
    page.verdict(part.text(sleep_words(night)), _KINDS.get(shift.verdict, ""))
    _add_night(page, night)
    if agreement is not None:
        _add_agreement(page, night, agreement)
    _add_shift(page, night)
    _add_channels(page, night)
    _add_origin(page, night)
    return page


def _add_night(page: Page, night: "StagedNight") -> None:
    page.heading("The night")
    of_pairs = ", and the share of pairs that disagree" * (len(night.pairs) > 1)
    caption = (
        "From top to bottom: hypnogram; probability of each stage; spectrogram of "
        f"{printable(night.spectrogram.channel)}; confidence, the probability of the stage "
        f"given{of_pairs}."
    )
    page.picture(night_png(night), picture_words(night), caption, scrolls=True)
    page.heading("Sleep statistics")
    head = ["statistic", "value", "definition"]
    page.table("Sleep statistics", head, statistics_rows(night), unseen=True, words={2})
    if not night.statistics.lights.startswith("given"):
        page.text(
            "Lights off and on were not both given: time in bed, sleep efficiency and latencies "
            "from lights off say little about the sleeper.",
            "note",
        )


def _add_agreement(page: Page, night: "StagedNight", found: Agreement) -> None:
    page.heading("Agreement with a scoring")
    rows = [
        ["Cohen's kappa", _share(found.kappa, 1), "agreement beyond chance, at most 1"],
        ["accuracy", _share(found.accuracy), "share of the epochs that agree"],
        ["balanced accuracy", _share(found.balanced_accuracy), "mean of the stages' recalls"],
        ["macro F1", _share(found.macro_f1), "mean over stages"],
    ]
    caption = f"{plural(found.n_compared, 'epoch')} compared, {found.n_left_out:,} left out"
    page.table(caption, ["measure", "value", "definition"], rows, words={2})
    entries = [
        [
            (f"{n:,}", f"{n:,} epochs scored {true}, staged {staged}")
            for staged, n in zip(STAGES, row, strict=True)
        ]
        for true, row in zip(STAGES, found.confusion.tolist(), strict=True)
    ]
    page.matrix("Epochs as scored (rows) and as staged (columns)", STAGES, entries)
    shown = found.disagreements[:_SHOWN_DISAGREEMENTS]
    if not shown:
        page.text("All epochs agree.")
        return
    caption = f"The {len(shown)} most confident of {len(found.disagreements):,} disagreements"
    head = ["time", "epoch, from 0", "scored", "staged", "confidence"]
    rows = [
        [time_words(night.start, d.onset_s), str(d.epoch), *d[2:4], _share(d.confidence)]
        for d in shown
    ]
    page.table(caption, head, rows, sortable=True)


def _add_shift(page: Page, night: "StagedNight") -> None:
    page.heading("How far to trust it")
    shift = night.shift
    if len(night.pairs) > 1 and shift.channels:
        shown = " + ".join(map(printable, shift.channels))
        which = "the first" if shift.channels == night.pairs[0] else "the farthest out of range"
        all_pairs = f"Each of the {len(night.pairs)} pairs that vote was measured."
        page.text(f"{all_pairs} This is {shown}, {which}.")
    if shift.distances:
        unit = night.model.get("unit")
        page.text(
            "Distances (Bures–Wasserstein) of the night's power spectra from the barycenter of the "
            "training nights, of the input and at each PSDNorm layer of the model. That of the "
            f"input is in {unit or 'units of the prepared signal'}; the others have no unit."
        )
        rows = []
        for each in shift.distances:
            known = (each.value, each.typical, each.limit)  # NaN or infinite for a flat channel
            figures = (UNKNOWN if np.isnan(x) else f"{x:.3g}".replace("inf", "∞") for x in known)
            limit = "within" if each.value <= each.limit else "beyond"
            rows.append([printable(each.where), *figures, _share(each.rank, digits=0), limit])
        words = " ".join(f"{row[0]}: {row[1]}, {row[5]} the limit of {row[3]}." for row in rows)
        words = f"Distances from the training nights. {words}"
        page.picture(as_png(draw_distances(shift.distances)), words, scrolls=True)
        head = ["where", "this night", "median", "99 % are below", "nearer nights", "this night is"]
        page.table("Distances from the training nights", head, rows)
    else:
        page.text("The model does not know its training nights: there are no distances to show.")
    if not shift.channels:
        return
    page.heading("Spectra and filter", 3)
    caption = (
        "Left: power spectra of the prepared night and of the training nights. Right: the filter "
        "that maps the first onto the second; 0 dB changes nothing."
    )
    page.picture(as_png(draw_spectra(shift)), _spectra_words(shift), caption, scrolls=True)


def _spectra_words(shift: ShiftReport) -> str:
    """Return the frequency at which the filter of each channel does most."""
    parts = ["Spectra of the night, and the filter towards those of the training nights."]
    for channel, gains_db in dict(zip(shift.channels, shift.filter_db, strict=True)).items():
        known = np.isfinite(gains_db)
        if not known.any():
            parts.append(f"{printable(channel)}: the filter is not known.")
            continue
        most = np.flatnonzero(known)[np.abs(gains_db[known]).argmax()]
        at = f"{shift.frequencies_hz[most]:g} Hz, {gains_db[most]:+.1f} dB"
        parts.append(f"{printable(channel)}: the filter does most at {at}.")
    return " ".join(parts)


def _add_channels(page: Page, night: "StagedNight") -> None:
    page.heading("Channels")
    rows = []
    for pair, given in zip(night.pairs, night.pair_probabilities, strict=True):
        votes_here = (night.hypnogram != UNSCORED) & ~np.isnan(given).any(axis=1)
        votes, stages = given[votes_here], night.hypnogram[votes_here]
        shares = (votes.argmax(axis=1) != stages, votes.max(axis=1))
        means = [_share(each.mean()) if len(votes) else UNKNOWN for each in shares]
        rows.append([" + ".join(map(printable, pair)), *means, f"{len(votes):,}"])
    if rows:
        several = "; the stages are those of their mean probabilities" * (len(rows) > 1)
        caption = f"Channels that the model was shown together{several}"
        head = ["channels", "disagree with the vote", "mean confidence", "epochs staged"]
        page.table(caption, head, rows, sortable=len(rows) > 1)
    else:
        page.text("No channel could be staged.")
    if night.notes:
        page.heading("Notes", 3).items(map(printable, night.notes))


def _add_origin(page: Page, night: "StagedNight") -> None:
    page.heading("Model and versions")
    rows = [
        [name, printable(value if isinstance(value, str) else json.dumps(value, default=str))]
        for name, value in night.model.items()
    ]
    if rows:
        page.table("Model", ["property", "value"], rows, words={1})
    versions = f"psdnorm {psdnorm.__version__}, torch {torch.__version__}"
    page.text(f"Versions: {versions}, Python {platform.python_version()}.", "note")


def _share(value: float, scale: float = 100, digits: int = 1) -> str:
    """Return a share in percent; with a scale of 1, a number of two decimals."""
    if np.isnan(value):
        return UNKNOWN
    return f"{value:.2f}" if scale == 1 else f"{scale * value:.{digits}f} %"
