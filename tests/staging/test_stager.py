"""A night in, a hypnogram out."""

import subprocess
import sys
from datetime import datetime

import edf_files
import numpy as np
import pytest
from cohort_folder import samples
from small_stagers import flat, recording, small_model

import psdnorm
import psdnorm.staging.vote as vote_module
from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError
from psdnorm.staging import StagedNight, load_model, stage
from psdnorm.staging.stager import seconds_of

START = datetime(2001, 2, 3, 22, 10, 5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(small_model(tmp_path_factory.mktemp("model")))


def raw_of(path, **arguments):
    mne = pytest.importorskip("mne")
    return mne.io.read_raw_edf(recording(path, **arguments), preload=True, verbose="ERROR")


def test_stage_is_public():
    assert psdnorm.stage is stage


@pytest.mark.parametrize("n_epochs", [1, 2, 36])
def test_every_epoch_of_a_night_of_any_length_is_staged(tmp_path, model, n_epochs):
    night = stage(recording(tmp_path / "night.edf", n_epochs=n_epochs), model)
    assert isinstance(night, StagedNight)
    assert (night.source, night.start) == ("night.edf", START)
    assert night.hypnogram.shape == (n_epochs,)
    assert night.hypnogram.dtype == np.int8
    np.testing.assert_array_equal(night.hypnogram, night.probabilities.argmax(axis=1))
    np.testing.assert_allclose(night.probabilities.sum(axis=1), 1, atol=1e-5)
    assert night.pairs == (("C3-M2", "C4-M1"),)
    assert night.pair_probabilities.shape == (1, n_epochs, 5)
    assert night.spectrogram.power_db.shape == (n_epochs, len(night.spectrogram.frequencies_hz))
    assert night.disagreement.tolist() == [0.0] * n_epochs


def test_pairs_vote_and_their_disagreement_is_told(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=("F3-M2", "C3-M2", "O1-M2"), n_epochs=20)
    night = stage(path, model)
    assert night.pairs == (("F3-M2", "C3-M2"), ("F3-M2", "O1-M2"), ("C3-M2", "O1-M2"))
    np.testing.assert_allclose(
        night.probabilities, night.pair_probabilities.mean(axis=0), atol=1e-6
    )
    own = night.pair_probabilities.argmax(axis=2)
    np.testing.assert_allclose(night.disagreement, (own != night.hypnogram).mean(axis=0))
    assert 0 < night.disagreement.mean() < 1


def test_one_channel_is_used_twice_with_a_note(tmp_path, model):
    night = stage(recording(tmp_path / "night.edf", labels=("C3-M2",)), model)
    assert night.pairs == (("C3-M2", "C3-M2"),)
    assert "C3-M2 is used twice because the model takes 2 channels" in night.notes
    assert (night.hypnogram >= 0).all()


def test_a_model_of_one_channel_is_shown_each(tmp_path):
    single = load_model(small_model(tmp_path / "model", n_chans=1))
    night = stage(recording(tmp_path / "night.edf"), single)
    assert night.pairs == (("C3-M2",), ("C4-M1",))


def test_another_rate_gives_nearly_the_same_probabilities(tmp_path, model):
    fast = samples(8, 200)
    slow = fast.reshape(8, -1, 2).mean(axis=2).round()
    labels = ("C3-M2",)
    of_fast = stage(
        recording(tmp_path / "f.edf", sfreq=200, labels=labels, **{"C3-M2": fast}), model
    )
    of_slow = stage(recording(tmp_path / "s.edf", labels=labels, **{"C3-M2": slow}), model)
    np.testing.assert_array_equal(of_fast.hypnogram, of_slow.hypnogram)
    assert np.abs(of_fast.probabilities - of_slow.probabilities).mean() < 0.05


def test_mne_raw_and_file_give_the_same(tmp_path, model):
    raw = raw_of(tmp_path / "night.edf")
    of_raw, of_file = stage(raw, model), stage(tmp_path / "night.edf", model)
    np.testing.assert_allclose(of_raw.probabilities, of_file.probabilities, atol=1e-3)
    assert (of_raw.source, of_raw.start) == ("night.edf", START)


def test_a_cropped_raw_starts_later(tmp_path, model):
    night = stage(raw_of(tmp_path / "night.edf").crop(tmin=30), model)
    assert night.start == datetime(2001, 2, 3, 22, 10, 35)
    assert len(night.hypnogram) == 3
    assert night.notes == ()


def test_fif_is_read_through_mne(tmp_path, model):
    raw = raw_of(tmp_path / "night.edf")
    raw.save(tmp_path / "night_raw.fif", verbose="ERROR")
    found = stage(tmp_path / "night_raw.fif", model)
    expected = stage(tmp_path / "night.edf", model)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-3)


