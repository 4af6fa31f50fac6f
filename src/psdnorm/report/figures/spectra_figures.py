"""Spectra before and after the norm."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import ops
from psdnorm.batches import LENGTH
from psdnorm.errors import PsdnormError, StoreError
from psdnorm.experiments import ExperimentFolder
from psdnorm.functional import is_number
from psdnorm.models import Pretrained, USleep
from psdnorm.present import VERMILION, CannotDraw, Drawing, new_canvas
from psdnorm.report.figures.comparison import Comparison
from psdnorm.report.trained import load_trained
from psdnorm.runtime import listed
from psdnorm.store import Store
from psdnorm.training import WEIGHTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

BLOCKS = 3
NIGHTS = 3  # of a cohort
_SEGMENT_S = 4.0
_FLOOR = 1e-12  # of power, so that a dead channel is very low instead of minus infinity


@dataclass(frozen=True)
class Spectrum:
    """Mean PSDs of cohorts at one place of a network.

    Attributes
    ----------
    frequencies_hz : ndarray, (F,)
        Above 0, below half of the rate, and up to what the recipe lets pass.
    decibels : DataFrame, (n_cohorts, F)
        Mean over channels of the power as 10 log₁₀, mean over nights of that.
    """

    frequencies_hz: NDArray[np.floating]
    decibels: pd.DataFrame

    def distance(self, cohort: str) -> float:
        """Return how far a cohort is from the mean of the others, dB, mean over frequencies."""
        others = self.decibels.drop(index=cohort).mean()
        return float((self.decibels.loc[cohort] - others).abs().mean())


def chosen_nights(store: Store) -> dict[str, list[str]]:
    """Return a few recordings of every cohort, spread over its index.

    Parameters
    ----------
    store : Store
    """
    found = {}
    for cohort, rows in store.index.groupby("cohort", sort=True):
        recordings = sorted(rows["recording"])
        at = np.linspace(0, len(recordings) - 1, min(NIGHTS, len(recordings))).astype(int)
        found[str(cohort)] = [recordings[place] for place in at]
    return found


def passband_hz(store: Store) -> float:
    """Return the low-pass of a store's recipe; infinity where it names none.

    Parameters
    ----------
    store : Store
    """
    found: Any = store.recipe.get("lowpass_hz")
    return float(found) if is_number(found, 0, math.inf) else math.inf


def spectra_of(
    folder: Path, store: Store, nights: dict[str, list[str]]
) -> tuple[list[Spectrum], list[str]]:
    """Measure spectra in the input of a trained network and behind its first norms.

    Parameters
    ----------
    folder : Path
        Of the cell.
    store : Store
    nights : dict of str to list of str
        Recordings by cohort.

    Returns
    -------
    spectra : list of Spectrum
        Input, then the first three blocks, or as many as there are.
    missing : list of str
        A sentence for each night that could not be read.
    """
    trained = load_trained(folder / WEIGHTS)
    model, source = trained.model, trained.source(store, torch.device("cpu"))
    measured: dict[str, list[list[NDArray]]] = {}
    missing, rates = [], []
    for cohort, recordings in nights.items():
        for recording in recordings:
            try:
                x = _middle(source, recording)
                places = list(_places(model, x))
            except StoreError as error:
                missing.append(str(error))
                continue
            rates = [rate for rate, _ in places]
            levels = [_decibels(rows, rate) for rate, rows in places]
            measured.setdefault(cohort, []).append(levels)
    if not measured:
        raise StoreError(f"{store.path} has no night that can be read")
    spectra = []
    for place, rate in enumerate(rates):
        means = {c: np.mean([each[place] for each in all_], axis=0) for c, all_ in measured.items()}
        hz = _frequencies(rate)
        passed = hz <= passband_hz(store)  # what is left above is the noise of rounding
        table = pd.DataFrame.from_dict(means, orient="index").loc[:, passed]
        spectra.append(Spectrum(hz[passed], table))
    return spectra, missing


def _middle(store: Store, recording: str) -> Tensor:
    """Return one sequence from the middle of a night, (1, S, C, T)."""
    n_epochs = len(store.signals(recording))
    length = min(LENGTH, n_epochs)
    signals, _ = store.read(recording, (n_epochs - length) // 2, length)
    if not np.isfinite(signals).all():
        raise StoreError(f"recording {recording!r} of {store.path} has samples that are not finite")
    return torch.from_numpy(signals).unsqueeze(0)


@torch.no_grad()
def _places(model: Pretrained, x: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Yield the rate in Hz and the rows (C, L) of the input and of each first block's norm."""
    config: dict[str, Any] = model.config
    rate = float(config["sfreq"])
    rows = x.transpose(1, 2).flatten(2)  # (1, C, S · T)
    yield rate, rows[0]
    if isinstance(model, USleep):
        for encode in model.encoder_blocks[:BLOCKS]:
            rows, before_pooling = encode(rows)
            yield rate, before_pooling[0]
            rate /= 2
        return
    blocks: Any = model.blocks
    for place, stride in enumerate(config["strides"][:BLOCKS]):
        rows = blocks[3 * place : 3 * place + 3](rows)  # convolution, ELU, norm
        rate /= stride
        yield rate, rows[0]


def _segment(rate: float) -> int:
    return max(4, round(_SEGMENT_S * rate))


def _frequencies(rate: float) -> NDArray[np.floating]:
    """Return the bins between 0 and half of the rate, which have a mirror image, (F,)."""
    size = _segment(rate)
    return np.arange(1, (size + 1) // 2) * (rate / size)


def _decibels(rows: Tensor, rate: float) -> NDArray[np.float64]:
    """Return the one-sided density of the mean over channels at :func:`_frequencies`, dB, (F,)."""
    size = _segment(rate)
    psd = ops.welch_psd(ops.center(rows.double()), size, "hann").mean(dim=0)
    return 10 * np.log10(2 * psd.numpy()[1 : (size + 1) // 2] / rate + _FLOOR)


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
    differs = ExperimentFolder(comparison.results.path).other_nights(store)
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
