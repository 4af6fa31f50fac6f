"""The network of a run has the norms that the run and its protocol ask for."""

from dataclasses import replace

import pytest
import torch
from small_runs import LAYOUT, PROTOCOL, RUN
from torch import nn

from psdnorm import PSDNorm
from psdnorm.models import from_pretrained
from psdnorm.training import Protocol, Run, train_run
from psdnorm.training.network import build_model, network_for, unshared_norms

SHAPES = {
    "usleep": {"depth": 4, "n_time_filters": 4},
    "cnn-transformer": {"channels": [4] * 4, "strides": [2] * 4, "n_layers": 1, "n_heads": 2},
}


def layers(kind, run, further=None, **settings):
    arguments = SHAPES[run.model] | (further or {})
    protocol = replace(PROTOCOL, model_arguments=arguments, **settings)
    model = build_model(run, protocol, LAYOUT)
    return [module for module in model.modules() if isinstance(module, kind)]


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize("norm", ["psd", "psd-white"])
def test_filter_sizes_are_halved_from_that_of_the_run(model, norm):
    found = {
        size: [layer.filter_size for layer in layers(PSDNorm, Run(model, norm, filter_size=size))]
        for size in (5, 17)
    }
    assert found == {5: [5, 2, 1], 17: [17, 8, 4]}


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize(
    ("norm", "kind"),
    [
        ("psd", PSDNorm),
        ("psd-white", PSDNorm),
        ("instance", nn.InstanceNorm1d),
        ("layer", nn.GroupNorm),
    ],
)
def test_as_many_blocks_have_the_norm_as_the_run_says(model, norm, kind):
    n_norms = len(layers(nn.BatchNorm1d, Run(model, "batch")))
    for depth in (0, 1, 2, 3, 4):
        run = Run(model, norm, norm_depth=depth)
        assert len(layers(kind, run)) == depth
        assert len(layers(nn.BatchNorm1d, run)) == n_norms - depth


@pytest.mark.parametrize("model", SHAPES)
def test_the_momentum_is_that_of_the_protocol(model):
    found = layers(PSDNorm, Run(model, "psd"), momentum=0.3)
    assert [layer.momentum for layer in found] == [0.3] * 3


@pytest.mark.parametrize("norm", ["psd", "psd-white"])
@pytest.mark.parametrize("model", SHAPES)
def test_further_arguments_of_psdnorm_are_those_of_the_protocol(model, norm):
    further = {"norm_arguments": {"eps": 0.5, "affine": True}, "filter_schedule": "same"}
    found = layers(PSDNorm, Run(model, norm, filter_size=9), further, momentum=0.3)
    settings = [(norm.eps, norm.affine, norm.filter_size, norm.momentum) for norm in found]
    assert settings == [(0.5, True, 9, 0.3)] * 3


def test_the_weights_of_a_run_come_back_with_the_arguments_of_its_protocol(store, tmp_path):
    further = {"norm_arguments": {"eps": 1e-8, "affine": True}, "filter_schedule": "same"}
    further |= {"input_scale": 0.05}
    protocol = replace(
        PROTOCOL, max_epochs=1, model_arguments={"usleep": PROTOCOL.model_arguments | further}
    )
    train_run(store, RUN, protocol, tmp_path, keep="weights")
    model = from_pretrained(tmp_path / "weights")
    assert {name: model.config[name] for name in further} == further
    assert [norm.eps for norm in model.modules() if isinstance(norm, PSDNorm)] == [1e-8] * 3


@pytest.mark.parametrize("norm", ["batch", "instance", "psd", "tma"])
@pytest.mark.parametrize("model", SHAPES)
def test_the_input_scale_is_that_of_the_protocol_whatever_the_norm(model, norm):
    arguments = SHAPES[model] | {"input_scale": 0.05}
    network = build_model(Run(model, norm), replace(PROTOCOL, model_arguments=arguments), LAYOUT)
    assert network.config["input_scale"] == 0.05


def test_a_network_that_is_used_again_has_the_input_scale_of_the_new_protocol():
    found, x = [], torch.randn(2, 9, 2, 60, generator=torch.Generator().manual_seed(0))
    for scale in (1, 0.05, 0.5, 1):
        arguments = PROTOCOL.model_arguments | {"input_scale": scale}
        protocol = replace(PROTOCOL, model_arguments=arguments)
        torch.manual_seed(0)
        model = network_for(RUN, protocol, LAYOUT, torch.device("cpu")).model
        found.append(model(x).detach())
    torch.testing.assert_close(found[3], found[0], rtol=0, atol=0)
    assert all(not torch.allclose(y, found[0], rtol=1e-3) for y in found[1:3])


