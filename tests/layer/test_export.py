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


def test_an_exported_training_step_updates_the_barycenter():
    layer, twin = trained(filter_size=4), trained(filter_size=4)
    exported = torch.export.export(layer, (x := signals(4, 3, 101),)).module()
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
        {"filter_size": 1},
        {"filter_size": 5},
        {"filter_size": 8, "padding_mode": "reflect", "window": "hann"},
        {"filter_size": 17, "padding_mode": "zeros"},
        {"filter_size": 80},
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
