"""How far a night is from the training nights, by the spectra of its input and feature maps."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import functional, ops
from psdnorm.adaptation import domains
from psdnorm.batches import LENGTH
from psdnorm.constants import BANDS_HZ
from psdnorm.convert import evaluating, hooked, input_of
from psdnorm.errors import CheckpointError, ShapeError
from psdnorm.layer import PSDNorm
from psdnorm.models import Pretrained

SEGMENT_S = 4.0
WINDOWS = 8  # per night: enough for its spectrum, at no extra cost for longer nights
# anything slower is drift, and the recipes' low-pass filter begins above the last band
EEG_HZ = (BANDS_HZ["delta"][0], BANDS_HZ["beta"][1])
_FLOOR = 1e-12  # added to power, so that a dead channel is very low instead of minus infinity


@dataclass(frozen=True, eq=False)
class NightSpectra:
    sqrt_psd: NDArray[np.float64]  # (C, F), barycenter of the epochs; σ for white noise
    size: int  # samples of a segment, F = size // 2 + 1
    sfreq: float
    layers: Mapping[str, float]  # distance of its windows from each PSDNorm layer's target

    @property
    def frequencies_hz(self) -> NDArray[np.float64]:
        return frequencies_hz(self.size, self.sfreq)


def frequencies_hz(size: int, sfreq: float) -> NDArray[np.float64]:
    """Return the frequencies of the bins of segments of ``size`` samples, (F,)."""
    return np.arange(ops.n_bins(size)) * sfreq / size


def segment_size(model: Pretrained) -> int:
    """Return the segment length in samples of the model's input: 4 s, or an epoch if shorter."""
    return min(round(SEGMENT_S * model.config["sfreq"]), model.config["n_times"])


def bures_wasserstein(
    sqrt_first: NDArray[np.floating], sqrt_second: NDArray[np.floating], size: int
) -> NDArray[np.float64]:
    """Return the Bures–Wasserstein distance of stationary signals, given roots of PSDs, (…, F)."""
    # per time sample: the RMS change that the Monge map makes to a sample, in the signals' unit
    square = (np.asarray(sqrt_first, np.float64) - sqrt_second) ** 2
    return np.sqrt((square * bin_weights(size)).sum(axis=-1))


