"""Sequences of epochs, and batches of them gathered from nights in memory or on disk.

Copies are threaded by our own code: torch's threads, and new memory for every batch, were measured
to cost several times the copy itself.
"""

import collections
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm.constants import UNSCORED
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Store

if TYPE_CHECKING:
    import pandas as pd


LENGTH, STRIDE = 35, 21


def window_starts(n_epochs: int, length: int = LENGTH, stride: int = STRIDE) -> NDArray[np.int64]:
    """First epochs of a night's windows; the last one ends with it, and a short night has one.

    Examples
    --------
    >>> window_starts(60).tolist()
    [0, 21, 25]
    """
    last = max(0, n_epochs - length)
    starts = np.arange(0, last, stride)
    return np.append(starts, last)  # arange excludes it


class Sequences:
    """Sequences of consecutive epochs: all, or only those with a scored epoch.

    A night shorter than ``length`` has one sequence: the night, repeated from its start, with the
    repetition unscored. Unlike zeros, the repetition has the night's own spectrum.

    ``index`` contains rows of :attr:`psdnorm.store.Store.index`, ``length`` is S, and ``stride`` is
    at most S, so that no epoch is skipped.

    Attributes
    ----------
    offsets : ndarray of int, (n_nights + 1,)
        Start of each night in the concatenation of all, in epochs.
    stages : ndarray of int8, (offsets[-1],)
        Stages of the concatenated nights.
    night, start, n_own : ndarray of int, (n,)
        For each sequence: its night, its first epoch in the night, and its number of epochs
        without repetition.
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
        """Return a permutation that depends only on the number of sequences, seed and epoch."""
        if min(seed, epoch) < 0:
            raise ArgumentError(f"seed and epoch are {seed} and {epoch}, expected none below 0")
        # raw bits are the same in every version of NumPy, which is not guaranteed for shuffles
        bits = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(len(self))
        return np.argsort(bits, kind="stable")

    def grouped(self, order: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Move sequences of an order so that ``n`` of a night follow each other.

        They take the place of the first of them; a night's last group may be smaller.
        """
        by_night = np.argsort(self.night[order], kind="stable")  # places in the order
        _, first, sizes = np.unique(
            self.night[order][by_night], return_index=True, return_counts=True
        )
        place = np.arange(len(order)) - np.repeat(first, sizes)
        leader = np.empty_like(by_night)
        leader[by_night] = by_night[np.arange(len(order)) - place % n]
        return order[np.argsort(leader, kind="stable")]


_GRAIN = 32768  # values above which torch parallelises a copy
_PART = 4  # arrays per work item of a thread
_MOST_THREADS = 8  # more would wait for the GIL


class Copying:
    """Copy many arrays at once with a few threads, converting the type if needed.

    Torch would split each array among all its threads and synchronise them 64 times per batch,
    which was measured to cost up to 40 times the copy when other processes occupy the cores. Here,
    each thread has its own arrays, and they synchronise once.
    """

    def __init__(self) -> None:
        self.n_threads = min(torch.get_num_threads(), _MOST_THREADS)
        self._others: ThreadPoolExecutor | None = None

    def __call__(self, targets: Sequence[NDArray], sources: Sequence[NDArray]) -> None:
        if self.n_threads > 1 and self._others is None:
            self._others = ThreadPoolExecutor(self.n_threads - 1, "psdnorm-copy")
        is_same = targets[0].dtype == sources[0].dtype
        parts: collections.deque[Callable[[], None]] = collections.deque()
        copied: list[Future] = []
        for at in range(0, len(targets), _PART):
            part = targets[at : at + _PART], sources[at : at + _PART]
            # arrays to convert are split here: threads doing it would wait for each other
            parts.append(functools.partial(_copy, *part) if is_same else _conversion(*part))
            if self._others is not None and len(copied) < self.n_threads - 1:
                copied.append(self._others.submit(_do_all, parts))
        _do_all(parts)
        for other in copied:
            other.result()


