"""One place says which norm stands at which depth."""

from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

from psdnorm import PSDNorm
from psdnorm.errors import ArgumentError
from psdnorm.models.norms import NORM_ARGUMENTS, NORMS, norm_at, norm_settings


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return 3 * x + x.roll(1, -1) + 2


def test_the_norms_have_these_names():
    assert NORMS == ("batch", "layer", "instance", "psd", "psd-white")


@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        ("batch", nn.BatchNorm1d),
        ("layer", nn.GroupNorm),
        ("instance", nn.InstanceNorm1d),
        ("psd", PSDNorm),
        ("psd-white", PSDNorm),
    ],
)
def test_the_first_three_blocks_get_the_norm_and_the_rest_keep_batch_norm(norm, kind):
    kinds = [type(norm_at(norm, depth, 6)) for depth in range(5)]
    assert kinds == [kind, kind, kind, nn.BatchNorm1d, nn.BatchNorm1d]


def test_norm_depth_says_how_many_blocks_get_the_norm():
    for norm_depth in (0, 1, 4, np.int64(2)):
        kinds = [type(norm_at("instance", i, 6, norm_depth=norm_depth)) for i in range(5)]
        assert kinds.count(nn.InstanceNorm1d) == norm_depth
        assert set(kinds[norm_depth:]) == {nn.BatchNorm1d}


@pytest.mark.parametrize("norm", ["psd", "psd-white"])
@pytest.mark.parametrize(
    ("filter_size", "sizes"), [(5, [5, 2, 1, 1]), (17, [17, 8, 4, 2]), (1, [1, 1, 1, 1])]
)
def test_the_filter_halves_from_block_to_block(norm, filter_size, sizes):
    norms = [norm_at(norm, i, 6, norm_depth=4, filter_size=filter_size) for i in range(4)]
    assert [n.filter_size for n in norms] == sizes


@pytest.mark.parametrize("norm", ["psd", "psd-white"])
def test_the_filter_stays_the_same_where_the_schedule_says_so(norm):
    norms = [norm_at(norm, i, 6, filter_size=9, filter_schedule="same") for i in range(3)]
    assert [n.filter_size for n in norms] == [9, 9, 9]


@pytest.mark.parametrize("norm", ["psd", "psd-white"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"eps": 1e-3},
        {"affine": True},
        {"window": "hann"},
        {"padding_mode": "reflect"},
        {"momentum": 0.3},
        {"momentum": None},
        {"detrend": "segment"},
        {"eps": 1, "affine": True, "window": "hamming", "padding_mode": "zeros", "momentum": 0.5},
    ],
)
def test_every_layer_gets_the_arguments_that_are_handed_on(norm, arguments):
    usual = PSDNorm(6)
    for depth in range(3):
        layer = norm_at(norm, depth, 6, norm_arguments=arguments)
        for name in NORM_ARGUMENTS:
            assert getattr(layer, name) == arguments.get(name, getattr(usual, name))


def test_what_changes_nothing_is_not_kept():
    plain = {"filter_size": 5, "norm_depth": 3}
    assert norm_settings("psd", 5, 3) == plain
    assert norm_settings("psd", 5, 3, {}, "halved") == plain
    assert norm_settings("batch", 5, 3, {}) == plain
    assert norm_settings("batch", 5, 3, None, "same") == plain
    assert norm_settings("psd", 5, 3, None, "same") == {**plain, "filter_schedule": "same"}


def test_the_arguments_that_are_kept_are_plain_and_the_callers_own_are_left_alone():
    given = MappingProxyType({"eps": 1, "momentum": np.float64(0.5), "affine": True})
    kept = norm_settings("psd", np.int64(5), 3, given)
    assert kept["norm_arguments"] == {"eps": 1.0, "momentum": 0.5, "affine": True}
    assert [type(value) for value in kept["norm_arguments"].values()] == [float, float, bool]
    assert type(kept["filter_size"]) is int
    assert norm_settings("psd", 5, 3, {"momentum": None})["norm_arguments"] == {"momentum": None}