def bin_weights(size: int) -> NDArray[np.float64]:
    """Return the share of each kept bin in the power of a signal, (F,); they sum to one."""
    weights = np.full(ops.n_bins(size), 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    return weights / size


def measure_night(model: Pretrained, signals: NDArray | Tensor) -> NightSpectra:
    """Measure eight evenly spaced windows of a prepared night, (E, C, T).

    Epochs that are not finite are left out; a channel without a finite epoch is NaN.
    """
    shape = (model.config["n_chans"], model.config["n_times"])
    if signals.ndim != 3 or signals.shape[1:] != shape or not len(signals):
        raise ShapeError(
            f"signals have shape {tuple(signals.shape)}, expected (E, {shape[0]}, {shape[1]}), as "
            "the model was trained on"
        )
    windows = torch.as_tensor(signals[_places(len(signals))]).float()  # (N, S, C, T)
    size = segment_size(model)
    epochs = ops.center(windows.flatten(0, 1))  # (N · S, C, T)
    psd = ops.welch_psd(epochs, size, "hann").double()
    unmeasured = ~ops.valid_rows(psd).any(dim=0, keepdim=True).T  # (C, 1)
    sqrt_psd = torch.where(unmeasured, torch.nan, ops.batch_barycenter(psd))
    layers = _layer_distances(model, torch.where(windows.isfinite(), windows, 0.0))
    return NightSpectra(sqrt_psd.numpy(), size, float(model.config["sfreq"]), layers)


def levels_db(night: NightSpectra) -> list[dict[str, float]]:
    """Return each channel's power from 0.5 to 30 Hz in dB, and each band's in dB relative to it."""
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
    """Return the epoch indices of windows spread over a night, (N, S)."""
    length = min(LENGTH, n_epochs)
    starts = np.unique(np.rint(np.linspace(0, n_epochs - length, WINDOWS)).astype(np.int64))
    return starts[:, None] + np.arange(length)


class _Enough(Exception):
    """Stops a forward pass once every layer has been reached."""


def _layer_distances(model: Pretrained, windows: Tensor) -> dict[str, float]:
    """Return how far windows, (N, S, C, T), are from each layer's target at that layer's input."""
    names = {m: name for name, m in model.named_modules() if isinstance(m, PSDNorm)}
    if not names:
        return {}
    found: dict[str, float] = {}

    def hook(norm: PSDNorm, args: tuple, kwargs: dict[str, Any]) -> None:
        if names[norm] not in found:
            found[names[norm]] = _distance(norm, input_of(args, kwargs))
        if len(found) == len(names):
            raise _Enough

    one_domain = domains([0] * len(windows))  # the night
    with suppress(_Enough), evaluating(model), hooked(names, hook), one_domain:
        model(windows.to(next(model.parameters()).device))
    return found


def _distance(norm: PSDNorm, x: Tensor) -> float:
    rows = functional.as_rows(x, norm.num_features)
    backend = ops.choose_backend(norm.backend, rows, norm.spec)
    _, psd = ops.row_statistics(rows, norm.spec, backend)
    own = ops.batch_barycenter(psd).double().cpu().numpy()
    target = norm.running_sqrt_psd
    if norm.target == "white":
        target = ops.white_root(torch.ones_like(target[:, 0]), norm.spec)
    distances = bures_wasserstein(own, target.double().cpu().numpy(), norm.filter_size)  # (C,)
    return float(np.sqrt(np.mean(distances**2)))


LEVEL = 0.99  # share of the training nights in range
FEW = 20  # nights: with fewer, limits are much wider than the spread of the nights
LEAST_NIGHTS = 2
QUANTILES = (0.0, 0.01, 0.05, *np.arange(1, 10) / 10, 0.95, 0.99, 1.0)
_DIGITS = 6  # significant, on disk
_FORMAT = 1


@dataclass(frozen=True)
class Range:
    """Range of one measure over the training nights; outside ``low`` to ``high`` is unusual."""

    typical: float  # their median
    low: float  # minus infinity for a distance: no night is too close to the barycenter
    high: float
    quantiles: tuple[float, ...]  # at QUANTILES

    def excess(self, value: float) -> float:
        """Return how far a value is from the middle, relative to the limit on that side."""
        middle = self.middle
        side = self.high - middle if value >= middle else middle - self.low
        return abs(value - middle) / side

    @property
    def middle(self) -> float:
        """Where limits are measured from: for a distance 0, the barycenter itself."""
        return 0.0 if self.low == -math.inf else self.typical

    def rank(self, value: float) -> float:
        """Return the share of the training nights that are below a value."""
        return float(np.interp(value, self.quantiles, QUANTILES))


@dataclass(frozen=True, eq=False)
class Spread:
    """What a model stores about the spectra of its training nights."""

    n_nights: int
    sqrt_barycenter: NDArray[np.float64]  # of their PSDs, (C, F)
    ranges: Mapping[str, Range]  # one for each of measures()
    least_gap: float  # 99 % have a larger swap_gap(); if not above 0, channels look alike

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "format": _FORMAT,
            "nights": self.n_nights,
            "sqrt_barycenter": _rounded(self.sqrt_barycenter),
            "least_gap": _rounded(self.least_gap),
            "ranges": {name: _rounded(asdict(each)) for name, each in self.ranges.items()},
        }


def spread_of(model: Pretrained) -> Spread | None:
    """Return the validated spread of a model's training nights; None if it has none."""
    document = (model.card or {}).get("training_spread")
    if document is None:
        return None
    shape = (model.config["n_chans"], ops.n_bins(segment_size(model)))
    try:
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']!r:.50}, expected {_FORMAT}")
        barycenter = np.array(document["sqrt_barycenter"], dtype=np.float64)
        ranges = {str(name): _range(each) for name, each in document["ranges"].items()}
        spread = Spread(int(document["nights"]), barycenter, ranges, float(document["least_gap"]))
        if barycenter.shape != shape or not np.all(np.isfinite(barycenter) & (barycenter >= 0)):
            raise ValueError(f"its sqrt_barycenter is not an array of {shape} roots of power")
        plain = NightSpectra(barycenter, segment_size(model), model.config["sfreq"], {})
        for name in measures(plain, barycenter).keys() - ranges.keys():
            raise ValueError(f"the range of {name} is missing")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"{error} is missing" if isinstance(error, KeyError) else error
        raise CheckpointError(f"the model's training_spread cannot be used: {found}") from error
    return spread


