"""A cohort becomes a store, once and whole, however often and in how many pieces it is run."""

import contextlib
import multiprocessing
import os
import pickle
import shutil
import signal as signals
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from cohort_folder import SCORES, cohort_folder, signal
from stores import tree

from psdnorm.cohorts import find_nights, read_night
from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError, StoreError
from psdnorm.io import write_stages
from psdnorm.prepare import signals as signal_module
from psdnorm.prepare.prepare import Preparation, prepare_night, recording_name
from psdnorm.prepare.recipe import RECIPES
from psdnorm.prepare.signals import preprocess
from psdnorm.store import Store

ROBUST = RECIPES["robust"]


def run(source, store, cohort="folder", recipe=ROBUST, jobs=1, **options):
    """Outcomes by recording."""
    outcomes = Preparation(cohort, source, store, recipe, **options).run(jobs)
    return {outcome.recording: outcome for outcome in outcomes}


@pytest.fixture
def source(tmp_path):
    return cohort_folder(tmp_path / "source", "S01", "S02", "S03")


def test_a_prepared_night_is_what_preprocessing_makes_of_it(source, tmp_path):
    found = run(source, tmp_path / "store")
    assert list(found) == ["folder-S01", "folder-S02", "folder-S03"]
    night = find_nights("folder", source).nights[1]
    expected = preprocess(read_night(night), ROBUST)
    store = Store.open(tmp_path / "store", ROBUST.to_dict())
    stored, stages = store.read("folder-S02", 0, 4)
    np.testing.assert_array_equal(stored, expected.signals.astype(np.float16))
    assert stages.tolist() == [0, 1, 2, 4]
    outcome = found["folder-S02"]
    assert (outcome.status, outcome.reason, outcome.hours) == ("prepared", "", 4 * 30 / 3600)
    assert outcome.counts == {"W": 1, "N1": 1, "N2": 1, "N3": 0, "REM": 1, "unscored": 0}
    assert outcome.channels == {"C3-A2": "C3-M2", "C4-A1": "C4-M1"}
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_each_header_is_parsed_and_each_channel_examined_once(
    tmp_path, headers_parsed, monkeypatch
):
    source = cohort_folder(tmp_path / "source", **{"S01.edf": signal()})
    write_stages(source / "S01-hypnogram.edf", [0, 1, 2, 4], "edf", datetime(2001, 2, 3, 22, 10, 5))
    examined = []

    def counting(recording, original=signal_module.examine):
        examined.extend(recording.channels)
        return original(recording)

    monkeypatch.setattr(signal_module, "examine", counting)
    assert run(source, tmp_path / "store")["folder-S01"].status == "prepared"
    assert headers_parsed == {"S01.edf": 1, "S01-hypnogram.edf": 1}
    assert examined == ["C3-A2", "C4-A1"]


def test_the_index_says_what_is_known_and_not_who_slept(tmp_path):
    source = cohort_folder(
        tmp_path / "Haagse_Harry", "S01", **{"S02.edf": signal(5, simulated=True)}
    )
    manifest = source / "nights.csv"
    manifest.write_text(
        "subject,visit,signal,scoring,age,sex,family,cohort\n"
        "a,1,S01.edf,S01.txt,61,F,f1,town\nb,,S02.edf,,,,,town\n"
    )
    run(manifest, tmp_path / "store")
    index = Store.open(tmp_path / "store").index.set_index("recording")
    assert list(index.index) == ["town-a-1", "town-b"]
    row = index.loc["town-a-1"]
    known = ["cohort", "subject", "visit", "family", "age", "sex", "channels", "source", "flags"]
    assert row[known].tolist() == [
        "town", "a", "1", "f1", 61.0, "F", "C3-A2;C4-A1", "S01.edf", "",
    ]  # fmt: skip
    assert len(row["checksum"]) == len(row["fingerprint"]) == 64
    assert index["simulated"].tolist() == [False, True]
    assert index["unscored"].tolist() == [0, 4]
    for content in tree(tmp_path / "store").values():
        assert b"Harry" not in content
        assert b"Jones" not in content


def test_flags_are_in_the_index_and_in_every_outcome(tmp_path):
    flat = signal(3, C3=np.zeros((4, 3000), int), M2=np.r_[np.zeros(3000), 500 * np.sin(
        np.arange(9000))].reshape(4, 3000).astype(int))  # fmt: skip
    source = cohort_folder(tmp_path / "source", **{"S01.edf": flat, "S01.txt": SCORES})
    flags = ("C3-A2 flat 25 %", "C3-A2 without C3 75 %")
    for _ in range(2):
        assert run(source, tmp_path / "store")["folder-S01"].flags == flags
    assert Store.open(tmp_path / "store").index["flags"].tolist() == [";".join(flags)]


