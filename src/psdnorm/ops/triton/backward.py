"""Triton kernels of the backward pass of the fused backend; see :mod:`psdnorm.ops.triton.forward`.

With g the gradient of the output, a first pass over x and g sums up what the gradient of a row's
taps needs, O(f) numbers; a second one applies the gradients through filter, PSD and mean.
"""

# tuples grow by + here, because that is what triton compiles, and change their type as they do
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment"

import triton
import triton.language as tl

from psdnorm.ops.triton.forward import (
    _convolve,
    _cosine,
    _has_tilted_gradient,
    _leaky_bins,
    _load,
    _mirrored,
    _real_bin,
    _round_up,
    _row,
    _split_tap,
    _store,
    _taper,
    _taper_spectrum,
    _taps,
    _zeros,
    begin_launch,
)

# up to here a tile inside the row has code of its own, without masks; beyond it only loads have,
# because compiling takes too long otherwise
LARGE_FILTER = tl.constexpr(8)


@triton.jit
def _correlate_tile(
    sums, row, grad_row, first, length, n_segments, pivot, offset, interior,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    EDGE: tl.constexpr, OWN: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a tile to (Σg, Σ g_n (x_{n-m} + x_{n+m}) of all lags, Σ Re X_k of the leaky bins)."""
    BINS: tl.constexpr = FILTER // 2 + 1
    HOP: tl.constexpr = FILTER - FILTER // 2
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    if interior:
        x = _load(row, first, length, pivot, offset, -HALO, OWN + HALO, PADDING, False, VEC, BLOCK)
        g = _load(grad_row, first, length, 0.0, 0.0, 0, OWN, "none", False, VEC, BLOCK)
    else:
        x = _load(row, first, length, pivot, offset, -HALO, OWN + HALO, PADDING, True, VEC, BLOCK)
        g = _load(grad_row, first, length, 0.0, 0.0, 0, OWN, "none", True, VEC, BLOCK)
    total = sums[0]
    for j in tl.static_range(OWN):
        total += g[j]
    updated = (total,)
    for m in tl.static_range(BINS):
        product = sums[1 + m]
        for j in tl.static_range(OWN):
            if m == 0:
                product = tl.fma(g[j], x[HALO + j], product)
            else:
                product = tl.fma(g[j], x[HALO + j - m] + x[HALO + j + m], product)
        updated = updated + (product,)
    for k in tl.static_range(_leaky_bins(FILTER, TAPER, DETREND)):
        mean = sums[1 + BINS + k]
        for q in tl.static_range(OWN // HOP):
            real = _real_bin(x, HALO + q * HOP, k, FILTER, TAPER, DETREND)
            if EDGE:
                real = tl.where(first // HOP + q < n_segments, real, 0.0)
            mean += real
        updated = updated + (mean,)
    return updated


@triton.jit
def correlate_kernel(
    x, grad, offsets, partials, n_channels, length, n_segments,
    stride_n, stride_c, grad_stride_n, grad_stride_c, n_chunks, n_tiles,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """First pass over one chunk of one row: the sums of _correlate_tile."""
    TILE: tl.constexpr = BLOCK * OWN
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    COUNT: tl.constexpr = 1 + FILTER // 2 + 1 + _leaky_bins(FILTER, TAPER, DETREND)
    begin_launch(EARLY)
    pid = tl.program_id(0)
    index = pid // n_chunks
    row = _row(x, index, n_channels, stride_n, stride_c, UNIT)
    grad_row = _row(grad, index, n_channels, grad_stride_n, grad_stride_c, UNIT)
    pivot = tl.load(row).to(tl.float32)
    offset = tl.load(offsets + index)
    begin = (pid % n_chunks) * n_tiles
    sums = _zeros(COUNT, BLOCK)
    for tile in range(begin, min(begin + n_tiles, tl.cdiv(length, TILE))):
        first = tile * TILE + tl.arange(0, BLOCK) * OWN
        interior = (tile * TILE >= HALO) & ((tile + 1) * TILE + HALO <= length)
        if FILTER > LARGE_FILTER:
            sums = _correlate_tile(
                sums, row, grad_row, first, length, n_segments, pivot, offset, interior,
                FILTER, TAPER, PADDING, DETREND, True, OWN, VEC, BLOCK,
            )  # fmt: skip
        elif interior:
            sums = _correlate_tile(
                sums, row, grad_row, first, length, n_segments, pivot, offset, True,
                FILTER, TAPER, PADDING, DETREND, False, OWN, VEC, BLOCK,
            )  # fmt: skip
        else:
            sums = _correlate_tile(
                sums, row, grad_row, first, length, n_segments, pivot, offset, False,
                FILTER, TAPER, PADDING, DETREND, True, OWN, VEC, BLOCK,
            )  # fmt: skip
    for i in tl.static_range(COUNT):
        tl.store(partials + pid.to(tl.int64) * COUNT + i, tl.sum(sums[i]))


@triton.jit
def _sum_chunks(partials, n_chunks, COUNT: tl.constexpr, CHUNKS: tl.constexpr):
    total = 0.0
    for begin in range(0, n_chunks, CHUNKS):
        chunk = begin + tl.arange(0, CHUNKS)
        total += tl.sum(tl.load(partials + chunk * COUNT, mask=chunk < n_chunks, other=0.0))
    return total


@triton.jit
def _lost_at_ends(grad_row, length, taps, FILTER: tl.constexpr):
    """Return what of the gradient's filtered sum falls beyond the ends of a zero-padded row."""
    lost = 0.0
    reaching = 0.0
    for m in tl.static_range(FILTER // 2, 0, -1):
        # at distance m - 1 from an end, the taps from m on reach beyond it
        reaching += taps[m]
        first = tl.load(grad_row + (m - 1)).to(tl.float32)
        last = tl.load(grad_row + (length - m)).to(tl.float32)
        lost += reaching * (first + last)
    return lost


@triton.jit
def _coefficients(
    grad_row, total, lags, means, psd, sqrt_target, index, channel, scale, length, n_segments,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
):  # fmt: skip
    """Between the passes: a row's Σ g y, mean gradient, taps, PSD coefficients a_m and tilts."""
    BINS: tl.constexpr = FILTER // 2 + 1
    gains, taps = _taps(psd, sqrt_target, index, channel, 1.0, FILTER)
    response = 0.0
    gain_at_zero = 0.0
    for m in tl.static_range(BINS):
        response += taps[m] * lags[m]
        gain_at_zero += taps[m] * (1.0 if m == 0 else 2.0)
    # the gradient with respect to the centred row sums to this; centring subtracts its mean
    drift = gain_at_zero * total
    if PADDING == "zeros":
        drift -= _lost_at_ends(grad_row, length, taps, FILTER)
    drift *= scale
    slopes = ()
    for k in tl.static_range(BINS):
        slope = 0.0
        for m in tl.static_range(BINS):
            slope += lags[m] * (_split_tap(m, FILTER) * _cosine(k * m, FILTER))
        power = tl.load(psd + index * BINS + k)
        # dL/dP_k, from D_k = target / √P_k, with the 2 / L of the PSD
        slope *= scale * (-_mirrored(k, FILTER) / FILTER) * gains[k] / (power * n_segments)
        slopes = slopes + (slope,)
        if k < _leaky_bins(FILTER, TAPER, DETREND):
            drift += slope * means[k] * _taper_spectrum(k, FILTER, TAPER)
    tilts = ()
    if _has_tilted_gradient(TAPER, DETREND):
        for k in tl.static_range(2):
            tilts = tilts + (slopes[k] * (_taper_spectrum(k, FILTER, TAPER) / FILTER),)
    # of segments without their means, a flat window sees nothing in bin 0
    FIRST: tl.constexpr = 1 if DETREND and TAPER == 1.0 else 0
    scaled = ()
    a = ()
    for m in tl.static_range(BINS):
        value = 0.0
        for k in tl.static_range(FIRST, BINS):
            value += slopes[k] * _cosine(k * m, FILTER)
        # a rectangular window has all its weights here, once
        a = a + (value * (1.0 / FILTER if TAPER == 1.0 else 1.0),)
        scaled = scaled + (taps[m] * scale,)
    return response, drift / length, scaled, a, tilts


@triton.jit
def coefficients_kernel(
    grad, partials, psd, sqrt_target, weight, coefficients, row_sums,
    n_channels, length, n_segments, grad_stride_n, grad_stride_c, n_chunks,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, CHUNKS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Between the passes: what the second one needs to know about one row.

    Also the row's share of the gradients of weight and bias.
    """
    BINS: tl.constexpr = FILTER // 2 + 1
    LEAKY: tl.constexpr = _leaky_bins(FILTER, TAPER, DETREND)
    TILTS: tl.constexpr = 2 if _has_tilted_gradient(TAPER, DETREND) else 0
    COUNT: tl.constexpr = 1 + BINS + LEAKY
    begin_launch(EARLY)
    index = tl.program_id(0).to(tl.int64)
    channel = index % n_channels
    partials += index * n_chunks * COUNT
    coefficients += index * (2 * BINS + 1 + TILTS)
    scale = tl.load(weight + channel).to(tl.float32) if HAS_WEIGHT else 1.0
    grad_row = _row(grad, index, n_channels, grad_stride_n, grad_stride_c, 1)
    total = _sum_chunks(partials, n_chunks, COUNT, CHUNKS)
    lags = ()
    for m in tl.static_range(BINS):
        lags = lags + (_sum_chunks(partials + 1 + m, n_chunks, COUNT, CHUNKS),)
    means = ()
    for k in tl.static_range(LEAKY):
        means = means + (_sum_chunks(partials + 1 + BINS + k, n_chunks, COUNT, CHUNKS),)
    response, drift, taps, a, tilts = _coefficients(
        grad_row, total, lags, means, psd, sqrt_target, index, channel, scale, length, n_segments,
        FILTER, TAPER, PADDING, DETREND,
    )  # fmt: skip
    tl.store(row_sums + index * 2, response)
    tl.store(row_sums + index * 2 + 1, total)
    tl.store(coefficients, drift)
    for m in tl.static_range(BINS):
        tl.store(coefficients + 1 + m, taps[m])
        tl.store(coefficients + 1 + BINS + m, a[m])
    for k in tl.static_range(TILTS):
        tl.store(coefficients + 1 + 2 * BINS + k, tilts[k])


@triton.constexpr_function
def _circular_distance(t, s, size):
    return min((t - s) % size, (s - t) % size)


@triton.jit
def _segment_gradient(
    x, a, START: tl.constexpr, T: tl.constexpr, FILTER: tl.constexpr, TAPER: tl.constexpr
):
    """Gradient through the PSD at sample T of the segment that starts at column START."""
    value = tl.zeros_like(x[START])
    for s in tl.static_range(FILTER):
        sample = x[START + s] if TAPER == 1.0 else x[START + s] * _taper(s, FILTER, TAPER)
        value = tl.fma(sample, a[_circular_distance(T, s, FILTER)], value)
    return value if TAPER == 1.0 else value * _taper(T, FILTER, TAPER)


@triton.jit
def _psd_gradient(
    x, a, tilts, START: tl.constexpr, T: tl.constexpr,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
):  # fmt: skip
    """Return the same of a segment that loses its mean, if it does: its gradient has none then."""
    if _has_tilted_gradient(TAPER, DETREND):
        mean = x[START]
        for s in tl.static_range(1, FILTER):
            mean += x[START + s]
        mean *= 1.0 / FILTER
        segment = ()
        for s in tl.static_range(FILTER):
            segment = segment + (x[START + s] - mean,)
        value = _segment_gradient(segment, a, 0, T, FILTER, TAPER)
        for k in tl.static_range(2):
            value -= tilts[k] * _real_bin(segment, 0, k, FILTER, TAPER, False)
    else:
        value = _segment_gradient(x, a, START, T, FILTER, TAPER)
    return value


@triton.jit
def _double_ends(g, first, length, COUNT: tl.constexpr):
    doubled = ()
    for j in tl.static_range(COUNT):
        end = (first + j == 0) | (first + j == length - 1)
        doubled = doubled + (tl.where(end, 2 * g[j], g[j]),)
    return doubled


@triton.jit
def _end_images(grad_row, length, taps, LAGS: tl.constexpr):
    """Return what the mirrored gradient adds too much at the first and at the last sample."""
    left = 0.0
    right = 0.0
    for m in tl.static_range(LAGS):
        left += taps[m] * tl.load(grad_row + m).to(tl.float32)
        right += taps[m] * tl.load(grad_row + length - 1 - m).to(tl.float32)
    return left, right


@triton.jit
def _gradient_tile(
    row, grad_row, out, first, length, n_segments, pivot, offset, drift, taps, a, tilts,
    interior,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    EDGE: tl.constexpr, OWN: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    LAGS: tl.constexpr = FILTER // 2 + 1
    HOP: tl.constexpr = FILTER - FILTER // 2
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    # the segment before reaches into the first samples of a lane, unless segments do not overlap
    BEFORE: tl.constexpr = _round_up(HOP, VEC) if FILTER > 1 else 0
    if interior:
        x = _load(row, first, length, pivot, offset, -BEFORE, OWN + HALO, "none", False, VEC, BLOCK)
        g = _load(grad_row, first, length, 0.0, 0.0, -HALO, OWN + HALO, PADDING, False, VEC, BLOCK)
    else:
        x = _load(row, first, length, pivot, offset, -BEFORE, OWN + HALO, "none", True, VEC, BLOCK)
        g = _load(grad_row, first, length, 0.0, 0.0, -HALO, OWN + HALO, PADDING, True, VEC, BLOCK)
    MIRROR: tl.constexpr = EDGE and PADDING == "reflect" and FILTER > 1
    if MIRROR:
        # each mirror image adds to the sample it was taken from, as if the gradient were mirrored
        # with its ends doubled; only the end samples themselves have no image
        g = _double_ends(g, first - HALO, length, OWN + 2 * HALO)
        left, right = _end_images(grad_row, length, taps, LAGS)
    dx = ()
    for j in tl.static_range(OWN):
        value = _convolve(g, taps, HALO + j, LAGS) - drift
        if MIRROR:
            value -= tl.where(first + j == 0, left, 0.0)
            value -= tl.where(first + j == length - 1, right, 0.0)
        own = _psd_gradient(x, a, tilts, BEFORE + j // HOP * HOP, j % HOP, FILTER, TAPER, DETREND)
        segment = first // HOP + j // HOP
        value += tl.where(segment < n_segments, own, 0.0) if EDGE else own
        if j % HOP + HOP < FILTER:
            before = _psd_gradient(
                x, a, tilts, BEFORE + j // HOP * HOP - HOP, j % HOP + HOP, FILTER, TAPER, DETREND
            )
            valid = (segment > 0) & (segment <= n_segments)
            value += tl.where(valid, before, 0.0) if EDGE else before
        dx = dx + (value,)
    if interior:
        _store(out, first, length, dx, OWN, False, VEC, BLOCK)
    else:
        _store(out, first, length, dx, OWN, True, VEC, BLOCK)


@triton.jit
def gradient_kernel(
    x, grad, dx, offsets, coefficients, n_channels, length, n_segments,
    stride_n, stride_c, grad_stride_n, grad_stride_c, n_chunks, n_tiles,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Second pass over one chunk of one row: gradients through filter, PSD and mean."""
    TILE: tl.constexpr = BLOCK * OWN
    BINS: tl.constexpr = FILTER // 2 + 1
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    BEFORE: tl.constexpr = max(HALO, _round_up(FILTER - FILTER // 2, VEC))
    begin_launch(EARLY)
    pid = tl.program_id(0)
    index = pid // n_chunks
    row = _row(x, index, n_channels, stride_n, stride_c, UNIT)
    grad_row = _row(grad, index, n_channels, grad_stride_n, grad_stride_c, UNIT)
    out = dx + index.to(tl.int64) * (length // UNIT) * UNIT
    pivot = tl.load(row).to(tl.float32)
    offset = tl.load(offsets + index)
    TILTS: tl.constexpr = 2 if _has_tilted_gradient(TAPER, DETREND) else 0
    coefficients += index.to(tl.int64) * (2 * BINS + 1 + TILTS)
    drift = tl.load(coefficients)
    taps = ()
    a = ()
    for m in tl.static_range(BINS):
        taps = taps + (tl.load(coefficients + 1 + m),)
        a = a + (tl.load(coefficients + 1 + BINS + m),)
    tilts = ()
    for k in tl.static_range(TILTS):
        tilts = tilts + (tl.load(coefficients + 1 + 2 * BINS + k),)
    begin = (pid % n_chunks) * n_tiles
    for tile in range(begin, min(begin + n_tiles, tl.cdiv(length, TILE))):
        first = tile * TILE + tl.arange(0, BLOCK) * OWN
        interior = (tile * TILE >= BEFORE) & ((tile + 1) * TILE + HALO <= length)
        if FILTER > LARGE_FILTER:
            _gradient_tile(
                row, grad_row, out, first, length, n_segments, pivot, offset, drift, taps, a, tilts,
                interior,
                FILTER, TAPER, PADDING, DETREND, True, OWN, VEC, BLOCK,
            )  # fmt: skip
        elif interior:
            _gradient_tile(
                row, grad_row, out, first, length, n_segments, pivot, offset, drift, taps, a, tilts,
                True,
                FILTER, TAPER, PADDING, DETREND, False, OWN, VEC, BLOCK,
            )  # fmt: skip
        else:
            _gradient_tile(
                row, grad_row, out, first, length, n_segments, pivot, offset, drift, taps, a, tilts,
                False,
                FILTER, TAPER, PADDING, DETREND, True, OWN, VEC, BLOCK,
            )  # fmt: skip
