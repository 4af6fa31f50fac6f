"""Small convolutions: what goes in, what torch makes of it, and how results are compared."""

import torch
from torch.nn import functional as F
from triton_kernels import DEVICE, TOLERANCE, draw, empty_memory_is_nan

from psdnorm.ops import convolution

# the interpreter multiplies the bits of bfloat16 as integers
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16


def operands(n, c_in, c_out, taps, length, up=1, dtype=torch.float32):
    """Return x, weight, bias and a gradient of the result; parameters are float32."""
    weight = draw(c_out, c_in, taps, seed=1) / (c_in * taps) ** 0.5
    x, grad = draw(n, c_in, length, dtype=dtype), draw(n, c_out, up * length, seed=3, dtype=dtype)
    return x, weight, draw(c_out, seed=2), grad


def torchs(x, weight, bias, pad, up, elu):
    """Compute :func:`convolution.convolve` as it is defined, one step after another."""
    repeated = F.pad(x.repeat_interleave(up, dim=-1), (pad, weight.shape[-1] - 1 - pad))
    y = F.conv1d(repeated, weight, bias)
    return F.elu(y) if elu else y


def outcome(run, x, weight, bias, grad, *options):
    """Everything there is to compare: the result, gradients of x, weight and bias."""
    leaves = {"x": x, "weight": weight, "bias": bias}
    # detached and not cloned: strides stay
    leaves = {k: v if v is None else v.detach().requires_grad_() for k, v in leaves.items()}
    y = run(*leaves.values(), *options)
    wanted = {f"d{name}": leaf for name, leaf in leaves.items() if leaf is not None}
    gradients = torch.autograd.grad(y, list(wanted.values()), grad)
    return {"y": y.detach(), **dict(zip(wanted, gradients, strict=True))}


def kernels(*arguments):
    with empty_memory_is_nan():
        return outcome(convolution.convolve, *arguments)


def assert_matches(x, weight, bias, grad, pad=None, up=1, elu=True):
    pad = weight.shape[-1] // 2 if pad is None else pad
    found = kernels(x, weight, bias, grad, pad, up, elu)
    wide = [t if t is None else t.double() for t in (x, weight, bias, grad)]
    expected = outcome(torchs, *wide, pad, up, elu)
    assert found["y"].dtype == found["dx"].dtype == x.dtype
    assert found["dweight"].dtype == weight.dtype
    assert_close(found, expected, TOLERANCE[x.dtype])


def assert_close(found, expected, limit):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        error = (found[name].double() - value).norm() / value.norm()
        assert error <= limit, f"{name} is off by {error:.1e}"


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
