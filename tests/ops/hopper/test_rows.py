"""Kernels that keep rows on the chip compute what the plain path computes, gradients included.

Elsewhere than on a device that has them, the same source is compiled for the processor, where
every CUDA thread is a thread and the copy engines are late at random (``resident_emulation``).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hopper_rows import draw, error, signals

from psdnorm.ops import reference
from psdnorm.ops.hopper import rows as resident
from psdnorm.ops.reference import Spec

LANES = 8
SHIM = Path(__file__).parent / "resident_emulation"
TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 4e-3}
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to emulate the device")


@pytest.fixture(scope="session")
def emulator(made_once):
    """A program with every kernel under test, each in a namespace, and their places in it.

    What they share, the standard library above all, is compiled once.
    """
    kernels = kernels_under_test()
    text = ['#include "device.h"\n']
    for place, (task, *kernel) in enumerate(kernels):
        options = [option.removeprefix("-D") for option in resident.definitions(*kernel)]
        options += [f"TASK={task.title()}", f"resident_kernel=kernel_{place}"]
        text += [f"#define {option.replace('=', ' ', 1)}\n" for option in options]
        files = [*resident.sources(task), SHIM / "emulate.h"]
        text += [f"namespace n{place} {{", *(file.read_text() for file in files), "}\n"]
        text += [f"#undef {option.partition('=')[0]}\n" for option in options]
    kernels_here = ", ".join(f"n{place}::emulate" for place in range(len(kernels)))
    text += [
        f"void (*const kernels[])(const char*, const char*) = {{{kernels_here}}};\n"
        "int main(int, char** given) { kernels[std::atoi(given[3])](given[1], given[2]); }\n"
    ]

    def compile_into(folder):
        source, program = folder / "kernels.cpp", folder / "kernels"
        source.write_text("".join(text))
        compiler = ["g++", "-std=c++17", "-pthread", "-w", f"-DLANES={LANES}", f"-I{SHIM}"]
        subprocess.run([*compiler, source, "-o", program], check=True)

    program = made_once("resident_emulation", compile_into) / "kernels"
    return program, {kernel: place for place, kernel in enumerate(kernels)}


def kernels_under_test():
    """Task, filter size, dtype and alignment of every kernel that a test here runs."""
    found = {}
    for task, more in (("backward", MORE_BACKWARD), ("forward", MORE_FORWARD)):
        for shape, filter_size, *_ in (*CASES, *more):
            found[kernel_of(task, shape, filter_size, torch.float32)] = None
        for length in HALF_LENGTHS:
            found[kernel_of(task, (1, 1, length), 5, torch.bfloat16)] = None
    return list(found)


def kernel_of(task, shape, filter_size, dtype):
    return task, filter_size, dtype, int(np.gcd(16 // dtype.itemsize, shape[-1]))


def run(emulator, task, x, filter_size, cluster_size, warps, clusters, arrays, affine, eps):
    """Emulate; everything that the kernel wrote, in one array."""
    n_signals = 2 if task == "backward" else 1
    cut = resident.cut_to(
        x.shape[-1], filter_size, x.element_size(), n_signals, cluster_size, warps, LANES
    )
    program, places = emulator
    place = places[kernel_of(task, x.shape, filter_size, x.dtype)]
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
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in"), Path(folder, "out")
        with source.open("wb") as file:
            file.write(bytes(arguments))
            file.write(np.array([warps, cut.shared_bytes], dtype=np.int32).tobytes())
            for array in (x, *arrays):
                file.write(array.float().contiguous().numpy().tobytes())
        subprocess.run([program, source, target, str(place)], check=True, timeout=600)
        return torch.from_numpy(np.fromfile(target, dtype=np.float32))


def split(found, *shapes):
    parts = found.split([int(np.prod(shape)) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


# shape, filter size, programs of a cluster, warps of a program, clusters, affine, mean
CASES = [
    ((3, 2, 1000), 1, 1, 3, 2, True, 3.0),
    ((2, 2, 1002), 1, 2, 2, 1, False, 0.0),
    ((5, 1, 1154), 2, 2, 2, 1, True, 5e3),
    ((2, 2, 2004), 3, 2, 3, 1, True, -20.0),
    ((2, 3, 2002), 5, 2, 3, 1, True, 3e3),
    ((4, 1, 4000), 5, 4, 3, 1, False, 3.0),
    ((2, 1, 98), 5, 2, 2, 1, True, 0.0),
    ((2, 1, 1010), 5, 2, 1, 4, True, 0.0),  # a cluster for each row
    ((7, 1, 866), 8, 2, 2, 2, True, 5e3),
    ((2, 2, 3462), 17, 2, 2, 1, True, 1.0),
]


SHORTEST = [((3, 2, 6), 5, 2, 1, 1, False, 0.0), ((5, 1, 18), 17, 1, 2, 1, True, 0.0)]
MORE_BACKWARD = [*SHORTEST, ((2, 2, 1732), 12, 2, 2, 1, True, 5.0)]
MORE_FORWARD = SHORTEST
# the last part of a row of 578 has two samples, less than a vector, and starts anywhere in it
HALF_LENGTHS = [2000, 578]


def cases(more):
    values = [*CASES, *more]
    return pytest.mark.parametrize(
        ("shape", "filter_size", "cluster_size", "warps", "clusters", "affine", "mean"),
        values,
        ids=[f"{v[0]} f={v[1]}" for v in values],
    )


def check_backward(emulator, shape, filter_size, cut, affine, mean, dtype):
    n, channels, length = shape
    # one segment, whose mean is zero: only a large eps keeps its first bin away from 0 / 0
    eps = 1e-3 if length > 2 * filter_size else 0.1
    x = signals(shape, mean, dtype)
    # related to x: what comes through the PSD must weigh as much as the rest
    grad = (draw(*shape, seed=4) + 0.1 + 0.5 * (x - mean)).to(dtype)
    target = 0.5 + draw(channels, filter_size // 2 + 1, seed=1).abs()
    weight = 1 + 0.2 * draw(channels, seed=2) if affine else None
    leaf = x.double().requires_grad_()
    spec = Spec(filter_size, eps)
    offset, psd = reference.row_statistics(leaf, spec)
    plain = reference.normalize(leaf, offset, psd, target.double(), spec)
    scaled = plain if weight is None else plain * weight.double()[:, None]
    scaled.backward(grad.double())
    sums = torch.stack([(grad.double() * plain.detach()).sum(-1), grad.double().sum(-1)], -1)
    arrays = [grad, offset.detach(), psd.detach(), target, *([weight] if affine else [])]
    found = run(emulator, "backward", x, filter_size, *cut, arrays, affine, eps)
    dx, row_sums = split(found, shape, (n, channels, 2))
    assert error(dx, leaf.grad) < TOLERANCE[dtype]
    assert (row_sums - sums).abs().max() < 5e-6 * sums.abs().max()
    assert torch.equal(found, run(emulator, "backward", x, filter_size, *cut, arrays, affine, eps))


def check_forward(emulator, shape, filter_size, cut, affine, mean, dtype):
    n, channels, length = shape
    eps = 1e-3 if length > 2 * filter_size else 0.1
    x, bins = signals(shape, mean, dtype), filter_size // 2 + 1
    target = 0.5 + draw(channels, bins, seed=1).abs()
    weight = 1 + 0.2 * draw(channels, seed=2) if affine else None
    bias = draw(channels, seed=3) if affine else None
    wide = [p.double() if affine else None for p in (weight, bias)]
    spec = Spec(filter_size, eps)
    offset, psd = reference.row_statistics(x.double(), spec)
    y = reference.normalize(x.double(), offset, psd, target.double(), spec, *wide)
    arrays = [target, *([weight, bias] if affine else [])]
    found = run(emulator, "forward", x, filter_size, *cut, arrays, affine, eps)
    written = split(found, shape, (n, channels), (n, channels, bins))
    assert error(written[0], y) < TOLERANCE[dtype]
    assert (written[1] - offset).abs().max() < 2e-6
    assert ((written[2] - psd) / psd).abs().max() < 5e-6
    assert torch.equal(found, run(emulator, "forward", x, filter_size, *cut, arrays, affine, eps))


@emulated
class TestEmulated:
    @cases(MORE_BACKWARD)
    def test_the_gradient_matches_float64(
        self, emulator, shape, filter_size, cluster_size, warps, clusters, affine, mean
    ):
        cut = cluster_size, warps, clusters
        check_backward(emulator, shape, filter_size, cut, affine, mean, torch.float32)

    @cases(MORE_FORWARD)
    def test_rows_carried_onto_a_target_match_float64(
        self, emulator, shape, filter_size, cluster_size, warps, clusters, affine, mean
    ):
        cut = cluster_size, warps, clusters
        check_forward(emulator, shape, filter_size, cut, affine, mean, torch.float32)

    @pytest.mark.parametrize("check", [check_backward, check_forward])
    @pytest.mark.parametrize("length", HALF_LENGTHS)
    def test_half_precision(self, emulator, check, length):
        check(emulator, (3, 2, length), 5, (2, 2, 1), True, 0.3, torch.bfloat16)

    # 2e19: its square is the only thing that overflows
    @pytest.mark.parametrize("value", [float("nan"), 2e19])
    def test_a_row_that_is_not_finite_spoils_only_itself(self, emulator, value):
        x, results = signals((3, 1, 1154), 0.3, torch.float32), []
        for sample in (x[1, 0, 777].clone(), value):
            x[1, 0, 777] = sample
            written = run(emulator, "forward", x, 2, 2, 2, 1, [torch.ones(1, 2)], False, 1e-3)
            results.append(written[: x.numel()].view_as(x))
        healthy, found = results
        assert not found[1].isfinite().any()
        assert torch.equal(found[::2], healthy[::2])

    def test_rounding_makes_no_power_negative(self, emulator):
        """Samples that alternate have none at frequency zero."""
        n, length, eps = 8, 1154, 1e-9
        heights = draw(n, 1, 1).abs()
        x = heights * (1 - 2 * (torch.arange(length) % 2))
        cut, target = (2, 2, 2), torch.ones(1, 2)
        found = run(emulator, "forward", x, 2, *cut, [target], False, eps)
        y, _, psd = split(found, x.shape, (n, 1), (n, 1, 2))
        assert (psd >= eps).all()
        assert y.isfinite().all()


def test_a_variable_leaves_all_to_the_other_kernels():
    assert resident.ENABLED
    command = [sys.executable, "-c", "from psdnorm.ops.hopper import rows; print(rows.ENABLED)"]
    environment = {**os.environ, "PSDNORM_RESIDENT": "0"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("way", resident._SHORTEST_ROWS)
def test_longer_filters_need_longer_rows_and_some_are_never_served(way):
    shortest = [resident._shortest_row(*way, filter_size) for filter_size in range(1, 33)]
    assert shortest == sorted(shortest)
    assert shortest[-1] == float("inf")


def test_elsewhere_it_serves_nothing():
    assert not resident.serves((torch.randn(70, 4, 16386),), Spec(5))


def most_threads(n_signals, filter_size):
    """Return what the source says in __launch_bounds__."""
    source = resident.sources(resident._task(n_signals, Spec(5)))[-1].read_text()
    (bound,) = re.findall(r"__launch_bounds__\((.*?)\)", source)
    if bound.isdigit():
        return int(bound)
    limit, of_long, of_short = map(
        int, re.fullmatch(r"FILTER > (.*) \? (.*) : (.*)", bound).groups()
    )
    return of_long if filter_size > limit else of_short


@pytest.mark.parametrize(("n_signals", "itemsize"), [(1, 4), (2, 4), (1, 2), (2, 2)])
def test_a_cut_row_fits_into_shared_memory_and_leaves_nothing_out(n_signals, itemsize):
    for length in (*range(6000, 210_000, 5002), 105_000, 52_500, 26_250):
        for filter_size in range(1, 18):
            cut = resident._cut(length, filter_size, itemsize, n_signals)
            assert cut.shared_bytes <= resident._ALONE
            assert cut.slice * cut.cluster_size * cut.warps >= length
            hop = filter_size - filter_size // 2
            assert cut.slice % hop == 0
            # programs that leave room for others must leave them registers, too
            if cut.shared_bytes <= resident._PAIRED // 2 < n_signals * itemsize * length:
                assert filter_size <= 7
            assert cut.warps * resident._LANES <= most_threads(n_signals, filter_size)


@pytest.mark.parametrize(
    ("n", "clusters", "is_staggered"), [(3, 6, False), (12, 24, False), (64, 24, True)]
)
def test_a_launch_has_no_more_clusters_than_rows_and_a_counter(
    monkeypatch, n, clusters, is_staggered
):
    launched = []
    cut = resident.cut_to(6000, 5, 4, 1, 2, 4)
    kernel = resident._Kernel(lambda *given: launched.append(given), None, cut, 24)
    monkeypatch.setattr(resident, "_kernel", lambda *_: kernel)
    monkeypatch.setattr(resident, "claim_counter", lambda: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    resident.measure_and_normalize(torch.randn(n, 2, 6000), torch.ones(2, 3), Spec(5))
    ((n_clusters, _, arguments),) = launched
    assert n_clusters == arguments.clusters == clusters
    assert arguments.rows == 2 * n
    assert arguments.claims
    assert bool(arguments.stagger) == is_staggered
