"""Scorings as text: events in a table (BIDS) and one stage per line."""

import csv
import math
from bisect import bisect
from collections.abc import Sequence
from pathlib import Path

from psdnorm.errors import RecordingError
from psdnorm.io.bouts import Bout, bouts_of, epochs_as_bouts, known_stage, seconds
from psdnorm.io.edf_plus import Annotation, decode
from psdnorm.io.recording import EPOCH_S, STAGES, UNSCORED
from psdnorm.io.stage_names import digits_are_ambiguous, says_stage, stage_of

# a column that holds stages alone is preferred to one that holds events of all kinds
_STAGE_COLUMNS = ("stage", "sleep_stage", "stage_hum", "staging", "hypnogram")
_EVENT_COLUMNS = ("trial_type", "description", "event", "annotation")
_UNSCORED = "n/a"
_LIGHTS_ON = "l"


def read_table(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in a table with the columns onset, duration and a stage's name."""
    rows = list(_rows(_decode(content), path))
    names = [name.strip().lower() for name in rows[0]] if rows else []
    column = next((c for c in _STAGE_COLUMNS + _EVENT_COLUMNS if c in names), None)
    if "onset" not in names or column is None:
        raise RecordingError(
            f"{path} has the columns {', '.join(names) or 'none'!r:.100}, expected onset, duration "
            "and stage or trial_type"
        )
    events = []
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise RecordingError(
                f"{path} has {len(row)} columns in line {line}, expected {len(names)}"
            )
        values = dict(zip(names, row, strict=True))
        length = values.get("duration", "n/a").strip()
        duration_s = None if length.lower() in ("n/a", "") else seconds(length, path)
        events.append(Annotation(seconds(values["onset"], path), duration_s, values[column]))
    if column in _EVENT_COLUMNS:
        return stages_among(events, path)
    _refuse_ambiguous({event.text.strip() for event in events}, path)
    return [_bout(event, path) for event in events]


def read_lines(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in a text with one per line, for one 30 s epoch after the other.

    ``L`` is what Luna writes while the lights are on: unscored.
    """
    lines = [line.strip() for line in _decode(content).rstrip().splitlines()]
    if "" in lines:  # to pass over it would move all that follow
        raise RecordingError(
            f"{path} has a blank line {lines.index('') + 1}, expected a stage for every epoch"
        )
    _refuse_ambiguous(set(lines), path)
    return epochs_as_bouts(
        UNSCORED if line.casefold() == _LIGHTS_ON else known_stage(line, path) for line in lines
    )


def stages_among(events: Sequence[Annotation], path: str | Path) -> list[Bout]:
    """Return those events that are stages; apneas, arousals and the like are left out.

    Events that say so (``Sleep stage N2``) are stages. Bare names (``N2``) are where none of those
    covers them and they last an epoch; what is shorter is a marker. A file without any that says so
    has its stages in bare names, however long. A number that lasts whole epochs and is covered by
    none is refused, as it may be either.
    """
    saying = [event for event in events if says_stage(event.text)]
    named = [e for e in events if stage_of(e.text) is not None and not says_stage(e.text)]
    bare = [event for event in named if not event.text.strip().isdigit()]
    if saying:
        long = [e for e in bare if stage_of(e.text) != UNSCORED and _length_s(e) > EPOCH_S - 1]
        bare = _uncovered(long, saying)
    numbers = [e for e in named if e.text.strip().isdigit() and e.duration_s]
    for event in _uncovered(numbers, saying + bare):
        if _length_s(event) % EPOCH_S == 0:
            raise RecordingError(
                f"{path} has {event.text.strip()!r} from {event.onset_s:g} s for "
                f"{event.duration_s:g} s, which may be a stage or a marker, expected a name such "
                "as N2"
            )
    return [_bout(event, path) for event in saying + bare]


def write_table(path: str | Path, stages: Sequence[int]) -> None:
    """Write stages, (E,), as BIDS events, with AASM names and n/a for unscored.

    Parameters
    ----------
    path : str or Path
    stages : sequence of int, (E,)
        0…4 and -1 from the signal's first epoch on.
    """
    rows = [
        f"{onset_s}\t{duration_s}\t{STAGES[stage] if stage >= 0 else _UNSCORED}\n"
        for onset_s, duration_s, stage in bouts_of(stages)
    ]
    text = "onset\tduration\tstage\n" + "".join(rows)
    Path(path).write_text(text, encoding="utf-8", newline="\n")


def write_lines(path: str | Path, stages: Sequence[int]) -> None:
    """Write stages, (E,), one per line, with AASM names and ? for unscored."""
    names = [STAGES[stage] if stage >= 0 else "?" for stage in stages]
    Path(path).write_text("".join(f"{n}\n" for n in names), encoding="utf-8", newline="\n")


def _bout(event: Annotation, path: str | Path) -> Bout:
    return Bout(event.onset_s, _length_s(event), known_stage(event.text, path))


def _length_s(event: Annotation) -> float:
    # without a duration it is taken to be one epoch: what it may not cover stays unscored
    return EPOCH_S if event.duration_s is None else event.duration_s


def _uncovered(events: Sequence[Annotation], others: Sequence[Annotation]) -> list[Annotation]:
    """Return the events whose middle lies within none of the others."""
    spans_s = sorted((other.onset_s, other.onset_s + _length_s(other)) for other in others)
    uncovered = []
    for event in events:
        middle_s = event.onset_s + _length_s(event) / 2
        before = bisect(spans_s, (middle_s, math.inf)) - 1
        if before < 0 or spans_s[before][1] <= middle_s:
            uncovered.append(event)
    return uncovered


def _rows(text: str, path: str | Path) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    delimiter = max("\t;,", key=lines[0].count) if lines else ","
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error as error:
        raise RecordingError(f"{path} is no table: {error}") from error


def _decode(content: bytes) -> str:
    return decode(content.removeprefix(b"\xef\xbb\xbf"))  # Windows puts a mark before UTF-8


def _refuse_ambiguous(texts: set[str], path: str | Path) -> None:
    if digits_are_ambiguous(texts):
        raise RecordingError(
            f"{path} has stages numbered 4 and none numbered 5, expected names, as 4 may be stage "
            "4 or REM"
        )
