"""Convolution, bias and ELU in one pass over the signal, for networks with few channels.

With 2 to 80 channels, libraries spend their time transposing (N, C, T) and back. In half precision
on a CUDA device, Triton kernels compute convolutions as products with banded matrices; otherwise
torch's own convolutions are used. The operators are functional and have fake-tensor kernels, so
torch.compile traces them without a graph break.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from psdnorm.errors import BackendError, ShapeError
from psdnorm.ops.reference import is_exporting
from psdnorm.ops.triton import HAS_TRITON, Launch, with_unit_time_stride

# with 110 channels the library was faster, with 80 much slower (docs/performance.md)
MOST_CHANNELS = 80
_HALF = (torch.bfloat16, torch.float16)
# enough programs to keep every multiprocessor busy
_ENOUGH_PROGRAMS = 1024
# how far windows may start from a multiple of their vectors
_ALIGNMENT = 4


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, elu: bool = False) -> Tensor:
    """Convolve (N, C, T) with an odd number K of taps, (C', C, K), and keep the length."""
    pad = weight.shape[-1] // 2
    if is_served(x, weight):
        return convolve(x.to(_dtype(x)), weight, bias, pad, 1, elu)
    y = F.conv1d(x, weight, bias, padding=pad)
    return F.elu(y, inplace=True) if elu else y


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None, elu: bool = False) -> Tensor:
    """Repeat every sample of (N, C, T) and convolve with two taps, now and next: (N, C', 2T)."""
    if is_served(x, weight):
        return convolve(x.to(_dtype(x)), weight, bias, 0, 2, elu)
    if x.device.type == "cpu" and _dtype(x) in _HALF:
        # oneDNN's transposed convolution in half precision kills the process on some processors
        y = F.conv1d(F.pad(x.repeat_interleave(2, dim=-1), (0, 1)), weight, bias)
        return F.elu(y, inplace=True) if elu else y
    now, following = weight.unbind(-1)
    # y[2i] = (now + following) x[i] and y[2i+1] = now x[i] + following x[i+1]; seen from the input,
    # each x[i] adds to y[2i-1], y[2i] and y[2i+1]
    taps = torch.stack([following, now + following, now], dim=-1).transpose(0, 1)
    y = F.conv_transpose1d(x, taps, bias, stride=2, padding=1, output_padding=1)
    return F.elu(y, inplace=True) if elu else y


def is_served(x: Tensor, weight: Tensor) -> bool:
    """Return whether the kernels support this convolution."""
    return (
        not is_exporting()
        and x.is_cuda
        and HAS_TRITON
        and _dtype(x) in _HALF
        and max(weight.shape[:2]) <= MOST_CHANNELS
        # positions within a sample are 32 bits in the kernels
        and MOST_CHANNELS * 2 * x.shape[-1] < 2**31
    )


def _dtype(x: Tensor) -> torch.dtype:
    # autocast leaves float64 alone
    in_autocast = x.dtype != torch.float64 and torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if in_autocast else x.dtype


class Grouping(NamedTuple):
    """For each ``step`` inputs, ``span`` outputs depend on ``window`` inputs from ``offset`` on."""

    step: int
    span: int
    offset: int
    window: int


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, pad: int, up: int, elu: bool
) -> Tensor:
    """Convolve x with each sample repeated ``up`` times; y[t] = Σ_k w[k] x[(t+k-pad)//up]."""
    if x.dim() != 3 or x.shape[1] != weight.shape[1]:
        raise ShapeError(
            f"a convolution with weights of shape {tuple(weight.shape)} expects (N, "
            f"{weight.shape[1]}, T), found {tuple(x.shape)}"
        )
    taps = weight.shape[-1]
    forward, adjoint = groupings(taps, pad, up)
    window, output, tap = _axes(forward, taps, x.device)
    reads = window == (output + tap - pad) // up
    matrix = _banded(weight.transpose(0, 1), reads)
    transposed = None
    if x.requires_grad and torch.is_grad_enabled():
        window, output, tap = _axes(adjoint, taps, x.device)
        reads = output == torch.div(window + tap - pad, up, rounding_mode="floor")
        transposed = _banded(weight, reads)
    return _convolve_op(x, matrix, transposed, bias, list(forward), list(adjoint), elu)


