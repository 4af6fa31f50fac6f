"""What convert_norm refuses, how it says so, and that the model is then as it was."""

import warnings

import pytest
import torch
from networks import Ending, Idle, buffers, kinds, network, signals, unchanged, untracked_second
from torch import nn

from psdnorm import convert_norm
from psdnorm.errors import ArgumentError, ConversionError


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


class Aliased(nn.Module):
    """Calls its norm through a plain list, which no swap of submodules reaches."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.alias = [self.norm]

    def forward(self, x):
        return self.alias[0](x)


class Picky(nn.Module):
    """Calls only what is a batch norm."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(x) if isinstance(self.norm, nn.BatchNorm1d) else x


class Curious(nn.Module):
    """Reads what batch norms alone have."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(x) - self.norm.running_mean.mean()


X = signals(3)
ONE = {"layers": 1, "example_input": X}
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
    "old one still runs": (Aliased, ONE, "'norm' is still called by the model after the swap"),
    "still runs, by name": (
        Aliased,
        {"names": ["norm"], "example_input": X},
        "'norm' is still called",
    ),
    "new one does not run": (Picky, ONE, "'norm' is not called after the swap"),
    "swapped model fails": (Curious, ONE, "does not run after the swap: .*'running_mean'"),
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


@pytest.mark.parametrize("build", [Aliased, Picky, Curious])
def test_a_swap_that_is_undone_leaves_the_old_layer_training_and_without_hooks(build):
    model = build().train()
    with pytest.raises(ConversionError):
        convert_norm(model, **ONE)
    assert model.norm.training
    assert not model.norm._forward_pre_hooks


def test_a_swap_that_is_undone_is_undone_at_every_place():
    model = Aliased()
    model.again = nn.Sequential(model.norm)
    modules = kinds(model)
    with pytest.raises(ConversionError, match="'norm' is still called"):
        convert_norm(model, **ONE)
    assert kinds(model) == modules


def test_a_long_list_of_reasons_is_cut():
    model = nn.Sequential(*(nn.BatchNorm2d(2) for _ in range(9)))
    with pytest.raises(ConversionError, match=r"'4' sees .*; and 4 more$"):
        convert_norm(model, example_input=torch.randn(2, 2, 4, 4))


def test_a_script_module_raises():
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
        ({"names": ["0.norm"], "layers": 2}, "layers=2 conflicts with names"),
        ({"names": ["0.norm"], "layers": 3}, "layers=3 conflicts with names"),
        ({"where": lambda *_: True, "layers": 3}, "layers=3 conflicts with names or where"),
        ({"names": "0.norm"}, "names must be a sequence of layer names, found '0.norm'"),
        ({"names": []}, "names must be a sequence of layer names"),
        ({"names": 5}, "names must be a sequence of layer names, found 5"),
        ({"names": [["0.norm"]]}, r"names must be a sequence of layer names, found \[\["),
        ({"where": "0.norm"}, "where must be a callable .*, found '0.norm'"),
        ({"example_input": [X]}, "example_input must be a tensor or a tuple .*, found a list"),
        ({"example_input": {"x": X}}, "example_input must be .*, found a dict"),
        ({"example_input": X.numpy()}, "example_input must be .*, found a ndarray"),
        ({"example_input": [X], "names": ["0.norm"]}, "example_input must be .*, found a list"),
        ({"example_input": X, "layers": 0}, "layers must be .*found 0"),
        ({"example_input": X, "layers": 2.5}, "layers must be .*found 2.5"),
        ({"example_input": X, "layers": True}, "layers must be .*found True"),
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


@pytest.mark.parametrize(("model", "kind"), [(None, "NoneType"), ("net", "str"), ([], "list")])
def test_what_is_no_module_raises(model, kind):
    with pytest.raises(ArgumentError, match=f"model must be an nn.Module, found a {kind}"):
        convert_norm(model, example_input=X)
