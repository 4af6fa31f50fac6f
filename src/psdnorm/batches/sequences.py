"""Which epochs make a sequence, and in which order sequences come."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import UNSCORED
from psdnorm.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd

LENGTH, STRIDE = 35, 21


def window_starts(n_epochs: int, length: int = LENGTH, stride: int = STRIDE) -> NDArray[np.int64]:
    """First epochs of the windows of a night; the last window ends where the night does.

    Parameters
    ----------
    n_epochs : int
    length : int
        S, epochs of a window.
    stride : int
        From one window to the next, except to the last.

    Returns
    -------
    ndarray of int, (n_windows,)
        A night shorter than a window has one, from 0.

    Examples
    --------
    >>> window_starts(60).tolist()
    [0, 21, 25]
    """
    last = max(0, n_epochs - length)
    starts = np.arange(0, last, stride)
    return np.append(starts, last)  # arange stops before it


class Sequences:
    """All sequences of some nights in which something is scored, or simply all.

    A sequence is consecutive in time. Of a night shorter than ``length`` there is one sequence:
    the night, and the night again from its start up to ``length``, unscored; so that what fills it
    has the night's own spectrum, which zeros would not.

    Parameters
    ----------
    index : DataFrame
        Rows of :attr:`psdnorm.store.Store.index`.
    length : int
        S, epochs of a sequence.
    stride : int
        Between sequences, at most ``length``, so that no epoch is left out.
    only_scored : bool
        Leave out sequences in which nothing is scored: nothing can be learned from them.

    Attributes
    ----------
    recordings : ndarray of str, (n_nights,)
    offsets : ndarray of int, (n_nights + 1,)
        Where each night begins when all are laid end to end, in epochs.
    stages : ndarray of int8, (offsets[-1],)
        Of the nights laid end to end.
    night, start, n_own : ndarray of int, (n,)
        Of each sequence: its night, its first epoch in it, and its epochs that are not a
        repetition.
    """

    def __init__(
        self,
        index: "pd.DataFrame",
        length: int = LENGTH,
        stride: int = STRIDE,
        *,
        only_scored: bool = True,
    ) -> None:
        if type(length) is not int or length < 1:
            raise ArgumentError(f"length is {length!r}, expected a positive integer")
        if type(stride) is not int or not 1 <= stride <= length:
            raise ArgumentError(f"stride is {stride!r}, expected an integer from 1 to {length}")
        self.length = length
        self.recordings = index["recording"].to_numpy(object)
        hypnograms = [np.frombuffer(stages, np.int8) for stages in index["stages"]]
        epochs = np.array([len(stages) for stages in hypnograms], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(epochs)])
        self.stages = np.concatenate([np.empty(0, np.int8), *hypnograms])
        starts = [window_starts(n, length, stride) for n in epochs.tolist()]
        night = np.repeat(np.arange(len(epochs)), [len(s) for s in starts])
        start = np.concatenate([np.empty(0, np.int64), *starts])
        n_own = np.minimum(epochs[night], length)
        first = self.offsets[night] + start
        scored = np.concatenate([[0], np.cumsum(self.stages != UNSCORED)])
        drawn = (scored[first + n_own] > scored[first]) | (not only_scored)
        self.night, self.start, self.n_own = night[drawn], start[drawn], n_own[drawn]

    def __len__(self) -> int:
        return len(self.night)

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return the order of the sequences in an epoch of training.

        Parameters
        ----------
        seed : int
        epoch : int

        Returns
        -------
        ndarray of int, (n,)
            A permutation that depends on the number of sequences, ``seed`` and ``epoch`` alone.
        """
        if min(seed, epoch) < 0:
            raise ArgumentError(f"seed and epoch are {seed} and {epoch}, expected none below 0")
        # raw bits are the same in every version of NumPy, which is not promised of shuffles
        bits = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(len(self))
        return np.argsort(bits, kind="stable")