@pytest.mark.parametrize("value", [False, 0.0])
def test_no_depth_is_a_whole_number_too(value):
    assert norm_settings("psd", 5, 0)["norm_depth"] == 0
    with pytest.raises(ArgumentError, match="norm_depth must be a whole number"):
        norm_settings("psd", 5, value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"epsilon": 1e-3}, "norm_arguments has 'epsilon', expected one of eps, affine, window"),
        ({"backend": "fused"}, "norm_arguments has 'backend', expected one of eps, affine"),
        ({"eps": -1}, "norm_arguments: eps must be a finite number from 0 on, found -1"),
        ({"eps": 1.1e6}, r"norm_arguments: eps must be at most 1e\+06, found 1100000\.0"),
        ({"eps": float("nan")}, "norm_arguments: eps must be a finite number from 0 on, found nan"),
        ({"eps": "1e-3"}, "norm_arguments: eps must be a finite number from 0 on, found '1e-3'"),
        ({"affine": 1}, "norm_arguments: affine must be True or False, found 1"),
        ({"window": "kaiser"}, "norm_arguments: window must be one of boxcar, .* found 'kaiser'"),
        ({"padding_mode": []}, r"norm_arguments: padding_mode must be one of .* found \[\]"),
        ({"detrend": "none"}, "norm_arguments: detrend must be one of row, segment, found 'none'"),
        ({"detrend": "segment", "eps": 0}, "norm_arguments: eps must be above 0 with detrend="),
        ({"momentum": 2}, "norm_arguments: momentum must be None or from 0 to 1, found 2"),
        ([("eps", 1)], r"norm_arguments must be a mapping of eps, .* found \[\('eps', 1\)\]"),
    ],
)
@pytest.mark.parametrize("depth", [0, 7])
def test_an_argument_that_psdnorm_does_not_take_is_refused_in_one_sentence(arguments, said, depth):
    with pytest.raises(ArgumentError, match=f"^{said}") as caught:
        norm_at("psd", depth, 6, norm_arguments=arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("norm", ["batch", "layer", "instance", nn.SyncBatchNorm])
def test_other_norms_take_no_arguments(norm):
    with pytest.raises(ArgumentError, match="expected norm psd or psd-white with them, found"):
        norm_at(norm, 0, 6, norm_arguments={"eps": 1e-3})


@pytest.mark.parametrize("schedule", ["doubled", None, ["same"]])
def test_an_unknown_schedule_is_refused_by_name(schedule):
    with pytest.raises(ArgumentError, match="filter_schedule must be one of halved, same, found"):
        norm_at("psd", 0, 6, filter_schedule=schedule)


def test_psd_aims_at_the_barycenter_and_psd_white_at_white():
    assert norm_at("psd", 0, 6).target == "barycenter"
    assert norm_at("psd-white", 0, 6).target == "white"


@pytest.mark.parametrize("norm", ["instance", "psd", "psd-white"])
def test_the_norms_of_a_row_learn_no_scale_and_no_shift(norm):
    assert list(norm_at(norm, 0, 6).parameters()) == []


def test_psd_white_with_one_tap_is_instance_norm():
    x = signals(4, 6, 500)
    white, instance = (norm_at(norm, 0, 6, filter_size=1) for norm in ("psd-white", "instance"))
    torch.testing.assert_close(white(x), instance(x), rtol=1e-4, atol=1e-5)


def test_layer_norm_is_per_sample_over_channels_and_time_at_any_length():
    norm = norm_at("layer", 0, 6)
    for n_times in (1, 7, 500):
        x = signals(4, 6, n_times)
        expected = nn.functional.layer_norm(x, x.shape[1:])
        torch.testing.assert_close(norm(x), expected, rtol=1e-4, atol=1e-5)


def test_layer_norm_learns_one_scale_and_one_shift_per_channel():
    norm = norm_at("layer", 0, 6)
    assert {name: p.shape for name, p in norm.named_parameters()} == {"weight": (6,), "bias": (6,)}


def test_a_users_own_norm_is_a_callable_of_the_number_of_channels():
    seen = []

    def own(num_features):
        seen.append(num_features)
        return nn.Identity()

    kinds = [type(norm_at(own, i, n)) for i, n in enumerate([6, 9, 11, 15])]
    assert seen == [6, 9, 11]
    assert kinds == [nn.Identity] * 3 + [nn.BatchNorm1d]
    assert isinstance(norm_at(nn.SyncBatchNorm, 0, 6), nn.SyncBatchNorm)


@pytest.mark.parametrize("norm", ["Batch", "group", "", None, 5, ["psd"]])
@pytest.mark.parametrize("depth", [0, 7])
def test_an_unknown_norm_is_refused_with_the_names_that_exist(norm, depth):
    with pytest.raises(ValueError, match="batch, layer, instance, psd, psd-white") as caught:
        norm_at(norm, depth, 6)
    assert repr(norm) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_callable_that_returns_no_module_is_refused():
    with pytest.raises(ValueError, match=r"must return a .* for 6 channels, found int"):
        norm_at(lambda num_features: num_features, 0, 6)


@pytest.mark.parametrize("option", ["norm_depth", "filter_size"])
@pytest.mark.parametrize("value", [-1, 2.5, True, "3"])
def test_a_wrong_size_is_refused_by_name_and_value(option, value):
    with pytest.raises(ValueError, match=option) as caught:
        norm_at("psd", 0, 6, **{option: value})
    assert repr(value) in str(caught.value)
