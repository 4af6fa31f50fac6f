"""Kernels that keep rows on the chip, where there are any; see test_resident.py for elsewhere."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hopper_rows import draw, error, signals
from triton_kernels import TOLERANCE, empty_memory_is_nan, gpu, waiting_for_the_host_is_an_error

from psdnorm.ops import dispatch as fused
from psdnorm.ops import reference
from psdnorm.ops.hopper import nvrtc
from psdnorm.ops.hopper import rows as resident
from psdnorm.ops.reference import Spec
from psdnorm.ops.triton import launch as cuda


def outcome(x, grad, filter_size, eps=1e-3, affine=True, by=fused):
    """Everything there is to compare: output and gradients of x, weight and bias."""
    channels, bins = x.shape[1], filter_size // 2 + 1
    target = 0.5 + draw(channels, bins, seed=1).abs()
    parameters = [1 + 0.2 * draw(channels, seed=2), draw(channels, seed=3)]
    wide = torch.float64 if by is reference else torch.float32
    signal, upstream = (s.double() if by is reference else s for s in (x, grad))
    leaves = [signal.detach().clone(), *(p.to(x.device, wide) for p in parameters)]
    leaves = [leaf.requires_grad_() for leaf in leaves[: 3 if affine else 1]]
    target, spec = target.to(x.device, wide), Spec(filter_size, eps)
    if by is reference:
        measured = reference.row_statistics(leaves[0], spec)
        y = reference.normalize(leaves[0], *measured, target, spec, *leaves[1:])
    else:
        with empty_memory_is_nan():
            y = fused.measure_and_normalize(leaves[0], target, spec, *leaves[1:])
    with empty_memory_is_nan():
        return [y.detach(), *torch.autograd.grad(y, leaves, upstream)]


def forget_kernels():
    resident._kernel.cache_clear()
    resident._compiled.cache_clear()


def served(x, filter_size, window="boxcar", padding_mode="circular", detrend="row"):
    return resident.serves((x,), Spec(filter_size, 1e-5, window, padding_mode, detrend))


@pytest.fixture
def all_that_they_can(monkeypatch):
    """Rows that the other kernels would do faster are served as well."""
    always = {"_SHORTEST_ROWS": ((17, 2),), "_LEAST_ROWS_OF_A_CLUSTER": 0.5}
    for rule, value in always.items():
        monkeypatch.setattr(resident, rule, dict.fromkeys(getattr(resident, rule), value))


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a device of compute capability 9",
)
@pytest.mark.usefixtures("all_that_they_can")
class TestOnTheDevice:
    pytestmark = gpu

    def compare(self, shape, filter_size, dtype=torch.float32, mean=0.3, **options):
        x = signals(shape, mean, dtype).cuda()
        grad = draw(*shape, seed=4).to(x)
        assert resident.serves((x, grad), Spec(filter_size))
        assert served(x, filter_size)
        found = outcome(x, grad, filter_size, **options)
        expected = outcome(x, grad, filter_size, by=reference, **options)
        for a, b in zip(found, expected, strict=True):
            assert error(a, b) < TOLERANCE[dtype]

    # the last are so long that a program has a multiprocessor for itself
    @pytest.mark.parametrize("length", [1500, 6000, 16386, 60002])
    @pytest.mark.parametrize("filter_size", range(1, 18))
    def test_every_filter_size(self, filter_size, length):
        self.compare((70, 4, length), filter_size)

    @pytest.mark.parametrize("length", [16384, 16386, 16388])
    @pytest.mark.parametrize("filter_size", [1, 2, 5, 8])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision(self, dtype, filter_size, length):
        self.compare((70, 4, length), filter_size, dtype)

    @pytest.mark.parametrize("affine", [True, False])
    @pytest.mark.parametrize(
        ("shape", "filter_size"),
        [
            ((16, 6, 105000), 5),
            ((16, 6, 105000), 17),
            ((16, 9, 52500), 2),
            ((16, 11, 26250), 1),
            ((6, 6, 200000), 5),
        ],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_the_shapes_of_the_models(self, shape, filter_size, dtype, affine):
        self.compare(shape, filter_size, dtype, affine=affine)

    def test_a_large_mean_costs_no_digits(self):
        self.compare((70, 4, 16386), 5, mean=1e3)

    def test_a_constant_row_becomes_exact_zeros(self):
        x = torch.full((70, 4, 16386), 0.1, device="cuda")
        assert served(x, 5)
        assert not fused.measure_and_normalize(x, torch.ones(4, 3, device="cuda"), Spec(5)).any()

    def test_a_row_that_is_not_finite_spoils_only_itself(self):
        x, grad = (signals((70, 4, 16386), 0.3, torch.float32).cuda() for _ in range(2))
        healthy = outcome(x, grad, 5, affine=False)
        for value in (float("nan"), float("inf"), 1e25, 2e19):
            x[1, 1, 777] = value
            for found, expected in zip(outcome(x, grad, 5, affine=False), healthy, strict=True):
                assert not found[1, 1].isfinite().any()
                found[1, 1] = expected[1, 1]
                assert torch.equal(found, expected)

    def test_two_runs_give_the_same_bits(self):
        x, grad = (signals((64, 6, 105000), 0.3, torch.float32).cuda() for _ in range(2))
        first, second = outcome(x, grad, 5), outcome(x, grad, 5)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    def test_a_thread_that_never_used_the_device_can_launch(self):
        x, grad = (signals((70, 4, 16386), 0.3, torch.float32).cuda() for _ in range(2))
        statistics = (*cuda.row_statistics(x, Spec(5)), torch.ones(4, 3, device="cuda"))
        forget_kernels()

        def differentiate():
            assert resident.serves((x, grad), Spec(5))
            return resident.normalize_backward(grad, x, *statistics, Spec(5))

        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            results = [pool.submit(differentiate).result() for pool in (one, other)]
        assert torch.equal(results[0][0], results[1][0])

    def test_a_cuda_graph_can_hold_it_and_nothing_waits_for_the_host(self):
        x = signals((70, 4, 16386), 0.3, torch.float32).cuda().requires_grad_()
        target, grad = torch.ones(4, 3, device="cuda"), torch.randn_like(x)

        def run():
            y = fused.measure_and_normalize(x, target, Spec(5))
            return y, *torch.autograd.grad(y, x, grad)

        run()  # compiles
        with waiting_for_the_host_is_an_error():
            run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run()
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(captured, run(), strict=True))

    def test_streams_and_graphs_do_not_take_each_others_rows(self):
        x, grad = (signals((90, 4, 16386), 0.3, torch.float32).cuda() for _ in range(2))
        leaf, target = x.clone().requires_grad_(), torch.ones(4, 3, device="cuda")

        def run():
            y = fused.measure_and_normalize(leaf, target, Spec(5))
            # no more of it: a graph that lives on would tie what is captured to the first stream
            return y.detach(), *torch.autograd.grad(y, leaf, grad)

        expected = run()
        graph, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in range(3)]
        with torch.cuda.graph(graph):
            captured = run()
        torch.cuda.synchronize()
        found = []
        for _ in range(20):
            graph.replay()
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(run())
        torch.cuda.synchronize()
        for outcome_of_one in (captured, *found):
            assert all(torch.equal(a, b) for a, b in zip(outcome_of_one, expected, strict=True))

    def test_what_it_cannot_serve_it_leaves_to_the_other_kernels(self):
        x = torch.randn(70, 4, 16386, device="cuda")
        assert served(x, 5)
        assert not served(x[..., 1:], 5)
        assert not served(x[..., 1:].contiguous(), 5)  # an odd length
        assert not served(x.double(), 5)
        assert not served(x, 18)
        assert not served(x, 5, window="hann")
        assert not served(x, 5, padding_mode="reflect")
        assert not served(x, 5, detrend="segment")
        assert not served(x[:2], 5)  # too few rows to fill the device
        assert not served(torch.randn(2, 2, 10**6, device="cuda"), 5)

    def test_without_a_compiler_the_other_kernels_serve(self, monkeypatch):
        def missing(*_):
            raise nvrtc.CompilerError("libnvrtc.so cannot be loaded")

        monkeypatch.setattr(nvrtc, "compiled", missing)
        forget_kernels()
        x, grad = (signals((70, 4, 16386), 0.3, torch.float32).cuda() for _ in range(2))
        with pytest.warns(UserWarning, match="slower kernels on this device: libnvrtc"):
            found = outcome(x, grad, 5)
        forget_kernels()
        for a, b in zip(found, outcome(x, grad, 5, by=reference), strict=True):
            assert error(a, b) < TOLERANCE[torch.float32]
