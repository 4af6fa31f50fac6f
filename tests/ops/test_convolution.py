"""Convolution, bias and ELU are what torch composes; kernels serve only where they are meant to.

What the kernels compute is tested in test_banded.py.
"""

import operator

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from psdnorm.ops import convolution

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
on_a_device = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.filterwarnings("ignore"),
    ],
)


@pytest.fixture(autouse=True)
def _without_onednn(monkeypatch):
    # some virtual machines promise instructions for bfloat16 that oneDNN then dies of
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def with_elu(elu, *modules):
    return nn.Sequential(*modules, nn.ELU()) if elu else nn.Sequential(*modules)


def outcome(run, x, parameters, grad):
    """Return the result and the gradients of x and the parameters."""
    x = x.clone().requires_grad_()
    y = run(x)
    return y, *torch.autograd.grad(y, (x, *parameters), grad)


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert (a - b).norm() <= 8 * torch.finfo(b.dtype).eps * b.norm()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("elu", [True, False], ids=["ELU", "no ELU"])
@pytest.mark.parametrize("taps", [1, 3, 7, 9])
def test_convolving_is_torchs_convolution_that_keeps_the_length(taps, elu, bias, dtype):
    layer = nn.Conv1d(3, 4, taps, padding="same", bias=bias, dtype=dtype)
    composed = with_elu(elu, layer)
    x, grad = draw(2, 3, 11, dtype=dtype), draw(2, 4, 11, seed=1, dtype=dtype)
    expected = outcome(composed, x, layer.parameters(), grad)
    found = outcome(
        lambda x: convolution.conv(x, layer.weight, layer.bias, elu), x, layer.parameters(), grad
    )
    assert torch.equal(found[0], expected[0])
    # ELU in place differentiates by its value, not by its argument: other roundings
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("elu", [True, False], ids=["ELU", "no ELU"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_upsampling_is_repeating_and_two_taps(length, elu, bias, dtype):
    layer = nn.Conv1d(4, 3, 2, bias=bias, dtype=dtype)
    composed = with_elu(elu, nn.Upsample(scale_factor=2), nn.ConstantPad1d((0, 1), 0.0), layer)
    x, grad = draw(2, 4, length, dtype=dtype), draw(2, 3, 2 * length, seed=1, dtype=dtype)
    expected = outcome(composed, x, layer.parameters(), grad)
    found = outcome(
        lambda x: convolution.upsample_conv(x, layer.weight, layer.bias, elu),
        x,
        layer.parameters(),
        grad,
    )
    assert_close(found, expected)


def test_autocast_is_torchs():
    x, layer = draw(2, 3, 11), nn.Conv1d(3, 4, 7, padding=3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = convolution.conv(x, layer.weight, layer.bias, elu=True)
        assert torch.equal(found, nn.functional.elu(layer(x)))
    assert found.dtype == torch.bfloat16


def described(channels=(3, 4), length=50, dtype=torch.bfloat16, device="cuda"):
    """Return a signal and a weight as they are seen from outside; no device is needed for it."""
    c_in, c_out = channels
    with FakeTensorMode():
        x = torch.empty(2, c_in, length, dtype=dtype, device=device)
        return x, torch.empty(c_out, c_in, 7, dtype=dtype, device=device)


@pytest.fixture
def has_triton(monkeypatch):
    monkeypatch.setattr(convolution, "HAS_TRITON", True)


MOST = convolution.MOST_CHANNELS


@pytest.mark.usefixtures("has_triton")
@pytest.mark.parametrize(
    "case",
    [
        {"dtype": torch.bfloat16},
        {"dtype": torch.float16},
        {"channels": (MOST, MOST)},
        {"length": (2**31 - 1) // (2 * MOST)},
    ],
    ids=str,
)
def test_half_precision_and_few_channels_on_a_cuda_device_are_served(case):
    assert convolution.is_served(*described(**case))


@pytest.mark.usefixtures("has_triton")
@pytest.mark.parametrize(
    "case",
    [
        {"device": "cpu"},
        {"dtype": torch.float32},
        {"dtype": torch.float64},
        {"channels": (MOST + 1, 4)},
        {"channels": (3, MOST + 1)},
        {"length": -(-(2**31) // (2 * MOST))},
    ],
    ids=str,
)
def test_everything_else_is_not(case):
    assert not convolution.is_served(*described(**case))


def test_without_triton_nothing_is_served(monkeypatch):
    monkeypatch.setattr(convolution, "HAS_TRITON", False)
    assert not convolution.is_served(*described())


@pytest.mark.usefixtures("has_triton")
def test_nothing_is_served_while_exporting():
    x, weight = described()
    answers = []

    class Asking(nn.Module):
        def forward(self, signal):
            answers.append(convolution.is_served(x, weight))
            return signal + 1

    torch.export.export(Asking(), (draw(2, 3, 11),), strict=False)
    assert set(answers) == {False}
    assert convolution.is_served(x, weight)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 4, 7), nn.Conv1d(4, 3, 2)

    def forward(self, x):
        x = convolution.conv(x, self.first.weight, self.first.bias, elu=True)
        return convolution.upsample_conv(x, self.second.weight, self.second.bias, elu=True)


@pytest.mark.parametrize("device", ["cpu", on_a_device])
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_what_is_exported_holds_only_operators_of_torch(strict, device):
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model, x = Both().to(device, dtype), draw(2, 3, 11, dtype=dtype).to(device)
    dynamic = ({0: torch.export.Dim.DYNAMIC, 2: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(model, (x,), dynamic_shapes=dynamic, strict=strict)
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    kinds = {"getitem" if op is operator.getitem else str(op).split(".")[0] for op in called}
    assert kinds <= {"aten", "getitem"}
    assert "aten" in kinds
    longer = draw(5, 3, 40, seed=2, dtype=dtype).to(device)
    torch.testing.assert_close(program.module()(longer), model(longer), atol=0.05, rtol=0.05)
