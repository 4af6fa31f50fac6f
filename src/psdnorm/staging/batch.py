"""Stage one or many recordings: finished nights are skipped, a failure does not stop the others."""

import csv
import functools
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import psdnorm
from psdnorm.constants import EPOCH_S, STAGES
from psdnorm.errors import ArgumentError, PsdnormError, RecordingError, StoreError, os_errors_as
from psdnorm.io import read_bouts, read_stages
from psdnorm.models import accelerate
from psdnorm.prepare import fingerprint
from psdnorm.runtime import digest, run_all, undisturbed
from psdnorm.staging.models import StagingModel, load_model
from psdnorm.staging.night_files import (
    MISSING,
    check_free,
    check_place,
    is_finished,
    read_summary,
    write_night,
    write_table,
)
from psdnorm.staging.night_statistics import agreement
from psdnorm.staging.stager import stage
from psdnorm.training import Forward, resolve_device

STAGED, THERE, FAILED = "staged", "already there", "failed"
SUMMARY_TABLE = "summary.tsv"
# from this number of nights on, compiling the network for CUDA is worth its minute or two
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
    """The arguments of ``stage``, and a scoring to compare one night with."""

    model: str | None = None
    channels: str | None = None
    unit: str | None = None
    lights_off: str | None = None
    lights_on: str | None = None
    device: str | None = None
    scoring: str | None = None


@dataclass(frozen=True)
class StagingOutcome:
    """The outcome of one night."""

    name: str
    path: Path
    status: str  # STAGED, THERE or FAILED
    reason: str = ""  # one sentence if it failed
    summary: dict[str, Any] | None = None  # main sections of NAME.json


class StagingJob:
    """Recordings to stage into a folder; raises at once if none could be staged.

    A night that is staged ``alone`` gets no ``summary.tsv``, and its errors are raised.
    """

    def __init__(
        self, names: Mapping[str, Path], out: Path, options: Options, *, alone: bool = False
    ) -> None:
        if options.scoring is not None and len(names) != 1:
            raise ArgumentError(
                f"scoring is {options.scoring!r} for {len(names)} recordings, expected one"
            )
        self.names = dict(names)
        self.out = out
        self.options = options
        self.alone = alone
        resolve_device(options.device or "auto")
        model = load_model(options.model)
        self.notice = model.notice
        self.model_sha256 = str(model.description["sha256"])
        # after an interruption: nights that were staged but not yielded
        self.not_yielded: list[StagingOutcome] = []
        check_place(out)
        if not alone:
            _read_table(out / SUMMARY_TABLE)  # raises if it is not ours

    def __len__(self) -> int:
        return len(self.names)

    def run(self, jobs: int = 1) -> Generator[StagingOutcome, None, None]:
        """Stage all nights and yield their outcomes; then write the table.

        It is written after an interruption, too, and keeps the nights of other commands.
        """
        rows = {} if self.alone else _read_table(self.out / SUMMARY_TABLE)
        work = partial(
            stage_one,
            out=self.out,
            options=self.options,
            model_sha256=self.model_sha256,
            n_nights=len(self),
            jobs=jobs,
            alone=self.alone,
        )
        yielded = set[str]()
        try:
            for outcome in run_all(work, list(self.names.items()), jobs=jobs, lost=_lost):
                rows[outcome.name] = row_of(outcome)
                yielded.add(outcome.name)
                yield outcome
        finally:
            with undisturbed():  # by a second Ctrl-C
                self.not_yielded = list(self._staged_besides(yielded, rows))
                rows |= {outcome.name: row_of(outcome) for outcome in self.not_yielded}
                if not self.alone:
                    self.out.mkdir(parents=True, exist_ok=True)
                    write_table(self.out / SUMMARY_TABLE, [COLUMNS, *rows.values()])

    def _staged_besides(
        self, yielded: set[str], rows: Mapping[str, Sequence[str]]
    ) -> Iterator[StagingOutcome]:
        """Yield finished nights that the table lacks or describes differently."""
        for name, path in self.names.items():
            summary = None if name in yielded else read_summary(self.out, name)
            if summary is None or summary.get("source") != path.name:
                continue
            outcome = StagingOutcome(name, path, STAGED, summary=_slim(summary))
            either = [row_of(replace(outcome, status=status)) for status in (STAGED, THERE)]
            is_whole = is_finished(self.out, name, summary.get("marks") or {})
            if is_whole and rows.get(name) not in either:
                yield outcome


