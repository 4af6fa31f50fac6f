"""Who serves a call: "auto" picks, the others force, and "fused" says why it cannot."""

import pytest
import torch

from psdnorm import PSDNorm
from psdnorm.errors import BackendError
from psdnorm.functional import psd_norm
from psdnorm.ops import blocked, cuda, fused, reference


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x + 0.5 * x.roll(1, -1) + 1


@pytest.fixture
def served_by(monkeypatch):
    """The modules that normalized something, in order."""
    calls = []
    for module in (reference, blocked, cuda):
        name, original = module.__name__.rpartition(".")[2], module.normalize

        def spy(*args, name=name, original=original, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, "normalize", spy)
    return calls


@pytest.mark.parametrize(
    ("backend", "filter_size", "server"),
    [
        ("auto", 5, "blocked"),
        ("auto", 32, "blocked"),
        ("auto", 33, "reference"),
        ("fused", 5, "blocked"),
        ("reference", 5, "reference"),
    ],
)
def test_a_processor_is_served_by(served_by, backend, filter_size, server):
    psd_norm(signals(2, 3, 100), filter_size=filter_size, backend=backend)
    assert served_by == [server]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_is_served_by_the_fast_path_of_a_processor(served_by, dtype):
    y = psd_norm(signals(2, 3, 100).to(dtype), filter_size=5, backend="fused")
    assert served_by == ["blocked"]
    assert y.dtype == dtype


def test_fused_refuses_a_long_filter_rather_than_fall_back():
    with pytest.raises(BackendError, match=r'"fused" cannot serve this call: filter_size 33.* 32'):
        psd_norm(signals(2, 3, 100), filter_size=33, backend="fused")


def test_fused_refuses_a_device_without_kernels():
    with pytest.raises(BackendError, match="no kernels for the device meta"):
        psd_norm(torch.empty(2, 3, 100, device="meta"), backend="fused")


def test_fused_refuses_to_be_exported():
    layer = PSDNorm(3, 5, backend="fused").eval()
    with pytest.raises(BackendError, match="exported program"):
        torch.export.export(layer, (signals(2, 3, 100),), strict=False)


def test_fused_refuses_transforms_that_cannot_see_into_it():
    layer = PSDNorm(3, 5, backend="fused").eval()
    with pytest.raises(BackendError, match=r"torch\.func"):
        torch.func.vmap(layer)(signals(4, 2, 3, 100))


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


@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
def test_both_backends_give_the_same_outputs_and_gradients(padding_mode):
    results = []
    for backend in ("reference", "fused"):
        layer = PSDNorm(3, 5, affine=True, padding_mode=padding_mode, backend=backend)
        torch.nn.init.constant_(layer.weight, 1.7)
        x = signals(4, 3, 333).requires_grad_()
        y = layer(x)
        y.backward(signals(4, 3, 333, seed=1))
        results.append((y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_sqrt_psd))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_the_operators_keep_their_promises_to_torch():
    x = signals(2, 3, 60).requires_grad_()
    offset, psd = fused.row_statistics(x, 5)
    weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    torch.library.opcheck(torch.ops.psdnorm.row_statistics, (x.detach(), 5, 1e-5, "boxcar"))
    torch.library.opcheck(
        torch.ops.psdnorm.normalize,
        (x, offset, psd, torch.ones(3, 3), 5, weight, bias, "boxcar", "circular"),
    )
    torch.library.opcheck(
        torch.ops.psdnorm.normalize_backward,
        (x.detach(), x.detach(), offset, psd, torch.ones(3, 3), 5, None, "hann", "zeros"),
    )


def test_a_compiled_layer_holds_the_operators_in_one_graph():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(str(graph.graph))
        return graph.forward

    torch.compiler.reset()
    layer = torch.compile(PSDNorm(3, 5, backend="fused"), fullgraph=True, backend=backend)
    layer(signals(2, 3, 100))
    assert len(graphs) == 1
    assert "psdnorm.row_statistics" in graphs[0]
    assert "psdnorm.normalize" in graphs[0]
