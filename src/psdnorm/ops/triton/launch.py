"""PSDNorm on CUDA devices: how the Triton kernels are tiled and launched.

Triton is imported by the functions that need it, not with psdnorm.
"""

import math
import os
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from psdnorm.ops import reference
from psdnorm.ops.groups import Groups
from psdnorm.ops.reference import WINDOWS, Spec, n_bins, n_segments

# checked without importing it: that takes a second, and most CPU users never need it
HAS_TRITON = find_spec("triton") is not None
# positions within a row are int32 in the kernels, and mirroring doubles them
LONGEST_ROW = 2**30
# enough programs to keep every multiprocessor busy, with a negligible tail
_ENOUGH_PROGRAMS = 2048
# measured: neither much smaller nor much larger is as fast (docs/performance.md)
_TILE_SAMPLES = 1536
_CHUNK_BYTES = 24 * 1024
# with up to 8 taps, and with more, where chunks need more setup
_FILTER_TILE_SAMPLES = 1536, 768
_FILTER_CHUNK_BYTES = 12 * 1024, 24 * 1024
_LEAST_SAMPLES_OF_A_LANE = 8  # of statistics with a hop of one sample


class Launch:
    """A kernel and its arguments without the tensors; EARLY is added if it ``may_be_early``."""

    def __init__(
        self,
        kernel,
        n_programs: tuple[int, int, int],
        arguments: tuple,
        num_warps: int,
        may_be_early: bool = False,
    ):
        self.kernel = kernel
        self.grid = n_programs
        self.arguments = arguments
        self.num_warps = num_warps
        self.may_be_early = may_be_early
        self._compiled: dict[tuple, tuple[Callable, tuple]] = {}

    def __call__(self, *tensors: Tensor | None) -> None:
        """Run the kernel on the device of the first tensor."""
        device = tensors[0].device  # type: ignore[union-attr]
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self(*tensors)
            return
        # what triton specializes on; this lookup is several times faster than triton's own
        key = (device.index, *[t if t is None else (t.dtype, t.data_ptr() % 16) for t in tensors])
        kept = self._compiled.get(key)
        if kept is not None:
            launch, arguments = kept
            launch(*tensors, *arguments)
            return
        arguments, options = self.arguments, {"num_warps": self.num_warps}
        if self.may_be_early:
            is_early = device.type == "cuda" and _launches_early(device.index)
            arguments = (*arguments, is_early)
            options |= {"launch_pdl": True} if is_early else {}
        compiled = self.kernel[self.grid](*tensors, *arguments, **options)
        if compiled is not None:  # the interpreter compiles nothing
            self._compiled[key] = compiled[self.grid], arguments


@cache
def _launches_early(device: int) -> bool:
    """Return whether kernels may start before the previous one has ended; tested on Hopper only."""
    if torch.version.hip is not None or os.environ.get("TRITON_INTERPRET") == "1":
        return False
    return torch.cuda.get_device_capability(device)[0] == 9


