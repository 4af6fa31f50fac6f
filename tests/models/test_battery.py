"""One battery for every model with every norm: what a user may expect of any of them."""

import copy
import functools
import io
import itertools

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from psdnorm.errors import ShapeError
from psdnorm.models import CNNTransformer, USleep, from_pretrained
from psdnorm.models.norms import NORMS


class RootMeanSquare(nn.Module):
    """A norm of the user's own, with a scale to learn."""

    def __init__(self, num_features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features, 1))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


MODELS = (USleep, CNNTransformer)
EVERY_NORM = (*NORMS, RootMeanSquare)
# 5 epochs of 60 samples: U-Sleep halves 300, 150 and 75, which is odd; one block with BatchNorm
# follows the three with the norm in CNNTransformer
SMALL = {
    USleep: {"n_times": 60, "depth": 3},
    CNNTransformer: {
        "n_times": 60,
        "channels": (8, 8, 12, 16),
        "strides": (3, 5, 1, 1),
        "n_layers": 1,
        "n_heads": 2,
        "n_epochs": 5,
    },
}
WITHOUT_DROPOUT = {USleep: {}, CNNTransformer: {"dropout": 0.0}}
FULL = {USleep: {}, CNNTransformer: {}}
FULL_LR = {USleep: 5e-3, CNNTransformer: 3e-4}
FULL_NIGHTS = {"n": 2, "n_epochs": 35, "n_times": 3000}


def label(value):
    return getattr(value, "__name__", None)


every_model = pytest.mark.parametrize("architecture", MODELS, ids=label)
every_norm = pytest.mark.parametrize("norm", EVERY_NORM, ids=label)

# compilers see a norm in one model as in the other, and BatchNorm stands in all of them: these
# show every model and every kind of norm, the slow tests all pairs
TRACED = {
    (USleep, "psd"),
    (CNNTransformer, "layer"),
    (CNNTransformer, "instance"),
    (CNNTransformer, RootMeanSquare),
}
traced_pairs = pytest.mark.parametrize(
    ("architecture", "norm"),
    [
        pytest.param(model, norm, marks=[] if (model, norm) in TRACED else pytest.mark.slow)
        for model in MODELS
        for norm in EVERY_NORM
    ],
    ids=label,
)


def build(architecture, norm, sizes=SMALL, **options):
    torch.manual_seed(0)
    return architecture(**sizes[architecture] | {"norm": norm} | options)


