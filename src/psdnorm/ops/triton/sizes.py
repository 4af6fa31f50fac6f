"""Numbers that Triton's compiler works out for the kernels: windows, cosines, counts.

Imported with the kernels only, because it imports triton. ``size`` is the filter size and ``a`` the
coefficient of the window, as in :data:`psdnorm.ops.reference.WINDOWS`.
"""

import math

import triton


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
    """How many bins of the full spectrum the kept bin k stands for."""
    return 1.0 if k == 0 or 2 * k == size else 2.0


@triton.constexpr_function
def _split_tap(m, size):
    """Share of lag m on either side: the tap at half an even filter is split in two."""
    return 0.5 if 2 * m == size else 1.0


@triton.constexpr_function
def _round_up(value, step):
    return -(-value // step) * step


@triton.constexpr_function
def _cosine_weight(t, k, size, a, detrend):
    """Weight of sample t of a segment in the real part of bin k."""
    weight = _taper(t, size, a) * _cosine(k * t, size)
    if not detrend or k > 1:  # beyond bin 1 no window has a mean
        return weight
    # taking the mean off a segment or off its weights is the same; about the first of them, equal
    # weights become exact zeros
    first = _taper(0, size, a)
    rest = sum(_taper(s, size, a) * _cosine(k * s, size) - first for s in range(size))
    return (weight - first) - rest / size


@triton.constexpr_function
def _leaky_bins(size, a, detrend):
    """How many bins, from 0 on, a constant leaks into through the window."""
    if detrend:
        return 0
    return 1 if a == 1.0 else min(2, size // 2 + 1)


@triton.constexpr_function
def _has_tilted_gradient(a, detrend):
    """Tell whether segments lose their means before a window that is not flat.

    Where it is flat nothing but bin 0 changes, which has no power then.
    """
    return detrend and a != 1.0
