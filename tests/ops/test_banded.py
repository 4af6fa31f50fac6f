"""The kernels of small convolutions compute what torch computes in float64, gradients included.

On a CUDA device they run there (``pytest -m gpu`` adds U-Sleep's shapes). Elsewhere they run under
Triton's interpreter, which must be chosen before triton is imported: in a process of their own.
"""

import pytest
import torch
from torch.nn import functional as F
from triton_kernels import (
    DEVICE,
    TOLERANCE,
    assert_passes_interpreted,
    draw,
    empty_memory_is_nan,
    gpu,
    kernels_can_run,  # noqa: F401
    without_kernels,
)

from psdnorm.ops import banded, convolution

# the interpreter multiplies the bits of bfloat16 as integers
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16


@without_kernels
def test_everything_here_passes_under_tritons_interpreter():
    assert_passes_interpreted(__file__)


def operands(n, c_in, c_out, taps, length, up=1, dtype=torch.float32):
    """Return x, weight, bias and a gradient of the result; parameters are float32."""
    weight = draw(c_out, c_in, taps, seed=1) / (c_in * taps) ** 0.5
    x, grad = draw(n, c_in, length, dtype=dtype), draw(n, c_out, up * length, seed=3, dtype=dtype)
    return x, weight, draw(c_out, seed=2), grad


def torchs(x, weight, bias, pad, up, elu):
    """Compute what :func:`banded.convolve` computes as it is defined, one step after another."""
    repeated = F.pad(x.repeat_interleave(up, dim=-1), (pad, weight.shape[-1] - 1 - pad))
    y = F.conv1d(repeated, weight, bias)
    return F.elu(y) if elu else y


def outcome(run, x, weight, bias, grad, *options):
    """Everything there is to compare: the result, gradients of x, weight and bias."""
    leaves = {"x": x, "weight": weight, "bias": bias}
    # detached and not cloned: strides stay
    leaves = {k: v if v is None else v.detach().requires_grad_() for k, v in leaves.items()}
    y = run(*leaves.values(), *options)
    wanted = {f"d{name}": leaf for name, leaf in leaves.items() if leaf is not None}
    gradients = torch.autograd.grad(y, list(wanted.values()), grad)
    return {"y": y.detach(), **dict(zip(wanted, gradients, strict=True))}


def kernels(*arguments):
    with empty_memory_is_nan():
        return outcome(banded.convolve, *arguments)


def assert_matches(x, weight, bias, grad, pad=None, up=1, elu=True):
    pad = weight.shape[-1] // 2 if pad is None else pad
    found = kernels(x, weight, bias, grad, pad, up, elu)
    wide = [t if t is None else t.double() for t in (x, weight, bias, grad)]
    expected = outcome(torchs, *wide, pad, up, elu)
    assert found["y"].dtype == found["dx"].dtype == x.dtype
    assert found["dweight"].dtype == weight.dtype
    assert_close(found, expected, TOLERANCE[x.dtype])


def assert_close(found, expected, limit):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        error = (found[name].double() - value).norm() / value.norm()
        assert error <= limit, f"{name} is off by {error:.1e}"


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


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
    monkeypatch.setattr(banded, "_ENOUGH_PROGRAMS", n_programs)
    assert_matches(*operands(3, 2, 3, 7, 1301))


@pytest.mark.parametrize("wanted", [{"x"}, {"weight"}, {"bias"}, {"x", "bias"}, {"weight", "bias"}])
def test_gradients_of_some_are_those_of_all(wanted):
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    everything = kernels(x, weight, bias, grad, 3, 1, True)
    leaves = {"x": x, "weight": weight, "bias": bias}
    chosen = [leaves[name].requires_grad_() for name in sorted(wanted)]
    y = banded.convolve(x, weight, bias, 3, 1, True)
    gradients = torch.autograd.grad(y, chosen, grad)
    for name, gradient in zip(sorted(wanted), gradients, strict=True):
        assert torch.equal(gradient, everything[f"d{name}"]), name


def test_without_gradients_the_result_is_the_same():
    x, weight, bias, grad = operands(2, 3, 5, 7, 61)
    expected = kernels(x, weight, bias, grad, 3, 1, True)["y"]
    assert torch.equal(banded.convolve(x, weight, bias, 3, 1, True), expected)
    with torch.no_grad():
        assert torch.equal(banded.convolve(x.requires_grad_(), weight, bias, 3, 1, True), expected)