def test_what_is_there_is_not_prepared_again(source, tmp_path):
    run(source, tmp_path / "store")
    before = tree(tmp_path / "store")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "nights").iterdir()}
    again = run(source, tmp_path / "store")
    assert {outcome.status for outcome in again.values()} == {"already there"}
    assert again["folder-S01"].counts["REM"] == 1
    assert tree(tmp_path / "store") == before
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


def test_the_same_files_elsewhere_are_there_already(source, tmp_path):
    run(source, tmp_path / "store")
    shutil.copytree(source, tmp_path / "moved")
    again = run(tmp_path / "moved", tmp_path / "store")
    assert {outcome.status for outcome in again.values()} == {"already there"}


def test_another_clinics_subject_of_the_same_name_is_refused(source, tmp_path):
    run(source, tmp_path / "store")
    before = tree(tmp_path / "store")
    other = cohort_folder(tmp_path / "other", "X", "S01")
    found = run(other, tmp_path / "store")
    assert found["folder-X"].status == "prepared"
    outcome = found["folder-S01"]
    assert outcome.status == "failed"
    assert outcome.reason.startswith(
        f"{other}/S01.edf: 'folder-S01' is in {tmp_path}/store already"
    )
    assert "prepared from another S01.edf, another scoring or other channels" in outcome.reason
    after = tree(tmp_path / "store")
    assert after["nights/folder-S01.safetensors"] == before["nights/folder-S01.safetensors"]


@pytest.mark.parametrize("change", ["signal", "scoring", "channels"])
def test_a_night_that_was_changed_is_kept_until_it_is_to_be_replaced(source, tmp_path, change):
    run(source, tmp_path / "store")
    options = {}
    if change == "signal":
        (source / "S01.edf").write_bytes(signal(77))
    elif change == "scoring":
        (source / "S01.txt").write_text("W\nN1\nN2\nN3\n")
    else:
        options = {"channels": ["C3-M1", "C4-M2"]}
    assert run(source, tmp_path / "store", **options)["folder-S01"].status == "failed"
    anew = run(source, tmp_path / "store", replace=True, **options)
    assert anew["folder-S01"].status == "prepared"
    run(source, tmp_path / "fresh", **options)
    assert tree(tmp_path / "store") == tree(tmp_path / "fresh")


def test_a_corrected_file_of_another_name_replaces_the_first(source, tmp_path):
    manifest = source / "nights.csv"
    manifest.write_text("subject,signal,scoring\nS01,S01.edf,S01.txt\n")
    run(manifest, tmp_path / "store")
    (source / "S01_fixed.edf").write_bytes(signal(77))
    manifest.write_text("subject,signal,scoring\nS01,S01_fixed.edf,S01.txt\n")
    assert run(manifest, tmp_path / "store")["folder-S01"].status == "failed"
    anew = run(manifest, tmp_path / "store", replace=True)["folder-S01"]
    assert (anew.status, anew.reason) == ("prepared", "")
    assert Store.open(tmp_path / "store").index["source"].tolist() == ["S01_fixed.edf"]


def test_a_renamed_file_of_which_more_is_known_is_the_same_night(source, tmp_path):
    manifest = source / "nights.csv"
    manifest.write_text("subject,signal,scoring\nS01,S01.edf,S01.txt\n")
    run(manifest, tmp_path / "store")
    (source / "S01.edf").rename(source / "first.edf")
    manifest.write_text("subject,signal,scoring,age\nS01,first.edf,S01.txt,50\n")
    assert run(manifest, tmp_path / "store")["folder-S01"].status == "prepared"
    index = Store.open(tmp_path / "store").index
    assert index[["source", "age"]].to_numpy().tolist() == [["first.edf", 50]]


def test_two_folders_share_a_store_under_names_of_their_own(source, tmp_path):
    other = cohort_folder(tmp_path / "other", "X", "S01")
    assert "town-S01" in run(source, tmp_path / "store", name="town")
    found = run(other, tmp_path / "store", name="village")
    assert {name: outcome.status for name, outcome in found.items()} == {
        "village-S01": "prepared", "village-X": "prepared",
    }  # fmt: skip
    index = Store.open(tmp_path / "store").index
    assert index["cohort"].tolist() == ["town"] * 3 + ["village"] * 2


