"""What the stateless function promises: identities, dtypes, numbers at the edge, clear refusals."""

from itertools import pairwise

import numpy as np
import oracle
import pytest
import torch
from properties import given, settings, st

from psdnorm import PSDNorm, functional
from psdnorm.errors import PsdnormError
from psdnorm.functional import psd_norm
from psdnorm.ops import reference


@pytest.fixture
def batch():
    x = torch.randn(4, 3, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x + 0.7 * x.roll(1, -1) - 0.2 * x.roll(2, -1) + 5


def psd_of(x, filter_size):
    return reference.welch_psd(reference.center(x), filter_size)


def some_target(filter_size, channels=3, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return 0.5 + torch.rand(channels, filter_size // 2 + 1, generator=generator).double()


@settings(max_examples=100)
@given(data=st.data())
def test_any_shape_filter_window_and_padding_agrees_with_the_oracle(data):
    n, channels = data.draw(st.integers(1, 3), "N"), data.draw(st.integers(1, 3), "C")
    length = data.draw(st.integers(1, 90), "T")
    f = data.draw(st.integers(1, length), "f")
    padding = data.draw(st.sampled_from(reference.PADDING_MODES), "padding")
    window = data.draw(st.sampled_from(sorted(reference.WINDOWS)), "window")
    x = 2 * torch.rand(n, channels, length, dtype=torch.float64).cumsum(-1).sin()
    target = some_target(f, channels)
    expected = oracle.psd_norm(x.numpy(), target.numpy(), f, 1e-3, window, padding)
    y = psd_norm(x, target, f, eps=1e-3, window=window, padding_mode=padding)
    np.testing.assert_allclose(y, expected, rtol=1e-7, atol=1e-7)
    if f <= 32:
        y = psd_norm(x, target, f, None, None, 1e-3, window, padding, backend="fused")
        np.testing.assert_allclose(y, expected, rtol=1e-7, atol=1e-7)
    layer = PSDNorm(channels, f, eps=1e-3, window=window, padding_mode=padding).double().eval()
    layer.running_sqrt_psd.copy_(target)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-7, atol=1e-7)


def test_one_tap_and_a_white_target_is_instance_norm(batch):
    x = batch.float()
    torch.testing.assert_close(psd_norm(x, filter_size=1), torch.nn.InstanceNorm1d(3)(x))


@pytest.mark.parametrize("length", [64, 65, 1000])
def test_a_filter_as_long_as_the_row_gives_exactly_the_target_psd(batch, length):
    x, target = batch[..., :length], some_target(length)
    y = psd_norm(x, target, length, eps=1e-12)
    achieved = psd_of(y, length)[..., 1:]  # bin 0 is empty: the row is centred
    expected = target.square()[..., 1:].expand_as(achieved)
    torch.testing.assert_close(achieved, expected, rtol=1e-5, atol=0)  # eps against empty bins


@pytest.mark.parametrize("scale", [1e-2, 1e4])
def test_scaling_a_row_leaves_the_output_unchanged(batch, scale):
    target = some_target(5)
    scaled = psd_norm(scale * batch, target, 5, eps=1e-12)
    torch.testing.assert_close(scaled, psd_norm(batch, target, 5, eps=1e-12))


def test_a_row_ten_thousand_times_louder_keeps_its_digits(batch):
    x, target = batch.float(), some_target(5).float()
    loud = psd_norm(1e4 * x, target, 5)
    exact = psd_norm(1e4 * x.double(), target.double(), 5)
    assert (loud - exact).norm() < 1e-5 * exact.norm()


@pytest.mark.parametrize("filter_size", [5, 64])
def test_a_pure_tone_keeps_its_digits_in_float32(filter_size):
    tone = torch.sin(2 * torch.pi * 0.37 * torch.arange(4096, dtype=torch.float64))[None, None]
    exact = psd_of(tone, filter_size)
    assert (psd_of(tone.float(), filter_size) - exact).abs().max() < 1e-6 * exact.max()


@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
def test_a_row_whose_psd_is_the_target_comes_back_centred_and_otherwise_unchanged(
    batch, padding_mode
):
    x = batch[:1]
    own = (psd_of(x, 9)[0] + 1e-5).sqrt()
    y = psd_norm(x, own, 9, padding_mode=padding_mode)
    torch.testing.assert_close(y, reference.center(x))


def smooth_zero_phase_filter(x):
    frequency = torch.fft.rfftfreq(x.shape[-1], dtype=x.dtype)
    return torch.fft.irfft(torch.fft.rfft(x) * torch.exp(-3 * frequency), n=x.shape[-1])


def test_a_smooth_filter_is_undone_up_to_an_error_that_falls_as_f_grows():
    noise = torch.randn(1, 1, 20_000, generator=torch.Generator().manual_seed(3)).double()
    clean, shifted = reference.center(noise), smooth_zero_phase_filter(noise)
    errors = []
    for f in (1, 3, 5, 9, 17, 33):
        target = psd_of(clean, f)[0].sqrt()
        errors.append((psd_norm(shifted, target, f, eps=1e-9) - clean).norm() / clean.norm())
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.2
    assert errors[-1] < 0.05


@pytest.mark.parametrize("filter_size", [2, 5, 8, 17])
def test_phase_is_not_touched(batch, filter_size):
    y = psd_norm(batch, some_target(filter_size), filter_size)
    response = torch.fft.rfft(y)[..., 1:] / torch.fft.rfft(batch)[..., 1:]
    assert response.imag.abs().max() < 1e-9 * response.real.abs().max()


@pytest.mark.parametrize("filter_size", [2, 5, 8])
def test_the_output_is_not_delayed(filter_size):
    impulse = torch.zeros(1, 1, 41, dtype=torch.float64)
    impulse[..., 20] = 1
    y = psd_norm(impulse, filter_size=filter_size, padding_mode="zeros")
    torch.testing.assert_close(y, y.flip(-1))


@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1, 12345.678])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_constant_row_becomes_exact_zeros_with_finite_gradients(value, dtype):
    x = torch.full((2, 1, 501), value, dtype=dtype, requires_grad=True)
    y = psd_norm(x, filter_size=5)
    assert not y.any()
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    y.backward(upstream)
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)],
)
def test_low_precision_inputs_keep_their_dtype_and_are_close_to_float64(batch, dtype, tolerance):
    x = batch.to(dtype)
    y = psd_norm(x, some_target(5).float(), 5)
    exact = psd_norm(x.double(), some_target(5), 5)
    assert y.dtype == dtype
    assert (y.double() - exact).norm() < tolerance * exact.norm()


