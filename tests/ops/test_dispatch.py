"""The Triton kernels compute what the plain path computes, gradients included.

On a CUDA device they run there (``pytest -m gpu`` adds the full grid), elsewhere under
Triton's interpreter (tests/ops/test_interpreted.py).
"""

import inspect

import pytest
import torch
from backend_outcomes import assert_matches, outcome, parameters, signals
from triton_kernels import (
    DEVICE,
    TOLERANCE,
    draw,
    gpu,
    kernels_can_run,  # noqa: F401
    waiting_for_the_host_is_an_error,
)

from psdnorm import PSDNorm
from psdnorm.ops import dispatch as fused
from psdnorm.ops import reference
from psdnorm.ops.reference import Spec
from psdnorm.ops.triton import launch as cuda

pytest.importorskip("triton", reason="the fused backend needs triton")


@pytest.fixture
def few_programs(monkeypatch):
    """Make each program walk over many tiles, as on long signals."""
    monkeypatch.setattr(cuda, "_ENOUGH_PROGRAMS", 1)
    plans = (cuda._measure_plan, cuda._filter_plan, cuda._backward_plan)
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


@pytest.mark.parametrize("name", ["row_statistics", "normalize"])
def test_signatures_are_the_references(name):
    ours, theirs = (inspect.signature(getattr(ops, name)).parameters for ops in (fused, reference))
    added = ("backend", "groups")
    assert {k: v for k, v in ours.items() if k not in added} == dict(theirs)


@pytest.mark.parametrize(
    ("filter_size", "length", "window", "padding_mode"),
    [
        (1, 101, "boxcar", "circular"),
        (2, 211, "hann", "zeros"),
        (3, 64, "hamming", "reflect"),
        (4, 211, "boxcar", "reflect"),
        (5, 3101, "boxcar", "circular"),
        (5, 1021, "hann", "reflect"),
        (8, 47, "hamming", "circular"),
        (17, 101, "boxcar", "zeros"),
    ],
)
def test_outputs_and_gradients_match_float64(filter_size, length, window, padding_mode):
    assert_matches(signals(1, 2, length), filter_size, window, padding_mode)


@pytest.mark.parametrize(
    ("filter_size", "padding_mode", "detrend"),
    [(1, "circular", "row"), (5, "circular", "row"), (4, "zeros", "segment")],
)
def test_measured_on_the_way_rows_have_the_same_outputs_and_gradients(
    filter_size, padding_mode, detrend
):
    x = signals(2, 2, 204)
    expected = outcome(fused, x, filter_size, padding_mode=padding_mode, detrend=detrend)
    target, weight, bias = parameters(x, filter_size)
    leaves = [t.detach().clone().requires_grad_() for t in (x, weight, bias)]
    spec = Spec(filter_size, 1e-3, "boxcar", padding_mode, detrend)
    y = fused.measure_and_normalize(leaves[0], target, spec, *leaves[1:])
    found = y, *torch.autograd.grad(y, leaves, draw(*x.shape, seed=4))
    for name, value in zip(("y", "dx", "dweight", "dbias"), found, strict=True):
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(
    ("filter_size", "length", "window", "padding_mode"),
    [
        (1, 101, "hann", "circular"),
        (2, 211, "boxcar", "zeros"),
        (2, 64, "hann", "reflect"),
        (3, 101, "hamming", "circular"),
        (4, 47, "hann", "zeros"),
        (5, 1021, "boxcar", "reflect"),
        (5, 1021, "hamming", "circular"),
        (17, 101, "hann", "circular"),
    ],
)
def test_segments_that_lose_their_means_match_float64(filter_size, length, window, padding_mode):
    x = signals(1, 2, length) + draw(1, 2, length, seed=7).cpu().cumsum(-1).to(DEVICE)
    assert_matches(x, filter_size, window, padding_mode, detrend="segment")


