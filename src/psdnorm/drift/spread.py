"""How the training nights of a model spread, so that a new night can be held against them.

Limits come from the training nights alone. One is the larger of their 99 % quantile and of the
bound that the next of N normal values stays below with that chance, ``mean + t · sd · √(1 + 1/N)``:
with few nights it is wide, with many it makes no difference. Then all limits are widened by one
factor, the limit of what nights exceed them by at worst: 99 % stay within all of them at once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from psdnorm.drift.feature_spectra import (
    NightSpectra,
    bin_weights,
    bures_wasserstein,
    levels_db,
    measure_night,
    segment_size,
)
from psdnorm.errors import CheckpointError
from psdnorm.models.checkpoint import Pretrained
from psdnorm.ops import reference

LEVEL = 0.99  # of the training nights are in range
FEW = 20  # nights: with fewer, limits are much wider than the nights
LEAST_NIGHTS = 2
QUANTILES = (0.0, 0.01, 0.05, *np.arange(1, 10) / 10, 0.95, 0.99, 1.0)
_DIGITS = 6  # significant, on disk
_FORMAT = 1


@dataclass(frozen=True)
class Range:
    """Where the training nights are in one measure.

    Attributes
    ----------
    typical : float
        Their median.
    low, high : float
        Beyond which a night is unusual; ``low`` is minus infinity for a distance, as no night is
        too near to the barycenter.
    quantiles : tuple of float
        Of the nights, at :data:`QUANTILES`.
    """

    typical: float
    low: float
    high: float
    quantiles: tuple[float, ...]

    def excess(self, value: float) -> float:
        """Return how far a value is from the middle of the training, in units of its limit.

        The middle is the typical value of a level, and 0, the barycenter itself, of a distance.
        """
        middle = self.middle
        side = self.high - middle if value >= middle else middle - self.low
        return abs(value - middle) / side

    @property
    def middle(self) -> float:
        """Where limits are counted from."""
        return 0.0 if self.low == -math.inf else self.typical

    def rank(self, value: float) -> float:
        """Return the share of the training nights that are below a value."""
        return float(np.interp(value, self.quantiles, QUANTILES))


@dataclass(frozen=True, eq=False)
class Spread:
    """What a model keeps of the spectra of its training nights.

    Attributes
    ----------
    n_nights : int
        How many were measured.
    sqrt_barycenter : ndarray, (C, F)
        Root of the barycenter of their PSDs.
    ranges : dict of str to Range
        Of each of :func:`measures`.
    least_gap : float
        What 99 % of the nights exceed in :func:`swap_gap`; not above 0 where the channels cannot
        be told apart.
    """

    n_nights: int
    sqrt_barycenter: NDArray[np.float64]
    ranges: Mapping[str, Range]
    least_gap: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        ranges = {
            name: {
                "typical": _rounded(each.typical),
                "low": None if each.low == -math.inf else _rounded(each.low),
                "high": _rounded(each.high),
                "quantiles": [_rounded(value) for value in each.quantiles],
            }
            for name, each in self.ranges.items()
        }
        return {
            "format": _FORMAT,
            "nights": self.n_nights,
            "sqrt_barycenter": [[_rounded(v) for v in row] for row in self.sqrt_barycenter],
            "least_gap": _rounded(self.least_gap),
            "ranges": ranges,
        }


def spread_of(model: Pretrained) -> Spread | None:
    """Return what a model keeps of its training nights, None if it keeps nothing.

    Parameters
    ----------
    model : Pretrained

    Raises
    ------
    CheckpointError
        If what it keeps does not fit the model.
    """
    document = (model.card or {}).get("training_spread")
    if document is None:
        return None
    shape = (model.config["n_chans"], reference.n_bins(segment_size(model)))
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
            raise ValueError(f"it lacks the range of {name}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(f"the model's training_spread cannot be used: {found}") from error
    return spread


def measure_spread(model: Pretrained, nights: Iterable[NDArray | Tensor]) -> dict[str, Any] | None:
    """Measure how the nights that a model was trained on spread, for ``save_pretrained``.

    Parameters
    ----------
    model : Pretrained
        Trained, on any device; left as it was.
    nights : iterable of ndarray or Tensor, (E, C, T)
        Prepared by the model's recipe. One of which a channel is flat or never finite is left out.

    Returns
    -------
    dict or None
        None if fewer than two nights could be measured.
    """
    found = (measure_night(model, signals) for signals in nights)
    measured = [night for night in found if np.all(night.sqrt_psd.sum(axis=1) > 0)]  # NaN is not
    if len(measured) < LEAST_NIGHTS:
        return None
    barycenter = np.mean([night.sqrt_psd for night in measured], axis=0)  # (C, F)
    # without a night, the barycenter of the others is this much further from it
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
    """Return all in which a night is held against the training nights, by name.

    Parameters
    ----------
    night : NightSpectra
    sqrt_barycenter : ndarray, (C, F)
        Of the training nights.
    unseen : float
        Factor on the distances from it.

    Returns
    -------
    dict of str to float
        ``input``, the distance of the input; ``channel/0`` …, of each channel; ``layer/NAME``, of
        each PSDNorm layer; ``level/0/power``, ``level/0/delta`` …, levels in dB.
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
    """Return how much nearer two channels are to their own barycenters than to each other's.

    The difference of the sums of squared distances, for PSDs (2, F); with other than two channels
    0, which tells nothing.
    """
    if len(sqrt_psd) != 2:
        return 0.0
    differences = (sqrt_psd[0] - sqrt_psd[1]) * (sqrt_barycenter[0] - sqrt_barycenter[1])
    return float(2 * (differences * bin_weights(size)).sum())


def _limits(values: NDArray[np.float64], is_distance: bool) -> Range:
    """Return the limits that 99 % of nights like these, (N,), stay within."""
    from scipy.stats import t

    n = len(values)
    tail = (1 - LEVEL) / (1 if is_distance else 2)
    reach = t.isf(tail, n - 1) * values.std(ddof=1) * math.sqrt(1 + 1 / n)
    typical = float(np.median(values))
    # nights that are all the same would refuse every other one
    least = 1e-3 * max(abs(typical), 1e-3)
    high = max(np.quantile(values, 1 - tail), values.mean() + reach, typical + least)
    low = min(np.quantile(values, tail), values.mean() - reach, typical - least)
    quantiles = tuple(np.quantile(values, QUANTILES).tolist())
    return Range(typical, -math.inf if is_distance else float(low), float(high), quantiles)


def _widened(limits: Range, factor: float) -> Range:
    middle = limits.middle
    low, high = (middle + factor * (each - middle) for each in (limits.low, limits.high))
    return Range(limits.typical, low, high, limits.quantiles)


def _range(document: Mapping[str, Any]) -> Range:
    low = -math.inf if document["low"] is None else float(document["low"])
    quantiles = tuple(float(value) for value in document["quantiles"])
    limits = Range(float(document["typical"]), low, float(document["high"]), quantiles)
    if len(quantiles) != len(QUANTILES) or list(quantiles) != sorted(quantiles):
        raise ValueError(f"a range has {len(quantiles)} quantiles, or they do not rise")
    if not limits.low < limits.typical < limits.high < math.inf:
        raise ValueError(f"a range goes from {limits.low} over {limits.typical} to {limits.high}")
    return limits


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
