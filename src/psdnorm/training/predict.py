"""Predict every epoch of a night from overlapping windows."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from psdnorm.adaptation import adapt, adapt_batchnorm, domains
from psdnorm.batches import LENGTH, STRIDE, Loader, window_starts
from psdnorm.errors import ShapeError, TrainingError
from psdnorm.layer import PSDNorm
from psdnorm.store import Store, night_path
from psdnorm.training.network import Network
from psdnorm.training.run import Protocol

if TYPE_CHECKING:
    import pandas as pd

Forward = Callable[[Tensor], Tensor]
Probabilities = NDArray[np.float32]


class NightPrediction(NamedTuple):
    """A prediction: row of the night in the index, probabilities (E, 5), central epochs (E,)."""

    night: int
    probabilities: Probabilities
    central: NDArray[np.bool_]


def predict_night(
    forward: Forward,
    signals: ArrayLike | Tensor,
    *,
    length: int = LENGTH,
    stride: int = STRIDE,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> tuple[Probabilities, NDArray[np.bool_]]:
    """Predict every epoch of one night: probabilities, (E, 5), and which are central, (E,).

    Parameters
    ----------
    forward : callable
        Maps (N, S, C, T) to logits (N, 5, S): a model in evaluation mode, or the output of
        :func:`psdnorm.models.accelerate` for it. If its statistics are by domain, the night is one.
    signals : array or Tensor, (E, C, T)
        A night of any length, prepared as the model expects.
    length, stride : int
        Epochs per window (S), and from one window to the next.
    batch_size : int
        N; incomplete batches are filled.
    """
    night = torch.as_tensor(signals)
    if night.dim() != 3 or not len(night):
        raise ShapeError(f"signals have shape {tuple(night.shape)}, expected (E, C, T), E from 1")
    starts = window_starts(len(night), length, stride)
    # a night that is too short is repeated from its start, an incomplete batch from window 0
    epochs = (starts[:, None] + np.arange(length)) % len(night)  # (n, S)
    padded = np.resize(epochs, (-(-len(starts) // batch_size) * batch_size, length))
    batches = (
        night[torch.from_numpy(batch)].to(device).float()
        for batch in np.split(padded, len(padded) // batch_size)
    )
    windows = [probabilities(logits) for logits in night_logits(forward, batches, len(starts))]
    return assemble(np.concatenate(windows)[: len(starts)], starts, len(night), stride)


def predict_nights(
    forward: Forward,
    store: Store,
    index: "pd.DataFrame",
    *,
    length: int = LENGTH,
    stride: int = STRIDE,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> Iterator[NightPrediction]:
    """Predict every epoch of many nights, given as rows of ``store.index``, in order.

    Like :func:`predict_night`, but batches span several nights, so short nights do not cost more
    than long ones; not if statistics are by domain.
    """
    windows_of = {"batch_size": batch_size, "length": length, "stride": stride}
    by_night = model_by_domain(forward) is not None
    loader = _loader(store, index, device, last="fill", whole_nights=by_night, **windows_of)
    sequences = loader.sequences
    n_epochs = np.diff(sequences.offsets)
    # where the windows of each night end; every night has at least one
    ends = np.cumsum(np.bincount(sequences.night))
    night, first, windows = 0, 0, []
    for logits, _, n_own in logits_of(forward, loader):
        for window in probabilities(logits[:n_own]):
            windows.append(window)
            if night < len(ends) and first + len(windows) == ends[night]:
                starts = sequences.start[first : ends[night]]
                whole = assemble(np.stack(windows), starts, int(n_epochs[night]), stride)
                yield NightPrediction(night, *whole)
                night, first, windows = night + 1, int(ends[night]), []


def adapted_predictions(
    network: Network,
    store: Store,
    index: "pd.DataFrame",
    protocol: Protocol,
    layers: int | str,
    *,
    device: torch.device | str = "cpu",
) -> Iterator[NightPrediction]:
    """Predict nights with AdaBN: subject by subject, with statistics of the subject.

    For each subject the first ``layers`` batch norms, in execution order, use the means and
    variances over the windows of all its nights; epochs in two overlapping windows count twice.
    """
    groups = index.groupby(["cohort", "subject"], sort=False).indices
    for rows in map(np.sort, groups.values()):
        nights = index.iloc[rows]
        # sequences that fill a batch would count twice
        loader = _loader(store, nights, device, last="keep", **protocol.windows)
        with adapt_batchnorm(network.model, (x for x, _ in loader.epoch(0)), layers):
            given = network.forward, store, nights
            for prediction in predict_nights(*given, device=device, **protocol.windows):
                yield prediction._replace(night=int(rows[prediction.night]))


def _loader(store: Store, index: "pd.DataFrame", device: torch.device | str, **how: Any) -> Loader:
    """Return a loader of all windows in order; memory-mapped, as each night is needed once."""
    once: dict[str, Any] = {"seed": None, "only_scored": False, "residence": "map"}
    return Loader(store, index, device=device, **once, **how)


def model_by_domain(forward: Forward) -> nn.Module | None:
    """Return the model behind a forward function if its statistics are by domain, else None."""
    # accelerate's functions have a model
    model = forward if isinstance(forward, nn.Module) else getattr(forward, "model", None)
    norms = [] if model is None else [m for m in model.modules() if isinstance(m, PSDNorm)]
    return model if any(norm.statistics == "domain" for norm in norms) else None


def logits_of(
    forward: Forward, loader: Loader, share: slice = slice(None)
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield the logits and stages of a share of every batch, and how many windows are no fillers.

    The share is that of one process of several. Where statistics are by domain, every night is one,
    and the loader must have whole nights.
    """
    if model_by_domain(forward) is None:
        for x, stages in loader.epoch(0):
            yield _logits(forward, x[share]), stages[share], len(x)
        return
    pairs = zip(loader.nights(0), loader.epoch(0), strict=True)
    for night, items in itertools.groupby(pairs, key=lambda pair: int(pair[0][0])):
        own = [(int((nights == night).sum()), *batch) for nights, batch in items]
        found = night_logits(forward, [x for _, x, _ in own], sum(n for n, *_ in own), share)
        for logits, (n, _, stages) in zip(found, own, strict=True):
            yield logits, stages[share], n


