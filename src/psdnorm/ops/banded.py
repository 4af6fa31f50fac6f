"""Convolutions as products with banded matrices: operators over the Triton kernels.

The operators are functional, and torch.compile sees through them to the kernels. Importing this
module imports triton.
"""

import os
from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton
from torch.nn import functional as F

from psdnorm.ops import kernels_banded

# enough programs to keep every multiprocessor busy
_ENOUGH_PROGRAMS = 1024
# how far windows may start from a multiple of their vectors
_ALIGNMENT = 4


class Grouping(NamedTuple):
    """How outputs depend on inputs, the same way at every ``step`` inputs.

    ``span`` outputs depend on ``window`` inputs, from ``offset`` on.
    """

    step: int
    span: int
    offset: int
    window: int


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, pad: int, up: int, elu: bool
) -> Tensor:
    """Convolve x, each sample of it repeated ``up`` times; y[t] = Σ_k weight[k] x[(t+k-pad)//up].

    Parameters
    ----------
    x : Tensor, (N, C, T)
    weight : Tensor, (C', C, K)
    bias : Tensor, (C',), or None
    pad : int
    up : int
    elu : bool
        Apply ELU to the result.

    Returns
    -------
    Tensor, (N, C', up · T)
    """
    taps = weight.shape[-1]
    forward, adjoint = groupings(taps, pad, up)
    window, output, tap = _axes(forward, taps, x.device)
    reads = window == (output + tap - pad) // up
    matrix = _banded(weight.transpose(0, 1), reads)
    window, output, tap = _axes(adjoint, taps, x.device)
    reads = output == torch.div(window + tap - pad, up, rounding_mode="floor")
    transposed = _banded(weight.detach(), reads)
    return _convolve(x, matrix, transposed, bias, list(forward), list(adjoint), elu)


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
    """Positions in the window, outputs and taps, to be broadcast: (window, span, taps)."""
    window = torch.arange(grouping.window, device=device) + grouping.offset
    output = torch.arange(grouping.span, device=device)
    return window[:, None, None], output[None, :, None], torch.arange(taps, device=device)


def _banded(weight: Tensor, reads: Tensor) -> Tensor:
    """Spread weights (A, B, K) by ``reads`` (window, span, K): (A · window, B · span)."""
    spread = weight[:, None, :, None, :] * reads[None, :, None, :, :]
    return spread.sum(dim=-1).flatten(2).flatten(0, 1)


def _with_unit_time_stride(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _unit(*steps: int) -> int:
    """Largest vector, up to 8 samples, that all steps are multiples of."""
    return next(unit for unit in (8, 4, 2, 1) if all(step % unit == 0 for step in steps))


def _launch(kernel, grid, *arguments, **options):
    # torch does not know the interpreter's kernels
    if os.environ.get("TRITON_INTERPRET") != "1":
        kernel = wrap_triton(kernel)
    kernel[grid](*arguments, **options)


@triton_op("psdnorm::banded_convolve", mutates_args=())
def _convolve(
    x: Tensor,
    matrix: Tensor,
    transposed: Tensor,
    bias: Tensor | None,
    forward: list[int],
    adjoint: list[int],
    elu: bool,
) -> Tensor:
    """Multiply the windows of x, (N, C, T), by the matrix, (C · window, C' · span)."""
    x = _with_unit_time_stride(x)
    step, span, offset, window = forward
    n, c_in, length = x.shape
    rows, columns = matrix.shape
    out_length = length * span // step
    y = x.new_empty(n, columns // span, out_length)
    unit, out_unit = _unit(x.stride(0), x.stride(1)), _unit(out_length)
    groups, width, height = (128, 64, 32) if columns <= 64 else (64, 128, 64)
    n_tiles, n_blocks = -(-out_length // (groups * span)), -(-columns // width)
    whole = (0, n_blocks * width - columns, 0, -rows % height)
    _launch(
        kernels_banded.convolve_kernel, (n * n_tiles, n_blocks, 1),
        x, F.pad(matrix.to(x.dtype), whole), bias, y, x.stride(0) // unit, x.stride(1) // unit,
        length, out_length // out_unit, n_tiles, c_in, columns // span, step, offset, window, span,
        bias is not None, elu, unit, out_unit, groups, width, height,
        num_warps=4,
    )  # fmt: skip
    return y


@triton_op("psdnorm::banded_gradient", mutates_args=())
def _matrix_gradient(grad: Tensor, x: Tensor, forward: list[int]) -> Tensor:
    """Differentiate by the matrix, and by the bias in a last row: (C · window + 1, C' · span)."""
    grad, x = _with_unit_time_stride(grad), _with_unit_time_stride(x)
    step, span, offset, window = forward
    n, c_in, length = x.shape
    c_out, out_length = grad.shape[1:]
    rows, columns = c_in * window + 1, c_out * span
    unit = _unit(x.stride(0), x.stride(1))
    grad_unit = _unit(grad.stride(0), grad.stride(1))
    groups, width, height = 64, 64, 64
    blocks = (-(-rows // height), -(-columns // width))
    n_tiles = -(-out_length // (groups * span))
    each = -(-n * n_tiles * blocks[0] * blocks[1] // _ENOUGH_PROGRAMS)
    splits = -(-n * n_tiles // each)
    partials = x.new_empty(splits, rows, columns, dtype=torch.float32)
    _launch(
        kernels_banded.matrix_gradient_kernel, (splits, *blocks),
        grad, x, partials, grad.stride(0) // grad_unit, grad.stride(1) // grad_unit,
        x.stride(0) // unit, x.stride(1) // unit, length, out_length, n_tiles, n * n_tiles, each,
        c_in, c_out, step, offset, window, span, unit, grad_unit, groups, width, height,
        num_warps=4,
    )  # fmt: skip
    return partials.sum(dim=0)


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
        # the operator of the gradient has no use for the way back
        dx = _convolve(grad, transposed, transposed, None, adjoint, adjoint, False)
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[3]:
        gradient = _matrix_gradient(grad, x, forward)
        dmatrix = gradient[:-1]
        if ctx.bias_dtype is not None:
            dbias = gradient[-1].view(-1, forward[1]).sum(dim=1).to(ctx.bias_dtype)
    return dx, dmatrix, None, dbias, None, None, None


_convolve.register_autograd(_gradients, setup_context=_keep_for_backward)
