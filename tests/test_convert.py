"""What convert_norm promises."""

import copy
import warnings

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

from psdnorm import PSDNorm, calibrate, convert_norm
from psdnorm.convert import Conversion
from psdnorm.errors import ArgumentError, ConversionError


class Ending(nn.Module):
    """Two norms over time, then one over (N, C)."""

    def __init__(self):
        super().__init__()
        self.early = nn.BatchNorm1d(2)
        self.late = nn.BatchNorm1d(2)
        self.head = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.head(self.late(self.early(x)).mean(dim=-1))


def kinds(model):
    return [(name, id(module)) for name, module in model.named_modules(remove_duplicate=False)]


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


def test_the_first_layers_are_counted_in_execution_order():
    model = Disordered()
    found = convert_norm(model, layers=2, example_input=signals(1))
    assert [c.name for c in found] == ["first", "second"]
    assert isinstance(model.third, nn.BatchNorm1d)


def test_three_layers_are_converted_unless_told_otherwise():
    model = network(4)
    assert len(convert_norm(model, example_input=signals(1))) == 3
    assert isinstance(model[3].norm, nn.BatchNorm1d)


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


def test_an_example_that_the_model_cannot_take_leaves_no_trace():
    model = network(2).train()
    modules = kinds(model)
    with pytest.raises(RuntimeError):
        convert_norm(model, example_input=torch.randn(1, 7, 100))
    assert kinds(model) == modules
    assert all(m.training and not m._forward_pre_hooks for m in model.modules())


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


class Activated(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x).relu()


class Images(nn.Module):
    """A norm over images, then one over signals."""

    def __init__(self):
        super().__init__()
        self.image = nn.BatchNorm2d(2)
        self.signal = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.signal(self.image(x.unflatten(-1, (20, -1))).flatten(2))


X = signals(3)
REFUSALS = {
    "name not found": (network, {"names": ["0.norm", "1.nrom"]}, r"'1.nrom'.*nearest: .*1\.norm"),
    "not a batch norm": (network, {"names": ["0.norm", "0.conv"]}, "'0.conv' is a Conv1d"),
    "named twice": (network, {"names": ["0.norm", "0.norm"]}, "'0.norm' .*named before"),
    "too few": (Ending, {"example_input": X}, r"3 eligible .*, found 2 of 3"),
    "2-D input": (Ending, {"example_input": X}, r"'head' sees \(N, C\) = \(3, 2\)"),
    "images": (Images, {"layers": 2, "example_input": X}, r"'image' sees images, \(3, 2, 20, 30\)"),
    "image by name": (Images, {"names": ["image"], "example_input": X}, "'image' sees images"),
    "short": (
        lambda: nn.Sequential(nn.BatchNorm1d(2), nn.AvgPool1d(300), nn.BatchNorm1d(2)),
        {"filter_size": 9, "layers": 2, "example_input": X},
        r"'2' sees 2 time samples, \(3, 2, 2\), expected at least 4",
    ),
    "never called": (Idle, {"layers": 2, "example_input": X}, "'spare' is never called"),
    "subclass": (lambda: nn.Sequential(Activated(2)), {"names": ["0"]}, "'0' is a Activated"),
    "3-D": (lambda: nn.Sequential(nn.BatchNorm3d(2)), {"names": ["0"]}, "'0' is a BatchNorm3d"),
    "nothing to fold": (
        untracked_second,
        {"layers": 2, "example_input": X},
        "'1' keeps no running statistics.*fold=False",
    ),
    "where picks none": (network, {"where": lambda *_: False}, "where picks none of the 4"),
    "no batch norm": (lambda: nn.Sequential(nn.ReLU()), {"example_input": X}, "no BatchNorm"),
    "root": (lambda: nn.BatchNorm1d(2), {"example_input": X}, "model itself is a BatchNorm1d"),
    "lazy": (
        lambda: nn.Sequential(nn.LazyBatchNorm1d()),
        {"example_input": X},
        "'0' is uninitialized",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_what_was_found_and_leaves_the_model_as_it_was(case):
    build, arguments, message = REFUSALS[case]
    model = build()
    modules, before = kinds(model), None if case == "lazy" else buffers(model)
    with pytest.raises(ConversionError, match=message):
        convert_norm(model, **arguments)
    assert kinds(model) == modules
    assert before is None or unchanged(model, before)


def test_a_long_list_of_reasons_is_cut():
    model = nn.Sequential(*(nn.BatchNorm2d(2) for _ in range(9)))
    with pytest.raises(ConversionError, match=r"'4' sees .*; and 4 more$"):
        convert_norm(model, example_input=torch.randn(2, 2, 4, 4))


def test_a_script_module_is_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = nn.Sequential(torch.jit.trace(network(1), signals(1)), nn.BatchNorm1d(6))
    with pytest.raises(ConversionError, match="'0' is a ScriptModule"):
        convert_norm(model, layers=1, example_input=signals(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give example_input, names or where"),
        ({"names": ["0.norm"], "where": lambda *_: True}, "names or where, not both"),
        ({"names": ["0.norm"], "layers": 2}, "layers=2 cannot go with names"),
        ({"names": "0.norm"}, "sequence of layer names, found '0.norm'"),
        ({"names": []}, "sequence of layer names"),
        ({"example_input": X, "layers": 0}, "layers must be .*found 0"),
        ({"example_input": X, "layers": "first"}, "layers must be .*found 'first'"),
        ({"example_input": X, "filter_size": 0}, "filter_size must be .*found 0"),
        ({"example_input": X, "window": "kaiser"}, "window must be .*found 'kaiser'"),
        ({"example_input": X, "affine": True}, "unknown option 'affine', expected one of momentum"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments, message):
    model = network(2)
    modules = kinds(model)
    with pytest.raises(ArgumentError, match=message):
        convert_norm(model, **arguments)
    assert kinds(model) == modules
