"""Derivations are found by their labels, and prepared as ``prepare`` would store them."""

import dataclasses

import edf_files
import numpy as np
import pytest
from cohort_folder import SCORES, cohort_folder, samples, signal
from small_stagers import flat, recording

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import open_source
from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import derivations
from psdnorm.staging.derivations import (
    doubt_unit,
    factor_of,
    find_montage,
    groups_of,
    plan_channels,
    prepare_night,
    spectrogram_of,
    spread_uv,
)


def found(*labels):
    return find_montage(labels)[0]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("EEG Fpz-Cz", "Fpz-Cz"),
        ("C3-M2", "C3-M2"),
        ("c3-a2", "C3-A2"),
        ("C4:M1", "C4-M1"),
        ("F4/A1", "F4-A1"),
        ("O1_M2", "O1-M2"),
        ("C3A2", "C3-A2"),
        ("EEG C3-LER", "C3"),
        ("EEG C4-REF", "C4"),
        ("Cz", "Cz"),
        ("EEG T10", "T10"),
        ("AFz", "AFz"),
        ("EEG FP1", "Fp1"),
    ],
)
def test_an_eeg_channel_is_known_by_its_label(label, name):
    assert found("ECG", label) == {name: label}


@pytest.mark.parametrize(
    "label",
    [
        *("EOG horizontal", "E1-M2", "LOC", "ROC-A1", "EMG submental", "Chin1-Chin2", "ECG"),
        *("Resp oro-nasal", "SpO2", "Pleth", "Temp rectal", "Event marker", "A1", "A1-A2", "C5X"),
    ],
)
def test_what_is_no_eeg_is_not_taken_for_it(label):
    assert found(label) == {}


def test_channels_of_a_common_reference_are_taken_against_the_other_side():
    labels = ("EEG C3-LER", "EEG C4-LER", "EEG A1-LER", "EEG A2-LER", "EEG Cz-LER")
    assert found(*labels) == {
        "Cz-M1M2": "EEG Cz-LER-(EEG A1-LER+EEG A2-LER)/2",
        "C3-A2": "EEG C3-LER-EEG A2-LER",
        "C4-A1": "EEG C4-LER-EEG A1-LER",
    }


def test_one_ear_is_used_for_both_sides_where_there_is_no_other():
    assert found("F3", "F4", "M1") == {"F3-M1": "F3-M1", "F4-M1": "F4-M1"}


def test_without_ears_channels_are_taken_as_they_are_with_a_note():
    montage, notes = find_montage(["F3", "C4-M1"])
    assert list(montage) == ["F3", "C4-M1"]
    assert notes == [
        "F3 taken against the reference of the recording, as it has no mastoid or ear channel"
    ]


def test_a_place_is_used_once_and_contralateral_by_choice():
    assert found("C3", "C3-M1", "C3-M2", "M1", "M2") == {"C3-M2": "C3-M2"}
    assert found("Fz-Cz", "C3-Cz") == {"Fz-Cz": "Fz-Cz", "C3-Cz": "C3-Cz"}


