"""Kernels that are launched before the one before them has ended wait for it first."""

from types import SimpleNamespace

import pytest
import torch

from psdnorm.ops.reference import Spec
from psdnorm.ops.triton import launch as cuda

pytest.importorskip("triton", reason="the kernels need triton")


class Kernel:
    """Remembers what it was launched with."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self.calls.append((arguments[1:], options))
            return self  # compiled[grid] launches again

        return launch


@pytest.mark.parametrize("is_early", [True, False])
def test_a_kernel_is_told_whether_it_is_early(monkeypatch, is_early):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "_launches_early", lambda device: is_early)
    kernel, place = Kernel(), SimpleNamespace(type="cuda", index=0)
    x = SimpleNamespace(device=place, dtype=torch.float32, data_ptr=lambda: 16)
    launch = cuda.Launch(kernel, (1, 1, 1), (3, 4), 2, may_be_early=True)
    launch(x)
    launch(x)
    (first, compiled_for), (second, _) = kernel.calls
    assert first == second == (3, 4, is_early)
    assert compiled_for == {"num_warps": 2} | ({"launch_pdl": True} if is_early else {})


@pytest.mark.parametrize(
    ("capability", "hip", "interpreted", "is_early"),
    [
        ((8, 6), None, "0", False),
        ((9, 0), None, "0", True),
        ((10, 0), None, "0", False),
        ((9, 0), "6.4", "0", False),
        ((9, 0), None, "1", False),
    ],
)
def test_kernels_are_early_where_that_was_tried(
    monkeypatch, capability, hip, interpreted, is_early
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    assert cuda._launches_early.__wrapped__(0) == is_early


def test_other_kernels_have_nothing_added(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel, place = Kernel(), SimpleNamespace(type="cuda", index=0)
    x = SimpleNamespace(device=place, dtype=torch.float32, data_ptr=lambda: 16)
    cuda.Launch(kernel, (1, 1, 1), (3, 4), 2)(x)
    assert kernel.calls == [((3, 4), {"num_warps": 2})]


def launches():
    shape, stride = (2, 3, 400), (1200, 400, 1)
    *measure, _ = cuda._measure_plan(shape, stride, 4, Spec(2))
    by_domain = Spec(2, statistics="domain", center="domain", eps_mode="relative")
    backward, *_ = cuda._backward_plan(shape, stride, stride, 4, Spec(2), True)
    return [
        *measure,
        cuda._barycenter_plan(2, 3, 2, 0.01, False, None),
        cuda._barycenter_plan(2, 3, 2, 0.01, True, Spec(2)),
        cuda._pool_plan(shape, stride, by_domain),
        cuda._pool_slopes_plan(*shape, by_domain),
        cuda._filter_plan(shape, stride, 4, Spec(2), True, True),
        *backward,
    ]


def ptx_of(launch):
    """Compile a kernel for compute capability 9, which needs no device."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = launch.kernel.arg_names
    given = (*launch.arguments, True)
    values = dict(zip(names[-len(given) :], given, strict=True))
    constants = {p.name: values[p.name] for p in launch.kernel.params if p.is_constexpr}
    numbers = {n: "fp32" if isinstance(v, float) else "i32" for n, v in values.items()}
    integers = dict.fromkeys(("n_tracked", "n_skipped", "packed"), "*i64")
    signature = {n: numbers.get(n, integers.get(n, "*fp32")) for n in names}
    signature |= dict.fromkeys(constants, "constexpr")
    at = {(names.index(n),): value for n, value in constants.items()}
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=at)
    options = {"num_warps": launch.num_warps, "launch_pdl": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


@pytest.mark.filterwarnings("ignore")  # of triton, about its own future
@pytest.mark.parametrize("index", range(10))
def test_nothing_is_read_or_written_before_the_kernel_before_has_ended(index):
    assert len(launches()) == 10
    ptx = ptx_of(launches()[index])
    waits = ptx.index("griddepcontrol.wait")
    accesses = [ptx.find(kind) for kind in ("ld.global", "st.global", "atom.global", "red.global")]
    assert any(at >= 0 for at in accesses)
    assert all(at == -1 or at > waits for at in accesses)


def test_long_filters_have_larger_chunks_of_smaller_tiles():
    shape = 64, 6, 105_000
    stride = 6 * 105_000, 105_000, 1
    short, long = (cuda._filter_plan(shape, stride, 4, Spec(taps), False, False) for taps in (8, 9))
    assert long.num_warps < short.num_warps
    assert 0.45 < long.grid[0] / short.grid[0] < 0.55
