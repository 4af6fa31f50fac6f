"""Triton kernels for statistics, filter, gradient and running barycenter.

Imported on first use only, because it imports triton. In the backward pass, with g the gradient of
the output, a first pass over x and g sums the O(f) numbers that the gradient of a row's taps needs;
a second one applies the gradients through filter, PSD and mean.
"""

# tuples grow by + here, because triton compiles only that, and change their type as they grow
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment"

import math

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# up to this size, tiles inside the row have their own code without masks; beyond it only their
# loads do, because compiling would take too long
LARGE_FILTER = tl.constexpr(8)
# beyond it the power about another mean may be infinite: √(largest float32 / 16)
LARGEST_MEAN = tl.constexpr(4.6e18)


@triton.constexpr_function
def _cosine(turns, period):
    return math.cos(2 * math.pi * (turns % period) / period)


@triton.constexpr_function
def _sine(turns, period):
    return math.sin(2 * math.pi * (turns % period) / period)


@triton.constexpr_function
def _taper(t, size, a):
    """Sample t of a periodic generalised cosine window of unit Euclidean norm."""
    w = [a - (1 - a) * math.cos(2 * math.pi * s / size) for s in range(size)] if size > 1 else [1.0]
    return w[t % size] / math.sqrt(sum(v * v for v in w))


@triton.constexpr_function
def _taper_spectrum(k, size, a):
    """Bin k of the window's DFT; real, because the window is even."""
    return sum(_taper(t, size, a) * _cosine(k * t, size) for t in range(size))


@triton.constexpr_function
def _mirrored(k, size):
    """Count the bins of the full spectrum that the kept bin k stands for."""
    return 1.0 if k == 0 or 2 * k == size else 2.0


@triton.constexpr_function
def _split_tap(m, size):
    """Share of lag m on either side: an even filter's tap at lag f / 2 is split in two."""
    return 0.5 if 2 * m == size else 1.0