def test_segments_without_their_means_have_exactly_no_power_in_bin_0():
    x = 1e4 * signals(1, 2, 403)
    _, psd = fused.row_statistics(x, Spec(5, detrend="segment"))
    assert torch.equal(psd[..., 0], torch.full_like(psd[..., 0], 1e-5))


@pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
@pytest.mark.parametrize(("filter_size", "length"), [(2, 2), (5, 5), (5, 6)])
def test_a_row_as_short_as_the_filter(filter_size, length, padding_mode):
    # one segment, whose mean is zero: only a large eps keeps its first bin away from 0 / 0
    assert_matches(signals(1, 2, length), filter_size, "boxcar", padding_mode, eps=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_signals_have_float32_statistics(dtype):
    x = signals(1, 2, 403, dtype=dtype)
    assert_matches(x, 5)
    offset, psd = fused.row_statistics(x, Spec(5))
    assert offset.dtype == psd.dtype == torch.float32


def test_a_program_that_walks_over_many_tiles(few_programs):
    assert_matches(signals(1, 1, 4001), 5, "boxcar", "reflect")


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[..., 1:-2],
        lambda x: x[::2, 1:],
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        lambda x: x[:1].expand(2, -1, -1),
    ],
    ids=["N and C swapped", "misaligned", "rows left out", "time not innermost", "expanded"],
)
def test_strided_inputs(view):
    assert_matches(view(signals(2, 2, 203)), 4)


def test_parameters_may_be_strided():
    x = signals(2, 3, 101)
    offset, psd = fused.row_statistics(x, Spec(5))
    target, weight, bias = parameters(x, 5)
    expected = fused.normalize(x, offset, psd, target, Spec(5), weight, bias)
    spread = [p.repeat_interleave(2, dim=-1)[..., ::2] for p in (target, weight, bias)]
    found = fused.normalize(x, offset, psd, spread[0], Spec(5), *spread[1:])
    torch.testing.assert_close(found, expected)


def test_a_gradient_that_is_one_number_expanded():
    x = signals(2, 2, 64)
    grad = torch.ones((), device=DEVICE).expand(x.shape)
    found, expected = (
        outcome(ops, x, 5, padding_mode="zeros", grad=grad) for ops in (fused, reference)
    )
    torch.testing.assert_close(found["dx"].double(), expected["dx"], atol=1e-5, rtol=1e-5)


def test_two_runs_give_the_same_bits():
    x = signals(1, 1, 3203)
    first, second = outcome(fused, x, 5), outcome(fused, x, 5)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_constant_row_becomes_exact_zeros():
    x = torch.full((1, 1, 1000), 0.1, device=DEVICE)
    offset, psd = fused.row_statistics(x, Spec(5))
    assert not fused.normalize(x, offset, psd, psd.new_ones(1, 3), Spec(5)).any()


def test_a_large_mean_costs_no_digits():
    x = signals(1, 2, 1003, mean=1e3)
    assert_close(x, 1e-3)


def test_an_outlier_at_the_start_costs_no_digits():
    x = signals(1, 1, 2003)
    x[..., 0] = 300.0
    assert_close(x, 1e-5)


def assert_close(x, limit):
    found, expected = outcome(fused, x, 5), outcome(reference, x, 5)
    for name in ("psd", "y", "dx"):
        assert (found[name] - expected[name]).norm() < limit * expected[name].norm(), name


