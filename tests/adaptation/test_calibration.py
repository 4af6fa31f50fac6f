"""What calibrate promises."""

import pytest
import torch
from networks import batches, buffers, network, signals, unchanged
from torch import nn

from psdnorm import PSDNorm, calibrate
from psdnorm.errors import ArgumentError, ConversionError

X = signals(3)


def two_norms():
    return nn.Sequential(PSDNorm(2, filter_size=5), nn.Dropout(0.9), PSDNorm(2, filter_size=2))


def test_calibration_averages_the_barycenters_of_the_batches():
    model = nn.Sequential(PSDNorm(2, filter_size=5))
    a, b = signals(4), 3 * signals(7, seed=1)
    calibrate(model, [a, b])
    of_a, of_b = (calibrate(nn.Sequential(PSDNorm(2)), [x])[0].running_sqrt_psd for x in (a, b))
    torch.testing.assert_close(model[0].running_sqrt_psd, (of_a + of_b) / 2)


def test_calibration_forgets_what_came_before():
    model, fresh = two_norms(), two_norms()
    model(100 * signals(4))
    calibrate(model, batches(2))
    calibrate(fresh, batches(2))
    torch.testing.assert_close(model.state_dict(), fresh.state_dict())


def test_calibration_returns_the_model():
    model = two_norms()
    assert calibrate(model, batches(1)) is model


def test_calibration_takes_the_first_element_of_what_a_loader_gives():
    model, other = two_norms(), two_norms()
    data = torch.utils.data.TensorDataset(signals(8), torch.zeros(8))
    calibrate(model, torch.utils.data.DataLoader(data, batch_size=4))
    calibrate(other, signals(8).split(4))
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_calibration_leaves_flags_momenta_and_other_statistics_alone():
    model = nn.Sequential(two_norms().eval(), nn.BatchNorm1d(2), PSDNorm(2, momentum=0.3))
    flags, before = [m.training for m in model.modules()], buffers(model[1])
    calibrate(model, batches(2))
    assert [m.training for m in model.modules()] == flags
    assert [m.momentum for m in model.modules() if isinstance(m, PSDNorm)] == [0.01, 0.01, 0.3]
    assert unchanged(model[1], before)


def test_calibration_runs_the_other_layers_in_evaluation_mode():
    model, other = two_norms().train(), two_norms().train()
    torch.manual_seed(1)
    calibrate(model, batches(1))
    torch.manual_seed(2)
    calibrate(other, batches(1))
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_calibration_makes_no_graph():
    model = two_norms()
    graphs = []
    model.register_forward_hook(lambda _, args, y: graphs.append(y.requires_grad))
    calibrate(model, [signals(2).requires_grad_()])
    assert graphs == [False]


def test_a_channel_or_layer_that_calibration_never_sees_keeps_its_barycenter():
    model = nn.Sequential(PSDNorm(2))
    model.spare = PSDNorm(2)
    model.forward = model[0].forward
    model[0](signals(4))
    model.spare(signals(4))
    before = buffers(model)
    x = signals(4)
    x[:, 1] = torch.nan
    calibrate(model, [x])
    assert torch.equal(model[0].running_sqrt_psd[1], before["0.running_sqrt_psd"][1])
    assert unchanged(model.spare, {k[6:]: v for k, v in before.items() if k.startswith("spare")})


def test_calibration_that_fails_midway_leaves_the_former_state():
    def broken():
        yield signals(4)
        raise OSError("disk gone")

    model = two_norms()
    model(signals(4, seed=5))
    model.eval()
    before = buffers(model)
    with pytest.raises(OSError, match="disk gone"):
        calibrate(model, broken())
    assert unchanged(model, before)
    assert not any(m.training for m in model.modules())
    assert [model[0].momentum, model[2].momentum] == [0.01, 0.01]


@pytest.mark.parametrize("build", [network, lambda: nn.Sequential(PSDNorm(2, target="white"))])
def test_calibration_needs_a_barycenter(build):
    with pytest.raises(ConversionError, match="no PSDNorm layer with a barycenter"):
        calibrate(build(), batches(1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "batches is empty"),
        (X, "found one tensor"),
        ([{"x": X}], "found dict"),
        ([()], "found tuple"),
        (None, "batches must be an iterable of batches, found NoneType"),
        (5, "batches must be an iterable of batches, found int"),
        ([X[:0]], "batches is empty, expected at least one batch with values"),
    ],
)
def test_batches_that_hold_no_inputs_raise(data, message):
    model = two_norms()
    before = buffers(model)
    with pytest.raises(ArgumentError, match=message):
        calibrate(model, data)
    assert unchanged(model, before)


def test_an_empty_batch_says_nothing_to_calibration():
    model, other = two_norms(), two_norms()
    calibrate(model, [X[:0], X, X[:0], 2 * X])
    calibrate(other, [X, 2 * X])
    torch.testing.assert_close(model.state_dict(), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("model", "kind"), [(None, "NoneType"), ([PSDNorm(2)], "list")])
def test_calibrating_what_is_no_module_raises(model, kind):
    with pytest.raises(ArgumentError, match=f"model must be an nn.Module, found a {kind}"):
        calibrate(model, [X])
