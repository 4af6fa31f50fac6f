"""What MNE reads is read through it, in the form and with the errors of EDF."""

import sys
from datetime import datetime

import numpy as np
import pytest

from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.io import read_channels, read_header


def refusal(path, wanted, error=RecordingError):
    with pytest.raises(error) as caught:
        read_channels(path, wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value)


VHDR = """Brain Vision Data Exchange Header File Version 1.0
[Common Infos]
DataFile=night.eeg
MarkerFile=night.vmrk
DataFormat=BINARY
DataOrientation=MULTIPLEXED
NumberOfChannels=2
SamplingInterval=10000
[Binary Infos]
BinaryFormat=INT_16
[Channel Infos]
Ch1=C3,,0.5,µV
Ch2=A2,,0.5,µV
"""
VMRK = """Brain Vision Data Exchange Marker File, Version 1.0
[Common Infos]
DataFile=night.eeg
[Marker Infos]
Mk1=New Segment,,1,1,0,20010203221005000000
"""


def brainvision(folder, markers=VMRK):
    (folder / "night.vhdr").write_text(VHDR, encoding="utf-8")
    (folder / "night.vmrk").write_text(markers, encoding="utf-8")
    np.stack([np.arange(300), np.full(300, 4)], 1).astype("<i2").tofile(folder / "night.eeg")
    return folder / "night.vhdr"


def test_what_mne_reads_comes_in_the_same_form(tmp_path):
    path = brainvision(tmp_path)
    header = read_header(path)
    assert (header.labels, header.duration_s, header.discontinuous) == (("C3", "A2"), 3, False)
    read = read_channels(path, {"C3-A2": ("C3-M2", "c3-a2"), "C3": "C3"})
    assert (read.sfreq, read.channels) == (100, ("C3-A2", "C3"))
    assert read.start == datetime(2001, 2, 3, 22, 10, 5)
    assert read.signal.dtype == np.float32
    np.testing.assert_allclose(read.signal[0], 0.5 * np.arange(300) - 2, atol=1e-4)
    np.testing.assert_allclose(read.signal[1], 0.5 * np.arange(300), atol=1e-4)
    assert "found C3, A2" in refusal(path, ["Pz"])


def test_a_recording_in_pieces_is_not_read_as_one_through_mne(tmp_path):
    path = brainvision(tmp_path, VMRK + "Mk2=New Segment,,101,1,0,20010203231005000000\n")
    assert "is discontinuous" in refusal(path, ["C3"])


def test_what_mne_cannot_read_is_refused_in_one_sentence(tmp_path):
    path = brainvision(tmp_path)
    path.write_text("no header\nat all")
    assert "cannot be read through MNE" in refusal(path, ["C3"])


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("night.docx", b"\x00", "the suffix '.docx'"),
        ("letter.txt", b"hi\n", "the suffix '.txt'"),  # MNE has a reader for some texts
        ("night.eeg", b"\x00", "the suffix '.eeg'"),  # the samples of a BrainVision .vhdr
        ("night.v2.XYZ", b"", "the suffix '.XYZ'"),
        ("night", b"0", "no suffix"),
    ],
)
def test_a_file_of_an_unknown_type_is_refused_in_a_sentence_of_ours(tmp_path, name, content, found):
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(path, ["C3"])
    assert message.startswith(f"{path} is not a recording of a known type: found {found}, ")
    assert ", expected .edf, .bdf, .rec, .vhdr, .fif, .fif.gz, .set, .gdf or another" in message
    with pytest.raises(RecordingError, match="is not a recording of a known type"):
        read_header(path)


def test_without_mne_the_answer_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mne", None)
    message = refusal(brainvision(tmp_path), ["C3"], error=MissingExtraError)
    assert message.endswith('is read through MNE: pip install "psdnorm[recordings]"')
