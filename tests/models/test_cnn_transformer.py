"""CNNTransformer: the paper's second network, for sequences of any length."""

import io
import json
import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from psdnorm import PSDNorm
from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.models import CNNTransformer, USleep

SMALL = {
    "n_times": 60,
    "channels": (8, 16, 16),
    "strides": (3, 5, 1),
    "n_heads": 2,
    "n_epochs": 5,
}


def small(**options):
    torch.manual_seed(0)
    return CNNTransformer(**SMALL | options)


def nights(n, n_epochs, n_times=60, n_chans=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, n_epochs, n_chans, n_times, generator=generator)


def test_it_is_built_as_the_papers_table_says():
    with torch.device("meta"):
        model = CNNTransformer()
    kinds = 10 * [nn.Conv1d, nn.ELU, nn.BatchNorm1d]
    assert len(model.blocks) == len(kinds)
    assert all(map(isinstance, model.blocks, kinds))
    assert model.blocks[-1].num_features == 768
    assert model.positions.shape == (1, 768, 35)
    assert len(model.transformer.layers) == 2
    assert all(layer.norm_first for layer in model.transformer.layers)
    attention = model.transformer.layers[0].self_attn
    assert (attention.embed_dim, attention.num_heads) == (768, 8)
    assert (model.head.kernel_size, model.head.out_channels) == ((1,), 5)


def cost(architecture):
    """Floating-point operations of a sequence, and values that its norms write."""
    values = []
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = architecture().eval()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.register_forward_hook(lambda m, x, y: values.append(y.numel()))
        model(torch.empty(1, 35, 2, 3000))
    return counter.get_total_flops(), sum(values)


def test_a_sequence_costs_no_more_than_in_usleep():
    (flops, values), (usleep_flops, usleep_values) = cost(CNNTransformer), cost(USleep)
    assert flops < usleep_flops
    assert values < usleep_values / 3


@pytest.mark.parametrize("n_epochs", [1, 2, 5, 11])
@pytest.mark.parametrize("n_times", [60, 64, 67])
def test_every_epoch_gets_its_logits_whatever_the_length(n_epochs, n_times):
    model = small(n_times=n_times, n_outputs=4, norm="psd").eval()
    assert model(nights(3, n_epochs, n_times)).shape == (3, 4, n_epochs)


def test_the_convolutions_see_each_channel_through_the_whole_sequence():
    model, seen = small(), []
    model.blocks.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    x = nights(2, 5)
    model(x)
    assert torch.equal(seen[0], torch.cat(list(x.unbind(1)), dim=-1))


def test_a_plain_mean_pools_as_adaptive_pooling_would():
    model = small().eval()
    x = nights(2, 5)
    expected = model(x)
    model.stride = 61  # does not divide 60
    torch.testing.assert_close(model(x), expected)


def test_positions_are_interpolated_linearly_where_the_sequence_has_another_length():
    model = small(n_epochs=2).eval()
    model.transformer = nn.Identity()
    model.blocks = nn.Sequential(nn.Conv1d(2, 16, 1, 15, bias=False))
    model.head = nn.Identity()
    with torch.no_grad():
        model.positions.copy_(torch.tensor([0.0, 4.0]))
        shown = model(torch.zeros(1, 4, 2, 60))[0, 0]
        middle = model(torch.zeros(1, 1, 2, 60))[0, 0]
    assert shown.tolist() == [0, 1, 3, 4]
    assert middle.tolist() == [2]


def test_an_epoch_knows_its_place():
    model = small().eval()
    x = nights(1, 1).expand(1, 5, 2, 60)
    with torch.no_grad():
        model.positions.normal_()
    logits = model(x)
    assert (logits[..., 1] - logits[..., 3]).abs().max() > 1e-3


def test_the_norm_stands_in_the_first_blocks():
    model = small(norm="psd", norm_depth=2, filter_size=4)
    norms = [model.blocks[i] for i in (2, 5, 8)]
    assert [type(norm) for norm in norms] == [PSDNorm, PSDNorm, nn.BatchNorm1d]
    assert [norm.filter_size for norm in norms[:2]] == [4, 2]


