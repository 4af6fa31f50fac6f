"""torch.export and ONNX carry the layer to where there is no psdnorm."""

import io
import warnings

import numpy as np
import onnxruntime
import pytest
import torch

from psdnorm import PSDNorm

DYNAMIC = {0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC}


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x + 0.4 * x.roll(1, -1) + 2


def trained(**options):
    layer = PSDNorm(3, affine=True, **options)
    layer(signals(4, 3, 300))
    return layer


def test_an_exported_layer_serves_any_batch_and_length():
    layer = trained(filter_size=5).eval()
    program = torch.export.export(layer, (signals(4, 3, 101),), dynamic_shapes=(DYNAMIC,))
    for n, length in ((1, 64), (7, 1000)):
        x = signals(n, 3, length, seed=n)
        torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("filter_size", [1, 5, 8])
def test_named_dimensions_serve_every_length_of_at_least_two_segments(filter_size):
    shortest = 2 * filter_size - filter_size // 2
    batch = torch.export.Dim("batch", min=1, max=4096)
    time = torch.export.Dim("time", min=max(2, shortest), max=100_000)
    layer = trained(filter_size=filter_size).eval()
    shapes = ({0: batch, 2: time},)
    program = torch.export.export(layer, (signals(4, 3, 101),), dynamic_shapes=shapes).module()
    for length in range(max(2, shortest), shortest + 20):
        x = signals(2, 3, length, seed=length)
        torch.testing.assert_close(program(x), layer(x))


def test_an_exported_training_step_updates_the_barycenter():
    layer, twin = trained(filter_size=4), trained(filter_size=4)
    x = signals(4, 3, 101)
    program = torch.export.export(layer, (x,))
    assert "psdnorm" not in str(program.graph)  # it must run where there is no psdnorm
    exported = program.module()
    torch.testing.assert_close(exported(x), twin(x))
    torch.testing.assert_close(exported.running_sqrt_psd, twin.running_sqrt_psd)


def to_onnx(layer, x):
    with warnings.catch_warnings():
        # torch's exporter stumbles over a deprecation of torch's own pytree
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.`", FutureWarning)
        program = torch.onnx.export(
            layer, (x,), dynamo=True, dynamic_shapes=(DYNAMIC,), verbose=False
        )
    buffer = io.BytesIO()
    program.save(buffer)
    return onnxruntime.InferenceSession(buffer.getvalue())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"filter_size": 1}, marks=pytest.mark.slow),
        pytest.param({"filter_size": 5}, marks=pytest.mark.slow),
        {"filter_size": 8, "padding_mode": "reflect", "window": "hann"},
        pytest.param({"filter_size": 17, "padding_mode": "zeros"}, marks=pytest.mark.slow),
        pytest.param({"filter_size": 80}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_onnxruntime_computes_the_same_for_any_batch_and_length(options):
    layer = trained(**options).eval()
    session = to_onnx(layer, signals(4, 3, 301))
    for n, length in ((1, 160), (7, 1000)):
        x = signals(n, 3, length, seed=n)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, layer(x).detach(), atol=1e-4)
