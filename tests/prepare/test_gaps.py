"""A night that pauses is prepared as if it did not, and put where it was in time."""

import edf_files
import numpy as np
import pytest
from cohort_folder import samples

from psdnorm.errors import RecordingError
from psdnorm.io import Recording, read_recording
from psdnorm.io.recording import epochs_in_gaps
from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.prepare.signals import between_gaps, preprocess

LABELS = ("C3-M2", "C4-M1")
# two epochs, a pause of 14 min, two epochs
ONSETS = (0, 30, 900, 930)
MEASURED = [0, 1, 30, 31]


def write(folder, onsets=None, n_epochs=4, scores="N1\nN2\nN3\nR\n", sfreq=100):
    """Write ``S1.edf``, with pauses where onsets are given, and its scoring."""
    folder.mkdir(exist_ok=True)
    channels = [
        edf_files.channel(label, samples(n_epochs, sfreq, seed))
        for seed, label in enumerate(LABELS)
    ]
    if onsets is not None:
        channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    reserved = "" if onsets is None else "EDF+D"
    (folder / "S1.edf").write_bytes(edf_files.edf(channels, record_s=30, reserved=reserved))
    (folder / "S1.txt").write_text(scores)
    return folder


def stored(folder, store, recipe):
    preparation = Preparation("folder", folder, store, RECIPES[recipe])
    assert [outcome.reason for outcome in preparation.run()] == [""]
    return preparation.store, preparation.store.signals("folder-S1")


def scores_in_time(stages):
    scored = ["?"] * 32
    for epoch, stage in zip(MEASURED, stages, strict=True):
        scored[epoch] = stage
    return "\n".join(scored) + "\n"


@pytest.mark.parametrize("sfreq", [100, 128])
@pytest.mark.parametrize("recipe", ["paper", "robust"])
def test_prepare_stores_what_is_between_pauses_as_if_there_were_none(tmp_path, recipe, sfreq):
    scores = scores_in_time(("N1", "N2", "N3", "R"))
    paused = write(tmp_path / "paused", ONSETS, scores=scores, sfreq=sfreq)
    whole = write(tmp_path / "whole", sfreq=sfreq)
    store, of_paused = stored(paused, tmp_path / "of-paused", recipe)
    _, of_whole = stored(whole, tmp_path / "of-whole", recipe)
    assert len(of_paused) == 32
    np.testing.assert_array_equal(of_paused[MEASURED], of_whole)
    assert not np.delete(of_paused, MEASURED, axis=0).any()
    assert store.index["flags"].tolist() == ["paused 88 %"]


def test_epochs_in_a_pause_are_unscored_and_the_others_keep_their_stage(tmp_path):
    path = write(tmp_path, ONSETS) / "S1.edf"
    (tmp_path / "S1.txt").write_text("N2\n" * 32)
    recording = read_recording(path, LABELS, tmp_path / "S1.txt")
    assert np.flatnonzero(~recording.in_gap).tolist() == MEASURED
    prepared = preprocess(recording, RECIPES["robust"])
    assert np.flatnonzero(prepared.stages == 2).tolist() == MEASURED
    assert (np.delete(prepared.stages, MEASURED) == -1).all()


def test_wake_is_trimmed_around_sleep_and_a_pause_is_no_wake(tmp_path):
    onsets = [30 * n for n in range(100)] + [6000 + 30 * n for n in range(100)]
    path = write(tmp_path, onsets, n_epochs=200) / "S1.edf"
    stages = np.array(["W"] * 300, dtype=object)
    stages[[95, 205]] = "N2"  # 100 measured epochs before the pause, which is 100 epochs long
    (tmp_path / "S1.txt").write_text("\n".join(stages) + "\n")
    recording = read_recording(path, LABELS, tmp_path / "S1.txt")
    prepared = preprocess(recording, RECIPES["as-released"])
    asleep = np.flatnonzero(prepared.stages == 2)
    assert (asleep + prepared.first_epoch).tolist() == [95, 205]
    assert prepared.first_epoch == 95 - 60
    assert len(prepared.stages) == 205 + 60 + 1 - prepared.first_epoch
    assert len(prepared.signals) == len(prepared.stages)
    np.testing.assert_array_equal(np.flatnonzero(prepared.stages == -1) + 35, np.arange(100, 200))