def measure_spread(model: Pretrained, nights: Iterable[NDArray | Tensor]) -> dict[str, Any] | None:
    """Measure the spread of the nights, (E, C, T), that a model was trained on, for its card.

    A night with a flat channel, or one without a finite epoch, is left out; None if fewer than two
    nights could be measured.
    """
    found = (measure_night(model, signals) for signals in nights)
    measured = [night for night in found if np.all(night.sqrt_psd.sum(axis=1) > 0)]  # NaN is not
    if len(measured) < LEAST_NIGHTS:
        return None
    barycenter = np.mean([night.sqrt_psd for night in measured], axis=0)  # (C, F)
    # the barycenter of the other nights is further from a night by this factor
    unseen = len(measured) / (len(measured) - 1)
    rows = [measures(night, barycenter, unseen) for night in measured]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    ranges = {name: _limits(each, not name.startswith("level")) for name, each in values.items()}
    worst = [max(r.excess(row[name]) for name, r in ranges.items()) for row in rows]
    factor = max(1.0, _limits(np.array(worst), True).high)
    ranges = {name: _widened(each, factor) for name, each in ranges.items()}
    gaps = [swap_gap(night.sqrt_psd, barycenter, night.size) for night in measured]
    least_gap = float(np.quantile(gaps, 1 - LEVEL))
    return Spread(len(measured), barycenter, ranges, least_gap).to_dict()


def measures(
    night: NightSpectra, sqrt_barycenter: NDArray[np.float64], unseen: float = 1.0
) -> dict[str, float]:
    """Return all measures by which a night is compared with the training nights, by name.

    Distances are ``input``, ``channel/0`` … and ``layer/NAME``, levels in dB ``level/0/power``,
    ``level/0/delta`` …; ``unseen`` is a factor on the distances of input and channels.
    """
    distances = unseen * bures_wasserstein(night.sqrt_psd, sqrt_barycenter, night.size)  # (C,)
    found = {"input": float(np.sqrt(np.mean(distances**2)))}
    found |= {f"channel/{place}": float(each) for place, each in enumerate(distances)}
    found |= {f"layer/{name}": each for name, each in night.layers.items()}
    for place, levels in enumerate(levels_db(night)):
        found |= {f"level/{place}/{name}": level for name, level in levels.items()}
    return found


def swap_gap(
    sqrt_psd: NDArray[np.float64], sqrt_barycenter: NDArray[np.float64], size: int
) -> float:
    """Return how much closer two channels, (2, F), are to their own barycenters than swapped."""
    if len(sqrt_psd) != 2:
        return 0.0
    # the difference of the sums of squared distances
    differences = (sqrt_psd[0] - sqrt_psd[1]) * (sqrt_barycenter[0] - sqrt_barycenter[1])
    return float(2 * (differences * bin_weights(size)).sum())


def _limits(values: NDArray[np.float64], is_distance: bool) -> Range:
    """Return the limits that contain 99 % of nights like these, (N,)."""
    from scipy.stats import t

    n = len(values)
    tail = (1 - LEVEL) / (1 if is_distance else 2)
    reach = t.isf(tail, n - 1) * values.std(ddof=1) * math.sqrt(1 + 1 / n)
    typical = float(np.median(values))
    # without this, identical nights would leave no room for another
    least = 1e-3 * max(abs(typical), 1e-3)
    high = max(np.quantile(values, 1 - tail), values.mean() + reach, typical + least)
    low = min(np.quantile(values, tail), values.mean() - reach, typical - least)
    quantiles = tuple(np.quantile(values, QUANTILES).tolist())
    return Range(typical, -math.inf if is_distance else float(low), float(high), quantiles)


def _widened(limits: Range, factor: float) -> Range:
    low, high = (limits.middle + factor * (x - limits.middle) for x in (limits.low, limits.high))
    return replace(limits, low=low, high=high)


def _range(document: Mapping[str, Any]) -> Range:
    low = -math.inf if document["low"] is None else float(document["low"])
    quantiles = tuple(float(value) for value in document["quantiles"])
    limits = Range(float(document["typical"]), low, float(document["high"]), quantiles)
    if len(quantiles) != len(QUANTILES) or list(quantiles) != sorted(quantiles):
        raise ValueError(f"a range has {len(quantiles)} quantiles, or they do not rise")
    if not limits.low < limits.typical < limits.high < math.inf:
        raise ValueError(f"a range must rise, found {low}, {limits.typical}, {limits.high}")
    return limits


def _rounded(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _rounded(value) for name, value in values.items()}
    if np.ndim(values):
        return [*map(_rounded, values)]
    return None if values == -math.inf else float(f"{values:.{_DIGITS}g}")
