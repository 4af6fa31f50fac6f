"""A thousand nights in one command: ``python -m benchmarks.many``.

A folder of EDF recordings, copies of a few simulated ones of different lengths, cohorts and rates,
with some bad ones among them, is staged by ``psdnorm stage`` in a process of its own. At about half
it is interrupted (SIGINT) and the same command is given again; a third one finds nothing to do.

Checked: exit codes; that what was staged is not staged again, and copies come out alike; that the
summary has each recording once and every failure its sentence; that no output is missing or left
over. Memory is the resident set of the processes that stage, night by night: ``growth`` is from the
median over a process's first tenth of nights to that over its last, the larger of both processes,
and the bar is 100 MB; ``slope`` is a line through all its nights. Memory is read from
``/proc``, on Linux.
"""

import argparse
import csv
import itertools
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import check_table
from psdnorm.constants import EPOCH_S
from psdnorm.lab.simulate import Trace, simulate_night, write_edf
from psdnorm.staging.batch import FAILED, SUMMARY_TABLE
from psdnorm.staging.night_files import FILES, SUMMARY
from psdnorm.staging.trust import NOT_TRUSTED

COLUMNS = (
    *("what", "figure", "unit", "bar", "nights", "bad", "distinct", "minutes", "threads"),
    *("device", "python", "torch"),
)
MOST_GROWTH_MB = 100.0


# ─── the folder ───

COHORTS = ("ABC", "CFS", "HPAP", "PHYS", "SHHS")  # five rates from 100 to 256 Hz
FLAT = "flat"
# from the error of a recording that cannot be staged; a flat one can, and is not to be trusted
FAILURES = {
    "empty": "it is empty",
    "text": "it begins with b'Dear col'",
    "truncated": "is truncated",
    "no EEG": "found ECG, EMG",
    "10 s": "lasts 10 s",
}
_EEG = ("C3-M2", "C4-M1")
_IN_A_FOLDER = 100
_START = datetime(2001, 1, 1, 22, 30)


@dataclass(frozen=True)
class Folder:
    """Recordings on disk.

    Attributes
    ----------
    path : Path
    files : dict of str to Path
        By what the outputs of each must be called.
    kinds : dict of str to str
        What each is: one of :data:`FAILURES`, :data:`FLAT`, or the name of the simulated night
        that it is a copy of.
    epochs : dict of str to int
        Of the kinds that can be staged.
    """

    path: Path
    files: dict[str, Path]
    kinds: dict[str, str]
    epochs: dict[str, int]


def make_folder(place: Path, n: int, n_bad: int, n_distinct: int, minutes: float) -> Folder:
    """Write recordings, ``place/site-00/subject-0042/psg.edf``, all of one name.

    Parameters
    ----------
    place : Path
        Is made; the recordings that the others are links to lie beside it.
    n, n_bad : int
        Recordings in all, and bad ones among them, evenly spread, one kind after the other.
    n_distinct : int
        Simulated recordings that the good ones are copies of.
    minutes : float
        Their mean length, from half of which to one and a half they go.
    """
    models = place.with_name(f"{place.name}-distinct")
    models.mkdir(parents=True)
    epochs = {
        f"night {number}": _write_night(models / f"night {number}", number, length)
        for number, length in enumerate(np.linspace(0.5, 1.5, n_distinct) * minutes)
    }
    epochs[FLAT] = _write_bad(models)
    spoilt = [*FAILURES, FLAT]
    at = {int((number + 0.5) * n / n_bad): spoilt[number % len(spoilt)] for number in range(n_bad)}
    files, kinds = {}, {}
    for number in range(n):
        subject = f"subject-{number:04}"
        path = place / f"site-{number // _IN_A_FOLDER:02}" / subject / "psg.edf"
        path.parent.mkdir(parents=True)
        kind = at.get(number, f"night {number % n_distinct}")
        os.link(models / kind, path)
        files[f"{subject}-psg"], kinds[f"{subject}-psg"] = path, kind
    return Folder(place, files, kinds, epochs)


def _write_night(path: Path, number: int, minutes: float) -> int:
    """Write a simulated night; return its epochs."""
    cohort = COHORTS[number % len(COHORTS)]
    n_epochs = max(2, round(60 * minutes / EPOCH_S))
    night = simulate_night(cohort, number, hours=(n_epochs + 0.5) * EPOCH_S / 3600)
    _write(path, dict(zip(_EEG, night.signal, strict=True)), int(night.sfreq))
    return len(night.stages)