def test_a_mean_of_a_thousand_and_a_deviation_of_one_keeps_its_digits():
    x = torch.randn(1, 1, 10_000, generator=torch.Generator().manual_seed(1)) + 1e3
    exact = psd_norm(x.double(), filter_size=5)
    assert (psd_norm(x, filter_size=5) - exact).norm() < 1e-4 * exact.norm()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_a_row_that_is_not_finite_or_overflows_spoils_only_itself(batch, bad):
    x = batch.float()
    expected = psd_norm(x, filter_size=5)
    x[1, 2, 17] = bad
    leaf = x.clone().requires_grad_()
    y = psd_norm(leaf, filter_size=5)
    others = torch.ones(4, 3, dtype=torch.bool)
    others[1, 2] = False
    assert not y[1, 2].isfinite().any()
    torch.testing.assert_close(y[others], expected[others])
    y[others].square().mean().backward()
    assert leaf.grad[others].isfinite().all()


def test_autocast_changes_nothing(batch):
    x = batch.float()
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = psd_norm(x, filter_size=5)
    torch.testing.assert_close(under_autocast, psd_norm(x, filter_size=5), rtol=0, atol=0)


def test_parameters_may_have_another_precision_than_the_signal(batch):
    target, weight = some_target(5), torch.tensor([1.5, -2.0, 0.5])
    expected = psd_norm(batch, target, 5, weight.double())
    rounded = psd_norm(batch, target.float(), 5, weight.half())
    torch.testing.assert_close(rounded, expected, rtol=1e-5, atol=1e-6)
    low = psd_norm(batch.bfloat16(), target, 5, weight.double(), weight)
    assert low.dtype == torch.bfloat16