def night_logits(
    forward: Forward, batches: Iterable[Tensor], n_own: int, share: slice = slice(None)
) -> Iterator[Tensor]:
    """Yield the logits of all windows of a night, batch by batch, or of a share of every batch.

    The first ``n_own`` windows are the night's, the others fill the last batch. Where statistics
    are by domain, they are those of all its windows.
    """
    model = model_by_domain(forward)
    if model is None:
        yield from (_logits(forward, x[share]) for x in batches)
        return
    batches = list(batches)
    n_last = n_own - sum(map(len, batches[:-1]))
    if len(batches) == 1:
        ids = np.arange(len(batches[0])) >= n_last  # fillers are another domain
        with domains(ids[share].astype(int)):  # pooled over processes
            found = [_logits(forward, batches[0][share])]
    else:
        with adapt(model, [*batches[:-1], batches[-1][:n_last]]):
            found = [_logits(forward, x[share]) for x in batches]
    yield from found  # outside, as others may run before the next is asked for


@torch.no_grad()
def _logits(forward: Forward, x: Tensor) -> Tensor:
    return forward(x)


def probabilities(logits: Tensor) -> Probabilities:
    """Return the probabilities of all epochs in all windows, (N, S, 5), of logits (N, 5, S)."""
    return logits.float().softmax(dim=1).transpose(1, 2).cpu().numpy()


