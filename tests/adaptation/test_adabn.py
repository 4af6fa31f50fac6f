"""What adapt_batchnorm promises."""

import numpy as np
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

from psdnorm import PSDNorm, adapt_batchnorm
from psdnorm.errors import ArgumentError, ConversionError

X = signals(3)


def one_norm():
    return nn.Sequential(nn.BatchNorm1d(2)).eval()


class Backwards(nn.Module):
    """Norms registered last to first, called first to last; their variances begin at 7."""

    def __init__(self, count):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(2) for _ in range(count))
        for norm in self.norms:
            norm.running_var.fill_(7)

    def forward(self, x):
        for norm in reversed(self.norms):
            x = norm(x)
        return x


class Branching(nn.Module):
    """The norm sees only the samples whose mean is positive."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(x[x.mean(dim=(1, 2)) > 0])


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
    model = nn.Sequential(norm).eval()
    mean, variance = moments(x)
    with adapt_batchnorm(model, [x], layers=1):
        torch.testing.assert_close(norm.running_mean, mean)
        torch.testing.assert_close(norm.running_var, variance)


def test_uneven_batches_pool_to_the_statistics_of_all_their_values():
    parts = [signals(1) + 100, 3 * signals(9, seed=1), signals(4, n_times=250, seed=2) - 5]
    model = one_norm()
    mean, variance = moments(torch.cat([p.transpose(0, 1).flatten(1) for p in parts], 1)[None])
    with adapt_batchnorm(model, parts, layers=1):
        torch.testing.assert_close(model[0].running_mean, mean)
        torch.testing.assert_close(model[0].running_var, variance)


def test_variances_survive_a_large_offset():
    x = 1e4 + signals(8)
    model = one_norm()
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
    model = build().eval()
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

    model = network()
    before = buffers(model)
    with pytest.raises(OSError, match="disk gone"), adapt_batchnorm(model, broken()):
        pass
    assert unchanged(model, before)
    assert not any(m.training or m._forward_pre_hooks for m in model.modules())


def test_three_layers_leave_the_fourth_untouched():
    model = network(4)
    before = [buffers(block) for block in model]
    with adapt_batchnorm(model, batches(1), layers=3):
        touched = [not unchanged(block, old) for block, old in zip(model, before, strict=True)]
    assert touched == [True, True, True, False]


def test_adapted_layers_are_counted_in_execution_order():
    model = Disordered().eval()
    with adapt_batchnorm(model, [9 + signals(4)], layers=1):
        assert model.first.running_mean.min() > 8
        assert model.third.running_mean.abs().max() == 0


@pytest.mark.parametrize(("layers", "adapted"), [(12, 12), (np.int64(12), 12), ("all", 14)])
def test_of_many_layers_exactly_the_first_in_execution_order_adapt(layers, adapted):
    model = Backwards(14).eval()
    with adapt_batchnorm(model, [signals(4)], layers=layers):
        touched = [bool((norm.running_var != 7).all()) for norm in reversed(model.norms)]
    assert touched == [True] * adapted + [False] * (14 - adapted)


def test_layers_can_be_named():
    model = network(3)
    before = [buffers(block) for block in model]
    with adapt_batchnorm(model, batches(1), layers=["2.norm"]):
        touched = [not unchanged(block, old) for block, old in zip(model, before, strict=True)]
    assert touched == [False, False, True]


def test_an_empty_batch_adds_nothing_wherever_it_comes():
    model = one_norm()
    mean, variance = moments(X)
    with adapt_batchnorm(model, [X[:0], X[:1], X[:0], X[1:], X[:0]], layers=1):
        torch.testing.assert_close(model[0].running_mean, mean)
        torch.testing.assert_close(model[0].running_var, variance)


def test_a_batch_that_gives_a_layer_no_values_adds_nothing_to_it():
    model = Branching().eval()
    x = 9 + signals(4)
    mean, variance = moments(x)
    with adapt_batchnorm(model, [x[:2], -x, x[2:], -x], layers=1):
        torch.testing.assert_close(model.norm.running_mean, mean)
        torch.testing.assert_close(model.norm.running_var, variance)


def test_a_generator_of_batches_is_used_to_its_last_and_from_its_first():
    model = one_norm()
    parts = [signals(2) + 10, signals(3, seed=1)]
    with adapt_batchnorm(model, (part for part in parts), layers=1):
        torch.testing.assert_close(model[0].running_mean, moments(torch.cat(parts))[0])


@pytest.mark.filterwarnings("ignore:.*in training mode")
def test_adapting_yields_the_model_with_its_flags_as_they_were():
    model = network(3)
    model[1].train()
    flags = [m.training for m in model.modules()]
    with adapt_batchnorm(model, batches(1)) as adapted:
        assert adapted is model
        assert [m.training for m in model.modules()] == flags


def test_adapting_a_layer_in_training_mode_warns_that_it_has_no_effect():
    model = network(3)
    model[1].train()
    with (
        pytest.warns(
            UserWarning, match=r"1 of 3 .*'1\.norm'.* call model\.eval\(\) first"
        ) as warned,
        adapt_batchnorm(model, batches(1)),
    ):
        pass
    assert [w.filename for w in warned] == [__file__]


def test_a_warning_made_an_error_leaves_the_statistics_alone():
    model = network(3).train()
    before = buffers(model)
    with pytest.raises(UserWarning, match="3 of 3"), adapt_batchnorm(model, batches(1)):
        pass
    assert unchanged(model, before)


def test_a_layer_in_training_mode_that_is_not_adapted_is_no_reason_to_warn():
    model = network(3)
    model[2].train()
    with adapt_batchnorm(model, batches(1), layers=2) as adapted:
        assert adapted is model


def test_adapting_counts_only_layers_with_running_statistics():
    model = nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.BatchNorm1d(2))
    with adapt_batchnorm(model.eval(), [9 + signals(4)], layers=1):
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
        (lambda: nn.Sequential(PSDNorm(2)), 1, [X], "no BatchNorm layer"),
        (Idle, ["spare"], [X], "'spare' saw 0 values per channel"),
        (Branching, 1, [-9 - X], "'norm' saw 0 values per channel, expected at least 2"),
        (network, 3, [X, X * torch.inf], "'0.norm' saw values that are not finite"),
    ],
)
def test_an_impossible_adaptation_raises(build, layers, data, message):
    model = build().eval()
    before = buffers(model)
    with pytest.raises(ConversionError, match=message), adapt_batchnorm(model, data, layers):
        pass
    assert unchanged(model, before)


@pytest.mark.parametrize(
    ("layers", "data", "message"),
    [
        (3, [], "batches is empty"),
        (3, X, "found one tensor"),
        (3, [X[:0], X[:0]], "batches is empty, expected at least one batch with values"),
        (3, None, "batches must be an iterable of batches, found NoneType"),
        (3, 5, "batches must be an iterable of batches, found int"),
        (2.5, [X], "layers must be .* sequence of layer names, found 2.5"),
        (None, [X], "layers must be .* sequence of layer names, found None"),
        (True, [X], "layers must be .*found True"),
        (0, [X], "layers must be .*found 0"),
        ("most", [X], "layers must be .*found 'most'"),
        ([], [X], r"layers must be a sequence of layer names, found \[\]"),
        ([3], [X], r"layers must be a sequence of layer names, found \[3\]"),
    ],
)
def test_adapting_names_an_argument_that_makes_no_sense(layers, data, message):
    with pytest.raises(ArgumentError, match=message), adapt_batchnorm(network(), data, layers):
        pass


def test_adapting_what_is_no_module_raises():
    with (
        pytest.raises(ArgumentError, match=r"model must be an nn\.Module, found a NoneType"),
        adapt_batchnorm(None, [X]),
    ):
        pass
