"""Time whole models, each with each norm: ``python -m benchmarks.step``.

On a CUDA device: sequences per second and peak memory of training (forward, backward, Adam) and of
inference, in the fast configuration of :func:`psdnorm.models.accelerate` and in plain eager
float32. Every case has a process of its own. They compile side by side; then they are timed one
after the other, while the others do nothing. Elsewhere: seconds for one night, on two threads.
"""

import argparse
import copy
import csv
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from multiprocessing.connection import Connection

import torch
from torch import nn

from benchmarks import check_table
from benchmarks.norms import environment
from psdnorm.models import CNNTransformer, USleep, accelerate
from psdnorm.models.acceleration import is_random
from psdnorm.models.norms import NORMS
from psdnorm.runtime import sigterm_as_ctrl_c

MODELS = {"U-Sleep": USleep, "CNNTransformer": CNNTransformer}
N_EPOCHS, N_CHANS, N_TIMES = 35, 2, 3000
NIGHT, STRIDE = 960, 21
WARM_UP, REPEATS = 6, 5
MOST_ERROR = 0.05  # of the logits of a network that has learned for a few steps, in bfloat16
COLUMNS = (
    "model", "norm", "mode", "batch", "training_per_s", "step_ms", "overhead_over_batchnorm",
    "peak_memory_gb", "inference_per_s", "inference_peak_memory_gb", "night_s",
    "device", "torch", "triton", "commit",
)  # fmt: skip


def seconds(run: Callable[[], object], iterations: int, synchronize: Callable[[], object]) -> float:
    """Median over repeats of the wall time of one iteration."""
    times = []
    for _ in range(REPEATS):
        synchronize()
        begin = time.perf_counter()
        for _ in range(iterations):
            run()
        synchronize()
        times.append((time.perf_counter() - begin) / iterations)
    return statistics.median(times)


def training_step(model: nn.Module, forward: Callable, x: torch.Tensor) -> Callable[[], None]:
    """One step of training, as a function without arguments."""
    stages = torch.randint(0, 5, (x.shape[0], x.shape[1]), device=x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=x.is_cuda)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(x), stages).backward()
        optimizer.step()

    return step


def check_parity(model: nn.Module, forward: Callable, x: torch.Tensor) -> None:
    """Raise if a forward pass does not compute what the model does."""
    plain = copy.deepcopy(model)
    with torch.no_grad():
        expected = plain(x)
    error = float((forward(x).detach() - expected).norm() / expected.norm())
    if not error < MOST_ERROR:
        raise RuntimeError(f"outputs are off by {error:.2g} of their size: not timed")


def gpu_case(name: str, norm: str, mode: str, batch: int, iterations: int) -> Iterator[dict]:
    """Warm up, wait to be asked, measure: yields an empty row, then the row of the table."""
    torch.manual_seed(0)
    model = MODELS[name](norm=norm).cuda()
    forward = accelerate(model, fast=mode == "fast")
    x = torch.randn(batch, N_EPOCHS, N_CHANS, N_TIMES, device="cuda")
    step = training_step(model, forward, x)

    def infer() -> None:
        with torch.no_grad():
            forward(x)

    for _ in range(WARM_UP):
        step()
    memory = torch.cuda.max_memory_allocated() / 1e9
    if not is_random(model):
        check_parity(model, forward, x)
    torch.cuda.reset_peak_memory_stats()
    model.eval()
    for _ in range(WARM_UP):
        infer()
    with torch.no_grad():
        check_parity(model, forward, x)
    torch.cuda.synchronize()
    # with the weights, the optimizer's state and, in the fast mode, the training graph beside it
    inference_memory = torch.cuda.max_memory_allocated() / 1e9
    yield {}
    inference = seconds(infer, iterations, torch.cuda.synchronize)
    model.train()
    training = seconds(step, iterations, torch.cuda.synchronize)
    yield {
        "training_per_s": f"{batch / training:.0f}",
        "step_ms": f"{training * 1e3:.3f}",
        "peak_memory_gb": f"{memory:.2f}",
        "inference_per_s": f"{batch / inference:.0f}",
        "inference_peak_memory_gb": f"{inference_memory:.2f}",
    }


