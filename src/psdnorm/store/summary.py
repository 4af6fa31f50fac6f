"""Summary of a store, in numbers and as a figure."""

import dataclasses
import io
import math
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from psdnorm import ops
from psdnorm.constants import BANDS_HZ, STAGES
from psdnorm.errors import ArgumentError, MissingExtraError, StoreError
from psdnorm.runtime import plural, written
from psdnorm.store.folder import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_HALF_HOUR = 60  # epochs read per night: enough for a spectrum, and a small read
_UNITS = {"none": "µV", "epoch": "SD", "recording": "IQR"}  # by the recipe's scaling
_HOW_MUCH = re.compile(r"\s+[\d.]+ ?%$")


class CohortPSD(NamedTuple):
    """Mean power spectral density of a cohort."""

    freqs_hz: NDArray[np.float64]  # (F,)
    psd: NDArray[np.float64]  # (C, F), squared units of the recipe per Hz
    n_nights: int
    channels: tuple[str, ...]  # C names; if nights differ, the most common and the number of others

    def band_powers_db(self) -> dict[str, list[float]]:
        """Return the mean density per band and channel, in dB; NaN without power or bins."""
        densities = {}
        for band, (low_hz, high_hz) in BANDS_HZ.items():
            inside = (low_hz <= self.freqs_hz) & (self.freqs_hz < high_hz)
            sums = self.psd[:, inside].sum(axis=1)  # (C,)
            densities[band] = [
                10 * math.log10(total / inside.sum()) if total > 0 else math.nan for total in sums
            ]
        return densities


def summarize(store: Store) -> pd.DataFrame:
    """Summarize a store: a DataFrame with a row per cohort and a final row ``all``.

    Columns are ``subjects``, ``nights``, ``hours``; the share of each stage among scored epochs and
    of ``unscored`` among all; ``age_mean``, ``age_min``, ``age_max`` in years and the share
    ``female``, over subjects for whom they are known; ``simulated`` and ``flagged`` nights;
    ``bytes`` on disk. NaN is unknown.
    """
    index = store.index
    if index.empty:
        raise StoreError(f"{store.path} is empty: no night was prepared into it yet")
    groups = [(str(cohort), nights) for cohort, nights in index.groupby("cohort")]
    rows = [_summary(nights, store.layout.epoch_s) for _, nights in [*groups, ("all", index)]]
    names = [*(cohort for cohort, _ in groups), "all"]
    return pd.DataFrame(rows, index=pd.Index(names, name="cohort"))


def count_flags(index: pd.DataFrame) -> dict[str, int]:
    """Count the nights with each flag, ignoring its percentage, the most common first."""
    flags = index["flags"].str.split(";").map(lambda each: {_HOW_MUCH.sub("", f) for f in each})
    counts = flags.explode().loc[lambda each: each != ""].value_counts()
    return {str(flag): int(n) for flag, n in sorted(counts.items(), key=lambda c: (-c[1], c[0]))}


def unit_of(recipe: Mapping[str, Any]) -> str:
    """Return the unit of a store's samples: µV, SD (of an epoch) or IQR (of a recording)."""
    return _UNITS.get(str(recipe.get("scaling")), "unit")


def describe(
    store: Store, summary: pd.DataFrame, spectra: Mapping[str, CohortPSD]
) -> dict[str, Any]:
    """Return a JSON-compatible description of a store; unknown values are None."""
    index, unit = store.index, unit_of(store.recipe)
    rows = [
        {key: _plain(value) for key, value in row.items()} for row in summary.to_dict("records")
    ]
    cohorts = {}
    for (cohort, nights), row in zip(index.groupby("cohort"), rows[:-1], strict=True):
        spectrum = spectra[str(cohort)]
        cohorts[str(cohort)] = {
            **row,
            "flags": count_flags(nights),
            "channels": list(spectrum.channels),
            "band_powers_db": {
                band: [_plain(power) for power in powers]
                for band, powers in spectrum.band_powers_db().items()
            },
            "spectrum": {
                "nights": spectrum.n_nights,
                "freqs_hz": spectrum.freqs_hz.tolist(),
                "psd": spectrum.psd.tolist(),
            },
        }
    return {
        "store": str(store.path),
        "recipe": store.recipe,
        "recipe_hash": store.hash,
        "layout": dataclasses.asdict(store.layout),
        "units": {"spectrum": f"{unit}²/Hz", "band_powers_db": f"dB re 1 {unit}²/Hz"},
        "cohorts": cohorts,
        "all": {**rows[-1], "flags": count_flags(index)},
    }


