"""The shapes that norms meet in the models of this package."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Case:
    """One input of a norm layer: (N, C, T), the filter size that PSDNorm has there, the dtype."""

    name: str
    shape: tuple[int, int, int]
    filter_size: int
    dtype: torch.dtype = torch.float32


# U-Sleep normalises after each of its first three encoder blocks: 35 epochs of 30 s at 100 Hz, half
# the length and half the filter (5, 2, 1) from one block to the next
_BLOCKS = {1: ((6, 105_000), 5), 2: ((9, 52_500), 2), 3: ((11, 26_250), 1)}


def usleep(batch: int, dtype: torch.dtype = torch.float32) -> list[Case]:
    """U-Sleep's three first blocks at one batch size."""
    suffix = "" if dtype == torch.float32 else f" {str(dtype).removeprefix('torch.')}"
    return [
        Case(f"U-Sleep block {block}, batch {batch}{suffix}", (batch, *size), filter_size, dtype)
        for block, (size, filter_size) in _BLOCKS.items()
    ]


TRAINING = usleep(64)
HALF = usleep(64, torch.bfloat16)
SMALL_BATCHES = [*usleep(16), *usleep(1)]
LONG_FILTER = [Case("filter of 17", (64, 6, 105_000), 17)]
LENGTHS = [Case(f"T = 2^{power}", (8, 6, 2**power), 5) for power in range(12, 23, 2)]
GPU = [*TRAINING, *HALF, *LONG_FILTER, *SMALL_BATCHES, *LENGTHS]
CPU = usleep(16)
