"""``psdnorm prepare`` says what it did, to people and by its exit code."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from cohort_folder import SCORES, cohort_folder
from cohort_folder import signal as recorded
from stores import tree

from psdnorm.store import Store


@pytest.fixture
def prepare(run_command):
    return partial(run_command, "prepare")


def counts(out):
    """The table's nights by status."""
    return {
        status: int(number)
        for status, number in re.findall(
            r"(prepared|already there|failed|not reached) +│ +(\d+)", out
        )
    }


def test_a_good_folder_is_prepared_and_then_is_there(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01", "S02")
    code, out, err = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 0, err
    assert counts(out) == {"prepared": 2, "already there": 0, "failed": 0}
    assert "C3-A2 from C3-M2: 2 nights\nC4-A1 from C4-M1: 2 nights\n" in out
    assert out.startswith(f"{tmp_path}/store, recipe robust\n")
    assert "prepare" in err  # the bar
    before = tree(tmp_path / "store")
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 0
    assert counts(out) == {"prepared": 0, "already there": 2, "failed": 0}
    assert tree(tmp_path / "store") == before


def test_what_failed_is_listed_and_the_exit_code_is_1(prepare, tmp_path):
    source = cohort_folder(
        tmp_path / "source",
        "S01",
        **{"S02.edf": "no edf", "S02.txt": SCORES, "S03.edf": recorded(3)},
    )
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 1
    assert counts(out) == {"prepared": 2, "already there": 0, "failed": 1}
    assert f"failed (1):\n  {source}/S02.edf is not an EDF" in out
    assert f"problems (1):\n  {source}/S03.edf has no scoring beside it" in out


def test_a_night_without_scoring_alone_is_no_failure(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", **{"S03.edf": recorded()})
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 0
    assert "has no scoring beside it" in out


def test_a_file_that_was_left_out_is_a_failure(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01")
    cohort_folder(source / "copy", "S01")
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 1
    assert "and is left out" in out


def test_options_reach_the_store(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01")
    recipe = tmp_path / "wide.toml"
    recipe.write_text('base = "paper"\ndtype = "float32"\n')
    code, out, err = prepare(
        *("folder", source, tmp_path / "store", "--jobs", 1),
        *("--recipe", recipe, "--channels", "left = F3-M2 | C3-M2"),
    )
    assert code == 0, err
    assert "left from C3-M2: 1 night\n" in out
    store = Store.open(tmp_path / "store")
    assert (store.recipe["name"], store.recipe["clip"]) == ("wide", 500)
    assert (store.layout.dtype, store.layout.n_channels) == ("float32", 1)
    assert store.index["channels"].tolist() == ["left"]


def test_a_changed_night_is_replaced_on_demand(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01")
    arguments = ("folder", source, tmp_path / "store", "--jobs", 1)
    prepare(*arguments)
    (source / "S01.txt").write_text("W\nW\nW\nN3\n")
    code, out, _ = prepare(*arguments)
    assert code == 1
    assert "or replace it (--replace) if they were changed on purpose" in out
    assert prepare(*arguments, "--replace")[0] == 0
    assert Store.open(tmp_path / "store").index["W"].tolist() == [3]


def test_all_nights_failing_is_exit_code_1_and_no_store(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", **{"S01.edf": "no edf"})
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 1
    assert counts(out) == {"prepared": 0, "already there": 0, "failed": 1}
    assert not (tmp_path / "store").exists()


def test_one_recording_of_two_subjects_is_a_failure(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01", **{"S02.edf": recorded(), "S02.txt": SCORES})
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1, "--name", "town")
    assert code == 1
    assert counts(out) == {"prepared": 2, "already there": 0, "failed": 0}
    assert "problems (1):\n  'town-S01' and 'town-S02' in" in out
    assert "are the same recording (S01.edf, S02.edf) under different subjects\n" in out


def test_a_line_end_in_a_files_name_ends_no_line(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", **{"S01\nS02.edf": "no edf"})
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 1
    assert f"failed (1):\n  {source}/S01\\nS02.edf is not an EDF" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", ".", "s"), "psdnorm: cohort is 'nowhere', expected one of ABC, "),
        (("folder", "no/such", "s"), "psdnorm: no/such matches no recording"),
        (("folder", "source", "s", "--recipe", "x"), "psdnorm: --recipe is 'x', expected paper, "),
        (("folder", "source", "s", "--channels", ";"), "psdnorm: --channels must name at l"),
        (("folder", "source", "source/S01.edf"), "S01.edf cannot be made: Not a directory"),
        (("folder", "source", "s", "--dask", "tcp://127.0.0.1:1"), ": Connection refused"),
        (("folder", "source", "s", "--name", "SHHS"), "psdnorm: --name is 'SHHS', which is a "),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(
    prepare, tmp_path, monkeypatch, arguments, said
):
    cohort_folder(tmp_path / "source", "S01")
    monkeypatch.chdir(tmp_path)
    code, out, err = prepare(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_an_interrupted_run_says_how_to_go_on(prepare, tmp_path, monkeypatch):
    from psdnorm.prepare import prepare as preparation

    def interrupt(night, source, original=preparation.read_night):
        if "S02" in night.signal.name:
            raise KeyboardInterrupt
        return original(night, source)

    source = cohort_folder(tmp_path / "source", "S01", "S02", "S03")
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "read_night", interrupt)
        code, out, err = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 130
    assert counts(out) == {"prepared": 1, "already there": 0, "failed": 0, "not reached": 2}
    assert err.endswith("psdnorm: interrupted; run the same command again to resume\n")
    assert len(Store.open(tmp_path / "store").index) == 1
    code, out, _ = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 0
    assert counts(out) == {"prepared": 2, "already there": 1, "failed": 0}


SCRIPT = "import psdnorm.cli.cmd_prepare; from psdnorm.cli import main; main()"


@pytest.mark.slow
def test_ctrl_c_stops_all_processes_without_a_traceback(tmp_path):
    source = cohort_folder(tmp_path / "source", *(f"S{i:03}" for i in range(200)))
    store = tmp_path / "store"
    command = [sys.executable, "-c", SCRIPT, "prepare", "folder", source, store, "--jobs", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    while process.poll() is None and len(list(store.glob("nights/[!.]*"))) < 3:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # the exit code tells
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)  # the pipes end with the last of them
    assert process.returncode == 130
    assert err.endswith("psdnorm: interrupted; run the same command again to resume\n")
    assert "Traceback" not in err
    assert counts(out)["not reached"] > 0
    assert len(Store.open(store).index) >= counts(out)["prepared"] > 0


def test_without_room_for_the_index_the_summary_is_still_told(prepare, tmp_path, monkeypatch):
    from psdnorm.errors import StoreError

    def fail(self):
        raise StoreError("index.parquet cannot be written: No space left on device")

    monkeypatch.setattr(Store, "finish", fail)
    source = cohort_folder(tmp_path / "source", "S01")
    code, out, err = prepare("folder", source, tmp_path / "store", "--jobs", 1)
    assert code == 2
    assert counts(out)["prepared"] == 1
    assert err.endswith("psdnorm: index.parquet cannot be written: No space left on device\n")


def test_a_manifest_may_leave_a_scoring_out(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01", "S02")
    manifest = source / "nights.csv"
    manifest.write_text("subject,signal,scoring\n1,S01.edf,S01.txt\n2,S02.edf,\n")
    code, out, _ = prepare("folder", manifest, tmp_path / "store", "--jobs", 1)
    assert code == 0
    assert f"{source}/S02.edf has no scoring in row 3 of {manifest}" in out


def test_an_expression_that_no_file_could_serve_is_refused_at_once(prepare, tmp_path):
    source = cohort_folder(tmp_path / "source", "S01")
    code, _, err = prepare("folder", source, tmp_path / "store", "--channels", "C3-M2; *C4")
    assert code == 2
    assert err.startswith("psdnorm: '*C4' is neither a channel nor an expression")
    assert not (tmp_path / "store").exists()