class _Tiling:
    """How the rows of a batch are cut into lanes, tiles and chunks; see the kernels."""

    def __init__(
        self,
        shape,
        steps,
        itemsize: int,
        hop: int,
        reach: int,
        sums: int,
        chunk_bytes: int = _CHUNK_BYTES,
        tile_samples: int = _TILE_SAMPLES,
        least_samples: int = 1,
    ):
        n_rows, length = shape[0] * shape[1], shape[2]
        self.vec, self.own = _lane(16 // itemsize, steps, hop, reach)
        if hop == 1:
            self.own = max(self.own, least_samples)
        self.unit = self.vec
        largest = min(256, max(32, _power_of_two(tile_samples // self.own + 1) // 2))
        self.block = min(largest, max(32, _power_of_two(-(-length // self.own))))
        tile = self.block * self.own
        n_tiles = -(-length // tile)
        # long chunks spend less time on sums, many chunks fill the device, and the sums that are
        # kept per chunk must stay under 1 % of the signal
        fill = n_rows * n_tiles // _ENOUGH_PROGRAMS
        least = -(-400 * sums // (tile * itemsize))
        self.tiles = max(1, least, min(fill, chunk_bytes // (tile * itemsize)))
        self.chunks = -(-n_tiles // self.tiles)
        self.lanes = (self.own, self.vec, self.unit, self.block)
        self.warps = self.block // 32


def _lane(widest: int, steps, hop: int, reach: int) -> tuple[int, int]:
    """Vector width and samples per lane: whole hops, whole vectors, a kernel of bounded size."""
    # every row starts at a multiple of it: wider vectors would be assembled in shared memory
    vec = math.gcd(widest, *steps)
    while vec > 1 and math.lcm(vec, hop) > hop and math.lcm(vec, hop) * reach > 512:
        vec //= 2
    own = math.lcm(vec, hop)
    return vec, own * -(-widest // own)


def _power_of_two(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def _n_leaky(spec: Spec) -> int:
    if spec.detrends_segments:
        return 0
    return 1 if spec.window == "boxcar" else min(2, n_bins(spec.filter_size))


def _hop(spec: Spec) -> int:
    return spec.filter_size - spec.filter_size // 2


def _contiguous(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.contiguous()


def with_unit_time_stride(x: Tensor) -> Tensor:
    """Return x with rows contiguous in memory; the strides of N and C may be anything."""
    return x if x.stride(-1) == 1 else x.contiguous()


@lru_cache(maxsize=256)
def _measure_plan(shape, stride, itemsize, spec: Spec):
    from psdnorm.ops.triton import kernels

    n, c, length = shape
    sums = spec.filter_size // 2 + 3 + _n_leaky(spec)
    tiling = _Tiling(
        shape, stride[:2], itemsize, _hop(spec), spec.filter_size, sums,
        least_samples=_LEAST_SAMPLES_OF_A_LANE,
    )  # fmt: skip
    sizes = (c, length, n_segments(length, spec.filter_size))
    steps = (tiling.chunks, tiling.tiles)
    in_units = (stride[0] // tiling.unit, stride[1] // tiling.unit)
    options = (spec.filter_size, WINDOWS[spec.window], spec.detrends_segments)
    measure = Launch(
        kernels.measure_kernel,
        (n * c * tiling.chunks, 1, 1),
        (*sizes, *in_units, *steps, *options, *tiling.lanes),
        tiling.warps,
        may_be_early=True,
    )
    chunks = min(1024, _power_of_two(tiling.chunks))
    how_eps = "none" if spec.is_pooled else spec.eps_mode
    finish = Launch(
        kernels.finish_measure_kernel,
        (n * c, 1, 1),
        (
            *sizes,
            *stride[:2],
            *steps,
            spec.eps,
            *options,
            tiling.block * tiling.own,
            chunks,
            how_eps,
        ),
        1,
        may_be_early=True,
    )
    return measure, finish, n * c * tiling.chunks * sums


def _measured(x: Tensor, spec: Spec) -> tuple[Tensor, Tensor, Tensor | None]:
    """Measure each row; pooled PSDs are raw, with the means of their leaky bins, (N, C, leaky)."""
    offset = x.new_empty(x.shape[:2], dtype=torch.float32)
    psd = x.new_empty((*x.shape[:2], n_bins(spec.filter_size)), dtype=torch.float32)
    means = offset.new_empty((*x.shape[:2], _n_leaky(spec))) if spec.is_pooled else None
    if offset.numel():
        measure, finish, n_partials = _measure_plan(x.shape, x.stride(), x.element_size(), spec)
        partials = offset.new_empty(n_partials)
        measure(x, partials)
        finish(x, partials, offset, psd, means)
    return offset, psd, means


def row_statistics(x: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """Measure each row; see :func:`psdnorm.ops.reference.row_statistics`."""
    return _measured(with_unit_time_stride(x), spec)[:2]


@lru_cache(maxsize=256)
def _pool_plan(shape, stride, spec: Spec):
    from psdnorm.ops.triton import kernels

    n, c, _ = shape
    sizes = (n, c, *stride[:2], spec.eps)
    options = spec.filter_size, WINDOWS[spec.window], spec.detrends_segments
    blocks = _pool_blocks(n, spec)
    flags = spec.center == "domain", spec.is_relative
    return Launch(
        kernels.pool_kernel, (n, c, 1), (*sizes, *options, *flags, *blocks), 1, may_be_early=True
    )


def _pool_blocks(n_rows: int, spec: Spec) -> tuple[int, int]:
    width = _power_of_two(n_bins(spec.filter_size))
    return width, min(_power_of_two(n_rows), max(1, 512 // width))


def domain_statistics(x: Tensor, groups: Groups, spec: Spec) -> tuple[Tensor, Tensor, Tensor]:
    """Measure domains; see :func:`psdnorm.ops.reference.domain_statistics`."""
    x = with_unit_time_stride(x)
    if groups.n_synced:  # sums over processes are made between kernels
        return reference.domain_statistics(x, groups, spec, _measure_about)
    offset, psd, means = _measured(x, spec)
    weights = torch.empty_like(offset)
    if offset.numel():
        _pool_plan(x.shape, x.stride(), spec)(x, offset, psd, means, groups.packed, weights)
    return offset, psd, weights


def _measure_about(
    x: Tensor, spec: Spec, known_offset: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Measure each row's mean, unless it is known, and the PSD about it, without eps."""
    offset, psd, means = _measured(x, spec)
    if known_offset is None or means is None:
        return offset, psd
    leaky = _n_leaky(spec)
    shift = known_offset - offset
    shift = shift.unsqueeze(-1) * reference.constant_leakage(spec, psd)[:leaky]
    psd[..., :leaky] += shift * (shift - 2 * means)
    return known_offset, psd.clamp_(min=0)


@lru_cache(maxsize=256)
def _filter_plan(shape, stride, itemsize, spec: Spec, has_weight, has_bias):
    from psdnorm.ops.triton import kernels

    n, c, length = shape
    steps = (*stride[:2], length)
    tiling = _Tiling(
        shape, steps, itemsize, 1, 1, 0,
        chunk_bytes=_FILTER_CHUNK_BYTES[spec.filter_size > 8],
        tile_samples=_FILTER_TILE_SAMPLES[spec.filter_size > 8],
    )  # fmt: skip
    in_units = (stride[0] // tiling.unit, stride[1] // tiling.unit)
    sizes = (c, length, *in_units, tiling.chunks, tiling.tiles)
    options = (spec.filter_size, spec.padding_mode, spec.is_relative, has_weight, has_bias)
    return Launch(
        kernels.filter_kernel,
        (n * c * tiling.chunks, 1, 1),
        (*sizes, *options, *tiling.lanes),
        tiling.warps,
        may_be_early=True,
    )


def normalize(
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Carry rows onto the target; see :func:`psdnorm.ops.reference.normalize`."""
    x = with_unit_time_stride(x)
    y = x.new_empty(x.shape)
    if offset.numel():
        has = weight is not None, bias is not None
        launch = _filter_plan(x.shape, x.stride(), x.element_size(), spec, *has)
        parameters = (_contiguous(t) for t in (offset, psd, sqrt_target, weight, bias))
        launch(x, y, *parameters)
    return y


@lru_cache(maxsize=256)
def _backward_plan(shape, stride, grad_stride, itemsize, spec: Spec, has_weight):
    from psdnorm.ops.triton import kernels

    n, c, length = shape
    bins = n_bins(spec.filter_size)
    sums = 1 + bins + _n_leaky(spec)
    steps = (*stride[:2], *grad_stride[:2], length)
    tiling = _Tiling(shape, steps, itemsize, _hop(spec), spec.filter_size, sums)
    in_units = tuple(step // tiling.unit for step in steps[:4])
    sizes = (c, length, n_segments(length, spec.filter_size))
    how = WINDOWS[spec.window], spec.padding_mode, spec.detrends_segments
    options = (spec.filter_size, *how)
    passes = (*sizes, *in_units, tiling.chunks, tiling.tiles, *options, *tiling.lanes)
    chunks = min(1024, _power_of_two(tiling.chunks))
    flags = has_weight, spec.is_relative, spec.statistics, spec.center == "domain"
    between = (*sizes, *grad_stride[:2], tiling.chunks, spec.eps, *options, *flags, chunks)
    chunked = (n * c * tiling.chunks, 1, 1)
    launches = (
        Launch(kernels.correlate_kernel, chunked, passes, tiling.warps, may_be_early=True),
        Launch(kernels.coefficients_kernel, (n * c, 1, 1), between, 1, may_be_early=True),
        Launch(kernels.gradient_kernel, chunked, passes, tiling.warps, may_be_early=True),
    )
    tilts = 2 if spec.detrends_segments and spec.window != "boxcar" else 0
    return launches, n * c * tiling.chunks * sums, (n, c, 2 * bins + 1 + tilts), (n, c, sums)


@lru_cache(maxsize=256)
def _pool_slopes_plan(n: int, c: int, length: int, spec: Spec):
    from psdnorm.ops.triton import kernels

    options = spec.filter_size, WINDOWS[spec.window], spec.detrends_segments
    flags = spec.center == "domain", spec.is_relative
    arguments = (n, c, length, spec.eps, *options, *flags, *_pool_blocks(n, spec))
    return Launch(kernels.pool_slopes_kernel, (n, c, 1), arguments, 1, may_be_early=True)


def _pool_slopes(
    between: Tensor, psd: Tensor, groups: Groups, coefficients: Tensor, length: int, spec: Spec
) -> None:
    """Finish the coefficients of rows whose PSD is that of their domain."""
    n, c, bins = psd.shape
    if not groups.n_synced:
        launch = _pool_slopes_plan(n, c, length, spec)
        launch(between, psd, groups.packed, coefficients)
        return
    # sums over processes are made here; then every row is a domain of its own
    slopes = between[..., 1 : 1 + bins]
    slopes.copy_(reference.pooled_slopes(slopes, psd, groups, spec))
    alone = spec._replace(center="row", eps_mode="absolute")
    rows = torch.arange(n + 1, device=psd.device)
    packed = torch.cat([rows[:-1], rows[:-1], rows])
    _pool_slopes_plan(n, c, length, alone)(between, psd, packed, coefficients)
    if spec.center == "domain":
        drift, valid = coefficients[..., 0], reference.valid_rows(psd)
        drift.copy_(groups.valid_mean(drift, valid))


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
    x, grad = with_unit_time_stride(x), with_unit_time_stride(grad)
    dx = x.new_empty(x.shape)
    row_sums = x.new_empty((*x.shape[:2], 2), dtype=torch.float32)
    if offset.numel():
        of_x = x.shape, x.stride(), grad.stride(), x.element_size()
        launches, n_partials, *shapes = _backward_plan(*of_x, spec, weight is not None)
        correlate, coefficients_of, apply = launches
        offset, psd, sqrt_target = offset.contiguous(), psd.contiguous(), sqrt_target.contiguous()
        weight = _contiguous(weight)
        partials = row_sums.new_empty(n_partials)
        coefficients = row_sums.new_empty(shapes[0])
        between = None if groups is None else row_sums.new_empty(shapes[1])
        correlate(x, grad, offset, partials)
        coefficients_of(grad, partials, psd, sqrt_target, weight, coefficients, row_sums, between)
        if groups is not None and between is not None:
            _pool_slopes(between, psd, groups, coefficients, x.shape[-1], spec)
        apply(x, grad, dx, offset, coefficients)
    return dx, row_sums


@lru_cache(maxsize=256)
def _barycenter_plan(n, c, bins, momentum, is_weighted, unit: Spec | None):
    from psdnorm.ops.triton import kernels

    width = _power_of_two(bins)
    block = min(_power_of_two(n), max(1, 2048 // width))
    spec = unit or Spec(2 * bins - 1)
    options = spec.filter_size, WINDOWS[spec.window], spec.detrends_segments
    sizes = (n, c, momentum, bins, width, block, is_weighted, unit is not None, *options)
    return Launch(kernels.barycenter_kernel, (c, 1, 1), sizes, 4, may_be_early=True)


def update_barycenter(
    psd: Tensor,
    weights: Tensor | None,
    sqrt_psd: Tensor,
    batches: Tensor,
    skipped: Tensor,
    momentum: float | None,
    unit: Spec | None = None,
) -> tuple[Tensor, Tensor]:
    """Update the running state in place in one launch; return the batch's sums and the target.

    The target is scaled to unit power if the spec is given.
    """
    n, c, bins = psd.shape
    total, target = torch.empty_like(sqrt_psd), torch.empty_like(sqrt_psd)
    momentum = -1.0 if momentum is None else float(momentum)
    launch = _barycenter_plan(n, c, bins, momentum, weights is not None, unit)
    launch(psd.contiguous(), _contiguous(weights), sqrt_psd, batches, skipped, total, target)
    return total, target
