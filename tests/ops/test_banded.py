"""The kernels of small convolutions compute what torch computes in float64, gradients included.

On a CUDA device they run there (test_banded_on_a_device.py adds U-Sleep's shapes), elsewhere under
Triton's interpreter (tests/ops/test_interpreted.py).
"""

import pytest
import torch
from convolutions import (
    HALF,
    assert_matches,
    assert_same_bits,
    kernels,
    operands,
    torchs,
)
from triton_kernels import (
    DEVICE,
    draw,
    kernels_can_run,  # noqa: F401
)

from psdnorm.ops import convolution


# a tile of the convolution has 512 or 1024 samples, one of the gradient of weights 512
@pytest.mark.parametrize(
    ("n", "c_in", "c_out", "taps", "length"),
    [
        (1, 1, 1, 1, 1),
        (3, 2, 1, 3, 1),
        (1, 5, 2, 7, 2),
        (3, 1, 5, 11, 3),
        (3, 9, 5, 7, 7),
        (1, 5, 9, 1, 257),
        (3, 2, 5, 11, 257),
        (3, 17, 9, 3, 101),
        (1, 2, 17, 7, 1103),
        (3, 5, 6, 9, 1024),
        (1, 2, 6, 7, 2063),
        (1, 3, 12, 3, 2048),
        (1, 64, 64, 3, 7),
        (1, 64, 1, 7, 31),
        (1, 1, 64, 11, 29),
    ],
)
def test_outputs_and_gradients_match_float64(n, c_in, c_out, taps, length):
    assert_matches(*operands(n, c_in, c_out, taps, length))


@pytest.mark.parametrize(
    ("n", "c_in", "c_out", "length"),
    [
        (1, 1, 1, 1),
        (3, 2, 1, 2),
        (1, 5, 2, 3),
        (3, 9, 6, 257),
        (1, 17, 9, 7),
        (1, 2, 5, 1103),
        (2, 3, 12, 1024),
        (1, 64, 5, 13),
    ],
)
def test_upsampling_matches_float64(n, c_in, c_out, length):
    assert_matches(*operands(n, c_in, c_out, 2, length, up=2), pad=0, up=2)


@pytest.mark.parametrize(
    ("taps", "pad", "up"),
    [(4, 0, 1), (4, 3, 1), (7, 0, 1), (2, 1, 2), (3, 1, 2), (7, 3, 2), (11, 10, 2), (5, 2, 4)],
)
def test_any_padding_and_repetition(taps, pad, up):
    assert_matches(*operands(2, 3, 2, taps, 41, up=up), pad=pad, up=up)


@pytest.mark.parametrize("up", [1, 2])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("elu", [True, False], ids=["ELU", "no ELU"])
def test_with_and_without_bias_and_elu(elu, bias, up):
    x, weight, b, grad = operands(2, 3, 5, 3, 61, up=up)
    assert_matches(x, weight, b if bias else None, grad, up=up, elu=elu)


@pytest.mark.parametrize(
    ("n", "c_in", "c_out", "taps", "length", "up"),
    [
        (1, 1, 1, 1, 1, 1),
        (3, 5, 9, 7, 257, 1),
        (1, 2, 6, 7, 2063, 1),
        (1, 17, 5, 11, 64, 1),
        (3, 9, 6, 2, 129, 2),
        (1, 2, 17, 2, 1103, 2),
    ],
)
def test_half_precision(n, c_in, c_out, taps, length, up):
    assert_matches(*operands(n, c_in, c_out, taps, length, up=up, dtype=HALF), up=up)


def test_parameters_may_be_of_half_precision_too():
    x, weight, bias, grad = operands(2, 3, 5, 7, 64, dtype=HALF)
    assert_matches(x, weight.to(HALF), bias.to(HALF), grad)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., 1:-2],
        lambda x: x[..., 8:],
        lambda x: x[:, 1:],
        lambda x: x[::2, ::2],
        lambda x: x.transpose(0, 1),
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x[..., ::3],
        lambda x: x[:1].expand(3, -1, -1),
        lambda x: x[:, :1].expand(-1, 5, -1),
    ],
    ids=[
        "cropped",
        "cropped and aligned",
        "channels cut",
        "rows left out",
        "N and C swapped",
        "time not innermost",
        "samples left out",
        "batch expanded",
        "channels expanded",
    ],
)
def test_strided_signals_and_gradients(view):
    x, grad = view(draw(3, 4, 104)), view(draw(3, 4, 104, seed=3))
    channels = x.shape[1]
    assert_matches(x, draw(channels, channels, 3, seed=1), draw(channels, seed=2), grad)