def test_one_recording_under_two_subjects_is_told_by_those_who_prepare_it(source, tmp_path):
    (source / "S09.edf").write_bytes((source / "S02.edf").read_bytes())
    (source / "S09.txt").write_text(SCORES)
    for _ in range(2):
        preparation = Preparation("folder", source, tmp_path / "store", ROBUST)
        assert not any(outcome.reason for outcome in preparation.run())
        assert preparation.same == [
            f"'folder-S02' and 'folder-S09' in {tmp_path}/store are the same recording (S02.edf, "
            "S09.edf) under different subjects"
        ]
    other = cohort_folder(tmp_path / "other", **{"Y.edf": signal(55), "Y.txt": SCORES})
    preparation = Preparation("folder", other, tmp_path / "store", ROBUST)
    list(preparation.run())
    assert preparation.same == []


def test_one_recording_at_two_visits_of_a_subject_is_no_other_subject(source, tmp_path):
    manifest = source / "nights.csv"
    manifest.write_text("subject,visit,signal,scoring\na,1,S01.edf,S01.txt\na,2,S01.edf,S01.txt\n")
    preparation = Preparation("folder", manifest, tmp_path / "store", ROBUST)
    assert [outcome.status for outcome in preparation.run()] == ["prepared", "prepared"]
    assert preparation.same == []


def test_what_tables_say_later_of_a_subject_gets_into_the_index(source, tmp_path):
    manifest = source / "nights.csv"
    manifest.write_text("subject,signal,scoring\nS01,S01.edf,S01.txt\n")
    run(manifest, tmp_path / "store")
    manifest.write_text("subject,signal,scoring,age\nS01,S01.edf,S01.txt,50\n")
    assert run(manifest, tmp_path / "store")["folder-S01"].status == "prepared"
    assert Store.open(tmp_path / "store").index["age"].tolist() == [50]
    assert run(manifest, tmp_path / "store")["folder-S01"].status == "already there"


def test_two_nights_of_one_name_are_not_one(source, tmp_path):
    manifest = source / "nights.csv"
    manifest.write_text(
        "cohort,subject,visit,signal,scoring\na,b-c,,S01.edf,S01.txt\na,b,c,S02.edf,S02.txt\n"
    )
    outcomes = list(Preparation("folder", manifest, tmp_path / "store", ROBUST).run())
    assert sorted(outcome.status for outcome in outcomes) == ["failed", "prepared"]
    failed = min(outcomes, key=lambda outcome: outcome.status)
    assert failed.recording == "a-b-c"
    assert "it would be 'a-b-c' in the store, and so would" in failed.reason


def test_a_broken_file_in_the_store_is_prepared_again(source, tmp_path):
    run(source, tmp_path / "store")
    before = tree(tmp_path / "store")
    path = tmp_path / "store" / "nights" / "folder-S02.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    found = run(source, tmp_path / "store")
    assert [outcome.status for outcome in found.values()] == [
        "already there", "prepared", "already there",
    ]  # fmt: skip
    assert tree(tmp_path / "store") == before


def test_channels_of_ones_own_decide_how_many_there_are(source, tmp_path):
    found = run(source, tmp_path / "store", channels={"C3": ["C3-A1", "C3-M1"]})
    assert found["folder-S01"].channels == {"C3": "C3-M1"}
    assert Store.open(tmp_path / "store").layout.n_channels == 1


def test_another_recipe_needs_another_store(source, tmp_path):
    run(source, tmp_path / "store")
    with pytest.raises(StoreError, match="a store never mixes recipes"):
        run(source, tmp_path / "store", recipe=RECIPES["paper"])


def test_a_run_in_which_all_nights_fail_settles_no_recipe(source, tmp_path):
    bad = cohort_folder(tmp_path / "bad", **{"S01.edf": "no edf"})
    assert run(bad, tmp_path / "store")["folder-S01"].status == "failed"
    found = run(source, tmp_path / "store", recipe=RECIPES["paper"])
    assert {outcome.status for outcome in found.values()} == {"prepared"}
    assert Store.open(tmp_path / "store").recipe["name"] == "paper"


