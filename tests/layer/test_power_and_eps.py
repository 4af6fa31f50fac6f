"""target_power, eps_mode, and the warning of an eps that is not small."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from psdnorm import PSDNorm, adapt, calibrate, domains
from psdnorm.functional import psd_norm
from psdnorm.ops.reference import Spec, mean_power

VOLTS = 1e-6
IDS = [0, 1, 0, 1]
both_backends = pytest.mark.parametrize("backend", ["reference", "fused"])
by_row_and_domain = pytest.mark.parametrize(
    "options",
    [{}, {"statistics": "domain"}, {"statistics": "domain", "center": "domain"}],
    ids=["row", "domain", "centred"],
)


def signals(n=4, seed=0, length=300):
    x = torch.randn(n, 2, length, generator=torch.Generator().manual_seed(seed))
    return 20 * (x + 0.6 * x.roll(1, -1) + 0.5)  # µV


def after_one_step(x, **options):
    layer = PSDNorm(2, **options).to(x.dtype)
    with domains(IDS):
        return layer, layer(x)


@pytest.mark.parametrize("window", ["boxcar", "hann"])
@pytest.mark.parametrize("f", range(1, 10))
def test_mean_power_is_the_mean_over_all_bins(f, window):
    psd = torch.rand(3, f // 2 + 1, generator=torch.Generator().manual_seed(f)).double()
    # the first sample of the inverse transform is the mean of a whole spectrum
    whole = np.fft.fft(np.fft.irfft(psd, f)).real
    np.testing.assert_allclose(np.fft.irfft(psd, f)[:, 0], whole.mean(-1))
    found = mean_power(psd, Spec(f, window=window))
    np.testing.assert_allclose(found, whole.mean(-1, keepdims=True))
    if f > 1:
        detrended = mean_power(psd, Spec(f, window=window, detrend="segment"))
        first = 1 if window == "boxcar" else 0  # centred segments are empty in bin 0
        np.testing.assert_allclose(detrended, whole[:, first:].mean(-1, keepdims=True))


@pytest.mark.parametrize("detrend", ["row", "segment"])
@pytest.mark.parametrize("f", [1, 2, 4, 5])
@by_row_and_domain
def test_unit_power_scales_the_target_and_not_what_is_stored(f, detrend, options):
    x = signals().double()
    options = options | {"filter_size": f, "detrend": detrend}
    plain, y = after_one_step(x, **options)
    unit, scaled = after_one_step(x, target_power="unit", **options)
    torch.testing.assert_close(unit.state_dict(), plain.state_dict(), rtol=0, atol=0)
    power = mean_power(plain.running_sqrt_psd.square(), unit.spec).sqrt()
    torch.testing.assert_close(scaled * power, y)
    with domains(IDS):
        again = signals(seed=1).double()
        torch.testing.assert_close(unit.eval()(again) * power, plain.eval()(again))


@pytest.mark.parametrize("detrend", ["row", "segment"])
def test_with_unit_power_outputs_have_the_scale_of_batch_norms(detrend):
    for scale in (VOLTS, 1, 1000):
        options = {"target_power": "unit", "eps_mode": "relative", "detrend": detrend}
        _, y = after_one_step(scale * signals(length=3000), filter_size=8, **options)
        torch.testing.assert_close(y.std(), torch.tensor(1.0), rtol=0.2, atol=0)


@pytest.mark.parametrize("window", ["boxcar", "hann"])
@pytest.mark.parametrize("detrend", ["row", "segment"])
def test_with_a_white_target_unit_power_changes_nothing(window, detrend):
    options = {"target": "white", "filter_size": 5, "window": window, "detrend": detrend}
    plain, y = after_one_step(signals(), **options)
    unit, scaled = after_one_step(signals(), target_power="unit", **options)
    assert torch.equal(y, scaled)
    assert torch.equal(plain.eval()(signals()), unit.eval()(signals()))
    options.pop("target")
    assert torch.equal(
        psd_norm(signals(), target_power="unit", **options), psd_norm(signals(), **options)
    )


@by_row_and_domain
@both_backends
def test_with_relative_eps_the_unit_of_the_signal_does_not_matter(options, backend):
    options = options | {"filter_size": 5, "target_power": "unit", "backend": backend}
    found = {}
    for unit in (1, VOLTS):
        layer, y = after_one_step(unit * signals(), eps_mode="relative", **options)
        assert layer.eval() is layer  # no warning
        with domains(IDS):
            found[unit] = torch.stack([y, layer(unit * signals(seed=1))])
    assert (found[1] - found[VOLTS]).norm() < 1e-4 * found[1].norm()
    layer, y = after_one_step(VOLTS * signals(), **options)
    assert (y - found[1][0]).norm() > 0.1 * y.norm()  # absolute eps undoes the normalization
    with pytest.warns(UserWarning, match="gains are undone only in part"):
        layer.eval()


@by_row_and_domain
@both_backends
def test_with_relative_eps_rows_without_power_give_the_bias_and_do_not_count(options, backend):
    x = signals()
    x[0, 1], x[2, 1] = 7.0, 7.0  # domain 0 in channel 1
    options = options | {"filter_size": 5, "eps_mode": "relative", "backend": backend}
    layer = PSDNorm(2, affine=True, **options)
    nn.init.constant_(layer.bias, 0.25)
    leaf = x.clone().requires_grad_()
    with domains(IDS):
        y = layer(leaf)
    y.sin().sum().backward()
    assert leaf.grad.isfinite().all()
    torch.testing.assert_close(y[::2, 1], torch.full((2, 300), 0.25))
    assert layer.rows_skipped == 2
    rest, _ = after_one_step(x[1::2].repeat_interleave(2, 0), **options)
    torch.testing.assert_close(layer.running_sqrt_psd[1], rest.running_sqrt_psd[1])
    assert layer.num_batches_tracked.tolist() == [1, 1]


@both_backends
def test_a_flat_row_of_a_live_domain_takes_its_filter(backend):
    x = signals()
    x[0] = 7.0
    layer = PSDNorm(2, 5, eps_mode="relative", statistics="domain", backend=backend)
    with domains(IDS):
        y = layer(x)
    assert layer.rows_skipped == 0
    assert (y[0] == 0).all()
    half = layer.spec._replace(statistics="row")
    lone = psd_norm(
        x[2:3], layer.running_sqrt_psd, **{k: getattr(half, k) for k in ("filter_size", "eps_mode")}
    )
    torch.testing.assert_close(y[2:3], lone * 2**0.5)  # the domain has half of its power


@both_backends
def test_a_batch_without_any_power_sets_no_barycenter(backend):
    for options in ({}, {"statistics": "domain"}):
        layer, y = after_one_step(
            torch.ones(4, 2, 300), eps_mode="relative", backend=backend, **options
        )
        assert (y == 0).all()
        assert layer.num_batches_tracked.tolist() == [0, 0]
        assert layer.rows_skipped == 8
        assert (layer.running_sqrt_psd == 1).all()


@pytest.mark.parametrize("options", [{}, {"statistics": "domain"}], ids=str)
def test_where_training_ends_a_large_eps_warns_once_and_names_the_layer(options):
    model = nn.Sequential(nn.Identity(), PSDNorm(2, 5, **options))
    with domains(IDS):
        model(VOLTS * signals())
    said = r"^PSDNorm\(2, filter_size=5.*\): eps=1e-05 is \d.* times the median PSD of a bin, "
    with pytest.warns(UserWarning, match=said) as warned:
        model.eval()
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.train()
        with domains(IDS):
            model(VOLTS * signals())
        model.eval()


@pytest.mark.parametrize("options", [{}, {"statistics": "domain"}], ids=str)
def test_calibrate_warns_with_the_layers_name_and_ratio(options):
    model = nn.Sequential(PSDNorm(2, 5, eps_mode="relative", **options))
    model.add_module("late", PSDNorm(2, 1, eps=0.02, **options))
    batches, ids = [VOLTS * signals(), VOLTS * signals(seed=1)], [IDS, IDS]
    with pytest.warns(UserWarning, match=r"^'late': eps=0\.02 is .* the median PSD") as warned:
        calibrate(model, batches, ids=ids)
    assert len(warned) == 1


def test_the_ratio_is_that_of_eps_to_the_median():
    x = torch.randn(4, 2, 100_000, generator=torch.Generator().manual_seed(0))
    for make_known in (
        lambda m: calibrate(m, [x], ids=[[0] * 4]),
        lambda m: adapt(m.eval(), [x]).__enter__(),
    ):
        model = nn.Sequential(PSDNorm(2, 5, eps=0.5, statistics="domain"))
        said = r"^'0': eps=0\.5 is 0\.5 times the median PSD of a bin, 1(\.\d)?, so "
        with pytest.warns(UserWarning, match=said):
            make_known(model)


def test_adapt_warns_with_the_layers_name_once():
    model = nn.Sequential(nn.Conv1d(2, 2, 1), PSDNorm(2, 5, statistics="domain")).eval()
    for warns in (True, False):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            with adapt(model, [VOLTS**2 * signals()]):
                pass
        assert [str(w.message)[:4] for w in found] == (["'1':"] if warns else [])


@pytest.mark.parametrize("detrend", ["row", "segment"])
@pytest.mark.parametrize("f", [1, 2, 3, 5])
def test_in_microvolts_nothing_warns(f, detrend):
    # pytest makes warnings errors
    for options in ({}, {"statistics": "domain"}, {"target": "white", "statistics": "domain"}):
        model = nn.Sequential(PSDNorm(2, f, detrend=detrend, **options))
        with domains(IDS):
            model(signals())
        model.eval()
        if "target" not in options:
            calibrate(model, [signals()], ids=[IDS])
        if options:
            with adapt(model, [signals()]):
                pass


def test_channels_that_are_flat_or_broken_do_not_warn():
    x = signals()
    for dead in (0.0, torch.nan):
        x[:, 1] = dead
        model = nn.Sequential(PSDNorm(2, 5, statistics="domain"))
        with domains(IDS):
            model(x)
        with adapt(model.eval(), [x]):
            pass


def test_an_untrained_layer_and_one_without_values_have_nothing_to_warn_of():
    PSDNorm(2, 5, eps=10.0).eval()
    with FakeTensorMode():
        model = PSDNorm(2, 5)
        model(torch.randn(4, 2, 100))
        model.eval()