@triton.constexpr_function
def _round_up(value, step):
    return -(-value // step) * step


@triton.constexpr_function
def _cosine_weight(t, k, size, a, detrend):
    """Weight of sample t of a segment in the real part of bin k."""
    weight = _taper(t, size, a) * _cosine(k * t, size)
    if not detrend or k > 1:  # beyond bin 1 the weights of every window have zero mean
        return weight
    # centring the weights is the same as centring the segment; relative to the first weight, equal
    # ones become exact zeros
    first = _taper(0, size, a)
    rest = sum(_taper(s, size, a) * _cosine(k * s, size) - first for s in range(size))
    return (weight - first) - rest / size


@triton.constexpr_function
def _leaky_bins(size, a, detrend):
    """Count the bins, from 0 on, that a constant leaks into through the window."""
    if detrend:
        return 0
    return 1 if a == 1.0 else min(2, size // 2 + 1)


@triton.constexpr_function
def _has_tilted_gradient(a, detrend):
    """Return whether segments are centred before a window that is not flat.

    With a flat window only bin 0 changes, which then has no power.
    """
    return detrend and a != 1.0


@triton.constexpr_function
def _share_of_power(k, size, a, detrend):
    """Weight of the kept bin k in the mean power of a spectrum."""
    empty = 1 if detrend and a == 1.0 else 0
    return 0.0 if k < empty else _mirrored(k, size) / (size - empty)


@triton.jit
def begin_launch(EARLY: tl.constexpr):
    """Let the next kernel be launched, and wait for all writes of the previous one.

    EARLY kernels are launched before the previous one has ended, and are ready when it has.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def _columns_of(tile, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Split a tile (BLOCK, WIDTH) into its columns; this renames registers, without moving data."""
    if WIDTH == 1:
        columns = (tl.reshape(tile, (BLOCK,)),)
    else:
        even, odd = tl.split(tl.reshape(tile, (BLOCK, WIDTH // 2, 2)))
        evens = _columns_of(even, BLOCK, WIDTH // 2)
        odds = _columns_of(odd, BLOCK, WIDTH // 2)
        columns = ()
        for i in tl.static_range(WIDTH // 2):
            columns = columns + (evens[i], odds[i])
    return columns


@triton.jit
def _tile_of(
    columns, START: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """Join columns START, START + STEP, … into a tile (BLOCK, WIDTH); inverse of _columns_of."""
    if WIDTH == 1:
        tile = tl.reshape(columns[START], (BLOCK, 1))
    else:
        even = _tile_of(columns, START, 2 * STEP, BLOCK, WIDTH // 2)
        odd = _tile_of(columns, START + STEP, 2 * STEP, BLOCK, WIDTH // 2)
        tile = tl.reshape(tl.join(even, odd), (BLOCK, WIDTH))
    return tile


@triton.jit
def _source(n, length, PADDING: tl.constexpr):
    """Index of the sample that padding puts at position n; outside the row where there is none."""
    if PADDING == "circular":
        n = tl.where(n < 0, n + length, tl.where(n >= length, n - length, n))
    elif PADDING == "reflect":
        n = tl.where(n < 0, -n, tl.where(n >= length, 2 * (length - 1) - n, n))
    return n


@triton.jit
def _load(
    row, first, length, pivot, offset,
    START: tl.constexpr, STOP: tl.constexpr, PADDING: tl.constexpr, EDGE: tl.constexpr,
    VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Columns START … STOP of ``row``, counted from sample ``first`` of each lane, centred."""
    lanes = first[:, None] + tl.arange(0, VEC)[None, :]
    columns = ()
    for j in tl.static_range(START, STOP, VEC):
        if EDGE:
            source = _source(lanes + j, length, PADDING)
            inside = (source >= 0) & (source < length)
            x = tl.load(row + source, mask=inside, other=0.0).to(tl.float32)
            x = tl.where(inside, (x - pivot) - offset, 0.0)
        else:
            x = (tl.load(row + (lanes + j)).to(tl.float32) - pivot) - offset
        columns = columns + _columns_of(x, BLOCK, VEC)
    return columns


@triton.jit
def _store(
    row, first, length, columns,
    OWN: tl.constexpr, EDGE: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the OWN columns of each lane back."""
    lanes = first[:, None] + tl.arange(0, VEC)[None, :]
    for j in tl.static_range(0, OWN, VEC):
        tile = _tile_of(columns, j, 1, BLOCK, VEC).to(row.dtype.element_ty)
        if EDGE:
            tl.store(row + (lanes + j), tile, mask=lanes + j < length)
        else:
            tl.store(row + (lanes + j), tile)


@triton.jit
def _row(x, row, n_channels, stride_n, stride_c, UNIT: tl.constexpr):
    """Point to a row; strides are in UNIT samples, so that the compiler knows how rows align."""
    # in 64 bits: a batch may hold more than 2³¹ samples
    n = (row // n_channels).to(tl.int64)
    c = (row % n_channels).to(tl.int64)
    return x + (n * stride_n + c * stride_c) * UNIT


@triton.jit
def _real_bin(
    x, START: tl.constexpr, K: tl.constexpr,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
):  # fmt: skip
    """Real part of bin K of the windowed segment that starts at column START."""
    # x_t and x_{f-t} have the same cosine: half the products
    real = x[START] * _cosine_weight(0, K, FILTER, TAPER, DETREND)
    for t in tl.static_range(1, (FILTER + 1) // 2):
        pair = x[START + t] + x[START + FILTER - t]
        real = tl.fma(pair, _cosine_weight(t, K, FILTER, TAPER, DETREND), real)
    if FILTER % 2 == 0:
        middle: tl.constexpr = FILTER // 2
        w: tl.constexpr = _cosine_weight(middle, K, FILTER, TAPER, DETREND)
        real = tl.fma(x[START + middle], w, real)
    return real


@triton.jit
def _imaginary_bin(
    x, START: tl.constexpr, K: tl.constexpr, FILTER: tl.constexpr, TAPER: tl.constexpr
):
    """Imaginary part of bin K (up to sign) of the windowed segment that starts at column START."""
    imag = tl.zeros_like(x[START])
    for t in tl.static_range(1, (FILTER + 1) // 2):
        pair = x[START + t] - x[START + FILTER - t]
        imag = tl.fma(pair, _taper(t, FILTER, TAPER) * _sine(K * t, FILTER), imag)
    return imag


@triton.jit
def _measure_tile(
    sums, row, first, length, n_segments, pivot,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr, EDGE: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add a tile to (Σx, Σ Re X_k of the leaky bins, Σ|X_k|² of all bins), about ``pivot``."""
    HOP: tl.constexpr = FILTER - FILTER // 2
    LEAKY: tl.constexpr = _leaky_bins(FILTER, TAPER, DETREND)
    stop: tl.constexpr = _round_up(OWN + FILTER // 2, VEC)
    x = _load(row, first, length, pivot, 0.0, 0, stop, "none", EDGE, VEC, BLOCK)
    total = sums[0]
    for j in tl.static_range(OWN):
        total += x[j]
    updated = (total,)
    means = ()
    powers = ()
    for k in tl.static_range(FILTER // 2 + 1):
        power = sums[1 + LEAKY + k]
        if k < LEAKY:
            mean = sums[1 + k]
        for q in tl.static_range(OWN // HOP):
            real = _real_bin(x, q * HOP, k, FILTER, TAPER, DETREND)
            if EDGE:
                real = tl.where(first // HOP + q < n_segments, real, 0.0)
            power = tl.fma(real, real, power)
            if k < LEAKY:
                mean += real
            if k > 0 and 2 * k < FILTER:
                imag = _imaginary_bin(x, q * HOP, k, FILTER, TAPER)
                if EDGE:
                    imag = tl.where(first // HOP + q < n_segments, imag, 0.0)
                power = tl.fma(imag, imag, power)
        if k < LEAKY:
            means = means + (mean,)
        powers = powers + (power,)
    return updated + means + powers


@triton.jit
def _local_pivot(row, start, stop):
    """Return a value near the mean of samples start … stop: exact if they are all equal."""
    first = tl.load(row + start).to(tl.float32)
    probes = tl.load(row + start + tl.arange(0, 32) * ((stop - start) // 32)).to(tl.float32)
    return first + tl.sum(probes - first) / 32


@triton.jit
def _zeros(COUNT: tl.constexpr, BLOCK: tl.constexpr):
    zeros = ()
    for _ in tl.static_range(COUNT):
        zeros = zeros + (tl.zeros((BLOCK,), tl.float32),)
    return zeros


@triton.jit
def measure_kernel(
    x, partials, n_channels, length, n_segments, stride_n, stride_c, n_chunks, n_tiles,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Measure one chunk of one row: its pivot, then the sums of _measure_tile about it."""
    TILE: tl.constexpr = BLOCK * OWN
    COUNT: tl.constexpr = 1 + _leaky_bins(FILTER, TAPER, DETREND) + FILTER // 2 + 1
    begin_launch(EARLY)
    pid = tl.program_id(0)
    row = _row(x, pid // n_chunks, n_channels, stride_n, stride_c, UNIT)
    start = (pid % n_chunks) * (n_tiles * TILE)
    stop = min(start + n_tiles * TILE, length)
    pivot = _local_pivot(row, start, stop)
    sums = _zeros(COUNT, BLOCK)
    for tile in range(start // TILE, tl.cdiv(stop, TILE)):
        first = tile * TILE + tl.arange(0, BLOCK) * OWN
        if (tile + 1) * TILE + _round_up(FILTER // 2, VEC) <= length:
            sums = _measure_tile(
                sums, row, first, length, n_segments, pivot,
                FILTER, TAPER, DETREND, False, OWN, VEC, BLOCK,
            )  # fmt: skip
        else:
            sums = _measure_tile(
                sums, row, first, length, n_segments, pivot,
                FILTER, TAPER, DETREND, True, OWN, VEC, BLOCK,
            )  # fmt: skip
    partial = partials + pid.to(tl.int64) * (COUNT + 1)
    tl.store(partial, pivot)
    for i in tl.static_range(COUNT):
        tl.store(partial + 1 + i, tl.sum(sums[i]))


@triton.jit
def finish_measure_kernel(
    x, partials, offsets, psd, means, n_channels, length, n_segments, stride_n, stride_c,
    n_chunks, n_tiles, eps,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
    TILE: tl.constexpr, CHUNKS: tl.constexpr, EPS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Combine the chunks of one row, each about its own pivot, into the row's offset and PSD.

    EPS: "absolute", "relative" or "none"; then the means over segments of Re X_k of the leaky bins
    are kept, too.
    """
    BINS: tl.constexpr = FILTER // 2 + 1
    HOP: tl.constexpr = FILTER - FILTER // 2
    LEAKY: tl.constexpr = _leaky_bins(FILTER, TAPER, DETREND)
    COUNT: tl.constexpr = 2 + LEAKY + BINS
    begin_launch(EARLY)
    pid = tl.program_id(0).to(tl.int64)
    chunk_length = n_tiles * TILE
    origin = tl.load(_row(x, pid, n_channels, stride_n, stride_c, 1)).to(tl.float32)
    partials += pid * n_chunks * COUNT
    total = 0.0
    for begin in range(0, n_chunks, CHUNKS):
        chunk = begin + tl.arange(0, CHUNKS)
        inside = chunk < n_chunks
        pivot = tl.load(partials + chunk * COUNT, mask=inside, other=origin)
        samples = tl.minimum(chunk_length, length - chunk * chunk_length)
        about = tl.load(partials + chunk * COUNT + 1, mask=inside, other=0.0)
        total += tl.sum(tl.where(inside, samples * (pivot - origin) + about, 0.0))
    offset = total / length
    tl.store(offsets + pid, offset)
    powers = ()
    for k in tl.static_range(BINS):
        power = 0.0
        inner = 0.0
        for begin in range(0, n_chunks, CHUNKS):
            chunk = begin + tl.arange(0, CHUNKS)
            inside = chunk < n_chunks
            partial = partials + chunk * COUNT
            energy = tl.load(partial + 2 + LEAKY + k, mask=inside, other=0.0)
            if k < LEAKY:
                # what the constant between row mean and chunk pivot adds to each segment
                pivot = tl.load(partial, mask=inside, other=origin)
                leak = (offset - (pivot - origin)) * _taper_spectrum(k, FILTER, TAPER)
                segments = tl.minimum(
                    chunk_length // HOP, n_segments - chunk * (chunk_length // HOP)
                )
                segments = tl.maximum(segments, 0)
                mean = tl.load(partial + 2 + k, mask=inside, other=0.0)
                energy += tl.where(inside, leak * (segments * leak - 2 * mean), 0.0)
                if EPS == "none":
                    inner += tl.sum(tl.where(inside, mean - segments * leak, 0.0))
            power += tl.sum(energy)
        # rounding must not make an empty bin negative; NaN stays NaN
        power = tl.maximum(power, 0.0, propagate_nan=tl.PropagateNan.ALL)
        if EPS == "absolute":
            tl.store(psd + pid * BINS + k, power / n_segments + eps)
        elif EPS == "none":
            tl.store(psd + pid * BINS + k, power / n_segments)
            if k < LEAKY:
                tl.store(means + pid * LEAKY + k, inner / n_segments)
        powers = powers + (power / n_segments,)
    if EPS == "relative":
        added = 0.0
        for k in tl.static_range(BINS):
            added += powers[k] * _share_of_power(k, FILTER, TAPER, DETREND)
        for k in tl.static_range(BINS):
            tl.store(psd + pid * BINS + k, powers[k] + eps * added)


@triton.jit
def _valid_psds(psd, row, inside, n_channels, channel, BINS: tl.constexpr, WIDTH: tl.constexpr):
    """PSDs of some rows of a channel, (BLOCK, WIDTH), and which of them are finite."""
    bins = tl.arange(0, WIDTH)
    place = (row[:, None] * n_channels + channel) * BINS + bins[None, :]
    kept = inside[:, None] & (bins < BINS)[None, :]
    p = tl.load(psd + place, mask=kept, other=0.0)
    # p - p is not 0 for NaN and both infinities
    broken = tl.max((p - p != 0).to(tl.int32), axis=1)
    return p, (broken == 0) & inside, place, kept


@triton.jit
def _rows_to_pool(
    x, offsets, psd, packed, begin, stop, n_rows, n_channels, channel, stride_n, stride_c,
    BINS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return rows of a domain: index, PSDs, validity, first samples (float64) and offsets."""
    place = begin + tl.arange(0, BLOCK)
    inside = place < stop
    row = tl.load(packed + n_rows + place, mask=inside, other=0)
    p, valid, _, _ = _valid_psds(psd, row, inside, n_channels, channel, BINS, WIDTH)
    first = tl.load(x + row * stride_n + channel * stride_c, mask=inside, other=0.0)
    offset = tl.load(offsets + row * n_channels + channel, mask=inside, other=0.0)
    valid = valid & (tl.abs(first.to(tl.float32) + offset) < LARGEST_MEAN)
    return row, inside, p, valid, first.to(tl.float64), offset


@triton.jit
def pool_kernel(
    x, offsets, psd, means, packed, weights, n_rows, n_channels, stride_n, stride_c, eps,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
    CENTER: tl.constexpr, RELATIVE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Replace PSDs (and offsets) of one domain's rows in one channel by those of the domain.

    See psdnorm.ops.reference.domain_statistics. Programs (domain, channel); rows sorted by domain.
    """
    BINS: tl.constexpr = FILTER // 2 + 1
    LEAKY: tl.constexpr = _leaky_bins(FILTER, TAPER, DETREND)
    begin_launch(EARLY)
    channel = tl.program_id(1).to(tl.int64)
    start = tl.load(packed + 2 * n_rows + tl.program_id(0))
    stop = tl.load(packed + 2 * n_rows + tl.program_id(0) + 1)
    bins = tl.arange(0, WIDTH)
    leakage = tl.zeros((WIDTH,), tl.float32)
    share = tl.zeros((WIDTH,), tl.float32)
    for k in tl.static_range(BINS):
        if k < LEAKY:
            leakage = tl.where(bins == k, _taper_spectrum(k, FILTER, TAPER), leakage)
        share = tl.where(bins == k, _share_of_power(k, FILTER, TAPER, DETREND), share)
    count = 0
    mean = tl.zeros((), tl.float64)
    power = tl.zeros((WIDTH,), tl.float64)
    for begin in range(start, stop, BLOCK):
        row, inside, p, valid, first, offset = _rows_to_pool(
            x, offsets, psd, packed, begin, stop, n_rows, n_channels, channel,
            stride_n, stride_c, BINS, WIDTH, BLOCK,
        )  # fmt: skip
        count += tl.sum(valid.to(tl.int32))
        mean += tl.sum(tl.where(valid, first + offset.to(tl.float64), 0.0))
        power += tl.sum(tl.where(valid[:, None], p.to(tl.float64), 0.0), axis=0)
    n_valid = tl.maximum(count, 1)
    mean = mean / n_valid
    if CENTER:
        power = tl.zeros((WIDTH,), tl.float64)
        for begin in range(start, stop, BLOCK):
            row, inside, p, valid, first, offset = _rows_to_pool(
                x, offsets, psd, packed, begin, stop, n_rows, n_channels, channel,
                stride_n, stride_c, BINS, WIDTH, BLOCK,
            )  # fmt: skip
            shift = (mean - (first + offset.to(tl.float64))).to(tl.float32)
            moved = shift[:, None] * leakage[None, :]
            index = (row[:, None] * n_channels + channel) * LEAKY + bins[None, :]
            known = inside[:, None] & (bins < LEAKY)[None, :]
            inner = tl.load(means + index, mask=known, other=0.0)
            p = tl.maximum(p + moved * (moved - 2 * inner), 0.0)
            power += tl.sum(tl.where(valid[:, None], p.to(tl.float64), 0.0), axis=0)
    pooled = (power / n_valid).to(tl.float32)
    has_power = 1.0
    if RELATIVE:
        added = tl.sum(pooled * share)
        pooled = pooled + eps * added
        has_power = tl.where(tl.max(tl.where(bins < BINS, pooled, 0.0)) > 0, 1.0, 0.0)
    else:
        pooled = pooled + eps
    weight = has_power / n_valid.to(tl.float32)
    for begin in range(start, stop, BLOCK):
        row, inside, p, valid, first, offset = _rows_to_pool(
            x, offsets, psd, packed, begin, stop, n_rows, n_channels, channel,
            stride_n, stride_c, BINS, WIDTH, BLOCK,
        )  # fmt: skip
        index = row * n_channels + channel
        target = index[:, None] * BINS + bins[None, :]
        kept = inside[:, None] & (bins < BINS)[None, :]
        if CENTER:
            moved = (mean - first).to(tl.float32)
            tl.store(offsets + index, tl.where(valid, moved, offset), mask=inside)
        result = tl.where(valid[:, None], pooled[None, :], float("nan"))
        tl.store(psd + target, result, mask=kept)
        tl.store(weights + index, tl.where(valid, weight, 0.0), mask=inside)


@triton.jit
def _taps(psd, sqrt_target, row, channel, scale, FILTER: tl.constexpr, RELATIVE: tl.constexpr):
    """Gains D_k and taps at lags 0 … f // 2, times ``scale``, of the filter of one row.

    RELATIVE: bins without power keep what they have.
    """
    BINS: tl.constexpr = FILTER // 2 + 1
    gains = ()
    for k in tl.static_range(BINS):
        power = tl.load(psd + row * BINS + k)
        gain = tl.load(sqrt_target + channel * BINS + k).to(tl.float32)
        if RELATIVE:
            gain = tl.where(power == 0, 1.0, gain)
            power = tl.where(power == 0, 1.0, power)
        gain /= tl.sqrt_rn(power)
        # an overflowed PSD would give a gain of 0 and an innocent-looking output of zeros
        gains = gains + (tl.where(power < float("inf"), gain, float("nan")),)
    taps = ()
    for m in tl.static_range(BINS):
        tap = 0.0
        for k in tl.static_range(BINS):
            tap += gains[k] * (_mirrored(k, FILTER) / FILTER * _cosine(k * m, FILTER))
        taps = taps + (tap * scale * _split_tap(m, FILTER),)
    return gains, taps


@triton.jit
def _convolve(x, taps, J: tl.constexpr, LAGS: tl.constexpr):
    """Sample J of the columns ``x`` under a symmetric filter."""
    y = taps[0] * x[J]
    for m in tl.static_range(1, LAGS):
        y = tl.fma(x[J - m] + x[J + m], taps[m], y)
    return y


@triton.jit
def _filter_tile(
    row, out, first, length, pivot, offset, taps, shift,
    FILTER: tl.constexpr, PADDING: tl.constexpr, EDGE: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    x = _load(row, first, length, pivot, offset, -HALO, OWN + HALO, PADDING, EDGE, VEC, BLOCK)
    y = ()
    for j in tl.static_range(OWN):
        y = y + (_convolve(x, taps, HALO + j, FILTER // 2 + 1) + shift,)
    _store(out, first, length, y, OWN, EDGE, VEC, BLOCK)


@triton.jit
def filter_kernel(
    x, y, offsets, psd, sqrt_target, weight, bias,
    n_channels, length, stride_n, stride_c, n_chunks, n_tiles,
    FILTER: tl.constexpr, PADDING: tl.constexpr, RELATIVE: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    OWN: tl.constexpr, VEC: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Centre and filter one chunk of one row."""
    TILE: tl.constexpr = BLOCK * OWN
    HALO: tl.constexpr = _round_up(FILTER // 2, VEC)
    begin_launch(EARLY)
    # from the end of the batch, which the L2 cache still holds from the statistics pass
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    index = pid // n_chunks
    channel = index % n_channels
    row = _row(x, index, n_channels, stride_n, stride_c, UNIT)
    out = y + index.to(tl.int64) * (length // UNIT) * UNIT
    scale = tl.load(weight + channel).to(tl.float32) if HAS_WEIGHT else 1.0
    shift = tl.load(bias + channel).to(tl.float32) if HAS_BIAS else 0.0
    _, taps = _taps(psd, sqrt_target, index.to(tl.int64), channel, scale, FILTER, RELATIVE)
    pivot = tl.load(row).to(tl.float32)
    offset = tl.load(offsets + index)
    begin = (pid % n_chunks) * n_tiles
    for tile in range(begin, min(begin + n_tiles, tl.cdiv(length, TILE))):
        first = tile * TILE + tl.arange(0, BLOCK) * OWN
        if (tile * TILE >= HALO) & ((tile + 1) * TILE + HALO <= length):
            _filter_tile(
                row, out, first, length, pivot, offset, taps, shift,
                FILTER, PADDING, False, OWN, VEC, BLOCK,
            )  # fmt: skip
        else:
            _filter_tile(
                row, out, first, length, pivot, offset, taps, shift,
                FILTER, PADDING, True, OWN, VEC, BLOCK,
            )  # fmt: skip


@triton.jit
def barycenter_kernel(
    psd, weights, running, n_tracked, n_skipped, total, target,
    n_rows, n_channels, momentum, BINS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    WEIGHTED: tl.constexpr, UNIT: tl.constexpr,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Sum √P over the valid rows of one channel and move along the geodesic to their mean.

    WEIGHTED: rows count with their weights, which sum to the number of domains. UNIT: the target is
    scaled to a mean power of 1. ``momentum`` below zero means a cumulative average. One program per
    channel; the count of skipped rows is an integer, so the order in which programs add to it does
    not matter.
    """
    begin_launch(EARLY)
    channel = tl.program_id(0)
    bins = tl.arange(0, WIDTH)
    sums = tl.zeros((WIDTH,), tl.float32)
    n_valid = 0
    n_domains = 0.0
    for start in range(0, n_rows, BLOCK):
        n = start + tl.arange(0, BLOCK)
        inside = (n < n_rows)[:, None] & (bins < BINS)[None, :]
        place = (n.to(tl.int64)[:, None] * n_channels + channel) * BINS + bins[None, :]
        p = tl.load(psd + place, mask=inside, other=0.0)
        if WEIGHTED:
            weight = tl.load(weights + n * n_channels + channel, mask=n < n_rows, other=0.0)
            valid = weight > 0
            roots = tl.where(valid[:, None], tl.sqrt(p) * weight[:, None], 0.0)
            n_domains += tl.sum(weight)
        else:
            # p - p is not 0 for NaN and both infinities
            broken = tl.max((p - p != 0).to(tl.int32), axis=1)
            valid = (broken == 0) & (n < n_rows)
            roots = tl.where(valid[:, None], tl.sqrt(p), 0.0)
        sums += tl.sum(roots, axis=0)
        n_valid += tl.sum(valid.to(tl.int32))
    tracked = tl.load(n_tracked + channel)
    cumulative = 1.0 / (tracked + 1).to(tl.float32)
    step = tl.where(momentum < 0, cumulative, tl.where(tracked == 0, 1.0, momentum))
    step = tl.where(n_valid > 0, step, 0.0)
    place, kept = channel * BINS + bins, bins < BINS
    former = tl.load(running + place, mask=kept, other=0.0)
    count = tl.maximum(n_domains, 1.0) if WEIGHTED else max(n_valid, 1)
    moved = (1 - step) * former + step * (sums / count)
    tl.store(running + place, moved, mask=kept)
    if UNIT:
        power = tl.zeros((), tl.float32)
        for k in tl.static_range(BINS):
            root = tl.sum(tl.where(bins == k, moved, 0.0))
            power += root * root * _share_of_power(k, FILTER, TAPER, DETREND)
        moved = moved / tl.sqrt(tl.where(power > 0, power, 1.0))
    tl.store(target + place, moved, mask=kept)
    tl.store(total + place, sums, mask=kept)
    tl.store(n_tracked + channel, tracked + min(n_valid, 1))
    tl.atomic_add(n_skipped, (n_rows - n_valid).to(tl.int64))


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
    """Return the part of the filtered gradient's sum beyond the ends of a zero-padded row."""
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
def _slopes_of_row(
    grad_row, total, lags, psd, sqrt_target, index, channel, scale, length, n_segments,
    FILTER: tl.constexpr, PADDING: tl.constexpr, RELATIVE: tl.constexpr,
):  # fmt: skip
    """Return a row's Σ g y, summed gradient through the filter, taps, and slopes dL/dP_k · 2/L."""
    BINS: tl.constexpr = FILTER // 2 + 1
    gains, taps = _taps(psd, sqrt_target, index, channel, 1.0, FILTER, RELATIVE)
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
    scaled = ()
    for k in tl.static_range(BINS):
        slope = 0.0
        for m in tl.static_range(BINS):
            slope += lags[m] * (_split_tap(m, FILTER) * _cosine(k * m, FILTER))
        power = tl.load(psd + index * BINS + k)
        if RELATIVE:
            slope = tl.where(power == 0, 0.0, slope)
            power = tl.where(power == 0, 1.0, power)
        # dL/dP_k, from D_k = target / √P_k, with the 2 / L of the PSD
        slope *= scale * (-_mirrored(k, FILTER) / FILTER) * gains[k] / (power * n_segments)
        slopes = slopes + (slope,)
        scaled = scaled + (taps[k] * scale,)
    return response, drift, scaled, slopes


@triton.jit
def _before_eps(slopes, eps, FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr):
    """Carry slopes to the PSD before a relative eps is added."""
    total = 0.0
    for k in tl.static_range(FILTER // 2 + 1):
        total += slopes[k]
    carried = ()
    for k in tl.static_range(FILTER // 2 + 1):
        carried = carried + (slopes[k] + eps * total * _share_of_power(k, FILTER, TAPER, DETREND),)
    return carried


@triton.jit
def _circulant(slopes, FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr):
    """Return the PSD coefficients a_m of the second pass, and tilts."""
    BINS: tl.constexpr = FILTER // 2 + 1
    tilts = ()
    if _has_tilted_gradient(TAPER, DETREND):
        for k in tl.static_range(2):
            tilts = tilts + (slopes[k] * (_taper_spectrum(k, FILTER, TAPER) / FILTER),)
    # centred segments under a flat window have no power in bin 0
    FIRST: tl.constexpr = 1 if DETREND and TAPER == 1.0 else 0
    a = ()
    for m in tl.static_range(BINS):
        value = 0.0
        for k in tl.static_range(FIRST, BINS):
            value += slopes[k] * _cosine(k * m, FILTER)
        # a rectangular window has all its weights here, once
        a = a + (value * (1.0 / FILTER if TAPER == 1.0 else 1.0),)
    return a, tilts


@triton.jit
def coefficients_kernel(
    grad, partials, psd, sqrt_target, weight, coefficients, row_sums, between,
    n_channels, length, n_segments, grad_stride_n, grad_stride_c, n_chunks, eps,
    FILTER: tl.constexpr, TAPER: tl.constexpr, PADDING: tl.constexpr, DETREND: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, RELATIVE: tl.constexpr, STATISTICS: tl.constexpr,
    CENTER: tl.constexpr, CHUNKS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Between the passes: compute what the second one needs of one row.

    Also the row's share of the gradients of weight and bias. With STATISTICS "domain" the slopes
    are kept in ``between`` for pool_slopes_kernel; with "fixed" PSDs there are none.
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
    response, drift, taps, slopes = _slopes_of_row(
        grad_row, total, lags, psd, sqrt_target, index, channel, scale, length, n_segments,
        FILTER, PADDING, RELATIVE,
    )  # fmt: skip
    tl.store(row_sums + index * 2, response)
    tl.store(row_sums + index * 2 + 1, total)
    for m in tl.static_range(BINS):
        tl.store(coefficients + 1 + m, taps[m])
    if STATISTICS == "domain":
        between += index * COUNT
        tl.store(between, drift)
        for k in tl.static_range(BINS):
            tl.store(between + 1 + k, slopes[k])
        for k in tl.static_range(LEAKY):
            tl.store(between + 1 + BINS + k, means[k])
    else:
        if STATISTICS == "fixed":
            slopes = ()
            for _ in tl.static_range(BINS):
                slopes = slopes + (0.0,)
        elif RELATIVE:
            slopes = _before_eps(slopes, eps, FILTER, TAPER, DETREND)
        for k in tl.static_range(LEAKY):
            drift += slopes[k] * means[k] * _taper_spectrum(k, FILTER, TAPER)
        a, tilts = _circulant(slopes, FILTER, TAPER, DETREND)
        tl.store(coefficients, 0.0 if CENTER else drift / length)
        for m in tl.static_range(BINS):
            tl.store(coefficients + 1 + BINS + m, a[m])
        for k in tl.static_range(TILTS):
            tl.store(coefficients + 1 + 2 * BINS + k, tilts[k])


@triton.jit
def pool_slopes_kernel(
    between, psd, packed, coefficients, n_rows, n_channels, length, eps,
    FILTER: tl.constexpr, TAPER: tl.constexpr, DETREND: tl.constexpr,
    CENTER: tl.constexpr, RELATIVE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Finish the coefficients of one domain's rows in one channel, which share their slopes.

    Programs (domain, channel), as in pool_kernel.
    """
    BINS: tl.constexpr = FILTER // 2 + 1
    LEAKY: tl.constexpr = _leaky_bins(FILTER, TAPER, DETREND)
    TILTS: tl.constexpr = 2 if _has_tilted_gradient(TAPER, DETREND) else 0
    COUNT: tl.constexpr = 1 + BINS + LEAKY
    SIZE: tl.constexpr = 2 * BINS + 1 + TILTS
    begin_launch(EARLY)
    channel = tl.program_id(1).to(tl.int64)
    start = tl.load(packed + 2 * n_rows + tl.program_id(0))
    stop = tl.load(packed + 2 * n_rows + tl.program_id(0) + 1)
    bins = tl.arange(0, WIDTH)
    count = 0
    sums = tl.zeros((WIDTH,), tl.float64)
    for begin in range(start, stop, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        inside = place < stop
        row = tl.load(packed + n_rows + place, mask=inside, other=0)
        _, valid, _, kept = _valid_psds(psd, row, inside, n_channels, channel, BINS, WIDTH)
        index = (row * n_channels + channel) * COUNT
        slope = tl.load(between + index[:, None] + 1 + bins[None, :], mask=kept, other=0.0)
        sums += tl.sum(tl.where(valid[:, None], slope.to(tl.float64), 0.0), axis=0)
        count += tl.sum(valid.to(tl.int32))
    n_valid = tl.maximum(count, 1)
    pooled = (sums / n_valid).to(tl.float32)
    slopes = ()
    for k in tl.static_range(BINS):
        slopes = slopes + (tl.sum(tl.where(bins == k, pooled, 0.0)),)
    if RELATIVE:
        slopes = _before_eps(slopes, eps, FILTER, TAPER, DETREND)
    a, tilts = _circulant(slopes, FILTER, TAPER, DETREND)
    mean = tl.zeros((), tl.float64)
    for begin in range(start, stop, BLOCK):
        place = begin + tl.arange(0, BLOCK)
        inside = place < stop
        row = tl.load(packed + n_rows + place, mask=inside, other=0)
        _, valid, _, _ = _valid_psds(psd, row, inside, n_channels, channel, BINS, WIDTH)
        index = row * n_channels + channel
        drift = tl.load(between + index * COUNT, mask=inside, other=0.0)
        for k in tl.static_range(LEAKY):
            inner = tl.load(between + index * COUNT + 1 + BINS + k, mask=inside, other=0.0)
            drift += slopes[k] * inner * _taper_spectrum(k, FILTER, TAPER)
        tl.store(coefficients + index * SIZE, drift / length, mask=inside)
        mean += tl.sum(tl.where(valid, drift.to(tl.float64), 0.0))
        for m in tl.static_range(BINS):
            tl.store(coefficients + index * SIZE + 1 + BINS + m, a[m], mask=inside)
        for k in tl.static_range(TILTS):
            tl.store(coefficients + index * SIZE + 1 + 2 * BINS + k, tilts[k], mask=inside)
    if CENTER:
        mean = mean / n_valid / length
        for begin in range(start, stop, BLOCK):
            place = begin + tl.arange(0, BLOCK)
            inside = place < stop
            row = tl.load(packed + n_rows + place, mask=inside, other=0)
            target = coefficients + (row * n_channels + channel) * SIZE
            tl.store(target, mean.to(tl.float32) + tl.zeros((BLOCK,), tl.float32), mask=inside)


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
    """Return the same for a segment that may be centred; its gradient is then centred too."""
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
    """Return the excess that the mirrored gradient adds at the first and at the last sample."""
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
    # the previous segment reaches into the first samples of a lane, if segments overlap
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
