"""Time PSDNorm beside torch's norms: ``python -m benchmarks.norms``.

On a CUDA device, GPU time by events around at least 50 iterations that were queued while the device
slept, so that it never waits for the host, and the wall time of the same iterations without that
help. Elsewhere, medians of wall time on two threads. A layer that a quick comparison with the
float64 reference finds wrong is not timed, and the command fails.
"""

import argparse
import csv
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from benchmarks import check_table, shapes
from psdnorm import PSDNorm, domains
from psdnorm.ops import BACKENDS, hopper

ITERATIONS = 50
REPEATS = 5
PHASES = ("training", "forward + backward", "eval")
# passes over a tensor of the size of x, reads and writes; torch's norms without a row kept on the
# chip (where a compiler keeps one, the share of the copy bandwidth comes out above 1)
PASSES = {
    "BatchNorm1d": {"training": 3, "forward + backward": 8, "eval": 2},
    "InstanceNorm1d": {"training": 3, "forward + backward": 8, "eval": 3},
    "PSDNorm": {"training": 3, "forward + backward": 8, "eval": 3},
    "PSDNorm, resident": {"training": 3, "forward + backward": 6, "eval": 2},
}
# further settings of the layer, for --options; PSDs are fixed in evaluation alone
OPTIONS = {
    "by domain": {"statistics": "domain"},
    "by domain, centred": {"statistics": "domain", "center": "domain"},
    "unit power": {"target_power": "unit"},
    "relative eps": {"eps_mode": "relative"},
    "fixed PSD": {"statistics": "domain"},
}
DOMAINS = 4  # in a batch
COLUMNS = (
    "case", "shape", "dtype", "filter_size", "norm", "mode", "phase", "ms", "wall_ms",
    "share_of_copy_bandwidth", "peak_memory_of_x", "device", "torch", "triton", "commit",
)  # fmt: skip
LINE = (
    "  {norm:27} {mode:9} {phase:19} {ms:>8} ms, wall {wall_ms:>8}, "
    "{share_of_copy_bandwidth} of copy, {peak_memory_of_x} x"
)


def layers(
    case: shapes.Case, device: str, backend: str, options: Iterable[str] = ()
) -> dict[str, nn.Module]:
    """Make the layers that a case compares."""
    channels = case.shape[1]
    made: dict[str, nn.Module] = {
        "BatchNorm1d": nn.BatchNorm1d(channels),
        "InstanceNorm1d": nn.InstanceNorm1d(channels),
        "PSDNorm": PSDNorm(channels, case.filter_size, backend=backend),
    }
    for name in options:
        layer = PSDNorm(channels, case.filter_size, backend=backend, **OPTIONS[name])
        if name == "fixed PSD":
            layer.fix_domain(*layer.unseen_domain())
        made[f"PSDNorm, {name}"] = layer
    return {name: layer.to(device, case.dtype) for name, layer in made.items()}


def step(layer: Callable, x: Tensor, grad: Tensor, phase: str) -> Callable[[], None]:
    """One iteration of a phase, as a function without arguments."""

    def forward() -> None:
        layer(x)

    def forward_and_backward() -> None:
        x.grad = None
        layer(x).backward(grad)

    return forward_and_backward if phase == "forward + backward" else forward


def gpu_ms(run: Callable[[], None]) -> tuple[float, float]:
    """GPU time and wall time of one iteration."""
    wall = _wall_ms(run)
    times = []
    for _ in range(REPEATS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # about two clock cycles a nanosecond, and half as long again as the host will need
        torch.cuda._sleep(int(1.5 * wall * ITERATIONS * 2e6))
        start.record()
        for _ in range(ITERATIONS):
            run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / ITERATIONS)
    return statistics.median(times), wall


def _wall_ms(run: Callable[[], None]) -> float:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(ITERATIONS):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / ITERATIONS * 1e3


def cpu_ms(run: Callable[[], None]) -> tuple[float, float]:
    """Median wall time of one iteration, twice: on a processor there is no other."""
    run()
    times = []
    for _ in range(2 * REPEATS):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return (statistics.median(times),) * 2


def passes(name: str, layer: nn.Module, phase: str, x: Tensor, grad: Tensor) -> int:
    """Count passes over a tensor of the size of x; fewer where rows stay on the chip."""
    kept = False
    if isinstance(layer, PSDNorm) and layer.backend != "reference":
        signals = (x, grad) if phase == "forward + backward" else (x,)
        spec = layer.spec
        if layer.adapted_psd is not None:
            spec = spec._replace(statistics="fixed")
        kept = hopper.serves(signals, spec)
    kind = name.partition(",")[0]
    return PASSES[f"{kind}, resident" if kept else kind][phase]


def copy_bytes_per_ms(device: str, measure: Callable) -> float:
    """Bytes read and written per millisecond by a large copy."""
    source = torch.randn(64 if device == "cuda" else 16, 6, 105_000, device=device)
    target = torch.empty_like(source)
    ms, _ = measure(lambda: target.copy_(source))
    return 2 * source.numel() * source.element_size() / ms


