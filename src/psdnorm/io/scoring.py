"""Scorings in any format become stages of 30 s epochs, in place."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io.bouts import Bout, bouts_of
from psdnorm.io.edf import each_annotation, read_annotations
from psdnorm.io.edf_plus import write_annotations
from psdnorm.io.recording import EPOCH_S, UNSCORED, whole_epochs
from psdnorm.io.scoring_tables import (
    read_lines,
    read_table,
    stages_among,
    write_lines,
    write_table,
)
from psdnorm.io.scoring_xml import read_xml, write_nsrr, write_profusion
from psdnorm.io.stage_names import says_stage, stage_of

# onsets and durations are rounded by those who write them; less than this is no gap, no overlap
# and no other grid
_JITTER_S = 0.5
_MOST_BYTES = 2**26
_EDFS = (".edf", ".rec")
_EDF_NAMES = ("W", "1", "2", "3", "R")
_READERS: dict[str, Callable[[bytes, str | Path], list[Bout]]] = {
    ".xml": read_xml,
    ".tsv": read_table,
    ".csv": read_table,
    ".txt": read_lines,
    ".eannot": read_lines,
}
FORMATS = ("nsrr", "profusion", "edf", "tsv", "text")


def read_stages(
    path: str | Path, duration_s: float, start: datetime | None = None
) -> NDArray[np.int8]:
    """Read a scoring and put it on the 30 s epochs of its signal.

    Parameters
    ----------
    path : str or Path
        NSRR or Profusion ``.xml``, EDF+ annotations ``.edf``, events ``.tsv`` or ``.csv`` with the
        columns onset, duration and stage or trial_type, or ``.txt`` with one stage per line.
    duration_s : float
        Length of the signal in seconds.
    start : datetime, optional
        When the signal starts. A scoring that has a start of its own (EDF+) is placed by the
        clock; the others count from the signal's first sample.

    Returns
    -------
    ndarray, (E,), int8
        For each whole epoch the stage that covers most of it and at least half of it; else -1.

    Raises
    ------
    RecordingError
        If the scoring is damaged, empty or contradicts itself, has epochs of another length, goes
        on for more than an epoch where there is no signal, or scores no epoch of the signal.
    """
    return place(read_bouts(path, start), duration_s, path)


def holds_stages(path: str | Path) -> bool:
    """Tell whether a signal holds its own stages, as an EDF+ may.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    RecordingError
        If it is damaged, or has annotations that may be stages or not.
    """
    if Path(path).suffix.lower() not in _EDFS:
        return False
    others = []
    for annotation in each_annotation(path):
        # mostly the first one: then the rest of a long file need not be read
        if says_stage(annotation.text) and stage_of(annotation.text) != UNSCORED:
            return True
        others.append(annotation)
    return any(bout.stage != UNSCORED for bout in stages_among(others, path))


def read_bouts(path: str | Path, start: datetime | None = None) -> list[Bout]:
    """Read a scoring in seconds from the signal's first sample, ordered and without overlap.

    A stage of 0 s marks where an epoch begins: it lasts that epoch, or until a stage that has a
    length of its own.

    Parameters
    ----------
    path, start
        As in :func:`read_stages`.
    """
    suffix = Path(path).suffix.lower()
    if suffix in _EDFS:
        annotations, own_start = read_annotations(path)
        late_s = _late_s(own_start, start, path)
        bouts = [b._replace(onset_s=b.onset_s + late_s) for b in stages_among(annotations, path)]
    elif suffix in _READERS:
        bouts = _READERS[suffix](_content(Path(path)), path)
    else:
        raise RecordingError(
            f"{path} has the suffix {suffix!r}, expected a scoring in .edf, {', '.join(_READERS)}"
        )
    bouts = _with_markers_lasting(sorted(bouts))
    _check(bouts, path)
    return bouts


def place(bouts: Sequence[Bout], duration_s: float, path: str | Path) -> NDArray[np.int8]:
    """Put bouts on the whole 30 s epochs of a signal; see :func:`read_stages`.

    Parameters
    ----------
    bouts : sequence of Bout
    duration_s : float
        Length of the signal in seconds.
    path : str or Path
        The scoring, for the error.
    """
    n_epochs = whole_epochs(duration_s)
    scored = [bout for bout in bouts if bout.stage != UNSCORED]
    first_s = min((bout.onset_s for bout in scored), default=0.0)
    last_s = max((bout.onset_s + bout.duration_s for bout in scored), default=0.0)
    if first_s < -EPOCH_S or last_s > duration_s + EPOCH_S:
        raise RecordingError(
            f"{path} scores {first_s:g} to {last_s:g} s, expected stages within the signal's "
            f"{duration_s:g} s"
        )
    covered_s = np.zeros((n_epochs, 5))  # (E, stages)
    for onset_s, length_s, stage in scored:
        begin_s, end_s = max(onset_s, 0.0), min(onset_s + length_s, EPOCH_S * n_epochs)
        if end_s <= begin_s:
            continue
        first, last = int(begin_s // EPOCH_S), int(np.ceil(end_s / EPOCH_S))
        edges_s = EPOCH_S * np.arange(first, last)
        parts_s = np.minimum(edges_s + EPOCH_S, end_s) - np.maximum(edges_s, begin_s)
        covered_s[first:last, stage] += parts_s
    stages = covered_s.argmax(axis=1).astype(np.int8)
    stages[covered_s.max(axis=1, initial=0.0) < EPOCH_S / 2] = UNSCORED
    if scored and (stages == UNSCORED).all():
        raise RecordingError(
            f"{path} scores {first_s:g} to {last_s:g} s and half of no epoch of the signal's "
            f"{duration_s:g} s, expected a hypnogram of it"
        )
    return stages


def grid_s(bouts: Sequence[Bout]) -> float:
    """Return where the scorer's first epoch border after the signal's start lies, 0 to 30 s."""
    phase_s = next(bout.onset_s for bout in bouts if bout.stage != UNSCORED) % EPOCH_S
    return phase_s if _JITTER_S < phase_s < EPOCH_S - _JITTER_S else 0.0


def write_stages(
    path: str | Path, stages: Sequence[int], form: str, start: datetime | None = None
) -> None:
    """Write stages in one of the formats that :func:`read_stages` reads.

    Parameters
    ----------
    path : str or Path
    stages : sequence of int, (E,)
        0…4 and -1 from the signal's first epoch on.
    form : {"nsrr", "profusion", "edf", "tsv", "text"}
        ``edf`` holds names by Rechtschaffen & Kales, as Sleep-EDF and MASS do.
    start : datetime, optional
        When the signal starts; only ``edf`` says so.
    """
    writers = {
        "nsrr": write_nsrr,
        "profusion": write_profusion,
        "tsv": write_table,
        "text": write_lines,
    }
    if form == "edf":
        bouts = [(b.onset_s, b.duration_s, _edf_text(b.stage)) for b in bouts_of(stages)]
        write_annotations(path, bouts, start)
    elif form in writers:
        writers[form](path, [int(stage) for stage in stages])
    else:
        raise ArgumentError(f"form must be one of {', '.join(FORMATS)}, found {form!r}")


def _edf_text(stage: int) -> str:
    return f"Sleep stage {_EDF_NAMES[stage] if stage >= 0 else '?'}"


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise RecordingError(f"{path} has more than {_MOST_BYTES} bytes, expected a scoring")
    return content


def _late_s(own: datetime | None, signal: datetime | None, path: str | Path) -> float:
    """Return how long after the signal a scoring starts that has a clock of its own."""
    if own is None or signal is None:
        return 0.0
    late = own - signal
    if abs(late) < timedelta(days=1):
        return late.total_seconds()
    # the date of one of the two was blurred for privacy, the time of day was not
    if abs(late) % timedelta(days=1) < timedelta(seconds=1):
        return 0.0
    raise RecordingError(
        f"{path} starts at {own}, expected a start within a day of the signal's, {signal}"
    )


def _with_markers_lasting(ordered: Sequence[Bout]) -> list[Bout]:
    """Give stages of 0 s the epoch that they mark; what follows without a mark stays unscored."""
    lasting = []
    until_s = math.inf  # where the next stage begins that has a length of its own
    for bout in reversed(ordered):
        if bout.duration_s == 0:
            bout = bout._replace(duration_s=min(EPOCH_S, until_s - bout.onset_s))
        else:
            until_s = bout.onset_s
        lasting.append(bout)
    return lasting[::-1]


def _check(ordered: Sequence[Bout], path: str | Path) -> None:
    """Refuse a scoring that is empty, contradicts itself or has epochs that are not of 30 s."""
    scored = [bout for bout in ordered if bout.stage != UNSCORED]
    if not scored:
        raise RecordingError(
            f"{path} scores no epoch, found {len(ordered)} unscored stages, expected a hypnogram"
        )
    for bout in ordered:
        if bout.duration_s < 0:
            raise RecordingError(
                f"{path} has a stage of {bout.duration_s:g} s at {bout.onset_s:g} s"
            )
    for before, after in pairwise(ordered):
        if before.onset_s + before.duration_s > after.onset_s + _JITTER_S:
            raise RecordingError(
                f"{path} has overlapping stages, one from {before.onset_s:g} s for "
                f"{before.duration_s:g} s and one from {after.onset_s:g} s"
            )
    lengths_s = [bout.duration_s for bout in scored]
    odd = [s for s in lengths_s if abs(s - EPOCH_S * round(s / EPOCH_S)) > _JITTER_S]
    # a last epoch may be cut short, but epochs of 20 s cannot be told from those of 30 s by half
    if 2 * len(odd) > len(scored):
        raise RecordingError(
            f"{path} has stages that last {odd[0]:g} s, expected epochs of {EPOCH_S} s"
        )