def test_weak_bins_beside_strong_ones_keep_their_digits():
    # a slow drift far above the rest: sums of lagged products would lose the high bins
    x = 2 * draw(1, 1, 2003).cpu().cumsum(-1).to(DEVICE) + 0.01 * draw(1, 1, 2003, seed=9)
    assert_matches(x, 5, eps=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, inside the interpreter
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e25])
def test_a_row_that_is_not_finite_spoils_only_itself(value):
    x = signals(1, 2, 101)
    healthy = outcome(fused, x, 5)
    x[0, 1, 77] = value
    spoiled = outcome(fused, x, 5)
    for name in ("y", "dx"):
        assert not spoiled[name][0, 1].isfinite().any(), name
        spoiled[name][0, 1] = healthy[name][0, 1] = 0
        assert torch.equal(spoiled[name], healthy[name]), name


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's NumPy
@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("shape", [(5, 3, 3), (1, 1, 1), (70, 2, 9), (3000, 2, 17)])
@pytest.mark.parametrize("by_domain", [False, True])
def test_the_barycenter_moves_as_in_the_reference(shape, momentum, by_domain):
    n_rows, channels, bins = shape
    options = {"momentum": momentum, "backend": "reference", "device": DEVICE}
    if by_domain:
        options |= {"statistics": "domain", "target_power": "unit"}
    plain, moved = (PSDNorm(channels, 2 * bins - 1, **options) for _ in range(2))
    for step in range(3):
        psd = 0.1 + draw(*shape, seed=step).abs()
        psd[0, 0, 0] = torch.nan if step == 1 else 1.0
        psd[:, -1] = torch.inf if step == 0 else psd[:, -1]  # no valid row in that channel
        state = moved.running_sqrt_psd, moved.num_batches_tracked, moved.rows_skipped
        weights = None
        if by_domain:  # of domains of one row and of two
            sizes = 1 + (torch.arange(n_rows, device=DEVICE) // 2 * 2 + 1 < n_rows)
            weights = reference.valid_rows(psd) / sizes.unsqueeze(-1)
        found = cuda.update_barycenter(psd, weights, *state, momentum, moved._unit_spec)
        torch.testing.assert_close(found, plain._update(psd, weights), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(moved.state_dict(), plain.state_dict())


def test_statistics_carry_no_gradient():
    offset, psd = fused.row_statistics(signals(1, 1, 50).requires_grad_(), Spec(3))
    assert not offset.requires_grad
    assert not psd.requires_grad


def test_an_empty_batch():
    x = signals(1, 3, 50)[:0].requires_grad_()
    offset, psd = fused.row_statistics(x, Spec(5))
    y = fused.normalize(x, offset, psd, torch.ones(3, 3, device=DEVICE), Spec(5))
    y.sum().backward()
    assert y.shape == x.grad.shape == (0, 3, 50)
    assert psd.shape == (0, 3, 3)


def test_autocast_changes_nothing():
    x = signals(1, 1, 203)
    outside = outcome(fused, x, 5)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        inside = outcome(fused, x, 5)
    assert all(torch.equal(outside[name], inside[name]) for name in outside)


def test_the_operators_pass_torchs_own_checks():
    x = signals(1, 2, 20)
    target, weight, bias = parameters(x, 4)
    spec = Spec(4, 1e-5, "hann", "zeros")
    offset, psd = fused.row_statistics(x, spec)
    torch.library.opcheck(torch.ops.psdnorm.row_statistics, (x, *spec))
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    torch.library.opcheck(
        torch.ops.psdnorm.normalize, (*leaves, target, offset, psd, None, 0, *spec)
    )
    torch.library.opcheck(torch.ops.psdnorm.measure_and_normalize, (*leaves, target, None, *spec))
    torch.library.opcheck(
        torch.ops.psdnorm.normalize_backward,
        (draw(*x.shape), x, offset, psd, target, weight, None, 0, *spec),
    )


@pytest.mark.filterwarnings("ignore")
def test_compiled_as_one_graph_it_gives_the_same():
    x = signals(2, 1, 103)
    backend = "inductor" if DEVICE == "cuda" else "aot_eager"
    compiled = torch.compile(fused_layer, fullgraph=True, backend=backend)
    results = []
    for run in (fused_layer, compiled):
        leaf = x.clone().requires_grad_()
        y = run(leaf)
        y.backward(draw(*x.shape, seed=4))
        results.append((y.detach(), leaf.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def fused_layer(x):
    offset, psd = fused.row_statistics(x, Spec(5))
    return fused.normalize(x, offset, psd, psd.sqrt().mean(dim=0), Spec(5))


def test_what_can_be_served_is_not_refused():
    assert fused.supports(signals(1, 1, 99), Spec(32)) is None


class TestOnTheDevice:
    pytestmark = gpu

    @pytest.mark.parametrize("detrend", reference.DETRENDS)
    @pytest.mark.parametrize("filter_size", range(1, 33))
    def test_every_filter_size(self, filter_size, detrend):
        assert_matches(signals(3, 5, 4999), filter_size, detrend=detrend)

    @pytest.mark.parametrize("padding_mode", reference.PADDING_MODES)
    @pytest.mark.parametrize("window", reference.WINDOWS)
    @pytest.mark.parametrize("dtype", TOLERANCE)
    @pytest.mark.parametrize("filter_size", [4, 5])
    @pytest.mark.parametrize("detrend", reference.DETRENDS)
    def test_every_option(self, filter_size, dtype, window, padding_mode, detrend):
        x = signals(3, 5, 2477, dtype=dtype)
        assert_matches(x, filter_size, window, padding_mode, detrend=detrend)

    @pytest.mark.parametrize(
        "shape", [(1, 1, 4_000_037), (100_000, 1, 61), (1, 1, 5), (7, 3, 1023)]
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_long_rows_and_many_rows(self, shape, dtype):
        assert_matches(signals(*shape, dtype=dtype), 5, eps=0.1)

    def test_the_shapes_of_the_models(self):
        for shape, filter_size in (((4, 6, 105000), 5), ((4, 9, 52500), 2), ((4, 11, 26250), 1)):
            assert_matches(signals(*shape), filter_size)

    def test_more_than_two_to_the_31_samples(self):
        x = torch.randn(1100, 20, 100_004, device="cuda", dtype=torch.bfloat16)
        assert x.numel() > 2**31
        target = torch.ones(20, 3, device="cuda")
        x.requires_grad_()
        y = fused.normalize(x, *fused.row_statistics(x, Spec(5)), target, Spec(5))
        y.backward(x.detach())
        part = x.detach()[-3:].clone().requires_grad_()
        again = fused.normalize(part, *fused.row_statistics(part, Spec(5)), target, Spec(5))
        again.backward(part.detach())
        assert_matches(part, 5)
        # other chunks, so other roundings
        torch.testing.assert_close(y[-3:], again, atol=0.05, rtol=0.05)
        torch.testing.assert_close(x.grad[-3:], part.grad, atol=0.05, rtol=0.05)

    def test_nothing_waits_for_the_host(self):
        x = signals(8, 6, 10000).requires_grad_()
        target, grad = torch.ones(6, 3, device="cuda"), draw(8, 6, 10000)

        def run():
            statistics = fused.row_statistics(x, Spec(5))
            fused.normalize(x, *statistics, target, Spec(5)).backward(grad)

        run()  # compiles
        with waiting_for_the_host_is_an_error():
            run()

    def test_memory_beyond_signals_and_gradients_is_under_one_percent(self):
        x = signals(16, 6, 105000).requires_grad_()
        target, grad = torch.ones(6, 3, device="cuda"), draw(*x.shape)
        size = x.numel() * x.element_size()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = fused.normalize(x, *fused.row_statistics(x, Spec(5)), target, Spec(5))
        y.backward(grad)
        extra = torch.cuda.max_memory_allocated() - before - 2 * size  # y and dx
        assert extra < 0.01 * size

    def test_two_runs_of_a_large_batch_give_the_same_bits(self):
        x = signals(64, 6, 105000)
        first, second = outcome(fused, x, 5), outcome(fused, x, 5)
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_a_cuda_graph_can_hold_it(self):
        x = signals(4, 6, 5000)
        fused_layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fused_layer(x)
        x.copy_(draw(*x.shape, seed=8))
        graph.replay()
        assert torch.equal(y, fused_layer(x))