def is_right(
    case: shapes.Case, device: str, backend: str, mode: str = "eager", option: str | None = None
) -> bool:
    """Compare PSDNorm's outputs and gradient with the reference in float64, on the whole batch.

    The kernels that serve it depend on the size of the batch.
    """
    x = torch.randn(case.shape, device=device).to(case.dtype)
    grad = torch.randn_like(x)
    results = []
    options = [] if option is None else [option]
    truth, fast = (
        [*layers(case, device, kind, options).values()][-1] for kind in ("reference", backend)
    )
    truth = truth.double()
    for layer, dtype in ((fast, case.dtype), (truth, torch.float64)):
        run = torch.compile(layer, dynamic=False) if mode == "compiled" and layer is fast else layer
        leaf = x.to(dtype, copy=True).requires_grad_()
        y = run(leaf)
        y.backward(grad.to(dtype))
        layer.eval()
        with torch.no_grad():
            evaluated = run(leaf)
        results.append([t.detach().double() for t in (y, leaf.grad, evaluated)])
    tolerance = 1e-4 if case.dtype == torch.float32 else 2e-2
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(*results, strict=True)]
    if not all(error < tolerance for error in errors):
        about = ", ".join([case.name, mode, *options])
        print(f"{about}: outputs and gradient are off by {errors}: not timed", file=sys.stderr)
        return False
    return True


def measure_case(
    case: shapes.Case,
    device: str,
    backend: str,
    modes: Iterable[str],
    bandwidth: float,
    options: Iterable[str] = (),
) -> Iterator[dict]:
    """Rows of the table for one case."""
    measure = gpu_ms if device == "cuda" else cpu_ms
    x = torch.randn(case.shape, device=device).to(case.dtype).requires_grad_()
    grad = torch.randn(case.shape, device=device).to(case.dtype)
    size = x.numel() * x.element_size()
    for mode in modes:
        for name, layer in layers(case, device, backend, options).items():
            run_layer = torch.compile(layer, dynamic=False) if mode == "compiled" else layer
            for phase in PHASES[2:] if name.endswith("fixed PSD") else PHASES:
                layer.train(phase != "eval")
                run = step(run_layer, x, grad, phase)
                with torch.set_grad_enabled(phase != "eval"):
                    ms, wall = measure(run)
                    memory = _peak_memory(run, x) / size if device == "cuda" else float("nan")
                moved = passes(name, layer, phase, x, grad) * size
                yield {
                    "norm": name,
                    "mode": mode,
                    "phase": phase,
                    "ms": f"{ms:.4f}",
                    "wall_ms": f"{wall:.4f}",
                    "share_of_copy_bandwidth": f"{moved / ms / bandwidth:.2f}",
                    "peak_memory_of_x": f"{memory:.3f}",
                }
            torch._dynamo.reset()


def _peak_memory(run: Callable[[], None], x: Tensor) -> float:
    """Bytes allocated at the peak of one iteration, beyond what exists before it."""
    x.grad = None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    x.grad = None
    return torch.cuda.max_memory_allocated() - before


def environment(device: str) -> dict[str, str]:
    """Where and with what the numbers were measured."""
    try:
        import triton

        triton_version = triton.__version__
    except ImportError:
        triton_version = "none"
    git = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    is_cuda = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if is_cuda else f"{platform.machine()}, 2 threads",
        "torch": torch.__version__,
        "triton": triton_version,
        # a copy of the files may come with an older history
        "commit": os.environ.get("PSDNORM_COMMIT") or git.stdout.strip() or "unknown",
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a layer was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    modes = ["eager", "compiled"]
    parser.add_argument("--modes", nargs="+", choices=modes, default=modes)
    parser.add_argument(
        "--options", nargs="+", choices=list(OPTIONS), default=[], help="also time these settings"
    )
    parser.add_argument("--only", default="", help="cases whose name matches this expression")
    parser.add_argument("--csv", default="norms.csv")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu":
        torch.set_num_threads(2)
        chosen.modes = ["eager"]
    cases = shapes.GPU if chosen.device == "cuda" else shapes.CPU
    try:
        cases = [case for case in cases if re.search(chosen.only, case.name)]
    except re.error as error:
        parser.error(f"--only {chosen.only!r} is not a regular expression: {error}")
    if not cases:
        parser.error(f"--only {chosen.only!r} matches no case")
    check_table(parser, chosen.csv)
    where = environment(chosen.device)
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    bandwidth = copy_bytes_per_ms(chosen.device, gpu_ms if chosen.device == "cuda" else cpu_ms)
    print(f"a copy moves {bandwidth / 1e9:.2f} TB/s")
    wrong = 0
    with open(chosen.csv, "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for case in cases:
            with domains([DOMAINS * n // case.shape[0] for n in range(case.shape[0])]):
                right = [
                    is_right(case, chosen.device, chosen.backend, mode, option)
                    for mode in chosen.modes
                    for option in (None, *chosen.options)
                ]
            if not all(right):
                wrong = 1
                continue
            torch._dynamo.reset()
            print(f"\n{case.name}: {case.shape}, f = {case.filter_size}")
            about = {"case": case.name, "shape": case.shape, "filter_size": case.filter_size}
            about["dtype"] = str(case.dtype).removeprefix("torch.")
            how = chosen.device, chosen.backend, chosen.modes, bandwidth, chosen.options
            with domains([DOMAINS * n // case.shape[0] for n in range(case.shape[0])]):
                for row in measure_case(case, *how):
                    table.writerow(about | row | where)
                    file.flush()
                    print(LINE.format(**row), flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
