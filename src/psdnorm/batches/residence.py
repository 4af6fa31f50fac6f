"""Where the nights are while they are learned from: on disk, in pinned memory, on the device."""

import weakref
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from psdnorm.batches.sequences import Sequences
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Store

RESIDENCES = ("map", "pinned", "device")
# of what is free; the network needs the rest
_SHARE = 0.6


def choose_residence(n_bytes: int, device_free: int, host_free: int) -> str:
    """Return the fastest residence that a store fits into.

    Parameters
    ----------
    n_bytes : int
        Of the signals.
    device_free, host_free : int
        Free bytes on the device and in the memory beside it; 0 where there is no such device.
    """
    if n_bytes <= _SHARE * device_free:
        return "device"
    return "pinned" if n_bytes <= _SHARE * host_free else "map"


def resolve_residence(asked: str, n_bytes: int, device: torch.device) -> str:
    """Return the residence that was asked for, or for ``"auto"`` the one to choose by size."""
    if asked in RESIDENCES:
        return asked
    if asked != "auto":
        raise ArgumentError(
            f"residence is {asked!r}, expected 'auto', {', '.join(map(repr, RESIDENCES))}"
        )
    if device.type != "cuda":
        return "map"  # the system's cache of files is in memory already
    return choose_residence(n_bytes, torch.cuda.mem_get_info(device)[0], available_memory())


def available_memory() -> int:
    """Return the bytes of memory that can be had without swapping; 0 where nobody tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0


def mapped_night(store: Store, sequences: Sequences, night: int) -> Tensor:
    """Map a night as the index knows it, (E, C, T)."""
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
    """Bring all nights to a device, laid end to end, (ΣE, C, T), in the type of the store."""
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
    """Let the device read this memory itself."""
    # not torch's pinned allocator, which takes the next power of two
    cudart = torch.cuda.cudart()
    address = everything.data_ptr()
    torch.cuda.check_error(cudart.cudaHostRegister(address, everything.nbytes, 0))

    def unpin() -> None:
        torch.cuda.synchronize()  # no copy may still be reading
        cudart.cudaHostUnregister(address)

    weakref.finalize(everything, unpin).atexit = False  # the system takes it all back by itself
