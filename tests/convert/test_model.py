"""What a model does after convert_norm."""

import copy

import pytest
import torch
from networks import batches, network, signals
from torch import nn

from psdnorm import PSDNorm, calibrate, convert_norm


def relative_error(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def converted_and_calibrated(model, **options):
    model = copy.deepcopy(model)
    convert_norm(model, example_input=signals(1), **options)
    return calibrate(model, batches(6))


def test_a_calibrated_model_gives_nearly_the_same_outputs_in_its_domain():
    model, x = network(), signals(16, seed=99)
    assert relative_error(converted_and_calibrated(model)(x), model(x)) < 0.15


def test_without_folding_outputs_change_several_times_more():
    model, x = network(), signals(16, seed=99)
    folded = relative_error(converted_and_calibrated(model)(x), model(x))
    fresh = relative_error(converted_and_calibrated(model, fold=False)(x), model(x))
    assert fresh > 4 * folded


def test_a_gain_that_upsets_the_original_hardly_touches_the_converted_model():
    model, x = network(), signals(16, seed=99)
    converted = converted_and_calibrated(model)
    upset = relative_error(model(10 * x), model(x))
    assert relative_error(converted(10 * x), converted(x)) < 1e-3 * upset


def test_gradients_reach_every_parameter_of_a_converted_model():
    model = network()
    convert_norm(model, example_input=signals(1))
    model.train()(signals(4)).square().mean().backward()
    # a convolution's bias is a constant that the norm after it takes away
    parameters = [p for name, p in model.named_parameters() if not name.endswith("conv.bias")]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters)


def test_a_state_dict_goes_into_a_model_converted_alike():
    model, other = network(), network()
    convert_norm(model, example_input=signals(1))
    calibrate(model, batches(2))
    convert_norm(other, example_input=signals(1))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(signals(4)), model(signals(4)))


@pytest.mark.parametrize("layout", ["(N, C, 1, T)", "(N, C, T, 1)"])
def test_batchnorm2d_over_a_singleton_axis_becomes_psdnorm(layout):
    axis = 2 if layout == "(N, C, 1, T)" else 3
    model = nn.Sequential(nn.BatchNorm2d(2))
    flat = nn.Sequential(nn.BatchNorm1d(2))
    x = signals(4)
    convert_norm(model, layers=1, example_input=x.unsqueeze(axis))
    convert_norm(flat, layers=1, example_input=x)
    torch.testing.assert_close(model(x.unsqueeze(axis)), flat(x).unsqueeze(axis))


def test_a_sync_batchnorm_becomes_a_psdnorm_that_syncs():
    model = nn.Sequential(nn.SyncBatchNorm(2))
    (conversion,) = convert_norm(model, layers=1, example_input=signals(1))
    assert conversion.new.sync


def test_sync_can_be_declined():
    model = nn.Sequential(nn.SyncBatchNorm(2))
    (conversion,) = convert_norm(model, names=["0"], sync=False)
    assert not conversion.new.sync


def test_a_compiled_model_can_be_converted_after_it_ran():
    model = torch.compile(network(), backend="eager")
    x = signals(2)
    with torch.no_grad():
        before = model(x)
        convert_norm(model, layers=1, example_input=x)
        after = model(x)
    assert isinstance(model._orig_mod[0].norm, PSDNorm)
    assert relative_error(after, before) > 0.01