def _do_all(parts: collections.deque[Callable[[], None]]) -> None:
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
    """Split arrays with rows of equal size into pieces that torch copies with one thread."""
    n = max(1, (_GRAIN - 1) // arrays[0][0].size)
    return list(itertools.chain.from_iterable(torch.from_numpy(a).split(n) for a in arrays))


class Rooms:
    """A pool of arrays, reused once they are no longer referenced.

    Allocating the memory of a batch costs more than filling it: the system clears every page.
    """

    def __init__(self) -> None:
        self._free: collections.deque[NDArray[np.float32]] = collections.deque()

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        array = None
        while self._free and array is None:
            found = self._free.popleft()
            array = found if found.shape == shape else None  # the last batch may be smaller
        if array is None:
            array = np.empty(shape, np.float32)
        view = array.view()
        weakref.finalize(view, self._free.append, array).atexit = False
        return torch.from_numpy(view)


RESIDENCES = ("map", "pinned", "device")
# of free memory; the network needs the rest
_SHARE = 0.6


def choose_residence(n_bytes: int, device_free: int, host_free: int) -> str:
    """Return the fastest residence that the store fits into; ``device_free`` is 0 if no device."""
    if n_bytes <= _SHARE * device_free:
        return "device"
    return "pinned" if n_bytes <= _SHARE * host_free else "map"


def resolve_residence(asked: str, n_bytes: int, device: torch.device) -> str:
    """Return the requested residence; for ``"auto"``, choose it by size."""
    if asked in RESIDENCES:
        return asked
    if asked != "auto":
        raise ArgumentError(
            f"residence is {asked!r}, expected 'auto', {', '.join(map(repr, RESIDENCES))}"
        )
    if device.type != "cuda":
        return "map"  # the operating system's page cache is in memory already
    return choose_residence(n_bytes, torch.cuda.mem_get_info(device)[0], available_memory())


def available_memory() -> int:
    """Return the memory available without swapping, in bytes; 0 if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0


def mapped_night(store: Store, sequences: Sequences, night: int) -> Tensor:
    """Memory-map a night, (E, C, T), checking its length against the index."""
    recording = sequences.recordings[night]
    signals = store.signals(recording)
    expected = sequences.offsets[night + 1] - sequences.offsets[night]
    if len(signals) != expected:
        raise StoreError(
            f"recording {recording!r} has {len(signals)} epochs, expected {expected} as in the "
            "index: open the store again"
        )
    return torch.from_numpy(signals)


def load_all(store: Store, sequences: Sequences, device: torch.device, *, pin: bool) -> Tensor:
    """Load all nights, concatenated, to a device, (ΣE, C, T), in the type of the store."""
    layout = store.layout
    shape = (int(sequences.offsets[-1]), layout.n_channels, layout.n_times)
    dtype = getattr(torch, layout.dtype)
    try:
        everything = torch.empty(shape, dtype=dtype, device=device)
    except RuntimeError as error:
        n_bytes = int(np.prod(shape)) * dtype.itemsize
        raise ArgumentError(
            f"the signals take {n_bytes / 2**30:.1f} GiB, more than {device} has free: "
            "use residence='map'"
        ) from error
    if pin:
        _pin(everything)
    for night in range(len(sequences.recordings)):
        first, last = sequences.offsets[night : night + 2]
        everything[first:last].copy_(mapped_night(store, sequences, night))
    return everything


def _pin(everything: Tensor) -> None:
    # not torch's pinned allocator, which rounds up to the next power of two
    cudart = torch.cuda.cudart()
    address = everything.data_ptr()
    torch.cuda.check_error(cudart.cudaHostRegister(address, everything.nbytes, 0))

    def unpin() -> None:
        torch.cuda.synchronize()  # no copy may still be reading
        cudart.cudaHostUnregister(address)

    weakref.finalize(everything, unpin).atexit = False  # the system frees it at exit


LAST = ("keep", "drop", "fill")
_AHEAD = 3  # batches to prefetch while the device works


class Loader:
    """Batches of sequences for training or validation.

    Batch b of epoch e is a function only of the index, the sizes, ``seed``, e and b: it does not
    depend on the residence, the device, or earlier batches.

    Parameters
    ----------
    store : Store
    index : DataFrame
        The nights to draw from: rows of ``store.index``.
    batch_size, length, stride : int
        Sequences per batch, epochs per sequence, and epochs from one sequence to the next.
    seed : int or None
        Seed of the shuffle; None keeps the order of the nights in every epoch.
    sequences_per_night : int
        Sequences of a night that follow each other in an epoch, for norms with statistics by
        domain. With 1, the order is that of the shuffle.
    last : {"keep", "drop", "fill"}
        Whether an incomplete last batch is kept, dropped, or filled with the first sequences of
        the epoch, unscored. With the latter two, all batches have the same shape.
    whole_nights : bool
        Begin a new batch with every night; ``last`` then is about the last batch of each, which is
        filled with sequences of the night.
    only_scored : bool
        Skip sequences without a scored epoch; False to predict complete nights.
    device : str or torch.device
        Device of the batches.
    residence : {"auto", "map", "pinned", "device"}
        Where the nights are stored: memory-mapped on disk, in pinned memory, or on the device; by
        default, the fastest that they fit into.

    Examples
    --------
    >>> def train(loader, step):
    ...     for epoch in range(3):
    ...         for x, stages in loader.epoch(epoch):  # (N, S, C, T), (N, S)
    ...             step(x, stages)
    """

    def __init__(
        self,
        store: Store,
        index: "pd.DataFrame",
        *,
        batch_size: int = 64,
        length: int = LENGTH,
        stride: int = STRIDE,
        seed: int | None = 0,
        sequences_per_night: int = 1,
        last: str = "keep",
        whole_nights: bool = False,
        only_scored: bool = True,
        device: str | torch.device = "cpu",
        residence: str = "auto",
    ) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise ArgumentError(f"batch_size is {batch_size!r}, expected a positive integer")
        if last not in LAST:
            raise ArgumentError(f"last is {last!r}, expected one of {', '.join(LAST)}")
        if type(sequences_per_night) is not int or sequences_per_night < 1:
            raise ArgumentError(
                f"sequences_per_night is {sequences_per_night!r}, expected a positive integer"
            )
        self.store, self.batch_size, self.seed, self.last = store, batch_size, seed, last
        self.sequences_per_night, self.whole_nights = sequences_per_night, whole_nights
        self.device = torch.device(device)
        self.sequences = Sequences(index, length, stride, only_scored=only_scored)
        if not len(self):
            kind = " in which something is scored" if only_scored else ""
            raise ArgumentError(
                f"index has {len(index)} nights with {len(self.sequences)} sequences{kind}, "
                f"expected enough for a batch of {batch_size}"
            )
        self.residence = resolve_residence(residence, self.n_bytes, self.device)
        self._rooms, self._copy = Rooms(), Copying()
        self._everything: Tensor | None = None
        self._nights: dict[int, Any] = {}
        if self.residence != "map":
            on_device = self.residence == "device"
            place = self.device if on_device else torch.device("cpu")
            pin = not on_device and self.device.type == "cuda"
            self._everything = load_all(store, self.sequences, place, pin=pin)
        # on the device from the start, so that a batch does not wait for transfers from the host
        self._stages = torch.from_numpy(self.sequences.stages).to(self.device)
        self._steps = torch.arange(length, device=self.device)  # (S,)

    @property
    def n_bytes(self) -> int:
        layout = self.store.layout
        itemsize = np.dtype(layout.dtype).itemsize
        return int(self.sequences.offsets[-1]) * layout.n_channels * layout.n_times * itemsize

    def __len__(self) -> int:
        of_nights = np.bincount(self.sequences.night)
        full, rest = np.divmod(
            of_nights if self.whole_nights else of_nights.sum(keepdims=True), self.batch_size
        )
        return int(full.sum() + (self.last != "drop") * np.count_nonzero(rest))

    def epoch(self, epoch: int, first_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch, starting at ``first_batch``.

        Signals are float32, (N, S, C, T), and stages int64, (N, S), -1 where unscored. A run that
        stopped after batch b of epoch e resumes with ``epoch(e, b + 1)``, then ``epoch(e + 1)``.
        """
        if not 0 <= first_batch <= len(self):
            raise ArgumentError(f"first_batch is {first_batch}, expected 0 to {len(self)}")
        if epoch < 0:
            raise ArgumentError(f"epoch is {epoch}, expected 0 or more")
        return self._batches(epoch, first_batch)

    def nights(self, epoch: int, first_batch: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yield the nights of the sequences in every batch, (N,), as rows of the index.

        With ``whole_nights``, what fills a batch has the number of nights instead: it belongs to
        none, so that it does not count twice.
        """
        for batch, n_real in self._plan(epoch)[first_batch:]:
            nights = self.sequences.night[batch].copy()
            if self.whole_nights:
                nights[n_real:] = len(self.sequences.recordings)
            yield nights

    def _batches(self, epoch: int, first_batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        plan = self._plan(epoch)[first_batch:]
        if not plan:
            return
        sizes = np.array([len(batch) for batch, _ in plan])
        order = np.concatenate([batch for batch, _ in plan])
        is_real = np.concatenate([np.arange(len(batch)) < n_real for batch, n_real in plan])
        sequences = self.sequences
        n_own = sequences.n_own[order]
        first = sequences.offsets[sequences.night[order]] + sequences.start[order]
        n_scored = np.where(is_real, n_own, 0)
        columns = [torch.from_numpy(column).to(self.device) for column in (first, n_own, n_scored)]
        signals = self._signals([batch for batch, _ in plan])
        for end, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
            begins, own, scored = (column[end - size : end, None] for column in columns)  # (N, 1)
            rows = begins + self._steps % own  # (N, S)
            stages = self._stages[rows].long().masked_fill(self._steps >= scored, UNSCORED)
            yield signals(rows), stages

    def _plan(self, epoch: int) -> list[tuple[NDArray[np.int64], int]]:
        """Return the sequences of every batch, and how many of them, the first, are no fillers."""
        n, sequences, size = len(self.sequences), self.sequences, self.batch_size
        order = np.arange(n) if self.seed is None else sequences.order(self.seed, epoch)
        groups = [order]
        if self.whole_nights:
            order = order[np.argsort(sequences.night[order], kind="stable")]
            groups = np.split(order, np.cumsum(np.bincount(sequences.night))[:-1])
        elif self.sequences_per_night > 1:
            groups = [sequences.grouped(order, self.sequences_per_night)]
        plan = []
        for group in groups:
            n_batches = -(-len(group) // size) if self.last != "drop" else len(group) // size
            filled = np.resize(group, n_batches * size) if self.last == "fill" else group
            for begin in range(0, n_batches * size, size):
                plan.append((filled[begin : begin + size], min(size, len(group) - begin)))
        return plan

    def _signals(self, batches: list[NDArray[np.int64]]) -> Callable[[Tensor], Tensor]:
        if self.residence == "device":
            assert self._everything is not None
            nights = self._everything.flatten(1)  # (ΣE, C·T)
            shape = self._everything.shape[1:]
            return lambda rows: (
                nights.index_select(0, rows.flatten()).float().view(*rows.shape, *shape)
            )
        ready: Iterator[Tensor] = map(self._assemble, batches)
        if self.device.type == "cuda" and self.residence == "map":
            ready = ahead(ready, _AHEAD)
        return lambda _: next(ready).to(self.device, non_blocking=True).float()

    def _assemble(self, batch: NDArray[np.int64]) -> Tensor:
        """Gather a batch, one contiguous copy per sequence, (N, S, C, T)."""
        layout, sequences = self.store.layout, self.sequences
        x = self._empty((len(batch), sequences.length, layout.n_channels, layout.n_times))
        rows: Any = x if x.is_cuda else x.numpy()
        columns = (sequences.night[batch], sequences.start[batch], sequences.n_own[batch])
        targets, sources = [], []
        for into, night, start, own in zip(rows, *(c.tolist() for c in columns), strict=True):
            signals = self._night(night)
            for at in range(0, sequences.length, own):  # once, unless the night is too short
                n = min(own, sequences.length - at)
                targets.append(into[at : at + n])
                sources.append(signals[start : start + n])
        if x.is_cuda:
            torch._foreach_copy_(targets, sources, non_blocking=True)
        else:
            self._copy(targets, sources)
        return x

    def _night(self, night: int) -> Any:
        """Return the signals of a night: a tensor if the device fetches them, else an array."""
        if night not in self._nights:
            if self._everything is None:
                signals = mapped_night(self.store, self.sequences, night)
            else:
                first, last = self.sequences.offsets[night : night + 2]
                signals = self._everything[first:last]
            # slicing arrays is several times as fast as slicing tensors
            fetched = self.residence == "pinned" and self.device.type == "cuda"
            self._nights[night] = signals if fetched else signals.numpy()
        return self._nights[night]

    def _empty(self, shape: tuple[int, ...]) -> Tensor:
        if self.device.type == "cuda":
            dtype = getattr(torch, self.store.layout.dtype)
            if self.residence == "pinned":  # the device fetches each sequence itself
                return torch.empty(shape, dtype=dtype, device=self.device)
            return torch.empty(shape, dtype=dtype, pin_memory=True)
        return self._rooms.empty(shape)


def ahead(items: Iterator[Tensor], depth: int) -> Iterator[Tensor]:
    """Prefetch ``depth`` items of an iterator in a thread; errors are raised at their position."""
    worker = ThreadPoolExecutor(1, "psdnorm-ahead")
    ready = collections.deque(worker.submit(next, items, None) for _ in range(depth))
    try:
        while (item := ready.popleft().result()) is not None:
            ready.append(worker.submit(next, items, None))
            yield item
    finally:
        worker.shutdown(cancel_futures=True)
