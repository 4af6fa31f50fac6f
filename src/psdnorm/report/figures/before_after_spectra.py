"""What a network's first blocks make of spectra: cohorts before and after each norm."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm.batches.sequences import LENGTH
from psdnorm.errors import StoreError
from psdnorm.functional import is_number
from psdnorm.models import USleep
from psdnorm.models.checkpoint import Pretrained
from psdnorm.ops import reference
from psdnorm.report.trained import load_trained
from psdnorm.store import Store
from psdnorm.training.run_folder import WEIGHTS

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
    psd = reference.welch_psd(reference.center(rows.double()), size, "hann").mean(dim=0)
    return 10 * np.log10(2 * psd.numpy()[1 : (size + 1) // 2] / rate + _FLOOR)
