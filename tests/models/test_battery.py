"""One battery for every model with every norm: what a user may expect of any of them."""

import copy
import itertools

import pytest
import torch
from battery import (
    FULL,
    FULL_LR,
    FULL_NIGHTS,
    WITHOUT_DROPOUT,
    adam,
    assert_identical,
    build,
    every_model,
    every_norm,
    gradients,
    losses_on_one_batch,
    nights,
    seeded,
    stages,
    train,
    trained,
)
from torch.nn.functional import cross_entropy

from psdnorm import PSDNorm
from psdnorm.errors import ShapeError
from psdnorm.models import USleep, from_pretrained

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


@every_norm
@every_model
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_with_an_input_scale_outputs_and_gradients_are_those_of_the_scaled_input(
    architecture, norm, training
):
    options = WITHOUT_DROPOUT[architecture]
    model = build(architecture, norm, **options, input_scale=0.05).double().train(training)
    plain = build(architecture, norm, **options).double().train(training)
    x, x_of_plain = (nights(8).double().requires_grad_() for _ in range(2))
    logits, expected = model(x), plain(0.05 * x_of_plain)
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-12)
    for y in (logits, expected):
        cross_entropy(y, stages(x)).backward()
    found = gradients(model) | {"the input": x.grad}
    wanted = gradients(plain) | {"the input": x_of_plain.grad}
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-14)
    assert all(gradient.abs().max() > 1e-8 for gradient in found.values())
    assert (expected - plain(x)).abs().max() > 1e-3


@every_model
def test_the_first_block_alone_sees_the_scaled_input_and_no_other_scales(architecture):
    model, plain = (
        build(architecture, "psd", input_scale=scale).double().eval() for scale in (0.05, 1)
    )
    rows = nights().double().transpose(1, 2).flatten(2)
    blocks = [
        network.encoder_blocks if architecture is USleep else network.blocks
        for network in (model, plain)
    ]
    first, first_of_plain = (each[0] for each in blocks)
    found, expected = first(rows), first_of_plain(0.05 * rows)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    features = found[0] if architecture is USleep else found
    for block, block_of_plain in zip(blocks[0][1:], blocks[1][1:], strict=True):
        y, expected = block(features), block_of_plain(features)
        assert_identical(y, expected)
        features = y[0] if architecture is USleep else y


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


@every_model
def test_norms_that_are_set_otherwise_are_all_set_so_and_rebuilt_from_the_card(
    architecture, tmp_path
):
    arguments = {"eps": 1e-3, "affine": True, "window": "hann", "padding_mode": "zeros"}
    arguments |= {"detrend": "segment"}
    model = build(architecture, "psd", norm_arguments=arguments, filter_schedule="same")
    model.save_pretrained(tmp_path)
    for network in (model, from_pretrained(tmp_path), architecture(**model.config)):
        norms = [module for module in network.modules() if isinstance(module, PSDNorm)]
        found = [{name: getattr(norm, name) for name in arguments} for norm in norms]
        assert found == [arguments] * 3
        assert [norm.filter_size for norm in norms] == [5, 5, 5]
    assert_identical(from_pretrained(tmp_path)(nights()), model.eval()(nights()))


@every_model
def test_norms_that_are_set_as_usual_leave_the_network_and_its_card_as_they_were(architecture):
    usual = build(architecture, "psd")
    model = build(architecture, "psd", norm_arguments={}, filter_schedule="halved")
    assert model.config == usual.config
    assert not {"norm_arguments", "filter_schedule"} & usual.config.keys()
    assert_identical(model.state_dict(), usual.state_dict())


@every_model
def test_an_input_scale_is_saved_and_loaded(architecture, tmp_path):
    model = build(architecture, "psd", input_scale=0.05)
    assert model.config["input_scale"] == 0.05
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(tmp_path)
    assert loaded.config == model.config
    x = nights()
    expected = model.eval()(x)
    assert_identical(loaded(x), expected)
    assert not torch.allclose(build(architecture, "psd").eval()(x), expected, rtol=1e-3)


@every_model
def test_an_input_scale_of_one_leaves_the_network_and_its_card_as_they_were(architecture):
    usual, x = build(architecture, "psd"), nights()
    model = build(architecture, "psd", input_scale=1)
    assert model.config == usual.config
    assert "input_scale" not in usual.config
    assert_identical(seeded(model, x), seeded(usual, x))


@every_model
def test_an_input_scale_changes_neither_names_nor_values_of_the_first_weights(architecture):
    usual = build(architecture, "psd").state_dict()
    assert_identical(build(architecture, "psd", input_scale=0.05).state_dict(), usual)


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
