"""Rows for the kernels that keep them on the chip, and how far a result is off."""

import torch


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def signals(shape, mean, dtype):
    x = draw(*shape)
    return (x + 0.6 * x.roll(1, -1) + mean).to(dtype)


def error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())
