"""A night is staged from the very samples that ``prepare`` would store."""

import dataclasses

import edf_files
import numpy as np
import pytest
from cohort_folder import SCORES, cohort_folder, samples, signal
from small_stagers import flat, recording

from psdnorm.errors import RecordingError
from psdnorm.io import open_source
from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import preparing
from psdnorm.staging.derivations import plan_channels
from psdnorm.staging.preparing import prepare_channels

ROBUST = RECIPES["robust"]


def prepared(path, wanted=None, recipe=ROBUST, unit=None, look=lambda recording: None):
    source = open_source(path)
    planned, notes = plan_channels(source, wanted, recipe, unit)
    night = prepare_channels(source, planned, recipe, unit, look)
    night.notes = notes + night.notes
    return night


def refusal(path, **arguments):
    with pytest.raises(RecordingError) as caught:
        prepared(path, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("recipe", ["paper", "as-released", "robust"])
@pytest.mark.parametrize("sfreq", [100, 200, 128])
def test_the_samples_are_bit_for_bit_those_of_prepare(tmp_path, recipe, sfreq):
    spoilt = samples(4, sfreq, 1)
    spoilt[2] = 0  # one flat epoch: it decides nothing about scale
    source = cohort_folder(tmp_path / "source", **{"S1.edf": signal(sfreq=sfreq, C4=spoilt)})
    (source / "S1.txt").write_text(SCORES)
    preparation = Preparation("folder", source, tmp_path / "store", RECIPES[recipe])
    assert [outcome.reason for outcome in preparation.run()] == [""]
    stored = preparation.store.signals("folder-S1")
    night = prepared(source / "S1.edf", recipe=RECIPES[recipe])
    assert night.channels == ("C3-M2", "C4-M1")
    for place, name in enumerate(night.channels):
        np.testing.assert_array_equal(night.prepared[name], stored[:, place])
        assert night.prepared[name].dtype == stored.dtype


def test_epochs_that_are_flat_or_not_finite_are_not_measured(tmp_path):
    spoilt = samples(4)
    spoilt[2] = 0
    path = recording(tmp_path / "night.edf", labels=("C3-M2", "C4-M1"), **{"C4-M1": spoilt})
    night = prepared(path)
    assert night.measured["C3-M2"].tolist() == [True] * 4
    assert night.measured["C4-M1"].tolist() == [True, True, False, True]
    assert "C4-M1 flat 25 %" in night.notes


def test_epochs_with_a_gap_in_them_are_not_measured_and_that_is_said(tmp_path):
    onsets = (0, 30, 75, 105)
    channels = [edf_files.channel("C3-M2", samples(4))]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30, reserved="EDF+D"))
    night = prepared(path)
    assert night.measured["C3-M2"].tolist() == [True, True, False, True]
    assert any("paused 1 times, for 15 s" in note for note in night.notes)
    assert any("the last 15 s fill no epoch" in note for note in night.notes)


@pytest.mark.parametrize("sfreq", [100, 128])
def test_a_pause_that_is_longer_than_the_recording_is_no_flat_signal(tmp_path, sfreq):
    onsets = (0, 30, 900, 930)
    channels = [edf_files.channel("C3-M2", samples(4, sfreq))]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30, reserved="EDF+D"))
    seen = []
    night = prepared(path, look=seen.append)
    assert (night.channels, night.n_epochs) == (("C3-M2",), 32)
    assert np.flatnonzero(night.measured["C3-M2"]).tolist() == [0, 1, 30, 31]
    assert seen[0].signal.shape == (1, 4 * 30 * sfreq)
    assert not any("flat" in note for note in night.notes)
    path.write_bytes(edf_files.edf(channels[:1], record_s=30))
    alone = prepared(path).prepared["C3-M2"]
    np.testing.assert_array_equal(night.prepared["C3-M2"][[0, 1, 30, 31]], alone)


