"""EEG is found by its labels, whoever wrote them."""

import pytest

from psdnorm.staging.derivations import find_montage, groups_of


def found(*labels):
    return {each.name: each.expression for each in find_montage(labels).derivations}


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


def test_one_ear_serves_both_sides_where_there_is_no_other():
    assert found("F3", "F4", "M1") == {"F3-M1": "F3-M1", "F4-M1": "F4-M1"}


def test_without_ears_channels_are_taken_as_they_are_and_that_is_said():
    montage = find_montage(["F3", "C4-M1"])
    assert [each.name for each in montage.derivations] == ["F3", "C4-M1"]
    assert montage.notes == (
        "F3 taken against the reference of the recording, as it has no mastoid or ear channel",
    )


def test_a_place_is_used_once_and_contralateral_by_choice():
    assert found("C3", "C3-M1", "C3-M2", "M1", "M2") == {"C3-M2": "C3-M2"}
    assert found("Fz-Cz", "C3-Cz") == {"Fz-Cz": "Fz-Cz", "C3-Cz": "C3-Cz"}


def test_derivations_come_from_front_to_back_and_left_to_right():
    assert list(found("O2-M1", "C4-M1", "F4-M1", "O1-M2", "C3-M2", "Fpz-Cz")) == [
        *("Fpz-Cz", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1")
    ]


def test_of_many_derivations_the_recommended_are_used_and_the_rest_told():
    labels = [f"{site}-M1" for site in ("Fp1", "Fp2", "F7", "F3", "F4", "C3", "C4", "O1", "O2")]
    montage = find_montage(labels)
    names = [each.name.partition("-")[0] for each in montage.derivations]
    assert names == ["F3", "F4", "C3", "C4", "O1", "O2"]
    assert montage.notes == ("6 of 9 EEG derivations are used",)


def test_eeg_without_a_place_serves_where_no_channel_has_one():
    assert found("EEG", "EEG(sec)", "ECG") == {"EEG": "EEG", "EEG(sec)": "EEG(sec)"}
    assert found("EEG", "C3-M2") == {"C3-M2": "C3-M2"}


def test_labels_that_are_there_twice_are_not_used_and_that_is_said():
    montage = find_montage(["C3-M2", "C3-M2", "C4-M1"])
    assert [each.name for each in montage.derivations] == ["C4-M1"]
    assert "same label" in montage.notes[0]


def test_all_pairs_vote_ten_at_most_the_foremost_first():
    groups, note = groups_of("abcdef", 2)
    assert groups[:4] == (("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"))
    assert (len(set(groups)), note) == (10, "at most 10 of 15 groups of channels vote")
    assert groups_of("abcd", 2)[1] == ""
    assert len(groups_of("abcd", 2)[0]) == 6


def test_a_model_of_one_channel_hears_each_alone():
    assert groups_of("abc", 1) == ((("a",), ("b",), ("c",)), "")


def test_too_few_channels_are_repeated_and_that_is_said():
    assert groups_of(["Cz"], 2) == (
        (("Cz", "Cz"),),
        "Cz is fed 2 times, as the model takes 2 channels",
    )
    assert groups_of(["a", "b"], 3)[0] == (("a", "b", "a"),)