def test_derivations_come_from_front_to_back_and_left_to_right():
    assert list(found("O2-M1", "C4-M1", "F4-M1", "O1-M2", "C3-M2", "Fpz-Cz")) == [
        *("Fpz-Cz", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1")
    ]


def test_of_many_derivations_the_recommended_are_used_and_the_rest_is_noted():
    labels = [f"{site}-M1" for site in ("Fp1", "Fp2", "F7", "F3", "F4", "C3", "C4", "O1", "O2")]
    montage, notes = find_montage(labels)
    assert [name.partition("-")[0] for name in montage] == ["F3", "F4", "C3", "C4", "O1", "O2"]
    assert notes == ["6 of 9 EEG derivations are used"]


def test_eeg_without_a_place_is_used_where_no_channel_has_one():
    assert found("EEG", "EEG(sec)", "ECG") == {"EEG": "EEG", "EEG(sec)": "EEG(sec)"}
    assert found("EEG", "C3-M2") == {"C3-M2": "C3-M2"}


def test_labels_that_are_there_twice_are_not_used_with_a_note():
    montage, notes = find_montage(["C3-M2", "C3-M2", "C4-M1"])
    assert list(montage) == ["C4-M1"]
    assert "same label" in notes[0]


def test_all_pairs_vote_ten_at_most_the_foremost_first():
    groups, note = groups_of("abcdef", 2)
    assert groups[:4] == (("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"))
    assert (len(set(groups)), note) == (10, "at most 10 of 15 groups of channels vote")
    assert groups_of("abcd", 2)[1] == ""
    assert len(groups_of("abcd", 2)[0]) == 6


def test_a_model_of_one_channel_is_shown_each_alone():
    assert groups_of("abc", 1) == ((("a",), ("b",), ("c",)), "")


def test_too_few_channels_are_repeated_with_a_note():
    assert groups_of(["Cz"], 2) == (
        (("Cz", "Cz"),),
        "Cz is used twice because the model takes 2 channels",
    )
    used = "a is used twice because the model takes 3 channels"
    assert groups_of(["a", "b"], 3) == ((("a", "b", "a"),), used)
    assert groups_of(["a"], 3)[1].startswith("a is used 3 times because")


@pytest.mark.parametrize("spread", [2.1, 20.0, 299.0])
def test_eeg_of_a_usual_size_raises_no_doubt(spread):
    assert doubt_unit([spread, spread], None, "night.edf") == ""


@pytest.mark.parametrize(
    ("spread", "words"), [(2e-5, "1000000 times larger"), (2e7, "1000000 times smaller")]
)
def test_what_can_be_eeg_in_another_unit_alone_is_an_error_that_names_the_option(spread, words):
    with pytest.raises(RecordingError) as caught:
        doubt_unit([spread], None, "night.edf")
    assert str(caught.value).startswith("night.edf: its EEG has a standard deviation of")
    assert words in str(caught.value)
    assert str(caught.value).endswith("give the unit (V, mV, uV, nV) by --unit")


@pytest.mark.parametrize("spread", [0.02, 20000.0])
def test_what_may_be_flat_or_too_large_for_other_reasons_is_only_noted(spread):
    assert "if so, give --unit" in doubt_unit([spread], None, "night.edf")


def test_a_unit_that_was_given_and_does_not_fit_is_used_with_a_warning():
    assert "the unit V was given" in doubt_unit([2e7], "V", "night.edf")


def test_nothing_is_reported_of_the_unit_of_a_flat_signal():
    assert doubt_unit([float("nan")], None, "night.edf") == ""
    assert doubt_unit([1e-12], None, "night.edf") == ""


def test_the_spread_does_not_mind_drifts_artefacts_and_gaps():
    rng = np.random.default_rng(0)
    row = (20 * rng.standard_normal(300_000)).astype(np.float32)
    row[:9000] = 0
    row[9000:12000] = np.nan
    row[12000:15000] += 1e5 * rng.standard_normal(3000).astype(np.float32)
    row[60000:] += 500
    assert spread_uv(row, 100.0) == pytest.approx(20, rel=0.02)
    assert np.isnan(spread_uv(np.zeros(9000, np.float32), 100.0))


def test_units_are_volts():
    assert [factor_of(unit) for unit in ("V", "mV", "uV", "µV", "nV")] == [1e6, 1e3, 1, 1, 1e-3]
    with pytest.raises(ArgumentError, match="unit is 'T', expected one of V, mV, uV, nV"):
        factor_of("T")


ROBUST = RECIPES["robust"]


def prepared(path, wanted=None, recipe=ROBUST, unit=None):
    source = open_source(path)
    planned, notes = plan_channels(source, wanted, recipe, unit)
    night = prepare_night(source, planned, recipe, unit)
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
    assert tuple(night.prepared) == ("C3-M2", "C4-M1")
    for place, name in enumerate(night.prepared):
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


def test_epochs_with_a_gap_in_them_are_not_measured_with_a_note(tmp_path):
    onsets = (0, 30, 75, 105)
    channels = [edf_files.channel("C3-M2", samples(4))]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30, reserved="EDF+D"))
    night = prepared(path)
    assert night.measured["C3-M2"].tolist() == [True, True, False, True]
    assert any("pauses 1 time, for 15 s" in note for note in night.notes)
    assert any("the last 15 s are less than an epoch" in note for note in night.notes)


