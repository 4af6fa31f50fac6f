"""Choose PSDNorm's filter size on the training set, before training.

Each cohort of the training set is left out once. PSDNorm with each candidate size normalises the
inputs, and a linear classifier of their spectra serves as a proxy for the network. Neither the
held-out cohort nor the validation set is read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import ops
from psdnorm.batches import LENGTH, window_starts
from psdnorm.constants import STAGES, UNSCORED
from psdnorm.drift import EEG_HZ, frequencies_hz
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import balanced_accuracy
from psdnorm.layer import PSDNorm
from psdnorm.store import Store
from psdnorm.training.run import AUTO, PROTOCOL_FILTER

if TYPE_CHECKING:
    import pandas as pd

WINDOWS = 8  # per night, evenly spaced: enough to cover the stages, at a fixed cost per night
_SEGMENT_S = 2.0
_BAND_HZ = 1.0
_NEIGHBOURS = 3  # epochs before and after, as a network also sees them
_FLOOR = 1e-6  # of the mean power, so that the log of a dead channel is finite
_RIDGE = 1e-3  # of the mean variance of a feature
_LEAST_VARIANCE = 1e-12  # of log power, which is 0 with one epoch per stage or flat nights


@dataclass(frozen=True, eq=False)
class Sample:
    """Spectra of some nights, computed once for all filter sizes."""

    psd: Mapping[int, Tensor]  # by f, of the windows, as PSDNorm estimates them, (N, C, F)
    power: Tensor  # spectra of the epochs of all windows, (E, C, B)
    cycles: Tensor  # frequencies of their bins in cycles per sample, (B,)
    bands: Tensor  # matrix that averages them over bands of 1 Hz, (B, bands)
    window: Tensor  # index of each epoch's window, (E,)
    cohort: NDArray  # (E,)
    stages: NDArray[np.int8]  # -1 where unscored, (E,)


def sample_nights(
    store: Store, index: "pd.DataFrame", filter_sizes: Sequence[int], length: int = LENGTH
) -> Sample:
    """Compute the spectra of eight evenly spaced windows of every night."""
    size = min(round(_SEGMENT_S * store.layout.sfreq), store.layout.n_times)
    inside, bands = _bands(frequencies_hz(size, store.layout.sfreq))
    psd: dict[int, list[Tensor]] = {f: [] for f in filter_sizes}
    powers: list[Tensor] = []
    cohorts, stages = [], []
    nights = zip(index["recording"], index["cohort"], index["epochs"], strict=True)
    for recording, cohort, n_epochs in nights:
        for start in _starts(n_epochs, length):
            signals, own = store.read(recording, start, min(length, n_epochs))  # (S, C, T)
            x = torch.from_numpy(signals)
            for f, found in psd.items():
                found.append(_window_psd(x, f))
            spectra = ops.welch_psd(ops.center(x), size, "hann")
            powers.append(spectra[..., inside].double())
            cohorts += [cohort] * len(own)
            stages.append(own)
    lengths = torch.tensor([len(power) for power in powers])
    return Sample(
        psd={f: torch.cat(found).double() for f, found in psd.items()},
        power=torch.cat(powers),
        cycles=torch.arange(len(inside))[inside].double() / size,
        bands=bands,
        window=torch.repeat_interleave(lengths),
        cohort=np.array(cohorts, object),
        stages=np.concatenate(stages),
    )


def left_out_accuracy(
    sample: Sample, filter_size: int, cohort: str, target: str = "barycenter"
) -> float:
    """Return the balanced accuracy on one cohort after training on the others; NaN if unscored."""
    is_left_out = sample.cohort == cohort
    learned = sample.window[torch.from_numpy(~is_left_out)].unique()
    features = normalized_spectra(sample, filter_size, learned, target)
    is_scored = sample.stages != UNSCORED
    train, test = is_scored & ~is_left_out, is_scored & is_left_out
    if not train.any() or not test.any():
        return math.nan
    features = with_neighbours(features, sample.window.numpy())
    found = _discriminant(features[train], sample.stages[train], features[test])
    counts = np.zeros((len(STAGES), len(STAGES)), np.int64)
    np.add.at(counts, (sample.stages[test], found), 1)
    return float(balanced_accuracy(counts))


def normalized_spectra(
    sample: Sample, filter_size: int, learned: Tensor, target: str = "barycenter"
) -> NDArray[np.float64]:
    """Return log spectra of all epochs after PSDNorm, in bands of 1 Hz, (E, C · bands).

    The target is the barycenter of the windows in ``learned``, or white.
    """
    psd = sample.psd[filter_size]
    sqrt_target = ops.batch_barycenter(psd[learned])
    if target == "white":
        sqrt_target = torch.ones_like(sqrt_target)
    taps = ops.monge_filter(psd, sqrt_target, filter_size)  # (N, C, K)
    lags = torch.arange(taps.shape[-1]) - taps.shape[-1] // 2
    waves = torch.cos(2 * math.pi * torch.outer(lags.double(), sample.cycles))
    gain = (taps @ waves).square()  # (N, C, B): the taps are symmetric, so there is no sine part
    levels = (sample.power * gain[sample.window]) @ sample.bands  # (E, C, bands)
    floor = max(_FLOOR * float(levels.mean()), float(np.finfo(np.float64).tiny))
    return levels.clamp(min=floor).log10().flatten(1).numpy()


def with_neighbours(x: NDArray[np.float64], window: NDArray) -> NDArray[np.float64]:
    """Append to each epoch the mean over itself and up to three neighbours per side in its window.

    >>> with_neighbours(np.array([[1.0], [3.0], [9.0]]), np.array([0, 0, 1])).tolist()
    [[1.0, 2.0], [3.0, 2.0], [9.0, 9.0]]
    """
    place = np.arange(len(x))
    total, count = np.zeros_like(x), np.zeros((len(x), 1))
    for lag in range(-_NEIGHBOURS, _NEIGHBOURS + 1):
        other = (place + lag).clip(0, len(x) - 1)
        is_own = ((other == place + lag) & (window[other] == window))[:, None]
        total += is_own * x[other]
        count += is_own
    return np.hstack([x, total / count])


def _bands(hz: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Return a mask of the bins in any band, (F,), and a matrix averaging these, (B, bands)."""
    low, high = EEG_HZ
    place = np.floor((hz - low) / _BAND_HZ)
    inside = torch.from_numpy((hz >= low) & (hz < high))
    _, band = torch.from_numpy(place)[inside].unique(return_inverse=True)
    members = torch.nn.functional.one_hot(band).double()
    return inside, members / members.sum(dim=0)


