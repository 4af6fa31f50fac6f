"""Whatever is wrong with one file is one sentence; the other nights are prepared all the same."""

import errno
import os
from pathlib import Path

import edf_files
import numpy as np
import pytest
from cohort_folder import LABELS, SCORES, cohort_folder, samples, signal
from stores import tree

from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
from psdnorm.store import Store

STUCK = np.full((4, 3000), 1234)
RAILED = np.where(samples(4, 100, [2]) > 0, 32767, -32768)
BAD = {
    "truncated": (
        {"bad.edf": signal()[:-100], "bad.txt": SCORES},
        "bad.edf is truncated: it holds 3 of the 4 records that its header names",
    ),
    "headless": (
        {"bad.edf": signal()[:700], "bad.txt": SCORES},
        "bad.edf is truncated: it has 700 bytes, its header alone needs 1280",
    ),
    "text": (
        {"bad.edf": "dear colleague, " * 40, "bad.txt": SCORES},
        "bad.edf is not an EDF: it begins with b'dear col' and has 256 of the 256 bytes",
    ),
    "empty": ({"bad.edf": b"", "bad.txt": SCORES}, "bad.edf is not an EDF: it is empty"),
    "channels": (
        {"bad.edf": signal(labels=("F3", "F4", "M1", "ECG")), "bad.txt": SCORES},
        "has none of 'C3-A2', 'C3-M2', 'EEG C3-A2', 'EEG C3-M2'",
        "found F3, F4, M1, ECG",
    ),
    "longer": (
        {"bad.edf": signal(), "bad.txt": SCORES + "W\nW\n"},
        "bad.txt scores 0 to 180 s, expected stages within the signal's 120 s",
    ),
    "no stage": (
        {"bad.edf": signal(), "bad.txt": ""},
        "bad.txt scores no epoch, found 0 unscored stages, expected a hypnogram",
    ),
    "overlap": (
        {
            "bad.edf": signal(),
            "bad.tsv": "onset\tduration\tstage\n0\t60\tW\n30\t30\tN1\n60\t60\tN2\n",
        },
        "bad.tsv has overlapping stages, one from 0 s for 60 s and one from 30 s",
    ),
    "stage names": (
        {"bad.edf": signal(), "bad.txt": "W\nN1\ndozing\nR\n"},
        "bad.txt has 'dozing' as a stage, expected W, N1, N2, N3, REM",
    ),
    "flat": (
        {"bad.edf": signal(C3=STUCK, M2=STUCK), "bad.txt": SCORES},
        "bad.edf: C3-A2 is flat in 100 % of the epochs, expected at most 50 %",
    ),
    "saturated": (
        {"bad.edf": signal(C4=RAILED, M1=0 * STUCK), "bad.txt": SCORES},
        "bad.edf: C4-A1 is saturated in 100 % of the epochs, expected at most 50 %",
    ),
    "slow": (
        {"bad.edf": signal(sfreq=50), "bad.txt": SCORES},
        "bad.edf has 50 Hz, expected at least 64 Hz for a signal up to 30 Hz",
    ),
    "short": (
        {"bad.edf": edf_files.edf([edf_files.channel(x, samples(1)[:, :99]) for x in LABELS])},
        "bad.edf lasts 1 s, expected at least 30 s",
    ),
}


def run(source, store):
    preparation = Preparation("folder", source, store, RECIPES["robust"])
    return {outcome.recording: outcome for outcome in preparation.run()}


def check_only(outcome_of, bad, expected, store):
    """One night failed, in one sentence; the others are there, and nothing else."""
    statuses = {name: outcome.status for name, outcome in outcome_of.items()}
    assert statuses == {"folder-S01": "prepared", bad: "failed", "folder-S02": "prepared"}
    reason = outcome_of[bad].reason
    for part in expected:
        assert part in reason
    assert "\n" not in reason
    assert "fault of psdnorm" not in reason
    assert sorted(tree(store)) == [
        "index.parquet",
        "nights/folder-S01.safetensors",
        "nights/folder-S02.safetensors",
        "recipe.json",
    ]
    assert len(Store.open(store).index) == 2
    assert Store.open(store).verify() == []


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_named_and_the_others_go_on(tmp_path, what):
    files, *expected = BAD[what]
    source = cohort_folder(tmp_path / "source", "S01", "S02", **files)
    check_only(run(source, tmp_path / "store"), "folder-bad", expected, tmp_path / "store")