def test_without_scipy_nothing_is_begun(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    preparation = Preparation("folder", source, tmp_path / "store", ROBUST)
    expected = r'^preparing needs SciPy: pip install "psdnorm\[recordings\]"$'
    with pytest.raises(MissingExtraError, match=expected):
        preparation.run()
    assert not (tmp_path / "store").exists()


def test_a_source_without_a_night_leaves_no_store(tmp_path):
    with pytest.raises(RecordingError, match="matches no recording"):
        Preparation("folder", cohort_folder(tmp_path / "empty"), tmp_path / "store", ROBUST)
    assert not (tmp_path / "store").exists()


def test_no_process_at_all_is_refused(source, tmp_path):
    with pytest.raises(ArgumentError, match=r"^jobs is 0, expected at least 1$"):
        run(source, tmp_path / "store", jobs=0)


def test_the_index_is_written_when_a_run_is_stopped(source, tmp_path):
    steps = Preparation("folder", source, tmp_path / "store", ROBUST).run()
    next(steps)
    assert not (tmp_path / "store" / "index.parquet").exists()
    steps.close()
    assert (tmp_path / "store" / "index.parquet").exists()
    assert len(Store.open(tmp_path / "store").index) == 1


def test_a_night_fails_alone_even_by_a_fault_of_ours(source, tmp_path, monkeypatch):
    def fail(recording, *_):
        if "S02" in recording.source:
            raise ZeroDivisionError("division by zero")
        return preprocess(recording, ROBUST)

    monkeypatch.setattr("psdnorm.prepare.prepare.preprocess", fail)
    found = run(source, tmp_path / "store")
    assert [o.status for o in found.values()] == ["prepared", "failed", "prepared"]
    assert found["folder-S02"].reason == (
        f"{source}/S02.edf: internal error, a bug in psdnorm: ZeroDivisionError division by zero"
    )


def test_several_processes_make_the_store_that_one_makes(source, tmp_path):
    run(source, tmp_path / "one")
    found = run(source, tmp_path / "several", jobs=2)
    assert {outcome.status for outcome in found.values()} == {"prepared"}
    assert tree(tmp_path / "several") == tree(tmp_path / "one")


@pytest.mark.slow
def test_a_killed_process_has_its_nights_prepared_by_another(tmp_path):
    source = cohort_folder(tmp_path / "source", *(f"S{i:02}" for i in range(12)))
    run(source, tmp_path / "undisturbed")
    before = set(multiprocessing.active_children())
    steps = Preparation("folder", source, tmp_path / "store", ROBUST).run(jobs=2)
    outcomes = [next(steps)]
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    os.kill(min(worker.pid for worker in workers), signals.SIGKILL)
    outcomes += list(steps)
    assert len({outcome.recording for outcome in outcomes}) == len(outcomes) == 12
    assert "failed" not in {outcome.status for outcome in outcomes}
    assert tree(tmp_path / "store") == tree(tmp_path / "undisturbed")


SCRIPT = """
import sys
from psdnorm.prepare.prepare import Preparation
from psdnorm.prepare.recipe import RECIPES
if __name__ == "__main__":
    source, store, jobs = sys.argv[1:]
    list(Preparation("folder", source, store, RECIPES["robust"]).run(int(jobs)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_with_all_its_processes_and_run_again_the_store_is_as_undisturbed(tmp_path, jobs):
    names = [f"S{i:02}" for i in range(20)]
    source = cohort_folder(tmp_path / "source", *names)
    run(source, tmp_path / "undisturbed")
    expected = tree(tmp_path / "undisturbed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    store = tmp_path / "store"
    command = [sys.executable, str(script), str(source), str(store), str(jobs)]
    for n_nights in (1, 4, 9, 13):  # killed as soon as so many are there
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and len(list(store.glob("nights/[!.]*"))) < n_nights:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):  # it may have finished
            os.killpg(process.pid, signals.SIGKILL)
        process.wait()
        for name, content in tree(store).items():
            hidden = Path(name).name.startswith(".")
            assert hidden or content == expected[name] or name == "index.parquet"
    found = run(source, store)
    assert {outcome.status for outcome in found.values()} == {"prepared", "already there"}
    assert tree(store) == expected


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import multiprocessing, os, time\n"
        "from psdnorm.runtime.parallel import run_all\n"
        "if __name__ == '__main__':\n"
        "    run = run_all(time.sleep, [0, 600, 600], jobs=2, lost=None)\n"
        "    next(run)\n"
        "    print(*(c.pid for c in multiprocessing.active_children()), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    # the pipe ends when the last of them has ended
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=600)
    assert done.returncode == -9
    assert len(done.stdout.split()) == 2


def test_a_night_is_named_by_cohort_subject_and_visit(tmp_path):
    source = cohort_folder(tmp_path, "S01")
    night = find_nights("folder", source).nights[0]
    assert recording_name(night) == "folder-S01"
    Store.create(tmp_path / "store", ROBUST.to_dict())
    assert prepare_night(night, tmp_path / "store", ROBUST).recording == "folder-S01"
