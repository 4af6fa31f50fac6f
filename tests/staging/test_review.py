"""The least confident epochs go to a person, and what they changed comes back."""

from datetime import datetime

import numpy as np
import pytest

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io.edf import read_annotations, write_annotations
from psdnorm.staging import (
    least_confident,
    read_corrected,
    write_edf_annotations,
    write_review,
    write_text,
)

START = datetime(2021, 3, 4, 22, 30, 15)
CONFIDENCE = [0.9, 0.41, 0.95, 0.6, np.nan, 0.41, 0.99]
STAGES = np.array([0, 2, 2, 3, -1, 4, 0], np.int8)


@pytest.fixture
def probabilities():
    rows = []
    for stage, confidence in zip(STAGES, CONFIDENCE, strict=True):
        row = np.full(5, (1 - confidence) / 4)
        row[stage] = confidence
        rows.append(row)
    return np.array(rows)


def test_the_least_confident_epochs_are_those_never_staged_then_the_least_likely(probabilities):
    assert least_confident(probabilities, 4).tolist() == [4, 1, 5, 3]


def test_more_epochs_than_there_are_is_all_of_them(probabilities):
    assert sorted(least_confident(probabilities, 100)) == list(range(7))


def test_no_epoch_at_all_is_refused(probabilities):
    with pytest.raises(ArgumentError, match="n is 0, expected at least one epoch"):
        least_confident(probabilities, 0)


def test_a_review_asks_about_each_epoch_by_stage_and_confidence(tmp_path, probabilities):
    mne = pytest.importorskip("mne")
    epochs = write_review(tmp_path / "review.edf", STAGES, probabilities, 4, START)
    assert epochs.tolist() == [1, 3, 4, 5]
    read = mne.read_annotations(tmp_path / "review.edf")
    assert read.description.tolist() == ["N2? 0.41", "N3? 0.60", "unscored?", "REM? 0.41"]
    assert read.onset.tolist() == [30.0, 90.0, 120.0, 150.0]
    assert set(read.duration) == {30.0}
    assert read_annotations(tmp_path / "review.edf")[1] == START


def test_a_review_that_nobody_answered_is_no_scoring(tmp_path, probabilities):
    write_review(tmp_path / "review.edf", STAGES, probabilities, 4, START)
    with pytest.raises(RecordingError, match=r"review\.edf scores no epoch"):
        read_corrected(tmp_path / "review.edf", STAGES, START)


def test_answers_to_a_review_change_those_epochs_and_no_others(tmp_path):
    answered = [(30, 30, "N1"), (90, 30, "N3? 0.60"), (120, 30, "W"), (150, 30, "REM")]
    write_annotations(tmp_path / "review.edf", answered, START)
    found = read_corrected(tmp_path / "review.edf", STAGES, START)
    assert found.stages.tolist() == [0, 1, 2, 3, 0, 4, 0]
    assert found.changes == [(1, 30, "N2", "N1"), (4, 120, "unscored", "W")]
    assert found.n_covered == 3


@pytest.mark.parametrize("form", ["edf", "txt"])
def test_a_whole_corrected_scoring_says_what_changed(tmp_path, form):
    corrected = STAGES.copy()
    corrected[2] = 3
    path = tmp_path / f"corrected.{form}"
    if form == "edf":
        write_edf_annotations(path, corrected, START)
    else:
        write_text(path, corrected)
    found = read_corrected(path, STAGES, START)
    np.testing.assert_array_equal(found.stages, corrected)
    assert found.changes == [(2, 60, "N2", "N3")]
    assert found.n_covered == len(STAGES)


def test_a_correction_to_unscored_is_kept_and_silence_is_not_one(tmp_path):
    path = tmp_path / "corrected.edf"
    write_annotations(path, [(0, 30, "Sleep stage ?"), (30, 30, "Sleep stage 2")], START)
    found = read_corrected(path, STAGES, START)
    assert found.stages.tolist() == [-1, 2, 2, 3, -1, 4, 0]
    assert found.changes == [(0, 0, "W", "unscored")]
    assert found.n_covered == 2


def test_a_correction_is_placed_by_the_clock(tmp_path):
    path = tmp_path / "corrected.edf"
    later = START.replace(minute=31)  # one minute after the recording started
    write_annotations(path, [(0, 30, "Sleep stage R")], later)
    assert read_corrected(path, STAGES, START).changes == [(2, 60, "N2", "REM")]


def test_a_correction_of_a_longer_night_is_refused(tmp_path):
    write_text(tmp_path / "corrected.txt", [2] * 20)
    with pytest.raises(RecordingError, match=r"corrected\.txt scores 0 to 600 s, .* 210 s"):
        read_corrected(tmp_path / "corrected.txt", STAGES)