def test_an_epoch_more_of_scoring_than_of_signal_is_cut_off(tmp_path):
    files = {"long.edf": signal(), "long.txt": SCORES + "W\n"}
    run(cohort_folder(tmp_path / "source", **files), tmp_path / "store")
    assert Store.open(tmp_path / "store").index["epochs"].tolist() == [4]


def test_samples_that_are_not_finite_are_named(tmp_path, monkeypatch):
    # no EDF can hold one, but other formats can
    from psdnorm.prepare import prepare as preparation

    def read(night, source, original=preparation.read_night):
        recording = original(night, source)
        recording.signal[0, :: 3000 if "S02" in night.signal.name else 10**9] = np.nan
        return recording

    monkeypatch.setattr(preparation, "read_night", read)
    found = run(cohort_folder(tmp_path / "source", "S01", "S02"), tmp_path / "store")
    assert found["folder-S01"].flags == ("C3-A2 not finite 25 %",)
    assert found["folder-S01"].counts["unscored"] == 1
    assert "S02.edf: C3-A2 is not finite in 100 % of the epochs" in found["folder-S02"].reason


def test_a_second_file_of_a_subject_is_named_and_left_out(tmp_path):
    source = cohort_folder(tmp_path / "source", "S01", "S02")
    cohort_folder(source / "copy", "S01")
    preparation = Preparation("folder", source, tmp_path / "store", RECIPES["robust"])
    assert [str(problem) for problem in preparation.left_out] == [
        f"{source}/copy/S01.edf is of subject S01 like {source}/S01.edf, and is left out"
    ]
    assert {outcome.status for outcome in preparation.run()} == {"prepared"}


def test_a_night_without_scoring_is_kept_unscored_and_listed(tmp_path):
    source = cohort_folder(tmp_path / "source", "S01", **{"S02.edf": signal()})
    preparation = Preparation("folder", source, tmp_path / "store", RECIPES["robust"])
    assert [problem.file.name for problem in preparation.problems] == ["S02.edf"]
    assert preparation.left_out == []
    outcomes = list(preparation.run())
    assert [outcome.counts["unscored"] for outcome in outcomes] == [0, 4]


@pytest.mark.parametrize("name", ["bad.edf", "bad.txt"])
def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch, name):
    source = cohort_folder(
        tmp_path / "source", "S01", "S02", **{"bad.edf": signal(), "bad.txt": SCORES}
    )
    original = Path.open

    def refuse(self, *arguments, **options):
        if self.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return original(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    expected = [f"{source / name} cannot be read: Permission denied"]
    check_only(run(source, tmp_path / "store"), "folder-bad", expected, tmp_path / "store")


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    source = cohort_folder(
        tmp_path / "source", "S01", "S02", **{"bad.edf": signal(), "bad.txt": SCORES}
    )
    original = os.fsync
    seen = []

    def full(handle):
        # recipe and night are a file and its folder: the bytes of the third night find no room
        seen.append(os.fstat(handle).st_size)
        if len(seen) == 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(handle)

    preparation = Preparation("folder", source, tmp_path / "store", RECIPES["robust"])
    monkeypatch.setattr(os, "fsync", full)
    found = {outcome.recording: outcome for outcome in preparation.run()}
    assert seen[6] > 40_000
    expected = ["folder-bad.safetensors cannot be written: No space left on device"]
    check_only(found, "folder-bad", expected, tmp_path / "store")


SHHS = "polysomnography/edfs/shhs1/shhs1-205238.edf"


def test_a_name_with_parentheses_is_no_function(tmp_path):
    path = tmp_path / SHHS
    path.parent.mkdir(parents=True)
    path.write_bytes(signal(labels=("SaO2", "EEG", "ECG")))
    preparation = Preparation("SHHS", tmp_path, tmp_path / "store", RECIPES["robust"])
    (outcome,) = preparation.run()
    assert outcome.reason == (
        f"{path} has none of 'EEG(sec)', 'EEG2', 'EEG sec', found SaO2, EEG, ECG"
    )