def test_brainvision_is_read_through_mne(tmp_path, model):
    pytest.importorskip("mne")
    (tmp_path / "night.vhdr").write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n[Common Infos]\nDataFile=night.eeg\n"
        "DataFormat=BINARY\nDataOrientation=MULTIPLEXED\nNumberOfChannels=2\n"
        "SamplingInterval=10000\n[Binary Infos]\nBinaryFormat=INT_16\n[Channel Infos]\n"
        "Ch1=C3,,0.1,µV\nCh2=M2,,0.1,µV\n",
        encoding="utf-8",
    )
    digital = np.stack([samples(3, seed=n).ravel() for n in (1, 2)], axis=1)
    digital.astype("<i2").tofile(tmp_path / "night.eeg")
    night = stage(tmp_path / "night.vhdr", model)
    assert night.pairs == (("C3-M2", "C3-M2"),)
    assert (night.hypnogram >= 0).sum() == 3


def test_the_verdict_is_on_what_was_measured_and_not_on_a_pause(tmp_path, model, monkeypatch):
    shown = []

    def measure(network, signals, *others, original=vote_module.measure_pair):
        shown.append(signals)
        return original(network, signals, *others)

    monkeypatch.setattr(vote_module, "measure_pair", measure)
    channels = [edf_files.channel("C3-M2", samples(4))]
    onsets = (0, 30, 900, 930)
    channels.append(edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets]))
    path = tmp_path / "night.edf"
    path.write_bytes(edf_files.edf(channels, record_s=30, reserved="EDF+D"))
    night = stage(path, model)
    assert np.flatnonzero(night.hypnogram >= 0).tolist() == [0, 1, 30, 31]
    assert shown[0].shape == (4, 2, 3000)
    assert not any("flat" in reason for reason in night.shift.reasons)


def test_epochs_around_a_pause_are_staged_as_if_there_were_none(tmp_path, model):
    signal = edf_files.channel("C3-M2", samples(6))
    whole, paused = tmp_path / "whole.edf", tmp_path / "paused.edf"
    whole.write_bytes(edf_files.edf([signal], record_s=30))
    onsets = (0, 30, 60, 3600, 3630, 3660)
    times = edf_files.annotations([b"+%d\x14\x14\x00" % onset for onset in onsets])
    paused.write_bytes(edf_files.edf([signal, times], record_s=30, reserved="EDF+D"))
    of_whole, of_paused = stage(whole, model), stage(paused, model)
    heard = [0, 1, 2, 120, 121, 122]
    assert np.flatnonzero(of_paused.hypnogram >= 0).tolist() == heard
    np.testing.assert_allclose(of_paused.probabilities[heard], of_whole.probabilities, atol=1e-6)


def test_a_channel_that_did_not_vote_is_named_beside_the_verdict(tmp_path, model):
    labels = ("C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **{"C4-M1": flat()})
    night = stage(path, model)
    assert night.pairs == (("C3-M2", "C3-M2"),)
    remark = "The verdict does not cover C4-M1, which did not vote: see the notes."
    assert night.shift.remarks[-1] == remark
    assert any(note.startswith("C4-M1 is not used: C4-M1 is flat in 100 %") for note in night.notes)
    assert not any("vote" in each for each in stage(recording(path), model).shift.remarks)


def test_a_flat_night_is_returned_without_stages_and_not_to_be_trusted(tmp_path, model):
    labels = ("C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **dict.fromkeys(labels, flat()))
    night = stage(path, model)
    assert night.shift.verdict == "do not trust"
    assert night.hypnogram.tolist() == [-1] * 4
    assert np.isnan(night.probabilities).all()
    assert np.isnan(night.confidence).all()
    assert np.isnan(night.disagreement).all()
    assert night.pairs == ()


def test_a_night_of_fifty_times_the_gain_is_staged_and_not_to_be_trusted(tmp_path, model):
    path = tmp_path / "night.edf"
    wide = [
        edf_files.channel(label, samples(4, seed=n), physical=(-163840, 163835))
        for n, label in enumerate(("C3-M2", "C4-M1"))
    ]
    path.write_bytes(edf_files.edf(wide, record_s=30))
    night = stage(path, model)
    assert night.shift.verdict == "do not trust"
    assert (night.hypnogram >= 0).all()


def test_a_channel_that_cannot_be_trusted_does_not_vote_beside_others(tmp_path, model):
    noise = np.random.default_rng(0).integers(-200, 200, (4, 3000))
    labels = ("F3-M2", "C3-M2", "C4-M1")
    path = recording(tmp_path / "night.edf", labels=labels, **{"F3-M2": noise})
    night = stage(path, model)
    assert night.pairs == (("C3-M2", "C4-M1"),)
    assert any(note.startswith("F3-M2 is not used: F3-M2 is noise") for note in night.notes)
    assert not any("F3-M2" in reason for reason in night.shift.reasons)


def test_an_epoch_that_no_channel_measured_is_unscored(tmp_path, model):
    labels = ("C3-M2", "C4-M1")
    spoilt = {label: samples(4, seed=n) for n, label in enumerate(labels)}
    spoilt["C3-M2"][[1, 2]] = 0
    spoilt["C4-M1"][[2, 3]] = 0
    night = stage(recording(tmp_path / "night.edf", labels=labels, **spoilt), model)
    assert (night.hypnogram == -1).tolist() == [False, False, True, False]


def test_lights_are_taken_from_the_clock_or_in_seconds(tmp_path, model):
    path = recording(tmp_path / "night.edf", n_epochs=8)
    by_clock = stage(path, model, lights_off="22:11", lights_on="22:13:05").statistics
    in_seconds = stage(path, model, lights_off=55, lights_on="180").statistics
    assert by_clock.to_dict() == in_seconds.to_dict()
    assert (by_clock.lights, by_clock.lights_off_s, by_clock.lights_on_s) == ("given", 60, 180)


def test_clock_times_are_the_next_after_the_start():
    assert seconds_of("x", "22:10:05", START) == 0
    assert seconds_of("x", "22:10", START) == 86395
    assert seconds_of("x", "06:10:05", START) == 8 * 3600
    with pytest.raises(ArgumentError, match="x is '06:00', but the recording does not say when"):
        seconds_of("x", "06:00", None)
    with pytest.raises(ArgumentError, match="x is 'late', expected seconds or a clock time"):
        seconds_of("x", "late", START)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"lights_off": 9999}, ArgumentError, "lights_off is 9999 s"),
        (
            {"lights_off": "22:00"},
            ArgumentError,
            "lights_off is '22:00', expected a time within the recording, which goes from 22:10:05 "
            "to 22:12:05",
        ),
        ({"unit": "T"}, ArgumentError, "unit is 'T'"),
        ({"channels": "Pz"}, RecordingError, "found C3, C4, M1, M2"),
        ({"channels": "C3,,*"}, ArgumentError, "neither a channel nor an expression"),
        ({"device": "tpu"}, ArgumentError, "device is 'tpu'"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, model, arguments, error, said):
    path = recording(tmp_path / "night.edf")
    with pytest.raises(error) as caught:
        stage(path, model, **arguments)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_neither_path_nor_raw_raises(model):
    with pytest.raises(ArgumentError, match="raw_or_path is a int, expected a path or an MNE Raw"):
        stage(3, model)


