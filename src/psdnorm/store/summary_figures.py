"""A picture of what is in a store: stages, hours, ages and spectra of each cohort."""

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.runtime import written
from psdnorm.store.folder import Store
from psdnorm.store.summary import CohortPSD, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
# distinguishable in print and to the colour-blind (Okabe and Ito), light to dark as sleep deepens
_STAGE_COLOURS = ("#F0E442", "#56B4E9", "#0072B2", "#00334D", "#D55E00")
_LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINE_STYLES = ("-", "--", ":", "-.")
_BAR = "#7A8B99"
_WIDTH_IN, _ROW_IN, _SPECTRUM_IN = 11.0, 0.34, 3.4
_SPECTRA_PER_ROW = 2


def check_ending(path: str | os.PathLike[str]) -> Path:
    """Return the path of a picture; refuse one that ends in no format that is drawn."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise ArgumentError(f"figure is {str(path)!r}, expected a name in {', '.join(ENDINGS)}")
    return Path(path)


def line_of(number: int) -> tuple[str, str]:
    """Return colour and dashes of a cohort's line; the first 28 are all different."""
    turn, colour = divmod(number, len(_LINE_COLOURS))
    return _LINE_COLOURS[colour], _LINE_STYLES[(colour + turn) % len(_LINE_STYLES)]


def draw(
    store: Store,
    summary: pd.DataFrame,
    spectra: Mapping[str, CohortPSD],
    path: str | os.PathLike[str],
) -> None:
    """Draw what is in a store into a file, whole or not at all.

    Parameters
    ----------
    store : Store
    summary : DataFrame
        Of :func:`~psdnorm.store.summarize`.
    spectra : dict of str to CohortPSD
        Of :func:`~psdnorm.store.mean_psd`.
    path : path
        Ends in ``.png``, ``.svg`` or ``.pdf``.

    Raises
    ------
    ArgumentError
        If it ends otherwise.
    MissingExtraError
        If matplotlib is not installed.
    """
    path = check_ending(path)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError('a figure needs matplotlib: pip install "psdnorm[demo]"') from error
    image = io.BytesIO()
    # text as text, and the same bytes for the same store
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "psdnorm"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a cohort's name: a box stands for it
        figure = _figure(Figure, store, summary, spectra)
        dated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        ending = path.suffix.lower()
        figure.savefig(image, format=ending[1:], dpi=150, metadata=dated[ending])
    with written(path) as file:
        file.write(image.getvalue())


def _figure(
    new_figure: "type[Figure]",
    store: Store,
    summary: pd.DataFrame,
    spectra: Mapping[str, CohortPSD],
) -> "Figure":
    cohorts = summary.iloc[:-1].iloc[::-1]  # the first one on top
    n_columns = min(store.layout.n_channels, _SPECTRA_PER_ROW)
    n_rows = -(-store.layout.n_channels // n_columns)
    bars_in = max(2.2, 1.2 + _ROW_IN * len(cohorts))
    figure = new_figure(
        figsize=(_WIDTH_IN, bars_in + 0.8 + _SPECTRUM_IN * n_rows), layout="constrained"
    )
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
        f"{made_up}{int(everything['subjects'])} subjects, {n_nights} nights, "
        f"{everything['hours']:,.0f} hours · recipe {name} ({store.hash[:8]})"
    )


def _draw_shares(axes: "Axes", cohorts: pd.DataFrame) -> None:
    left = np.zeros(len(cohorts))
    for stage, colour in zip(STAGES, _STAGE_COLOURS, strict=True):
        width = 100 * cohorts[stage].fillna(0).to_numpy()
        axes.barh(
            range(len(cohorts)), width, left=left, color=colour, edgecolor="white", label=stage
        )
        for row, share in enumerate(width):
            if share >= 6:  # or the number is wider than the bar
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
    axes.set(xlabel="hours", title="subjects/nights in each")
    axes.title.set_fontsize(9)
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
        density = np.where(found.psd[channel] > 0, found.psd[channel], np.nan)  # zero has no log
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
    title = names.pop() if len(names) == 1 else f"channel {channel + 1}"
    most = max(found.n_nights for found in spectra.values())
    axes.set_title(
        f"mean spectrum, {_literal(title)} (half an hour of at most {most} nights each)",
        fontsize=9,
    )
    axes.set(xlabel="frequency (Hz)", ylabel=f"density ({unit_of(store.recipe)}²/Hz)")
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _highest_hz(store: Store) -> float:
    """Return up to where a spectrum says something: the recipe's low-pass."""
    half = store.layout.sfreq / 2
    edge = store.recipe.get("lowpass_hz")
    return min(half, edge) if isinstance(edge, int | float) and edge > 0 else half


def _strip(axes: "Axes") -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _literal(text: Any) -> str:
    return str(text).replace("$", r"\$")  # or matplotlib sets what is between two as mathematics
