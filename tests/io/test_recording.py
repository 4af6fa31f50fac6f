"""A night is read whole: signal, stages in place, nothing about who slept."""

import lzma
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import edf_files
import numpy as np
import pytest

from psdnorm.errors import RecordingError
from psdnorm.io import Recording, read_channels, read_header, read_recording

PARTS = {
    "signal": np.zeros((2, 6500), np.float32),
    "channels": ("C3-A2", "C4-A1"),
    "sfreq": 100.0,
    "stages": np.int8([0, -1]),
    "start": datetime(2001, 2, 3, 22, 10, 5),
    "source": "night.edf",
}


def test_a_recording_has_a_stage_for_every_whole_epoch():
    recording = Recording(**PARTS)
    assert recording.stages.shape == (2,)
    with pytest.raises(AttributeError):
        recording.sfreq = 50.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signal": np.zeros(6000, np.float32)}, r"signal has shape \(6000,\)"),
        ({"signal": np.zeros((2, 6000))}, ".* type float64, expected"),
        ({"channels": ("C3-A2",)}, "channels has 1 names, expected one for each .* 2 rows"),
        ({"sfreq": 0.0}, "sfreq is 0.0, expected a rate"),
        ({"stages": np.int8([0, 0, 0])}, r"stages has shape \(3,\) .* expected \(2,\)"),
        ({"stages": np.array([0, 0])}, ".* type int64, expected"),
        ({"stages": np.int8([0, 5])}, "stages reach from 0 to 5, expected -1 to 4"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(RecordingError, match=f"^night.edf: {message}"):
        Recording(**PARTS | change)


def test_a_rate_that_is_no_whole_number_loses_no_epoch():
    sfreq = 1 / 0.003  # 90 s are 30 000 samples
    signal = np.zeros((1, 30_000), np.float32)
    parts = {"signal": signal, "channels": ("Cz",), "sfreq": sfreq, "stages": np.int8([0, 1, 2])}
    assert len(Recording(**PARTS | parts).stages) == 3


def night(path, onsets=None, n_records=12, notes=b"", **options):
    """Records of 10 s at 2 Hz, whose digital value is the record's number + 1."""
    eeg = edf_files.channel("C3", [[i + 1] * 20 for i in range(n_records)])
    onsets = [10 * i for i in range(n_records)] if onsets is None else onsets
    records = [b"+%d\x14\x14\x00" % onset for onset in onsets]
    records[0] += notes
    tals = edf_files.annotations(records, size=100)
    kind = {"reserved": "EDF+D"} | options
    path.write_bytes(edf_files.edf([eeg, tals], record_s=10, **kind))
    return path


def test_a_recording_is_read_with_its_scoring(tmp_path):
    path = night(tmp_path / "night.edf")
    (tmp_path / "night.txt").write_text("W\nN1\n?\nREM\n")
    recording = read_recording(path, {"C3-A2": "C3"}, tmp_path / "night.txt")
    assert (recording.channels, recording.sfreq) == (("C3-A2",), 2.0)
    assert recording.stages.tolist() == [0, 1, -1, 4]
    assert recording.start == datetime(2001, 2, 3, 22, 10, 5)
    assert recording.source == str(path)
    np.testing.assert_allclose(recording.signal[0, ::20], 0.1 * np.arange(1, 13), rtol=1e-5)
    assert "Harry" not in repr(recording)


def test_without_a_scoring_every_epoch_is_unscored(tmp_path):
    assert read_recording(night(tmp_path / "n.edf"), ["C3"]).stages.tolist() == [-1] * 4


def test_epochs_with_a_gap_in_them_are_unscored(tmp_path):
    # 30 s are missing from 70 s on, so the third and the fourth epoch are not whole
    onsets = [*range(0, 70, 10), *range(100, 180, 10)]
    path = night(tmp_path / "n.edf", onsets, n_records=15)
    (tmp_path / "n.txt").write_text("N2\n" * 6)
    recording = read_recording(path, ["C3"], tmp_path / "n.txt")
    assert recording.stages.tolist() == [2, 2, -1, -1, 2, 2]
    expected = np.repeat(0.1 * np.r_[1:8, 0, 0, 0, 8:16], 20)
    np.testing.assert_allclose(recording.signal[0], expected, atol=1e-5)


def test_a_night_whose_scored_epochs_all_have_gaps_is_refused(tmp_path):
    path = night(tmp_path / "n.edf", [*range(0, 70, 10), *range(100, 180, 10)], n_records=15)
    (tmp_path / "n.txt").write_text("?\n?\nN2\n?\n?\n")
    with pytest.raises(RecordingError, match=r"n.txt scores no epoch of .*n.edf without a gap"):
        read_recording(path, ["C3"], tmp_path / "n.txt")


def test_the_signal_begins_where_the_scorers_epochs_begin(tmp_path):
    notes = b"+40\x1530\x14Sleep stage 1\x14\x00+70\x1530\x14Sleep stage 2\x14\x00"
    path = night(tmp_path / "n.edf", notes=notes)
    recording = read_recording(path, ["C3"], path)
    # 10 s are cut off; the first epoch, from 10 to 40 s, was not scored
    assert recording.stages.tolist() == [-1, 1, 2]
    assert recording.start == datetime(2001, 2, 3, 22, 10, 15)
    np.testing.assert_allclose(recording.signal[0, ::20], 0.1 * np.arange(2, 13), rtol=1e-5)


def test_the_header_of_a_file_that_holds_its_own_stages_is_parsed_once(tmp_path, headers_parsed):
    notes = b"+0\x1530\x14Sleep stage 1\x14\x00"
    path = night(tmp_path / "n.edf", notes=notes)
    assert read_recording(path, ["C3"], path).stages.tolist() == [1, -1, -1, -1]
    assert headers_parsed == {"n.edf": 1}


def test_a_fraction_of_a_second_before_the_first_sample_counts(tmp_path):
    # the signal begins 5 s after the header's start, from which annotations are counted
    notes = b"+5\x1530\x14Sleep stage 1\x14\x00+35\x1530\x14Sleep stage 2\x14\x00"
    path = night(tmp_path / "n.edf", [10 * i + 5 for i in range(12)], notes=notes, reserved="EDF+C")
    recording = read_recording(path, ["C3"], path)
    assert recording.stages.tolist() == [1, 2, -1, -1]
    assert recording.start == datetime(2001, 2, 3, 22, 10, 10)


def test_less_than_an_epoch_is_no_night(tmp_path):
    path = night(tmp_path / "n.edf", n_records=2)
    with pytest.raises(RecordingError, match=r"n.edf lasts 20 s, expected at least 30 s"):
        read_recording(path, ["C3"])


def test_a_scoring_of_another_night_is_named(tmp_path):
    path = night(tmp_path / "n.edf")
    (tmp_path / "other.txt").write_text("W\n" * 900)
    with pytest.raises(RecordingError, match=r"other.txt scores 0 to 27000 s, .* signal's 120 s"):
        read_recording(path, ["C3"], tmp_path / "other.txt")


def test_mne_is_loaded_only_by_those_who_need_it():
    script = "import sys, psdnorm.io; print('mne' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


REAL = os.environ.get("PSDNORM_REALDATA")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = Path(REAL) / "sleep-edf"
    path = tmp_path_factory.mktemp("real") / "SC4001E0-PSG.edf"
    path.write_bytes(lzma.decompress((folder / "SC4001E0-PSG.edf.xz").read_bytes()))
    return path, folder / "SC4001EC-Hypnogram.edf"


@pytest.mark.realdata
@pytest.mark.skipif(not REAL, reason="PSDNORM_REALDATA names no folder of real recordings")
def test_a_real_night_has_the_epochs_and_stages_of_its_hypnogram(real):
    edfio = pytest.importorskip("edfio")
    path, scoring = real
    recording = read_recording(path, ["EEG Fpz-Cz", "EEG Pz-Oz"], scoring)
    assert (recording.channels, recording.sfreq) == (("EEG Fpz-Cz", "EEG Pz-Oz"), 100.0)
    assert recording.start == datetime(1989, 4, 24, 16, 13)
    assert recording.signal.shape == (2, 100 * 79500)
    seconds = dict.fromkeys("W12R34?", 0.0)
    for note in edfio.read_edf(scoring).annotations:
        if note.onset < 79500:
            seconds[note.text[-1]] += note.duration
    expected = [seconds[name] / 30 for name in "W12"]
    expected += [(seconds["3"] + seconds["4"]) / 30, seconds["R"] / 30]
    counts = [int(np.sum(recording.stages == stage)) for stage in range(5)]
    assert counts == expected == [1997, 58, 250, 220, 125]
    assert len(recording.stages) == 2650


@pytest.mark.realdata
@pytest.mark.skipif(not REAL, reason="PSDNORM_REALDATA names no folder of real recordings")
@pytest.mark.filterwarnings("ignore:Incomplete data record:UserWarning")
def test_a_real_signal_is_what_edfio_reads(real):
    edfio = pytest.importorskip("edfio")
    path, _ = real
    header = read_header(path)
    assert header.labels[:3] == ("EEG Fpz-Cz", "EEG Pz-Oz", "EOG horizontal")
    assert [c.sfreq for c in header.channels] == [100, 100, 100, 1, 1, 1, 1]
    expected = edfio.read_edf(path).signals
    for index in (0, 1, 4):
        read = read_channels(path, [header.labels[index]])
        assert read.sfreq == header.channels[index].sfreq
        np.testing.assert_allclose(read.signal[0], expected[index].data, atol=1e-4)
    with pytest.raises(RecordingError, match="'Temp rectal' in 'DegC'"):
        read_channels(path, ["Temp rectal"])
