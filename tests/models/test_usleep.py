"""U-Sleep: any norm in its first blocks; with BatchNorm it is braindecode's network."""

import json

import numpy as np
import pytest
import torch
from braindecode_models import braindecode_model
from torch import nn

from psdnorm import PSDNorm
from psdnorm.errors import ArgumentError
from psdnorm.models import USleep
from psdnorm.models.norms import NORMS

SMALL = {"n_times": 50, "sfreq": 100, "depth": 3}


def sequences(n, n_epochs, n_times=50, n_chans=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n_epochs, n_chans, n_times, generator=generator)


def lively(model, seed=0):
    """Give a network weights and statistics as if trained, so that no term of it is nearly 0."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
        elif isinstance(module, nn.Conv1d):
            nn.init.orthogonal_(module.weight, gain=1.5)
            nn.init.normal_(module.bias, std=0.3)
    return model


# shapes


@pytest.mark.parametrize("n_epochs", [1, 2, 7, 35])
def test_every_epoch_of_a_sequence_of_any_length_is_staged(n_epochs):
    model = USleep(**SMALL)
    assert model(sequences(3, n_epochs)).shape == (3, 5, n_epochs)
    assert model.eval()(sequences(0, n_epochs)).shape == (0, 5, n_epochs)


def test_the_number_of_channels_and_of_classes_is_free():
    model = USleep(n_chans=7, n_outputs=3, **SMALL)
    assert model(sequences(2, 4, n_chans=7)).shape == (2, 3, 4)


def test_a_single_epoch_is_a_sequence_of_one_without_its_axis():
    model = lively(USleep(**SMALL)).eval()
    x = sequences(4, 1)
    y = model(x[:, 0])
    assert y.shape == (4, 5)
    torch.testing.assert_close(y, model(x)[..., 0], rtol=0, atol=0)


@pytest.mark.parametrize("depth", [1, 4, 6])
def test_a_network_without_skip_connections_stages_every_epoch_too(depth):
    model = USleep(n_times=20, depth=depth, with_skip_connection=False)
    assert model(sequences(2, 3, 20)).shape == (2, 5, 3)


def test_the_layout_of_the_input_in_memory_does_not_matter():
    model = lively(USleep(**SMALL)).eval()
    x = sequences(2, 3)
    rows_first = x.transpose(1, 2).contiguous().transpose(1, 2)
    torch.testing.assert_close(model(rows_first), model(x), rtol=0, atol=0)


def test_the_logits_stay_in_the_order_of_the_epochs():
    model = lively(USleep(n_times=200, depth=3)).eval()
    x = sequences(1, 10, 200)
    changed = x.clone()
    changed[:, 6] += 1
    moved = (model(changed) - model(x)).abs().amax(dim=(0, 1))
    assert moved.argmax() == 6
    assert (moved[[0, 1, 2, 3, 9]] == 0).all()  # beyond what the small network sees


# architecture


def test_the_network_of_the_paper_has_these_widths_and_filters():
    convs = [block.block_prepool[0] for block in USleep(norm="psd").encoder_blocks]
    widths = [conv.out_channels for conv in convs]
    assert widths == [6, 9, 11, 15, 20, 28, 40, 55, 77, 108, 152, 214]
    assert {conv.kernel_size for conv in convs} == {(7,)}


@pytest.mark.parametrize(("sfreq", "size"), [(100, 7), (128, 9), (110, 9), (64, 5), (1, 1)])
def test_filters_last_as_long_at_any_rate_and_are_odd(sfreq, size):
    assert USleep(sfreq=sfreq, depth=1).bottom[0].kernel_size == (size,)


@pytest.mark.parametrize("norm_depth", [0, 1, 3, 9])
def test_the_norm_stands_in_the_first_blocks_of_the_way_down_and_nowhere_else(norm_depth):
    model = USleep(n_times=50, depth=5, norm="psd", norm_depth=norm_depth, filter_size=9)
    found = {name: m.filter_size for name, m in model.named_modules() if isinstance(m, PSDNorm)}
    blocks = range(min(norm_depth, 5))
    assert found == {f"encoder_blocks.{i}.block_prepool.2": max(1, 9 // 2**i) for i in blocks}
    batch_norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    assert len(batch_norms) + len(found) == 5 + 1 + 2 * 5


def test_a_users_own_norm_is_used():
    model = USleep(**SMALL, norm=nn.SyncBatchNorm, norm_depth=2)
    assert sum(isinstance(m, nn.SyncBatchNorm) for m in model.modules()) == 2


# configuration


@pytest.mark.parametrize("norm", NORMS)
def test_the_configuration_rebuilds_the_network_through_json(norm):
    model = USleep(
        n_chans=np.int64(3),
        n_outputs=4,
        n_times=40,
        sfreq=np.float32(64),
        depth=2,
        n_time_filters=6,
        complexity_factor=2,
        with_skip_connection=np.False_,
        time_conv_size_s=0.1,
        norm=norm,
        filter_size=4,
        norm_depth=np.int64(1),
    )
    twin = USleep(**json.loads(json.dumps(model.config)))
    assert repr(twin) == repr(model)
    assert twin.config == model.config
    twin.load_state_dict(model.state_dict(), strict=True)
    x = sequences(2, 3, 40, 3)
    torch.testing.assert_close(twin.eval()(x), model.eval()(x), rtol=0, atol=0)


def test_the_configuration_keeps_a_users_own_norm():
    assert USleep(**SMALL, norm=nn.SyncBatchNorm).config["norm"] is nn.SyncBatchNorm


# refusals


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 4, 5, 50), "built for 2 channels, found 5"),
        ((3, 1, 50), "built for 2 channels, found 1"),
        ((3, 4, 2, 51), "epochs of 50 samples, found 51"),
        ((3, 2, 100), "epochs of 50 samples, found 100"),
        ((2, 50), "found 2 dimensions"),
        ((1, 1, 1, 2, 50), "found 5 dimensions"),
        ((3, 0, 2, 50), "1 epoch or more, found 0"),
    ],
)
def test_an_input_of_the_wrong_shape_names_both_numbers(shape, message):
    with pytest.raises(ValueError, match=message) as caught:
        USleep(**SMALL)(torch.zeros(shape))
    assert str(shape) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_array_is_refused_by_its_type():
    with pytest.raises(TypeError, match=r"expects a torch\.Tensor, found ndarray"):
        USleep(**SMALL)(np.zeros((1, 1, 2, 50)))


def test_training_on_a_single_sample_at_the_bottom_is_refused_and_evaluation_is_not():
    model = USleep(n_times=50, depth=6)
    with pytest.raises(ValueError, match="depth 6 leaves no more of one sequence of 50 samples"):
        model(sequences(1, 1))
    assert model(sequences(2, 1)).shape == (2, 5, 1)
    assert model(sequences(1, 2)).shape == (1, 5, 2)
    assert model.eval()(sequences(1, 1)).shape == (1, 5, 1)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_chans", 0),
        ("n_outputs", 2.5),
        ("n_times", -3000),
        ("sfreq", 0),
        ("sfreq", float("nan")),
        ("sfreq", "100"),
        ("depth", 0),
        ("n_time_filters", True),
        ("complexity_factor", -1.67),
        ("complexity_factor", 0.01),
        ("time_conv_size_s", float("inf")),
        ("norm", "group"),
        ("filter_size", 0),
        ("norm_depth", -1),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(option, value):
    with pytest.raises(ValueError, match=option) as caught:
        USleep(**{option: value})
    assert str(value) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_even_filter_may_be_refused_instead_of_lengthened():
    with pytest.raises(ValueError, match="gives filters of 8 samples, expected an odd number"):
        USleep(sfreq=110, ensure_odd_conv_size=False)


# braindecode

# its upsampling pads an even filter, which torch warns about
from_braindecode = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.fixture(scope="module")
def peer():
    return braindecode_model("USleep", "usleep")


def pair(peer, **options):
    """Return both networks with braindecode's weights."""
    theirs = lively(peer(n_chans=2, ensure_odd_conv_size=True, **options))
    ours = USleep(**options)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def assert_same(ours, theirs, x):
    """Compare outputs, gradients and statistics; braindecode drops the axis of one epoch."""
    for training in (False, True):
        y, expected = (model.train(training)(x) for model in (ours, theirs))
        assert expected.std() > 0.05
        torch.testing.assert_close(y, expected.view_as(y), rtol=1e-5, atol=1e-5)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y.backward(upstream)
    expected.backward(upstream.view_as(expected))
    for (name, weight), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        # BatchNorm takes away what a bias before it adds: what is left of its gradient is rounding
        error, scale = (weight.grad - other.grad).abs().max(), other.grad.abs().max()
        assert error < 1e-4 * scale + 1e-5, name
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-5)