def _work(pipe: Connection, *case) -> None:
    try:
        for row in gpu_case(*case):
            pipe.send(row)
            pipe.recv()
    except Exception as error:  # the parent tells which case it was; the others go on
        pipe.send({"failed": " ".join(f"{type(error).__name__}: {error}".split())[:200]})


def _answer(pipe: Connection, request: str | None = None) -> dict:
    """Return what a worker says, or that it died."""
    try:
        if request:
            pipe.send(request)
        return pipe.recv()
    except (EOFError, OSError):
        return {"failed": "its process died"}


def gpu_rows(cases: list[tuple[str, str, str]], batch: int, iterations: int) -> Iterator[dict]:
    """Start a process for each case, wait for all, then measure one by one."""
    context = multiprocessing.get_context("spawn")
    workers = []
    for case in cases:
        here, there = context.Pipe()
        worker = context.Process(target=_work, args=(there, *case, batch, iterations), daemon=True)
        worker.start()
        there.close()  # the worker's alone: when it dies, the pipe ends
        workers.append((case, here, worker))
    warm = [_answer(here) for _, here, _ in workers]
    for (case, here, worker), answer in zip(workers, warm, strict=True):
        if not answer:
            answer = _answer(here, "measure")
        with suppress(OSError):
            here.send("stop")
        worker.join()
        yield dict(zip(("model", "norm", "mode"), case, strict=True)) | {"batch": batch} | answer


def night_rows(cases: list[tuple[str, str, str]]) -> Iterator[dict]:
    """Seconds on a processor for one night in windows of 35 epochs, every epoch scored."""
    starts = [*range(0, NIGHT - N_EPOCHS, STRIDE), NIGHT - N_EPOCHS]
    night = torch.randn(NIGHT, N_CHANS, N_TIMES)
    for name, norm, mode in cases:
        model = MODELS[name](norm=norm).eval()

        @torch.no_grad()
        def stage(model: nn.Module = model) -> None:
            # few windows at a time: their features stay near the processor
            for first in range(0, len(starts), 4):
                model(torch.stack([night[s : s + N_EPOCHS] for s in starts[first : first + 4]]))

        stage()
        took = seconds(stage, 1, lambda: None)
        yield {"model": name, "norm": norm, "mode": mode, "batch": 4, "night_s": f"{took:.4f}"}


def with_overhead(rows: list[dict]) -> None:
    """Add what each norm costs over BatchNorm in the same model and configuration."""
    key = "night_s" if rows and "night_s" in rows[0] else "step_ms"
    bases = {(r["model"], r["mode"]): r[key] for r in rows if r["norm"] == "batch" and key in r}
    for row in rows:
        base = bases.get((row["model"], row["mode"]))
        if base and key in row:
            row["overhead_over_batchnorm"] = f"{float(row[key]) / float(base) - 1:+.1%}"


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--norms", nargs="+", choices=NORMS, default=list(NORMS))
    parser.add_argument("--modes", nargs="+", choices=["fast", "eager"], help="on a CUDA device")
    parser.add_argument("--batch", type=_count, default=64, help="on a CUDA device")
    parser.add_argument("--iterations", type=_count, default=20, help="on a CUDA device")
    parser.add_argument("--csv", default="step.csv")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu" and chosen.modes and "fast" in chosen.modes:
        parser.error("--modes fast needs a CUDA device, found none or --device cpu")
    check_table(parser, chosen.csv)
    return chosen


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a case failed."""
    chosen = _arguments(arguments)
    where = environment(chosen.device)
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    if chosen.device == "cpu":
        torch.set_num_threads(2)
        rows = night_rows(list(product(chosen.models, chosen.norms, ["eager"])))
    else:
        cases = list(product(chosen.models, chosen.norms, chosen.modes or ["fast", "eager"]))
        rows = gpu_rows(cases, chosen.batch, chosen.iterations)
    measured: list[dict] = []
    try:
        with sigterm_as_ctrl_c():
            for row in rows:
                measured.append(row)
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    finally:  # interrupted, too: what was measured is kept
        done = [row for row in measured if "failed" not in row]
        with_overhead(done)
        with open(chosen.csv, "w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(row | where for row in done)
    for row in done:
        print(f"{row['model']}, {row['norm']}, {row['mode']}:", row.get("overhead_over_batchnorm"))
    return 0 if len(done) == len(measured) else 1


if __name__ == "__main__":
    sys.exit(main())