def groupings(taps: int, pad: int, up: int) -> tuple[Grouping, Grouping]:
    """Return how outputs depend on inputs, and how gradients of inputs depend on those of outputs.

    >>> groupings(taps=7, pad=3, up=1)[0]
    Grouping(step=8, span=8, offset=-4, window=16)
    """
    span = 8
    step = span // up
    forward = _grouping(step, span, -pad, (span - 1 + taps - 1 - pad) // up)
    # x[p] is read by the outputs t with up · p ≤ t + k - pad < up · (p + 1)
    adjoint = _grouping(span, step, pad - taps + 1, (step - 1) * up + pad + up - 1)
    return forward, adjoint


def _grouping(step: int, span: int, first: int, last: int) -> Grouping:
    offset = first // _ALIGNMENT * _ALIGNMENT
    # a power of two, so that the compiler sees whole vectors in it
    return Grouping(step, span, offset, max(8, 1 << (last - offset).bit_length()))


def _axes(grouping: Grouping, taps: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Positions in the window, outputs and taps, broadcastable to (window, span, taps)."""
    window = torch.arange(grouping.window, device=device) + grouping.offset
    output = torch.arange(grouping.span, device=device)
    return window[:, None, None], output[None, :, None], torch.arange(taps, device=device)


def _banded(weight: Tensor, reads: Tensor) -> Tensor:
    """Spread weights (A, B, K) by ``reads`` (window, span, K): (A · window, B · span)."""
    spread = weight[:, None, :, None, :] * reads[None, :, None, :, :]
    return spread.sum(dim=-1).flatten(2).flatten(0, 1)


def _within_reach(x: Tensor) -> Tensor:
    """Return x with a unit stride in time, and channel offsets that fit into 32 bits."""
    is_near = x.stride(1) * x.shape[1] < 2**31
    return with_unit_time_stride(x) if is_near else x.contiguous()


def _unit(*steps: int) -> int:
    """Largest vector size, up to 8 samples, that divides all steps."""
    return next(unit for unit in (8, 4, 2, 1) if all(step % unit == 0 for step in steps))


@lru_cache(maxsize=256)
def _convolve_plan(shape, stride, forward, c_out, has_bias, elu):
    from psdnorm.ops.triton import convolution_kernels

    step, span, offset, window = forward
    n, c_in, length = shape
    out_length = length * span // step
    unit, out_unit = _unit(*stride[:2]), _unit(out_length)
    groups, width, height = (128, 64, 32) if c_out * span <= 64 else (64, 128, 64)
    n_tiles, n_blocks = -(-out_length // (groups * span)), -(-c_out * span // width)
    arguments = (
        stride[0] // unit, stride[1] // unit, length, out_length // out_unit, n_tiles, c_in, c_out,
        step, offset, window, span, has_bias, elu, unit, out_unit, groups, width, height,
    )  # fmt: skip
    launch = Launch(convolution_kernels.convolve_kernel, (n * n_tiles, n_blocks, 1), arguments, 4)
    return launch, (0, -c_out * span % width, 0, -c_in * window % height)


def _convolve(
    x: Tensor,
    matrix: Tensor,
    transposed: Tensor | None,
    bias: Tensor | None,
    forward: list[int],
    adjoint: list[int],
    elu: bool,
) -> Tensor:
    """Multiply the windows of x, (N, C, T), by the matrix, (C · window, C' · span)."""
    x = _within_reach(x)
    step, span, _, _ = forward
    c_out = matrix.shape[1] // span
    y = x.new_empty(x.shape[0], c_out, x.shape[-1] * span // step)
    if y.numel():
        how = tuple(forward), c_out, bias is not None, elu
        launch, whole = _convolve_plan(x.shape, x.stride(), *how)
        bias = None if bias is None else bias.contiguous()
        launch(x, F.pad(matrix.to(x.dtype), whole), bias, y)
    return y


@lru_cache(maxsize=256)
def _gradient_plan(shape, stride, grad_shape, grad_stride, forward):
    from psdnorm.ops.triton import convolution_kernels

    step, span, offset, window = forward
    n, c_in, length = shape
    c_out, out_length = grad_shape[1:]
    unit, grad_unit = _unit(*stride[:2]), _unit(*grad_stride[:2])
    groups, width, height = 64, 64, 64
    blocks = (-(-(c_in * window + 1) // height), -(-c_out * span // width))
    n_tiles = -(-out_length // (groups * span))
    each = -(-n * n_tiles * blocks[0] * blocks[1] // _ENOUGH_PROGRAMS)
    n_parts = -(-n * n_tiles // each)
    arguments = (
        grad_stride[0] // grad_unit, grad_stride[1] // grad_unit,
        stride[0] // unit, stride[1] // unit, length, out_length, n_tiles, n * n_tiles, each,
        c_in, c_out, step, offset, window, span, unit, grad_unit, groups, width, height,
    )  # fmt: skip
    kernel = convolution_kernels.matrix_gradient_kernel
    return Launch(kernel, (n_parts, *blocks), arguments, 4), n_parts


def _matrix_gradient(grad: Tensor, x: Tensor, forward: list[int]) -> Tensor:
    """Gradient of the matrix, and of the bias in a last row: (C · window + 1, C' · span)."""
    grad, x = _within_reach(grad), _within_reach(x)
    size = (x.shape[1] * forward[3] + 1, grad.shape[1] * forward[1])
    if not grad.numel():
        return x.new_zeros(size, dtype=torch.float32)
    launch, n_parts = _gradient_plan(x.shape, x.stride(), grad.shape, grad.stride(), tuple(forward))
    parts = x.new_empty(n_parts, *size, dtype=torch.float32)
    launch(grad, x, parts)
    return parts.sum(dim=0)


def _keep_for_backward(ctx, inputs, output):
    x, _, transposed, bias, forward, adjoint, elu = inputs
    ctx.save_for_backward(x, transposed, output if elu else None)
    ctx.groupings = forward, adjoint
    ctx.bias_dtype = None if bias is None else bias.dtype


def _gradients(ctx, grad):
    x, transposed, y = ctx.saved_tensors
    forward, adjoint = ctx.groupings
    if y is not None:
        # ELU's derivative from its value: exp(z) = y + 1 where y < 0
        grad = torch.where(y > 0, grad, grad * (y + 1))
    dx = dmatrix = dbias = None
    if ctx.needs_input_grad[0]:
        if transposed is None:
            raise BackendError(
                "convolutions in half precision have no second derivative: use float32 for it"
            )
        dx = _convolve_op(grad, transposed, None, None, adjoint, forward, False)
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[3]:
        gradient = _gradient_op(grad, x, forward)
        dmatrix = gradient[:-1]
        if ctx.bias_dtype is not None:
            dbias = gradient[-1].view(-1, forward[1]).sum(dim=1).to(ctx.bias_dtype)
    return dx, dmatrix, None, dbias, None, None, None


# opaque to the compiler: code it traces through may get tensors with other strides than announced
_convolve_op = torch.library.custom_op("psdnorm::banded_convolve", _convolve, mutates_args=())
_gradient_op = torch.library.custom_op(
    "psdnorm::banded_gradient", _matrix_gradient, mutates_args=()
)


@_convolve_op.register_fake
def _(x, matrix, transposed, bias, forward, adjoint, elu):
    step, span, _, _ = forward
    return x.new_empty(x.shape[0], matrix.shape[1] // span, x.shape[-1] * span // step)


@_gradient_op.register_fake
def _(grad, x, forward):
    size = (x.shape[1] * forward[3] + 1, grad.shape[1] * forward[1])
    return x.new_empty(size, dtype=torch.float32)


_convolve_op.register_autograd(_gradients, setup_context=_keep_for_backward)