def test_the_state_dict_is_braindecodes(peer):
    ours, theirs = USleep(), peer(n_chans=2, n_times=3000, sfreq=100)
    shapes = [[(k, v.shape, v.dtype) for k, v in m.state_dict().items()] for m in (ours, theirs)]
    assert shapes[0] == shapes[1]


@from_braindecode
def test_weights_travel_to_braindecode(peer):
    ours = lively(USleep(**SMALL)).eval()
    theirs = peer(n_chans=2, **SMALL).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x = sequences(2, 3)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


@from_braindecode
@pytest.mark.parametrize("n_epochs", [1, 2, 3, 8])
@pytest.mark.parametrize("n_times", [64, 50, 37])  # 37: odd at the very top
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_outputs_gradients_and_statistics_are_braindecodes(peer, n_epochs, n_times, depth):
    ours, theirs = pair(peer, n_times=n_times, sfreq=100, depth=depth)
    assert_same(ours, theirs, sequences(3, n_epochs, n_times))


@from_braindecode
@pytest.mark.parametrize(
    "options",
    [
        {"with_skip_connection": False},
        {"n_time_filters": 8, "complexity_factor": 0.5},
        {"time_conv_size_s": 0.2, "sfreq": 60},  # 12 samples, made 13
    ],
)
def test_options_mean_what_they_mean_in_braindecode(peer, options):
    assert_same(*pair(peer, **{**SMALL, **options}), sequences(3, 3))


@from_braindecode
@pytest.mark.slow
@pytest.mark.parametrize("n_epochs", [1, 10, 35])
def test_at_full_size_outputs_are_braindecodes(peer, n_epochs):
    ours, theirs = pair(peer, n_times=3000, sfreq=100)
    assert_same(ours, theirs, sequences(2, n_epochs, 3000))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
def test_at_full_size_every_norm_stages_a_sequence_and_learns_from_it(norm):
    model = USleep(norm=norm)
    y = model(sequences(2, 35, 3000))
    assert y.shape == (2, 5, 35)
    y.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"depth": 3000}, "depth must be from 1 to 20, found 3000"),
        ({"sfreq": 1e300}, "sfreq must be a number above 0, at most 1e"),
        ({"sfreq": 1e6}, "expected at most 10000"),
        ({"complexity_factor": 1e300}, "complexity_factor must be a number above 0, at most 1000"),
    ],
)
def test_sizes_that_no_memory_holds_are_refused(arguments, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        USleep(**arguments)
