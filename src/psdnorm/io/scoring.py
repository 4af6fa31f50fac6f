"""Read sleep scorings: EDF+ annotations, NSRR and Profusion XML, tables."""

import csv
import io
import math
import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, STAGES, UNSCORED
from psdnorm.errors import ArgumentError, RecordingError, os_errors_as
from psdnorm.io.channels import Header
from psdnorm.io.edf import (
    Annotation,
    decode,
    each_annotation,
    parse_header,
    read_annotations,
    seconds,
    write_annotations,
)

_NAMES = {
    0: ("w", "wake", "awake", "wakefulness", "0", "s0", "n0"),
    1: ("1", "n1", "s1", "nrem1", "nonrem1"),
    2: ("2", "n2", "s2", "nrem2", "nonrem2"),
    # AASM merged Rechtschaffen & Kales' stages 3 and 4
    3: ("3", "n3", "s3", "nrem3", "nonrem3", "4", "n4", "s4", "nrem4", "nonrem4"),
    4: ("r", "rem", "5"),
    UNSCORED: (
        *("?", "-1", "9", "unscored", "unknown", "undefined", "n/a", "nan"),
        *("6", "m", "mt", "movement", "movementtime"),
    ),
}
_STAGES = {name: stage for stage, names in _NAMES.items() for name in names}


def stage_of(text: str) -> int | None:
    """Return the stage that a text names, such as ``N3``, ``Sleep stage 4`` or ``SLEEP-S1``."""
    # keep the minus of -1, remove the hyphen of SLEEP-S1
    name = re.sub(r"(?<=\w)[\s_-]+(?=[\w?])", "", text.strip().casefold())
    bare = re.sub(r"^(sleepstage|stage|sleep)|sleep$", "", name)
    return _STAGES.get(bare, _STAGES.get(name))


def says_stage(text: str) -> bool:
    """Return whether a text claims to name a stage, known or not: ``Sleep stage …``."""
    # an underscore also ends the word: sleep_stage_W
    words = r"\s*(sleep[\s_-]*stage|stage|movement[\s_]+time)(?![^\W_])"
    return re.match(words, text, re.I) is not None


class Bout(NamedTuple):
    """A stage with onset and duration; -1 is unscored."""

    onset_s: float
    duration_s: float
    stage: int


def whole_epochs(duration_s: float) -> int:
    """Return the number E of complete 30 s epochs in a duration in seconds."""
    # a quotient of floats may fall just short of the whole number it represents
    return int(duration_s / EPOCH_S + 1e-6)


def epochs_as_bouts(stages: Iterable[int]) -> list[Bout]:
    """Return one bout per 30 s epoch, starting at 0 s."""
    return [Bout(EPOCH_S * index, EPOCH_S, stage) for index, stage in enumerate(stages)]


def bouts_of(stages: Sequence[int]) -> list[Bout]:
    """Convert stages of 30 s epochs, (E,), to bouts, one for each run of equal stages."""
    bouts = []
    onset_s = 0
    for stage, run in groupby(map(int, stages)):
        duration_s = EPOCH_S * len(list(run))
        bouts.append(Bout(onset_s, duration_s, stage))
        onset_s += duration_s
    return bouts


def known_stage(text: str, path: str | Path) -> int:
    stage = stage_of(text)
    if stage is None:
        raise RecordingError(
            f"{path} has {text.strip()!r:.50} as a stage, expected W, N1, N2, N3, REM or their "
            "names by Rechtschaffen & Kales"
        )
    return stage


# a column of stages only is preferred to one of events of all kinds
_STAGE_COLUMNS = ("stage", "sleep_stage", "stage_hum", "staging", "hypnogram")
_EVENT_COLUMNS = ("trial_type", "description", "event", "annotation")
_LIGHTS_ON = "l"  # what Luna writes, in capitals: unscored


