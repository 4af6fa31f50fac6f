"""The files of a night are found, written atomically, read back and reviewed."""

import json
import os
from datetime import datetime
from pathlib import Path

import edf_files
import numpy as np
import pandas as pd
import pytest
from cohort_folder import samples, signal
from small_stagers import recording, small_model, undrawn

import psdnorm
from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError, ShapeError, StoreError
from psdnorm.io import read_stages
from psdnorm.io.edf import read_annotations, write_annotations
from psdnorm.staging import (
    agreement,
    least_confident,
    load_model,
    night_files,
    night_page,
    read_corrected,
    read_tsv,
    sleep_statistics,
    stage,
    write_edf_annotations,
    write_json,
    write_night,
    write_review,
    write_text,
    write_tsv,
)
from psdnorm.staging.night_files import (
    FILES,
    distinct_names,
    find_recordings,
    is_finished,
    read_summary,
)


def test_a_folder_is_searched_for_signals_and_scorings_are_left_out(tmp_path):
    recording(tmp_path / "a" / "S1.edf")
    recording(tmp_path / "a" / "deep" / "S2.EDF")
    for name in ("S3.vhdr", "S4_raw.fif", "S5.bdf"):
        (tmp_path / name).write_bytes(b"")
    write_edf_annotations(tmp_path / "a" / "S1-hypnogram.edf", [0, 2])
    for name in ("notes.txt", "S3.eeg", ".S6.edf"):
        (tmp_path / name).write_bytes(b"")
    found = find_recordings([str(tmp_path)])
    assert set(found.names) == {"S1", "S2", "S3", "S4_raw", "S5"}
    assert (found.n_scorings, found.problems) == (1, [])


def test_a_file_is_taken_whatever_its_name_and_once(tmp_path):
    path = recording(tmp_path / "S1.dat")
    again = tmp_path / "." / "S1.dat"
    assert find_recordings([str(path), str(again)]).names == {"S1": path}


def test_a_pattern_names_files(tmp_path):
    for name in ("S1", "S2", "T1"):
        recording(tmp_path / f"{name}.edf")
    assert list(find_recordings([str(tmp_path / "S*.edf")]).names) == ["S1", "S2"]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    path = tmp_path / "S[1].edf"
    path.write_bytes(signal())
    assert find_recordings([str(path)]).names == {"S[1]": path}


