"""Bring pieces from many places in memory together into one batch."""

import collections
import itertools
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GRAIN = 32768  # values from which on torch shares a copy among its threads
_PART = 4  # pieces that a thread takes at once


class Copying:
    """Copy many pieces at once, to another type or device, with as many threads as torch has.

    Torch would share each piece among its threads and wait for all of them at its end, 64 times in
    a batch, which was measured to cost up to 40 times the copy where other processes hold the
    cores. Here each thread has its own pieces, too small for torch to share, and there is one wait.
    """

    def __init__(self) -> None:
        self.n_threads = torch.get_num_threads()
        self._others: ThreadPoolExecutor | None = None

    def __call__(self, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
        """Copy each source, (n, …), into the target of its place, (n, …).

        Targets on a device are not waited for.
        """
        if targets[0].is_cuda:
            torch._foreach_copy_(list(targets), list(sources), non_blocking=True)
            return
        if self.n_threads > 1 and self._others is None:
            self._others = ThreadPoolExecutor(self.n_threads - 1, "psdnorm-copy")
        parts: collections.deque[tuple[list[Tensor], list[Tensor]]] = collections.deque()
        copied: list[Future] = []
        for at in range(0, len(targets), _PART):
            part = slice(at, at + _PART)
            parts.append((_small(targets[part]), _small(sources[part])))
            if self._others is not None and len(copied) < self.n_threads - 1:
                copied.append(self._others.submit(_copy_while, parts))
        _copy_while(parts)
        for other in copied:
            other.result()


def _copy_while(parts: collections.deque[tuple[list[Tensor], list[Tensor]]]) -> None:
    while True:
        try:
            into, pieces = parts.popleft()
        except IndexError:
            return
        torch._foreach_copy_(into, pieces)


def _small(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Cut tensors of rows of one size into pieces that torch copies with one thread."""
    n = max(1, (_GRAIN - 1) // tensors[0][0].numel())
    return list(itertools.chain.from_iterable(tensor.split(n) for tensor in tensors))


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
