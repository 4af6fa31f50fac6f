"""Where rows that stay on the chip pay: ``python -m benchmarks.resident``, on compute capability 9.

Times the kernels of :mod:`psdnorm.ops.hopper.rows` beside those of
:mod:`psdnorm.ops.triton` for rows of many lengths and filters of many sizes, also where the
package leaves rows to the latter. What it prints is what that choice rests on.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator

import torch

from benchmarks import check_table
from benchmarks.norms import environment, gpu_ms
from psdnorm.ops import Spec, triton
from psdnorm.ops.hopper import rows as resident

LENGTHS = (1500, 3000, 6000, 12_000, 26_240, 52_480, 104_960)
FILTER_SIZES = {torch.float32: (1, 2, 5, 8, 12, 17), torch.bfloat16: (1, 2, 5, 8, 12)}
# enough to fill the device, more than its L2 cache holds
LEAST_ROWS, LEAST_BYTES = 528, 80_000_000
COLUMNS = (
    "dtype", "filter_size", "length", "rows", "task", "ms", "ms_triton", "ratio", "served",
    "device", "torch", "triton", "commit",
)  # fmt: skip


def tasks(x: torch.Tensor, filter_size: int) -> Iterator[tuple[str, bool, Callable, Callable]]:
    """Both tasks: their names, whether rows stay on the chip, and the two ways to do them."""
    grad = torch.randn_like(x)
    spec = Spec(filter_size)
    offset, psd = triton.row_statistics(x, spec)
    target = torch.ones_like(psd[0])

    def forward() -> None:
        triton.normalize(x, *triton.row_statistics(x, spec), target, spec)

    yield (
        "forward",
        resident.serves((x,), spec),
        lambda: resident.measure_and_normalize(x, target, spec),
        forward,
    )
    yield (
        "backward",
        resident.serves((x, grad), spec),
        lambda: resident.normalize_backward(grad, x, offset, psd, target, spec),
        lambda: triton.normalize_backward(grad, x, offset, psd, target, spec),
    )


def measure(dtype: torch.dtype, filter_size: int, length: int) -> Iterator[dict]:
    """Rows of the table for one kind of row."""
    n_rows = max(LEAST_ROWS, LEAST_BYTES // (length * dtype.itemsize))
    x = torch.randn(n_rows // 8, 8, length, device="cuda").to(dtype)
    for task, served, on_chip, in_passes in tasks(x, filter_size):
        if resident._kernel(x.device.index, task, dtype, filter_size, length) is None:
            continue  # no cluster holds such rows
        ms, ms_triton = gpu_ms(on_chip)[0], gpu_ms(in_passes)[0]
        yield {
            "dtype": str(dtype).removeprefix("torch."),
            "filter_size": filter_size,
            "length": length,
            "rows": n_rows // 8 * 8,
            "task": task,
            "ms": f"{ms:.4f}",
            "ms_triton": f"{ms_triton:.4f}",
            "ratio": f"{ms / ms_triton:.2f}",
            "served": served,
        }


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter-sizes", nargs="+", type=int, help="filter sizes to time")
    parser.add_argument("--csv", default="resident.csv")
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    known = sorted({size for sizes in FILTER_SIZES.values() for size in sizes})
    unknown = set(chosen.filter_sizes or ()) - set(known)
    if unknown:
        parser.error(f"--filter-sizes {min(unknown)} is not one of {', '.join(map(str, known))}")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        parser.error("rows stay on the chip on CUDA devices of compute capability 9, found none")
    where = environment("cuda")
    with open(chosen.csv, "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for dtype, filter_sizes in FILTER_SIZES.items():
            for filter_size in filter_sizes:
                if chosen.filter_sizes and filter_size not in chosen.filter_sizes:
                    continue
                for length in LENGTHS:
                    for row in measure(dtype, filter_size, length):
                        table.writerow(row | where)
                        file.flush()
                        print(*row.values(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