def read_table(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in a table with the columns onset, duration and stage or event."""
    try:
        rows = read_rows(content)
    except csv.Error as error:
        raise RecordingError(f"{path} is not a table: {error}") from error
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
    _check_ambiguous({event.text.strip() for event in events}, path)
    return [_bout(event, path) for event in events]


def read_lines(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in a text with one line per consecutive 30 s epoch."""
    lines = [line.strip() for line in _decode(content).rstrip().splitlines()]
    if "" in lines:  # skipping it would shift all that follow
        raise RecordingError(
            f"{path} has a blank line {lines.index('') + 1}, expected a stage for every epoch"
        )
    _check_ambiguous(set(lines), path)
    return epochs_as_bouts(
        UNSCORED if line.casefold() == _LIGHTS_ON else known_stage(line, path) for line in lines
    )


def stages_among(events: Sequence[Annotation], path: str | Path) -> list[Bout]:
    """Return the events that are stages; apneas, arousals and the like are left out.

    Explicit events (``Sleep stage N2``) are stages. Bare names (``N2``) are stages if no explicit
    event covers them and they last an epoch; shorter ones are markers. In a file without explicit
    events, all bare names are stages, whatever their duration. A bare number that lasts a whole
    number of epochs and is not covered raises an error, as it may be either.
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


def _bout(event: Annotation, path: str | Path) -> Bout:
    return Bout(event.onset_s, _length_s(event), known_stage(event.text, path))


def _length_s(event: Annotation) -> float:
    # without a duration it lasts one epoch; anything beyond stays unscored
    return EPOCH_S if event.duration_s is None else event.duration_s


def _uncovered(events: Sequence[Annotation], others: Sequence[Annotation]) -> list[Annotation]:
    """Return the events whose midpoint is not within any of the others."""
    spans_s = sorted((other.onset_s, other.onset_s + _length_s(other)) for other in others)
    uncovered = []
    for event in events:
        middle_s = event.onset_s + _length_s(event) / 2
        before = bisect(spans_s, (middle_s, math.inf)) - 1
        if before < 0 or spans_s[before][1] <= middle_s:
            uncovered.append(event)
    return uncovered


def read_rows(content: bytes) -> list[list[str]]:
    """Read the rows of a CSV or TSV, skipping blank ones; raises csv.Error."""
    text = _decode(content)
    delimiter = max("\t;,", key=text.lstrip().partition("\n")[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [row for row in rows if any(cell.strip() for cell in row)]


def _decode(content: bytes) -> str:
    return decode(content.removeprefix(b"\xef\xbb\xbf"))  # the byte order mark of Windows


def _check_ambiguous(texts: set[str], path: str | Path) -> None:
    # 4 may be REM (numbered 0…4) or stage 4
    if "4" in texts and "5" not in texts:
        raise RecordingError(
            f"{path} has stages numbered 4 and none numbered 5, expected names, as 4 may be stage "
            "4 or REM"
        )


_DEEPEST = 100  # nested elements
# indexed by stage; the last one, -1, is unscored
_NSRR = (
    *("Wake|0", "Stage 1 sleep|1", "Stage 2 sleep|2", "Stage 3 sleep|3", "REM sleep|5"),
    "Unscored|9",
)
_PROFUSION = ("0", "1", "2", "3", "5", "9")
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def read_xml(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in an NSRR or Profusion XML, distinguished by its root element."""
    root = _parse(content, path)
    if root.tag == "CMPStudyConfig":
        length_s = seconds(root.findtext("EpochLength", str(EPOCH_S)), path)
        if length_s != EPOCH_S:
            raise RecordingError(f"{path} has epochs of {length_s:g} s, expected {EPOCH_S} s")
        found = root.iterfind("./SleepStages/SleepStage")
        return epochs_as_bouts(known_stage(each.text or "", path) for each in found)
    if root.tag != "PSGAnnotation":
        raise RecordingError(
            f"{path} is an XML of {root.tag!r:.50}, expected PSGAnnotation (NSRR) or "
            "CMPStudyConfig (Profusion)"
        )
    bouts = []
    for event in root.iterfind("./ScoredEvents/ScoredEvent"):
        if event.findtext("EventType", "").strip().lower().startswith("stages"):
            onset_s, duration_s = (
                seconds(event.findtext(tag, ""), path) for tag in ("Start", "Duration")
            )
            name, _, code = event.findtext("EventConcept", "").strip().partition("|")
            bouts.append(Bout(onset_s, duration_s, known_stage(code or name, path)))
    return bouts


class _Builder(TreeBuilder):
    """Builds a tree of bounded depth from an XML that declares no document type."""

    depth = 0

    def doctype(self, *_: object) -> None:
        # entities, including external ones and bombs, can only be declared here
        raise RecordingError("declares a document type, expected an XML without DOCTYPE")

    def start(self, tag: Any, attributes: Any, /) -> Element:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise RecordingError(f"nests XML deeper than {_DEEPEST} elements")
        return super().start(tag, attributes)

    def end(self, tag: str, /) -> Element:
        self.depth -= 1
        return super().end(tag)


def _parse(content: bytes, path: str | Path) -> Element:
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(content)
        return parser.close()
    except RecordingError as error:
        raise RecordingError(f"{path} {error}") from None
    except (ParseError, ValueError, LookupError) as error:
        raise RecordingError(f"{path} is not XML: {' '.join(str(error).split()):.100}") from error


# writers round onsets and durations; a difference below this is no gap, no overlap and no other
# epoch grid
_JITTER_S = 0.5
_MOST_BYTES = 2**26
_EDFS = (".edf", ".rec")
# EDF+'s standard names, known to MNE and EDFbrowser: AASM's N1 is its 1; the last is unscored
EDF_STAGE_NAMES = ("W", "1", "2", "3", "R", "?")
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
    """Read a scoring and align it with the 30 s epochs of its signal.

    RecordingError is raised if it is damaged, empty or contradictory, has epochs of another length,
    extends more than an epoch beyond the signal, or scores none of its epochs.

    Parameters
    ----------
    path : str or Path
        NSRR or Profusion ``.xml``, EDF+ annotations ``.edf``, events ``.tsv`` or ``.csv`` with the
        columns onset, duration and stage or trial_type, or ``.txt`` with one stage per line.
    duration_s : float
        Length of the signal in seconds.
    start : datetime, optional
        Start of the signal. A scoring with its own start time (EDF+) is aligned by the clock;
        the others count from the signal's first sample.

    Returns
    -------
    ndarray, (E,), int8
        For each complete epoch, the stage that covers most of it, and at least half; else -1.
    """
    return place(read_bouts(path, start), duration_s, path)


def holds_stages(path: str | Path) -> bool:
    """Return whether an EDF+ recording contains its own stages."""
    if Path(path).suffix.lower() not in _EDFS:
        return False
    others = []
    for annotation in each_annotation(path, parse_header(path)):
        # usually the first one, so the rest of a long file need not be read
        if says_stage(annotation.text) and stage_of(annotation.text) != UNSCORED:
            return True
        others.append(annotation)
    return any(bout.stage != UNSCORED for bout in stages_among(others, path))


def read_bouts(
    path: str | Path, start: datetime | None = None, header: Header | None = None
) -> list[Bout]:
    """Read a scoring, in seconds from the signal's first sample, sorted and without overlap."""
    suffix = Path(path).suffix.lower()
    if suffix in _EDFS:
        annotations, own_start = read_annotations(path, header)
        late_s = _late_s(own_start, start, path)
        bouts = [b._replace(onset_s=b.onset_s + late_s) for b in stages_among(annotations, path)]
    elif suffix in _READERS:
        with os_errors_as(RecordingError, path, "cannot be read"), open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise RecordingError(f"{path} has more than {_MOST_BYTES} bytes, expected a scoring")
        bouts = _READERS[suffix](content, path)
    else:
        raise RecordingError(
            f"{path} has the suffix {suffix!r}, expected a scoring in .edf, {', '.join(_READERS)}"
        )
    bouts = _with_markers_lasting(sorted(bouts))
    _check(bouts, path)
    return bouts


def place(bouts: Sequence[Bout], duration_s: float, path: str | Path) -> NDArray[np.int8]:
    """Assign bouts to the complete 30 s epochs of a signal; see :func:`read_stages`."""
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
            f"{path} scores {first_s:g} to {last_s:g} s, but no stage covers half an epoch of the "
            f"signal's {duration_s:g} s, expected a hypnogram of it"
        )
    return stages