@pytest.mark.parametrize("argument", ["nowhere.edf", "*.edf", "."])
def test_what_names_nothing_raises(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        find_recordings([argument])
    assert str(caught.value).startswith(f"{argument} matches no recording, expected a file, ")


def test_names_that_would_be_alike_get_their_folders():
    paths = [Path(path) for path in ("/x/a/n.edf", "/x/b/N.edf", "/y/b/n.edf", "/x/b/m.edf")]
    assert list(distinct_names(paths)) == ["a-n", "x-b-N", "y-b-n", "m"]
    assert list(distinct_names([Path("/x/n.edf"), Path("/x/n.bdf")])) == ["n.edf", "n.bdf"]


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


def test_a_start_that_two_digits_of_a_year_cannot_say_raises(tmp_path):
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
def test_a_summary_that_cannot_be_json_raises_and_is_not_written(tmp_path, more, message):
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

    monkeypatch.setattr(night_files, "write_annotations", half)
    with pytest.raises(MemoryError):
        write_edf_annotations(tmp_path / "night.edf", STAGES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", WRITERS)
def test_a_folder_that_does_not_exist_is_named(tmp_path, probabilities, form):
    with pytest.raises(StoreError, match=f"nowhere.*night.{form} cannot be written"):
        WRITERS[form](tmp_path / "nowhere" / f"night.{form}", probabilities)


def test_probabilities_of_another_night_raise_before_anything_is_written(tmp_path):
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
def test_a_damaged_tsv_raises_and_names_the_line(tmp_path, text, message):
    path = tmp_path / "night.tsv"
    path.write_text(text)
    with pytest.raises(RecordingError, match=f"night.tsv.* ?{message}"):
        read_tsv(path)


def test_a_tsv_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(RecordingError, match=r"night\.tsv cannot be read: No such file"):
        read_tsv(tmp_path / "night.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordingError, match=r"bytes\.tsv is not a text file, expected a table"):
        read_tsv(tmp_path / "bytes.tsv")


MARKS = {"recording": "a", "options": "b"}


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    folder = tmp_path_factory.mktemp("night")
    model = load_model(small_model(folder / "model"))
    return stage(recording(folder / "S1.edf", n_epochs=6), model)


def with_notice(night, notice="not for diagnosis"):
    return type(night)(**{**vars(night), "notice": notice})


def test_all_outputs_are_written_and_say_the_same(tmp_path, night):
    paths = night.write(tmp_path / "out")
    names = ["S1.json", "S1.tsv", "S1-hypnogram.edf", "S1.txt", "S1.html", "S1.png"]
    assert [path.name for path in paths] == names
    assert sorted(os.listdir(tmp_path / "out")) == sorted(names)
    stages, probabilities = read_tsv(tmp_path / "out" / "S1.tsv")
    np.testing.assert_array_equal(stages, night.hypnogram)
    np.testing.assert_allclose(probabilities, night.probabilities, atol=1e-6)
    for name in ("S1-hypnogram.edf", "S1.txt"):
        read = read_stages(tmp_path / "out" / name, 180, night.start)
        np.testing.assert_array_equal(read, night.hypnogram)
    summary = json.loads((tmp_path / "out" / "S1.json").read_text())
    assert summary["shift"]["verdict"] == night.shift.verdict
    assert summary["statistics"] == night.statistics.to_dict()
    assert summary["channels"] == [["C3-M2", "C4-M1"]]
    assert summary["mean_confidence"] == pytest.approx(night.confidence.mean())
    assert summary["mean_disagreement"] == 0
    assert summary["model"] == night.model
    assert (tmp_path / "out" / "S1.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "S1.html").read_text().startswith("<!doctype html>")


def test_the_notice_is_in_the_summary_the_annotations_and_the_page(tmp_path, night):
    mne = pytest.importorskip("mne")
    with_notice(night).write(tmp_path)
    assert next(iter(json.loads((tmp_path / "S1.json").read_text()))) == "notice"
    annotations = mne.read_annotations(tmp_path / "S1-hypnogram.edf")
    assert annotations.description[0] == "not for diagnosis"
    assert len(annotations) == 7
    read = read_stages(tmp_path / "S1-hypnogram.edf", 180, night.start)
    np.testing.assert_array_equal(read, night.hypnogram)
    assert "not for diagnosis" in (tmp_path / "S1.html").read_text()


def test_a_users_own_model_has_no_notice(tmp_path, night, monkeypatch):
    undrawn(monkeypatch)
    night.write(tmp_path)
    assert "notice" not in json.loads((tmp_path / "S1.json").read_text())


def test_the_same_night_may_be_written_again(tmp_path, night, monkeypatch):
    undrawn(monkeypatch)
    write_night(tmp_path, night, marks=MARKS)
    before = (tmp_path / "S1.tsv").read_bytes()
    write_night(tmp_path, night, marks=MARKS | {"options": "c"})
    assert (tmp_path / "S1.tsv").read_bytes() == before
    assert read_summary(tmp_path, "S1")["marks"]["options"] == "c"


@pytest.mark.parametrize("ending", FILES)
def test_a_file_that_somebody_else_wrote_is_never_replaced(tmp_path, night, ending):
    mine = tmp_path / f"S1{ending}"
    mine.write_text("W\nN1\n")
    with pytest.raises(StoreError, match=f"S1{ending} exists and was not written by"):
        write_night(tmp_path, night)
    assert os.listdir(tmp_path) == [mine.name]
    assert mine.read_text() == "W\nN1\n"


def test_the_staging_of_another_recording_is_not_replaced(tmp_path, night, monkeypatch):
    undrawn(monkeypatch)
    write_night(tmp_path, night, marks=MARKS)
    with pytest.raises(StoreError, match=r"is the staging of another recording, 'S1\.edf'"):
        write_night(tmp_path, night, marks={"recording": "other"})
    assert read_summary(tmp_path, "S1")["marks"] == MARKS


def test_an_interrupted_write_is_not_finished_and_goes_through_again(tmp_path, night, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    undrawn(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(night_files, "write_text", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_night(tmp_path, night, marks=MARKS)
    assert not is_finished(tmp_path, "S1", MARKS)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    write_night(tmp_path, night, marks=MARKS)
    assert is_finished(tmp_path, "S1", MARKS)


def test_a_night_is_finished_only_as_it_was_asked_for_and_with_all_files(
    tmp_path, night, monkeypatch
):
    undrawn(monkeypatch)
    assert not is_finished(tmp_path, "S1", MARKS)
    write_night(tmp_path, night, marks=MARKS)
    assert is_finished(tmp_path, "S1", MARKS)
    assert not is_finished(tmp_path, "S1", MARKS | {"options": "other"})
    (tmp_path / "S1.txt").unlink()
    assert not is_finished(tmp_path, "S1", MARKS)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, night):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made: "):
        night.write(tmp_path / "file" / "out")


def test_without_matplotlib_the_rest_is_written_and_what_is_missing_is_noted(
    tmp_path, night, monkeypatch
):
    def refuse(*arguments):
        raise MissingExtraError('figures need matplotlib: pip install "psdnorm[report]"')

    with monkeypatch.context() as patch:
        undrawn(patch)
        write_night(tmp_path, night, marks=MARKS)
    for write in ("write_page", "write_png"):
        monkeypatch.setattr(night_page, write, refuse)
    paths = write_night(tmp_path, night, marks=MARKS)
    assert [path.suffix for path in paths] == [".json", ".tsv", ".edf", ".txt"]
    assert len(os.listdir(tmp_path)) == 4  # those of the first staging are gone
    (note,) = read_summary(tmp_path, "S1")["notes"]
    assert note.startswith("S1.html was not written: figures need matplotlib: pip install")
    assert is_finished(tmp_path, "S1", MARKS)


def test_a_start_that_edf_cannot_hold_is_left_out_of_the_annotations_alone(
    tmp_path, night, monkeypatch
):
    undrawn(monkeypatch)
    early = type(night)(**{**vars(night), "start": night.start.replace(year=1925)})
    early.write(tmp_path)
    assert read_summary(tmp_path, "S1")["start"].startswith("1925-02-03")
    assert (tmp_path / "S1-hypnogram.edf").read_bytes()[168:176] == b"01.01.85"


def test_no_identity_reaches_an_output(tmp_path):
    who = ("Haagse", "Harry", "0234567", "MAY-1951", "02.05.51", "Jones", "Telefax", "PSG-12")
    path = tmp_path / "S1.edf"
    channels = [
        edf_files.channel(label, samples(4, seed=number))
        for number, label in enumerate(("C3-M2", "C4-M1"))
    ]
    path.write_bytes(edf_files.edf(channels, record_s=30))
    assert all(word.encode() in path.read_bytes()[:256] for word in who if word != "02.05.51")
    stage(path, small_model(tmp_path / "model")).write(tmp_path / "out")
    for file in (tmp_path / "out").iterdir():
        content = file.read_bytes()
        for word in who:
            assert word.encode() not in content, (file.name, word)
    assert len(list((tmp_path / "out").iterdir())) == 6


def test_the_agreement_with_a_scoring_is_in_the_summary_and_on_the_page(tmp_path, night):
    compared = agreement(np.zeros(6, int), night.hypnogram, night.probabilities)
    night.write(tmp_path / "with", agreement=compared)
    night.write(tmp_path / "without")
    assert read_summary(tmp_path / "with", "S1")["agreement"]["n_compared"] == 6
    heading = "Agreement with a scoring"
    assert heading in (tmp_path / "with" / "S1.html").read_text()
    assert heading not in (tmp_path / "without" / "S1.html").read_text()


def test_what_a_killed_process_left_half_written_is_removed(tmp_path, night, monkeypatch):
    undrawn(monkeypatch)
    (tmp_path / ".S1.tsv.12.partial").write_text("onset")
    night.write(tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_place_is_checked_before_anything_is_made_there(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(night_files, "check_writable", asked.append)
    night_files.check_place(tmp_path)
    night_files.check_place(tmp_path / "new" / "out")
    assert asked == [tmp_path, tmp_path]
    assert not os.listdir(tmp_path)


CONFIDENCE = [0.9, 0.41, 0.95, 0.6, np.nan, 0.41, 0.99]
SHORT = np.array([0, 2, 2, 3, -1, 4, 0], np.int8)


@pytest.fixture
def given():
    rows = []
    for place, confidence in zip(SHORT, CONFIDENCE, strict=True):
        row = np.full(5, (1 - confidence) / 4)
        row[place] = confidence
        rows.append(row)
    return np.array(rows)


def test_the_least_confident_epochs_are_those_never_staged_then_the_least_likely(given):
    assert least_confident(given, 4).tolist() == [4, 1, 5, 3]


def test_more_epochs_than_there_are_is_all_of_them(given):
    assert sorted(least_confident(given, 100)) == list(range(7))


def test_no_epoch_at_all_raises(given):
    with pytest.raises(ArgumentError, match="n is 0, expected at least one epoch"):
        least_confident(given, 0)


def test_a_review_asks_about_each_epoch_by_stage_and_confidence(tmp_path, given):
    mne = pytest.importorskip("mne")
    epochs = write_review(tmp_path / "review.edf", SHORT, given, 4, START)
    assert epochs.tolist() == [1, 3, 4, 5]
    read = mne.read_annotations(tmp_path / "review.edf")
    assert read.description.tolist() == ["N2? 0.41", "N3? 0.60", "unscored?", "REM? 0.41"]
    assert read.onset.tolist() == [30.0, 90.0, 120.0, 150.0]
    assert set(read.duration) == {30.0}
    assert read_annotations(tmp_path / "review.edf")[1] == START


def test_an_unanswered_review_is_no_scoring(tmp_path, given):
    write_review(tmp_path / "review.edf", SHORT, given, 4, START)
    with pytest.raises(RecordingError, match=r"review\.edf scores no epoch"):
        read_corrected(tmp_path / "review.edf", SHORT, START)


def test_answers_to_a_review_change_those_epochs_and_no_others(tmp_path):
    answered = [(30, 30, "N1"), (90, 30, "N3? 0.60"), (120, 30, "W"), (150, 30, "REM")]
    write_annotations(tmp_path / "review.edf", answered, START)
    found = read_corrected(tmp_path / "review.edf", SHORT, START)
    assert found.stages.tolist() == [0, 1, 2, 3, 0, 4, 0]
    assert found.changes == [(1, 30, "N2", "N1"), (4, 120, "unscored", "W")]
    assert found.n_covered == 3


@pytest.mark.parametrize("form", ["edf", "txt"])
def test_a_whole_corrected_scoring_says_what_changed(tmp_path, form):
    corrected = SHORT.copy()
    corrected[2] = 3
    path = tmp_path / f"corrected.{form}"
    if form == "edf":
        write_edf_annotations(path, corrected, START)
    else:
        write_text(path, corrected)
    found = read_corrected(path, SHORT, START)
    np.testing.assert_array_equal(found.stages, corrected)
    assert found.changes == [(2, 60, "N2", "N3")]
    assert found.n_covered == len(SHORT)


def test_a_correction_to_unscored_is_kept_and_silence_is_not_one(tmp_path):
    path = tmp_path / "corrected.edf"
    write_annotations(path, [(0, 30, "Sleep stage ?"), (30, 30, "Sleep stage 2")], START)
    found = read_corrected(path, SHORT, START)
    assert found.stages.tolist() == [-1, 2, 2, 3, -1, 4, 0]
    assert found.changes == [(0, 0, "W", "unscored")]
    assert found.n_covered == 2


def test_a_correction_is_placed_by_the_clock(tmp_path):
    path = tmp_path / "corrected.edf"
    later = START.replace(minute=31)  # one minute after the recording started
    write_annotations(path, [(0, 30, "Sleep stage R")], later)
    assert read_corrected(path, SHORT, START).changes == [(2, 60, "N2", "REM")]


def test_a_correction_of_a_longer_night_raises(tmp_path):
    write_text(tmp_path / "corrected.txt", [2] * 20)
    with pytest.raises(RecordingError, match=r"corrected\.txt scores 0 to 600 s, .* 210 s"):
        read_corrected(tmp_path / "corrected.txt", SHORT)