def mean_psd(
    store: Store, most_nights: int = 20, segment_s: float = 4.0, seed: int = 0
) -> dict[str, CohortPSD]:
    """Estimate the mean one-sided spectrum of each cohort from a bounded sample of its nights.

    Welch's method with Hann windows of ``segment_s`` over half an hour in the middle of at most
    ``most_nights`` nights per cohort, drawn at random with ``seed``.
    """
    size = round(segment_s * store.layout.sfreq)
    if not 1 < size <= store.layout.n_times:
        raise StoreError(f"segment_s is {segment_s}, expected part of {store.layout.epoch_s} s")
    result = {}
    for cohort, nights in store.index.groupby("cohort"):
        recordings = nights["recording"].to_numpy(object)
        chosen = np.random.default_rng(seed).permutation(len(recordings))[:most_nights]
        psd = np.mean([_night_psd(store, recordings[i], size) for i in sorted(chosen)], axis=0)
        freqs_hz = np.arange(psd.shape[-1]) * store.layout.sfreq / size
        names = _channel_names(nights["channels"], store.layout.n_channels)
        result[str(cohort)] = CohortPSD(freqs_hz, psd, len(chosen), names)
    return result


def _summary(nights: pd.DataFrame, epoch_s: float) -> dict[str, float]:
    # each value is from the first visit at which it is known
    subjects = nights.groupby(["cohort", "subject"])[["age", "sex"]].first()
    scored = int(nights[list(STAGES)].to_numpy().sum())
    epochs = int(nights["epochs"].sum())
    ages, sexes = subjects["age"].dropna(), subjects["sex"].dropna()
    return {
        "subjects": len(subjects),
        "nights": len(nights),
        "hours": epochs * epoch_s / 3600,
        **{stage: _share(int(nights[stage].sum()), scored) for stage in STAGES},
        "unscored": _share(int(nights["unscored"].sum()), epochs),
        "age_mean": float(ages.mean()) if len(ages) else float("nan"),
        "age_min": float(ages.min()) if len(ages) else float("nan"),
        "age_max": float(ages.max()) if len(ages) else float("nan"),
        "female": _share(int((sexes == "F").sum()), len(sexes)),
        "simulated": int(nights["simulated"].sum()),
        "flagged": int((nights["flags"] != "").sum()),
        "bytes": int(nights["bytes"].sum()),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _plain(value: float) -> float | int | None:
    return None if math.isnan(value) else value


def _channel_names(channels: "pd.Series[str]", n_channels: int) -> tuple[str, ...]:
    """Return a name for each channel of a cohort, from its nights' names, separated by ``;``."""
    split = [names for names in channels.str.split(";") if len(names) == n_channels]
    result = []
    for place in range(n_channels):
        counts = pd.Series([names[place] for names in split], dtype=object).value_counts()
        if counts.empty or counts.index[0] == "":
            result.append(f"channel {place + 1}")
            continue
        others = {1: "", 2: " and 1 other"}.get(len(counts), f" and {len(counts) - 1} others")
        result.append(f"{counts.index[0]}{others}")
    return tuple(result)


def _night_psd(store: Store, recording: str, size: int) -> NDArray[np.float64]:
    """One-sided spectral density of the middle of a night, (C, F)."""
    n_epochs = len(store.signals(recording))
    read = min(n_epochs, _HALF_HOUR)
    signals, _ = store.read(recording, (n_epochs - read) // 2, read)
    rows = ops.center(torch.from_numpy(signals))  # (S, C, T)
    psd = ops.welch_psd(rows, size, "hann").double().mean(dim=0)  # (C, F), two-sided
    if not psd.isfinite().all():
        raise StoreError(f"recording {recording!r} of {store.path} has samples that are not finite")
    psd[:, 1 : (size + 1) // 2] *= 2  # except at 0 and the Nyquist frequency
    return psd.numpy() / store.layout.sfreq


ENDINGS = (".png", ".svg", ".pdf")
# distinguishable in print and to the colour-blind (Okabe and Ito), light to dark as sleep deepens
_STAGE_COLOURS = ("#F0E442", "#56B4E9", "#0072B2", "#00334D", "#D55E00")
_LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINE_STYLES = ("-", "--", ":", "-.")
_BAR = "#7A8B99"
_WIDTH_IN, _ROW_IN, _SPECTRUM_IN = 11.0, 0.34, 3.4
_SPECTRA_PER_ROW = 2


def check_ending(path: str | os.PathLike[str]) -> Path:
    """Return the path of a figure; raise ArgumentError if its format is not supported."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise ArgumentError(f"figure is {str(path)!r}, expected a name in {', '.join(ENDINGS)}")
    return Path(path)


def line_of(number: int) -> tuple[str, str]:
    """Return colour and line style of a cohort; the first 28 are distinct."""
    turn, colour = divmod(number, len(_LINE_COLOURS))
    return _LINE_COLOURS[colour], _LINE_STYLES[(colour + turn) % len(_LINE_STYLES)]


def draw(
    store: Store,
    summary: pd.DataFrame,
    spectra: Mapping[str, CohortPSD],
    path: str | os.PathLike[str],
) -> None:
    """Draw the summary of a store to a ``.png``, ``.svg`` or ``.pdf`` file, atomically."""
    path = check_ending(path)
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError('a figure needs matplotlib: pip install "psdnorm[demo]"') from error
    image = io.BytesIO()
    # keep text as text, and make the bytes reproducible
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "psdnorm"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # missing from the font: drawn as a box
        figure = _figure(store, summary, spectra)
        dated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        ending = path.suffix.lower()
        figure.savefig(image, format=ending[1:], dpi=150, metadata=dated[ending])
    with written(path) as file:
        file.write(image.getvalue())


def _figure(store: Store, summary: pd.DataFrame, spectra: Mapping[str, CohortPSD]) -> "Figure":
    from matplotlib.figure import Figure

    cohorts = summary.iloc[:-1].iloc[::-1]  # the first cohort at the top
    n_columns = min(store.layout.n_channels, _SPECTRA_PER_ROW)
    n_rows = -(-store.layout.n_channels // n_columns)
    bars_in = max(2.2, 1.2 + _ROW_IN * len(cohorts))
    size = _WIDTH_IN, bars_in + 0.8 + _SPECTRUM_IN * n_rows
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(_title(store, summary.iloc[-1]), fontsize=12, fontweight="bold")
    parts: Any = figure.subfigures(2, 1, height_ratios=[bars_in, _SPECTRUM_IN * n_rows])
    upper, lower = parts
    shares, hours, ages = upper.subplots(1, 3, sharey=True, width_ratios=[2, 1, 1])
    _draw_shares(shares, cohorts)
    _draw_hours(hours, cohorts)
    _draw_ages(ages, cohorts)
    panels = lower.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    for channel, panel in enumerate(panels.flat):
        if channel < store.layout.n_channels:
            _draw_spectra(panel, channel, spectra, store)
        else:
            panel.set_visible(False)
    lines, labels = panels[0, 0].get_legend_handles_labels()
    lower.legend(
        lines, labels, loc="outside right upper", fontsize=9, title="cohort", frameon=False
    )
    return figure


def _title(store: Store, everything: "pd.Series[float]") -> str:
    n_nights, n_simulated = int(everything["nights"]), int(everything["simulated"])
    made_up = ""
    if n_simulated:
        which = "all" if n_simulated == n_nights else f"{n_simulated} of {n_nights}"
        made_up = f"SIMULATED ({which} nights): "
    name = _literal(store.recipe.get("name", "unnamed"))
    return (
        f"{made_up}{plural(int(everything['subjects']), 'subject')}, {plural(n_nights, 'night')}, "
        f"{plural(round(everything['hours']), 'hour')} · recipe {name} ({store.hash[:8]})"
    )


def _draw_shares(axes: "Axes", cohorts: pd.DataFrame) -> None:
    left = np.zeros(len(cohorts))
    for stage, colour in zip(STAGES, _STAGE_COLOURS, strict=True):
        width = 100 * cohorts[stage].fillna(0).to_numpy()
        axes.barh(
            range(len(cohorts)), width, left=left, color=colour, edgecolor="white", label=stage
        )
        for row, share in enumerate(width):
            if share >= 6:  # otherwise the number is wider than the bar
                light = colour in (_STAGE_COLOURS[0], _STAGE_COLOURS[1])
                axes.text(
                    left[row] + share / 2,
                    row,
                    f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="black" if light else "white",
                )
        left += width
    for row in np.flatnonzero(cohorts[STAGES[0]].isna()).tolist():
        axes.text(2, row, "nothing scored", va="center", fontsize=9, style="italic")
    axes.set_yticks(range(len(cohorts)), [_literal(name) for name in cohorts.index])
    axes.set(xlim=(0, 100), xlabel="share of scored epochs (%)")
    axes.legend(
        ncols=len(STAGES), loc="lower center", bbox_to_anchor=(0.5, 1), fontsize=9, frameon=False
    )
    _strip(axes)


def _draw_hours(axes: "Axes", cohorts: pd.DataFrame) -> None:
    bars = axes.barh(range(len(cohorts)), cohorts["hours"], color=_BAR)
    counts = zip(cohorts["subjects"], cohorts["nights"], strict=True)
    axes.bar_label(bars, [f" {s}/{n}" for s, n in counts], fontsize=8)
    axes.margins(x=0.3)
    axes.set_xlabel("hours")
    axes.set_title("subjects/nights in each", fontsize=9)
    _strip(axes)


def _draw_ages(axes: "Axes", cohorts: pd.DataFrame) -> None:
    known = cohorts["age_mean"].notna().to_numpy()
    rows, ages = np.flatnonzero(known), cohorts[known]
    axes.hlines(rows, ages["age_min"], ages["age_max"], color=_BAR, linewidth=4)
    axes.plot(ages["age_mean"], rows, "o", color="black", markersize=5)
    oldest = max([100.0, *ages["age_max"]])
    axes.set(xlim=(0, oldest), xlabel="age (years)", title="mean, youngest to oldest")
    axes.title.set_fontsize(9)
    for row in np.flatnonzero(~known).tolist():
        axes.text(3, row, "unknown", va="center", fontsize=9, style="italic")
    _strip(axes)


def _draw_spectra(
    axes: "Axes", channel: int, spectra: Mapping[str, CohortPSD], store: Store
) -> None:
    lowest_hz, highest_hz = 0.5, _highest_hz(store)
    for number, (cohort, found) in enumerate(spectra.items()):
        shown = (found.freqs_hz >= lowest_hz) & (found.freqs_hz <= highest_hz)
        density = np.where(found.psd[channel] > 0, found.psd[channel], np.nan)  # no log of zero
        colour, style = line_of(number)
        axes.semilogy(
            found.freqs_hz[shown],
            density[shown],
            color=colour,
            linestyle=style,
            linewidth=1.6,
            label=_literal(cohort),
        )
    names = {found.channels[channel] for found in spectra.values()}
    name = _literal(names.pop()) if len(names) == 1 else f"channel {channel + 1}"
    most = max(found.n_nights for found in spectra.values())
    title = f"mean spectrum, {name} (half an hour of at most {most} nights each)"
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="frequency (Hz)", ylabel=f"density ({unit_of(store.recipe)}²/Hz)")
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _highest_hz(store: Store) -> float:
    """Return the highest informative frequency of a spectrum: the recipe's low-pass edge."""
    half = store.layout.sfreq / 2
    edge = store.recipe.get("lowpass_hz")
    return min(half, edge) if isinstance(edge, int | float) and edge > 0 else half


def _strip(axes: "Axes") -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _literal(text: Any) -> str:
    return str(text).replace("$", r"\$")  # matplotlib would typeset text between two as math