def grid_s(bouts: Sequence[Bout]) -> float:
    """Return the scorer's first epoch boundary after the signal's start, 0 to 30 s."""
    phase_s = next(bout.onset_s for bout in bouts if bout.stage != UNSCORED) % EPOCH_S
    return phase_s if _JITTER_S < phase_s < EPOCH_S - _JITTER_S else 0.0


def write_stages(
    path: str | Path, stages: Sequence[int], form: str, start: datetime | None = None
) -> None:
    """Write stages, (E,), in one of :data:`FORMATS`; only ``edf`` stores the signal's start."""
    bouts = bouts_of(stages)
    if form not in FORMATS:
        raise ArgumentError(f"form must be one of {', '.join(FORMATS)}, found {form!r}")
    if form == "edf":
        notes = [
            (b.onset_s, b.duration_s, f"Sleep stage {EDF_STAGE_NAMES[b.stage]}") for b in bouts
        ]
        write_annotations(path, notes, start)
        return
    if form == "nsrr":
        events = "".join(
            "<ScoredEvent>\n<EventType>Stages|Stages</EventType>\n"
            f"<EventConcept>{_NSRR[stage]}</EventConcept>\n<Start>{onset_s:.1f}</Start>\n"
            f"<Duration>{duration_s:.1f}</Duration>\n</ScoredEvent>\n"
            for onset_s, duration_s, stage in bouts
        )
        text = (
            f"{_HEAD}<PSGAnnotation>\n<SoftwareVersion>psdnorm</SoftwareVersion>\n"
            f"<EpochLength>{EPOCH_S}</EpochLength>\n<ScoredEvents>\n{events}</ScoredEvents>\n"
            "</PSGAnnotation>\n"
        )
    elif form == "profusion":
        epochs = "".join(f"<SleepStage>{_PROFUSION[stage]}</SleepStage>\n" for stage in stages)
        text = (
            f"{_HEAD}<CMPStudyConfig>\n<EpochLength>{EPOCH_S}</EpochLength>\n<ScoredEvents/>\n"
            f"<SleepStages>\n{epochs}</SleepStages>\n</CMPStudyConfig>\n"
        )
    elif form == "tsv":
        names = (*STAGES, "n/a")
        rows = [f"{b.onset_s}\t{b.duration_s}\t{names[b.stage]}\n" for b in bouts]
        text = "onset\tduration\tstage\n" + "".join(rows)
    else:
        text = "".join(f"{(*STAGES, '?')[stage]}\n" for stage in stages)
    Path(path).write_text(text, encoding="utf-8", newline="\n")


