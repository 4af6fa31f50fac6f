"""The files of a staged night: read back by others and by us, whole or not at all."""

import json
import os
from datetime import datetime

import numpy as np
import pandas as pd
import pytest

import psdnorm
from psdnorm.errors import ArgumentError, RecordingError, ShapeError, StoreError
from psdnorm.io import read_stages
from psdnorm.io.edf import read_annotations
from psdnorm.staging import (
    agreement,
    read_tsv,
    sleep_statistics,
    write_edf_annotations,
    write_json,
    write_review,
    write_text,
    write_tsv,
)
from psdnorm.staging import result_files as staging_outputs

STAGES = np.array([0, 0, 1, 2, 3, -1, 4, 4, 0], np.int8)
START = datetime(2021, 3, 4, 22, 30, 15)
NOTICE = "for research and demonstration, not for diagnosis"


@pytest.fixture
def probabilities():
    made = np.random.default_rng(0).dirichlet(np.ones(5), len(STAGES))
    made[STAGES == -1] = np.nan
    return made


WRITERS = {
    "tsv": lambda path, p: write_tsv(path, STAGES, p),
    "edf": lambda path, p: write_edf_annotations(path, STAGES, START),
    "txt": lambda path, p: write_text(path, STAGES),
    "json": lambda path, p: write_json(path, sleep_statistics(STAGES)),
    "review.edf": lambda path, p: write_review(path, STAGES, p, 3, START),
}


def test_a_tsv_is_read_back_as_it_was_to_six_decimals(tmp_path, probabilities):
    write_tsv(tmp_path / "night.tsv", STAGES, probabilities)
    stages, read = read_tsv(tmp_path / "night.tsv")
    np.testing.assert_array_equal(stages, STAGES)
    np.testing.assert_allclose(read, probabilities, atol=5.1e-7)


def test_a_tsv_is_a_table_of_events_with_a_row_for_every_epoch(tmp_path, probabilities):
    write_tsv(tmp_path / "night.tsv", STAGES, probabilities)
    table = pd.read_csv(tmp_path / "night.tsv", sep="\t", keep_default_na=False)
    assert " ".join(table.columns) == "onset duration stage p_W p_N1 p_N2 p_N3 p_REM confidence"
    assert table.onset.tolist() == [30 * epoch for epoch in range(len(STAGES))]
    assert table.duration.tolist() == [30] * len(STAGES)
    assert table.stage.tolist() == ["W", "W", "N1", "N2", "N3", "n/a", "REM", "REM", "W"]
    assert table.p_N3[4] == table.confidence[4] == f"{probabilities[4, 3]:.6f}"
    assert table.confidence[5] == "n/a"


@pytest.mark.parametrize("form", ["tsv", "edf", "txt"])
def test_our_own_reader_of_scorings_reads_what_is_written(tmp_path, probabilities, form):
    path = tmp_path / f"night.{form}"
    WRITERS[form](path, probabilities)
    np.testing.assert_array_equal(read_stages(path, 30 * len(STAGES), START), STAGES)


def test_mne_reads_the_annotations_of_every_epoch(tmp_path):
    mne = pytest.importorskip("mne")
    write_edf_annotations(tmp_path / "night.edf", STAGES, START)
    read = mne.read_annotations(tmp_path / "night.edf")
    assert [text.removeprefix("Sleep stage ") for text in read.description] == list("WW123?RRW")
    assert all(text.startswith("Sleep stage ") for text in read.description)
    assert read.onset.tolist() == [30.0 * epoch for epoch in range(len(STAGES))]
    assert set(read.duration) == {30.0}


def test_annotations_know_when_the_recording_starts_and_not_who_slept(tmp_path):
    write_edf_annotations(tmp_path / "night.edf", STAGES, START)
    _, start = read_annotations(tmp_path / "night.edf")
    assert start == START
    header = (tmp_path / "night.edf").read_bytes()[:256].decode("ascii")
    assert header[8:88].strip() == "X X X X"
    assert header[88:168].strip() == "Startdate 04-MAR-2021 X X X"


def test_without_a_start_annotations_have_the_date_that_stands_for_none(tmp_path):
    write_edf_annotations(tmp_path / "night.edf", STAGES)
    assert read_annotations(tmp_path / "night.edf")[1] == datetime(1985, 1, 1)


def test_a_start_that_two_digits_of_a_year_cannot_say_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="start is in 1970, expected 1985 to 2084"):
        write_edf_annotations(tmp_path / "night.edf", STAGES, datetime(1970, 1, 1))


def test_a_two_day_recording_is_annotated_to_its_end(tmp_path):
    mne = pytest.importorskip("mne")
    stages = np.random.default_rng(0).integers(-1, 5, 2 * 2880)
    write_edf_annotations(tmp_path / "long.edf", stages, START)
    np.testing.assert_array_equal(read_stages(tmp_path / "long.edf", 2 * 86400, START), stages)
    assert mne.read_annotations(tmp_path / "long.edf").onset[-1] == 2 * 86400 - 30


