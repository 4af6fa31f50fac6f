"""A night is flagged in which an electrode is off and the derivation from it is not flat."""

import dataclasses

import edf_files
import numpy as np
import pytest
from cohort_folder import LABELS, SCORES, cohort_folder, samples, signal

from psdnorm.io.channels import resolve
from psdnorm.prepare.prepare import PREPARED, Preparation
from psdnorm.prepare.quality import electrodes_of, flat_epochs
from psdnorm.prepare.recipe import RECIPES
from psdnorm.store import Store

WHOLE_NIGHT = ("C3-A2 without C3 100 %",)


def flags(tmp_path, content, scores=SCORES, recipe=RECIPES["robust"], **options):
    """The flags of a night, which is prepared in spite of them."""
    source = cohort_folder(tmp_path / "source", **{"S01.edf": content, "S01.txt": scores})
    (outcome,) = Preparation("folder", source, tmp_path / "store", recipe, **options).run()
    assert (outcome.status, outcome.reason) == (PREPARED, "")
    index = Store.open(tmp_path / "store").index
    assert index["flags"].tolist() == [";".join(outcome.flags)]
    return outcome.flags


def spoilt(epochs, n_epochs=4, seed=50):
    """Digital values of a channel that is flat in some epochs."""
    values = samples(n_epochs, seed=seed)
    values[epochs] = 0
    return values


def test_an_electrode_that_is_off_is_flagged_and_its_night_is_prepared(tmp_path):
    assert flags(tmp_path, signal(C3=spoilt(slice(None)))) == WHOLE_NIGHT


def test_where_all_electrodes_are_on_there_is_no_flag(tmp_path):
    assert flags(tmp_path, signal()) == ()


def test_one_percent_of_the_epochs_is_flagged_and_less_is_not(tmp_path):
    scores = "N2\n" * 101
    for n_epochs, expected in ((100, ("C4-A1 without C4 1 %",)), (101, ())):
        content = signal(n_epochs=n_epochs, C4=spoilt([7], n_epochs))
        folder = tmp_path / str(n_epochs)
        assert flags(folder, content, scores[: 3 * n_epochs]) == expected


def test_epochs_count_in_which_the_derivation_is_not_flat_as_well(tmp_path):
    content = signal(C3=spoilt([0, 1]), M2=spoilt([0], seed=51))
    assert flags(tmp_path, content) == ("C3-A2 flat 25 %", "C3-A2 without C3 25 %")


def test_a_flat_reference_may_be_what_all_others_were_recorded_against(tmp_path):
    assert flags(tmp_path, signal(M2=spoilt(slice(None)), M1=spoilt(slice(None)))) == ()


def test_a_channel_that_the_file_holds_itself_has_no_electrode_besides(tmp_path):
    content = signal(labels=("C3-A2", "C4-A1", *LABELS), C3=spoilt(slice(None)))
    assert flags(tmp_path, content) == ()


def test_each_electrode_of_a_mean_is_looked_at(tmp_path):
    channels = {"mean": ("(C3+C4)/2-M1",)}
    content = signal(C4=spoilt(slice(None)))
    assert flags(tmp_path, content, channels=channels) == ("mean without C4 100 %",)


def test_only_epochs_that_are_kept_count(tmp_path):
    recipe = dataclasses.replace(RECIPES["robust"], trim="all", trim_margin_s=30)
    scores = "W\nW\nW\nN2\nN2\nW\nW\nW\n"  # epochs 2 to 5 are kept
    content = signal(n_epochs=8, C3=spoilt([0, 1, 2], 8))
    assert flags(tmp_path, content, scores, recipe) == ("C3-A2 without C3 25 %",)


def test_epochs_are_those_of_a_scoring_that_begins_later_than_the_signal(tmp_path):
    # 30 s epochs from 10 s on: the 30 flat seconds are the second one whole, none of the others
    values = samples(13, seed=50).reshape(-1)
    values[40 * 100 : 70 * 100] = 0
    scores = "onset\tduration\tstage\n" + "".join(f"{10 + 30 * e}\t30\tN2\n" for e in range(12))
    content = signal(n_epochs=13, C3=values.reshape(13, -1))
    source = cohort_folder(tmp_path / "source", **{"S01.edf": content, "S01.tsv": scores})
    (outcome,) = Preparation("folder", source, tmp_path / "store", RECIPES["robust"]).run()
    assert outcome.counts["N2"] == 12
    assert outcome.flags == ("C3-A2 without C3 8 %",)


def test_pauses_count_neither_as_flat_nor_as_epochs(tmp_path):
    # two epochs, then a pause to the middle of another, from where on C3 is off
    onsets = (0, 30, 915, 945)
    channels = [
        edf_files.channel(label, spoilt([2, 3]) if label == "C3" else samples(seed=number))
        for number, label in enumerate(LABELS)
    ]
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    content = edf_files.edf(channels, record_s=30, reserved="EDF+D")
    found = flags(tmp_path, content, "N2\n" * 32)
    assert found == ("paused 91 %", "C3-A2 without C3 33 %")


def test_a_label_that_no_index_could_hold_costs_no_night(tmp_path):
    labels = ("C3;x", "C4", "M1", "M2")
    content = signal(labels=labels, **{"C3;x": spoilt(slice(None))})
    channels = {"C3-A2": ("C3;x-M2",)}
    assert flags(tmp_path, content, channels=channels) == ("C3-A2 without C3?x 100 %",)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("C3-M2", ("EEG C3",)),
        ("EEG C3", ()),
        ("(C3+C4)/2-M2", ("EEG C3", "C4")),
        ("-M2+C4", ("C4",)),
    ],
)
def test_the_electrodes_of_a_derivation_are_what_is_held_against_a_reference(expression, expected):
    labels = ("EEG C3 ", "C4", "M2")
    _, weights = resolve([expression], labels, "night.edf")
    assert electrodes_of(weights, labels) == expected


def test_what_is_not_finite_is_not_flat():
    electrode = np.zeros(9000, np.float32)
    electrode[3500:3502] = np.nan, np.inf
    assert flat_epochs(electrode, 100.0, np.ones(3, bool)).tolist() == [True, False, True]
    assert flat_epochs(electrode, 100.0, np.array([False, True, True])).tolist() == [
        *(False, False, True)
    ]