@pytest.mark.parametrize("momentum", [0.3, 0.001])
def test_a_momentum_that_is_not_the_usual_one_comes_back_with_a_checkpoint(tmp_path, momentum):
    (usual,) = {norm.momentum for norm in layers(PSDNorm, RUN)}
    assert usual == Protocol().momentum
    arguments = PROTOCOL.model_arguments | {"norm_arguments": {"eps": 0.5}}
    protocol = replace(PROTOCOL, momentum=momentum, model_arguments=arguments)
    build_model(RUN, protocol, LAYOUT).save_pretrained(tmp_path)
    found = [m for m in from_pretrained(tmp_path).modules() if isinstance(m, PSDNorm)]
    assert {(norm.momentum, norm.eps) for norm in found} == {(momentum, 0.5)}
    assert protocol.model_arguments == arguments
    assert "norm_arguments" not in build_model(RUN, PROTOCOL, LAYOUT).config


@pytest.mark.parametrize("norm", ["batch", "layer", "instance", "tma"])
def test_other_norms_of_the_grid_are_built_without_arguments_of_psdnorm(norm):
    further = PROTOCOL.model_arguments | {"norm_arguments": {"eps": 0.5}}
    run = Run("usleep", norm)
    model = build_model(run, replace(PROTOCOL, model_arguments=further), LAYOUT)
    assert model.config == build_model(run, PROTOCOL, LAYOUT).config


@pytest.mark.parametrize("norm", ["psd", "psd-white"])
def test_the_target_is_that_of_the_norm(norm):
    target = {"psd": "barycenter", "psd-white": "white"}[norm]
    assert {layer.target for layer in layers(PSDNorm, Run("usleep", norm))} == {target}


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.parametrize(
    ("norm", "statistics", "target_power"),
    [
        ("psd", "row", "as-is"),
        ("psd-unit", "row", "unit"),
        ("psd-night", "domain", "as-is"),
        ("psd-night-unit", "domain", "unit"),
    ],
)
def test_variants_are_psdnorm_with_other_arguments(tmp_path, model, norm, statistics, target_power):
    further = SHAPES[model] | {"norm_arguments": {"eps": 0.5}}
    protocol = replace(PROTOCOL, model_arguments=further, momentum=0.3)
    build_model(Run(model, norm), protocol, LAYOUT).save_pretrained(tmp_path)
    found = [m for m in from_pretrained(tmp_path).modules() if isinstance(m, PSDNorm)]
    settings = {(n.statistics, n.target_power, n.target, n.eps, n.momentum) for n in found}
    assert settings == {(statistics, target_power, "barycenter", 0.5, 0.3)}
    assert [layer.filter_size for layer in found] == [5, 2, 1]


def test_a_variant_differs_from_psdnorm_in_its_arguments_alone():
    plain, unit = (build_model(Run(norm=norm), PROTOCOL, LAYOUT) for norm in ("psd", "psd-unit"))
    assert unit.config == plain.config | {"norm_arguments": {"target_power": "unit"}}


def test_behind_tma_stands_the_network_of_batchnorm():
    tma, batch = (
        build_model(Run("usleep", norm, filter_size=17), PROTOCOL, LAYOUT)
        for norm in ("tma", "batch")
    )
    assert tma.config == batch.config


def test_a_network_that_is_used_again_has_the_norms_of_the_new_run():
    found, asked = [], [(5, 0.01, 1e-5), (5, 0.3, 1e-5), (17, 0.3, 1e-5), (17, 0.3, 0.5)]
    for size, momentum, eps in asked:
        arguments = PROTOCOL.model_arguments | {"norm_arguments": {"eps": eps}}
        protocol = replace(PROTOCOL, momentum=momentum, model_arguments=arguments)
        run = Run("usleep", "psd", size)
        model = network_for(run, protocol, LAYOUT, torch.device("cpu")).model
        norms = [module for module in model.modules() if isinstance(module, PSDNorm)]
        found.append((norms[0].filter_size, norms[0].momentum, norms[0].eps))
    assert found == asked


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (Run("usleep", "batch"), 4 + 1 + 2 * 4),  # down, at the bottom, up
        (Run("usleep", "psd"), 1 + 1 + 2 * 4),
        (Run("cnn-transformer", "psd"), 1),
        (Run("cnn-transformer", "layer", norm_depth=4), 0),
    ],
)
def test_processes_of_a_processor_share_all_norms_but_batchnorm(run, count):
    protocol = replace(PROTOCOL, model_arguments=SHAPES[run.model])
    assert unshared_norms(run, protocol, LAYOUT, torch.device("cpu")) == count
    assert unshared_norms(run, protocol, LAYOUT, torch.device("cuda")) == 0


def test_looking_at_a_network_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    unshared_norms(Run("usleep", "psd"), PROTOCOL, LAYOUT, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
