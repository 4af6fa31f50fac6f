"""Which layers convert_norm swaps, in which order, and what its example leaves alone."""

import numpy as np
import pytest
import torch
from networks import Disordered, Ending, buffers, kinds, network, signals, unchanged
from torch import nn

from psdnorm import convert_norm
from psdnorm.errors import ConversionError


def test_the_first_layers_are_counted_in_execution_order():
    model = Disordered()
    found = convert_norm(model, layers=2, example_input=signals(1))
    assert [c.name for c in found] == ["first", "second"]
    assert isinstance(model.third, nn.BatchNorm1d)


def test_three_layers_are_converted_unless_told_otherwise():
    model = network(4)
    assert len(convert_norm(model, example_input=signals(1))) == 3
    assert isinstance(model[3].norm, nn.BatchNorm1d)


def test_a_count_may_be_a_numpy_integer():
    assert len(convert_norm(network(4), layers=np.int64(2), example_input=signals(1))) == 2


def test_all_means_every_eligible_layer():
    found = convert_norm(Ending(), layers="all", example_input=signals(2))
    assert [c.name for c in found] == ["early", "late"]


def test_filter_sizes_halve_down_to_one():
    found = convert_norm(network(4), filter_size=5, layers="all", example_input=signals(1))
    assert [c.filter_size for c in found] == [5, 2, 1, 1]


def test_names_set_the_order_of_the_filter_sizes():
    model = network(3)
    convert_norm(model, filter_size=8, names=["2.norm", "0.norm"])
    assert (model[2].norm.filter_size, model[0].norm.filter_size) == (8, 4)
    assert isinstance(model[1].norm, nn.BatchNorm1d)


def test_names_may_come_from_a_generator():
    found = convert_norm(network(3), names=(f"{i}.norm" for i in (2, 0)))
    assert [c.name for c in found] == ["2.norm", "0.norm"]


def test_where_picks_by_name_and_module_in_registration_order():
    found = convert_norm(Disordered(), where=lambda name, _: name != "second")
    assert [c.name for c in found] == ["third", "first"]


def test_where_with_an_example_input_goes_by_execution_order():
    found = convert_norm(Disordered(), where=lambda *_: True, example_input=signals(1))
    assert [c.name for c in found] == ["first", "second", "third"]


def test_where_is_asked_about_batch_norms_alone():
    asked = []
    convert_norm(network(2), where=lambda name, module: asked.append(type(module)) or True)
    assert set(asked) == {nn.BatchNorm1d}


def test_an_example_of_several_positional_arguments_is_a_tuple():
    class Two(Disordered):
        def forward(self, x, y):
            return super().forward(x + y)

    found = convert_norm(Two(), layers=1, example_input=(signals(1), signals(1)))
    assert [c.name for c in found] == ["first"]


def test_a_layer_too_short_for_its_filter_is_passed_over():
    model = nn.Sequential(nn.AvgPool1d(200), nn.BatchNorm1d(2), nn.Upsample(50), nn.BatchNorm1d(2))
    found = convert_norm(model, filter_size=5, layers=1, example_input=signals(1))
    assert [c.name for c in found] == ["3"]


def test_a_layer_that_sees_one_time_sample_is_passed_over_even_with_one_tap():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.AdaptiveAvgPool1d(1), nn.BatchNorm1d(2))
    found = convert_norm(model, filter_size=1, layers="all", example_input=signals(1))
    assert [c.name for c in found] == ["0"]


def test_a_layer_registered_twice_is_replaced_at_both_places():
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, nn.ReLU(), norm)
    found = convert_norm(model, layers=1, example_input=signals(1))
    assert len(found) == 1
    assert model[0] is model[2] is found[0].new


def test_all_calls_of_a_layer_must_be_eligible():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(self.norm(x).mean(dim=-1))

    with pytest.raises(ConversionError, match=r"'norm' sees \(N, C\) = \(3, 2\)"):
        convert_norm(Twice(), layers=1, example_input=signals(3))


def test_the_example_leaves_flags_buffers_hooks_and_random_numbers_alone():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x + 0 * torch.rand(1)

    model = nn.Sequential(network(2).train(), Counter(), nn.BatchNorm1d(6), nn.Dropout())
    model[0][1].eval()
    flags = [m.training for m in model.modules()]
    before, state = buffers(model), torch.get_rng_state()
    with pytest.raises(ConversionError):
        convert_norm(model, layers=9, example_input=signals(2))
    assert [m.training for m in model.modules()] == flags
    assert unchanged(model, before)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_example_leaves_the_new_layers_as_if_there_were_none():
    model, other = network(2).train(), network(2).train()
    state = torch.get_rng_state()
    (new,) = (c.new for c in convert_norm(model, layers=1, example_input=signals(4)))
    convert_norm(other, names=["0.norm"])
    assert unchanged(model, buffers(other))
    assert new.training
    assert not new._forward_pre_hooks
    assert torch.equal(torch.get_rng_state(), state)


def test_the_example_runs_on_a_machine_without_the_backend_asked_for():
    (conversion,) = convert_norm(network(1), layers=1, example_input=signals(1), backend="fused")
    assert conversion.new.backend == "fused"


def test_an_example_that_the_model_cannot_take_leaves_no_trace():
    model = network(2).train()
    modules = kinds(model)
    with pytest.raises(RuntimeError):
        convert_norm(model, example_input=torch.randn(1, 7, 100))
    assert kinds(model) == modules
    assert all(m.training and not m._forward_pre_hooks for m in model.modules())
