"""The mathematics against independent truths: SciPy, POT, closed forms, a slow float64 oracle."""

import numpy as np
import oracle
import pytest
import torch
from properties import given, settings, st

from psdnorm.ops import reference
from psdnorm.ops.reference import Spec

FILTER_SIZES = (1, 2, 3, 4, 5, 8, 16, 17)
PADDINGS = ("circular", "zeros", "reflect")


def rows(*shape, seed=0, dtype=torch.float64):
    """Coloured noise with a mean: neither white nor centred."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (x + 0.6 * x.roll(1, -1) + 0.3).to(dtype)


def spectra(*shape, seed=0):
    return 0.2 + torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("window", ["boxcar", "hann", "hamming"])
@pytest.mark.parametrize("filter_size", [*FILTER_SIZES, 63, 64, 65, 101])
def test_welch_is_scipys(filter_size, window):
    signal = pytest.importorskip("scipy.signal")
    x = reference.center(rows(2, 3, 101))
    taper = signal.get_window(window, filter_size)
    _, expected = signal.welch(
        x.numpy(),
        fs=1,
        window=taper,
        nperseg=filter_size,
        noverlap=filter_size // 2,
        detrend=False,
        return_onesided=False,
    )
    psd = reference.welch_psd(x, filter_size, window)
    n_bins = filter_size // 2 + 1
    np.testing.assert_allclose(psd, expected[..., :n_bins], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("window", ["boxcar", "hann", "hamming"])
def test_windows_are_scipys_scaled_to_unit_norm(window):
    signal = pytest.importorskip("scipy.signal")
    for f in range(1, 20):
        expected = signal.get_window(window, f)
        ours = reference.unit_window(f, window, torch.zeros(1, dtype=torch.float64))
        np.testing.assert_allclose(ours, expected / np.linalg.norm(expected), atol=1e-12)


def test_white_noise_has_its_variance_at_every_bin():
    noise = 3 * torch.randn(1, 1, 400_000, generator=torch.Generator().manual_seed(1))
    for f in (1, 2, 5, 16):
        psd = reference.welch_psd(reference.center(noise), f)
        torch.testing.assert_close(psd, torch.full_like(psd, 9.0), rtol=0.03, atol=0)


def test_a_single_bin_is_the_biased_variance():
    x = rows(2, 3, 50)
    psd = reference.welch_psd(reference.center(x), 1)
    torch.testing.assert_close(psd[..., 0], x.var(-1, correction=0))


def test_the_trailing_rest_that_fills_no_segment_is_not_used():
    x = reference.center(rows(1, 1, 20))  # f = 5, hop 3: segments end at sample 20 = 0 + 5 * 3 + 5
    longer = torch.cat([x, torch.full((1, 1, 2), 1e6, dtype=x.dtype)], dim=-1)
    torch.testing.assert_close(reference.welch_psd(x, 5), reference.welch_psd(longer, 5))


@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1, 12345.678])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_constant_row_is_centred_to_exact_zeros(value, dtype):
    assert not reference.center(torch.full((1, 1, 10_007), value, dtype=dtype)).any()


def test_a_large_mean_costs_no_digits():
    x = torch.randn(1, 1, 100_003, generator=torch.Generator().manual_seed(2)) + 1e3
    exact = reference.center(x.double())
    assert (reference.center(x) - exact).norm() < 1e-5 * exact.norm()


@pytest.mark.parametrize("filter_size", [1, 2, 5, 8, 9])
def test_the_barycenter_is_that_of_dense_gaussians(filter_size):
    ot = pytest.importorskip("ot")
    psd = spectra(6, 1, filter_size // 2 + 1)
    covariances = np.stack([oracle.circulant(p[0].numpy(), filter_size) for p in psd])
    _, expected = ot.gaussian.bures_wasserstein_barycenter(
        np.zeros((6, filter_size)), covariances, num_iter=500, eps=1e-12
    )
    ours = reference.batch_barycenter(psd)[0].square().numpy()
    np.testing.assert_allclose(oracle.circulant(ours, filter_size), expected, atol=1e-8)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_the_geodesic_is_that_of_dense_gaussians(share):
    ot = pytest.importorskip("ot")
    f = 7
    start, end = spectra(1, 4, seed=3), spectra(1, 4, seed=4)
    covariances = np.stack([oracle.circulant(p[0].numpy(), f) for p in (start, end)])
    _, expected = ot.gaussian.bures_wasserstein_barycenter(
        np.zeros((2, f)),
        covariances,
        weights=np.array([1 - share, share]),
        num_iter=500,
        eps=1e-12,
    )
    ours = reference.geodesic(start.sqrt(), end.sqrt(), share)[0].square().numpy()
    np.testing.assert_allclose(oracle.circulant(ours, f), expected, atol=1e-8)


@pytest.mark.parametrize("filter_size", [1, 4, 7, 12])
def test_the_full_length_filter_is_the_monge_map_of_dense_gaussians(filter_size):
    ot = pytest.importorskip("ot")
    n_bins = filter_size // 2 + 1
    source, target = spectra(1, 1, n_bins, seed=5), spectra(1, n_bins, seed=6)
    matrix, _ = ot.gaussian.bures_wasserstein_mapping(
        np.zeros(filter_size),
        np.zeros(filter_size),
        oracle.circulant(source[0, 0].numpy(), filter_size),
        oracle.circulant(target[0].numpy(), filter_size),
    )
    taps = reference.monge_filter(source, target.sqrt(), filter_size)
    identity = torch.eye(filter_size, dtype=torch.float64).unsqueeze(1)
    np.testing.assert_allclose(reference.monge_map(identity, taps)[:, 0], matrix, atol=1e-8)


@pytest.mark.parametrize("filter_size", [*FILTER_SIZES, 65, 66])
def test_the_filter_is_symmetric_and_meets_the_gain_at_every_bin(filter_size):
    n_bins = filter_size // 2 + 1
    psd, sqrt_target = spectra(1, 1, n_bins), spectra(1, n_bins, seed=1)
    taps = reference.monge_filter(psd, sqrt_target, filter_size)[0, 0]
    torch.testing.assert_close(taps, taps.flip(-1))
    lags = torch.arange(len(taps)).double() - len(taps) // 2
    k = torch.arange(n_bins).double().unsqueeze(1)
    response = (taps * torch.cos(2 * torch.pi * k * lags / filter_size)).sum(-1)
    torch.testing.assert_close(response, (sqrt_target / psd.sqrt())[0, 0])


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("filter_size", FILTER_SIZES)
def test_gradients_through_mean_psd_and_filter_are_those_of_finite_differences(
    filter_size, padding_mode
):
    x = rows(2, 2, 23).requires_grad_()
    weight, bias = spectra(2).requires_grad_(), spectra(2, seed=1).requires_grad_()
    sqrt_target = spectra(2, filter_size // 2 + 1, seed=2)

    def normalized(x, weight, bias):
        spec = Spec(filter_size, padding_mode=padding_mode)
        offset, psd = reference.row_statistics(x, spec)
        return reference.normalize(x, offset, psd, sqrt_target, spec, weight, bias)

    assert torch.autograd.gradcheck(normalized, (x, weight, bias))


@pytest.mark.parametrize("window", ["hann", "hamming"])
def test_gradients_hold_for_tapered_windows(window):
    x = rows(1, 2, 23).requires_grad_()
    spec = Spec(6, window=window)
    assert torch.autograd.gradcheck(lambda x: reference.row_statistics(x, spec)[1], x)


@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("filter_size", [2, 7, 16, 33])
def test_the_fft_path_equals_the_direct_one(filter_size, padding_mode, monkeypatch):
    x, sqrt_target = rows(2, 3, 67), spectra(3, filter_size // 2 + 1)

    def normalized():
        leaf = x.clone().requires_grad_()
        spec = Spec(filter_size, padding_mode=padding_mode)
        y = reference.normalize(leaf, *reference.row_statistics(leaf, spec), sqrt_target, spec)
        upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).double()
        return y.detach(), torch.autograd.grad(y, leaf, upstream)[0]

    direct = normalized()
    monkeypatch.setattr(reference, "DIRECT_FILTER_SIZE", 0)
    torch.testing.assert_close(normalized(), direct)


@settings(max_examples=150)
@given(data=st.data())
def test_any_shape_filter_and_padding_agrees_with_the_oracle(data):
    n, c = data.draw(st.integers(1, 3), "N"), data.draw(st.integers(1, 3), "C")
    length = data.draw(st.integers(1, 90), "T")
    f = data.draw(st.integers(1, length), "f")
    padding = data.draw(st.sampled_from(PADDINGS), "padding")
    window = data.draw(st.sampled_from(sorted(reference.WINDOWS)), "window")
    seed = data.draw(st.integers(0, 2**16), "seed")
    x, sqrt_target = rows(n, c, length, seed=seed), spectra(c, f // 2 + 1, seed=seed)
    spec = Spec(f, 1e-3, window, padding)
    ours = reference.normalize(x, *reference.row_statistics(x, spec), sqrt_target, spec)
    expected = oracle.psd_norm(x.numpy(), sqrt_target.numpy(), f, 1e-3, window, padding)
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-8)


def test_a_row_that_is_not_finite_is_left_out_of_the_barycenter():
    psd = spectra(4, 2, 3)
    poisoned = psd.clone()
    poisoned[1, 0, 2] = torch.nan
    poisoned[2, 0, 0] = torch.inf
    barycenter = reference.batch_barycenter(poisoned)
    torch.testing.assert_close(barycenter[0], psd[[0, 3], 0].sqrt().mean(0))
    torch.testing.assert_close(barycenter[1], psd[:, 1].sqrt().mean(0))