@pytest.mark.parametrize("sfreq", [100, 128])
def test_a_pause_that_is_longer_than_the_recording_is_no_flat_signal(tmp_path, monkeypatch, sfreq):
    onsets = (0, 30, 900, 930)
    channels = [edf_files.channel("C3-M2", samples(4, sfreq))]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30, reserved="EDF+D"))
    seen = []
    monkeypatch.setattr(derivations, "conditions_of", lambda each, _: seen.append(each) or [])
    night = prepared(path)
    assert (tuple(night.prepared), night.n_epochs) == (("C3-M2",), 32)
    assert np.flatnonzero(night.measured["C3-M2"]).tolist() == [0, 1, 30, 31]
    assert seen[0].signal.shape == (1, 4 * 30 * sfreq)
    assert not any("flat" in note for note in night.notes)
    path.write_bytes(edf_files.edf(channels[:1], record_s=30))
    alone = prepared(path).prepared["C3-M2"]
    np.testing.assert_array_equal(night.prepared["C3-M2"][[0, 1, 30, 31]], alone)


def test_a_recording_that_pauses_in_every_epoch_raises(tmp_path):
    channels = [edf_files.channel("C3-M2", samples(4)[:, :2000])]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % (30 * n) for n in range(4)]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=20, reserved="EDF+D"))
    assert refusal(path).startswith(f"{path} pauses in each of its 3 epochs of 30 s, expected")


def test_a_bad_channel_does_not_stop_the_others(tmp_path):
    labels = ("F3-M2", "C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **{"C3-M2": flat()})
    night = prepared(path)
    assert tuple(night.prepared) == ("F3-M2", "C4-M1")
    assert night.unusable["C3-M2"].startswith("C3-M2 is flat in 100 % of the epochs")
    assert night.spectrogram.channel == "F3-M2"


def test_a_channel_whose_range_is_broken_does_not_stop_the_others(tmp_path):
    good, broken = (edf_files.channel(label, samples(4)) for label in ("C3-M2", "C4-M1"))
    path = tmp_path / "night.edf"
    content = edf_files.edf([good, broken | {"physical": (0, 0)}], record_s=30)
    path.write_bytes(content)
    night = prepared(path)
    assert tuple(night.prepared) == ("C3-M2",)
    assert "expected two ranges" in night.unusable["C4-M1"]


def test_a_night_of_bad_channels_alone_has_its_length_and_its_reasons(tmp_path):
    labels = ("C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **dict.fromkeys(labels, flat()))
    night = prepared(path)
    assert (tuple(night.prepared), night.n_epochs) == ((), 4)
    assert set(night.unusable) == set(labels)
    assert night.spectrogram.power_db.shape[0] == 4


def test_channels_of_several_rates_are_all_used_with_a_note(tmp_path):
    slow, fast = samples(4, 100), samples(4, 200, 1)
    channels = [edf_files.channel("C4-M1", fast), edf_files.channel("C3-M2", slow)]
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30))
    night = prepared(path)
    assert tuple(night.prepared) == ("C3-M2", "C4-M1")
    assert {each.shape for each in night.prepared.values()} == {(4, 3000)}
    assert any("C3-M2 at 100 Hz, C4-M1 at 200 Hz" in note for note in night.notes)


def test_channels_read_one_by_one_are_those_that_are_read_together(tmp_path, monkeypatch):
    path = recording(tmp_path / "night.edf")
    shown = []

    def look(recording, quality):
        shown.append(recording.channels)
        return []

    monkeypatch.setattr(derivations, "conditions_of", look)
    together = prepared(path)
    monkeypatch.setattr(derivations, "_AT_ONCE", 1)
    alone = prepared(path)
    assert shown == [("C3-M2", "C4-M1"), ("C3-M2",), ("C4-M1",)]
    for name in together.prepared:
        np.testing.assert_array_equal(together.prepared[name], alone.prepared[name])


def test_channels_that_are_asked_for_are_used_and_no_others(tmp_path):
    path = recording(tmp_path / "night.edf")
    night = prepared(path, wanted={"across": ("C3-C4",)})
    assert tuple(night.prepared) == ("across",)
    assert "has no channel 'Pz'" in refusal(path, wanted=["Pz"])


