"""Every epoch of a night from overlapping windows, those nearest to a window's middle most.

A window shows a network 35 epochs, as in training. An epoch in its middle is seen with what comes
before and after it, one at its edge without; so a window's word on the epoch at place i of S counts
min(i + 1, S - i) times, from 1 at the edges to 18 in the middle of 35.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm.batches import window_starts
from psdnorm.batches.sequences import LENGTH
from psdnorm.errors import ShapeError
from psdnorm.training.predict import Forward, Probabilities, window_probabilities

_BATCH = 8  # windows at a time: U-Sleep takes some 0.4 GB for them


def predict_epochs(
    forward: Forward,
    signals: NDArray[np.float16 | np.float32],
    *,
    stride: int,
    length: int = LENGTH,
    batch_size: int = _BATCH,
    fill: bool = False,
    device: torch.device | str = "cpu",
) -> Probabilities:
    """Predict every epoch of a night, the first and the last ones too.

    Parameters
    ----------
    forward : callable
        Maps (N, S, C, T) to logits (N, 5, S).
    signals : ndarray, (E, C, T)
        A night, however short. One that is shorter than a window fills it by going on from its
        start, as in training: so what norms measure over a window is the night's own, which zeros
        would spoil. Each of its epochs is predicted once, where it first stands.
    stride, length : int
        From one window to the next, and S. The last window ends with the night.
    batch_size : int
        N.
    fill : bool
        Repeat windows in a last batch that is not full, so that all are of one shape, for which a
        network may have been compiled.
    device : torch.device or str
        Where ``forward`` wants its input.

    Returns
    -------
    ndarray of float32, (E, 5)
        Weighted means over the windows that see an epoch; rows sum to 1.
    """
    if signals.ndim != 3 or not len(signals):
        raise ShapeError(f"signals have shape {signals.shape}, expected (E, C, T), E from 1")
    starts = window_starts(len(signals), length, stride)
    total = np.zeros((len(signals), 5))
    counted = np.zeros((len(signals), 1))
    places = np.arange(length)
    weights = np.minimum(places + 1, length - places)[:, None].astype(np.float64)  # (S, 1)
    for first in range(0, len(starts), batch_size):
        some = starts[first : first + batch_size]
        shown = np.resize(some, batch_size) if fill else some
        epochs = (shown[:, None] + places) % len(signals)  # (N, S)
        windows = torch.from_numpy(signals[epochs]).to(device).float()
        for start, window in zip(some, window_probabilities(forward, windows), strict=False):
            own = slice(start, min(start + length, len(signals)))
            n_own = own.stop - own.start
            total[own] += (weights * window)[:n_own]
            counted[own] += weights[:n_own]
    return (total / counted).astype(np.float32)
