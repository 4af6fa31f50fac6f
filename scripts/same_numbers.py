"""Show that a change of the code changes no number: record at two commits, then compare.

Run in the root of a checkout; ``python -m psdnorm`` has to be the psdnorm of that checkout::

    python scripts/same_numbers.py record before.json          # reports of all packed results
    python scripts/same_numbers.py record demo.json --demo     # the demo instead: many minutes
    python scripts/same_numbers.py diff before.json after.json

Numbers are compared by their place in a table. Differences of rounding, up to 1e-12 of the number,
are counted with the largest one; they and other words are no failure.
"""

import argparse
import csv
import difflib
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

RESULTS = Path("experiments/results")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "NO_COLOR": "1"}
IGNORED = ("format", "psdnorm", "files")  # of report.json
ROUNDING = 1e-12  # relative


class Recorder:
    """Runs commands; keeps what they print and the tables that they write."""

    def __init__(self, work: Path):
        self.work = work
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}

    def psdnorm(self, key: str, *arguments: object) -> None:
        """Run a command; exit code 1 (something is left or failed) is no error."""
        print("psdnorm", *arguments, file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "psdnorm", *map(str, arguments)]
        done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"exit code {done.returncode}")
        lines = [line for line in done.stdout.splitlines() if str(self.work) not in line]
        drawn = [line.replace(" ", "").split("│") for line in lines if line.startswith("│")]
        self.tables[f"{key}/printed"] = [[str(done.returncode)], *drawn]
        self.texts[key] = [line for line in lines if not line.startswith("│")]

    def read(self, key: str, report: Path) -> None:
        """Keep the tables of a report, and the numbers and sentences of its report.json."""
        for path in sorted((*report.glob("tables/*.csv"), *report.glob("tables/*.parquet"))):
            self.tables[f"{key}/{path.name}"] = rows_of(path)
        summary = json.loads((report / "report.json").read_text(encoding="utf-8"))
        found = list(leaves({name: summary[name] for name in summary if name not in IGNORED}))
        # sorted, as the order of keys is no number
        numbers = sorted([n, json.dumps(value)] for n, value in found if not isinstance(value, str))
        self.tables[f"{key}/report.json"] = [["name", "value"], *numbers]
        self.texts[f"{key}/report.json"] = [value for _, value in found if isinstance(value, str)]


def rows_of(path: Path) -> list[list[str]]:
    """Return a table as strings, its header first."""
    if path.suffix == ".csv":
        return list(csv.reader(path.read_text(encoding="utf-8").splitlines(keepends=True)))
    table = pd.read_parquet(path)
    return [[str(cell) for cell in row] for row in (table.columns, *table.to_numpy().tolist())]


def leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values in nested JSON with their paths."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, f"{name}/{key}")
    else:
        yield name, value


def record(out: Path, demo: bool) -> None:
    """Write all numbers of the packed results, or of the demo, to a file."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        found = Recorder(work)
        names = [path.name.removesuffix(".tar.xz") for path in sorted(RESULTS.glob("*.tar.xz"))]
        for name in ["demo"] if demo else sorted(names, key=lambda name: name.endswith("-scores")):
            runs, report = work / name.removesuffix("-scores"), work / "reports" / name
            if name.endswith("-scores"):  # of psdnorm dissect; its study was restored before
                with tarfile.open(RESULTS / f"{name}.tar.xz") as archive:
                    archive.extractall(report, filter="data")
            elif demo:
                found.psdnorm("demo/demo", "demo", "--out", runs, "--jobs", 2)
                runs /= "runs"
            else:
                file = RESULTS.parent / f"{name}.yaml"
                found.psdnorm(f"{name}/restored", "study", file, "--work", work, "--restore")
            command = "dissect" if name.endswith("-scores") else "report"
            found.psdnorm(name, command, runs, "-o", report, "--no-figures")
            found.read(name, report / "report" if command == "dissect" else report)
    found.tables.pop("demo/timing.csv", None)  # seconds of this machine; others were packed
    out.write_text(json.dumps({"tables": found.tables, "texts": found.texts}, indent=0))
    cells = (cell for rows in found.tables.values() for row in rows for cell in row)
    print(f"{out} has {sum(number(cell) is not None for cell in cells):,} numbers")


def number(cell: str) -> float | str | None:
    """Return the number in a cell, "nan" for any NaN, None for words."""
    try:
        return "nan" if math.isnan(float(cell)) else float(cell)
    except ValueError:
        return None


def relative(x: float | str | None, y: float | str | None) -> float:
    """Return the relative difference of two cells; infinite unless both are numbers."""
    if not isinstance(x, float) or not isinstance(y, float):
        return math.inf
    return abs(x - y) / max(abs(x), abs(y))


def diff(a: Path, b: Path) -> int:
    """Print the differences between two recordings; return 1 if a number differs."""
    old, new = (json.loads(path.read_text()) for path in (a, b))
    numbers, words, roundings = [], Counter(), [0.0]
    for key in sorted(old["tables"].keys() | new["tables"].keys()):
        pair = [each["tables"].get(key, []) for each in (old, new)]
        shapes = [[len(row) for row in rows] for rows in pair]
        if shapes[0] != shapes[1]:
            numbers.append(f"{key}: rows by length {[dict(Counter(shape)) for shape in shapes]}")
            continue
        for place, (before, after) in enumerate(zip(*pair, strict=True)):
            for column, (x, y) in enumerate(zip(before, after, strict=True)):
                if number(x) != number(y):
                    off = relative(number(x), number(y))
                    if off <= ROUNDING:
                        roundings.append(off)
                        continue
                    numbers.append(f"{key}: {x} -> {y} in column {column} of row {place}, {before}")
                elif number(x) is None and x != y:
                    words[f"{key.rpartition('/')[2]}: {x!r} -> {y!r}"] += 1
    print(f"{len(numbers)} numbers or shapes of tables differ", *numbers, sep="\n  ")
    print(f"{len(roundings) - 1} numbers differ by rounding, by {max(roundings):.1g} at most")
    print(f"{len(words)} words in tables differ, which is no failure")
    for change, times in words.items():
        print(f"  {change}, {times} times")
    print("Sentences that differ, which is no failure:")
    for key in sorted(old["texts"].keys() | new["texts"].keys()):
        texts = [each["texts"].get(key, []) for each in (old, new)]
        for line in list(difflib.unified_diff(*texts, n=0, lineterm=""))[2:]:
            print(f"  {key}: {line}")
    return int(bool(numbers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("record", "diff"))
    parser.add_argument("files", type=Path, nargs="+", help="OUT, or A and B")
    parser.add_argument("--demo", action="store_true", help="record the demo instead")
    given = parser.parse_args()
    sys.exit(diff(*given.files) if given.command == "diff" else record(*given.files, given.demo))
