"""The processor path computes what the plain one computes, gradients included, in little memory."""

import inspect

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from psdnorm.ops import cpu as blocked
from psdnorm.ops import reference
from psdnorm.ops.reference import Spec

FILTER_SIZES = (1, 2, 3, 4, 5, 8, 17, 31, 32)


def signals(*shape, dtype=torch.float64, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + 0.6 * x.roll(1, -1) + 0.3).to(dtype)


def parameters(channels, filter_size, dtype):
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: (0.5 + torch.rand(*shape, generator=generator)).to(dtype)  # noqa: E731
    return draw(channels, filter_size // 2 + 1), draw(channels), draw(channels) - 1


def plain(x, grad, filter_size, window, padding_mode, dtype):
    """Everything the reference computes, in float64: offset, psd, y and all gradients."""
    spec = Spec(filter_size, 1e-3, window, padding_mode)
    sqrt_target, weight, bias = (p.double() for p in parameters(x.shape[1], filter_size, dtype))
    leaves = [t.double().clone().requires_grad_() for t in (x, weight, bias)]
    offset, psd = reference.row_statistics(leaves[0], spec)
    y = reference.normalize(leaves[0], offset, psd, sqrt_target, spec, *leaves[1:])
    return [offset, psd, y, *torch.autograd.grad(y, leaves, grad.double())]


def fast(x, grad, filter_size, window, padding_mode, dtype):
    sqrt_target, weight, bias = parameters(x.shape[1], filter_size, dtype)
    spec = Spec(filter_size, 1e-3, window, padding_mode)
    offset, psd = blocked.row_statistics(x, spec)
    y = blocked.normalize(x, offset, psd, sqrt_target, spec, weight, bias)
    grad_x, row_sums = blocked.normalize_backward(grad, x, offset, psd, sqrt_target, spec, weight)
    return [offset, psd, y, grad_x, *row_sums.sum(dim=0).T]


def assert_close(ours, expected, tolerance):
    for fast_value, exact in zip(ours, expected, strict=True):
        assert fast_value.isfinite().all()
        assert (fast_value.double() - exact).norm() <= tolerance * exact.norm()


@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
@pytest.mark.parametrize("filter_size", FILTER_SIZES)
@pytest.mark.parametrize("length", [32, 47, 64, 501])
def test_outputs_and_every_gradient_equal_the_reference(length, filter_size, padding_mode):
    dtype = torch.float64
    x, grad = signals(3, 2, length), torch.randn(3, 2, length, dtype=dtype)
    for window in reference.WINDOWS:
        case = (x, grad, filter_size, window, padding_mode, dtype)
        assert_close(fast(*case), plain(*case), 1e-8)


@pytest.mark.parametrize("filter_size", FILTER_SIZES)
def test_a_row_no_longer_than_the_filter_will_do(filter_size):
    x = signals(2, 2, filter_size)
    grad = signals(2, 2, filter_size, seed=5)
    case = (x, grad, filter_size, "boxcar", "circular", torch.float64)
    ours, expected = fast(*case), plain(*case)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)],
)
@pytest.mark.parametrize("filter_size", [1, 2, 5, 17])
def test_lower_precision_is_close_to_float64(filter_size, dtype, tolerance):
    x, grad = signals(4, 3, 10_007, dtype=dtype), signals(4, 3, 10_007, dtype=dtype, seed=2)
    case = (x, grad, filter_size, "boxcar", "circular", torch.float32)
    ours = fast(*case)
    assert ours[2].dtype == ours[3].dtype == dtype
    assert_close(ours, plain(*case), tolerance)


def test_weak_bins_keep_their_digits():
    x = signals(2, 1, 20_000).cumsum(-1).cumsum(-1)  # power falls by many orders of magnitude
    x, spec = x - x.mean(-1, keepdim=True), Spec(17, 0.0, "hann")
    _, exact = reference.row_statistics(x, spec)
    _, psd = blocked.row_statistics(x.float(), spec)
    _, plain32 = reference.row_statistics(x.float(), spec)
    assert exact.amin() < 1e-6 * exact.amax()
    error, plain_error = ((p.double() / exact - 1).abs().max() for p in (psd, plain32))
    assert error < max(1e-4, 3 * plain_error)


def test_a_mean_of_a_thousand_keeps_its_digits():
    x = (signals(2, 1, 10_000) + 1e3).float()
    grad = signals(2, 1, 10_000, seed=3).float()
    case = (x, grad, 5, "boxcar", "circular", torch.float32)
    assert_close(fast(*case)[2:4], plain(*case)[2:4], 1e-4)


@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
@pytest.mark.parametrize("samples", [1, 700, 2**18])
def test_the_size_of_a_chunk_does_not_matter(samples, padding_mode, monkeypatch):
    x, grad = signals(5, 3, 300), signals(5, 3, 300, seed=4)
    case = (x, grad, 5, "hamming", padding_mode, torch.float64)
    expected = plain(*case)
    monkeypatch.setattr(blocked, "CHUNK_SAMPLES", samples)
    assert_close(fast(*case), expected, 1e-9)


def test_strides_do_not_matter():
    x = signals(2, 50, 3).transpose(1, 2)
    grad = signals(1, 1, 50, seed=6).expand(2, 3, 50)
    case = (x, grad, 4, "boxcar", "zeros", torch.float64)
    assert_close(fast(*case), plain(*case), 1e-9)


def test_an_empty_batch_gives_an_empty_result():
    empty = torch.empty(0, 2, 50)
    offset, psd, y, grad_x, *_ = fast(empty, empty, 5, "boxcar", "circular", torch.float32)
    assert (offset.shape, psd.shape) == ((0, 2), (0, 2, 3))
    assert y.shape == grad_x.shape == (0, 2, 50)


def largest_allocation(function, *args):
    options = {"activities": [ProfilerActivity.CPU], "profile_memory": True, "acc_events": True}
    with profile(**options) as record:
        function(*args)
    return max(event.cpu_memory_usage for event in record.events())


def test_no_copy_of_the_signal_is_made():
    x = torch.randn(40, 4, 30_000)  # 19 MB
    chunk = 4 * blocked.CHUNK_SAMPLES
    assert largest_allocation(blocked.row_statistics, x, Spec(5)) <= 2 * chunk
    offset, psd = blocked.row_statistics(x, Spec(5))
    args = (x, offset, psd, torch.ones(4, 3), Spec(5))
    assert largest_allocation(blocked.normalize, *args) <= x.nbytes  # the output itself
    assert largest_allocation(blocked.normalize_backward, x, *args) <= x.nbytes


def test_the_signatures_are_those_of_the_reference():
    for name in ("row_statistics", "normalize"):
        ours, theirs = (inspect.signature(getattr(m, name)) for m in (blocked, reference))
        assert ours == theirs