def test_a_pause_before_what_trimming_leaves_counts_in_when_that_begins(tmp_path):
    onsets = [30 * n for n in range(5)] + [600 + 30 * n for n in range(80)]
    path = write(tmp_path, onsets, n_epochs=85) / "S1.edf"
    stages = ["W"] * 100
    stages[95] = "N2"
    (tmp_path / "S1.txt").write_text("\n".join(stages) + "\n")
    recording = read_recording(path, LABELS, tmp_path / "S1.txt")
    prepared = preprocess(recording, RECIPES["as-released"])
    assert prepared.first_epoch == 95 - 60
    assert np.flatnonzero(prepared.stages == 2).tolist() == [60]
    assert not any(flag.startswith("paused") for flag in prepared.flags)


def test_a_night_without_a_pause_has_no_gap(tmp_path):
    recording = read_recording(write(tmp_path) / "S1.edf", LABELS, tmp_path / "S1.txt")
    assert recording.gaps_s == ()
    assert not recording.in_gap.any()
    assert between_gaps(recording) is recording


@pytest.mark.parametrize("onsets", [None, ONSETS])
def test_a_quality_that_is_known_is_not_examined_again(tmp_path, onsets, monkeypatch):
    recording = read_recording(write(tmp_path, onsets) / "S1.edf", LABELS)
    expected = preprocess(recording, RECIPES["robust"])
    assert expected.quality.measured.shape == (len(recording.stages), 2)
    assert not expected.quality.measured[recording.in_gap].any()
    monkeypatch.setattr("psdnorm.prepare.signals.examine", None)
    found = preprocess(recording, RECIPES["robust"], quality=expected.quality)
    np.testing.assert_array_equal(found.signals, expected.signals)
    assert found.flags == expected.flags


def test_a_night_that_pauses_in_every_epoch_is_refused(tmp_path):
    signal = np.zeros((1, 6000), np.float32)
    stages = np.full(2, -1, np.int8)
    night = Recording(signal, ("C3",), 100.0, stages, None, "S1.edf", ((20, 40),))
    with pytest.raises(RecordingError, match=r"S1.edf pauses in each of its 2 epochs of 30 s"):
        preprocess(night, RECIPES["robust"])


def test_a_gap_spoils_each_epoch_that_it_touches():
    assert epochs_in_gaps([(29, 31), (90, 120)], 5).tolist() == [True, True, False, True, False]
    assert epochs_in_gaps([(-11, -1), (29, 30)], 3).tolist() == [True, False, False]
    assert epochs_in_gaps([(100, 400)], 4).tolist() == [False, False, False, True]


def test_a_gap_that_ends_with_an_epoch_to_rounding_does_not_touch_the_next_one():
    cut_s, border_s = 2.02, 32.02
    assert border_s - cut_s > 30  # by rounding
    assert epochs_in_gaps([(0, border_s - cut_s)], 2).tolist() == [True, False]
    cut_s, border_s = 2.05, 32.05
    assert border_s - cut_s < 30
    assert epochs_in_gaps([(border_s - cut_s, 60)], 2).tolist() == [False, True]


def test_an_epoch_of_half_a_sample_more_is_taken_whole_from_the_end_of_the_signal():
    signal = np.arange(6003, dtype=np.float32)[None]  # 2 epochs of 3001.5 samples
    stages = np.array([1, 2], np.int8)
    night = Recording(signal, ("C3",), 100.05, stages, None, "S1.edf", ((3, 4),))
    left = between_gaps(night)
    np.testing.assert_array_equal(left.signal, signal[:, -3002:])
    assert left.stages.tolist() == [2]
