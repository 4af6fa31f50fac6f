"""statistics="domain": rows of one domain share a filter, and the barycenter averages domains."""

import numpy as np
import oracle
import pytest
import scipy.signal
import torch
from torch import nn

from psdnorm import PSDNorm, domains
from psdnorm.functional import psd_norm

IDS = [3, 0, 3, 3, 8, 0]  # domains of three rows, two and one
both_backends = pytest.mark.parametrize("backend", ["reference", "fused"])
both_centers = pytest.mark.parametrize("center", ["row", "domain"])


def signals(n=6, channels=2, length=210, seed=0, dtype=torch.float64):
    """Coloured rows, each with a level and a mean of its own."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, channels, length, generator=generator, dtype=torch.float64)
    level = 1 + torch.rand(n, channels, 1, generator=generator, dtype=torch.float64)
    return (level * (x + 0.6 * x.roll(1, -1)) + 3 * level).to(dtype)


def step(layer, x, ids):
    """Output, gradients of everything, and state after one step."""
    leaf = x.clone().requires_grad_()
    with domains(ids):
        y = layer(leaf)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    y.backward(upstream)
    gradients = [leaf.grad, *(p.grad for p in layer.parameters())]
    return y.detach(), gradients, dict(layer.state_dict())


def pooled(x, ids, f, center, window="boxcar"):
    """Welch PSD of each domain in float64, by SciPy: {id: (C, F)}, and mean of each row (N, C)."""
    x, ids = x.double().numpy(), np.asarray(ids)
    means = x.mean(-1)
    if center == "domain":
        means = np.stack([means[ids == i].mean(0) for i in ids])
    _, psd = scipy.signal.welch(
        *(x - means[..., None], 1, scipy.signal.get_window(window, f), f, f // 2),
        detrend=False,
        return_onesided=False,
    )
    return {i: psd[ids == i, :, : f // 2 + 1].mean(0) for i in np.unique(ids)}, means


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@both_backends
def test_one_tap_one_domain_and_a_white_target_is_batch_norm(dtype, tolerance, backend):
    options = {"target": "white", "affine": True, "statistics": "domain", "center": "domain"}
    layer = PSDNorm(2, 1, backend=backend, dtype=dtype, **options)
    batch_norm = nn.BatchNorm1d(2, dtype=dtype)
    x = signals(dtype=dtype)
    found, expected = step(layer, x, [0] * 6), step(batch_norm, x, [0] * 6)
    tolerance = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found[0], expected[0], **tolerance)
    for got, wanted in zip(found[1], expected[1], strict=True):
        tolerance["atol"] = tolerance["rtol"] * wanted.abs().max().item()
        torch.testing.assert_close(got, wanted, **tolerance)
    plain = PSDNorm(2, 1, backend=backend, dtype=dtype, **options | {"affine": False})
    with domains([0] * 6):
        torch.testing.assert_close(
            plain(x), nn.BatchNorm1d(2, affine=False, dtype=dtype)(x), **tolerance
        )


def test_several_domains_are_as_many_batch_norms():
    layer = PSDNorm(2, 1, target="white", statistics="domain", center="domain")
    x = signals(dtype=torch.float32)
    with domains(IDS):
        y = layer(x)
    for i in set(IDS):
        rows = torch.tensor(IDS) == i
        torch.testing.assert_close(y[rows], nn.BatchNorm1d(2, affine=False)(x[rows]))


def test_one_tap_with_unit_power_is_instance_norm():
    layer = PSDNorm(2, 1, target_power="unit")
    for scale in (1, 50):
        x = scale * signals(dtype=torch.float32)
        torch.testing.assert_close(layer(x), nn.InstanceNorm1d(2)(x))
    assert (layer.running_sqrt_psd > 1).all()  # which is not scaled
    torch.testing.assert_close(layer.eval()(x), nn.InstanceNorm1d(2)(x))


@pytest.mark.parametrize(
    "options", [{}, {"filter_size": 4, "window": "hann"}, {"center": "domain"}]
)
@both_backends
def test_where_every_row_is_a_domain_nothing_is_pooled(options, backend):
    options = {"filter_size": 5, "affine": True, "backend": backend} | options
    x = signals()
    by_domain = PSDNorm(2, statistics="domain", **options).double()
    options.pop("center", None)
    by_row = PSDNorm(2, **options).double()
    tolerance = {"rtol": 1e-12, "atol": 1e-10}
    torch.testing.assert_close(step(by_domain, x, range(6)), step(by_row, x, range(6)), **tolerance)


@pytest.mark.parametrize("window", ["boxcar", "hann"])
@both_centers
@both_backends
def test_the_psd_of_a_domain_is_the_mean_of_welchs_over_its_rows(center, window, backend):
    for f in (1, 5, 8):
        options = {"statistics": "domain", "center": center, "window": window, "backend": backend}
        layer, x = PSDNorm(2, f, **options).double(), signals()
        with domains(["one"] * 6):
            layer(x)
        psd, _ = pooled(x, ["one"] * 6, f, center, window)
        np.testing.assert_allclose(layer.running_sqrt_psd**2, psd["one"] + 1e-5, rtol=1e-10)


@both_centers
@both_backends
def test_the_barycenter_averages_domains_not_rows(center, backend):
    layer = PSDNorm(2, 5, statistics="domain", center=center, backend=backend).double()
    x = signals()
    with domains(IDS):
        layer(x)
    psd, _ = pooled(x, IDS, 5, center)
    expected = np.mean([np.sqrt(p + 1e-5) for p in psd.values()], axis=0)
    np.testing.assert_allclose(layer.running_sqrt_psd, expected, rtol=1e-10)


@pytest.mark.parametrize("target_power", ["as-is", "unit"])
@pytest.mark.parametrize("eps_mode", ["absolute", "relative"])
@both_centers
@both_backends
def test_a_training_step_is_the_oracles_filter_of_the_domains(
    center, eps_mode, target_power, backend
):
    x, f, eps = signals(), 4, 1e-2
    options = {"eps_mode": eps_mode, "target_power": target_power, "eps": eps, "backend": backend}
    layer = PSDNorm(2, f, statistics="domain", center=center, **options).double()
    with domains(IDS):
        y = layer(x)
    found, means = pooled(x, IDS, f, center)
    weights = np.array([1, 2, 1]) / 4
    psd = {
        i: p + eps * (1 if eps_mode == "absolute" else (p @ weights)[:, None])
        for i, p in found.items()
    }
    target = np.mean([np.sqrt(p) for p in psd.values()], axis=0)
    if target_power == "unit":
        target = target / np.sqrt(target**2 @ weights)[:, None]
    for n, c in np.ndindex(6, 2):
        row = np.pad(x[n, c].numpy() - means[n, c], f // 2, "wrap")
        expected = np.convolve(row, oracle.taps(psd[IDS[n]][c], target[c], f), "valid")
        np.testing.assert_allclose(y[n, c], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("eps_mode", ["absolute", "relative"])
@pytest.mark.parametrize("detrend", ["row", "segment"])
@both_centers
def test_gradients_are_those_of_finite_differences(center, detrend, eps_mode):
    x = signals(4, 1, 11)
    target = 0.5 + torch.rand(1, 3, generator=torch.Generator().manual_seed(2)).double()
    options = {"statistics": "domain", "center": center, "detrend": detrend}
    options |= {"eps_mode": eps_mode, "target_power": "unit", "eps": 0.05}

    def normalized(x, weight, bias, target):
        with domains([1, 0, 1, 1]):
            return psd_norm(x, target, 4, weight, bias, backend=backend, **options)

    leaves = [x, torch.full((1,), 0.7).double(), torch.full((1,), -0.2).double()]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    for backend in ("fused", "reference"):
        if backend == "reference":
            target.requires_grad_()  # through its scaling
        assert torch.autograd.gradcheck(normalized, (*leaves, target))


@both_centers
def test_second_derivatives_exist(center):
    def normalized(x):
        with domains([1, 0, 1]):
            return psd_norm(x, None, 4, statistics="domain", center=center, eps=0.05)

    assert torch.autograd.gradgradcheck(normalized, signals(3, 1, 9).requires_grad_())


@pytest.mark.parametrize("options", [{}, {"target": "white"}], ids=str)
def test_in_evaluation_the_batch_is_pooled_and_nothing_is_updated(options):
    layer = PSDNorm(2, 5, statistics="domain", **options).double()
    with domains(IDS):
        layer(signals())
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        layer.eval()
        x = signals(seed=3)
        y = layer(x)
        target = None if options else layer.running_sqrt_psd
        expected = psd_norm(x, target, 5, statistics="domain")
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(dict(layer.state_dict()), before, rtol=0, atol=0)


def test_a_gain_of_a_device_is_undone_even_where_rows_differ_in_power():
    layer = PSDNorm(2, 5, statistics="domain", eps=1e-10).double()
    x = signals()
    gains = torch.tensor([100.0 if i == 3 else 1.0 for i in IDS]).view(-1, 1, 1)
    with domains(IDS):
        layer(x)
        layer.eval()
        torch.testing.assert_close(layer(gains * x), layer(x), rtol=1e-6, atol=1e-6)
        kept = layer(x).var(-1) / x.var(-1)
    # what differs within a domain, a class maybe, stays different
    torch.testing.assert_close(kept[[2, 3]], kept[[0, 0]], rtol=0.15, atol=0)


@both_centers
@both_backends
def test_a_broken_row_is_left_out_and_counted(center, backend):
    x = signals()
    x[2, 1, 7] = torch.nan
    x[4] = torch.inf  # all of domain 8
    layer = PSDNorm(2, 5, statistics="domain", center=center, backend=backend).double()
    with domains(IDS):
        y = layer(x)
    assert layer.rows_skipped == 3
    assert layer.num_batches_tracked.tolist() == [1, 1]
    finite = y.isfinite().all(-1)
    assert (~finite).nonzero().tolist() == [[2, 1], [4, 0], [4, 1]]
    for channel, kept in ((0, [0, 1, 2, 3, 5]), (1, [0, 1, 3, 5])):
        alone = PSDNorm(1, 5, statistics="domain", center=center, backend=backend).double()
        with domains([IDS[i] for i in kept]):
            expected = alone(x[kept, channel : channel + 1])
        torch.testing.assert_close(y[kept, channel : channel + 1], expected)
        torch.testing.assert_close(layer.running_sqrt_psd[channel], alone.running_sqrt_psd[0])


@both_centers
@both_backends
def test_the_gradient_of_a_broken_row_stays_in_it(center, backend):
    x = signals()
    x[2, 1, 7] = torch.nan
    layer = PSDNorm(2, 5, statistics="domain", center=center, backend=backend).double()
    leaf, whole = x.clone().requires_grad_(), torch.tensor([0, 1, 3, 4, 5])
    with domains(IDS):
        y = layer(leaf)
    y[whole].sin().sum().backward()
    assert leaf.grad[whole].isfinite().all()
    rest = x[whole].clone().requires_grad_()
    target = layer.running_sqrt_psd[1:]
    with domains([IDS[i] for i in whole]):
        options = {"statistics": "domain", "center": center, "backend": backend}
        psd_norm(rest[:, 1:], target, 5, **options).sin().sum().backward()
    torch.testing.assert_close(leaf.grad[whole, 1], rest.grad[:, 1])


def test_a_channel_without_a_valid_row_keeps_its_barycenter():
    layer = PSDNorm(2, 5, statistics="domain").double()
    x = signals()
    x[:, 0] = torch.nan
    with domains(IDS):
        layer(x)
    assert layer.running_sqrt_psd[0].tolist() == [1, 1, 1]
    assert layer.num_batches_tracked.tolist() == [0, 1]
    assert layer.rows_skipped == 6


def test_the_functional_takes_what_the_layer_takes():
    options = {"filter_size": 4, "window": "hann", "detrend": "segment", "padding_mode": "reflect"}
    options |= {"statistics": "domain", "center": "domain", "target_power": "unit"}
    options |= {"eps_mode": "relative", "eps": 1e-3}
    layer = PSDNorm(2, **options).double()
    with domains(IDS):
        y = layer(x := signals())
        torch.testing.assert_close(y, psd_norm(x, layer.running_sqrt_psd, **options))


def test_torch_func_sees_through_domains():
    layer = PSDNorm(2, 5, statistics="domain").double().eval()
    x = signals().requires_grad_()
    with domains(IDS):
        layer(x).sin().sum().backward()
        gradient = torch.func.grad(lambda x: layer(x).sin().sum())(x.detach())
        stacked = torch.stack([x.detach(), signals(seed=5)])
        mapped = torch.func.vmap(layer)(stacked)
        torch.testing.assert_close(mapped, torch.stack([layer(x) for x in stacked]))
    torch.testing.assert_close(gradient, x.grad)


def test_statistics_under_autocast_are_exact():
    network = nn.Sequential(nn.Conv1d(2, 3, 5), PSDNorm(3, 5, statistics="domain", affine=True))
    x = signals(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16), domains(IDS):
        features = network[0](x)
        y = network[1](features)
    assert features.dtype == y.dtype == torch.bfloat16
    alone = PSDNorm(3, 5, statistics="domain")
    with domains(IDS):
        alone(features.float())
    torch.testing.assert_close(network[1].running_sqrt_psd, alone.running_sqrt_psd)


def test_no_step_waits_for_a_value_on_the_host():
    # a meta tensor has no values to wait for: asking for one would raise
    layer = PSDNorm(2, 4, device="meta", statistics="domain", center="domain", eps_mode="relative")
    with domains(IDS):
        for mode in (layer.train, layer.eval):
            assert mode()(torch.empty(6, 2, 200, device="meta")).shape == (6, 2, 200)