def _late_s(own: datetime | None, signal: datetime | None, path: str | Path) -> float:
    """Return how long after the signal a scoring with its own start time begins."""
    if own is None or signal is None:
        return 0.0
    late = own - signal
    if abs(late) < timedelta(days=1):
        return late.total_seconds()
    # the date of one of the two was shifted for privacy, but not the time of day
    if abs(late) % timedelta(days=1) < timedelta(seconds=1):
        return 0.0
    raise RecordingError(
        f"{path} starts at {own}, expected a start within a day of the signal's, {signal}"
    )


def _with_markers_lasting(ordered: Sequence[Bout]) -> list[Bout]:
    """Extend stages of 0 s over the epoch they mark, as far as no longer stage covers it."""
    lasting = []
    until_s = math.inf  # onset of the next stage with a duration
    for bout in reversed(ordered):
        if bout.duration_s == 0:
            bout = bout._replace(duration_s=min(EPOCH_S, until_s - bout.onset_s))
        else:
            until_s = bout.onset_s
        lasting.append(bout)
    return lasting[::-1]


def _check(ordered: Sequence[Bout], path: str | Path) -> None:
    """Raise an error if a scoring is empty or contradictory, or its epochs are not 30 s long."""
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
    # the last epoch may be cut short: only a majority of odd lengths shows epochs not of 30 s
    if 2 * len(odd) > len(scored):
        raise RecordingError(
            f"{path} has stages that last {odd[0]:g} s, expected epochs of {EPOCH_S} s"
        )
