"""Every pair is held against the training nights; one that is not to be trusted does not vote."""

import edf_files
import numpy as np
import pytest
from cohort_folder import samples
from small_stagers import flat, recording, small_model, small_network

from psdnorm.constants import UNSCORED
from psdnorm.drift import measure_spread
from psdnorm.io import Recording
from psdnorm.prepare.recipe import RECIPES
from psdnorm.prepare.signals import preprocess
from psdnorm.staging import load_model, stage
from psdnorm.staging.preparing import PreparedNight
from psdnorm.staging.shift import IN_RANGE, NOT_TRUSTED, UNUSUAL, Condition
from psdnorm.staging.trust import doubt_of_unit

LABELS = ("F3-M2", "C3-M2", "C4-M1")
DOUBT = "as they would if its numbers were in a unit 1000 times larger than what it says"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """It knows nights such as the tests' own."""
    nights = []
    for seed in range(30):
        rows = np.stack([samples(4, seed=[5, seed, place]).ravel() for place in (0, 1)])
        signal_uv = (edf_files.GAIN_UV * rows).astype(np.float32)
        stages = np.full(4, UNSCORED, np.int8)
        night = Recording(signal_uv, ("C3-M2", "C4-M1"), 100.0, stages, None, "made up")
        nights.append(preprocess(night, RECIPES["robust"]).signals)
    spread = measure_spread(small_network(), nights)
    return load_model(small_model(tmp_path_factory.mktemp("model"), training_spread=spread))


def with_alpha(amplitude, seed=9):
    """Digital values of a channel with waves of 10 Hz besides."""
    rows = samples(4, seed=seed)
    return np.rint(rows + amplitude * np.sin(2 * np.pi * np.arange(3000) / 10)).astype(int)


def test_a_night_whose_pairs_are_all_in_range_is_in_range_and_all_of_them_vote(tmp_path, model):
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert (night.shift.verdict, night.shift.reasons, len(night.pairs)) == (IN_RANGE, (), 3)
    assert night.shift.channels == night.pairs[0]


def test_a_pair_that_is_not_the_first_decides_the_verdict_too(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"C4-M1": with_alpha(27)})
    night = stage(path, model)
    assert len(night.pairs) == 3
    assert night.shift.verdict == UNUSUAL
    assert any(each.startswith("C4-M1 has") for each in night.shift.reasons)
    assert not any(each.startswith(("F3-M2", "C3-M2")) for each in night.shift.reasons)
    assert "C4-M1" in night.shift.channels


def test_a_pair_that_is_not_to_be_trusted_does_not_vote_beside_one_that_is(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"F3-M2": with_alpha(900)})
    night = stage(path, model)
    assert night.pairs == (("C3-M2", "C4-M1"),)
    assert night.pair_probabilities.shape == (1, 4, 5)
    assert (night.shift.verdict, night.shift.reasons) == (IN_RANGE, ())
    (note,) = [each for each in night.notes if "not vote" in each]
    assert note.startswith("F3-M2 + C3-M2, F3-M2 + C4-M1 do not vote: F3-M2 has ")
    assert "alpha" in note
    remark = "F3-M2 did not vote, and the verdict is without: the notes say why."
    assert night.shift.remarks[-1] == remark


def test_a_pair_whose_channels_vote_with_others_is_named_as_a_pair(tmp_path, model, monkeypatch):
    import psdnorm.staging.trust as trust

    def measure(network, signals, group, sfreq, original=trust.measure_pair):
        return original(network, signals * (9 if group == LABELS[:2] else 1), group, sfreq)

    monkeypatch.setattr(trust, "measure_pair", measure)
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert night.pairs == (("F3-M2", "C4-M1"), ("C3-M2", "C4-M1"))
    assert any(note.startswith("F3-M2 + C3-M2 does not vote: ") for note in night.notes)
    assert night.shift.remarks[-1].startswith("F3-M2 + C3-M2 did not vote")


def test_epochs_in_which_a_channel_is_flat_are_no_spectrum_of_its_pair(tmp_path, model):
    spoilt = samples(4, seed=3)
    spoilt[:2] = 0
    path = recording(tmp_path / "night.edf", labels=LABELS[1:], **{"C4-M1": spoilt})
    assert stage(path, model).shift.reasons == ("C4-M1 is flat in 50 % of the epochs.",)


