"""Segments that lose their own means: SciPy's detrend="constant" is the truth for every window."""

import numpy as np
import pytest
import torch

from psdnorm.errors import BackendError
from psdnorm.functional import psd_norm
from psdnorm.ops import cpu as blocked
from psdnorm.ops import dispatch as fused
from psdnorm.ops import reference
from psdnorm.ops.reference import Spec

WINDOWS = tuple(reference.WINDOWS)
FILTER_SIZES = (2, 3, 4, 5, 8, 17, 32)


def rows(*shape, seed=0, dtype=torch.float64):
    """Noise on a slow drift: segments differ in their means."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (x + 0.6 * x.roll(1, -1) + 0.3 * x.cumsum(-1)).to(dtype)


def scipys(x, filter_size, window):
    signal = pytest.importorskip("scipy.signal")
    taper = signal.get_window(window, filter_size)
    _, psd = signal.welch(
        x.numpy(),
        fs=1,
        window=taper,
        nperseg=filter_size,
        noverlap=filter_size // 2,
        detrend="constant",
        return_onesided=False,
    )
    return psd[..., : filter_size // 2 + 1]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("filter_size", [*FILTER_SIZES, 64, 65, 101])
def test_the_psd_is_scipys_with_constant_detrending(filter_size, window):
    x = rows(2, 3, 211)
    expected = scipys(x, filter_size, window)
    psd = reference.welch_psd(reference.center(x), filter_size, window, "segment")
    np.testing.assert_allclose(psd, expected, rtol=1e-9, atol=1e-12)
    if filter_size <= fused.LARGEST_FILTER_SIZE:
        _, psd = blocked.row_statistics(x, Spec(filter_size, 0.0, window, detrend="segment"))
        np.testing.assert_allclose(psd, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("filter_size", [2, 5, 8, 65])
def test_a_rectangular_window_loses_bin_0_exactly_and_nothing_else(filter_size, dtype):
    x = 1e4 * rows(2, 3, 211, dtype=dtype)  # so loud that rounding would show beside eps
    _, plain = reference.row_statistics(x, Spec(filter_size))
    _, psd = reference.row_statistics(x, Spec(filter_size, detrend="segment"))
    assert torch.equal(psd[..., 0], torch.full_like(psd[..., 0], 1e-5))
    torch.testing.assert_close(psd[..., 1:], plain[..., 1:])
    if filter_size <= fused.LARGEST_FILTER_SIZE:
        _, psd = blocked.row_statistics(x, Spec(filter_size, detrend="segment"))
        assert torch.equal(psd[..., 0], torch.full_like(psd[..., 0], 1e-5))


@pytest.mark.parametrize("window", ["hann", "hamming"])
def test_other_windows_keep_some_power_in_bin_0_and_change_bin_1_too(window):
    x = reference.center(rows(2, 3, 211))
    plain = reference.welch_psd(x, 8, window)
    psd = reference.welch_psd(x, 8, window, "segment")
    assert (psd[..., 0] > 0).all()
    assert (psd[..., :2] < 0.95 * plain[..., :2]).all()
    torch.testing.assert_close(psd[..., 2:], plain[..., 2:])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("ops", [reference, fused])
def test_a_segment_of_one_sample_keeps_its_mean(ops, window):
    x = rows(2, 3, 50)
    spec = Spec(1, window=window)
    found = ops.row_statistics(x, spec._replace(detrend="segment"))
    assert all(map(torch.equal, found, ops.row_statistics(x, spec)))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("deviation", [1.0, 3.0])
def test_the_white_root_is_what_white_noise_measures(window, deviation):
    generator = torch.Generator().manual_seed(1)
    noise = deviation * torch.randn(1, 1, 400_000, generator=generator).double()
    for filter_size in (1, 2, 5, 16):
        for detrend in reference.DETRENDS:
            spec = Spec(filter_size, 1e-3, window, detrend=detrend)
            _, psd = reference.row_statistics(noise, spec)
            root = reference.white_root(torch.tensor([deviation]).double(), spec)
            torch.testing.assert_close(root, psd[0].sqrt(), rtol=0.02, atol=0)


def test_the_white_root_is_exactly_one_where_only_the_row_loses_its_mean():
    for window in WINDOWS:
        root = reference.white_root(torch.ones(3), Spec(5, window=window))
        assert torch.equal(root, torch.ones(3, 3))


def outcome(ops, x, grad, filter_size, window, padding_mode):
    generator = torch.Generator().manual_seed(1)
    parameters = 0.5 + torch.rand(x.shape[1], filter_size // 2 + 3, generator=generator)
    parameters = parameters.to(x.dtype)
    leaves = [t.clone().requires_grad_() for t in (x, parameters[:, -2], parameters[:, -1])]
    spec = Spec(filter_size, 1e-3, window, padding_mode, "segment")
    offset, psd = ops.row_statistics(leaves[0], spec)
    y = ops.normalize(leaves[0], offset, psd, parameters[:, :-2], spec, *leaves[1:])
    return [psd, y, *torch.autograd.grad(y, leaves, grad)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
@pytest.mark.parametrize("filter_size", FILTER_SIZES)
def test_outputs_and_gradients_of_the_processors_path_are_the_references(
    filter_size, padding_mode, window
):
    x, grad = rows(3, 2, 131), rows(3, 2, 131, seed=5)
    case = (x, grad, filter_size, window, padding_mode)
    for found, exact in zip(outcome(fused, *case), outcome(reference, *case), strict=True):
        assert (found - exact).norm() <= 1e-9 * exact.norm()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("filter_size", [2, 5, 8])
def test_gradients_are_those_of_differences(filter_size, backend, window):
    x = rows(1, 2, 20).requires_grad_()
    options = {"window": window, "backend": backend, "detrend": "segment", "eps": 1e-2}
    target = 0.5 + torch.rand(2, filter_size // 2 + 1, generator=torch.Generator().manual_seed(2))
    torch.autograd.gradcheck(lambda x: psd_norm(x, target.double(), filter_size, **options), x)


def test_second_derivatives_of_the_fast_path_are_those_of_differences():
    x = rows(1, 1, 14).requires_grad_()
    options = {"window": "hann", "backend": "fused", "detrend": "segment", "eps": 0.1}
    torch.autograd.gradgradcheck(lambda x: psd_norm(x, filter_size=4, **options), x)


def test_a_filter_that_is_too_long_for_the_fast_path_takes_the_reference():
    x = rows(1, 2, 2000)
    y = psd_norm(x, filter_size=33, detrend="segment")
    expected = psd_norm(x, filter_size=33, detrend="segment", backend="reference")
    assert torch.equal(y, expected)
    with pytest.raises(BackendError, match="filter_size 33"):
        psd_norm(x, filter_size=33, detrend="segment", backend="fused")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("ops", [reference, fused])
def test_a_row_that_is_not_finite_is_noticed_and_spoils_only_itself(ops, value):
    x = rows(1, 2, 101)
    spec = Spec(2, detrend="segment")
    healthy = ops.row_statistics(x, spec)[1]
    x[0, 1, 50] = value
    psd = ops.row_statistics(x, spec)[1]
    assert reference.valid_rows(psd).tolist() == [[True, False]]
    assert torch.equal(psd[0, 0], healthy[0, 0])


def test_the_operators_keep_their_promises_to_torch():
    x = rows(1, 2, 20, dtype=torch.float32)
    spec = Spec(4, 1e-5, "hann", "zeros", "segment")
    torch.library.opcheck(torch.ops.psdnorm.row_statistics, (x, *spec))
    statistics, target = fused.row_statistics(x, spec), torch.ones(2, 3)
    leaf = x.clone().requires_grad_()
    torch.library.opcheck(
        torch.ops.psdnorm.normalize, (leaf, None, None, target, *statistics, None, 0, *spec)
    )
    torch.library.opcheck(
        torch.ops.psdnorm.normalize_backward,
        (x.flip(-1), x, *statistics, target, None, None, 0, *spec),
    )