def test_text_has_one_stage_per_line(tmp_path):
    write_text(tmp_path / "night.txt", STAGES)
    assert (tmp_path / "night.txt").read_text() == "W\nW\nN1\nN2\nN3\n?\nREM\nREM\nW\n"


def test_a_summary_says_statistics_lights_model_versions_and_first_of_all_the_notice(tmp_path):
    found = sleep_statistics(STAGES)
    model = {"name": "in the box", "loss": np.float32(0.5), "worst": float("nan")}
    compared = agreement(STAGES, np.roll(STAGES, 1))
    path = tmp_path / "night.json"
    more = {"shift": {"verdict": "in range"}}
    write_json(path, found, model=model, agreement=compared, notice=NOTICE, more=more)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert next(iter(read)) == "notice"
    assert read["notice"] == NOTICE
    assert read["statistics"] == found.to_dict()
    assert read["statistics"]["lights"] == "sleep period ± 30 min"
    assert read["model"] == {"name": "in the box", "loss": 0.5, "worst": None}
    assert read["agreement"]["n_compared"] == compared.n_compared
    assert read["versions"]["psdnorm"] == psdnorm.__version__
    assert read["shift"] == {"verdict": "in range"}


def test_a_summary_without_a_notice_has_none(tmp_path):
    write_json(tmp_path / "night.json", sleep_statistics(STAGES))
    assert set(json.loads((tmp_path / "night.json").read_text())) == {
        "statistics",
        "model",
        "versions",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"statistics": 1}, "more has the section 'statistics'"),
        ({"made": datetime(2021, 1, 1)}, "night.json cannot be written as JSON"),
        ({"made": float("inf")}, "night.json cannot be written as JSON"),
    ],
)
def test_a_summary_that_would_not_be_json_is_refused_and_not_written(tmp_path, more, message):
    with pytest.raises(ArgumentError, match=message):
        write_json(tmp_path / "night.json", sleep_statistics(STAGES), more=more)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("before", [None, b"an earlier night"])
def test_a_write_that_is_stopped_half_way_leaves_what_was_there(
    tmp_path, probabilities, monkeypatch, form, failure, before
):
    path = tmp_path / f"night.{form}"
    if before is not None:
        path.write_bytes(before)
    during = []

    def stop(_):
        during.extend(p for p in tmp_path.iterdir() if p.suffix == ".partial")
        raise failure

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        WRITERS[form](path, probabilities)
    assert during  # something was being written
    left = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert left == ({} if before is None else {path.name: before})


def test_annotations_that_break_off_in_the_middle_leave_nothing(tmp_path, monkeypatch):
    def half(path, annotations, start):
        with open(path, "wb") as file:
            file.write(b"0       X X X X")
        raise MemoryError

    monkeypatch.setattr(staging_outputs, "write_annotations", half)
    with pytest.raises(MemoryError):
        write_edf_annotations(tmp_path / "night.edf", STAGES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", WRITERS)
def test_a_folder_that_does_not_exist_is_named(tmp_path, probabilities, form):
    with pytest.raises(StoreError, match=f"nowhere.*night.{form} cannot be written"):
        WRITERS[form](tmp_path / "nowhere" / f"night.{form}", probabilities)


def test_probabilities_of_another_night_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ShapeError, match=r"shape \(4, 5\), expected \(9, 5\)"):
        write_tsv(tmp_path / "night.tsv", STAGES, np.full((4, 5), 0.2))
    assert list(tmp_path.iterdir()) == []


HEAD = "onset\tduration\tstage\tp_W\tp_N1\tp_N2\tp_N3\tp_REM\tconfidence\n"
ROW = "0\t30\tW\t1.0\t0.0\t0.0\t0.0\t0.0\t1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has the columns 'none', expected onset, duration, stage, p_W"),
        ("onset\tduration\tstage\n", "has the columns 'onset, duration, stage'"),
        (HEAD + "0\t30\tW\t1.0\n", "in line 2 4 columns, expected 9"),
        (HEAD + ROW + ROW, "in line 3 the onset 0 and the duration 30, expected 30 and 30"),
        (HEAD + ROW.replace("30", "20"), "in line 2 the onset 0 and the duration 20"),
        (HEAD + ROW.replace("W", "N4"), "in line 2 'N4' as a stage, expected one of W, N1"),
        (HEAD + ROW.replace("0.0", "x", 1), "in line 2 'x', expected a number or n/a"),
        (HEAD + ROW.replace("0.0", "0.5", 1), "at epoch 0, expected five from 0 to 1"),
    ],
)
def test_a_damaged_tsv_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "night.tsv"
    path.write_text(text)
    with pytest.raises(RecordingError, match=f"night.tsv.* ?{message}"):
        read_tsv(path)


def test_a_tsv_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(RecordingError, match=r"night\.tsv cannot be read: No such file"):
        read_tsv(tmp_path / "night.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordingError, match=r"bytes\.tsv is no text, expected a table"):
        read_tsv(tmp_path / "bytes.tsv")
