"""Time the store: ``python -m benchmarks.store``.

How fast random batches of 64 sequences are gathered as float32, from every residence and for both
types on disk, beside a plain copy of as many bytes from memory to memory (the bar: half its speed)
and, on a GPU, from pinned memory to the device in one piece (``share_of_transfer``). Files are in
the system's cache, as they are from the second epoch of a training on. And how long 15,000
recordings take, and how much memory: heads without signals are written, then the index is built
from them, read again, split, and drawn from.
"""

import argparse
import csv
import functools
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks import check_table
from benchmarks.norms import environment
from psdnorm.batches import Loader, class_weights, leave_one_dataset_out
from psdnorm.batches.loader import RESIDENCES
from psdnorm.store import Layout, Night, Store
from psdnorm.store.folder import night_path
from psdnorm.store.night import encode_head

N_NIGHTS, N_EPOCHS, N_TIMES = 16, 960, 3000
N_RECORDINGS = 15_000
N_BATCHES = 100
MOST_SECONDS, MOST_BYTES = 10, 2e9
COLUMNS = ("what", "dtype", "residence", "ms", "gb_per_s", "share_of_copy", *(
    "share_of_transfer", "peak_gb", "device", "torch", "triton", "commit",
))  # fmt: skip


def _ms(run: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def fill(folder: Path, dtype: str) -> Store:
    """Make a store of nights of noise."""
    store = Store.create(folder / dtype, {"name": "noise"}, Layout(2, N_TIMES, 100.0, dtype))
    rng = np.random.default_rng(0)
    for number in range(N_NIGHTS):
        signals = 20 * rng.standard_normal((N_EPOCHS, 2, N_TIMES), dtype=np.float32)
        stages = rng.integers(0, 5, N_EPOCHS)
        store.add(Night(f"n{number}", "noise", str(number), signals, stages, simulated=True))
    store.finish()
    return store


def time_reading(folder: Path, device: str) -> Iterator[dict]:
    """Rows on how fast batches come."""
    for dtype in ("float16", "float32"):
        store = fill(folder, dtype)
        for residence in RESIDENCES:
            loader = Loader(store, store.index, last="drop", device=device, residence=residence)
            list(loader.epoch(0, max(0, len(loader) - 2)))  # maps and caches what every batch needs
            shape = (loader.batch_size, loader.sequences.length, 2, N_TIMES)
            ms, peers = _times(loader, shape, device)
            yield {
                "what": "batch of 64",
                "dtype": dtype,
                "residence": residence,
                "ms": f"{ms:.2f}",
                "gb_per_s": f"{4 * math.prod(shape) / ms / 1e6:.2f}",
                **{f"share_of_{name}": f"{own / ms:.2f}" for name, own in peers.items()},
            }


def _times(loader: Loader, shape: tuple[int, ...], device: str) -> tuple[float, dict[str, float]]:
    """Milliseconds of a batch, and of copies of it, in turns: others work here too.

    Whole epochs take turns, not batches: a loader that reads ahead would go on beside the copies,
    which slows them, and be measured without what it read meanwhile. The copies read from memory as
    large as the store, since 54 MB read again and again would come from the processor's cache.
    """
    n_parts = max(1, N_NIGHTS * N_EPOCHS // math.prod(shape[:2]))
    sources = itertools.cycle(torch.randn(n_parts, *shape))
    target = torch.empty(shape)
    copies: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(next(sources))}
    if device == "cuda":
        pinned, arrived = torch.randn(shape).pin_memory(), torch.empty(shape, device=device)
        copies["transfer"] = lambda: arrived.copy_(pinned)
    read: list[float] = []
    copied: dict[str, list[float]] = {name: [] for name in copies}
    n_batches = len(loader)
    for epoch in range(math.ceil(N_BATCHES / n_batches)):
        read.append(_ms(functools.partial(_draw, loader, epoch), device) / n_batches)
        for name, copy in copies.items():
            copied[name] += [_ms(copy, device) for _ in range(n_batches)]
    return statistics.median(read), {name: statistics.median(ms) for name, ms in copied.items()}


def _draw(loader: Loader, epoch: int) -> None:
    for _ in loader.epoch(epoch):
        pass


def write_heads(folder: Path) -> None:
    """Make a store of 15,000 recordings whose signals take no room."""
    store = Store.create(folder, {"name": "heads"})
    rng = np.random.default_rng(0)
    texts = ("visit", "channels", "flags", "source", "checksum")
    for number in range(N_RECORDINGS):
        record = dict.fromkeys(texts, "") | {
            "recording": f"n{number}",
            "cohort": f"c{number % 10}",
            "subject": str(number // 20),
            "simulated": True,
            "recipe": store.hash,
        }
        stages = rng.integers(-1, 5, N_EPOCHS, dtype=np.int8)
        head = encode_head(record, "0" * 64, stages, (N_EPOCHS, 2, 3000), "float16")
        path = night_path(folder, record["recording"])
        path.write_bytes(head)
        os.truncate(path, len(head) + N_EPOCHS * 2 * 3000 * 2)


def set_up(folder: Path) -> None:
    """Print the seconds of each step and the peak of memory; in a process of its own."""
    began = time.perf_counter()

    def step(name: str) -> None:
        nonlocal began
        print(f"{name},{time.perf_counter() - began}")
        began = time.perf_counter()

    Store.open(folder).finish()
    step("index from heads")
    store = Store.open(folder)
    index = store.index
    step("index from Parquet")
    split = leave_one_dataset_out(index, "c0", n_subjects=400)
    class_weights(split.train)
    step("splits")
    for part in split:
        Loader(store, part, residence="map").sequences.order(0, 0)
    step("samplers")
    # not getrusage, which counts the process that started this one
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    print(f"peak,{int(status['VmHWM'].split()[0]) * 1024}")


def time_set_up(folder: Path) -> Iterator[dict]:
    """Rows on 15,000 recordings."""
    write_heads(folder / "heads")
    command = [sys.executable, "-m", "benchmarks.store", "--set-up", str(folder / "heads")]
    root = Path(__file__).parents[1]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
    steps = {name: float(number) for name, number in csv.reader(printed.splitlines())}
    peak = steps.pop("peak")
    steps["set-up in all"] = sum(steps.values())
    for name, seconds in steps.items():
        yield {"what": name, "ms": f"{seconds * 1e3:.0f}", "peak_gb": f"{peak / 1e9:.2f}"}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", choices=devices, default=devices[0])
    parser.add_argument("--csv", default="store.csv")
    parser.add_argument("--folder", help="temporary files go here")
    parser.add_argument("--set-up", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.set_up:
        set_up(chosen.set_up)
        return 0
    check_table(parser, chosen.csv)
    where = environment(chosen.device) | {"device": _device(chosen.device)}
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    missed = 0
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, open(chosen.csv, "w") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        rows = (
            row
            for part in (time_reading(Path(folder), chosen.device), time_set_up(Path(folder)))
            for row in part
        )
        for row in rows:
            table.writerow(row | where)
            file.flush()
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            missed |= _misses(row, chosen.device)
    return missed


def _device(device: str) -> str:
    threads = torch.get_num_threads()
    return torch.cuda.get_device_name() if device == "cuda" else f"cpu, {threads} threads"


def _misses(row: dict[str, str], device: str) -> bool:
    """Tell whether a row misses its bar, if it has one: what the loader would choose by itself."""
    if "share_of_copy" in row:
        usual = row["dtype"] == "float16" and (device == "cuda" or row["residence"] == "map")
        return usual and float(row["share_of_copy"]) < 0.5
    is_all = row["what"] == "set-up in all"
    return is_all and (
        float(row["ms"]) > MOST_SECONDS * 1e3 or float(row["peak_gb"]) * 1e9 > MOST_BYTES
    )


if __name__ == "__main__":
    sys.exit(main())