def _starts(n_epochs: int, length: int) -> list[int]:
    starts = window_starts(n_epochs, length, length)
    drawn = np.linspace(0, len(starts) - 1, min(WINDOWS, len(starts))).round().astype(int)
    return starts[drawn].tolist()


def _window_psd(x: Tensor, filter_size: int) -> Tensor:
    """Estimate the PSD of epochs, (S, C, T), concatenated as in the networks: (1, C, F)."""
    norm = PSDNorm(x.shape[1], filter_size)  # for its defaults
    rows = x.transpose(0, 1).flatten(1).unsqueeze(0)
    backend = ops.choose_backend(norm.backend, rows, norm.spec)
    return ops.row_statistics(rows, norm.spec, backend)[1]


def _discriminant(
    x: NDArray[np.float64], stages: NDArray[np.int8], other: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Classify by linear discriminant analysis with equal priors; (n, D), (n,), (m, D) → (m,)."""
    known, place, counts = np.unique(stages, return_inverse=True, return_counts=True)
    means = np.stack([x[place == i].mean(axis=0) for i in range(len(known))])
    within = x - means[place]
    # stages are weighted equally in the covariance, too, or the most common would dominate it
    covariance = (within / counts[place, None]).T @ within / len(known)
    ridge = _RIDGE * np.trace(covariance) / len(covariance) + _LEAST_VARIANCE
    covariance += ridge * np.eye(len(covariance))
    weights = np.linalg.solve(covariance, means.T)  # (D, stages)
    offset = 0.5 * (means * weights.T).sum(axis=1)
    return known[np.argmax(other @ weights - offset, axis=1)]


CANDIDATES = (1, 3, 5, 9, 11, 17, 21)
MOST_SUBJECTS = 5  # per cohort, one night each
_ERRORS = 2.0  # standard errors of gain needed: the best of seven sizes is better by chance

_known: dict[
    tuple, "FilterSizeChoice"
] = {}  # cached: models and depths of a grid share their training nights


@dataclass(frozen=True)
class FilterSizeChoice:
    """A filter size, and the accuracies it was chosen by."""

    accuracies: Mapping[int, Mapping[str, float]]  # by filter size and left-out cohort

    @property
    def filter_size(self) -> int:
        """The size with the highest mean over cohorts, or the default if it is hardly worse.

        >>> FilterSizeChoice({5: {"a": 0.60, "b": 0.70}, 9: {"a": 0.65, "b": 0.76}}).filter_size
        9
        >>> FilterSizeChoice({5: {"a": 0.60, "b": 0.70}, 9: {"a": 0.70, "b": 0.69}}).filter_size
        5
        """
        best = min(self.accuracies, key=lambda size: (-self.mean(size), size))
        gain, error = self.gain(best)
        return best if gain > _ERRORS * error else PROTOCOL_FILTER

    def mean(self, size: int) -> float:
        """Return the mean accuracy of a filter size over cohorts."""
        return float(np.mean([*self.accuracies[size].values()]))

    def gain(self, size: int) -> tuple[float, float]:
        """Return the mean gain over the default size, paired by cohort, and its standard error."""
        own, usual = self.accuracies[size], self.accuracies[PROTOCOL_FILTER]
        gains = np.array([own[cohort] - usual[cohort] for cohort in usual])
        return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))

    def to_json(self) -> dict[str, Any]:
        """Return the chosen size and the table it is based on, as saved in a run's files."""
        rows = []
        for size, own in self.accuracies.items():
            gain, error = self.gain(size)
            row = {"filter_size": size, "balanced_accuracy": self.mean(size), "gain": gain}
            rows.append({**row, "standard_error": error, "cohorts": dict(own)})
        return {"filter_size": self.filter_size, "table": rows}


def choose_filter_size(
    store: Store, index: "pd.DataFrame", *, target: str = "barycenter", length: int = LENGTH
) -> FilterSizeChoice:
    """Choose PSDNorm's filter size on a training set with at least two cohorts."""
    check_choosable(store, index["cohort"].unique())
    sample = sample_nights(store, drawn_nights(index), CANDIDATES, length)
    cohorts = sorted({*sample.cohort[sample.stages != UNSCORED]})
    check_choosable(store, cohorts)
    found = {f: {c: left_out_accuracy(sample, f, c, target) for c in cohorts} for f in CANDIDATES}
    return FilterSizeChoice(found)


def choice_for(store: Store, train: "pd.DataFrame", norm: str, length: int) -> dict[str, Any]:
    """Choose the filter size of a run, cached per process for the same training set."""
    target = "white" if norm == "psd-white" else "barycenter"
    key = store.hash, tuple(train["digest"]), target, length
    if key not in _known:
        _known[key] = choose_filter_size(store, train, target=target, length=length)
    return _known[key].to_json()


def drawn_nights(index: "pd.DataFrame") -> "pd.DataFrame":
    """Return the nights to read: one night each of at most five subjects per cohort."""
    index = index.sort_values(["cohort", "subject", "visit", "recording"])
    first = index.drop_duplicates(["cohort", "subject"])
    kept: list[int] = []
    for rows in first.groupby("cohort").indices.values():
        n = min(len(rows), MOST_SUBJECTS)
        kept += rows[np.linspace(0, len(rows) - 1, n).round().astype(int)].tolist()
    return first.iloc[sorted(kept)]


def check_choosable(store: Store, cohorts: Sequence[str]) -> None:
    """Raise unless the training set has at least two cohorts, so that one can be left out."""
    if len(cohorts) < 2:
        raise ArgumentError(
            f"filter_size is {AUTO!r}, found {', '.join(cohorts) or 'no cohort'} to learn from in "
            f"{store.path}, expected at least two scored cohorts: each is left out once"
        )