def nights(n=4, n_epochs=5, n_times=60, n_chans=2, seed=0):
    """Coloured noise around a baseline, at another scale in every channel: (N, S, C, T)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n_epochs, n_chans, n_times, generator=generator)
    return (2 * x + x.roll(1, -1) + 1) * torch.arange(1.0, n_chans + 1).unsqueeze(-1)


def stages(x, seed=1):
    return torch.randint(0, 5, x.shape[:2], generator=torch.Generator().manual_seed(seed))


def train(model, optimizer, steps):
    """Learn from one new batch per step; dropout depends on the step alone. Return the losses."""
    losses = []
    for step in steps:
        torch.manual_seed(step)
        x = nights(seed=step)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), stages(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def adam(model, lr=1e-2):
    return torch.optim.Adam(model.parameters(), lr=lr)


@functools.cache
def once_trained(architecture, norm):
    model = build(architecture, norm)
    train(model, adam(model), range(3))
    return model


def trained(architecture, norm):
    """Return a small model whose weights and statistics have left their first values."""
    model = copy.deepcopy(once_trained(architecture, norm))
    model.zero_grad()
    return model


def assert_identical(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# ─── what goes in and what comes out ───


@every_norm
@every_model
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_any_number_of_sequences_of_any_length_is_staged(architecture, norm, training):
    model = build(architecture, norm).train(training)
    for n, n_epochs in ((1, 1), (1, 5), (2, 2), (3, 9)):
        logits = model(nights(n, n_epochs))
        assert logits.shape == (n, 5, n_epochs)
        assert logits.isfinite().all()


@every_norm
@every_model
def test_the_numbers_of_channels_and_of_classes_are_free(architecture, norm):
    model = build(architecture, norm, n_chans=3, n_outputs=4)
    assert model(nights(n_chans=3)).shape == (4, 4, 5)


@every_norm
@every_model
def test_the_logits_of_an_epoch_depend_on_that_epoch_most(architecture, norm):
    # untrained: attention may learn to look elsewhere
    model, x = build(architecture, norm).eval(), nights(8).requires_grad_()
    for epoch, logits in enumerate(model(x).unbind(-1)):
        (gradient,) = torch.autograd.grad(logits.square().sum(), x, retain_graph=True)
        influence = gradient.abs().sum(dim=(0, 2, 3))  # (S,)
        assert influence.argmax() == epoch


@pytest.mark.slow
@every_norm
@every_model
def test_at_full_size_sequences_of_any_length_are_staged(architecture, norm):
    model = build(architecture, norm, FULL).eval()
    with torch.no_grad():
        for n, n_epochs in ((2, 35), (1, 1), (3, 8)):
            logits = model(nights(n, n_epochs, 3000))
            assert logits.shape == (n, 5, n_epochs)
            assert logits.isfinite().all()


@every_norm
@every_model
@pytest.mark.parametrize(
    ("shape", "expected", "found"),
    [((4, 5, 3, 60), "2 channels", 3), ((4, 5, 2, 61), "60 samples", 61), ((5, 60), "(N, S, ", 5)],
    ids=["channels", "samples", "dimensions"],
)
def test_a_wrong_shape_is_refused_in_one_sentence_and_leaves_no_trace(
    architecture, norm, shape, expected, found
):
    model = trained(architecture, norm)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ShapeError) as caught:
        model(torch.ones(shape))
    message = str(caught.value)
    assert architecture.__name__ in message
    assert expected in message
    assert str(found) in message
    assert str(shape) in message
    assert "\n" not in message
    assert ". " not in message
    assert_identical(model.state_dict(), before)


# ─── learning ───


def assert_every_value_has_a_gradient(model, x):
    """Compare in float64, where what cancels leaves 1e-17 and what does not is far above it.

    An ELU stands between every bias and the norm behind it, so no norm takes a bias away. One
    gradient is nothing by its mathematics: the bias of the keys adds the same to all scores of a
    query, which softmax ignores.
    """
    x = x.double().requires_grad_()
    cross_entropy(model.double()(x), stages(x)).backward()
    found = gradients(model) | {"the input": x.grad}
    largest = max(gradient.abs().max() for gradient in found.values())
    for name, gradient in found.items():
        assert gradient.isfinite().all(), name
        if name.endswith("in_proj_bias"):
            query, key, value = gradient.chunk(3)
            assert key.abs().max() < 1e-15 * largest
            gradient = torch.cat([query, value])
        assert gradient.abs().min() > 1e-13 * largest, name


@every_norm
@every_model
def test_gradients_reach_every_value_of_every_parameter_and_of_the_input(architecture, norm):
    model = build(architecture, norm, **WITHOUT_DROPOUT[architecture])
    assert_every_value_has_a_gradient(model, nights(8))


@pytest.mark.slow
@every_norm
@every_model
def test_at_full_size_gradients_reach_every_value_too(architecture, norm):
    model = build(architecture, norm, FULL, **WITHOUT_DROPOUT[architecture])
    assert_every_value_has_a_gradient(model, nights(**FULL_NIGHTS))


def losses_on_one_batch(model, x, lr, in_bfloat16=False):
    """Yield the loss of every step of learning the stages of one batch, which are random."""
    optimizer, expected = adam(model, lr), stages(x)
    while True:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            logits = model(x)
        loss = cross_entropy(logits.float(), expected)
        yield loss.item()
        loss.backward()
        optimizer.step()


@every_norm
@every_model
def test_one_batch_is_learned_by_heart(architecture, norm):
    losses = losses_on_one_batch(build(architecture, norm), nights(2), lr=1e-2)
    assert any(loss < 0.1 for loss in itertools.islice(losses, 150))


@pytest.mark.slow
@every_norm
@every_model
def test_at_full_size_one_batch_is_learned_by_heart(architecture, norm):
    model = build(architecture, norm, FULL)
    losses = losses_on_one_batch(model, nights(2, 3, 3000), FULL_LR[architecture])
    assert any(loss < 0.1 for loss in itertools.islice(losses, 100))


# ─── evaluation ───


@every_norm
@every_model
def test_evaluation_is_deterministic_and_changes_nothing(architecture, norm):
    model = trained(architecture, norm).eval()
    before = copy.deepcopy(model.state_dict())
    x = nights()
    first = model(x)
    first.square().sum().backward()
    model(nights(2, 7, seed=1))
    assert_identical(model(x), first)
    assert_identical(model.state_dict(), before)


@every_norm
@every_model
def test_a_night_is_staged_as_if_it_were_alone(architecture, norm):
    model = trained(architecture, norm).eval()
    x = nights()
    together = model(x)
    broken = x.clone()
    broken[0], broken[2:] = torch.nan, 1e3
    assert_identical(model(broken)[1], together[1])
    torch.testing.assert_close(model(x[1:2]), together[1:2], rtol=1e-4, atol=1e-5)


# ─── copies ───


def restored(model, folder):
    """Yield copies of a model by every way that there is; a callable norm has no name to save."""
    fresh = architecture_with_other_weights(model)
    fresh.load_state_dict(model.state_dict(), strict=True)
    yield fresh
    yield copy.deepcopy(model)
    if isinstance(model.config["norm"], str):
        model.save_pretrained(folder)
        yield from_pretrained(folder).train()


def architecture_with_other_weights(model):
    torch.manual_seed(1)
    return type(model)(**model.config)


@every_norm
@every_model
def test_a_copy_computes_the_same_to_the_last_bit(architecture, norm, tmp_path):
    model = trained(architecture, norm)
    x = nights(seed=9)
    for twin in restored(model, tmp_path):
        for training in (False, True):
            y, expected = (seeded(m.train(training), x) for m in (twin, copy.deepcopy(model)))
            assert_identical(y, expected)


def seeded(model, x):
    torch.manual_seed(0)
    return model(x)


@every_norm
@every_model
def test_training_resumed_from_a_copy_goes_on_identically(architecture, norm, tmp_path):
    model = build(architecture, norm)
    optimizer = adam(model)
    train(model, optimizer, range(2))
    twins, so_far = list(restored(model, tmp_path)), copy.deepcopy(optimizer.state_dict())
    expected = train(model, optimizer, range(2, 5))
    for twin in twins:
        resumed = adam(twin)
        resumed.load_state_dict(copy.deepcopy(so_far))
        assert train(twin, resumed, range(2, 5)) == expected
        assert_identical(twin.state_dict(), model.state_dict())


@every_norm
@every_model
def test_training_a_deep_copy_leaves_the_model_alone(architecture, norm):
    model = trained(architecture, norm)
    before = copy.deepcopy(model.state_dict())
    twin = copy.deepcopy(model)
    train(twin, adam(twin), range(1))
    assert_identical(model.state_dict(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


# ─── torch.compile ───


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


@traced_pairs
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
@traced_pairs
def test_exported_and_in_onnxruntime_it_stages_any_number_of_nights(architecture, norm):
    model = trained(architecture, norm).eval()
    assert_exported_serves_any_batch(model, nights(3), [nights(1, seed=5), nights(7, seed=6)])


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
    model = trained(architecture, norm).train(training)
    twin, x = copy.deepcopy(model), nights(seed=9)
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
