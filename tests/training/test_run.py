"""A run says what is trained, a protocol how; both survive JSON."""

import itertools
import json

import pytest

from psdnorm.errors import ArgumentError
from psdnorm.training import Protocol, Run
from psdnorm.training.run import MODELS, TRAINED_NORMS, sequences_per_night_of


def test_every_run_has_a_folder_of_its_own():
    axes = itertools.product(
        MODELS, TRAINED_NORMS, (1, 5), (0, 3), ("CHAT", "f5", "a/b"), (None, 40), (0, 1)
    )
    runs = {Run(*axis) for axis in axes}
    names = {run.name for run in runs}
    assert len(names) == len(runs) > 100
    assert all("/" not in name for name in names)


def test_what_makes_no_difference_does_not_tell_runs_apart():
    assert Run(norm="batch", filter_size=17, norm_depth=1) == Run(norm="batch")
    assert Run(norm="instance", filter_size=17) == Run(norm="instance")
    assert Run(norm="instance", norm_depth=1) != Run(norm="instance")
    assert Run(norm="tma", norm_depth=1) == Run(norm="tma")
    assert Run(norm="tma", filter_size=17) != Run(norm="tma")


@pytest.mark.parametrize(
    "thing",
    [
        Run(balanced=40, seed=2),
        Protocol(lr=1e-2, model_arguments={"depth": 3}),
        Protocol(sequences_per_night=8),
    ],
)
def test_json_gives_back_what_was_written(thing):
    assert type(thing).from_json(json.loads(json.dumps(thing.to_json()))) == thing


def test_runs_from_before_nights_were_domains_have_the_same_protocol():
    assert Protocol().to_json() == {
        "lr": 1e-3,
        "batch_size": 64,
        "patience": 3,
        "max_epochs": 100,
        "length": 35,
        "stride": 21,
        "validation_fraction": 0.2,
        "momentum": 0.01,
        "model_arguments": {},
    }


def test_sequences_follow_each_other_by_night_where_nights_are_domains_or_if_asked_for():
    by_night = Protocol(model_arguments={"norm_arguments": {"statistics": "domain"}})
    for norm, protocol, n in [
        ("psd", Protocol(), 1),
        ("psd-unit", Protocol(), 1),
        ("psd-night", Protocol(), 4),
        ("psd-night-unit", Protocol(batch_size=2), 2),
        ("psd", by_night, 4),
        ("batch", by_night, 1),
        ("batch", Protocol(sequences_per_night=8), 8),
        ("psd-night", Protocol(sequences_per_night=8), 8),
    ]:
        assert sequences_per_night_of(Run(norm=norm), protocol) == n


def test_the_protocol_is_that_of_the_paper():
    protocol = Protocol()
    assert (protocol.lr, protocol.batch_size, protocol.patience) == (1e-3, 64, 3)
    assert (protocol.length, protocol.stride, protocol.validation_fraction) == (35, 21, 0.2)
    assert protocol.momentum == 0.01


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model": "resnet"}, "model is 'resnet', expected one of usleep, cnn-transformer"),
        ({"norm": "group"}, "norm is 'group', expected one of batch, layer"),
        ({"filter_size": 0}, "filter_size must be a whole number from 1 on, found 0"),
        ({"norm_depth": -1}, "norm_depth is -1, expected a whole number from 0"),
        ({"hold_out": ""}, "hold_out is '', expected the name of a cohort"),
        ({"balanced": 0}, "balanced must be a whole number from 1 on, found 0"),
        ({"seed": -1}, "seed is -1, expected a whole number from 0"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_name(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        Run(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lr": 0}, "lr is 0, expected a number above 0"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on"),
        ({"stride": 36}, "stride is 36, expected at most the 35 epochs"),
        ({"sequences_per_night": 0}, "sequences_per_night must be a whole number from 1 on"),
        ({"sequences_per_night": 65}, "sequences_per_night is 65, expected at most the 64 of a"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0, expected a number between"),
        ({"model_arguments": {"norm": object()}}, "model_arguments must be a dict that JSON holds"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused_by_name(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        Protocol(**wrong)


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(ArgumentError, match="a run has 'layers', expected one of model, norm"):
        Run.from_json({"layers": 3})


def test_arguments_are_of_every_model_or_of_each_by_its_name():
    flat = Protocol(model_arguments={"norm_first": True})
    assert flat.arguments_of("usleep") == flat.arguments_of("cnn-transformer")
    own = {"usleep": {"depth": 4}, "cnn-transformer": {"n_layers": 1}}
    protocol = Protocol.from_json(Protocol(model_arguments=own).to_json())
    assert {model: protocol.arguments_of(model) for model in own} == own
    assert Protocol(model_arguments={"usleep": {}}).arguments_of("cnn-transformer") == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"usleep": {}, "depth": 4}, "has 'depth' beside the name of a model, expected one of us"),
        ({"usleep": 4}, "has 4 for usleep, expected an object of arguments"),
    ],
)
def test_arguments_that_are_by_model_in_part_are_refused(arguments, said):
    with pytest.raises(ArgumentError, match=f"^model_arguments {said}"):
        Protocol(model_arguments=arguments)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"momentum": 0.1}, "model_arguments has 'momentum' in norm_arguments, expected it as the"),
        ({"epsilon": 0.1}, "norm_arguments has 'epsilon', expected one of eps, affine"),
        ({"eps": "1e-3"}, "norm_arguments: eps must be a finite number from 0 on, found '1e-3'"),
        (0.1, "norm_arguments must be a mapping of eps, .* found 0.1"),
    ],
)
def test_arguments_of_psdnorm_are_refused_whatever_the_norms_of_the_runs(by_model, arguments, said):
    own = {"norm_arguments": arguments}
    with pytest.raises(ArgumentError, match=f"^{said}"):
        Protocol(model_arguments={"cnn-transformer": own} if by_model else own)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("schedule", ["doubled", None, ["same"]])
def test_an_unknown_schedule_of_filters_is_refused_before_a_night_is_made(by_model, schedule):
    own = {"filter_schedule": schedule}
    with pytest.raises(ArgumentError, match=r"^filter_schedule must be one of halved, same, found"):
        Protocol(model_arguments={"usleep": own} if by_model else own)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("scale", [0, -1, True, "0.05", None, 1e10])
def test_an_input_scale_that_no_model_takes_is_refused_before_a_night_is_made(by_model, scale):
    own = {"input_scale": scale}
    with pytest.raises(
        ArgumentError, match=r"^input_scale must be a number from 1e-09 to .* found"
    ):
        Protocol(model_arguments={"cnn-transformer": own} if by_model else own)


def test_arguments_are_kept_as_they_were_given():
    own = {"usleep": {"norm_arguments": {"eps": 1, "affine": True}, "filter_schedule": "same"}}
    own["usleep"]["input_scale"] = 2
    assert Protocol(model_arguments=own).to_json()["model_arguments"] == own
    assert Protocol().to_json()["model_arguments"] == {}
