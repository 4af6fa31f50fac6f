"""Many nights in one go: what is done is not done again, and what fails stops nothing."""

import functools
import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import psdnorm
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, PsdnormError, StoreError
from psdnorm.models import accelerate
from psdnorm.prepare import fingerprint
from psdnorm.runtime import run_all, undisturbed, written
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.result_files import MISSING
from psdnorm.staging.stager import stage
from psdnorm.staging.writing import check_free, is_finished, open_folder, read_summary, write_night
from psdnorm.training import Forward, resolve_device

STAGED, THERE, FAILED = "staged", "already there", "failed"
SUMMARY_TABLE = "summary.tsv"
# nights from which on a network is compiled for a CUDA device, which takes a minute or two
_WORTH_COMPILING = 50
_FIGURES = ("tst_min", "sleep_efficiency_percent", "sol_min", "waso_min", "rem_latency_min")
COLUMNS = (
    *("name", "file", "status", "verdict", "hours"),
    *_FIGURES,
    *(f"{stage}_percent" for stage in STAGES[1:]),
    *("mean_confidence", "mean_disagreement", "reason"),
)


@dataclass(frozen=True)
class Options:
    """How nights are staged: the arguments of :func:`psdnorm.staging.stager`."""

    model: str | None = None
    channels: str | None = None
    unit: str | None = None
    lights_off: str | None = None
    lights_on: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one night.

    Attributes
    ----------
    name : str
        What its files are called.
    path : Path
        The recording.
    status : {"staged", "already there", "failed"}
    reason : str
        One sentence where it failed, else "".
    summary : dict or None
        What its ``NAME.json`` says.
    """

    name: str
    path: Path
    status: str
    reason: str = ""
    summary: dict[str, Any] | None = None


class Nights:
    """Recordings on their way to hypnograms.

    Parameters
    ----------
    names : mapping of str to Path
        Recordings by what their files are called, as ``staging.result_files`` finds them.
    out : path
        The folder of all outputs; made if it does not exist.
    options : Options

    Attributes
    ----------
    notice : str or None
        What must stand on every output.
    untold : list of Outcome
        After a run that was interrupted: nights that were staged whole, of which it told nothing.

    Raises
    ------
    PsdnormError
        If no night could be staged: there is no such model, or nothing can be written.
    """

    def __init__(
        self, names: Mapping[str, Path], out: str | os.PathLike[str], options: Options
    ) -> None:
        self.names = {name: path.absolute() for name, path in names.items()}
        self.out = Path(out).absolute()
        self.options = options
        resolve_device(options.device or "auto")
        model = load_model(options.model)
        self.notice = model.notice
        self.model_sha256 = str(model.description["sha256"])
        self.untold: list[Outcome] = []
        open_folder(self.out)

    def __len__(self) -> int:
        return len(self.names)

    def run(self, jobs: int = 1) -> Generator[Outcome, None, None]:
        """Stage all nights and tell what becomes of each; write ``summary.tsv`` at the end.

        The table is written too when the iterator is closed early or interrupted, with what is
        :attr:`untold`, and keeps the nights of other commands.

        Parameters
        ----------
        jobs : int
            Processes at a time; 1 works in this one.
        """
        if jobs < 1:
            raise ArgumentError(f"jobs is {jobs}, expected at least 1")
        # of nights that another command staged into the same folder, too
        rows = _read_table(self.out / SUMMARY_TABLE)
        return self._run(jobs, rows)

    def _run(self, jobs: int, rows: dict[str, list[str]]) -> Generator[Outcome, None, None]:
        work = partial(
            stage_one,
            out=self.out,
            options=self.options,
            model_sha256=self.model_sha256,
            n_nights=len(self),
            jobs=jobs,
        )
        items = list(self.names.items())
        told = set[str]()
        try:
            for outcome in run_all(work, items, jobs=jobs, lost=_lost):
                rows[outcome.name] = row_of(outcome)
                told.add(outcome.name)
                yield outcome
        finally:
            with undisturbed():  # by a second Ctrl-C
                self.untold = list(self._staged_besides(told, rows))
                rows |= {outcome.name: row_of(outcome) for outcome in self.untold}
                _write_table(self.out / SUMMARY_TABLE, list(rows.values()))

    def _staged_besides(self, told: set[str], rows: Mapping[str, list[str]]) -> Iterator[Outcome]:
        """Yield nights that lie there whole and are not in the table as they are."""
        for name, path in self.names.items():
            summary = None if name in told else read_summary(self.out, name)
            if summary is None or summary.get("source") != path.name:
                continue
            if not is_finished(self.out, name, summary.get("marks") or {}):
                continue
            outcome = Outcome(name, path, STAGED, summary=_slim(summary))
            either = [row_of(replace(outcome, status=status)) for status in (STAGED, THERE)]
            if rows.get(name) not in either:
                yield outcome


def stage_one(
    item: tuple[str, Path],
    *,
    out: Path,
    options: Options,
    model_sha256: str,
    n_nights: int = 1,
    jobs: int = 1,
) -> Outcome:
    """Stage one of many nights and write its files; whatever fails is in the outcome.

    Parameters
    ----------
    item : (str, Path)
        Name of its files, and the recording.
    out : Path
    options : Options
    model_sha256 : str
        Of the model that ``options`` name: hashes tell what was staged before.
    n_nights, jobs : int
        How many nights there are in all, and processes.
    """
    name, path = item
    try:
        marks = marks_of(path, options, model_sha256)
        if is_finished(out, name, marks):
            return Outcome(name, path, THERE, summary=_slim(read_summary(out, name)))
        check_free(out, name, path.name, marks["recording"])
        model, forward = _model_of(options.model, options.device, n_nights, jobs)
        fields = {key: value for key, value in asdict(options).items() if key != "model"}
        night = stage(path, model, forward=forward, **fields)
        write_night(out, night, name, marks=marks)
        return Outcome(name, path, STAGED, summary=_slim(read_summary(out, name)))
    except PsdnormError as error:
        reason = str(error)
    except MemoryError:
        reason = "there was not enough memory"
    except Exception as error:  # one night must not stop the others
        detail = (str(error).strip().splitlines() or [""])[0]
        reason = f"it could not be staged, by a fault of psdnorm: {type(error).__name__} {detail}"
    return _lost(item, reason)


def marks_of(path: Path, options: Options, model_sha256: str) -> dict[str, str]:
    """Return hashes by which a recording, and how it was staged, are known again.

    Parameters
    ----------
    path : Path
    options : Options
        The device does not count.
    model_sha256 : str
    """
    asked = {**asdict(options), "model": model_sha256, "psdnorm": psdnorm.__version__}
    del asked["device"]
    how = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return {"recording": fingerprint(path, None, {}), "options": how}


def row_of(outcome: Outcome) -> list[str]:
    """Return the row of a night in ``summary.tsv``, as :data:`COLUMNS` name it.

    The table travels: like all outputs, it names the file and not whose folder it was in.
    """
    file = outcome.path.name
    summary = outcome.summary or {}
    statistics = summary.get("statistics", {})
    cells: list[Any] = [outcome.name, file, outcome.status]
    cells.append(summary.get("shift", {}).get("verdict"))
    cells.append(summary["epochs"] / 120 if summary else None)
    cells += [statistics.get(name) for name in _FIGURES]
    cells += [statistics.get("stage_percent", {}).get(stage) for stage in STAGES[1:]]
    cells += [summary.get("mean_confidence"), summary.get("mean_disagreement")]
    cells.append(outcome.reason.replace(str(outcome.path), file))
    return [_cell(cell) for cell in cells]


@functools.lru_cache(maxsize=1)
def _model_of(
    folder: str | None, device: str | None, n_nights: int, jobs: int
) -> tuple[StagingModel, Forward | None]:
    """Load the model once per process."""
    model = load_model(folder)
    place = resolve_device(device or "auto")
    if place.type != "cuda":
        if jobs > 1:  # or each process would start as many threads as there are cores
            torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
        return model, None
    model.network.to(place)
    return model, accelerate(model.network) if n_nights >= _WORTH_COMPILING * jobs else None


def _slim(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    """Leave of a summary what a row needs: a thousand of them are kept."""
    if summary is None:
        return None
    kept = ("statistics", "shift", "epochs", "mean_confidence", "mean_disagreement")
    return {name: summary[name] for name in kept}


def _lost(item: tuple[str, Path], reason: str) -> Outcome:
    name, path = item
    named = reason if path.name in reason else f"{path}: {reason}"
    return Outcome(name, path, FAILED, named)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(str(value).split())


def _read_table(path: Path) -> dict[str, list[str]]:
    """Return the rows of a table by name; refuse one that is not ours, which is not replaced."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    rows = [line.split("\t") for line in lines]
    if not rows or tuple(rows[0]) != COLUMNS:
        raise StoreError(
            f"{path} is there already and was not written by psdnorm stage: expected another "
            "folder for what it writes (-o)"
        )
    return {row[0]: row for row in rows[1:] if len(row) == len(COLUMNS)}


def _write_table(path: Path, rows: list[list[str]]) -> None:
    content = "".join("\t".join(row) + "\n" for row in [list(COLUMNS), *rows])
    with written(path) as file:
        file.write(content.encode())
