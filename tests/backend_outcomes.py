"""Everything that the operators compute for a signal, by one backend and by the other."""

from contextlib import nullcontext

import torch
from triton_kernels import TOLERANCE, draw, empty_memory_is_nan

from psdnorm.ops import dispatch as fused
from psdnorm.ops import reference
from psdnorm.ops.reference import Spec


def signals(*shape, dtype=torch.float32, mean=0.3):
    x = draw(*shape)
    return (x + 0.6 * x.roll(1, -1) + mean).to(dtype)


def parameters(x, filter_size):
    channels = x.shape[1]
    target = 0.5 + draw(channels, filter_size // 2 + 1, seed=1).abs()
    return target, 1 + 0.2 * draw(channels, seed=2), draw(channels, seed=3)


def outcome(
    ops,
    x,
    filter_size,
    window="boxcar",
    padding_mode="circular",
    eps=1e-3,
    grad=None,
    detrend="row",
):
    """Everything there is to compare: offset, PSD, output, gradients of x, weight and bias."""
    wide = torch.float64 if ops is reference else None
    x = x.detach().to(wide) if wide else x.detach()
    leaves = [x.requires_grad_(), *(p.to(wide or p.dtype) for p in parameters(x, filter_size))]
    _, target, weight, bias = leaves
    weight.requires_grad_(), bias.requires_grad_()
    grad = draw(*x.shape, seed=4).to(x.dtype) if grad is None else grad.to(x.dtype)
    with empty_memory_is_nan() if ops is fused else nullcontext():
        spec = Spec(filter_size, eps, window, padding_mode, detrend)
        offset, psd = ops.row_statistics(x, spec)
        y = ops.normalize(x, offset, psd, target, spec, weight, bias)
        gradients = torch.autograd.grad(y, (x, weight, bias), grad)
    names = ("offset", "psd", "y", "dx", "dweight", "dbias")
    return dict(zip(names, (offset, psd, y, *gradients), strict=True))


def assert_matches(x, filter_size, *options, **more):
    grad = draw(*x.shape, seed=4).to(x.dtype)
    found = outcome(fused, x, filter_size, *options, grad=grad, **more)
    expected = outcome(reference, x, filter_size, *options, grad=grad, **more)
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm()
        assert error < TOLERANCE[x.dtype], f"{name} is off by {error:.1e}"
