"""The Triton kernel that moves the running barycenter.

Imported on first use only, because it imports triton.
"""

import triton
import triton.language as tl

from psdnorm.ops.triton.grid_order import begin_launch


@triton.jit
def barycenter_kernel(
    psd, running, n_tracked, n_skipped, total, target,
    n_rows, n_channels, momentum, BINS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Sum √P over the valid rows of one channel and walk the geodesic to their mean.

    ``momentum`` below zero stands for a cumulative average. One program a channel; the count of
    skipped rows is an integer, so the order in which programs add to it leaves no trace.
    """
    begin_launch(EARLY)
    channel = tl.program_id(0)
    bins = tl.arange(0, WIDTH)
    sums = tl.zeros((WIDTH,), tl.float32)
    n_valid = 0
    for start in range(0, n_rows, BLOCK):
        n = start + tl.arange(0, BLOCK)
        inside = (n < n_rows)[:, None] & (bins < BINS)[None, :]
        place = (n.to(tl.int64)[:, None] * n_channels + channel) * BINS + bins[None, :]
        p = tl.load(psd + place, mask=inside, other=0.0)
        # NaN and both infinities differ from themselves minus themselves
        broken = tl.max((p - p != 0).to(tl.int32), axis=1)
        valid = (broken == 0) & (n < n_rows)
        sums += tl.sum(tl.where(valid[:, None], tl.sqrt(p), 0.0), axis=0)
        n_valid += tl.sum(valid.to(tl.int32))
    tracked = tl.load(n_tracked + channel)
    cumulative = 1.0 / (tracked + 1).to(tl.float32)
    step = tl.where(momentum < 0, cumulative, tl.where(tracked == 0, 1.0, momentum))
    step = tl.where(n_valid > 0, step, 0.0)
    place, kept = channel * BINS + bins, bins < BINS
    former = tl.load(running + place, mask=kept, other=0.0)
    moved = (1 - step) * former + step * (sums / max(n_valid, 1))
    tl.store(running + place, moved, mask=kept)
    tl.store(target + place, moved, mask=kept)
    tl.store(total + place, sums, mask=kept)
    tl.store(n_tracked + channel, tracked + min(n_valid, 1))
    tl.atomic_add(n_skipped, (n_rows - n_valid).to(tl.int64))
