"""Kernels that keep rows on the chip compute what the plain path computes, gradients included.

Elsewhere than on a device that has them, the same source is compiled for the processor, where
every CUDA thread is a thread and the copy engines are late at random (``resident_emulation``).
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from triton_kernels import TOLERANCE as ON_THE_DEVICE
from triton_kernels import empty_memory_is_nan, gpu, waiting_for_the_host_is_an_error

from psdnorm.ops import cuda, fused, nvrtc, reference, resident

LANES = 8
SHIM = Path(__file__).parent / "resident_emulation"
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 4e-3}
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to emulate the device")


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    """Compile the kernel of a task for a filter size, dtype and length, each once."""
    folder, built = tmp_path_factory.mktemp("emulation"), {}
    compiler = ["g++", "-std=c++17", "-O1", "-pthread", "-w", f"-DLANES={LANES}"]
    # what is the same for all, the standard library above all, is read once
    shutil.copy(SHIM / "device.h", folder)
    subprocess.run([*compiler, "-x", "c++-header", folder / "device.h"], check=True)

    def build(task, filter_size, dtype, length):
        align = int(np.gcd(16 // dtype.itemsize, length))
        key = task, filter_size, dtype, align
        if key not in built:
            built[key] = folder / f"{task}-{len(built)}"
            files = [*resident.sources(task), SHIM / "main.h"]
            source = folder / f"{built[key].name}.cpp"
            text = "".join(file.read_text() for file in files)
            source.write_text(f'#include "device.h"\n#define TASK {task.title()}\n{text}')
            defined = resident.definitions(filter_size, dtype, align)
            subprocess.run([*compiler, *defined, source, "-o", built[key]], check=True)
        return built[key]

    return build


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def signals(shape, mean, dtype):
    x = draw(*shape)
    return (x + 0.6 * x.roll(1, -1) + mean).to(dtype)


def run(binary, task, x, filter_size, cluster_size, warps, clusters, arrays, affine, eps):
    """Emulate; everything that the kernel wrote, in one array."""
    n_signals = 2 if task == "backward" else 1
    cut = resident.cut_to(
        x.shape[-1], filter_size, x.element_size(), n_signals, cluster_size, warps, LANES
    )
    program = binary(task, filter_size, x.dtype, x.shape[-1])
    given = {"grad": n_signals == 2, "weight": affine, "bias": affine and n_signals == 1}
    n, channels, length = x.shape
    arguments = resident._Arguments(
        rows=n * channels,
        channels=channels,
        length=length,
        segments=reference.n_segments(length, filter_size),
        cluster_size=cluster_size,
        clusters=min(clusters, n * channels),
        slice=cut.slice,
        chunks=cut.chunks,
        room=cut.room,
        eps=eps,
        **{name: int(is_given) for name, is_given in given.items()},
    )
    source, target = program.with_suffix(".in"), program.with_suffix(".out")
    with source.open("wb") as file:
        file.write(bytes(arguments))
        file.write(np.array([warps, cut.shared_bytes], dtype=np.int32).tobytes())
        for array in (x, *arrays):
            file.write(array.float().contiguous().numpy().tobytes())
    subprocess.run([program, source, target], check=True, timeout=60)
    return torch.from_numpy(np.fromfile(target, dtype=np.float32))


def split(found, *shapes):
    parts = found.split([int(np.prod(shape)) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def error(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


# shape, filter size, programs of a cluster, warps of a program, clusters, affine, mean
CASES = [
    ((3, 2, 1000), 1, 1, 3, 2, True, 3.0),
    ((2, 2, 1002), 1, 2, 2, 1, False, 0.0),
    ((5, 1, 1154), 2, 2, 2, 1, True, 5e3),
    ((2, 2, 2004), 3, 2, 3, 1, True, -20.0),
    ((2, 3, 2002), 5, 2, 3, 1, True, 3e3),
    ((4, 1, 4000), 5, 4, 3, 1, False, 3.0),
    ((2, 1, 98), 5, 2, 2, 1, True, 0.0),
    ((7, 1, 866), 8, 2, 2, 2, True, 5e3),
    ((2, 2, 3462), 17, 2, 2, 1, True, 1.0),
]


def cases(more=()):
    values = [*CASES, *more]
    return pytest.mark.parametrize(
        ("shape", "filter_size", "cluster_size", "warps", "clusters", "affine", "mean"),
        values,
        ids=[f"{v[0]} f={v[1]}" for v in values],
    )


def check_backward(binary, shape, filter_size, cut, affine, mean, dtype):
    n, channels, length = shape
    # one segment, whose mean is zero: only a large eps keeps its first bin away from 0 / 0
    eps = 1e-3 if length > 2 * filter_size else 0.1
    x = signals(shape, mean, dtype)
    # related to x: what comes through the PSD must weigh as much as the rest
    grad = (draw(*shape, seed=4) + 0.1 + 0.5 * (x - mean)).to(dtype)
    target = 0.5 + draw(channels, filter_size // 2 + 1, seed=1).abs()
    weight = 1 + 0.2 * draw(channels, seed=2) if affine else None
    leaf = x.double().requires_grad_()
    offset, psd = reference.row_statistics(leaf, filter_size, eps)
    plain = reference.normalize(leaf, offset, psd, target.double(), filter_size)
    scaled = plain if weight is None else plain * weight.double()[:, None]
    scaled.backward(grad.double())
    sums = torch.stack([(grad.double() * plain.detach()).sum(-1), grad.double().sum(-1)], -1)
    arrays = [grad, offset.detach(), psd.detach(), target, *([weight] if affine else [])]
    found = run(binary, "backward", x, filter_size, *cut, arrays, affine, eps)
    dx, row_sums = split(found, shape, (n, channels, 2))
    assert error(dx, leaf.grad) < TOLERANCE[dtype]
    assert (row_sums - sums).abs().max() < 5e-6 * sums.abs().max()
    assert torch.equal(found, run(binary, "backward", x, filter_size, *cut, arrays, affine, eps))


def check_forward(binary, shape, filter_size, cut, affine, mean, dtype):
    n, channels, length = shape
    eps = 1e-3 if length > 2 * filter_size else 0.1
    x, bins = signals(shape, mean, dtype), filter_size // 2 + 1
    target = 0.5 + draw(channels, bins, seed=1).abs()
    weight = 1 + 0.2 * draw(channels, seed=2) if affine else None
    bias = draw(channels, seed=3) if affine else None
    wide = [p.double() if affine else None for p in (weight, bias)]
    offset, psd = reference.row_statistics(x.double(), filter_size, eps)
    y = reference.normalize(x.double(), offset, psd, target.double(), filter_size, *wide)
    arrays = [target, *([weight, bias] if affine else [])]
    found = run(binary, "forward", x, filter_size, *cut, arrays, affine, eps)
    written = split(found, shape, (n, channels), (n, channels, bins))
    assert error(written[0], y) < TOLERANCE[dtype]
    assert (written[1] - offset).abs().max() < 2e-6
    assert ((written[2] - psd) / psd).abs().max() < 5e-6
    assert torch.equal(found, run(binary, "forward", x, filter_size, *cut, arrays, affine, eps))


@emulated
class TestEmulated:
    @cases([((3, 2, 6), 5, 2, 1, 1, False, 0.0), ((5, 1, 18), 17, 1, 2, 1, True, 0.0)])
    def test_the_gradient_matches_float64(
        self, binary, shape, filter_size, cluster_size, warps, clusters, affine, mean
    ):
        cut = cluster_size, warps, clusters
        check_backward(binary, shape, filter_size, cut, affine, mean, torch.float32)

    @cases([((3, 2, 6), 5, 2, 1, 1, False, 0.0), ((5, 1, 18), 17, 1, 2, 1, True, 0.0)])
    def test_rows_carried_onto_a_target_match_float64(
        self, binary, shape, filter_size, cluster_size, warps, clusters, affine, mean
    ):
        cut = cluster_size, warps, clusters
        check_forward(binary, shape, filter_size, cut, affine, mean, torch.float32)

    @pytest.mark.parametrize("check", [check_backward, check_forward])
    # the last part of a row of 578 has two samples, less than a vector, and starts anywhere in it
    @pytest.mark.parametrize("length", [2000, 578])
    def test_half_precision(self, binary, check, length):
        check(binary, (3, 2, length), 5, (2, 2, 1), True, 0.3, torch.bfloat16)

    # 2e19: its square is the only thing that overflows
    @pytest.mark.parametrize("value", [float("nan"), 2e19])
    def test_a_row_that_is_not_finite_spoils_only_itself(self, binary, value):
        x, results = signals((3, 1, 1154), 0.3, torch.float32), []
        for sample in (x[1, 0, 777].clone(), value):
            x[1, 0, 777] = sample
            written = run(binary, "forward", x, 2, 2, 2, 1, [torch.ones(1, 2)], False, 1e-3)
            results.append(written[: x.numel()].view_as(x))
        healthy, found = results
        assert not found[1].isfinite().any()
        assert torch.equal(found[::2], healthy[::2])

    def test_rounding_makes_no_power_negative(self, binary):
        """Samples that alternate have none at frequency zero."""
        n, length, eps = 8, 1154, 1e-9
        heights = draw(n, 1, 1).abs()
        x = heights * (1 - 2 * (torch.arange(length) % 2))
        cut, target = (2, 2, 2), torch.ones(1, 2)
        found = run(binary, "forward", x, 2, *cut, [target], False, eps)
        y, _, psd = split(found, x.shape, (n, 1), (n, 1, 2))
        assert (psd >= eps).all()
        assert y.isfinite().all()


def outcome(x, grad, filter_size, eps=1e-3, affine=True, by=fused):
    """Everything there is to compare: output and gradients of x, weight and bias."""
    channels, bins = x.shape[1], filter_size // 2 + 1
    target = 0.5 + draw(channels, bins, seed=1).abs()
    parameters = [1 + 0.2 * draw(channels, seed=2), draw(channels, seed=3)]
    wide = torch.float64 if by is reference else torch.float32
    signal, upstream = (s.double() if by is reference else s for s in (x, grad))
    leaves = [signal.detach().clone(), *(p.to(x.device, wide) for p in parameters)]
    leaves = [leaf.requires_grad_() for leaf in leaves[: 3 if affine else 1]]
    target = target.to(x.device, wide)
    if by is reference:
        measured = reference.row_statistics(leaves[0], filter_size, eps)
        y = reference.normalize(leaves[0], *measured, target, filter_size, *leaves[1:])
    else:
        with empty_memory_is_nan():
            y = fused.measure_and_normalize(leaves[0], target, filter_size, eps, *leaves[1:])
    with empty_memory_is_nan():
        return [y.detach(), *torch.autograd.grad(y, leaves, upstream)]


def forget_kernels():
    resident._kernel.cache_clear()
    resident._compiled.cache_clear()


def served(x, filter_size, window="boxcar", padding_mode="circular", detrend="row"):
    return resident.serves((x,), filter_size, window, padding_mode, detrend)


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="needs a device of compute capability 9",
)
class TestOnTheDevice:
    pytestmark = gpu

    def compare(self, shape, filter_size, dtype=torch.float32, mean=0.3, **options):
        x = signals(shape, mean, dtype).cuda()
        grad = draw(*shape, seed=4).to(x)
        assert resident.serves((x, grad), filter_size, "boxcar", "circular", "row")
        assert served(x, filter_size)
        found = outcome(x, grad, filter_size, **options)
        expected = outcome(x, grad, filter_size, by=reference, **options)
        for a, b in zip(found, expected, strict=True):
            assert error(a, b) < ON_THE_DEVICE[dtype]

    @pytest.mark.parametrize("length", [6000, 16386])
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
        [((16, 6, 105000), 5), ((16, 9, 52500), 2), ((16, 11, 26250), 1), ((6, 6, 200000), 5)],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_the_shapes_of_the_models(self, shape, filter_size, dtype, affine):
        self.compare(shape, filter_size, dtype, affine=affine)

    def test_a_large_mean_costs_no_digits(self):
        self.compare((70, 4, 16386), 5, mean=1e3)

    def test_a_constant_row_becomes_exact_zeros(self):
        x = torch.full((70, 4, 16386), 0.1, device="cuda")
        assert served(x, 5)
        assert not fused.measure_and_normalize(x, torch.ones(4, 3, device="cuda"), 5).any()

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
        statistics = (*cuda.row_statistics(x, 5), torch.ones(4, 3, device="cuda"))
        forget_kernels()

        def differentiate():
            assert resident.serves((x, grad), 5, "boxcar", "circular", "row")
            return cuda.normalize_backward(grad, x, *statistics, 5)

        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
            results = [pool.submit(differentiate).result() for pool in (one, other)]
        assert torch.equal(results[0][0], results[1][0])

    def test_a_cuda_graph_can_hold_it_and_nothing_waits_for_the_host(self):
        x = signals((70, 4, 16386), 0.3, torch.float32).cuda().requires_grad_()
        target, grad = torch.ones(4, 3, device="cuda"), torch.randn_like(x)

        def run():
            y = fused.measure_and_normalize(x, target, 5)
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
            assert error(a, b) < ON_THE_DEVICE[torch.float32]


def test_a_variable_leaves_all_to_the_other_kernels():
    command = [sys.executable, "-c", "from psdnorm.ops import resident; print(resident.ENABLED)"]
    for value, enabled in (("0", "False"), ("1", "True")):
        environment = {**os.environ, "PSDNORM_RESIDENT": value}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert run.stdout.strip() == enabled


def test_elsewhere_it_serves_nothing():
    assert not served(torch.randn(70, 4, 16386), 5)


@pytest.mark.parametrize(("n_signals", "itemsize"), [(1, 4), (2, 4), (1, 2), (2, 2)])
def test_a_cut_row_fits_into_shared_memory_and_leaves_nothing_out(n_signals, itemsize):
    for length in (*range(6000, 210_000, 5002), 105_000, 52_500, 26_250):
        for filter_size in (1, 2, 5, 8):
            cut = resident._cut(length, filter_size, itemsize, n_signals)
            assert cut.shared_bytes <= resident._ALONE
            assert cut.slice * cut.cluster_size * cut.warps >= length
            hop = filter_size - filter_size // 2
            assert cut.slice % hop == 0
            assert cut.warps * resident._LANES <= 384  # __launch_bounds__
