"""Files, folders and patterns name recordings, each of which has a name of its own."""

from pathlib import Path

import pytest
from cohort_folder import signal
from small_stagers import recording

from psdnorm.errors import ArgumentError
from psdnorm.staging import write_edf_annotations
from psdnorm.staging.result_files import distinct_names, find_recordings


def test_a_folder_is_searched_for_signals_and_scorings_are_left_out(tmp_path):
    recording(tmp_path / "a" / "S1.edf")
    recording(tmp_path / "a" / "deep" / "S2.EDF")
    for name in ("S3.vhdr", "S4_raw.fif", "S5.bdf"):
        (tmp_path / name).write_bytes(b"")
    write_edf_annotations(tmp_path / "a" / "S1-hypnogram.edf", [0, 2])
    for name in ("notes.txt", "S3.eeg", ".S6.edf"):
        (tmp_path / name).write_bytes(b"")
    found = find_recordings([str(tmp_path)])
    assert set(found.names) == {"S1", "S2", "S3", "S4_raw", "S5"}
    assert (found.n_scorings, found.problems) == (1, [])


def test_a_file_is_taken_whatever_its_name_and_once(tmp_path):
    path = recording(tmp_path / "S1.dat")
    again = tmp_path / "." / "S1.dat"
    assert find_recordings([str(path), str(again)]).names == {"S1": path}


def test_a_pattern_names_files(tmp_path):
    for name in ("S1", "S2", "T1"):
        recording(tmp_path / f"{name}.edf")
    assert list(find_recordings([str(tmp_path / "S*.edf")]).names) == ["S1", "S2"]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    path = tmp_path / "S[1].edf"
    path.write_bytes(signal())
    assert find_recordings([str(path)]).names == {"S[1]": path}


@pytest.mark.parametrize("argument", ["nowhere.edf", "*.edf", "."])
def test_what_names_nothing_is_refused(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        find_recordings([argument])
    assert str(caught.value).startswith(f"{argument} names no recording, expected a file, ")


def test_names_that_would_be_alike_get_their_folders():
    paths = [Path(path) for path in ("/x/a/n.edf", "/x/b/N.edf", "/y/b/n.edf", "/x/b/m.edf")]
    assert list(distinct_names(paths)) == ["a-n", "x-b-N", "y-b-n", "m"]
    assert list(distinct_names([Path("/x/n.edf"), Path("/x/n.bdf")])) == ["n.edf", "n.bdf"]