def test_a_gradient_that_is_one_number_expanded():
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    assert_matches(x, weight, bias, torch.ones((), device=DEVICE).expand(grad.shape))


def test_parameters_may_be_strided():
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    spread = [p.repeat_interleave(2, dim=-1)[..., ::2] for p in (weight, bias)]
    assert_same_bits(
        kernels(x, *spread, grad, 3, 1, True), kernels(x, weight, bias, grad, 3, 1, True)
    )


def test_a_view_into_a_signal_of_more_than_two_to_the_31_samples():
    # memory that is never touched costs nothing
    x = torch.empty(1, 33, 2**26, dtype=HALF, device=DEVICE)[..., 5:55]
    assert x.stride(1) * (x.shape[1] - 1) >= 2**31
    signal, weight, bias, grad = operands(1, 33, 2, 3, 50, dtype=HALF)
    assert_matches(x.copy_(signal), weight, bias, grad)


@pytest.mark.parametrize("n_programs", [1, 2, 7])
def test_a_program_that_walks_over_many_tiles(n_programs, monkeypatch):
    monkeypatch.setattr(convolution, "_ENOUGH_PROGRAMS", n_programs)
    assert_matches(*operands(3, 2, 3, 7, 1301))


@pytest.mark.parametrize("wanted", [{"x"}, {"weight"}, {"bias"}, {"x", "bias"}, {"weight", "bias"}])
def test_gradients_of_some_are_those_of_all(wanted):
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    everything = kernels(x, weight, bias, grad, 3, 1, True)
    leaves = {"x": x, "weight": weight, "bias": bias}
    chosen = [leaves[name].requires_grad_() for name in sorted(wanted)]
    y = convolution.convolve(x, weight, bias, 3, 1, True)
    gradients = torch.autograd.grad(y, chosen, grad)
    for name, gradient in zip(sorted(wanted), gradients, strict=True):
        assert torch.equal(gradient, everything[f"d{name}"]), name


def test_without_gradients_the_result_is_the_same():
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    expected = kernels(x, weight, bias, grad, 3, 1, True)["y"]
    assert torch.equal(convolution.convolve(x, weight, bias, 3, 1, True), expected)
    with torch.no_grad():
        assert torch.equal(
            convolution.convolve(x.requires_grad_(), weight, bias, 3, 1, True), expected
        )


def test_gradients_accumulate():
    _, weight, bias, _ = operands(2, 3, 5, 7, 61)
    batches = [(draw(2, 3, t, seed=t), draw(2, 5, t, seed=-t)) for t in (61, 40)]
    alone = [kernels(x, weight, bias, grad, 3, 1, True) for x, grad in batches]
    weight.requires_grad_(), bias.requires_grad_()
    for x, grad in batches:
        convolution.convolve(x, weight, bias, 3, 1, True).backward(grad)
    torch.testing.assert_close(weight.grad, alone[0]["dweight"] + alone[1]["dweight"])
    torch.testing.assert_close(bias.grad, alone[0]["dbias"] + alone[1]["dbias"])


@pytest.mark.parametrize("elu", [True, False], ids=["ELU", "no ELU"])
@pytest.mark.parametrize("name", ["x", "weight"])
def test_second_derivatives_are_refused_or_right_but_never_left_out(name, elu):
    x, weight, _, grad = operands(1, 2, 3, 3, 17)
    if name == "weight" or elu:
        with pytest.raises(RuntimeError, match=r"second derivative|no autograd formula"):
            second_derivatives(convolution.convolve, name, elu, x, weight, grad)
        return
    found = second_derivatives(convolution.convolve, name, elu, x, weight, grad)
    expected = second_derivatives(torchs, name, elu, *(t.double() for t in (x, weight, grad)))
    torch.testing.assert_close([t.double() for t in found], expected, atol=1e-4, rtol=1e-4)


