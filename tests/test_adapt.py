"""What calibrate and adapt_batchnorm promise."""

import pytest
import torch
from networks import (
    Disordered,
    Idle,
    batches,
    buffers,
    network,
    signals,
    unchanged,
    untracked_second,
)
from torch import nn

from psdnorm import PSDNorm, adapt_batchnorm, calibrate
from psdnorm.errors import ArgumentError, ConversionError

X = signals(3)


def two_norms():
    return nn.Sequential(PSDNorm(2, filter_size=5), nn.Dropout(0.9), PSDNorm(2, filter_size=2))


def test_calibration_averages_the_barycenters_of_the_batches():
    model = nn.Sequential(PSDNorm(2, filter_size=5))
    a, b = signals(4), 3 * signals(7, seed=1)
    calibrate(model, [a, b])
    of_a, of_b = (calibrate(nn.Sequential(PSDNorm(2)), [x])[0].running_sqrt_psd for x in (a, b))
    torch.testing.assert_close(model[0].running_sqrt_psd, (of_a + of_b) / 2)


def test_calibration_forgets_what_came_before():
    model, fresh = two_norms(), two_norms()
    model(100 * signals(4))
    calibrate(model, batches(2))
    calibrate(fresh, batches(2))
    torch.testing.assert_close(model.state_dict(), fresh.state_dict())


def test_calibration_returns_the_model():
    model = two_norms()
    assert calibrate(model, batches(1)) is model


def test_calibration_takes_the_first_element_of_what_a_loader_gives():
    model, other = two_norms(), two_norms()
    data = torch.utils.data.TensorDataset(signals(8), torch.zeros(8))
    calibrate(model, torch.utils.data.DataLoader(data, batch_size=4))
    calibrate(other, signals(8).split(4))
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_calibration_leaves_flags_momenta_and_other_statistics_alone():
    model = nn.Sequential(two_norms().eval(), nn.BatchNorm1d(2), PSDNorm(2, momentum=0.3))
    flags, before = [m.training for m in model.modules()], buffers(model[1])
    calibrate(model, batches(2))
    assert [m.training for m in model.modules()] == flags
    assert [m.momentum for m in model.modules() if isinstance(m, PSDNorm)] == [0.01, 0.01, 0.3]
    assert unchanged(model[1], before)


def test_calibration_runs_the_other_layers_in_evaluation_mode():
    model, other = two_norms().train(), two_norms().train()
    torch.manual_seed(1)
    calibrate(model, batches(1))
    torch.manual_seed(2)
    calibrate(other, batches(1))
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_calibration_makes_no_graph():
    model = two_norms()
    graphs = []
    model.register_forward_hook(lambda _, args, y: graphs.append(y.requires_grad))
    calibrate(model, [signals(2).requires_grad_()])
    assert graphs == [False]


def test_a_channel_or_layer_that_calibration_never_sees_keeps_its_barycenter():
    model = nn.Sequential(PSDNorm(2))
    model.spare = PSDNorm(2)
    model.forward = model[0].forward
    model[0](signals(4))
    model.spare(signals(4))
    before = buffers(model)
    x = signals(4)
    x[:, 1] = torch.nan
    calibrate(model, [x])
    assert torch.equal(model[0].running_sqrt_psd[1], before["0.running_sqrt_psd"][1])
    assert unchanged(model.spare, {k[6:]: v for k, v in before.items() if k.startswith("spare")})


def test_calibration_that_fails_midway_leaves_the_former_state():
    def broken():
        yield signals(4)
        raise OSError("disk gone")

    model = two_norms()
    model(signals(4, seed=5))
    model.eval()
    before = buffers(model)
    with pytest.raises(OSError, match="disk gone"):
        calibrate(model, broken())
    assert unchanged(model, before)
    assert not any(m.training for m in model.modules())
    assert [model[0].momentum, model[2].momentum] == [0.01, 0.01]


