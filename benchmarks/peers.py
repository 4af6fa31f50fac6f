"""Compare stagers on a real night: ``PSDNORM_REALDATA=… python -m benchmarks.peers``.

The night is SC4001 of Sleep-EDF, the epochs those of sleep and of half an hour before and after, as
its expert scored them. Our model stages all 22 h, as a user would ask for; YASA, GSSC and a
regression on band powers are shown the crop of these epochs. Each runs in a process of its own,
which loads and then stages the crop twice: the seconds are those of the two calls, with the signal
in memory, without imports and without loading. One who is not installed is left out. The bars: at
least 0.60 of balanced accuracy, and a second call that takes no longer than GSSC's.
"""

import argparse
import csv
import importlib.util
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import check_table, peer_process
from psdnorm.constants import STAGES
from psdnorm.io import read_header, read_stages
from psdnorm.lab.simulate import sleep_period
from psdnorm.staging import Agreement, agreement

ROOT = Path(__file__).parents[1]
SIGNAL, SCORING = "SC4001E0-PSG.edf.xz", "SC4001EC-Hypnogram.edf"
N_EPOCHS, MARGIN = 841, 60
LEAST_BALANCED_ACCURACY = 0.60
SCORES = ("balanced_accuracy", "kappa", "accuracy")
COLUMNS = (
    *("peer", "release", "first_s", "second_s", *SCORES, "confusion", "learned_from", "saw"),
    *("epochs", "threads", "device", "python", "torch"),
)
MODULES = {"yasa": "yasa", "gssc": "gssc", "band-power": "sklearn"}


@dataclass(frozen=True, eq=False)
class Row:
    """What came of one stager.

    Attributes
    ----------
    peer, release, learned_from, saw : str
    first_s, second_s : float
        Of the two calls on the crop.
    scores : Agreement
        With the expert.
    """

    peer: str
    release: str
    learned_from: str
    saw: str
    first_s: float
    second_s: float
    scores: Agreement


def unpack(folder: Path, into: Path) -> Path:
    """Unpack the recording and return its path."""
    path = into / SIGNAL.removesuffix(".xz")
    with lzma.open(folder / SIGNAL) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return path


def expert_stages(recording: Path, scoring: Path) -> tuple[NDArray[np.int8], slice]:
    """Return the expert's stages of the whole recording, and which epochs are compared."""
    header = read_header(recording)
    stages = read_stages(scoring, header.duration_s, header.start)
    return stages, compared_epochs(stages)


def compared_epochs(stages: NDArray[np.int8]) -> slice:
    """Return the epochs of the night's sleep and half an hour around it."""
    sleep = sleep_period(stages)
    return slice(max(sleep.start - MARGIN, 0), min(sleep.stop + MARGIN, len(stages)))


