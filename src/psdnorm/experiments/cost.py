"""What work in pieces cost, piece by piece: ``cost.json`` beside its results.

Seconds are those of the wall, in which the device was held.
"""

import os
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.training.cell import read_json
from psdnorm.training.process import resolve_device
from psdnorm.training.run_folder import write_json

COST = "cost.json"
_SUMMED = ("seconds", "simulation_seconds", "sequences")


class PieceMeter:
    """Measures one call of a command, a piece, and writes it down as it goes: it may be killed.

    A piece says when it ``began`` (UTC, ISO 8601), the ``seconds`` in which it worked, after the
    ``simulation_seconds`` in which nights were made, what it finished and the ``sequences`` of
    that, the processes that it was given, ``device``, the versions of ``psdnorm`` and ``torch``,
    and ``commit``.

    Parameters
    ----------
    folder : Path
        Gets ``cost.json``; other pieces that are there stay.
    device : str
    commit : str or None
        From :func:`commit_of`.
    counted : str
        What is counted beside sequences.
    **processes : int
        How many there are of each kind.
    """

    def __init__(
        self, folder: Path, device: str, commit: str | None, *, counted: str, **processes: int
    ) -> None:
        place = resolve_device(device)
        for piece in read_cost(folder)["pieces"]:  # refused before there is anything to lose
            if counted not in piece:
                raise ArgumentError(
                    f"{folder / COST} has a piece without {counted}, expected how many it finished"
                )
        self._folder, self._counted = folder, counted
        self._piece: dict[str, Any] = {
            "began": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "seconds": 0.0,
            "simulation_seconds": 0.0,
            counted: 0,
            "sequences": 0,
            **processes,
            "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
            "psdnorm": psdnorm.__version__,
            "torch": str(torch.__version__),
            # on which the bits of simulated nights hang
            **{library: version(library) for library in ("numpy", "scipy")},
            "commit": commit,
        }
        self._passing, self._began = "simulation_seconds", time.monotonic()

    def simulated(self) -> None:
        """Take the time so far as that of the simulation."""
        self._note_time()
        self._passing, self._began = "seconds", time.monotonic()

    def add(self, sequences: int) -> None:
        """Count one more thing that was finished, and its sequences."""
        self._piece[self._counted] += 1
        self._piece["sequences"] += sequences

    def write(self) -> None:
        """Write down what the piece cost so far, beside those before it."""
        self._note_time()
        before, own = read_cost(self._folder), {"pieces": [self._piece]}
        write_json(self._folder / COST, merged_costs(before, own, counted=self._counted))

    def _note_time(self) -> None:
        self._piece[self._passing] = time.monotonic() - self._began


def read_cost(folder: Path) -> dict[str, Any]:
    """Read what the pieces so far cost; of a folder in which none was measured, nothing.

    Parameters
    ----------
    folder : Path
    """
    path = folder / COST
    if not path.exists():
        return {"pieces": []}
    found = read_json(path)
    pieces = found.get("pieces") if isinstance(found, dict) else None
    if not isinstance(pieces, list) or not all(map(_is_piece, pieces)):
        raise ArgumentError(f"{path} has no list of pieces, expected one of what each piece cost")
    return found


def _is_piece(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("began"), str)
        and all(isinstance(found.get(name), int | float) for name in _SUMMED)
    )


def merged_costs(*documents: dict[str, Any], counted: str) -> dict[str, Any]:
    """Put pieces together, each once, the latest word on each.

    Parameters
    ----------
    *documents : dict
        From :func:`read_cost`, later ones later.
    counted : str
        What is counted beside sequences.

    Returns
    -------
    dict
        ``pieces``, and of all of them ``seconds`` (of the work and of simulation), what is
        counted, ``sequences``, and ``sequences_per_second`` of the time without simulation.
    """
    known = {piece["began"]: piece for document in documents for piece in document["pieces"]}
    pieces = [known[began] for began in sorted(known)]
    sums = {name: sum(piece[name] for piece in pieces) for name in (*_SUMMED, counted)}
    rate = sums["sequences"] / sums["seconds"] if sums["seconds"] else 0.0
    return {**sums, "sequences_per_second": rate, "pieces": pieces}


def commit_of(path: Path, *, only_tracked: bool = False) -> str | None:
    """Return the commit of the repository that a file is in.

    Parameters
    ----------
    path : Path
    only_tracked : bool
        Whether git must know the file: one that was installed into the folder of a repository is
        not of its commit.

    Returns
    -------
    str or None
        With "+" behind it where the repository had changes. Where git tells none, as in a copy
        without history, what ``PSDNORM_COMMIT`` says.
    """

    def git(*words: str) -> str:
        run = subprocess.run(
            ["git", "-C", str(path.absolute().parent), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
        return run.stdout.strip()

    try:
        if only_tracked:
            git("ls-files", "--error-unmatch", path.name)
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("PSDNORM_COMMIT")
