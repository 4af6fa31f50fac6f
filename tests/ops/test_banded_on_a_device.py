"""The kernels of small convolutions in the shapes of U-Sleep, with torch's compiler and graphs."""

import pytest
import torch
from convolutions import HALF, assert_close, assert_matches, operands, outcome, torchs
from triton_kernels import draw, gpu, waiting_for_the_host_is_an_error

from psdnorm.ops import convolution

pytestmark = gpu
# (n_in, n_out, taps, up, length of the input)
USLEEP = [
    (2, 6, 7, 1, 105000),
    (9, 6, 2, 2, 52500),
    (12, 6, 7, 1, 105000),
    (6, 6, 1, 1, 105000),
    (18, 9, 7, 1, 52500),
    (22, 11, 7, 1, 26250),
    (30, 15, 7, 1, 13125),
    (56, 28, 7, 1, 3282),
    (80, 40, 7, 1, 1641),
    (77, 55, 2, 2, 411),
    (55, 77, 7, 1, 411),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layer", USLEEP, ids=str)
def test_the_shapes_of_usleep(layer, dtype):
    c_in, c_out, taps, up, length = layer
    pad = taps // 2 if up == 1 else 0
    arguments = operands(3, c_in, c_out, taps, length, up=up, dtype=dtype)
    assert_matches(*arguments, pad=pad, up=up)


@pytest.mark.parametrize("name", ["conv", "upsample_conv"])
def test_autocast_takes_float32_and_gives_half_precision(name):
    up = 1 if name == "conv" else 2
    x, weight, bias, grad = operands(2, 5, 6, 7 if up == 1 else 2, 1001, up=up)
    run = getattr(convolution, name)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert convolution.is_served(x, weight)
        found = outcome(run, x, weight, bias, grad.bfloat16(), True)
    assert found["y"].dtype == torch.bfloat16
    assert {found[k].dtype for k in ("dx", "dweight", "dbias")} == {torch.float32}
    wide = [t.double() for t in (x, weight, bias, grad)]
    expected = outcome(torchs, *wide, 3 if up == 1 else 0, up, True)
    assert_close(found, expected, 1e-2)
    assert not convolution.is_served(x, weight)


@pytest.mark.parametrize("up", [1, 2])
def test_the_operators_pass_torchs_own_checks(up):
    forward, adjoint = convolution.groupings(3, 1, up)
    x, grad = draw(2, 4, 61), draw(2, 5, 61 * up, seed=3)
    matrix = draw(4 * forward.window, 5 * forward.span, seed=1).requires_grad_()
    transposed = draw(5 * adjoint.window, 4 * adjoint.span, seed=4)
    bias = draw(5, seed=2).requires_grad_()
    groupings = list(forward), list(adjoint)
    torch.library.opcheck(
        torch.ops.psdnorm.banded_convolve,
        (x.clone().requires_grad_(), matrix, transposed, bias, *groupings, True),
        atol=1e-4,
        rtol=1e-4,
    )
    torch.library.opcheck(torch.ops.psdnorm.banded_gradient, (grad, x, groupings[0]))


@pytest.mark.parametrize("name", ["conv", "upsample_conv"])
def test_compiled_as_one_graph_it_gives_the_same(name):
    up = 1 if name == "conv" else 2
    run = getattr(convolution, name)
    arguments = operands(2, 5, 6, 7 if up == 1 else 2, 1003, up=up, dtype=torch.bfloat16)
    compiled = torch.compile(run, fullgraph=True)
    found, expected = (outcome(r, *arguments, True) for r in (compiled, run))
    # fused, ELU's derivative is rounded less often
    assert_close(found, {k: v.double() for k, v in expected.items()}, 1e-2)
    assert torch.equal(found["y"], expected["y"])


def test_more_than_two_to_the_31_samples():
    x = torch.randn(1700, 20, 65_002, device="cuda", dtype=torch.bfloat16)
    assert x.numel() > 2**31
    _, weight, bias, _ = operands(1, 20, 20, 7, 8)
    arguments = x, weight, bias, x, 3, 1, True
    whole = outcome(convolution.convolve, *arguments)
    part = outcome(convolution.convolve, x[-2:], weight, bias, x[-2:], *arguments[4:])
    for name in ("y", "dx"):
        assert torch.equal(whole[name][-2:], part[name]), name


def test_nothing_waits_for_the_host():
    x, weight, bias, grad = operands(4, 2, 6, 7, 10000, dtype=HALF)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    run = lambda: convolution.convolve(*leaves, 3, 1, True).backward(grad)  # noqa: E731
    run()  # compiles
    with waiting_for_the_host_is_an_error():
        run()


def test_a_cuda_graph_can_hold_it():
    x, weight, bias, _ = operands(2, 2, 6, 7, 5000, dtype=HALF)
    convolution.convolve(x, weight, bias, 3, 1, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = convolution.convolve(x, weight, bias, 3, 1, True)
    x.copy_(draw(*x.shape, seed=8))
    graph.replay()
    assert torch.equal(y, convolution.convolve(x, weight, bias, 3, 1, True))
