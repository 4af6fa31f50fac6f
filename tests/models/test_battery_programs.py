"""The battery, second part: compiled, exported, in ONNX and in half precision it is the same."""

import copy
import io
import itertools

import numpy as np
import onnxruntime
import pytest
import torch
from battery import (
    FULL,
    FULL_LR,
    FULL_NIGHTS,
    WITHOUT_DROPOUT,
    build,
    every_model,
    every_norm,
    gradients,
    losses_on_one_batch,
    nights,
    seeded,
    stages,
    traced_pairs,
    trained,
)
from torch.nn.functional import cross_entropy

from psdnorm.models import CNNTransformer, USleep


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def assert_compiled_equals_eager(model, batches, backend, rtol=1e-4, atol=1e-5):
    """Compare a training step with its gradients and statistics, then an evaluation."""
    eager, model = copy.deepcopy(model), model.train()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = next(batches)
    for run in (eager.train(), compiled):
        torch.manual_seed(0)
        cross_entropy(run(x), stages(x)).backward()
    torch.testing.assert_close(gradients(model), gradients(eager), rtol=rtol, atol=atol)
    torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=rtol, atol=atol)
    eager.eval(), model.eval()
    x = next(batches)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), eager(x), rtol=rtol, atol=atol)


@traced_pairs((USleep, "psd"), (CNNTransformer, "layer"))
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_without_graph_breaks_it_equals_eager(architecture, norm):
    model = trained(architecture, norm)
    assert_compiled_equals_eager(model, (nights(seed=i) for i in (7, 8)), "aot_eager")


@pytest.mark.usefixtures("fresh_compiler")
def test_inductor_stages_nights_as_eager_does():
    model = build(CNNTransformer, "batch", channels=(8, 16), strides=(3, 5)).eval()
    with torch.no_grad():
        logits = torch.compile(model, fullgraph=True)(nights())
        torch.testing.assert_close(logits, model(nights()), rtol=1e-4, atol=1e-5)


# what follows the first block is compiled and exported elsewhere
SHALLOW = {USleep: {"depth": 1}, CNNTransformer: {"channels": (8,), "strides": (3,)}}


@every_model
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_with_an_input_scale_it_equals_eager(architecture):
    model = build(architecture, "batch", **SHALLOW[architecture], input_scale=0.05)
    assert_compiled_equals_eager(model, (nights(seed=i) for i in (7, 8)), "aot_eager")


@pytest.mark.slow
@every_model
@pytest.mark.usefixtures("fresh_compiler")
def test_inductor_equals_eager_in_training_and_evaluation(architecture):
    model = build(architecture, "psd", **WITHOUT_DROPOUT[architecture])  # it has dice of its own
    assert_compiled_equals_eager(model, (nights(seed=i) for i in (7, 8)), "inductor")


@pytest.mark.slow
@every_norm
@every_model
@pytest.mark.usefixtures("fresh_compiler")
def test_at_full_size_it_compiles_to_what_eager_computes(architecture, norm):
    model = build(architecture, norm, FULL)
    batches = (nights(**FULL_NIGHTS, seed=i) for i in (7, 8))
    assert_compiled_equals_eager(model, batches, "aot_eager")


# ─── export ───


def assert_exported_serves_any_batch(model, x, others):
    """Compare the exported program, and what onnxruntime makes of it, with the model."""
    any_batch = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(model, (x,), dynamic_shapes=any_batch)
    buffer = io.BytesIO()
    torch.onnx.export(program, verbose=False).save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue())
    exported, name = program.module(), session.get_inputs()[0].name
    for other in others:
        expected = model(other).detach()
        assert expected.std() > 0.01
        torch.testing.assert_close(exported(other).detach(), expected, rtol=1e-4, atol=1e-5)
        (logits,) = session.run(None, {name: other.numpy()})
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


# torch's exporter stumbles over a deprecation of torch's own pytree
in_onnx = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`:FutureWarning")


@in_onnx
@traced_pairs((USleep, "psd"))
def test_exported_and_in_onnxruntime_it_stages_any_number_of_nights(architecture, norm):
    model = trained(architecture, norm).eval()
    assert_exported_serves_any_batch(model, nights(3), [nights(1, seed=5), nights(7, seed=6)])


@in_onnx
@pytest.mark.slow
@every_model
def test_with_an_input_scale_it_is_exported_too(architecture):
    model = build(architecture, "batch", **SHALLOW[architecture], input_scale=0.05).eval()
    nights_of_20_uv = [20 * nights(n, seed=n) for n in (3, 1, 7)]
    assert_exported_serves_any_batch(model, nights_of_20_uv[0], nights_of_20_uv[1:])


@in_onnx
@pytest.mark.slow
@every_norm
@every_model
def test_at_full_size_it_is_exported_and_runs_in_onnxruntime(architecture, norm):
    model = build(architecture, norm, FULL)
    model(nights(**FULL_NIGHTS))  # the statistics move
    others = [nights(n, 35, 3000, seed=n) for n in (1, 3)]
    assert_exported_serves_any_batch(model.eval(), nights(**FULL_NIGHTS), others)


# ─── bfloat16 ───


@pytest.fixture
def without_onednn():
    """Use torch's own kernels: oneDNN's die in virtual machines that announce AMX and lack it."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


# what that switch says about Intel's GPUs
on_switching = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning")


@on_switching
@every_norm
@every_model
@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_autocast_computes_nearly_the_same_in_bfloat16(architecture, norm, training):
    assert_nearly_the_same_in_bfloat16(trained(architecture, norm).train(training), nights(seed=9))


@on_switching
@every_model
@pytest.mark.usefixtures("without_onednn")
def test_with_an_input_scale_autocast_computes_nearly_the_same_too(architecture):
    model = build(architecture, "psd", input_scale=0.05)
    assert_nearly_the_same_in_bfloat16(model, 20 * nights(seed=9))


def assert_nearly_the_same_in_bfloat16(model, x):
    twin = copy.deepcopy(model)
    exact = seeded(twin, x)
    with torch.autocast("cpu", torch.bfloat16):
        logits = seeded(model, x)
    assert logits.dtype == torch.bfloat16
    # 8 bits per value, each rounding on its own
    error = (logits.float() - exact).square().mean().sqrt()
    assert 0 < error < 0.05 * exact.std()
    cross_entropy(logits.float(), stages(x)).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())
    dtypes = [{k: v.dtype for k, v in m.state_dict().items()} for m in (model, twin)]
    assert dtypes[0] == dtypes[1]


@on_switching
@pytest.mark.slow
@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize(("architecture", "n_steps"), [(USleep, 80), (CNNTransformer, 12)])
def test_at_full_size_bfloat16_and_float32_learn_a_batch_equally_well(architecture, n_steps):
    x, lr = nights(2, 2, 3000), FULL_LR[architecture]
    ends = np.empty((2, 3))
    for in_bfloat16, seed in np.ndindex(ends.shape):
        torch.manual_seed(seed)
        losses = losses_on_one_batch(architecture(norm="psd"), x, lr, bool(in_bfloat16))
        ends[in_bfloat16, seed] = list(itertools.islice(losses, n_steps))[-1]
    assert ends.max() < 0.5  # 1.6 knows nothing
    exact, rounded = np.log(ends)
    noise = np.sqrt(exact.var(ddof=1) / 3 + rounded.var(ddof=1) / 3)  # between seeds
    assert abs(rounded.mean() - exact.mean()) < 2 * noise, ends