def test_first_filters_last_70_ms_at_any_sampling_frequency():
    assert CNNTransformer(sfreq=100, **SMALL).blocks[0].kernel_size == (7,)
    assert CNNTransformer(sfreq=256, **SMALL).blocks[0].kernel_size == (19,)


def test_the_arguments_rebuild_the_architecture_and_are_json():
    model = small(n_chans=np.int64(3), norm="psd-white")
    again = CNNTransformer(**json.loads(json.dumps(model.config)))
    again.load_state_dict(model.state_dict())
    assert again.config == model.config


def test_evaluation_is_deterministic_in_spite_of_dropout():
    model = small(dropout=0.5).eval()
    x = nights(2, 5)
    torch.testing.assert_close(model(x), model(x), rtol=0, atol=0)


def test_it_overfits_one_batch():
    model = small(norm="psd")
    x, y = nights(4, 5), torch.randint(0, 5, (4, 5), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert nn.functional.cross_entropy(model(x), y) < 0.1


def to_onnx(model, x, *dynamic_axes):
    dynamic = (dict.fromkeys(dynamic_axes, torch.export.Dim.DYNAMIC),)
    with warnings.catch_warnings():
        # torch's exporter stumbles over a deprecation of torch's own pytree
        warnings.filterwarnings("ignore", "`isinstance.treespec, LeafSpec.`", FutureWarning)
        program = torch.onnx.export(model, (x,), dynamo=True, dynamic_shapes=dynamic, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    return onnxruntime.InferenceSession(buffer.getvalue())


def assert_same(session, model, x):
    (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(logits, model(x).detach(), atol=1e-4)


@pytest.mark.slow
def test_onnxruntime_computes_the_same_for_any_batch_and_number_of_epochs():
    model = small(norm="psd")
    model(nights(4, 5))
    session = to_onnx(model.eval(), nights(3, 6), 0, 1)
    for n, n_epochs in ((1, 5), (7, 1), (2, 8)):
        assert_same(session, model, nights(n, n_epochs, seed=1))


def test_an_exported_program_serves_any_batch_and_number_of_epochs():
    model = small(norm="psd").eval()
    dynamic = (dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC),)
    program = torch.export.export(model, (nights(3, 6),), dynamic_shapes=dynamic).module()
    for n, n_epochs in ((1, 5), (7, 1), (2, 8)):
        x = nights(n, n_epochs, seed=1)
        torch.testing.assert_close(program(x), model(x))


def test_onnxruntime_pools_adaptively_for_any_batch():
    model = small(n_times=64, n_layers=1).eval()
    session = to_onnx(model, nights(3, 6, 64), 0)
    assert_same(session, model, nights(7, 6, 64, seed=1))


@pytest.mark.parametrize(
    "shape", [(2, 60), (5, 2, 60), (4, 5, 3, 60), (4, 5, 2, 61), (4, 0, 2, 60)]
)
def test_an_input_of_another_shape_is_refused_with_both_shapes(shape):
    with pytest.raises(ValueError, match="built for 2 channels and epochs of 60 samples") as caught:
        small()(torch.zeros(shape))
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_chans", 0),
        ("n_outputs", 2.5),
        ("n_times", 14),
        ("n_epochs", 0),
        ("n_layers", True),
        ("n_heads", 3),
        ("sfreq", float("nan")),
        ("channels", (8, 16)),
        ("channels", (8, 0, 16)),
        ("strides", (3, 5, -1)),
        ("norm", "spectral"),
        ("norm_depth", -1),
        ("filter_size", 0),
        ("dropout", 2),
    ],
)
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(ValueError, match=option):
        small(**{option: value})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"channels": 8}, "channels must be a sequence of integers, found 8"),
        ({"dropout": float("nan")}, "dropout 0 to 1"),
    ],
)
def test_an_argument_of_another_kind_is_refused(arguments, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        CNNTransformer(**arguments)


def test_an_array_is_no_tensor():
    with pytest.raises(ShapeError, match="found a ndarray of"):
        CNNTransformer(n_layers=1)(np.zeros((1, 1, 2, 3000)))