def stage_one(
    item: tuple[str, Path],
    *,
    out: Path,
    options: Options,
    model_sha256: str,
    n_nights: int = 1,
    jobs: int = 1,
    alone: bool = False,
) -> StagingOutcome:
    """Stage a night and write its files unless they are there; return errors unless alone."""
    name, path = item
    try:
        marks = _marks(path, options, model_sha256)
        if is_finished(out, name, marks):
            return StagingOutcome(name, path, THERE, summary=_slim(read_summary(out, name)))
        check_free(out, name, path.name, marks["recording"])
        if options.scoring is not None:
            read_bouts(options.scoring)  # an error in it must show before any long computation
        model, forward = _model_of(options.model, options.device, n_nights, jobs)
        asked = (options.channels, options.unit, options.lights_off, options.lights_on)
        night = stage(path, model, *asked, options.device, forward=forward)
        compared = None
        if options.scoring is not None:
            duration_s = EPOCH_S * len(night.hypnogram)
            scored = read_stages(options.scoring, duration_s, night.start)
            compared = agreement(scored, night.hypnogram, night.probabilities)
        write_night(out, night, name, agreement=compared, marks=marks)
        return StagingOutcome(name, path, STAGED, summary=_slim(read_summary(out, name)))
    except Exception as error:  # one night must not stop the others
        if alone:
            raise
        detail = (str(error).strip().splitlines() or [""])[0]
        if isinstance(error, MemoryError):
            detail = "there was not enough memory"
        elif not isinstance(error, PsdnormError):
            detail = f"internal error, a bug in psdnorm: {type(error).__name__} {detail}"
        return _lost(item, detail)


def _lost(item: tuple[str, Path], reason: str) -> StagingOutcome:
    name, path = item
    return StagingOutcome(
        name, path, FAILED, reason if path.name in reason else f"{path}: {reason}"
    )


def _marks(path: Path, options: Options, model_sha256: str) -> dict[str, str]:
    """Return hashes of a recording and of how it is staged, device excluded."""
    how = {**asdict(options), "model": model_sha256, "psdnorm": psdnorm.__version__}
    del how["device"], how["scoring"]
    if options.scoring is not None:
        with os_errors_as(RecordingError, options.scoring, "cannot be read"):
            how["scoring"] = hashlib.sha256(Path(options.scoring).read_bytes()).hexdigest()
    return {"recording": fingerprint(path, None, {}), "options": digest(how)}


@functools.lru_cache(maxsize=1)
def _model_of(
    folder: str | None, device: str | None, n_nights: int, jobs: int
) -> tuple[StagingModel, Forward | None]:
    """Load the model once per process."""
    model = load_model(folder)
    place = resolve_device(device or "auto")
    if place.type != "cuda":
        if jobs > 1:  # else each process starts as many threads as there are cores
            torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
        return model, None
    model.network.to(place)
    return model, accelerate(model.network) if n_nights >= _WORTH_COMPILING * jobs else None


def row_of(outcome: StagingOutcome) -> list[str]:
    """Return the row of a night in ``summary.tsv``; it names the file but not its folder."""
    file = outcome.path.name
    summary = outcome.summary or {}
    statistics = summary.get("statistics", {})
    cells: list[Any] = [outcome.name, file, outcome.status, summary.get("shift", {}).get("verdict")]
    cells.append(summary["epochs"] / 120 if summary else None)
    cells += [statistics.get(name) for name in _FIGURES]
    cells += [statistics.get("stage_percent", {}).get(stage) for stage in STAGES[1:]]
    cells += [summary.get("mean_confidence"), summary.get("mean_disagreement")]
    cells.append(outcome.reason.replace(str(outcome.path), file))
    texts = [f"{each:.4g}" if isinstance(each, float) else str(each or "") for each in cells]
    return [" ".join(text.split()) or MISSING for text in texts]


def _slim(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    """Keep what a row needs: there may be thousands of nights."""
    if summary is None:
        return None
    kept = ("statistics", "shift", "epochs", "mean_confidence", "mean_disagreement")
    return {name: summary[name] for name in kept}


def _read_table(path: Path) -> dict[str, Sequence[str]]:
    """Return the rows of a table by name; raise if it is not ours, as it would be replaced."""
    if not path.exists():
        return {}
    with os_errors_as(StoreError, path, "cannot be read"):
        text = path.read_text(encoding="utf-8", errors="replace")
    rows = list(csv.reader(text.splitlines(), "excel-tab"))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise StoreError(
            f"{path} exists and was not written by psdnorm stage: expected another folder (-o)"
        )
    return {row[0]: row for row in rows[1:] if len(row) == len(COLUMNS)}
