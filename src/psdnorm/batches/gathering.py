"""Bring pieces from many places in memory together into one batch."""

import collections
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GRAIN = 32768  # values from which on torch shares a copy among its threads
_PART = 4  # pieces that a thread takes at once
_MOST_THREADS = 8  # more wait for each other in Python


class Copying:
    """Copy many pieces of memory at once, to another type too, with a few threads.

    Torch would share each piece among all its threads and wait for them at its end, 64 times in a
    batch, which was measured to cost up to 40 times the copy where other processes hold the cores.
    Here each thread has its own pieces, and there is one wait.
    """

    def __init__(self) -> None:
        self.n_threads = min(torch.get_num_threads(), _MOST_THREADS)
        self._others: ThreadPoolExecutor | None = None

    def __call__(self, targets: Sequence[NDArray], sources: Sequence[NDArray]) -> None:
        """Copy each source, (n, …), into the target of its place, (n, …)."""
        if self.n_threads > 1 and self._others is None:
            self._others = ThreadPoolExecutor(self.n_threads - 1, "psdnorm-copy")
        is_same = targets[0].dtype == sources[0].dtype
        parts: collections.deque[Callable[[], None]] = collections.deque()
        copied: list[Future] = []
        for at in range(0, len(targets), _PART):
            part = targets[at : at + _PART], sources[at : at + _PART]
            # what torch is to convert is cut up here: threads that do it wait for each other
            parts.append(functools.partial(_copy, *part) if is_same else _conversion(*part))
            if self._others is not None and len(copied) < self.n_threads - 1:
                copied.append(self._others.submit(_do_all, parts))
        _do_all(parts)
        for other in copied:
            other.result()


def _do_all(parts: collections.deque[Callable[[], None]]) -> None:
    """Do what is left, while others do too."""
    while True:
        try:
            part = parts.popleft()
        except IndexError:
            return
        part()


def _copy(targets: Sequence[NDArray], sources: Sequence[NDArray]) -> None:
    for into, piece in zip(targets, sources, strict=True):
        np.copyto(into, piece)


def _conversion(targets: Sequence[NDArray], sources: Sequence[NDArray]) -> Callable[[], None]:
    # torch converts three times as fast as NumPy
    into, pieces = _small(targets), _small(sources)
    return lambda: torch._foreach_copy_(into, pieces)


def _small(arrays: Sequence[NDArray]) -> list[Tensor]:
    """Cut arrays of rows of one size into pieces that torch copies with one thread."""
    n = max(1, (_GRAIN - 1) // arrays[0][0].size)
    return list(itertools.chain.from_iterable(torch.from_numpy(a).split(n) for a in arrays))


class Rooms:
    """Arrays that are used again when nobody refers to them any longer.

    Fresh memory of the size of a batch costs more than filling it: the system clears every page.
    """

    def __init__(self) -> None:
        self._free: collections.deque[NDArray[np.float32]] = collections.deque()

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor of float32 of this shape, with anything in it."""
        array = None
        while self._free and array is None:
            found = self._free.popleft()
            array = found if found.shape == shape else None  # an epoch's last batch was smaller
        if array is None:
            array = np.empty(shape, np.float32)
        view = array.view()
        weakref.finalize(view, self._free.append, array).atexit = False
        return torch.from_numpy(view)
