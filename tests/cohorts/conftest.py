"""Small downloads, typed by hand from what the cohorts' pages say; no simulator is involved."""

import os

import edf_files
import numpy as np
import pytest

NSRR = """<?xml version="1.0" encoding="UTF-8"?>
<PSGAnnotation><SoftwareVersion>Compumedics</SoftwareVersion><EpochLength>30</EpochLength>
<ScoredEvents>
<ScoredEvent><EventType/><EventConcept>Recording Start Time</EventConcept>
<Start>0</Start><Duration>90</Duration><ClockTime>00.00.00 22.10.05</ClockTime></ScoredEvent>
<ScoredEvent><EventType>Stages|Stages</EventType><EventConcept>Wake|0</EventConcept>
<Start>0.0</Start><Duration>30.0</Duration></ScoredEvent>
<ScoredEvent><EventType>Stages|Stages</EventType><EventConcept>Stage 4 sleep|4</EventConcept>
<Start>30.0</Start><Duration>30.0</Duration></ScoredEvent>
<ScoredEvent><EventType>Stages|Stages</EventType><EventConcept>REM sleep|5</EventConcept>
<Start>60.0</Start><Duration>30.0</Duration></ScoredEvent>
</ScoredEvents></PSGAnnotation>
"""
PROFUSION = """<CMPStudyConfig><EpochLength>30</EpochLength><SleepStages><SleepStage>0</SleepStage>
<SleepStage>4</SleepStage><SleepStage>5</SleepStage></SleepStages></CMPStudyConfig>
"""
STAGES = [0, 3, 4]


def signal(**levels):
    """An EDF of 90 s at 2 Hz whose channels are constant: 10 is 1 µV; blanks are typed as __."""
    channels = [
        edf_files.channel(label.replace("__", " "), np.full((3, 60), level))
        for label, level in levels.items()
    ]
    return edf_files.edf(channels, record_s=30)


def annotated(text, **levels):
    """The same signal as an EDF+ with an annotation of 30 s at the beginning of each record."""
    spoken = [text] * 3 if isinstance(text, str) else text
    notes = [
        f"+{30 * i}\x14\x14\x00+{30 * i}\x1530\x14{said}\x14\x00".encode()
        for i, said in enumerate(spoken)
    ]
    channels = [
        edf_files.channel(label, np.full((3, 60), level)) for label, level in levels.items()
    ]
    return edf_files.edf([*channels, edf_files.annotations(notes)], record_s=30, reserved="EDF+C")


def hypnogram():
    """Wake, stage 4 and REM as Sleep-EDF and MASS write them."""
    notes = (
        b"+0\x14\x14\x00+0\x1530\x14Sleep stage W\x14\x00+30\x1530\x14Sleep stage 4\x14\x00"
        b"+60\x1530\x14Sleep stage R\x14\x00"
    )
    return edf_files.edf([edf_files.annotations([notes], size=200)], record_s=0, reserved="EDF+C")


@pytest.fixture
def download(tmp_path):
    """Write files below a root: ``download({path: content})``; returns the root."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / "download" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "download"

    return write


@pytest.fixture
def typed():
    """Contents: signal, hypnogram, and the two XMLs."""

    class Contents:
        nsrr, profusion, stages = NSRR, PROFUSION, STAGES

    Contents.signal, Contents.hypnogram = staticmethod(signal), staticmethod(hypnogram)
    Contents.annotated = staticmethod(annotated)
    return Contents


@pytest.fixture
def let_nobody_enter(monkeypatch):
    """Let a folder show its names alone; tests may run as root, whom nothing is closed to."""

    def close(folder):
        real = os.stat

        def stat(path, *arguments, **options):
            if os.fspath(path).startswith(f"{folder}{os.sep}"):
                raise PermissionError(13, "Permission denied")
            return real(path, *arguments, **options)

        monkeypatch.setattr(os, "stat", stat)

    return close
