"""torch.compile and torch.export of statistics by domain: ids are data, not part of the program."""

import io
import warnings
from functools import partial

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from psdnorm import PSDNorm, adapt, domains
from psdnorm.errors import ArgumentError, BackendError
from psdnorm.functional import psd_norm
from psdnorm.recompute import PassMemory

# the same number of samples each time, but not of domains
NAMES = ([3, 0, 3, 3], list("abca"), [7] * 4, torch.tensor([1, 2, 3, 4]), np.array([0, 0, 1, 1]))
NEEDS_IDS = r"^PSDNorm with .* needs to know which rows belong together"
by_center = pytest.mark.parametrize("center", ["row", "domain"])


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def signals(seed=0, n=4, length=170):
    x = torch.randn(n, 2, length, generator=torch.Generator().manual_seed(seed))
    return (1 + torch.arange(n).view(-1, 1, 1)) * (x + 0.5 * x.roll(1, -1)) + 2


class CompileCounter:
    """A backend that counts how often a graph is handed to it."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, _inputs):
        self.graphs += 1
        return graph.forward


def steps(run, layer):
    """Outputs, gradients and state after a step with each of the names."""
    outputs = []
    for step, ids in enumerate(NAMES):
        x = signals(step).requires_grad_()
        with domains(ids):
            y = run(x)
        y.backward(signals(step + 50))
        outputs += [y.detach(), x.grad]
    return outputs, dict(layer.state_dict()), [p.grad for p in layer.parameters()]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_new_ids_do_not_recompile(training):
    counter = CompileCounter()
    layer = PSDNorm(2, 5, affine=True, statistics="domain").train(training)
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    found = steps(compiled, layer)
    assert counter.graphs == 1
    eager = PSDNorm(2, 5, affine=True, statistics="domain").train(training)
    torch.testing.assert_close(found, steps(eager, eager))


# torch on torch: its compiler makes an instance of what should have none
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"center": "domain", "target_power": "unit", "eps_mode": "relative"},
        {"target": "white", "center": "domain", "backend": "reference"},
    ],
    ids=str,
)
def test_a_compiled_layer_equals_eager_in_training_and_evaluation(options):
    options = {"filter_size": 4, "affine": True, "momentum": 0.3} | options
    eager, layer = (PSDNorm(2, statistics="domain", **options) for _ in range(2))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(steps(compiled, layer), steps(eager, eager))
    eager.eval(), layer.eval()
    torch.testing.assert_close(steps(compiled, layer), steps(eager, eager))


@pytest.mark.slow
def test_inductor_equals_eager():
    for options in ({}, {"center": "domain", "target_power": "unit", "eps_mode": "relative"}):
        options = {"filter_size": 5, "affine": True, "momentum": 0.3} | options
        eager, layer = (PSDNorm(2, statistics="domain", **options) for _ in range(2))
        compiled = torch.compile(layer, fullgraph=True)
        tolerance = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(steps(compiled, layer), steps(eager, eager), **tolerance)


def test_a_compiled_layer_follows_a_reset_and_a_copy_its_own_ids():
    layer = PSDNorm(2, 5, statistics="domain")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        layer.reset_running_stats()
        eager = PSDNorm(2, 5, statistics="domain")
        torch.testing.assert_close(steps(compiled, layer), steps(eager, eager))
    other = torch.compile(PSDNorm(2, 5, statistics="domain"), fullgraph=True, backend="aot_eager")
    with domains([0, 0, 1, 1]):
        expected = PSDNorm(2, 5, statistics="domain")(signals())
        torch.testing.assert_close(other(signals()), expected)


def test_a_compiled_model_under_autocast_equals_eager():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 3, 5), PSDNorm(3, 5, statistics="domain", center="domain"))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = []
    for run in (model, compiled):
        model[1].reset_running_stats()
        with torch.autocast("cpu", torch.bfloat16), domains(NAMES[0]):
            y = run(signals())
        found.append((y, model[1].running_sqrt_psd.clone()))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_compiled_model_says_what_ids_lack(training):
    model = nn.Sequential(PSDNorm(2, 5, statistics="domain")).train(training)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        compiled(signals())
    with domains(NAMES[0]):
        assert compiled(signals()).isfinite().all()
    with pytest.raises(ArgumentError, match=NEEDS_IDS):
        compiled(signals())
    with (
        pytest.raises(ArgumentError, match="was given 3 ids, but a layer sees 4"),
        domains(list("abc")),
    ):
        compiled(signals())


def test_a_compiled_psd_norm_takes_ids_too():
    def normalize(x):
        return psd_norm(x, filter_size=5, statistics="domain", center="domain")

    counter = CompileCounter()
    compiled = torch.compile(normalize, fullgraph=True, backend=counter)
    for ids in NAMES:
        with domains(ids):
            torch.testing.assert_close(compiled(signals()), normalize(signals()))
    assert counter.graphs == 1


def test_the_operator_that_reads_ids_passes_torchs_own_checks():
    memory = PassMemory()
    with domains(NAMES[0]):
        torch.library.opcheck(torch.ops.psdnorm.domains, (signals(), memory.key))


class Checkpointed(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.norm = PSDNorm(2, 5, momentum=0.5, statistics="domain", **options)
        self.checkpoints = True

    def forward(self, x):
        if self.checkpoints:
            return checkpoint(lambda x: self.norm(x).tanh(), x, use_reentrant=False)
        return self.norm(x).tanh()


def two_batches(run, norm, waits):
    """Gradients and state after two batches; their backward passes run after each or after both."""
    x = [signals(step).requires_grad_() for step in range(2)]
    losses = []
    for batch, ids in zip(x, NAMES, strict=False):
        with domains(ids):
            losses.append(run(batch).square().sum())
        if not waits:
            losses.pop().backward()
    sum(losses, start=torch.zeros((), requires_grad=True)).backward()
    return [batch.grad for batch in x], dict(norm.state_dict())


@pytest.mark.parametrize(("target", "waits"), [("barycenter", False), ("white", True)])
@by_center
def test_checkpoints_inside_a_compiled_model_keep_their_ids(target, waits, center):
    model, plain = (Checkpointed(target=target, center=center) for _ in range(2))
    plain.checkpoints = False
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = two_batches(plain, plain.norm, waits)
    torch.testing.assert_close(two_batches(compiled, model.norm, waits), expected)


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "non-reentrant"])
@pytest.mark.parametrize(("target", "waits"), [("barycenter", False), ("white", True)])
def test_checkpoints_around_a_compiled_layer_keep_their_ids(target, waits, use_reentrant):
    layer, plain = (PSDNorm(2, 5, momentum=0.5, statistics="domain", target=target) for _ in "ab")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    run = partial(checkpoint, compiled, use_reentrant=use_reentrant)
    torch.testing.assert_close(two_batches(run, layer, waits), two_batches(plain, plain, waits))


@by_center
def test_a_compiled_model_predicts_single_windows_inside_adapt(center):
    counter = CompileCounter()
    model = nn.Sequential(nn.Conv1d(2, 2, 3), PSDNorm(2, 5, statistics="domain", center=center))
    compiled = torch.compile(model.eval(), fullgraph=True, backend=counter)
    with torch.no_grad():
        with domains(NAMES[0]):
            compiled(signals())
        for seed in range(3):
            with adapt(compiled, [signals(seed)]):
                for x in signals(seed + 1).split(1):
                    torch.testing.assert_close(compiled(x), model(x))
        with domains(NAMES[1]):
            torch.testing.assert_close(compiled(signals()), model(signals()))
    assert counter.graphs == 2


def test_an_operator_never_returns_a_view_of_the_known_psd():
    model = PSDNorm(2, 5, statistics="domain", backend="fused").eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = signals(n=1).requires_grad_()
    with adapt(model, [signals()]):
        y = compiled(x)
        y.sum().backward()
        torch.testing.assert_close(y, model(x))


def test_streaming_adapts_a_model_that_was_compiled_before():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 2, 3), PSDNorm(2, 5, statistics="domain")).eval()
    compiled = torch.compile(model, fullgraph=True, backend=CompileCounter())
    found = []
    with torch.no_grad():
        with adapt(compiled, [signals()]):
            compiled(signals(n=1))
        for run in (compiled, model):
            with adapt(run, [], streaming=True):
                found.append(torch.cat([run(x) for x in signals().split(1)]))
    torch.testing.assert_close(*found)


DYNAMIC = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}


def trained(**options):
    layer = PSDNorm(2, 5, affine=True, statistics="domain", **options)
    with domains(NAMES[0]):
        layer(signals())
    return layer.eval()


@by_center
@pytest.mark.parametrize(
    "options", [{}, {"target_power": "unit", "eps_mode": "relative"}, {"target": "white"}], ids=str
)
def test_what_is_exported_inside_adapt_runs_outside_with_its_filters(options, center):
    layer = trained(center=center, **options)
    inputs = [signals(seed=n, n=n, length=length) for n, length in ((1, 64), (7, 900))]
    with adapt(layer, [signals(8), signals(9)]):
        program = torch.export.export(layer, (signals(),), dynamic_shapes=(DYNAMIC,))
        expected = [layer(x) for x in inputs]
    assert "psdnorm" not in str(program.graph)  # it must run where there is no psdnorm
    with adapt(layer, [50 * signals(3)]):  # of no interest to the program
        for x, y in zip(inputs, expected, strict=True):
            torch.testing.assert_close(program.module()(x), y)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_program_cannot_hold_ids(training):
    layer = trained().train(training)
    said = "^PSDNorm with .* can be exported only with fixed PSDs: .*adapt[^;]*$"
    with pytest.raises(BackendError, match=said), domains(NAMES[0]):
        torch.export.export(layer, (signals(),))


@pytest.mark.parametrize("center", [pytest.param("row", marks=pytest.mark.slow), "domain"])
def test_onnxruntime_computes_the_same(center):
    layer, x = trained(center=center, target_power="unit"), signals(5, n=7, length=900)
    with adapt(layer, [signals(8)]), warnings.catch_warnings():
        # torch's exporter stumbles over a deprecation of torch's own pytree
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.`", FutureWarning)
        program = torch.onnx.export(
            layer, (signals(),), dynamo=True, dynamic_shapes=(DYNAMIC,), verbose=False
        )
        expected = layer(x).detach()
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(y, expected, atol=1e-4)


def test_many_layers_share_one_graph():
    """Neither another layer nor a reset one is compiled anew."""
    counter = CompileCounter()
    run = torch.compile(lambda layer, x: layer(x), fullgraph=True, backend=counter)
    layers = [PSDNorm(2, 3, statistics="domain") for _ in range(12)]
    with domains([0, 0, 1, 1]):
        for layer in layers:
            run(layer, signals())
            layer.reset_running_stats()
            run(layer, signals())
    assert counter.graphs == 1
