"""The first convolution takes over a constant that the input would be multiplied by."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from battery import assert_identical, build, every_model
from torch import nn

from psdnorm.errors import ArgumentError
from psdnorm.models.norms import ScaledConv1d, input_scale_setting


@pytest.mark.parametrize("value", [1e-9, 0.05, np.float64(0.05), Fraction(1, 20), 2, 1e6])
def test_a_scale_is_kept_as_a_plain_number(value):
    kept = input_scale_setting(value)
    assert kept == {"input_scale": float(value)}
    assert type(kept["input_scale"]) is float


@pytest.mark.parametrize("one", [1, 1.0, np.int64(1)])
def test_a_scale_of_one_changes_nothing_and_is_not_kept(one):
    assert input_scale_setting(one) == {}
    layer = ScaledConv1d(2, 4, 7)
    assert layer.scaled_weight is layer.weight


@pytest.mark.parametrize(
    "value",
    [0, -0.05, float("nan"), float("inf"), 0.99e-9, 1.01e6, True, "0.05", None, [0.05], 1j],
    ids=str,
)
@every_model
def test_what_is_no_positive_number_of_that_range_is_refused_in_one_sentence(architecture, value):
    with pytest.raises(ArgumentError) as caught:
        build(architecture, "batch", input_scale=value)
    expected = f"input_scale must be a number from 1e-09 to 1e+06, found {value!r}"
    assert str(caught.value) == expected


def test_the_convolution_starts_as_torchs_own_and_without_a_scale_is_the_same_to_the_bit():
    x, layers = torch.randn(3, 2, 50), []
    for kind in (nn.Conv1d, ScaledConv1d):
        torch.manual_seed(0)
        layers.append(kind(2, 6, 7, 3, 3))
    assert_identical(layers[1].state_dict(), layers[0].state_dict())
    assert_identical(layers[1](x), layers[0](x))


def test_a_scale_that_is_a_power_of_two_is_scaling_the_input_to_the_bit():
    x, layer = torch.randn(3, 2, 50), ScaledConv1d(2, 6, 7, 3, 3, input_scale=0.25)
    assert_identical(layer(x), nn.Conv1d.forward(layer, 0.25 * x))