def _write_bad(folder: Path, n_epochs: int = 10) -> int:
    """Write one recording of each bad kind; return the epochs of those that last."""
    rng = np.random.default_rng(0)
    sfreq = 100

    def noise(seconds: float = n_epochs * EPOCH_S) -> NDArray[np.float32]:
        return 20 * rng.standard_normal(int(seconds * sfreq), np.float32)

    (folder / "empty").write_bytes(b"")
    (folder / "text").write_text("Dear colleague, the night is in the other file. " * 20)
    _write(folder / "truncated", {name: noise() for name in _EEG}, sfreq)
    size = (folder / "truncated").stat().st_size
    os.truncate(folder / "truncated", size // 2)
    _write(folder / "no EEG", {name: noise() for name in ("ECG", "EMG")}, sfreq)
    _write(folder / "10 s", {name: noise(10) for name in _EEG}, sfreq)
    _write(folder / FLAT, {name: 0 * noise() for name in _EEG}, sfreq)
    return n_epochs


def _write(path: Path, channels: dict[str, NDArray[np.float32]], sfreq: int) -> None:
    write_edf(path, [Trace(label, row, sfreq) for label, row in channels.items()], _START)


# ─── the command ───

LOOK_S = 0.25
ENDS_WITHIN_S = 60  # of an interrupt
_CODES = (0, 1, 130)  # after which there is a summary
_COMMAND = "from psdnorm.cli import main; main()"


class Sample(NamedTuple):
    """A look at a process: nights that it began to write so far, and its resident memory in MB."""

    n_begun: int
    rss_mb: float


@dataclass(frozen=True)
class Run:
    """What came of one command.

    Attributes
    ----------
    code : int
        Its exit code.
    seconds : float
    stop_s : float
        From the interrupt to the end; 0 where there was none.
    peak_mb : float
        The largest resident memory.
    samples : list of Sample
        From the first night on that it staged itself.
    said, complained : str
        Standard output, and standard error.
    finished : dict of str to tuple
        When the files of each finished night were written, in ns, this one's and older.
    n_staged : int
        How many of them are this command's.
    rows : list of dict
        The summary table.
    """

    code: int
    seconds: float
    stop_s: float
    peak_mb: float
    samples: list[Sample]
    said: str
    complained: str
    finished: dict[str, tuple[int, ...]]
    n_staged: int
    rows: list[dict[str, str]]


def run_command(folder: Path, out: Path, interrupt_at: int | None) -> Run:
    """Stage a folder.

    Parameters
    ----------
    folder, out : Path
    interrupt_at : int or None
        After how many nights the process gets a SIGINT.
    """
    out.mkdir(exist_ok=True)
    before = finished_in(out)
    arguments = ["stage", str(folder), "-o", str(out), "--device", "cpu"]
    said, complained = out.with_name("said.txt"), out.with_name("complained.txt")
    begin = time.perf_counter()
    with said.open("wb") as output, complained.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *arguments], stdout=output, stderr=errors
        )
        samples, peak_mb, stop_s = _watch(process, out, interrupt_at)
    seconds = time.perf_counter() - begin
    if process.returncode not in _CODES:
        raise RuntimeError(
            f"the command ended with exit code {process.returncode}: {complained.read_text()}"
        )
    finished = finished_in(out)
    with (out / SUMMARY_TABLE).open(newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    return Run(
        process.returncode,
        seconds,
        stop_s,
        peak_mb,
        samples,
        said.read_text(),
        complained.read_text(),
        finished,
        len(finished) - len(before),
        rows,
    )


def finished_in(out: Path) -> dict[str, tuple[int, ...]]:
    """Return when the files of each finished night were written, in ns."""
    found = {}
    for path in out.glob(f"*{SUMMARY}"):
        if json.loads(path.read_bytes())["finished"]:
            files = [path, *(path.with_name(f"{path.stem}{ending}") for ending in FILES)]
            found[path.stem] = tuple(file.stat().st_mtime_ns for file in files)
    return found


def _watch(
    process: subprocess.Popen[bytes], out: Path, interrupt_at: int | None
) -> tuple[list[Sample], float, float]:
    """Look at a process until it ends; return samples, peak in MB, and s from the interrupt on."""
    n_before = _count_begun(out)
    samples: list[Sample] = []
    interrupted = None
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        n_begun = _count_begun(out) - n_before
        rss_mb = _rss_mb(process.pid)
        if n_begun and rss_mb and interrupted is None:
            samples.append(Sample(n_begun, rss_mb))
        if interrupt_at is not None and n_begun >= interrupt_at and interrupted is None:
            process.send_signal(signal.SIGINT)
            interrupted = time.perf_counter()
        if interrupted is not None and time.perf_counter() - interrupted > ENDS_WITHIN_S:
            process.kill()
        time.sleep(LOOK_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    stop_s = 0.0 if interrupted is None else time.perf_counter() - interrupted
    return samples, used.ru_maxrss * 1024 / 1e6, stop_s  # kB, as Linux counts


def _count_begun(out: Path) -> int:
    with os.scandir(out) as entries:
        return sum(entry.name.endswith(SUMMARY) for entry in entries)


def _rss_mb(pid: int) -> float:
    """Return the resident memory of a process; of one that has just ended, 0."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# ─── the checks ───

INTERRUPTED, SOME_FAILED = 130, 1
_GOES_ON = "psdnorm: interrupted; run the same command again to resume\n"


def what_is_wrong(nights: Folder, runs: list[Run], out: Path) -> list[str]:
    """Return one sentence for each check that does not hold.

    Parameters
    ----------
    nights : Folder
        What was staged.
    runs : list of Run
        The command that was interrupted, the one that went on, and the one with nothing to do.
    out : Path
        Where they wrote.
    """
    first, *others = runs
    wrong = [*_of_the_interrupt(nights, first), *_of_resuming(runs)]
    for number, run in zip(("second", "third"), others, strict=True):
        wrong += [f"{number} command: {what}" for what in _of_a_whole_run(nights, run)]
    return [*wrong, *_of_outputs(nights, out)]


def _of_the_interrupt(nights: Folder, run: Run) -> Iterator[str]:
    if run.code != INTERRUPTED:
        yield f"the interrupted command ended with {run.code}, expected {INTERRUPTED}"
    if not run.complained.endswith(_GOES_ON):
        yield f"the interrupted command ended its errors with {run.complained[-200:]!r}"
    if not 0 < run.n_staged < len(nights.files):
        yield f"{run.n_staged} nights were staged when the command was interrupted"
    reached = [row["name"] for row in run.rows]
    if len(set(reached)) < len(reached) or not set(run.finished) <= set(reached):
        yield "the summary of the interrupted command does not have what it finished once each"


def _of_resuming(runs: list[Run]) -> Iterator[str]:
    for before, after in itertools.pairwise(runs):
        again = [name for name, when in before.finished.items() if after.finished.get(name) != when]
        if again:
            yield f"{len(again)} finished nights were staged again, {again[0]} among them"
        there = _counts(after.said).get("already there")
        if there != len(before.finished):
            yield f"{there} nights were said to be there already, expected {len(before.finished)}"
    if runs[-1].n_staged:
        yield f"the third command staged {runs[-1].n_staged} nights, expected none"


def _of_a_whole_run(nights: Folder, run: Run) -> Iterator[str]:
    """Yield what is wrong with a command that was not interrupted."""
    if run.code != SOME_FAILED:
        yield f"it ended with {run.code}, expected {SOME_FAILED}"
    n = len(nights.files)
    if f"{n}/{n}" not in run.complained:
        yield f"its progress did not come to {n}/{n}"
    if sorted(row["name"] for row in run.rows) != sorted(nights.files):
        yield "its summary does not have each recording once"
    bad = {name for name, kind in nights.kinds.items() if kind in FAILURES}
    if {row["name"] for row in run.rows if row["status"] == FAILED} != bad:
        yield "not those nights failed in its summary that must"
    if _counts(run.said).get(FAILED) != len(bad):
        yield f"it counted {_counts(run.said).get(FAILED)} failures, expected {len(bad)}"
    for row in run.rows:
        name = row["name"]
        kind = nights.kinds.get(name, "")
        words = FAILURES.get(kind)
        if words and words not in row["reason"]:
            yield f"the summary says of {name} ({kind}): {row['reason']}"
        named = [line for line in run.said.splitlines() if f"  {nights.files[name]} " in line]
        if words and not any(words in line for line in named):
            yield f"it did not name {name} ({kind}) and its fault"
        if kind == FLAT and row["verdict"] != NOT_TRUSTED:
            yield f"{name} is flat and its verdict {row['verdict']!r}"


def _of_outputs(nights: Folder, out: Path) -> Iterator[str]:
    staged = [name for name, kind in nights.kinds.items() if kind not in FAILURES]
    expected = {f"{name}{ending}" for name in staged for ending in (SUMMARY, *FILES)}
    left = {path.name for path in out.iterdir() if path.stat().st_size}
    for words, names in (
        ("missing or empty", (expected | {SUMMARY_TABLE}) - left),
        ("left over", left - expected - {SUMMARY_TABLE}),
    ):
        if names:
            yield f"{len(names)} files are {words}, {min(names)} among them"
    tables: dict[str, set[bytes]] = {}
    for name in staged:
        kind = nights.kinds[name]
        table, text = (out / f"{name}{ending}" for ending in (".tsv", ".txt"))
        if not (table.exists() and text.exists()):  # as was said
            continue
        if len(text.read_text().split()) != nights.epochs[kind]:
            yield f"{text.name} does not have the {nights.epochs[kind]} epochs of {kind}"
        tables.setdefault(kind, set()).add(table.read_bytes())
    differ = [kind for kind, found in tables.items() if len(found) > 1]
    if differ:
        yield f"copies of the same recording came out differently: {', '.join(differ)}"


def _counts(said: str) -> dict[str, int]:
    """Return the table that a command prints: nights by what became of them."""
    rows = re.findall(r"│ (.+?) +│ +(\d+) │", said)
    return {words.strip(): int(number) for words, number in rows}


# ─── the figures ───


def growth_mb(run: Run) -> float:
    """Return by how much a process's memory grew from its first tenth of nights to its last."""
    first, *_, last = _tenths(run)
    return last - first


def slope_mb(run: Run) -> float:
    """Return the growth of a process's memory in MB per 100 nights, by a line through all."""
    nights = [sample.n_begun for sample in run.samples]
    return 100 * statistics.linear_regression(nights, [s.rss_mb for s in run.samples]).slope


def _tenths(run: Run) -> list[float]:
    """Return the median memory of a process in the tenths of its nights, in MB."""
    first, last = run.samples[0].n_begun, run.samples[-1].n_begun
    tenths: list[list[float]] = [[] for _ in range(10)]
    for sample in run.samples:
        share = (sample.n_begun - first) / max(1, last - first)
        tenths[min(9, int(10 * share))].append(sample.rss_mb)
    return [statistics.median(each) for each in tenths if each]


def figures_of(runs: list[Run]) -> dict[str, tuple[float, str]]:
    """Return what was measured of the three commands, with units."""
    staging = runs[:2]
    seconds = sum(run.seconds for run in staging)
    return {
        "seconds a night": (seconds / sum(run.n_staged for run in staging), "s"),
        "both commands": (seconds, "s"),
        "nothing to do": (runs[2].seconds, "s"),
        "interrupt": (runs[0].stop_s, "s"),
        "peak memory": (max(run.peak_mb for run in runs), "MB"),
        "growth": (max(growth_mb(run) for run in staging), "MB"),
        "slope": (max(slope_mb(run) for run in staging), "MB per 100 nights"),
    }


def _write_table(chosen: argparse.Namespace, figures: dict[str, tuple[float, str]]) -> None:
    """Write and print what was measured."""
    where = {"nights": chosen.nights, "bad": chosen.bad, "distinct": chosen.distinct}
    where |= {"minutes": chosen.minutes, "threads": torch.get_num_threads()}
    where |= {"device": platform.machine(), "python": platform.python_version()}
    where |= {"torch": torch.__version__}
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name, (figure, unit) in figures.items():
            bar = MOST_GROWTH_MB if name == "growth" else ""
            row = {"what": name, "figure": f"{figure:.2f}", "unit": unit, "bar": bar}
            table.writerow(row | where)
            print(f"{name:16} {figure:8.2f} {unit}")


def main(arguments: list[str] | None = None) -> int:
    """Stage, check, print and write the table; 1 if a check or the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=1000, help="recordings, bad ones included")
    parser.add_argument(
        "--bad", type=int, default=20, help="how many of them are bad (six kinds, in turn)"
    )
    parser.add_argument(
        "--distinct", type=int, default=20, help="recordings that are not copies of others"
    )
    parser.add_argument("--minutes", type=float, default=10, help="mean length of a recording")
    parser.add_argument("--csv", type=Path, default=Path("many.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    if chosen.nights - chosen.bad < 6 or min(chosen.bad, chosen.distinct) < 1:
        parser.error("expected at least six good nights, a bad one and a distinct one")
    # in the background, a shell lets what it starts ignore it, and children would do so, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as place:
        nights = make_folder(
            Path(place, "in"), chosen.nights, chosen.bad, chosen.distinct, chosen.minutes
        )
        out = Path(place, "out")
        half = (chosen.nights - chosen.bad) // 2
        runs = [run_command(nights.path, out, interrupt_at) for interrupt_at in (half, None, None)]
        wrong = what_is_wrong(nights, runs, out)
    figures = figures_of(runs)
    _write_table(chosen, figures)
    if figures["growth"][0] > MOST_GROWTH_MB:
        wrong.append(f"memory grew by more than {MOST_GROWTH_MB:g} MB")
    for sentence in wrong:
        print(f"wrong: {sentence}")
    print(f"{len(wrong)} checks or bars are missed" if wrong else "all checks and bars are met")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
