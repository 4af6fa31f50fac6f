"""Kernels for Hopper that keep rows on the chip: which rows qualify, and how they are launched."""

import ctypes
import math
import os
import threading
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from psdnorm.ops.groups import Groups
from psdnorm.ops.hopper import nvrtc
from psdnorm.ops.reference import Spec, n_bins, n_segments

# PSDNORM_RESIDENT=0 falls back to the Triton kernels, for comparison
ENABLED = os.environ.get("PSDNORM_RESIDENT", "1") != "0"
_SOURCES = Path(__file__).parent / "kernels"
_ELEMENTS = {torch.float32: "float", torch.bfloat16: "Bfloat16", torch.float16: "Float16"}
# bytes of shared memory for a thread block that has a multiprocessor to itself, or half of one
_ALONE, _PAIRED = 232_448, 115_712
_LANES = 32
_TILES_OF_A_CHUNK = 2
# Pairs of the largest filter size and the shortest row, in samples, that is faster here than in the
# Triton kernels with filters up to that size; by the number of signals and the bytes of a sample.
# The values lie between lengths that python -m benchmarks.resident measures
_SHORTEST_ROWS = {
    (1, 4): ((2, 6_000), (5, 12_000), (8, 20_000), (12, 26_000), (17, 50_000)),
    (2, 4): ((8, 1_500), (12, 3_000), (17, 50_000)),
    (1, 2): ((1, 12_000), (5, 26_000)),
    (2, 2): ((5, 12_000), (8, 26_000)),
}
# by the number of signals: with fewer rows, too much of the device is idle towards the end
_LEAST_ROWS_OF_A_CLUSTER = {1: 2.0, 2: 0.5}
# multiprocessor cycles that a row takes, per byte of the rows that the device holds at a time
_CYCLES_PER_BYTE = {"forward": 1 / 1500, "forward_known_psd": 1 / 1500, "backward": 1 / 720}
_COUNTERS_OF_A_DEVICE = 4096
_KEPT_FOR_STREAMS = 256
_lock = threading.Lock()
_free: dict[int, list[Tensor]] = {}
_of_streams: dict[tuple[int, int], Tensor] = {}


