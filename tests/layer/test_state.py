"""PSDNorm keeps a running barycenter the way torch's norms keep running statistics."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from psdnorm import PSDNorm
from psdnorm.functional import psd_norm
from psdnorm.ops import reference
from psdnorm.ops.reference import Spec


def signals(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x + 0.5 * x.roll(1, -1) + 1


def trained(**options):
    layer = PSDNorm(3, filter_size=4, **options)
    for step in range(3):
        layer(signals(4, 3, 200, seed=step))
    return layer


def barycenter_of(x, filter_size, eps=1e-5):
    return reference.batch_barycenter(reference.row_statistics(x, Spec(filter_size, eps))[1])


def test_the_state_has_its_final_shape_from_the_start():
    fresh, used = PSDNorm(3, 4).state_dict(), trained().state_dict()
    assert {k: v.shape for k, v in fresh.items()} == {
        "running_sqrt_psd": (3, 3),
        "num_batches_tracked": (3,),
        "rows_skipped": (),
    }
    assert {k: v.shape for k, v in used.items()} == {k: v.shape for k, v in fresh.items()}


def test_an_untrained_layer_in_evaluation_whitens():
    x = signals(2, 3, 200)
    torch.testing.assert_close(PSDNorm(3, 4).eval()(x), psd_norm(x, None, 4))


def test_the_first_batch_sets_the_barycenter_whole_and_the_next_moves_it_by_momentum():
    layer = PSDNorm(3, 5, momentum=0.25)
    first, second = signals(4, 3, 200), 3 * signals(6, 3, 150, seed=1)
    layer(first)
    torch.testing.assert_close(layer.running_sqrt_psd, barycenter_of(first, 5))
    layer(second)
    expected = 0.75 * barycenter_of(first, 5) + 0.25 * barycenter_of(second, 5)
    torch.testing.assert_close(layer.running_sqrt_psd, expected)
    assert layer.num_batches_tracked.tolist() == [2, 2, 2]


def test_without_momentum_all_batches_weigh_the_same():
    layer = PSDNorm(3, 5, momentum=None)
    batches = [signals(4, 3, 200, seed=s) * (s + 1) for s in range(5)]
    for batch in batches:
        layer(batch)
    expected = torch.stack([barycenter_of(b, 5) for b in batches]).mean(0)
    torch.testing.assert_close(layer.running_sqrt_psd, expected)


def test_training_updates_first_and_uses_the_updated_target():
    layer = trained()
    y = layer(x := signals(4, 3, 200, seed=9))
    torch.testing.assert_close(y, psd_norm(x, layer.running_sqrt_psd, 4))


def test_evaluation_updates_nothing():
    layer = trained().eval()
    before = copy.deepcopy(layer.state_dict())
    layer(10 * signals(4, 3, 200, seed=9))
    torch.testing.assert_close(layer.state_dict(), before, rtol=0, atol=0)


def test_a_white_target_keeps_no_state():
    layer = trained(target="white")
    torch.testing.assert_close(layer.state_dict(), PSDNorm(3, 4).state_dict())
    torch.testing.assert_close(layer(x := signals(2, 3, 200)), psd_norm(x, None, 4))


def test_an_amplifiers_gain_is_undone_in_evaluation():
    layer = trained(eps=1e-10).eval()
    x = signals(2, 3, 500, seed=4)
    gains = torch.tensor([0.01, 1.0, 300.0])[:, None]
    torch.testing.assert_close(layer(gains * x), layer(x), rtol=1e-4, atol=1e-4)


def test_a_state_dict_loads_strictly_into_a_fresh_layer():
    layer, fresh = trained(affine=True), PSDNorm(3, 4, affine=True)
    fresh.load_state_dict(layer.state_dict(), strict=True)
    x = signals(2, 3, 200, seed=5)
    torch.testing.assert_close(fresh.eval()(x), layer.eval()(x), rtol=0, atol=0)


def test_a_resumed_run_goes_on_where_it_stopped():
    layer, resumed = trained(), PSDNorm(3, 4)
    resumed.load_state_dict(layer.state_dict())
    x = signals(4, 3, 200, seed=6)
    torch.testing.assert_close(resumed(x), layer(x), rtol=0, atol=0)
    torch.testing.assert_close(resumed.state_dict(), layer.state_dict(), rtol=0, atol=0)


def through_torch_save(layer):
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m)), through_torch_save],
    ids=["deepcopy", "copy", "pickle", "torch.save"],
)
def test_a_copy_behaves_as_the_original(duplicate):
    layer = trained(affine=True, momentum=None)
    twin = duplicate(layer)
    x = signals(2, 3, 200, seed=7)
    torch.testing.assert_close(twin.eval()(x), layer.eval()(x), rtol=0, atol=0)
    assert repr(twin) == repr(layer)


def test_a_copy_carries_no_memory_of_passes():
    assert len(pickle.dumps(trained())) == len(pickle.dumps(PSDNorm(3, 4)))


def test_a_deep_copy_learns_on_its_own():
    layer = trained()
    before = layer.running_sqrt_psd.clone()
    copy.deepcopy(layer)(9 * signals(2, 3, 200))
    torch.testing.assert_close(layer.running_sqrt_psd, before, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_barycenter_stays_exact_when_the_model_goes_to_half_precision(dtype):
    layer = trained(affine=True)
    exact = layer.running_sqrt_psd.clone()
    layer.to(dtype)
    assert layer.weight.dtype == dtype
    torch.testing.assert_close(layer.running_sqrt_psd, exact, rtol=0, atol=0)
    assert layer(signals(2, 3, 200).to(dtype)).dtype == dtype


def test_half_inside_a_model_keeps_the_barycenter_too():
    model = nn.Sequential(nn.Conv1d(1, 3, 3), PSDNorm(3))
    model.half()
    assert model[0].weight.dtype == torch.float16
    assert model[1].running_sqrt_psd.dtype == torch.float32


def test_double_precision_is_kept_in_double_precision():
    layer = PSDNorm(3, 4).double()
    layer(signals(4, 3, 200).double())
    assert layer.running_sqrt_psd.dtype == torch.float64
    assert PSDNorm(3, 4, dtype=torch.float64).running_sqrt_psd.dtype == torch.float64
    assert PSDNorm(3, 4, dtype=torch.float16, affine=True).running_sqrt_psd.dtype == torch.float32


def test_the_default_dtype_of_torch_is_followed():
    torch.set_default_dtype(torch.float64)
    try:
        assert PSDNorm(3, 4).running_sqrt_psd.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_half_precision_checkpoint_loads_into_float32_statistics():
    state = {k: v.half() if v.is_floating_point() else v for k, v in trained().state_dict().items()}
    layer = PSDNorm(3, 4)
    layer.load_state_dict(state, assign=True)
    assert layer.running_sqrt_psd.dtype == torch.float32


def test_a_layer_can_be_built_without_memory_and_filled_later():
    layer = PSDNorm(3, 4, affine=True, device="meta").to_empty(device="cpu")
    layer.load_state_dict(trained(affine=True).state_dict())
    assert layer(signals(2, 3, 200)).isfinite().all()


def test_resetting_gives_a_fresh_layer():
    layer = trained(affine=True)
    nn.init.constant_(layer.weight, 4.0)
    layer.reset_parameters()
    torch.testing.assert_close(layer.state_dict(), PSDNorm(3, 4, affine=True).state_dict())


def test_the_representation_names_every_option():
    shown = repr(PSDNorm(6, 5, target="white", sync=True))
    assert shown == (
        "PSDNorm(6, filter_size=5, momentum=0.01, eps=1e-05, affine=False, target=white, "
        "window=boxcar, padding_mode=circular, detrend=row, statistics=row, center=row, "
        "target_power=as-is, eps_mode=absolute, sync=True, backend=auto)"
    )


def test_the_affine_map_starts_as_the_identity_and_learns():
    layer = PSDNorm(3, 4, affine=True)
    x = signals(2, 3, 200)
    torch.testing.assert_close(layer(x), PSDNorm(3, 4)(x))
    upstream = torch.randn(2, 3, 200, generator=torch.Generator().manual_seed(1))
    layer(x).backward(upstream)
    torch.testing.assert_close(layer.bias.grad, upstream.sum((0, 2)))
    expected = (upstream * psd_norm(x, layer.running_sqrt_psd, 4)).sum((0, 2))
    torch.testing.assert_close(layer.weight.grad, expected)


def test_no_gradient_flows_through_the_barycenter():
    layer = PSDNorm(3, 4)
    layer(signals(2, 3, 200))
    x = signals(2, 3, 200, seed=3).requires_grad_()
    upstream = torch.randn(2, 3, 200, generator=torch.Generator().manual_seed(1))
    through_layer = torch.autograd.grad(layer(x), x, upstream)
    fixed_target = layer.running_sqrt_psd.clone()
    torch.testing.assert_close(
        through_layer, torch.autograd.grad(psd_norm(x, fixed_target, 4), x, upstream)
    )


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_a_bad_row_is_skipped_and_counted_and_does_not_poison_the_barycenter(bad):
    x = signals(4, 3, 200)
    expected = barycenter_of(x[[0, 2, 3], 1:2], 4)
    x[1, 1, 50] = bad
    layer = PSDNorm(3, 4)
    y = layer(x)
    assert layer.rows_skipped == 1
    torch.testing.assert_close(layer.running_sqrt_psd[1:2], expected)
    finite = y.isfinite().all(-1)
    assert finite.sum() == 11
    assert not finite[1, 1]


def test_a_channel_without_a_valid_row_keeps_its_barycenter_until_a_valid_batch_sets_it_whole():
    layer = PSDNorm(3, 4)
    x = signals(4, 3, 200)
    broken = x.clone()
    broken[:, 0] = torch.nan
    layer(broken)
    assert layer.running_sqrt_psd[0].tolist() == [1, 1, 1]
    assert layer.num_batches_tracked.tolist() == [0, 1, 1]
    assert layer.rows_skipped == 4
    layer(x)
    torch.testing.assert_close(layer.running_sqrt_psd[0], barycenter_of(x, 4)[0])


@pytest.mark.parametrize("shape", [(3, 200), (4, 3, 1, 200), (4, 3, 200, 1), (0, 3, 200)])
def test_every_layout_of_a_signal_keeps_its_shape(shape):
    layer = PSDNorm(3, 5)
    assert layer(signals(*shape)).shape == shape
    assert layer.running_sqrt_psd.isfinite().all()


def test_a_wrong_number_of_channels_names_both_numbers():
    with pytest.raises(ValueError, match="built for 3 channels, found 4"):
        PSDNorm(3)(torch.zeros(2, 4, 100))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num_features", 0),
        ("num_features", 2.0),
        ("filter_size", -1),
        ("momentum", 1.5),
        ("momentum", "fast"),
        ("momentum", True),
        ("eps", -1),
        ("target", "pink"),
        ("window", "tukey"),
        ("padding_mode", "valid"),
        ("backend", "triton"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_value(option, value):
    with pytest.raises(ValueError, match=option) as caught:
        PSDNorm(**{"num_features": 3, option: value})
    assert repr(value) in str(caught.value)


def test_a_network_under_autocast_keeps_exact_statistics():
    network = nn.Sequential(nn.Conv1d(2, 3, 5), PSDNorm(3, 5, affine=True))
    x = signals(4, 2, 300)
    with torch.autocast("cpu", torch.bfloat16):
        features = network[0](x)
        y = network[1](features)
    assert features.dtype == y.dtype == torch.bfloat16
    torch.testing.assert_close(
        network[1].running_sqrt_psd, barycenter_of(features.float(), 5), rtol=1e-5, atol=1e-6
    )


def test_no_step_waits_for_a_value_on_the_host():
    # a meta tensor has no values to wait for: asking for one would raise
    layer = PSDNorm(3, 4, affine=True, device="meta")
    for mode in (layer.train, layer.eval):
        assert mode()(torch.empty(4, 3, 200, device="meta")).shape == (4, 3, 200)