def test_channels_may_be_named_in_one_text(tmp_path, model):
    night = stage(recording(tmp_path / "night.edf"), model, "C3-C4, M1-M2")
    assert night.pairs == (("C3-C4", "M1-M2"),)


def test_without_yasa_its_hypnogram_says_what_to_install(tmp_path, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "yasa", None)
    with pytest.raises(MissingExtraError, match="pip install yasa"):
        stage(recording(tmp_path / "night.edf"), model).to_yasa()


def test_yasa_has_the_same_stages(tmp_path, model):
    pytest.importorskip("yasa")
    night = stage(recording(tmp_path / "night.edf", n_epochs=8), model)
    np.testing.assert_array_equal(night.to_yasa().as_int(), night.hypnogram)


@pytest.mark.slow
def test_an_edf_is_staged_where_mne_and_edfio_are_not_installed(tmp_path):
    recording(tmp_path / "night.edf")
    small_model(tmp_path / "model")
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('mne', 'edfio', 'matplotlib')))\n"
        "from psdnorm import stage; print(len(stage('night.edf', 'model').hypnogram))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert (run.stdout, run.returncode) == ("4\n", 0), run.stderr


def test_notes_name_the_file_but_not_its_folder(tmp_path, model):
    path = tmp_path / "Harry" / "night.edf"
    path.parent.mkdir()
    good, broken, warm = (
        edf_files.channel(label, samples(4)) for label in ("F3-M2", "C3-M2", "C4-M1")
    )
    channels = [good, broken | {"physical": (0, 0)}, warm | {"unit": "degC"}]
    path.write_bytes(edf_files.edf(channels, record_s=30))
    night = stage(path, model)
    assert any("C3-M2 is not used: night.edf maps" in note for note in night.notes)
    assert any("C4-M1 is left out: night.edf has" in note for note in night.notes)
    assert "Harry" not in "".join(night.notes)


def test_a_channel_is_examined_once_and_the_header_is_parsed_once(tmp_path, model, monkeypatch):
    from psdnorm.io import edf
    from psdnorm.prepare import signals
    from psdnorm.staging import derivations

    examined, parsed = [], []

    def examine(recording, original=derivations.examine):
        examined.extend(recording.channels)
        return original(recording)

    def parse(path, original=edf.parse_header):
        parsed.append(path)
        return original(path)

    monkeypatch.setattr(derivations, "examine", examine)
    monkeypatch.setattr(signals, "examine", examine)
    monkeypatch.setattr(edf, "parse_header", parse)
    stage(recording(tmp_path / "night.edf"), model)  # C3-M2 and C4-M1, from four electrodes
    assert examined == ["C3-M2", "C4-M1"]
    assert len(parsed) == 1
