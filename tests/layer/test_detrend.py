"""detrend="segment": the layer as its authors' code estimates PSDs, to see what that does."""

import io
import warnings

import numpy as np
import onnxruntime
import oracle
import pytest
import scipy.signal
import torch

from psdnorm import PSDNorm, calibrate, convert_norm
from psdnorm.errors import ArgumentError
from psdnorm.functional import psd_norm
from psdnorm.ops import reference

WINDOWS = tuple(reference.WINDOWS)


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x + 0.4 * x.roll(1, -1) + 0.2 * x.cumsum(-1) + 2).float()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("filter_size", [2, 5, 8])
def test_a_training_step_is_scipys_psd_and_the_oracles_filter(filter_size, window):
    x = signals(4, 3, 201).double()
    taper = scipy.signal.get_window(window, filter_size)
    lengths = {"nperseg": filter_size, "noverlap": filter_size // 2, "return_onesided": False}
    _, psd = scipy.signal.welch(x.numpy(), 1, taper, detrend="constant", **lengths)
    psd = psd[..., : filter_size // 2 + 1] + 1e-3
    barycenter = np.sqrt(psd).mean(axis=0)
    expected = np.empty(x.shape)
    for n, c in np.ndindex(4, 3):
        row = x[n, c].numpy() - x[n, c].numpy().mean()
        taps = oracle.taps(psd[n, c], barycenter[c], filter_size)
        expected[n, c] = np.convolve(np.pad(row, filter_size // 2, "wrap"), taps, "valid")
    for backend in ("reference", "fused"):
        options = {"eps": 1e-3, "window": window, "backend": backend, "detrend": "segment"}
        layer = PSDNorm(3, filter_size, **options).double()
        np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(layer.running_sqrt_psd, barycenter, rtol=1e-9)


def slow_waves(gain):
    """A wave of 500 samples that an amplifier may change, and noise that it does not."""
    noise = torch.randn(1, 1, 10_000, generator=torch.Generator().manual_seed(3))
    return gain * torch.sin(2 * torch.pi / 500 * torch.arange(10_000)) + 0.1 * noise


@pytest.mark.parametrize(("detrend", "left"), [("row", 1.0), ("segment", 10.0)])
def test_the_gain_of_slow_waves_survives_where_segments_lose_their_means(detrend, left):
    layer = PSDNorm(1, 5, detrend=detrend)
    layer(slow_waves(1.0))
    layer.eval()
    ratio = layer(slow_waves(10.0)).std() / layer(slow_waves(1.0)).std()
    torch.testing.assert_close(ratio.item(), left, rtol=0.1, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"target": "white"}], ids=str)
def test_a_rectangular_window_leaves_the_lowest_bin_as_it_is(options, training):
    layer = PSDNorm(2, 5, detrend="segment", **options).train(training)
    x = signals(3, 2, 500)
    y = layer(x)
    _, psd = reference.row_statistics(x, layer.spec)
    taps = reference.monge_filter(psd, layer._known_target(), 5)
    torch.testing.assert_close(taps.sum(dim=-1), torch.ones(3, 2))  # the response at frequency 0
    torch.testing.assert_close(y, reference.monge_map(reference.center(x), taps))


@pytest.mark.parametrize("window", WINDOWS)
def test_white_rows_come_through_a_white_target_unchanged(window):
    x = torch.randn(2, 3, 200_000, generator=torch.Generator().manual_seed(0))
    centred = reference.center(x)
    layer = PSDNorm(3, 8, target="white", window=window, detrend="segment")
    untrained = PSDNorm(3, 8, window=window, detrend="segment").eval()
    found = psd_norm(x, filter_size=8, window=window, detrend="segment")
    for y in (layer(x), untrained(x), found):
        assert (y - centred).norm() < 0.01 * centred.norm()


def test_one_tap_is_as_ever():
    x = signals(3, 2, 100)
    plain, detrended = PSDNorm(2, 1), PSDNorm(2, 1, detrend="segment")
    assert torch.equal(plain(x), detrended(x))
    assert torch.equal(plain.running_sqrt_psd, detrended.running_sqrt_psd)


def test_rows_are_what_loses_its_mean_unless_told_otherwise():
    x = signals(3, 2, 500)
    assert torch.equal(PSDNorm(2, 5)(x), PSDNorm(2, 5, detrend="row")(x))
    assert torch.equal(psd_norm(x), psd_norm(x, detrend="row"))
    assert not torch.equal(psd_norm(x), psd_norm(x, detrend="segment"))


def test_the_state_has_the_same_names_and_shapes():
    plain, detrended = PSDNorm(3, 5).state_dict(), PSDNorm(3, 5, detrend="segment").state_dict()
    assert {k: v.shape for k, v in plain.items()} == {k: v.shape for k, v in detrended.items()}


def test_resetting_gives_a_fresh_layer():
    layer = PSDNorm(2, 5, detrend="segment")
    layer(signals(3, 2, 500))
    layer.reset_running_stats()
    fresh = PSDNorm(2, 5, detrend="segment")
    torch.testing.assert_close(layer.state_dict(), fresh.state_dict())


@pytest.mark.parametrize("value", ["constant", "segments", None, True])
def test_what_cannot_be_detrended_is_refused_in_one_sentence(value):
    said = "^detrend must be one of row, segment, found"
    with pytest.raises(ArgumentError, match=said):
        PSDNorm(2, 5, detrend=value)
    with pytest.raises(ArgumentError, match=said):
        psd_norm(signals(1, 2, 100), detrend=value)


def test_an_eps_of_zero_is_refused_where_it_would_divide_by_nothing():
    said = r'^eps must be above 0 with detrend="segment" and the window boxcar, .* found 0\.0$'
    with pytest.raises(ArgumentError, match=said):
        PSDNorm(2, 5, eps=0.0, detrend="segment")
    with pytest.raises(ArgumentError, match=said):
        psd_norm(signals(1, 2, 100), eps=0.0, detrend="segment")
    x = signals(1, 2, 100)
    assert psd_norm(x, eps=0.0, window="hann", detrend="segment").isfinite().all()


# to the compiler the fused path is one operator, and windows but the boxcar are other numbers
@pytest.mark.parametrize(
    ("backend", "window"), [("reference", "boxcar"), ("reference", "hamming"), ("fused", "hann")]
)
def test_compiled_training_equals_eager(backend, window):
    torch.compiler.reset()
    options = {"window": window, "affine": True, "momentum": 0.3, "detrend": "segment"}
    eager, layer = (PSDNorm(2, 5, backend=backend, **options) for _ in range(2))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for run in (eager, compiled):
        x = signals(3, 2, 120).requires_grad_()
        y = run(x)
        y.backward(signals(3, 2, 120, seed=1))
        results.append((y.detach(), x.grad))
    torch.testing.assert_close(*results)
    torch.testing.assert_close(layer.state_dict(), eager.state_dict())


DYNAMIC = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC},)


