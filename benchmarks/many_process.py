"""``psdnorm stage`` in a process of its own, watched and interrupted by :mod:`benchmarks.many`."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from psdnorm.staging.batch import SUMMARY_TABLE
from psdnorm.staging.night_files import FILES, SUMMARY

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