def second_derivatives(run, name, elu, x, weight, grad):
    leaves = {"x": x.requires_grad_(), "weight": weight.requires_grad_()}
    y = run(x, weight, None, 1, 1, elu)
    (first,) = torch.autograd.grad(y, leaves[name], grad, create_graph=True)
    # the result has gradients of its own, beside which one that is missing would not show
    return list(torch.autograd.grad(first.square().sum() + y.sum(), (x, weight)))


@pytest.mark.parametrize("up", [1, 2])
def test_two_runs_give_the_same_bits(up):
    arguments = operands(2, 3, 5, 3, 601, up=up)
    assert_same_bits(kernels(*arguments, 1, up, True), kernels(*arguments, 1, up, True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, inside the interpreter
@pytest.mark.parametrize(
    ("where", "up", "value"),
    [
        (0, 1, torch.nan),
        (77, 2, torch.inf),
        (511, 1, -torch.inf),
        (512, 2, torch.nan),
        (599, 2, torch.inf),
    ],
)
def test_what_is_not_finite_spoils_only_its_neighbours(where, up, value):
    taps, pad = (7, 3) if up == 1 else (2, 0)
    x, weight, bias, grad = operands(3, 2, 3, taps, 600, up=up)
    healthy = kernels(x, weight, bias, grad, pad, up, False)
    x[1, 0, where] = grad[1, 0, up * where] = value
    spoiled = kernels(x, weight, bias, grad, pad, up, False)
    reach = max(grouping.window for grouping in convolution.groupings(taps, pad, up))
    for name, place in (("y", up * where), ("dx", where)):
        # every channel that reads it, and at most a window on either side
        assert not spoiled[name][1, :, place].isfinite().any(), name
        neighbours = slice(max(0, place - reach), place + reach + 1)
        spoiled[name][1, :, neighbours] = healthy[name][1, :, neighbours] = 0
        assert torch.equal(spoiled[name], healthy[name]), name
    # the other channel's weights see the gradient of one output only
    assert torch.equal(spoiled["dweight"][1:, 1], healthy["dweight"][1:, 1])
    assert torch.equal(spoiled["dbias"][1:], healthy["dbias"][1:])
    assert not spoiled["dbias"][0].isfinite()


@pytest.mark.parametrize("up", [1, 2])
def test_an_empty_batch(up):
    x, weight, bias, grad = operands(0, 3, 5, 3, 50, up=up)
    found = kernels(x, weight, bias, grad, 1, up, True)
    assert found["y"].shape == (0, 5, 50 * up)
    assert found["dx"].shape == (0, 3, 50)
    assert not found["dweight"].any()
    assert not found["dbias"].any()


@pytest.mark.parametrize("up", [1, 2, 4])
def test_windows_hold_all_that_is_read(up):
    for taps in range(1, 33):
        for pad in range(taps):
            forward, adjoint = convolution.groupings(taps, pad, up)
            assert (forward.span, adjoint.step) == (up * forward.step, up * adjoint.span)
            reads = {t: {(t + k - pad) // up for k in range(taps)} for t in range(-50, 50)}
            assert_holds(forward, set().union(*(reads[t] for t in range(forward.span))))
            own = set(range(adjoint.span))
            assert_holds(adjoint, {t for t, read in reads.items() if own & read})


def assert_holds(grouping, read):
    assert grouping.offset <= min(read)
    assert max(read) < grouping.offset + grouping.window


def test_windows_are_aligned_and_no_wider_than_need_be():
    for taps in range(1, 33, 2):
        pad = taps // 2
        for _, _, offset, window in convolution.groupings(taps, pad, 1):
            assert offset % 4 == 0
            assert -pad - 4 < offset <= -pad
            assert window.bit_count() == 1
            assert window == 8 or offset + window // 2 < 8 + pad