@pytest.mark.parametrize(
    ("labels", "names"),
    [(("EEG Fp1-LER", "EEG Fp2-LER"), ("Fp1", "Fp2")), (("Cz", "A1", "A2"), ("Cz-M1M2",))],
)
def test_channels_may_be_asked_for_as_outputs_call_them(tmp_path, labels, names):
    path = recording(tmp_path / "night.edf", labels=labels)
    found = prepared(path)
    assert tuple(found.prepared) == names
    night = prepared(path, wanted=names[-1:])
    assert tuple(night.prepared) == names[-1:]
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
    assert said.endswith("scoring.edf has no channel, as a scoring has none: expected EEG")


def test_a_rate_that_is_too_low_is_an_error_and_no_flat_night(tmp_path):
    path = recording(tmp_path / "night.edf", labels=("C3-M2",), sfreq=50)
    expected = f"{path} has 'C3-M2' at 50 Hz, expected at least 64 Hz"
    assert refusal(path) == expected


def test_ten_seconds_raise(tmp_path):
    path = tmp_path / "night.edf"
    content = edf_files.edf([edf_files.channel("C3-M2", samples(1)[:, :1000])], record_s=10)
    path.write_bytes(content)
    assert "lasts 10 s, expected at least 30 s" in refusal(path)


def volts(unit, physical):
    one = edf_files.channel("C3-M2", samples(4), unit=unit, physical=physical)
    return edf_files.edf([one], record_s=30)


def test_volts_that_are_called_microvolts_raise_until_the_unit_is_given(tmp_path):
    right, wrong = tmp_path / "right.edf", tmp_path / "wrong.edf"
    right.write_bytes(volts("V", (-0.0032, 0.0032)))
    wrong.write_bytes(volts("uV", (-0.0032, 0.0032)))
    said = refusal(wrong)
    assert "wrong.edf: its EEG has a standard deviation of" in said
    assert "--unit" in said
    night = prepared(wrong, unit="V")
    # but for the rounding of a factor
    expected = prepared(right).prepared["C3-M2"]
    np.testing.assert_allclose(night.prepared["C3-M2"], expected, rtol=2e-3)


def test_microvolts_that_are_called_volts_raise_until_the_unit_is_given(tmp_path):
    path = tmp_path / "night.edf"
    path.write_bytes(volts("V", (-3276.8, 3276.7)))
    assert "1000000 times smaller" in refusal(path)
    assert tuple(prepared(path, unit="uV").prepared) == ("C3-M2",)


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


def test_a_channel_beyond_the_type_of_the_store_is_left_out_alone(tmp_path):
    huge = edf_files.channel("C3-M2", samples(4), physical=(-9e6, 9e6))
    usual = edf_files.channel("C4-M1", samples(4))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf([huge, usual], record_s=30))
    night = prepared(path, recipe=dataclasses.replace(ROBUST, scaling="none", clip=None))
    assert tuple(night.prepared) == ("C4-M1",)
    assert night.unusable == {"C3-M2": "C3-M2 has samples that are not finite in float16"}


@pytest.mark.parametrize("sfreq", [100.0, 256.0, 199.7])
def test_a_sine_has_its_power_at_its_frequency_in_its_epoch(sfreq):
    time_s = np.arange(int(90 * sfreq)) / sfreq
    row = np.where((time_s >= 30) & (time_s < 60), 20 * np.sin(2 * np.pi * 10 * time_s), 0)
    row += np.random.default_rng(0).standard_normal(len(row))
    found = spectrogram_of(row.astype(np.float32), sfreq, 3, "C3")
    assert found.channel == "C3"
    assert found.power_db.shape == (3, len(found.frequencies_hz))
    assert found.frequencies_hz[-1] <= 30 < found.frequencies_hz[-1] + 0.3
    peak_hz = found.frequencies_hz[found.power_db[1].argmax()]
    assert peak_hz == pytest.approx(10, abs=0.26)
    width_hz = found.frequencies_hz[1]
    power = (10 ** (found.power_db[1] / 10)).sum() * width_hz  # of all bins, in µV²
    assert power == pytest.approx(200, rel=0.05)
    white_db = 10 * np.log10(2 / sfreq)
    assert np.median(found.power_db[0]) == pytest.approx(white_db, abs=0.5)


def test_what_is_not_finite_is_unknown_and_what_is_flat_is_low():
    row = np.zeros(9000, np.float32)
    row[4000] = np.nan
    found = spectrogram_of(row, 100.0, 3, "C3")
    assert np.isnan(found.power_db[1]).all()
    assert (found.power_db[[0, 2]] == -40).all()