@pytest.mark.parametrize("layout", ["transposed", "every other", "expanded", "flipped"])
def test_strides_do_not_matter(batch, layout):
    x = {
        "transposed": batch.transpose(1, 2).contiguous().transpose(1, 2),
        "every other": batch[..., ::2],
        "expanded": batch[:1].expand(4, 3, 1000),
        "flipped": batch[1:].transpose(0, 1),
    }[layout]
    torch.testing.assert_close(psd_norm(x, filter_size=5), psd_norm(x.contiguous(), filter_size=5))


def test_the_shapes_of_a_signal(batch):
    y = psd_norm(batch, filter_size=5)
    torch.testing.assert_close(psd_norm(batch[0], filter_size=5), y[0])
    torch.testing.assert_close(psd_norm(batch.unsqueeze(2), filter_size=5), y.unsqueeze(2))
    torch.testing.assert_close(psd_norm(batch.unsqueeze(3), filter_size=5), y.unsqueeze(3))
    assert psd_norm(batch[:0], filter_size=5).shape == (0, 3, 1000)


def test_weight_and_bias_act_on_channels(batch):
    weight, bias = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 1.0, -3.0])
    expected = psd_norm(batch, filter_size=5) * weight[:, None] + bias[:, None]
    torch.testing.assert_close(psd_norm(batch, None, 5, weight, bias), expected)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (torch.zeros(2, 3, 4), ValueError, ["4 time samples", "filter_size 5"]),
        (torch.zeros(7), ValueError, ["1 dimensions", "(7,)"]),
        (torch.zeros(2, 3, 4, 50), ValueError, ["4 dimensions", "(2, 3, 4, 50)"]),
        (torch.zeros(1, 2, 3, 1, 9), ValueError, ["5 dimensions"]),
        (torch.zeros(2, 3, 50, dtype=torch.int32), TypeError, ["torch.int32"]),
        (torch.zeros(2, 3, 50, dtype=torch.complex64), TypeError, ["torch.complex64"]),
        ([[0.0]], TypeError, ["list"]),
    ],
)
def test_a_wrong_input_is_refused_by_what_was_found(x, error, words):
    with pytest.raises(error) as caught:
        psd_norm(x)
    assert isinstance(caught.value, PsdnormError)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("filter_size", 0),
        ("filter_size", 2.5),
        ("filter_size", True),
        ("eps", -1.0),
        ("eps", float("nan")),
        ("eps", float("inf")),
        ("eps", "small"),
        ("window", "kaiser"),
        ("padding_mode", "same"),
        ("backend", "cuda"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(batch, option, value):
    with pytest.raises(ValueError, match=option) as caught:
        psd_norm(batch, **{option: value})
    assert str(value) in str(caught.value)


def test_a_numpy_integer_is_a_filter_size(batch):
    torch.testing.assert_close(psd_norm(batch, None, np.int64(5)), psd_norm(batch, None, 5))


def test_a_numpy_number_of_half_precision_is_an_eps_without_a_warning(batch):
    torch.testing.assert_close(psd_norm(batch, eps=np.float16(0.25)), psd_norm(batch, eps=0.25))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("sqrt_target", torch.ones(3, 5), r"sqrt_target has shape \(3, 5\), expected \(3, 3\)"),
        ("sqrt_target", torch.ones(3, 3).cfloat(), "sqrt_target .* found torch.complex64"),
        ("sqrt_target", 5, "sqrt_target .* found int"),
        ("weight", torch.ones(1), r"weight has shape \(1,\), expected \(3,\)"),
        ("bias", torch.ones(3, 1), r"bias has shape \(3, 1\), expected \(3,\)"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(batch, name, value, words):
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        psd_norm(batch, **{name: value})
    assert isinstance(caught.value, PsdnormError)


def test_channels_that_were_not_expected_are_refused(batch):
    with pytest.raises(ValueError, match="built for 2 channels, found 3"):
        functional.as_rows(batch, num_features=2)