@pytest.mark.parametrize("build", [network, lambda: nn.Sequential(PSDNorm(2, target="white"))])
def test_calibration_needs_a_barycenter(build):
    with pytest.raises(ConversionError, match="no PSDNorm layer with a barycenter"):
        calibrate(build(), batches(1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "batches is empty"),
        (X, "found one tensor"),
        ([{"x": X}], "found a dict"),
        ([()], "found a tuple"),
    ],
)
def test_batches_that_hold_no_inputs_are_refused(data, message):
    model = two_norms()
    before = buffers(model)
    with pytest.raises(ArgumentError, match=message):
        calibrate(model, data)
    assert unchanged(model, before)


def moments(x):
    """Mean and unbiased variance per channel in closed form, (C,)."""
    values = x.double().transpose(0, 1).flatten(1)
    return values.mean(dim=1).float(), values.var(dim=1).float()


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(3), (20, 3)),
        (nn.BatchNorm1d(3), (5, 3, 40)),
        (nn.BatchNorm2d(3), (5, 3, 6, 7)),
        (nn.BatchNorm3d(3), (2, 3, 4, 5, 6)),
    ],
)
def test_adapted_statistics_of_one_batch_are_its_mean_and_variance(norm, shape):
    torch.manual_seed(0)
    x = 7 + 3 * torch.randn(shape)
    model = nn.Sequential(norm)
    mean, variance = moments(x)
    with adapt_batchnorm(model, [x], layers=1):
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, variance)


def test_uneven_batches_pool_to_the_statistics_of_all_their_values():
    parts = [signals(1) + 100, 3 * signals(9, seed=1), signals(4, n_times=250, seed=2) - 5]
    model = nn.Sequential(nn.BatchNorm1d(2))
    mean, variance = moments(torch.cat([p.transpose(0, 1).flatten(1) for p in parts], 1)[None])
    with adapt_batchnorm(model, parts, layers=1):
        torch.testing.assert_close(model[0].running_mean, mean)
        torch.testing.assert_close(model[0].running_var, variance)


def test_variances_survive_a_large_offset():
    x = 1e4 + signals(8)
    model = nn.Sequential(nn.BatchNorm1d(2))
    with adapt_batchnorm(model, x.split(3), layers=1):
        torch.testing.assert_close(model[0].running_var, moments(x)[1])


def test_a_deeper_layer_is_fed_what_batch_statistics_make_of_the_first():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.ELU(), nn.BatchNorm1d(2)).eval()
    x = 40 + 9 * signals(8)
    mean, variance = moments(model[1](nn.BatchNorm1d(2)(x)))
    with adapt_batchnorm(model, [x], layers=2):
        torch.testing.assert_close(model[2].running_mean, mean, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model[2].running_var, variance, atol=1e-5, rtol=1e-5)


