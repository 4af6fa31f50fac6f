"""The paper's illustration: spectra of cohorts in the input and behind each first norm."""

from pathlib import Path
from typing import TYPE_CHECKING

from psdnorm.errors import PsdnormError
from psdnorm.experiments.grid import Runs
from psdnorm.present.figure import CannotDraw, Drawing, new_canvas
from psdnorm.present.style import VERMILION
from psdnorm.report.figures.before_after_spectra import (
    NIGHTS,
    Spectrum,
    chosen_nights,
    passband_hz,
    spectra_of,
)
from psdnorm.report.figures.comparison import Comparison
from psdnorm.report.naming import listed
from psdnorm.store import Store
from psdnorm.training.run_folder import WEIGHTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_TITLE = "Spectra before and after the first norms"
_GREYS = ("#222222", "#777777", "#B0B0B0")
_LINES = ("-", "--", ":")


def draw_spectra(comparison: Comparison, store: Store | None) -> Drawing:
    """Draw mean spectra of every cohort at the input and behind the first blocks' norms.

    Parameters
    ----------
    comparison : Comparison
    store : Store or None
        The one that the cells were trained on.

    Returns
    -------
    Drawing
        A column per norm, a row per place; lines are labelled with cohorts.
    """
    what = f"{_TITLE} ({comparison.setting})"
    cells = _cells(comparison)
    if cells is None:
        raise CannotDraw(f"{what}: no weights were kept (psdnorm lodo --keep weights keeps them).")
    if store is None:
        raise CannotDraw(f"{what}: no store was given, of which nights could be taken.")
    hold_out = str(cells["hold_out"].iloc[0])
    differs = Runs(comparison.results.path).other_nights(store)
    if differs is not None:
        raise CannotDraw(f"{what}: the runs were begun with {differs} in {store.path}.")
    nights = chosen_nights(store)
    found: dict[str, list[Spectrum]] = {}
    missing: list[str] = []
    for norm in comparison.labels:
        for folder in cells.loc[cells["norm"] == norm, "folder"]:
            try:
                found[norm], unread = spectra_of(Path(folder), store, nights)
                missing += [f"{_TITLE}: {sentence}." for sentence in unread]
            except PsdnormError as error:
                missing.append(f"{_TITLE}: {error}.")
    found = {norm: each for norm, each in found.items() if hold_out in each[0].decibels.index}
    if not found:
        raise CannotDraw(f"{what}: {' '.join(missing) or f'no night of {hold_out} can be read.'}")
    without = [label for norm, label in comparison.labels.items() if norm not in found]
    said = f"Not drawn, for lack of weights: {listed(without)}. " if without else ""
    seed = int(cells["seed"].iloc[0])
    return Drawing(
        name=f"spectra-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}, {hold_out} held out",
        words=_words(found, hold_out, comparison.labels),
        caption=f"Networks of seed {seed}. Up to {NIGHTS} nights of each cohort, 35 epochs from "
        "the middle of each. One line per cohort: mean over nights of the power in dB, which is "
        f"the mean over channels (of features behind a block). The numbers say how far the "
        f"held-out cohort is from the mean of the others. {said}{_above(store)}Blocks are drawn at "
        "their own rate, so that frequencies end earlier from block to block.",
        canvas=_draw(found, hold_out, comparison.labels),
        missing=list(dict.fromkeys(missing)),
    )


def _above(store: Store) -> str:
    highest = passband_hz(store)
    if highest == float("inf"):
        return ""
    return (
        f"Frequencies above the recipe's low-pass of {highest:g} Hz, where little but rounding is "
        "left, are neither drawn nor counted. "
    )


def _cells(comparison: Comparison) -> "pd.DataFrame | None":
    """Return the cells with weights of the cohort and seed of which most norms have them."""
    cells = comparison.results.cells
    kept = cells[[(Path(folder) / WEIGHTS).is_dir() for folder in cells["folder"]]]
    if kept.empty:
        return None
    groups = [group for _, group in kept.groupby(["seed", "hold_out"], sort=True)]
    return max(groups, key=len)


def _draw(found: dict[str, list[Spectrum]], hold_out: str, labels: dict[str, str]) -> "Canvas":
    rows = max(len(spectra) for spectra in found.values())
    canvas = new_canvas(1.75 * len(found) + 1.9, 1.55 * rows + 0.9)
    table = canvas.subplots(rows, len(found), squeeze=False, sharey="row", sharex="row")
    for column, (norm, spectra) in zip(table.T, found.items(), strict=True):
        column[0].set_title(labels[norm], loc="left")
        for axes, spectrum in zip(column, spectra, strict=False):
            _draw_cohorts(axes, spectrum, hold_out)
        for unused in column[len(spectra) :]:
            unused.remove()
    for place, axes in enumerate(table[:, 0]):
        axes.set_ylabel(f"block {place}\npower (dB)" if place else "input\npower (dB)")
    canvas.supxlabel("frequency (Hz)", fontsize=9)
    handles, names = table[0, 0].get_legend_handles_labels()
    names = [f"{name}, held out" if name == hold_out else name for name in names]
    canvas.legend(handles, names, loc="outside right center")
    return canvas


def _draw_cohorts(axes: "Axes", spectrum: Spectrum, hold_out: str) -> None:
    others = spectrum.decibels.drop(index=hold_out)
    hz = spectrum.frequencies_hz
    for place, (cohort, levels) in enumerate(others.iterrows()):
        colour, line = _GREYS[place % 3], _LINES[place // 3 % 3]
        axes.plot(hz, levels, color=colour, ls=line, lw=0.9, label=str(cohort))
    axes.plot(hz, spectrum.decibels.loc[hold_out], color=VERMILION, lw=1.8, label=hold_out)
    axes.set_xlim(0, hz[-1])
    axes.locator_params(axis="x", nbins=4)
    axes.set_title(f"{spectrum.distance(hold_out):.1f} dB", loc="right", fontsize=8)


def _words(found: dict[str, list[Spectrum]], hold_out: str, labels: dict[str, str]) -> str:
    sentences = []
    for norm, spectra in found.items():
        distances = [spectrum.distance(hold_out) for spectrum in spectra]
        after = listed([f"{d:.2f} dB after block {n}" for n, d in enumerate(distances[1:], 1)])
        sentences.append(f"{labels[norm]}: {distances[0]:.2f} dB in the input, {after}.")
    return (
        f"How far the spectrum of the held-out {hold_out} is from the mean of the other cohorts, "
        f"mean over frequencies. {' '.join(sentences)}"
    )
