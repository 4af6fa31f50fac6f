"""An electrode that is off is found although the derivation from it is not flat."""

import numpy as np
import pytest
from cohort_folder import samples
from small_stagers import flat, recording, small_model

from psdnorm.io import open_source
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import load_model, stage
from psdnorm.staging.derivations import electrode_conditions, plan_channels
from psdnorm.staging.shift import UNUSUAL


def conditions(recorded, wanted=None, unit=None, measured=None, n_epochs=4):
    source = open_source(recorded)
    planned, _ = plan_channels(source, wanted, RECIPES["robust"], unit)
    if measured is None:
        measured = {each.name: np.ones(n_epochs, bool) for each in planned}
    return electrode_conditions(source, planned, measured)


def half_flat(n_epochs=4):
    spoilt = samples(n_epochs)
    spoilt[: n_epochs // 2] = 0
    return spoilt


def test_where_all_electrodes_are_on_nothing_is_said(tmp_path):
    assert conditions(recording(tmp_path / "night.edf")) == []


def test_an_electrode_that_is_off_makes_the_night_unusual_and_is_named(tmp_path):
    night = stage(recording(tmp_path / "night.edf", C3=flat()), load_model(small_model(tmp_path)))
    said = "C3-M2 is without C3 in 100 % of the epochs, where that electrode is flat."
    assert said in night.shift.reasons


def test_epochs_are_counted_in_which_the_electrode_is_flat_and_the_derivation_is_not(tmp_path):
    path = recording(tmp_path / "night.edf", C3=half_flat())
    (found,) = conditions(path)
    assert (found.channel, found.kind, found.share, found.verdict) == (
        *("C3-M2", "electrode", 0.5, UNUSUAL),
    )
    measured = {"C3-M2": np.array([False, True, True, True]), "C4-M1": np.ones(4, bool)}
    assert conditions(path, measured=measured)[0].share == 0.25
    assert conditions(path, measured={"C4-M1": np.ones(4, bool)}) == []


def test_a_few_flat_epochs_of_an_electrode_are_not_worth_a_word(tmp_path):
    spoilt = samples(20)
    spoilt[3] = 0
    path = recording(tmp_path / "night.edf", n_epochs=20, C3=spoilt)
    assert conditions(path, n_epochs=20) == []


def test_a_flat_reference_may_be_what_all_others_were_recorded_against(tmp_path):
    assert conditions(recording(tmp_path / "night.edf", M2=flat(), M1=flat())) == []


def test_a_channel_that_the_file_holds_itself_has_no_electrode_besides(tmp_path):
    assert conditions(recording(tmp_path / "night.edf", C3=flat()), wanted=["C3"]) == []


@pytest.mark.parametrize(("unit", "n_flat"), [("uV", 0), ("nV", 2)])
def test_electrodes_are_looked_at_in_the_unit_that_was_given(tmp_path, unit, n_flat):
    assert len(conditions(recording(tmp_path / "night.edf"), unit=unit)) == n_flat


def test_electrodes_of_what_mne_has_opened_are_looked_at_too(tmp_path):
    mne = pytest.importorskip("mne")
    path = recording(tmp_path / "night.edf", C4=flat())
    (found,) = conditions(mne.io.read_raw_edf(path, verbose=False))
    assert found.channel == "C4-M1"
