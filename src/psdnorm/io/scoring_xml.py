"""Scorings in XML: the NSRR's own format and Compumedics Profusion."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from psdnorm.errors import RecordingError
from psdnorm.io.bouts import Bout, bouts_of, epochs_as_bouts, known_stage, seconds
from psdnorm.io.recording import EPOCH_S

_DEEPEST = 100  # elements within elements
_NSRR = ("Wake|0", "Stage 1 sleep|1", "Stage 2 sleep|2", "Stage 3 sleep|3", "REM sleep|5")
_NSRR_UNSCORED = "Unscored|9"
_PROFUSION = ("0", "1", "2", "3", "5")
_PROFUSION_UNSCORED = "9"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def read_xml(content: bytes, path: str | Path) -> list[Bout]:
    """Return the stages in an XML of the NSRR or of Profusion, told apart by its first element."""
    root = _parse(content, path)
    if root.tag == "PSGAnnotation":
        return _read_nsrr(root, path)
    if root.tag == "CMPStudyConfig":
        return _read_profusion(root, path)
    raise RecordingError(
        f"{path} is an XML of {root.tag!r:.50}, expected PSGAnnotation (NSRR) or CMPStudyConfig "
        "(Profusion)"
    )


def write_nsrr(path: str | Path, stages: Sequence[int]) -> None:
    """Write stages, (E,), as the NSRR does: one event per bout.

    Parameters
    ----------
    path : str or Path
    stages : sequence of int, (E,)
        0…4 and -1 from the signal's first epoch on.
    """
    events = "".join(
        "<ScoredEvent>\n<EventType>Stages|Stages</EventType>\n"
        f"<EventConcept>{_NSRR[stage] if stage >= 0 else _NSRR_UNSCORED}</EventConcept>\n"
        f"<Start>{onset_s:.1f}</Start>\n<Duration>{duration_s:.1f}</Duration>\n</ScoredEvent>\n"
        for onset_s, duration_s, stage in bouts_of(stages)
    )
    text = (
        f"{_HEAD}<PSGAnnotation>\n<SoftwareVersion>psdnorm</SoftwareVersion>\n"
        f"<EpochLength>{EPOCH_S}</EpochLength>\n<ScoredEvents>\n{events}</ScoredEvents>\n"
        "</PSGAnnotation>\n"
    )
    Path(path).write_text(text, encoding="utf-8")


def write_profusion(path: str | Path, stages: Sequence[int]) -> None:
    """Write stages, (E,), as Profusion does: one element per epoch; see :func:`write_nsrr`."""
    epochs = "".join(
        f"<SleepStage>{_PROFUSION[stage] if stage >= 0 else _PROFUSION_UNSCORED}</SleepStage>\n"
        for stage in stages
    )
    text = (
        f"{_HEAD}<CMPStudyConfig>\n<EpochLength>{EPOCH_S}</EpochLength>\n<ScoredEvents/>\n"
        f"<SleepStages>\n{epochs}</SleepStages>\n</CMPStudyConfig>\n"
    )
    Path(path).write_text(text, encoding="utf-8")


def _read_nsrr(root: Element, path: str | Path) -> list[Bout]:
    bouts = []
    for event in root.iterfind("./ScoredEvents/ScoredEvent"):
        kind = event.findtext("EventType", "")
        if not kind.strip().lower().startswith("stages"):
            continue
        concept = event.findtext("EventConcept", "").strip()
        name, _, code = concept.partition("|")
        bouts.append(
            Bout(
                seconds(event.findtext("Start", ""), path),
                seconds(event.findtext("Duration", ""), path),
                known_stage(code or name, path),
            )
        )
    return bouts


def _read_profusion(root: Element, path: str | Path) -> list[Bout]:
    length_s = seconds(root.findtext("EpochLength", str(EPOCH_S)), path)
    if length_s != EPOCH_S:
        raise RecordingError(f"{path} has epochs of {length_s:g} s, expected {EPOCH_S} s")
    found = root.iterfind("./SleepStages/SleepStage")
    return epochs_as_bouts([known_stage(each.text or "", path) for each in found])


def _parse(content: bytes, path: str | Path) -> Element:
    """Return the first element of an XML that declares no document type, so no entities."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    depth = 0

    def refuse(*_: object) -> None:
        # entities, external ones and bombs among them, can be declared nowhere else
        raise RecordingError(f"{path} declares a document type, expected an XML without DOCTYPE")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise RecordingError(f"{path} nests XML deeper than {_DEEPEST} elements")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, RecordingError):
            raise
        raise RecordingError(f"{path} is no XML: {' '.join(str(error).split()):.100}") from error