class _Arguments(ctypes.Structure):
    """As in rows.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "grad", "result", "offset", "psd")),
        *((name, ctypes.c_void_p) for name in ("target", "weight", "bias", "row_sums")),
        ("claims", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("rows", "channels", "length", "segments")),
        *((name, ctypes.c_int) for name in ("cluster_size", "clusters", "slice", "chunks")),
        *((name, ctypes.c_int) for name in ("room", "stagger")),
        ("eps", ctypes.c_float),
    )


@dataclass(frozen=True)
class Cut:
    """How the warps of a cluster share a row; as in rows.h."""

    cluster_size: int
    warps: int
    slice: int
    chunks: int
    room: int
    shared_bytes: int


def cut_to(
    length: int,
    filter_size: int,
    itemsize: int,
    n_signals: int,
    cluster_size: int,
    warps: int,
    lanes: int = _LANES,
) -> Cut:
    """Share a row of ``length`` samples among the warps of a cluster."""
    vector, half = 16 // itemsize, filter_size // 2
    hop, line = filter_size - half, 128 // itemsize
    unit = math.lcm(vector, hop)
    own = 3 * vector if unit == vector else unit
    halo = _round_up(hop, 2 * vector) if filter_size > 1 else 0
    parts = cluster_size * warps
    step = math.lcm(own, line)
    of_a_warp = _round_up(-(-length // parts), step)
    chunks = -(-of_a_warp // (_TILES_OF_A_CHUNK * lanes * own))
    room = _round_up(of_a_warp + 2 * halo + vector, line)
    count = n_bins(filter_size) + (2 if n_signals == 2 else 3)
    head = _round_up(8 * (2 + warps * chunks) + 8 * (count * parts + 1), 128)
    shared_bytes = head + itemsize * n_signals * warps * room
    return Cut(cluster_size, warps, of_a_warp, chunks, room, shared_bytes)


class _Kernel(NamedTuple):
    launch: nvrtc.Kernel
    sizes: nvrtc.Sizes
    cut: Cut
    clusters: int  # that the device holds at a time


@lru_cache(maxsize=256)
def _cut(length: int, filter_size: int, itemsize: int, n_signals: int) -> Cut | None:
    """Cut a row in the way measured to be fast; None if no cluster can hold it."""
    alone = 12 if filter_size <= 8 else 8
    paired = 6 if n_signals == 2 else 8 if itemsize == 2 else 10
    ways = [(_PAIRED, (1, 2), paired), (_ALONE, (1, 2, 4, 8), alone)]
    # smaller thread blocks have more rows each, so less is idle towards the end; with long filters
    # they need so many registers that a multiprocessor would hold only one
    if n_signals == 1 and filter_size <= 7:
        ways.insert(0, (_PAIRED // 2, (1, 2), 6 if itemsize == 2 else 10))
    for limit, sizes, warps in ways:
        for size in sizes:
            cut = cut_to(length, filter_size, itemsize, n_signals, size, warps)
            if cut.shared_bytes <= limit:
                return cut
    return None


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def serves(signals: tuple[Tensor, ...], spec: Spec) -> bool:
    """Return whether the kernels should process rows, (N, C, T), or rows and their gradient."""
    x = signals[0]
    plain = spec.window == "boxcar" and spec.padding_mode == "circular"
    if not (ENABLED and x.is_cuda and plain) or spec.detrends_segments or spec.is_relative:
        return False
    # a domain needs all of its rows before the first one can be written; only evaluation takes
    # known PSDs
    if spec.is_pooled or (spec.statistics == "fixed" and len(signals) == 2):
        return False
    n, channels, length = x.shape
    size, filter_size = x.element_size(), spec.filter_size
    if x.dtype not in _ELEMENTS or length % 2 or x.numel() == 0:
        return False
    if length < _shortest_row(len(signals), size, filter_size):
        return False
    if not all(s.is_contiguous() and s.dtype == x.dtype for s in signals):
        return False
    if any(s.data_ptr() % 16 for s in signals):
        return False
    cut = _cut(length, filter_size, size, len(signals))
    least = _LEAST_ROWS_OF_A_CLUSTER[len(signals)]
    # a row keeps one cluster busy: few rows would leave most of the device idle. Before compiling
    # anything, this is checked as if every multiprocessor were in one cluster
    programs = 0 if cut is None else n * channels * cut.cluster_size
    if programs < 0.8 * least * _n_multiprocessors(x.device.index):
        return False
    task = _task(len(signals), spec)
    kernel = _kernel(x.device.index, task, x.dtype, filter_size, length)
    return kernel is not None and n * channels >= least * kernel.clusters


def _task(n_signals: int, spec: Spec) -> str:
    if n_signals == 2:
        return "backward"
    return "forward_known_psd" if spec.statistics == "fixed" else "forward"


def _shortest_row(n_signals: int, itemsize: int, filter_size: int) -> float:
    for largest, shortest in _SHORTEST_ROWS[n_signals, itemsize]:
        if filter_size <= largest:
            return shortest
    return math.inf


@cache
def _n_multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def sources(task: str) -> list[Path]:
    """Return the source files of a task, in order, without device.h.

    Tasks are "forward", "forward_known_psd" and "backward".
    """
    name = task.removesuffix("_known_psd")
    return [_SOURCES / name for name in ("rows.h", "filters.h", f"{name}.h")]


def definitions(
    filter_size: int, dtype: torch.dtype, align: int, task: str = "forward"
) -> tuple[str, ...]:
    """Return the compiler options that turn the sources into a kernel."""
    known_psd = int(task == "forward_known_psd")
    element = _ELEMENTS[dtype]
    return (
        *(f"-DFILTER={filter_size}", f"-DELEMENT={element}", f"-DALIGN={align}"),
        f"-DKNOWN_PSD={known_psd}",
    )


@lru_cache(maxsize=1024)
def _kernel(
    device: int, task: str, dtype: torch.dtype, filter_size: int, length: int
) -> _Kernel | None:
    """Return the kernel for rows of a length, and their cut; None if they cannot be served."""
    cut = _cut(length, filter_size, dtype.itemsize, 2 if task == "backward" else 1)
    align = math.gcd(16 // dtype.itemsize, length)
    kernel = None if cut is None else _compiled(device, task, dtype, filter_size, align)
    if cut is None or kernel is None:
        return None
    sizes = nvrtc.Sizes(cut.cluster_size, cut.warps * _LANES, cut.shared_bytes)
    with torch.cuda.device(device):
        clusters = kernel.resident_clusters(sizes)
    return _Kernel(kernel, sizes, cut, clusters) if clusters > 0 else None


@cache
def _compiled(
    device: int, task: str, dtype: torch.dtype, filter_size: int, align: int
) -> nvrtc.Kernel | None:
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) != (9, 0):
        return None
    source = "".join(file.read_text() for file in (_SOURCES / "device.h", *sources(task)))
    options = ("--gpu-architecture=sm_90a", "--std=c++17", "-default-device")
    try:
        cubin = nvrtc.compiled(source, (*options, *definitions(filter_size, dtype, align, task)))
        with torch.cuda.device(device):
            return nvrtc.Kernel(cubin, "resident_kernel", _ALONE)
    except nvrtc.CompilerError as error:
        warnings.warn(f"PSDNorm uses its slower kernels on this device: {error}", stacklevel=2)
        return None


def claim_counter() -> Tensor:
    """Return a counter, (1,), for the next launch on the current stream."""
    device, captures = torch.cuda.current_device(), torch.cuda.is_current_stream_capturing()
    key = device, torch.cuda.current_stream().cuda_stream
    if key in _of_streams and not captures:
        return _of_streams[key]
    with _lock:
        if device not in _free and not captures:
            zeros = _zeros(_COUNTERS_OF_A_DEVICE)
            torch.cuda.current_stream().synchronize()  # another stream may use them first
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


def _launch(task: str, x: Tensor, spec: Spec, tensors: dict[str, Tensor | None]) -> None:
    n, channels, length = x.shape
    kernel = _kernel(x.device.index, task, x.dtype, spec.filter_size, length)
    assert kernel is not None  # the caller has checked serves()
    rows, cut = n * channels, kernel.cut
    clusters = min(kernel.clusters, rows)
    # in lockstep, all clusters would read at one time and write at another; staggered by the time a
    # row takes, reads and writes overlap. This does not pay off for few rows
    held_bytes = clusters * length * x.element_size()
    row_cycles = int(held_bytes * _CYCLES_PER_BYTE[task])
    pointers = {name: t.data_ptr() for name, t in tensors.items() if t is not None}
    arguments = _Arguments(
        x=x.data_ptr(),
        rows=rows,
        channels=channels,
        length=length,
        segments=n_segments(length, spec.filter_size),
        cluster_size=cut.cluster_size,
        clusters=clusters,
        slice=cut.slice,
        chunks=cut.chunks,
        room=cut.room,
        stagger=row_cycles if rows >= 4 * clusters else 0,
        eps=spec.eps,
        **pointers,
    )
    is_current = x.device.index == torch.cuda.current_device()
    with nullcontext() if is_current else torch.cuda.device(x.device):
        counter = claim_counter()
        arguments.claims = counter.data_ptr()
        kernel.launch(clusters, kernel.sizes, arguments)


def _parameter(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.float().contiguous()


def normalize_backward(
    grad: Tensor,
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    groups: Groups | None = None,
) -> tuple[Tensor, Tensor]:
    """Differentiate both steps; see :func:`psdnorm.ops.cpu.normalize_backward`."""
    dx = torch.empty_like(x)
    row_sums = x.new_empty((*x.shape[:2], 2), dtype=torch.float32)
    tensors = {
        "grad": grad,
        "result": dx,
        "offset": _parameter(offset),
        "psd": _parameter(psd),
        "target": _parameter(sqrt_target),
        "weight": _parameter(weight),
        "row_sums": row_sums,
    }
    _launch("backward", x, spec, tensors)
    return dx, row_sums


def measure_and_normalize(
    x: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    known_psd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Carry rows onto a fixed target; return the result, offsets and PSDs."""
    y = torch.empty_like(x)
    offset = x.new_empty(x.shape[:2], dtype=torch.float32)
    psd = _parameter(known_psd)
    if psd is None:
        psd = offset.new_empty((*x.shape[:2], n_bins(spec.filter_size)))
    tensors = {
        "result": y,
        "offset": offset,
        "psd": psd,
        "target": _parameter(sqrt_target),
        "weight": _parameter(weight),
        "bias": _parameter(bias),
    }
    _launch(_task(1, spec), x, spec, tensors)
    if known_psd is not None:
        psd = psd.expand(*offset.shape[:1], -1, -1)
    return y, offset, psd