def test_a_pair_that_mostly_disagrees_makes_a_night_unusual_whose_spectra_are_in_range(
    tmp_path, model, monkeypatch
):
    import psdnorm.staging.stager as night_of

    votes = np.full((3, 4, 5), 0.1, np.float32)
    votes[:2, :, 2] = votes[2, :, 0] = 0.6
    monkeypatch.setattr(night_of, "predict_groups", lambda *arguments: votes)
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert night.shift.verdict == UNUSUAL
    (reason,) = night.shift.reasons
    assert reason.startswith("Shown C3-M2 and C4-M1 alone, the model gives another stage")


def test_pairs_that_are_all_not_to_be_trusted_vote_and_the_night_is_not_either(tmp_path, model):
    spoilt = {label: with_alpha(900, seed) for seed, label in enumerate(LABELS[:2])}
    path = recording(tmp_path / "night.edf", labels=LABELS[:2], **spoilt)
    night = stage(path, model)
    assert (night.hypnogram >= 0).all()
    assert night.shift.verdict == NOT_TRUSTED
    assert not any("vote" in note for note in (*night.notes, *night.shift.remarks))


def scaled(path, unit, physical):
    """Two channels of which the header says this unit and this range."""
    channels = [
        edf_files.channel(label, samples(4, seed=seed), unit=unit, physical=physical)
        for seed, label in enumerate(("C3-M2", "C4-M1"))
    ]
    path.write_bytes(edf_files.edf(channels, record_s=30))
    return path


def test_microvolts_that_are_called_millivolts_are_the_first_reason(tmp_path, model):
    path = scaled(tmp_path / "night.edf", "mV", (-3276.8, 3276.7))
    night = stage(path, model)
    assert (night.hypnogram >= 0).all()
    assert night.shift.verdict == NOT_TRUSTED
    assert (
        "in a unit 1000 times smaller than what it says: if so, give --unit."
        in (night.shift.reasons[0])
    )
    assert not any("--unit" in text for text in (*night.shift.reasons[1:], *night.notes))
    right = stage(path, model, unit="uV")
    assert (right.shift.verdict, right.shift.reasons) == (IN_RANGE, ())


def test_millivolts_that_are_called_microvolts_are_the_first_reason(tmp_path, model):
    path = scaled(tmp_path / "night.edf", "uV", (-3.2768, 3.2767))
    night = stage(path, model)
    assert night.shift.verdict == NOT_TRUSTED
    first, second, *_ = night.shift.reasons
    assert "in a unit 1000 times larger than what it says: if so, give --unit." in first
    assert second == "No channel could be staged."
    assert stage(path, model, unit="mV").shift.verdict == IN_RANGE


def test_a_unit_that_was_given_and_does_not_fit_is_the_first_reason(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=("C3-M2",))
    assert "the unit mV was given." in stage(path, model, unit="mV").shift.reasons[0]


def size(channel, kind="amplitude", verdict=NOT_TRUSTED):
    return Condition(channel, kind, 1.0, verdict, f"{channel} is {kind}.")


@pytest.mark.parametrize(
    "conditions",
    [(), (size("C4"),), (size("C3", "noise"), size("C4")), (size("C3", verdict=UNUSUAL),)],
)
def test_a_doubt_of_the_unit_is_a_note_where_a_channel_votes_that_is_as_large_as_eeg(conditions):
    night = PreparedNight(unit_doubt=DOUBT)
    assert doubt_of_unit(night, (("C3", "C4"),), conditions) == []
    assert night.notes == [DOUBT]


def test_without_a_doubt_of_the_unit_nothing_is_said(tmp_path):
    night = PreparedNight()
    assert doubt_of_unit(night, (), (size("C3", "flat"),)) == []
    assert night.notes == []


def test_a_flat_channel_is_no_doubt_of_the_unit_of_the_others(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"F3-M2": flat()})
    night = stage(path, model)
    assert (night.shift.verdict, night.shift.reasons) == (IN_RANGE, ())
