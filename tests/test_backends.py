"""Who serves a call: "auto" picks, the others force, and "fused" says why it cannot."""

import pytest
import torch

from psdnorm import PSDNorm
from psdnorm.errors import BackendError
from psdnorm.functional import psd_norm
from psdnorm.ops import Spec, cpu, reference, triton
from psdnorm.ops import dispatch as fused


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x + 0.5 * x.roll(1, -1) + 1


@pytest.fixture
def served_by(monkeypatch):
    """The modules that normalized something, in order."""
    calls = []
    for module in (reference, cpu, triton):
        name, original = module.__name__.rpartition(".")[2], module.normalize

        def spy(*args, name=name, original=original, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, "normalize", spy)
    return calls


@pytest.mark.parametrize(
    ("backend", "filter_size", "server"),
    [
        ("auto", 5, "cpu"),
        ("auto", 32, "cpu"),
        ("auto", 33, "reference"),
        ("fused", 5, "cpu"),
        ("reference", 5, "reference"),
    ],
)
def test_a_processor_is_served_by(served_by, backend, filter_size, server):
    psd_norm(signals(2, 3, 1100), filter_size=filter_size, backend=backend)
    assert served_by == [server]


def test_short_rows_of_a_processor_are_served_by_the_reference_unless_forced(served_by):
    for backend in ("auto", "fused"):
        psd_norm(signals(2, 3, 100), filter_size=5, backend=backend)
    assert served_by == ["reference", "cpu"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_is_served_by_the_fast_path_of_a_processor(served_by, dtype):
    y = psd_norm(signals(2, 3, 100).to(dtype), filter_size=5, backend="fused")
    assert served_by == ["cpu"]
    assert y.dtype == dtype


def test_fused_refuses_a_long_filter_rather_than_fall_back():
    with pytest.raises(BackendError, match=r'"fused" cannot serve this call: filter_size 33.* 32'):
        psd_norm(signals(2, 3, 100), filter_size=33, backend="fused")


def test_fused_refuses_a_device_without_kernels():
    with pytest.raises(BackendError, match="no kernels for the device meta"):
        psd_norm(torch.empty(2, 3, 100, device="meta"), backend="fused")


@pytest.mark.parametrize("backend", ["auto", "reference", "fused"])
def test_a_layer_on_another_device_than_its_signal_says_so(backend):
    layer = PSDNorm(3, 5, backend=backend)
    with pytest.raises(BackendError, match="signal is on meta, PSDNorm's target on cpu: move one"):
        layer(torch.empty(2, 3, 100, device="meta"))
    weight = torch.ones(3)
    with pytest.raises(BackendError, match="signal is on meta, PSDNorm's weight on cpu"):
        psd_norm(torch.empty(2, 3, 100, device="meta"), weight=weight, backend=backend)


def test_fused_refuses_to_be_exported():
    layer = PSDNorm(3, 5, backend="fused").eval()
    with pytest.raises(BackendError, match="exported program"):
        torch.export.export(layer, (signals(2, 3, 100),), strict=False)


def test_fused_refuses_transforms_that_cannot_see_into_it():
    layer = PSDNorm(3, 5, backend="fused").eval()
    with pytest.raises(BackendError, match=r"torch\.func"):
        torch.func.vmap(layer)(signals(4, 2, 3, 100))


def test_fused_refuses_a_target_that_wants_a_gradient():
    x, target = signals(2, 3, 1000), torch.ones(3, 3, requires_grad=True)
    with pytest.raises(BackendError, match="sqrt_target requires a gradient"):
        psd_norm(x, target, 5, backend="fused")
    psd_norm(x, target, 5).square().sum().backward()  # auto takes the reference
    assert target.grad.norm() > 1


@pytest.mark.parametrize("backend", ["reference", "auto", "fused"])
def test_an_operation_in_place_may_follow_the_layer(backend):
    norm = PSDNorm(3, 5, backend=backend)
    x = signals(2, 3, 1000).requires_grad_()
    y = norm(x)
    y += 1
    torch.nn.functional.relu(y, inplace=True).sum().backward()
    assert x.grad.abs().sum() > 0


def test_functional_transforms_of_the_parameters_take_the_reference():
    layer = PSDNorm(3, 5, affine=True).eval()
    x = signals(2, 3, 1000)

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    found = torch.func.grad(loss)({k: p.detach() for k, p in layer.named_parameters()})
    loss(dict(layer.named_parameters())).backward()
    expected = {k: p.grad for k, p in layer.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_members_of_an_ensemble_may_share_their_input():
    members = [PSDNorm(3, 5) for _ in range(2)]
    params, buffers = torch.func.stack_module_state(members)
    x = signals(2, 3, 1000)

    def forward(params, buffers, x):
        return torch.func.functional_call(members[0], (params, buffers), (x,))

    mapped = torch.func.vmap(forward, in_dims=(0, 0, None))(params, buffers, x)
    torch.testing.assert_close(mapped[0], PSDNorm(3, 5)(x))


def test_forward_mode_gradients_take_the_reference():
    x, tangent = signals(1, 2, 500), signals(1, 2, 500, seed=1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        found = torch.autograd.forward_ad.unpack_dual(psd_norm(dual)).tangent
    _, expected = torch.func.jvp(psd_norm, (x,), (tangent,))
    torch.testing.assert_close(found, expected)


def test_a_batch_of_gradients_is_differentiated_at_once():
    x = signals(1, 2, 500).requires_grad_()
    upstream = torch.stack([signals(1, 2, 500, seed=s) for s in (1, 2)])
    (found,) = torch.autograd.grad(psd_norm(x, backend="fused"), x, upstream, is_grads_batched=True)
    expected = [torch.autograd.grad(psd_norm(x), x, g)[0] for g in upstream]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_a_default_device_elsewhere_does_not_matter():
    x = signals(2, 3, 1000).requires_grad_()
    expected = psd_norm(x)
    with torch.device("meta"):
        y = psd_norm(x)
        y.sum().backward()
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("scale", [1e-13, 1e13])
def test_tiny_and_huge_signals_have_the_gradients_of_float64(scale):
    grad, x = signals(1, 2, 500, seed=1), scale * signals(1, 2, 500)
    gradients = []
    for dtype, backend in ((torch.float32, "fused"), (torch.float64, "reference")):
        leaf = x.to(dtype, copy=True).requires_grad_()
        psd_norm(leaf, eps=0.0, backend=backend).backward(grad.to(dtype))
        gradients.append(leaf.grad.double())
    assert (gradients[0] - gradients[1]).norm() < 1e-4 * gradients[1].norm()


def test_second_derivatives_of_the_fast_path_are_the_references():
    results = []
    for backend in ("reference", "fused"):
        layer = PSDNorm(2, 5, affine=True, backend=backend).double().eval()
        x = signals(2, 2, 50).double().requires_grad_()
        upstream = signals(2, 2, 50, seed=1).double().requires_grad_()
        inputs = [x, layer.weight, layer.bias, upstream]
        first = torch.autograd.grad(layer(x), inputs[:3], upstream, create_graph=True)
        penalty = sum(grad.square().sum() for grad in first)
        results.append([*first, *torch.autograd.grad(penalty, inputs, allow_unused=True)[:2]])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
def test_both_backends_give_the_same_outputs_and_gradients(padding_mode, training):
    results = []
    for backend in ("reference", "fused"):
        layer = PSDNorm(3, 5, affine=True, padding_mode=padding_mode, backend=backend)
        layer.train(training)
        torch.nn.init.constant_(layer.weight, 1.7)
        x = signals(4, 3, 333).requires_grad_()
        y = layer(x)
        y.backward(signals(4, 3, 333, seed=1))
        results.append((y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_sqrt_psd))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_the_operators_keep_their_promises_to_torch():
    x, spec = signals(2, 3, 60).requires_grad_(), Spec(5)
    offset, psd = fused.row_statistics(x, spec)
    weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    torch.library.opcheck(torch.ops.psdnorm.row_statistics, (x.detach(), *spec))
    torch.library.opcheck(
        torch.ops.psdnorm.normalize,
        (x, weight, bias, torch.ones(3, 3), offset, psd, None, 0, *spec),
    )
    torch.library.opcheck(
        torch.ops.psdnorm.measure_and_normalize, (x, weight, bias, torch.ones(3, 3), None, *spec)
    )
    torch.library.opcheck(
        torch.ops.psdnorm.normalize_backward,
        (x.detach(), x.detach(), offset, psd, torch.ones(3, 3), None, None, 0, *spec),
    )


@pytest.mark.parametrize(
    ("training", "operators"),
    [(True, ["row_statistics", "normalize"]), (False, ["measure_and_normalize"])],
)
def test_a_compiled_layer_holds_the_operators_in_one_graph(training, operators):
    graphs = []

    def backend(graph, _inputs):
        graphs.append(str(graph.graph))
        return graph.forward

    torch.compiler.reset()
    layer = PSDNorm(3, 5, backend="fused").train(training)
    torch.compile(layer, fullgraph=True, backend=backend)(signals(2, 3, 100))
    assert len(graphs) == 1
    assert all(f"psdnorm.{operator}" in graphs[0] for operator in operators)
