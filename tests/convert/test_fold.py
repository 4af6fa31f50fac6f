"""What the layers that convert_norm puts in take over from the batch norms."""

import pytest
import torch
from networks import network, signals
from torch import nn

from psdnorm import PSDNorm, convert_norm
from psdnorm.convert import Conversion


def folded(norm, **options):
    (conversion,) = convert_norm(nn.Sequential(norm), names=["0"], **options)
    return conversion.new


def lively(**options):
    norm = nn.BatchNorm1d(3, **options)
    norm.running_var.copy_(torch.tensor([4.0, 0.25, 1e-6]))
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, 0.5, 2)
    return norm


def test_the_scale_is_divided_by_the_deviation_and_the_shift_kept():
    old = lively()
    new = folded(old)
    torch.testing.assert_close(new.weight, old.weight / (old.running_var + old.eps).sqrt())
    assert torch.equal(new.bias, old.bias)


def test_the_barycenter_starts_flat_at_the_running_deviation():
    old = lively()
    deviation = (old.running_var + old.eps).sqrt()
    torch.testing.assert_close(folded(old).running_sqrt_psd, deviation.unsqueeze(1).expand(3, 3))


def test_the_first_training_batch_still_sets_the_barycenter_whole():
    x = signals(8)
    new, fresh = folded(nn.BatchNorm1d(2)), PSDNorm(2)
    new(x)
    fresh(x)
    torch.testing.assert_close(new.running_sqrt_psd, fresh.running_sqrt_psd)


def test_a_white_target_takes_scale_and_shift_as_they_are():
    old = lively()
    new = folded(old, target="white")
    assert torch.equal(new.weight, old.weight)
    assert torch.equal(new.bias, old.bias)


def test_a_white_target_needs_no_running_statistics():
    assert folded(nn.BatchNorm1d(3, track_running_stats=False), target="white").affine


def test_a_norm_without_affine_gives_an_affine_that_does_not_learn():
    old = lively(affine=False)
    new = folded(old)
    torch.testing.assert_close(new.weight, (old.running_var + old.eps).rsqrt())
    assert not new.weight.requires_grad
    assert not new.bias.requires_grad


def test_frozen_and_learning_parameters_stay_so():
    old = lively()
    old.bias.requires_grad_(False)
    new = folded(old)
    assert new.weight.requires_grad
    assert not new.bias.requires_grad


def test_a_norm_without_bias_gives_a_bias_of_zero_that_does_not_learn():
    old = lively()
    old.bias = None
    new = folded(old)
    assert torch.equal(new.bias, torch.zeros(3))
    assert new.weight.requires_grad
    assert not new.bias.requires_grad


@pytest.mark.parametrize("affine", [True, False])
def test_without_folding_the_new_layer_is_fresh(affine):
    new = folded(lively(affine=affine), fold=False)
    expected = PSDNorm(3, affine=affine).state_dict()
    assert new.state_dict().keys() == expected.keys()
    assert all(torch.equal(new.state_dict()[key], expected[key]) for key in expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_new_layer_has_the_dtype_of_the_old(dtype):
    new = folded(nn.BatchNorm1d(3).to(dtype))
    assert new.weight.dtype == dtype
    assert new.running_sqrt_psd.dtype == torch.promote_types(dtype, torch.float32)


def test_the_new_layer_is_on_the_device_of_the_old():
    assert folded(nn.BatchNorm1d(3, device="meta")).running_sqrt_psd.is_meta


def test_the_new_layer_keeps_the_training_flag():
    assert not folded(nn.BatchNorm1d(3).eval()).training


def test_options_reach_the_new_layer():
    options = {"momentum": None, "eps": 1e-3, "window": "hann", "padding_mode": "reflect"}
    new = folded(nn.BatchNorm1d(3), **options)
    assert {name: getattr(new, name) for name in options} == options


def test_eps_is_that_of_psdnorm_not_of_the_batch_norm():
    assert folded(nn.BatchNorm1d(3, eps=0.1)).eps == PSDNorm(3).eps


def test_a_conversion_reads_as_a_line():
    conversion = Conversion("encoder.0.norm", nn.BatchNorm1d(6), PSDNorm(6, filter_size=5))
    assert str(conversion) == "encoder.0.norm: BatchNorm1d(6) → PSDNorm(6, filter_size=5)"


def test_a_conversion_holds_the_old_layer_and_the_one_now_in_the_model():
    model = network(1)
    old = model[0].norm
    (conversion,) = convert_norm(model, names=["0.norm"])
    assert conversion.old is old
    assert conversion.new is model[0].norm
