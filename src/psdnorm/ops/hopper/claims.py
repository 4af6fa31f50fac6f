"""Where the programs of a launch claim their next piece of work: counters, zero between launches.

A kernel leaves its counter as it found it, so nothing has to be cleared before a launch. Launches
that may run side by side must not share one: each stream has its own, and so has each launch that a
CUDA graph holds, since a graph may be replayed beside whatever its stream does then.
"""

import threading

import torch
from torch import Tensor

_COUNTERS_OF_A_DEVICE = 4096
_KEPT_FOR_STREAMS = 256
_lock = threading.Lock()
_free: dict[int, list[Tensor]] = {}
_of_streams: dict[tuple[int, int], Tensor] = {}


def counter() -> Tensor:
    """Return a counter, (1,), for the next launch on the current stream.

    The first call on a device waits for the host, unless a graph is being captured.
    """
    device, captures = torch.cuda.current_device(), torch.cuda.is_current_stream_capturing()
    key = device, torch.cuda.current_stream().cuda_stream
    if key in _of_streams and not captures:
        return _of_streams[key]
    with _lock:
        if device not in _free and not captures:
            zeros = _zeros(_COUNTERS_OF_A_DEVICE)
            torch.cuda.current_stream().synchronize()  # another stream may come first
            _free[device] = list(zeros.split(1))
        free = _free.get(device, [])
        if len(free) <= (_KEPT_FOR_STREAMS if captures else 0):
            # cleared before the launch, in a graph before each replay
            return _zeros(1)
        taken = free.pop()
        if not captures:
            _of_streams[key] = taken
    return taken


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int32, device="cuda")