def test_gradients_accumulate():
    _, weight, bias, _ = operands(2, 3, 5, 7, 61)
    batches = [(draw(2, 3, t, seed=t), draw(2, 5, t, seed=-t)) for t in (61, 40)]
    alone = [kernels(x, weight, bias, grad, 3, 1, True) for x, grad in batches]
    weight.requires_grad_(), bias.requires_grad_()
    for x, grad in batches:
        banded.convolve(x, weight, bias, 3, 1, True).backward(grad)
    torch.testing.assert_close(weight.grad, alone[0]["dweight"] + alone[1]["dweight"])
    torch.testing.assert_close(bias.grad, alone[0]["dbias"] + alone[1]["dbias"])


@pytest.mark.parametrize("elu", [True, False], ids=["ELU", "no ELU"])
@pytest.mark.parametrize("name", ["x", "weight"])
def test_second_derivatives_are_refused_or_right_but_never_left_out(name, elu):
    x, weight, _, grad = operands(1, 2, 3, 3, 17)
    if name == "weight" or elu:
        with pytest.raises(RuntimeError, match=r"second derivative|no autograd formula"):
            second_derivatives(banded.convolve, name, elu, x, weight, grad)
        return
    found = second_derivatives(banded.convolve, name, elu, x, weight, grad)
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
    reach = max(grouping.window for grouping in banded.groupings(taps, pad, up))
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
            forward, adjoint = banded.groupings(taps, pad, up)
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
        for _, _, offset, window in banded.groupings(taps, pad, 1):
            assert offset % 4 == 0
            assert -pad - 4 < offset <= -pad
            assert window.bit_count() == 1
            assert window == 8 or offset + window // 2 < 8 + pad


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


class TestOnTheDevice:
    pytestmark = gpu

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("layer", USLEEP, ids=str)
    def test_the_shapes_of_usleep(self, layer, dtype):
        c_in, c_out, taps, up, length = layer
        pad = taps // 2 if up == 1 else 0
        arguments = operands(3, c_in, c_out, taps, length, up=up, dtype=dtype)
        assert_matches(*arguments, pad=pad, up=up)

    @pytest.mark.parametrize("name", ["conv", "upsample_conv"])
    def test_autocast_takes_float32_and_gives_half_precision(self, name):
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
    def test_the_operators_pass_torchs_own_checks(self, up):
        forward, adjoint = banded.groupings(3, 1, up)
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
    def test_compiled_as_one_graph_it_gives_the_same(self, name):
        up = 1 if name == "conv" else 2
        run = getattr(convolution, name)
        arguments = operands(2, 5, 6, 7 if up == 1 else 2, 1003, up=up, dtype=torch.bfloat16)
        compiled = torch.compile(run, fullgraph=True)
        found, expected = (outcome(r, *arguments, True) for r in (compiled, run))
        # fused, ELU's derivative is rounded less often
        assert_close(found, {k: v.double() for k, v in expected.items()}, 1e-2)
        assert torch.equal(found["y"], expected["y"])

    def test_more_than_two_to_the_31_samples(self):
        x = torch.randn(1700, 20, 65_002, device="cuda", dtype=torch.bfloat16)
        assert x.numel() > 2**31
        _, weight, bias, _ = operands(1, 20, 20, 7, 8)
        arguments = x, weight, bias, x, 3, 1, True
        whole = outcome(banded.convolve, *arguments)
        part = outcome(banded.convolve, x[-2:], weight, bias, x[-2:], *arguments[4:])
        for name in ("y", "dx"):
            assert torch.equal(whole[name][-2:], part[name]), name

    def test_nothing_waits_for_the_host(self):
        x, weight, bias, grad = operands(4, 2, 6, 7, 10000, dtype=HALF)
        leaves = [t.requires_grad_() for t in (x, weight, bias)]
        run = lambda: banded.convolve(*leaves, 3, 1, True).backward(grad)  # noqa: E731
        run()  # compiles
        torch.cuda.set_sync_debug_mode("error")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_a_cuda_graph_can_hold_it(self):
        x, weight, bias, _ = operands(2, 2, 6, 7, 5000, dtype=HALF)
        banded.convolve(x, weight, bias, 3, 1, True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = banded.convolve(x, weight, bias, 3, 1, True)
        x.copy_(draw(*x.shape, seed=8))
        graph.replay()
        assert torch.equal(y, banded.convolve(x, weight, bias, 3, 1, True))
