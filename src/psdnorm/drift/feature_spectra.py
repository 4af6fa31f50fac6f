"""What is measured of a night: its spectrum, and how far each PSDNorm layer has to carry it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import functional
from psdnorm.batches.sequences import LENGTH
from psdnorm.errors import ShapeError
from psdnorm.layer import PSDNorm
from psdnorm.models.checkpoint import Pretrained
from psdnorm.ops import reference
from psdnorm.passes import evaluating, hooked, input_of
from psdnorm.store.summary import BANDS_HZ

SEGMENT_S = 4.0
WINDOWS = 8  # of a night: enough for its spectrum, and no more work for a longer one
# slower than this is drift, and the recipes' low-pass filter begins above the last band
EEG_HZ = (BANDS_HZ["delta"][0], BANDS_HZ["beta"][1])
_FLOOR = 1e-12  # of power, so that a dead channel is very low instead of minus infinity


@dataclass(frozen=True, eq=False)
class NightSpectra:
    """What is measured of one prepared night.

    Attributes
    ----------
    sqrt_psd : ndarray of float64, (C, F)
        Root of the barycenter of its epochs' PSDs; white noise of variance σ² has σ everywhere.
    size : int
        Samples of a segment, F = size // 2 + 1.
    sfreq : float
    layers : dict of str to float
        How far the barycenter of its windows is from each PSDNorm layer's target, in the order in
        which the layers are called.
    """

    sqrt_psd: NDArray[np.float64]
    size: int
    sfreq: float
    layers: Mapping[str, float]

    @property
    def frequencies_hz(self) -> NDArray[np.float64]:
        """Frequencies of the bins, (F,)."""
        return frequencies_hz(self.size, self.sfreq)


def frequencies_hz(size: int, sfreq: float) -> NDArray[np.float64]:
    """Return the frequencies of the bins of segments of ``size`` samples, (F,)."""
    return np.arange(reference.n_bins(size)) * sfreq / size


def segment_size(model: Pretrained) -> int:
    """Return how many samples a segment of a model's input has: 4 s, or an epoch if it is less."""
    return min(round(SEGMENT_S * model.config["sfreq"]), model.config["n_times"])


def bures_wasserstein(
    sqrt_first: NDArray[np.floating], sqrt_second: NDArray[np.floating], size: int
) -> NDArray[np.float64]:
    """Return the Bures–Wasserstein distance of stationary signals, per sample of time.

    It is the root mean square of what the Monge map changes in a sample, in the signals' unit.

    Parameters
    ----------
    sqrt_first, sqrt_second : ndarray, (..., F)
        Roots of PSDs.
    size : int
        f, with F = f // 2 + 1: the bins of a real spectrum stand for themselves and their mirror
        images.

    Returns
    -------
    ndarray, (...)
    """
    square = (np.asarray(sqrt_first, np.float64) - sqrt_second) ** 2
    return np.sqrt((square * bin_weights(size)).sum(axis=-1))


def bin_weights(size: int) -> NDArray[np.float64]:
    """Return the share of each kept bin in the power of a signal, (F,); they sum to one."""
    weights = np.full(reference.n_bins(size), 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    return weights / size


def measure_night(model: Pretrained, signals: NDArray | Tensor) -> NightSpectra:
    """Measure eight windows of a prepared night, evenly spaced.

    Parameters
    ----------
    model : Pretrained
        On any device; left as it was.
    signals : array or Tensor, (E, C, T)
        As the model expects it. Epochs that are not finite are left out.

    Returns
    -------
    NightSpectra
        NaN for a channel without a finite epoch.
    """
    shape = (model.config["n_chans"], model.config["n_times"])
    if signals.ndim != 3 or signals.shape[1:] != shape or not len(signals):
        raise ShapeError(
            f"signals have shape {tuple(signals.shape)}, expected (E, {shape[0]}, {shape[1]}), as "
            "the model was trained on"
        )
    windows = torch.as_tensor(signals[_places(len(signals))]).float()  # (N, S, C, T)
    size = segment_size(model)
    epochs = reference.center(windows.flatten(0, 1))  # (N · S, C, T)
    psd = reference.welch_psd(epochs, size, "hann").double()
    unmeasured = ~reference.valid_rows(psd).any(dim=0, keepdim=True).T  # (C, 1)
    sqrt_psd = torch.where(unmeasured, torch.nan, reference.batch_barycenter(psd))
    layers = _layer_distances(model, torch.where(windows.isfinite(), windows, 0.0))
    return NightSpectra(sqrt_psd.numpy(), size, float(model.config["sfreq"]), layers)


def levels_db(night: NightSpectra) -> list[dict[str, float]]:
    """Return how strong each channel of a night is from 0.5 to 30 Hz, and what share bands have.

    Parameters
    ----------
    night : NightSpectra

    Returns
    -------
    list of dict of str to float
        For each channel ``power`` in dB and, in dB of that power, each band that has a bin.
    """
    hz = night.frequencies_hz
    power = night.sqrt_psd**2 * bin_weights(night.size)  # (C, F)
    bands = {name: (low <= hz) & (hz < high) for name, (low, high) in BANDS_HZ.items()}
    inside = np.any(list(bands.values()), axis=0)
    result = []
    for row in power:
        total = row[inside].sum() + _FLOOR
        levels = {"power": float(10 * np.log10(total))}
        for name, bins in bands.items():
            if bins.any():
                levels[name] = float(10 * np.log10((row[bins].sum() + _FLOOR) / total))
        result.append(levels)
    return result


def _places(n_epochs: int) -> NDArray[np.int64]:
    """Return the epochs of windows spread over a night, (N, S)."""
    length = min(LENGTH, n_epochs)
    starts = np.unique(np.rint(np.linspace(0, n_epochs - length, WINDOWS)).astype(np.int64))
    return starts[:, None] + np.arange(length)


class _Enough(Exception):
    """Every layer has been seen: the rest of the pass is of no use."""


def _layer_distances(model: Pretrained, windows: Tensor) -> dict[str, float]:
    """Return how far windows, (N, S, C, T), are from each layer's target where they reach it."""
    names = {m: name for name, m in model.named_modules() if isinstance(m, PSDNorm)}
    if not names:
        return {}
    found: dict[str, float] = {}

    def hook(norm: PSDNorm, args: tuple, kwargs: dict[str, Any]) -> None:
        if names[norm] not in found:
            found[names[norm]] = _distance(norm, input_of(args, kwargs))
        if len(found) == len(names):
            raise _Enough

    with suppress(_Enough), evaluating(model), hooked(names, hook):
        model(windows.to(next(model.parameters()).device))
    return found


def _distance(norm: PSDNorm, x: Tensor) -> float:
    rows = functional.as_rows(x, norm.num_features)
    backend = functional.choose_backend(norm.backend, rows, norm.filter_size)
    size, eps, window, detrend = norm.filter_size, norm.eps, norm.window, norm.detrend
    _, psd = functional.row_statistics(rows, size, eps, window, backend, detrend)
    own = reference.batch_barycenter(psd).double().cpu().numpy()
    target = norm.running_sqrt_psd
    if norm.target == "white":
        target = reference.white_root(torch.ones_like(target[:, 0]), size, eps, window, detrend)
    distances = bures_wasserstein(own, target.double().cpu().numpy(), size)  # (C,)
    return float(np.sqrt(np.mean(distances**2)))