def test_all_layers_adapted_remove_a_gain_and_an_offset_of_the_input():
    model, x = network(), signals(8)
    shifted = 20 * x + 50
    with adapt_batchnorm(model, [x], layers="all"):
        expected = model(x)
    with adapt_batchnorm(model, [shifted], layers="all"):
        torch.testing.assert_close(model(shifted), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("build", [network, Disordered])
def test_original_statistics_come_back_bit_for_bit(build):
    model = build()
    before = buffers(model)
    with adapt_batchnorm(model, batches(2), layers="all"):
        assert not unchanged(model, before)
        model.train()(signals(2))
    assert unchanged(model, before)


def test_original_statistics_come_back_after_an_exception():
    model = network()
    before = buffers(model)
    with pytest.raises(KeyError), adapt_batchnorm(model, batches(2)):
        raise KeyError
    assert unchanged(model, before)


def test_original_statistics_come_back_when_the_batches_fail():
    def broken():
        yield signals(4)
        raise OSError("disk gone")

    model = network().train()
    before = buffers(model)
    with pytest.raises(OSError, match="disk gone"), adapt_batchnorm(model, broken()):
        pass
    assert unchanged(model, before)
    assert all(m.training and not m._forward_pre_hooks for m in model.modules())


def test_three_layers_leave_the_fourth_untouched():
    model = network(4)
    before = [buffers(block) for block in model]
    with adapt_batchnorm(model, batches(1), layers=3):
        touched = [not unchanged(block, old) for block, old in zip(model, before, strict=True)]
    assert touched == [True, True, True, False]


def test_adapted_layers_are_counted_in_execution_order():
    model = Disordered()
    with adapt_batchnorm(model, [9 + signals(4)], layers=1):
        assert model.first.running_mean.min() > 8
        assert model.third.running_mean.abs().max() == 0


def test_layers_can_be_named():
    model = network(3)
    before = [buffers(block) for block in model]
    with adapt_batchnorm(model, batches(1), layers=["2.norm"]):
        touched = [not unchanged(block, old) for block, old in zip(model, before, strict=True)]
    assert touched == [False, False, True]


def test_a_generator_of_batches_is_used_to_its_last_and_from_its_first():
    model = nn.Sequential(nn.BatchNorm1d(2))
    parts = [signals(2) + 10, signals(3, seed=1)]
    with adapt_batchnorm(model, (part for part in parts), layers=1):
        torch.testing.assert_close(model[0].running_mean, moments(torch.cat(parts))[0])


def test_adapting_yields_the_model_with_its_flags_as_they_were():
    model = network(3)
    model[1].train()
    flags = [m.training for m in model.modules()]
    with adapt_batchnorm(model, batches(1)) as adapted:
        assert adapted is model
        assert [m.training for m in model.modules()] == flags


def test_adapting_counts_only_layers_with_running_statistics():
    model = nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.BatchNorm1d(2))
    with adapt_batchnorm(model, [9 + signals(4)], layers=1):
        assert not unchanged(model[1], buffers(nn.BatchNorm1d(2)))


def test_adapting_a_compiled_model_that_ran_before():
    model = torch.compile(nn.Sequential(nn.BatchNorm1d(2)).eval(), backend="eager")
    x = 9 + signals(4)
    with torch.no_grad():
        model(x)
        with adapt_batchnorm(model, [x], layers=1):
            assert model(x).mean().abs() < 1e-3


@pytest.mark.parametrize(
    ("build", "layers", "data", "message"),
    [
        (network, 12, [X], "expected 12 eligible BatchNorm layers, found 4 of 4"),
        (untracked_second, 2, [X], "found 1 of 2; '1' keeps no running statistics"),
        (untracked_second, ["1"], [X], "'1' keeps no running statistics"),
        (network, ["0.nrom"], [X], r"'0.nrom'.*nearest: .*0\.norm"),
        (network, ["0.conv"], [X], "'0.conv' is a Conv1d"),
        (two_norms, 1, [X], "no BatchNorm layer"),
        (Idle, ["spare"], [X], "'spare' saw 0 values per channel"),
        (network, 3, [X, X * torch.inf], "'0.norm' saw values that are not finite"),
    ],
)
def test_an_adaptation_that_cannot_be_is_refused(build, layers, data, message):
    model = build()
    before = buffers(model)
    with pytest.raises(ConversionError, match=message), adapt_batchnorm(model, data, layers):
        pass
    assert unchanged(model, before)


@pytest.mark.parametrize(
    ("layers", "data", "message"),
    [
        (3, [], "batches is empty"),
        (3, X, "found one tensor"),
        (0, [X], "layers must be .*found 0"),
        ("most", [X], "layers must be .*found 'most'"),
        ([], [X], "sequence of layer names"),
    ],
)
def test_adapting_names_an_argument_that_makes_no_sense(layers, data, message):
    with pytest.raises(ArgumentError, match=message), adapt_batchnorm(network(), data, layers):
        pass
