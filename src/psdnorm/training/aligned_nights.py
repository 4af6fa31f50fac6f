"""TMA for a store: map every night onto the barycenter of the training set."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm import ops
from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.store import Layout, Store
from psdnorm.training.run import TMA

# fraction of a channel's mean power that is added to its PSD, as in psdnorm.alignment.TMA
_EPS = 1e-5


class AlignedStore(Store):
    """A store that aligns each complete night on reading, by Temporal Monge Alignment."""

    def __init__(
        self, store: Store, sqrt_barycenter: Tensor, filter_size: int, device: torch.device
    ) -> None:
        super().__init__(store.path, store.recipe, store.layout)
        self._frame = store.index
        self._sqrt_barycenter = sqrt_barycenter.to(device)
        self._filter_size = filter_size
        # cached for callers that read a night window by window
        self._latest: tuple[str, NDArray[np.float16 | np.float32]] | None = None

    def __reduce__(self) -> tuple:
        store = Store(self.path, self.recipe, self.layout)
        target = self._sqrt_barycenter
        return AlignedStore, (store, target.cpu(), self._filter_size, torch.device("cpu"))

    def signals(self, recording: str) -> NDArray[np.float16 | np.float32]:
        """Return a night's aligned signals, (E, C, T), in the type of the store."""
        if self._latest is None or self._latest[0] != recording:
            signals = super().signals(recording)
            aligned = align_night(
                signals, self._sqrt_barycenter, self._filter_size, self.layout.dtype
            )
            self._latest = recording, aligned
        return self._latest[1]

    def read(
        self, recording: str, first_epoch: int, n_epochs: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
        """Read consecutive aligned epochs of a night; see :meth:`Store.read`."""
        _, stages = super().read(recording, first_epoch, n_epochs)
        last = first_epoch + n_epochs
        return self.signals(recording)[first_epoch:last].astype(np.float32), stages


def align_night(
    signals: NDArray[np.float16 | np.float32], sqrt_barycenter: Tensor, filter_size: int, dtype: str
) -> NDArray[np.float16 | np.float32]:
    """Map a night, (E, C, T), onto a barycenter; values beyond ``dtype`` are clipped."""
    rows = _rows(signals, sqrt_barycenter.device)
    psd = _psd(rows, filter_size)
    # no gain where there is no power, so that a flat channel stays zero
    target = torch.where(psd > 0, sqrt_barycenter, 0.0)
    taps = ops.monge_filter(torch.where(psd > 0, psd, 1.0), target, filter_size)
    aligned = ops.monge_map(rows, taps)  # (C, E · T)
    epochs = aligned.unflatten(-1, (len(signals), -1)).transpose(0, 1)
    kind = getattr(torch, dtype)
    largest = torch.finfo(kind).max
    return epochs.clamp(-largest, largest).to(kind).contiguous().cpu().numpy()


def check_filter(filter_size: int, layout: Layout) -> None:
    """Raise if a filter is longer than an epoch, the shortest possible night."""
    if layout.n_times < filter_size:
        raise ArgumentError(
            f"filter_size is {filter_size}, expected at most the {layout.n_times} samples of an "
            "epoch"
        )


def training_barycenter(
    store: Store, recordings: Iterable[str], filter_size: int, device: torch.device
) -> Tensor:
    """Return the square root of the barycenter of nights, (C, F) in float64 on the CPU."""
    check_filter(filter_size, store.layout)
    n_channels, n_bins = store.layout.n_channels, ops.n_bins(filter_size)
    total = torch.zeros(n_channels, n_bins, dtype=torch.float64, device=device)
    count = torch.zeros(n_channels, dtype=torch.float64, device=device)
    for recording in recordings:
        psd = _psd(_rows(store.signals(recording), device), filter_size).unsqueeze(0)
        # a channel that is flat in a night is ignored for that night; all others weigh the same
        flat = (psd == 0).all(dim=-1, keepdim=True)
        sums = ops.barycenter_sums(torch.where(flat, math.nan, psd))
        total, count = total + sums[0], count + sums[1]
    return (total / count.clamp(min=1).unsqueeze(-1)).cpu()


def _rows(signals: NDArray[np.float16 | np.float32], device: torch.device) -> Tensor:
    """Concatenate a night's epochs and centre it, (C, E · T) in float64."""
    epochs = torch.from_numpy(signals).to(device).double()
    return ops.center(epochs.transpose(0, 1).flatten(1))


def _psd(rows: Tensor, filter_size: int) -> Tensor:
    psd = ops.welch_psd(rows, filter_size)  # (C, F)
    return psd + _EPS * psd.mean(dim=-1, keepdim=True)


def alignment_of(
    training_data: Any, n_channels: int, path: str | Path
) -> tuple[Tensor, int] | None:
    """Return the square root of a checkpoint's training barycenter, and the filter size.

    None if the training set was not aligned; CheckpointError if it was but has no valid barycenter.
    """
    facts: dict[str, Any] = training_data if isinstance(training_data, dict) else {}
    run: dict[str, Any] = facts["cell"] if isinstance(facts.get("cell"), dict) else {}
    written = facts.get("sqrt_barycenter")
    if written is None and run.get("norm") != TMA:
        return None
    filter_size: Any = run.get("filter_size")
    try:
        barycenter = torch.tensor(written, dtype=torch.float64)
        expected = (n_channels, ops.n_bins(filter_size))
        fits = barycenter.shape == expected and bool((barycenter >= 0).all())
    except (TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise CheckpointError(
            f"{path} was trained on aligned nights (TMA) but does not say onto what: expected "
            f"'sqrt_barycenter' with {n_channels} rows and the run's filter_size in its "
            "training_data"
        )
    return barycenter, filter_size