def assemble(
    windows: Probabilities, starts: NDArray[np.int64], n_epochs: int, stride: int = STRIDE
) -> tuple[Probabilities, NDArray[np.bool_]]:
    """Take each epoch of a night from the window with the nearest middle; also mark central epochs.

    ``windows`` are (n, S, 5), ``starts`` their first epochs, in ascending order.
    """
    margin = (windows.shape[1] - stride) // 2
    middles = starts + margin + (stride - 1) / 2
    epochs = np.arange(n_epochs)
    # middles ascend, so the nearest is on either side of the epoch; ties go to the first
    borders = (middles[1:] + middles[:-1]) / 2
    nearest = np.searchsorted(borders, epochs, side="left")  # (E,)
    inside = epochs - starts[nearest]  # (E,)
    central = (inside >= margin) & (inside < margin + stride)
    return windows[nearest, inside], central


def predict_epochs(
    forward: Forward,
    signals: NDArray[np.float16 | np.float32],
    *,
    stride: int,
    length: int = LENGTH,
    batch_size: int = 8,  # U-Sleep then needs about 0.4 GB
    fill: bool = False,
    device: torch.device | str = "cpu",
) -> Probabilities:
    """Return weighted means over all windows that contain an epoch, (E, 5), for staging.

    Windows have most weight for the epochs in their middle: a triangular mean over every window,
    whereas :func:`predict_night` follows the protocol and takes only the nearest. A night shorter
    than a window is repeated from its start, as in training: norms measure the night, not padding.
    ``fill`` repeats windows so that all batches have the shape a network was compiled for. If
    statistics are by domain, the night is one.
    """
    if signals.ndim != 3 or not len(signals):
        raise ShapeError(f"signals have shape {signals.shape}, expected (E, C, T), E from 1")
    starts = window_starts(len(signals), length, stride)
    total = np.zeros((len(signals), 5))
    counted = np.zeros((len(signals), 1))
    places = np.arange(length)
    weights = np.minimum(places + 1, length - places)[:, None].astype(np.float64)  # (S, 1)
    parts = [starts[first : first + batch_size] for first in range(0, len(starts), batch_size)]

    def batch(some: NDArray[np.int64]) -> Tensor:
        shown = np.resize(some, batch_size) if fill else some
        epochs = (shown[:, None] + places) % len(signals)  # (N, S)
        return torch.from_numpy(signals[epochs]).to(device).float()

    for some, logits in zip(
        parts, night_logits(forward, map(batch, parts), len(starts)), strict=True
    ):
        for start, window in zip(some, probabilities(logits), strict=False):
            own = slice(start, min(start + length, len(signals)))
            n_own = own.stop - own.start
            total[own] += (weights * window)[:n_own]
            counted[own] += weights[:n_own]
    return (total / counted).astype(np.float32)


class NotFiniteError(TrainingError):
    """A loss, a weight or a prediction is not finite."""


def finite_predictions(
    store: Store, index: "pd.DataFrame", predictions: Iterable[NightPrediction]
) -> Iterator[NightPrediction]:
    """Pass on predictions of the nights in an index; raise if one is not finite."""
    recordings = index["recording"].tolist()
    for prediction in predictions:
        if not np.isfinite(prediction.probabilities).all():
            recording = recordings[prediction.night]
            found = origin(store, dict.fromkeys((recording, *recordings)))
            raise NotFiniteError(f"the predictions of {recording} are not finite; {found}")
        yield prediction


def origin(store: Store, recordings: Iterable[str]) -> str:
    """Say which of the nights has samples that are not finite, or how to investigate further."""
    nights = Store(store.path, store.recipe, store.layout)  # as on disk, before TMA
    for recording in recordings:
        for epoch, signals in enumerate(nights.signals(recording)):
            if not np.isfinite(signals).all():
                return (
                    f"{night_path(store.path, recording)} has samples that are not finite, from "
                    f"epoch {epoch} on: prepare it again"
                )
    return (
        f"the samples of all nights that were used are finite; psdnorm inspect {store.path} "
        "--verify tells whether they are what was prepared"
    )
