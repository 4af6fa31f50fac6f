"""Triton kernels for convolutions with few channels; :mod:`psdnorm.ops.convolution` launches them.

With 2 to 80 channels a convolution has too little to multiply per sample for a matrix product over
channels. So neighbouring samples are grouped: SPAN outputs depend on a window of WINDOW inputs, in
the same way every STEP inputs, and the convolution is a product of windows, (groups, C · WINDOW),
with a banded matrix, (C · WINDOW, C' · SPAN). Windows are read as vectors rather than tap by tap,
and time stays the last axis, whereas libraries first transpose the signal.
"""

import triton
import triton.language as tl


@triton.jit
def _windows(x, stride_c, length, start, row, rows, WINDOW: tl.constexpr, EDGE: tl.constexpr):
    """Load sample row % WINDOW of channel row // WINDOW of the windows at ``start``."""
    position = start[:, None] + (row % WINDOW)[None, :]
    known = (row < rows)[None, :]
    if EDGE:
        known = known & (position >= 0) & (position < length)
    return tl.load(x + (row // WINDOW)[None, :] * stride_c + position, mask=known, other=0.0)


@triton.jit
def _products(
    total, x, stride_c, length, start, matrix, matrix_stride, c_in,
    WINDOW: tl.constexpr, EDGE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the products of windows with COLUMNS columns of the matrix."""
    for begin in range(0, c_in * WINDOW, ROWS):
        row = begin + tl.arange(0, ROWS)
        seen = _windows(x, stride_c, length, start, row, c_in * WINDOW, WINDOW, EDGE)
        m = tl.load(matrix + row[:, None] * matrix_stride + tl.arange(0, COLUMNS)[None, :])
        total = tl.dot(seen, m, total, input_precision="ieee")
    return total


@triton.jit
def convolve_kernel(
    x, matrix, bias, y, stride_n, stride_c, length, out_units, n_tiles, c_in, c_out,
    STEP: tl.constexpr, OFFSET: tl.constexpr, WINDOW: tl.constexpr, SPAN: tl.constexpr,
    HAS_BIAS: tl.constexpr, ELU: tl.constexpr, UNIT: tl.constexpr, OUT_UNIT: tl.constexpr,
    GROUPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Convolve GROUPS groups of SPAN samples, optionally with bias and ELU."""
    # the matrix is padded to whole blocks of ROWS and COLUMNS; strides of x are in units of UNIT
    # samples, the length of y in OUT_UNIT, so that the compiler knows the alignment of rows
    pid = tl.program_id(0)
    sample = (pid // n_tiles).to(tl.int64)
    tile = pid % n_tiles
    out_length = out_units * OUT_UNIT
    x += sample * stride_n * UNIT
    group = tile * GROUPS + tl.arange(0, GROUPS)
    start = group * STEP + OFFSET
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    matrix += tl.program_id(1) * COLUMNS
    matrix_stride = tl.num_programs(1) * COLUMNS
    total = tl.zeros((GROUPS, COLUMNS), tl.float32)
    first = tile * (GROUPS * STEP) + OFFSET
    if (first >= 0) & (first + (GROUPS - 1) * STEP + WINDOW <= length):
        total = _products(
            total, x, stride_c * UNIT, length, start, matrix, matrix_stride, c_in,
            WINDOW, False, ROWS, COLUMNS,
        )  # fmt: skip
    else:
        total = _products(
            total, x, stride_c * UNIT, length, start, matrix, matrix_stride, c_in,
            WINDOW, True, ROWS, COLUMNS,
        )  # fmt: skip
    channel = column // SPAN
    if HAS_BIAS:
        total += tl.load(bias + channel, mask=channel < c_out, other=0.0).to(tl.float32)[None, :]
    if ELU:
        total = tl.where(total > 0, total, tl.exp(total) - 1)
    result = total.to(y.dtype.element_ty)
    time = group[:, None] * SPAN + (column % SPAN)[None, :]
    out = y + sample * c_out * out_length + (channel * out_length)[None, :] + time
    known = (column < c_out * SPAN)[None, :]
    if (tile + 1) * (GROUPS * SPAN) <= out_length:
        tl.store(out, result, mask=known)
    else:
        tl.store(out, result, mask=known & (time < out_length))


@triton.jit
def _outer_products(
    total, grad, grad_stride_c, out_length, time, x, stride_c, length, start, row, column,
    c_in, c_out,
    WINDOW: tl.constexpr, SPAN: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Add a tile's products of windows with gradients; the last row of windows is all ones."""
    seen = _windows(x, stride_c, length, start, row, c_in * WINDOW, WINDOW, EDGE)
    seen = tl.where((row == c_in * WINDOW)[None, :], 1.0, seen.to(tl.float32)).to(seen.dtype)
    at = time[:, None] + (column % SPAN)[None, :]
    known = (column < c_out * SPAN)[None, :]
    if EDGE:
        known = known & (at < out_length)
    g = tl.load(grad + (column // SPAN)[None, :] * grad_stride_c + at, mask=known, other=0.0)
    return tl.dot(tl.trans(seen), g, total, input_precision="ieee")


@triton.jit
def matrix_gradient_kernel(
    grad, x, partials, grad_stride_n, grad_stride_c, stride_n, stride_c, length, out_length,
    n_tiles, n_all_tiles, tiles_each, c_in, c_out,
    STEP: tl.constexpr, OFFSET: tl.constexpr, WINDOW: tl.constexpr, SPAN: tl.constexpr,
    UNIT: tl.constexpr, GRAD_UNIT: tl.constexpr,
    GROUPS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of the matrix, and of the bias in its last row, over some tiles."""
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    begin = tl.program_id(0) * tiles_each
    for index in range(begin, min(begin + tiles_each, n_all_tiles)):
        sample = (index // n_tiles).to(tl.int64)
        tile = index % n_tiles
        group = tile * GROUPS + tl.arange(0, GROUPS)
        start = group * STEP + OFFSET
        x_at = x + sample * stride_n * UNIT
        grad_at = grad + sample * grad_stride_n * GRAD_UNIT
        first = tile * (GROUPS * STEP) + OFFSET
        inside = (first >= 0) & (first + (GROUPS - 1) * STEP + WINDOW <= length)
        if inside & ((tile + 1) * (GROUPS * SPAN) <= out_length):
            total = _outer_products(
                total, grad_at, grad_stride_c * GRAD_UNIT, out_length, group * SPAN,
                x_at, stride_c * UNIT, length, start, row, column, c_in, c_out,
                WINDOW, SPAN, False,
            )  # fmt: skip
        else:
            total = _outer_products(
                total, grad_at, grad_stride_c * GRAD_UNIT, out_length, group * SPAN,
                x_at, stride_c * UNIT, length, start, row, column, c_in, c_out,
                WINDOW, SPAN, True,
            )  # fmt: skip
    rows = c_in * WINDOW + 1
    out = partials + tl.program_id(0).to(tl.int64) * (rows * c_out * SPAN)
    kept = (row < rows)[:, None] & (column < c_out * SPAN)[None, :]
    tl.store(out + row[:, None] * (c_out * SPAN) + column[None, :], total, mask=kept)