def test_a_recording_that_pauses_in_every_epoch_is_refused(tmp_path):
    channels = [edf_files.channel("C3-M2", samples(4)[:, :2000])]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % (30 * n) for n in range(4)]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=20, reserved="EDF+D"))
    assert refusal(path).startswith(f"{path} pauses in each of its 3 epochs of 30 s, expected")


def test_a_bad_channel_does_not_stop_the_others(tmp_path):
    labels = ("F3-M2", "C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **{"C3-M2": flat()})
    night = prepared(path)
    assert night.channels == ("F3-M2", "C4-M1")
    assert night.refused["C3-M2"].startswith("C3-M2 is flat in 100 % of the epochs")
    assert night.spectrogram.channel == "F3-M2"


def test_a_channel_whose_range_is_broken_does_not_stop_the_others(tmp_path):
    good, broken = (edf_files.channel(label, samples(4)) for label in ("C3-M2", "C4-M1"))
    path = tmp_path / "night.edf"
    content = edf_files.edf([good, broken | {"physical": (0, 0)}], record_s=30)
    path.write_bytes(content)
    night = prepared(path)
    assert night.channels == ("C3-M2",)
    assert "expected two ranges" in night.refused["C4-M1"]


def test_a_night_of_bad_channels_alone_has_its_length_and_its_reasons(tmp_path):
    labels = ("C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **dict.fromkeys(labels, flat()))
    night = prepared(path)
    assert (night.channels, night.n_epochs) == ((), 4)
    assert set(night.refused) == set(labels)
    assert night.spectrogram.power_db.shape[0] == 4


def test_channels_of_several_rates_are_all_used_and_that_is_said(tmp_path):
    slow, fast = samples(4, 100), samples(4, 200, 1)
    channels = [edf_files.channel("C4-M1", fast), edf_files.channel("C3-M2", slow)]
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30))
    night = prepared(path)
    assert night.channels == ("C3-M2", "C4-M1")
    assert {each.shape for each in night.prepared.values()} == {(4, 3000)}
    assert any("C3-M2 at 100 Hz, C4-M1 at 200 Hz" in note for note in night.notes)


def test_channels_read_one_by_one_are_those_that_are_read_together(tmp_path, monkeypatch):
    path = recording(tmp_path / "night.edf")
    shown = []
    together = prepared(path, look=lambda recording: shown.append(recording.channels))
    monkeypatch.setattr(preparing, "_AT_ONCE", 1)
    alone = prepared(path, look=lambda recording: shown.append(recording.channels))
    assert shown == [("C3-M2", "C4-M1"), ("C3-M2",), ("C4-M1",)]
    for name in together.channels:
        np.testing.assert_array_equal(together.prepared[name], alone.prepared[name])


def test_channels_that_are_asked_for_are_used_and_no_others(tmp_path):
    path = recording(tmp_path / "night.edf")
    night = prepared(path, wanted={"across": ("C3-C4",)})
    assert night.channels == ("across",)
    assert "has no channel 'Pz'" in refusal(path, wanted=["Pz"])


@pytest.mark.parametrize(
    ("labels", "names"),
    [(("EEG Fp1-LER", "EEG Fp2-LER"), ("Fp1", "Fp2")), (("Cz", "A1", "A2"), ("Cz-M1M2",))],
)
def test_channels_may_be_asked_for_as_outputs_call_them(tmp_path, labels, names):
    path = recording(tmp_path / "night.edf", labels=labels)
    found = prepared(path)
    assert found.channels == names
    night = prepared(path, wanted=names[-1:])
    assert night.channels == names[-1:]
    np.testing.assert_array_equal(night.prepared[names[-1]], found.prepared[names[-1]])


def test_labels_go_before_what_outputs_call_another_channel(tmp_path):
    path = recording(tmp_path / "night.edf", labels=("EEG C3-M2", "C3", "M2"))
    asked_for = prepared(path, wanted=["C3-M2"]).prepared["C3-M2"]
    np.testing.assert_array_equal(asked_for, prepared(path, wanted={"x": "1*C3-M2"}).prepared["x"])
    assert (asked_for != prepared(path).prepared["C3-M2"]).any()