@pytest.mark.parametrize("options", [{}, {"window": "hann", "target": "white"}], ids=str)
def test_an_exported_layer_serves_any_batch_and_length(options):
    layer = PSDNorm(3, 5, detrend="segment", **options)
    layer(signals(4, 3, 300))
    layer.eval()
    program = torch.export.export(layer, (signals(4, 3, 101),), dynamic_shapes=DYNAMIC)
    x = signals(2, 3, 500, seed=2)
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"window": "hann"}, {"target": "white"}], ids=str)
def test_onnxruntime_computes_the_same(options):
    layer = PSDNorm(3, 5, detrend="segment", **options)
    layer(signals(4, 3, 300))
    layer.eval()
    with warnings.catch_warnings():
        # torch's exporter stumbles over a deprecation of torch's own pytree
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.`", FutureWarning)
        program = torch.onnx.export(
            layer, (signals(4, 3, 301),), dynamo=True, dynamic_shapes=DYNAMIC, verbose=False
        )
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    x = signals(2, 3, 500, seed=2)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(y, layer(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fold", [True, False])
def test_a_converted_model_detrends_segments_and_keeps_the_lowest_bin(fold):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    model(5 * signals(8, 3, 400))
    model.eval()
    x = signals(2, 3, 400, seed=4)
    former = model(x)
    (conversion,) = convert_norm(
        model, layers=1, example_input=x, fold=fold, detrend="segment", momentum=None
    )
    layer = conversion.new
    assert layer.detrend == "segment"
    torch.testing.assert_close(layer.running_sqrt_psd[:, 0], torch.full((3,), 1e-5).sqrt())
    if fold:  # slow waves are scaled as by the batch norm
        expected = reference.center(former).cumsum(-1)
        found = reference.center(model(x)).cumsum(-1)
        assert (found - expected).norm() < 0.05 * expected.norm()
    calibrate(model, [signals(8, 3, 400)])
    assert layer.num_batches_tracked.tolist() == [1, 1, 1]
