"""What is measured of a night is what optimal transport and SciPy say it is."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import torch

from psdnorm.drift import bures_wasserstein, levels_db, measure_night
from psdnorm.errors import ShapeError
from psdnorm.layer import PSDNorm
from psdnorm.models import USleep
from psdnorm.ops import reference

SFREQ, N_TIMES = 64.0, 640


def small_model(**options):
    torch.manual_seed(0)
    sizes = {"n_times": N_TIMES, "sfreq": SFREQ, "depth": 4, "n_time_filters": 3}
    model = USleep(**sizes | {"norm": "psd"} | options)
    model(torch.randn(4, 3, 2, N_TIMES))  # the barycenters move
    return model.eval()


def noise(n_epochs=20, seed=0):
    shape = (n_epochs, 2, N_TIMES)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 4, 5, 8])
def test_the_distance_is_that_of_gaussians_with_circulant_covariances(size):
    rng = np.random.default_rng(size)
    bins = np.minimum(np.arange(size), size - np.arange(size))
    roots = rng.uniform(0.2, 2, (2, size // 2 + 1))
    first, second = (scipy.linalg.circulant(np.fft.ifft(each[bins] ** 2).real) for each in roots)
    root = scipy.linalg.sqrtm(first).real
    cross = scipy.linalg.sqrtm(root @ second @ root).real
    expected = np.sqrt(np.trace(first + second - 2 * cross) / size)
    assert bures_wasserstein(*roots, size) == pytest.approx(expected, rel=1e-6)


def test_the_spectrum_is_the_squared_mean_of_the_roots_of_the_epochs_spectra():
    signals = noise() * np.linspace(0.5, 2, 20, dtype=np.float32)[:, None, None]
    found = measure_night(small_model(), signals)
    segments = {"fs": 1, "window": "hann", "nperseg": 256, "detrend": False}
    centred = signals.astype(float) - signals.mean(axis=-1, keepdims=True, dtype=float)
    _, psd = scipy.signal.welch(centred, **segments, return_onesided=False)
    expected = np.sqrt(psd[..., :129]).mean(axis=0)
    np.testing.assert_allclose(found.sqrt_psd, expected, rtol=1e-4)
    np.testing.assert_allclose(found.frequencies_hz, np.arange(129) / 4)


def test_a_long_night_is_measured_in_eight_windows_from_its_start_to_its_end():
    model, signals = small_model(norm="batch"), noise(1000)
    starts = np.linspace(0, 965, 8).round().astype(int)
    used = (starts[:, None] + np.arange(35)).ravel()
    expected = np.mean([measure_night(model, signals[[n]]).sqrt_psd for n in used], axis=0)
    np.testing.assert_allclose(measure_night(model, signals).sqrt_psd, expected, rtol=1e-5)


@pytest.mark.parametrize("detrend", ["row", "segment"])
def test_each_layer_is_measured_where_the_night_reaches_it_and_in_the_order_of_the_pass(detrend):
    model = small_model(filter_size=9, norm_arguments={"detrend": detrend})
    signals = noise(30)
    inputs = {}
    layers = {name: m for name, m in model.named_modules() if isinstance(m, PSDNorm)}
    for name, layer in layers.items():
        layer.register_forward_pre_hook(lambda _, args, name=name: inputs.update({name: args[0]}))
    with torch.no_grad():
        model(torch.from_numpy(signals)[None])
    found = measure_night(model, signals).layers
    assert list(found) == list(inputs)
    assert len(found) == 3
    for name, layer in layers.items():
        _, psd = reference.row_statistics(inputs[name], layer.spec)
        difference = (psd[0].sqrt() - layer.running_sqrt_psd).double().numpy()
        every = np.arange(layer.filter_size)  # bin of the full spectrum
        bins = np.minimum(every, layer.filter_size - every)
        expected = np.sqrt(np.mean(difference[:, bins] ** 2))
        assert found[name] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("detrend", ["row", "segment"])
def test_a_white_layer_is_measured_against_white(detrend):
    arguments = {"detrend": detrend}
    model = small_model(norm="psd-white", filter_size=5, norm_depth=1, norm_arguments=arguments)
    name, layer = next((n, m) for n, m in model.named_modules() if isinstance(m, PSDNorm))
    layer.running_sqrt_psd.fill_(7)
    before = measure_night(model, noise()).layers[name]
    layer.reset_running_stats()
    layer.target = "barycenter"  # which is white as long as the layer has learned nothing
    assert measure_night(model, noise()).layers[name] == before


def test_a_model_without_psdnorm_has_no_layers():
    assert measure_night(small_model(norm="batch"), noise()).layers == {}


def test_a_model_is_left_as_it_was():
    model = small_model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_night(model, noise())
    assert model.training
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_epochs_that_are_not_finite_are_left_out():
    signals = noise(6)
    signals[2, 0, 5] = np.nan
    found, whole = (measure_night(small_model(), each).sqrt_psd for each in (signals, noise(6)))
    kept = measure_night(small_model(), noise(6)[[0, 1, 3, 4, 5]]).sqrt_psd
    np.testing.assert_allclose(found, [kept[0], whole[1]], rtol=1e-5)


def test_a_channel_that_is_never_finite_is_nan_and_one_that_is_flat_is_zero():
    signals = noise()
    signals[:, 0] = np.nan
    signals[:, 1] = 3
    found = measure_night(small_model(), signals).sqrt_psd
    assert np.isnan(found[0]).all()
    assert (found[1] == 0).all()


def test_levels_are_those_of_a_sine_in_its_band():
    t = np.arange(N_TIMES) / SFREQ
    signals = np.tile(np.float32([2 * np.sin(2 * np.pi * 10 * t), np.sin(2 * np.pi * 2 * t)]), 1)
    first, second = levels_db(measure_night(small_model(), signals[None].repeat(3, axis=0)))
    assert first["power"] == pytest.approx(10 * np.log10(2), abs=0.05)
    assert second["power"] == pytest.approx(10 * np.log10(0.5), abs=0.05)
    assert first["alpha"] == pytest.approx(0, abs=0.01)
    assert second["delta"] == pytest.approx(0, abs=0.01)
    assert first["delta"] < -40
    assert second["beta"] < -40


def test_a_night_of_another_shape_is_rejected():
    for wrong in (noise()[:, :1], noise()[..., :100], noise()[0], noise(0)):
        with pytest.raises(ShapeError, match=r"signals have shape .*, expected \(E, 2, 640\)"):
            measure_night(small_model(), wrong)
