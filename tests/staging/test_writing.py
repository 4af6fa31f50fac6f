"""What a staged night leaves: all of its files, nobody else's replaced, nobody's identity."""

import json
import os

import edf_files
import numpy as np
import pytest
from cohort_folder import samples
from small_stagers import recording, small_model, undrawn

from psdnorm.errors import MissingExtraError, StoreError
from psdnorm.io import read_stages
from psdnorm.staging import (
    agreement,
    load_model,
    read_tsv,
    stage,
    write_night,
    writing,
)
from psdnorm.staging.writing import FILES, is_finished, read_summary

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
    with pytest.raises(StoreError, match=f"S1{ending} is there already and was not written by"):
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
        patch.setattr(writing, "write_text", interrupt)
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


def test_without_matplotlib_the_rest_is_written_and_what_is_missing_said(
    tmp_path, night, monkeypatch
):
    def refuse(path, night, agreement):
        raise MissingExtraError('figures need matplotlib: pip install "psdnorm[report]"')

    with monkeypatch.context() as patch:
        undrawn(patch)
        write_night(tmp_path, night, marks=MARKS)
    for write in ("_write_page", "_write_picture"):
        monkeypatch.setattr(writing, write, refuse)
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


def test_nobodys_identity_reaches_an_output(tmp_path):
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
    monkeypatch.setattr(writing, "check_writable", asked.append)
    writing.check_place(tmp_path)
    writing.check_place(tmp_path / "new" / "out")
    assert asked == [tmp_path, tmp_path]
    assert not os.listdir(tmp_path)