def test_without_eeg_the_channels_found_and_the_flag_are_named(tmp_path):
    path = recording(tmp_path / "night.edf", labels=("EOG", "ECG"))
    said = refusal(path)
    assert "found EOG, ECG" in said
    assert "--channels" in said


def test_a_scoring_is_not_asked_for_its_channels(tmp_path):
    path = tmp_path / "scoring.edf"
    marks = edf_files.annotations([b"+0\x14\x14\x00"])
    path.write_bytes(edf_files.edf([marks], record_s=30, reserved="EDF+C"))
    said = refusal(path)
    assert said.endswith("scoring.edf has no channel, as a scoring has none, expected EEG")


def test_a_rate_that_is_too_low_is_no_flat_night_but_refused(tmp_path):
    path = recording(tmp_path / "night.edf", labels=("C3-M2",), sfreq=50)
    expected = f"{path} has 'C3-M2' at 50 Hz, expected at least 64 Hz"
    assert refusal(path) == expected


def test_ten_seconds_are_refused(tmp_path):
    path = tmp_path / "night.edf"
    content = edf_files.edf([edf_files.channel("C3-M2", samples(1)[:, :1000])], record_s=10)
    path.write_bytes(content)
    assert "lasts 10 s, expected at least 30 s" in refusal(path)


def volts(unit, physical):
    one = edf_files.channel("C3-M2", samples(4), unit=unit, physical=physical)
    return edf_files.edf([one], record_s=30)


def test_volts_that_are_called_microvolts_are_refused_until_the_unit_is_given(tmp_path):
    right, wrong = tmp_path / "right.edf", tmp_path / "wrong.edf"
    right.write_bytes(volts("V", (-0.0032, 0.0032)))
    wrong.write_bytes(volts("uV", (-0.0032, 0.0032)))
    said = refusal(wrong)
    assert "wrong.edf: 30 s of its EEG vary by" in said
    assert "--unit" in said
    night = prepared(wrong, unit="V")
    # but for the rounding of a factor
    expected = prepared(right).prepared["C3-M2"]
    np.testing.assert_allclose(night.prepared["C3-M2"], expected, rtol=2e-3)


def test_microvolts_that_are_called_volts_are_refused_until_the_unit_is_given(tmp_path):
    path = tmp_path / "night.edf"
    path.write_bytes(volts("V", (-3276.8, 3276.7)))
    assert "1000000 times smaller" in refusal(path)
    assert prepared(path, unit="uV").channels == ("C3-M2",)


def test_one_unit_is_not_given_to_channels_of_several(tmp_path):
    path = tmp_path / "night.edf"
    channels = [edf_files.channel("C3", samples(4)), edf_files.channel("M2", samples(4), unit="mV")]
    path.write_bytes(edf_files.edf(channels, record_s=30))
    said = refusal(path, unit="uV")
    assert "has the channels of 'C3-M2' in several units, and the unit uV was given" in said


def test_the_recipe_of_one_channel_is_that_of_two(tmp_path):
    path = recording(tmp_path / "night.edf")
    one = prepared(path, recipe=dataclasses.replace(ROBUST, n_channels=1))
    two = prepared(path)
    np.testing.assert_array_equal(one.prepared["C3-M2"], two.prepared["C3-M2"])


def test_a_channel_beyond_the_type_of_the_store_is_refused_alone(tmp_path):
    huge = edf_files.channel("C3-M2", samples(4), physical=(-9e6, 9e6))
    usual = edf_files.channel("C4-M1", samples(4))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf([huge, usual], record_s=30))
    night = prepared(path, recipe=dataclasses.replace(ROBUST, scaling="none", clip=None))
    assert night.channels == ("C4-M1",)
    assert night.refused == {"C3-M2": "C3-M2 has samples that are not finite in float16"}