def environment(peer: str, threads: int) -> dict[str, str]:
    """Return the environment of a process: our package on the path, and the number of threads."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | dict.fromkeys(counts, str(threads))
    variables |= {"PYTHONPATH": os.pathsep.join(paths)}
    if peer == "gssc":
        # its networks are whole pickled objects, which torch refuses to load otherwise
        variables |= {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    return variables


def measure(
    peer: str, recording: Path, epochs: slice, model: str | None, threads: int
) -> dict[str, Any]:
    """Stage the night in a process of its own and return its output."""
    command = [sys.executable, "-m", peer_process.__name__, peer, str(recording)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        command += [str(epochs.start), str(epochs.stop), str(out)]
        command += [] if model is None else ["--model", model]
        done = subprocess.run(
            command,
            env=environment(peer, threads),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            said = (done.stderr.strip() or "nothing").splitlines()[-1]
            raise RuntimeError(f"{peer} failed with exit code {done.returncode}: {said}")
        return json.loads(out.read_text())


def row_of(peer: str, found: dict[str, Any], true: NDArray[np.int8]) -> Row:
    """Score the output of a process; raise if it did not stage every epoch."""
    staged = len(found["stages"])
    if staged != len(true):
        raise RuntimeError(f"{peer} staged {staged} epochs, expected {len(true)}")
    scores = agreement(true, found.pop("stages"))
    if scores.n_left_out:
        raise RuntimeError(f"{peer} left {scores.n_left_out} epochs unscored")
    return Row(peer, **found, scores=scores)


def misses(rows: list[Row]) -> list[str]:
    """Return the bars that our model misses."""
    by_name = {row.peer: row for row in rows}
    ours, gssc = by_name.get("psdnorm"), by_name.get("gssc")
    missed = []
    if ours is not None and ours.scores.balanced_accuracy < LEAST_BALANCED_ACCURACY:
        missed.append(f"balanced accuracy of at least {LEAST_BALANCED_ACCURACY:.2f}")
    if ours is not None and gssc is not None and ours.second_s > gssc.second_s:
        missed.append("no longer than GSSC")
    return missed


def cells_of(row: Row) -> dict[str, Any]:
    """Return a row of the table."""
    figures = {name: f"{getattr(row.scores, name):.4f}" for name in SCORES}
    figures["confusion"] = json.dumps(row.scores.confusion.tolist())
    return {
        "peer": row.peer,
        "release": row.release,
        "first_s": f"{row.first_s:.2f}",
        "second_s": f"{row.second_s:.2f}",
        **figures,
        "learned_from": row.learned_from,
        "saw": row.saw,
    }


def lines_of(row: Row) -> list[str]:
    """Return the figures and the confusion matrix of a stager as text."""
    scores = row.scores
    lines = [
        f"{row.peer:11}{row.first_s:7.2f} s {row.second_s:7.2f} s   "
        f"balanced accuracy {scores.balanced_accuracy:.3f}, kappa {scores.kappa:.3f}, "
        f"accuracy {scores.accuracy:.3f}",
        f"           {row.release}; learned from {row.learned_from}; saw {row.saw}",
        " " * 16 + "".join(f"{name:>5}" for name in STAGES),
    ]
    for name, counts in zip(STAGES, scores.confusion, strict=True):
        lines.append(f"           {name:5}" + "".join(f"{count:5d}" for count in counts))
    return lines


def compare(
    peers: list[str], folder: Path, model: str | None, threads: int
) -> tuple[list[Row], list[str]]:
    """Measure and print all stagers that are installed; return them and those that failed."""
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as unpacked:
        recording = unpack(folder, Path(unpacked))
        stages, epochs = expert_stages(recording, folder / SCORING)
        true = stages[epochs]
        if len(true) != N_EPOCHS:
            raise RuntimeError(f"{SCORING} has {len(true)} epochs to compare, expected {N_EPOCHS}")
        for peer in peers:
            if peer in MODULES and importlib.util.find_spec(MODULES[peer]) is None:
                print(f"{peer} is left out: {MODULES[peer]} is not installed", flush=True)
                continue
            own = model if peer == "psdnorm" else None
            try:
                rows.append(row_of(peer, measure(peer, recording, epochs, own, threads), true))
            except RuntimeError as error:
                print(error, file=sys.stderr, flush=True)
                failed.append(peer)
                continue
            print("\n".join(lines_of(rows[-1])), flush=True)
    return rows, failed


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the table; 1 if a bar is missed or a stager failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder of a model; by default the shipped one")
    parser.add_argument("--peers", nargs="*", default=list(MODULES), choices=MODULES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path, default=Path("peers.csv"))
    chosen = parser.parse_args(arguments)
    check_table(parser, chosen.csv)
    folder = Path(os.environ.get("PSDNORM_REALDATA", ""), "sleep-edf")
    if not (folder / SIGNAL).is_file():
        parser.error(f"PSDNORM_REALDATA must name the folder of the real data: no {SIGNAL} there")
    rows, failed = compare(["psdnorm", *chosen.peers], folder, chosen.model, chosen.threads)
    where = {"epochs": N_EPOCHS, "threads": chosen.threads, "device": platform.machine()}
    where |= {"python": platform.python_version(), "torch": torch.__version__}
    with chosen.csv.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(cells_of(row) | where for row in rows)
    missed = misses(rows)
    print(json.dumps({"missed": missed}) if missed else "all bars that were measured are met")
    return int(bool(missed or failed))


if __name__ == "__main__":
    sys.exit(main())
