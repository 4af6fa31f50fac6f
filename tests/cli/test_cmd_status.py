"""``psdnorm status`` reads the folder of a grid, to people and to programs."""

import json
from functools import partial

import pytest
from small_runs import PROTOCOL, small_store

from psdnorm.experiments.grid import Axes, ExperimentFolder, PlannedRun, grid_of
from psdnorm.runtime.files import held

RUNS = grid_of([Axes(norms=("psd",), hold_outs=("abc", "mno"), seeds=(0, 1))])


@pytest.fixture
def runs(tmp_path):
    """A grid of which one run is done and another one failed."""
    store = small_store(tmp_path / "store")
    runs = ExperimentFolder(tmp_path / "runs")
    runs.extend(store, PROTOCOL, [PlannedRun(run, 10) for run in RUNS])
    for run, name, document in (
        (RUNS[0], "done.json", {"epochs": 4, "seconds": 240.0}),
        (RUNS[1], "failed.json", {"reason": f"{RUNS[1].name}: the loss is nan at step 3"}),
    ):
        runs.folder(run).mkdir(parents=True)
        (runs.folder(run) / name).write_text(json.dumps(document))
    return runs


@pytest.fixture
def status(run_command):
    return partial(run_command, "status")


def test_it_tells_states_reasons_and_the_time_left(runs, status):
    code, out, _ = status(runs.path)
    assert code == 0
    assert out == (
        "4 runs: 1 done, 0 running, 0 interrupted, 2 waiting, 1 failed\n"
        f"  failed: {RUNS[1].name}: the loss is nan at step 3\n"
        "nothing runs; about 8 min of work for one worker: run the same psdnorm lodo command again "
        "to resume\n"
    )


@pytest.mark.parametrize("trace", ["nights.json", "cost.json"])
def test_of_a_study_it_names_the_command_that_goes_on_with_it(runs, status, trace, monkeypatch):
    (runs.path / trace).write_text("{}")
    _, out, _ = status(runs.path)
    sentence = (
        "nothing runs; about 8 min of work for one worker: to resume, run psdnorm study FILE "
        f"--work {runs.path.parent} with the YAML file of study runs as FILE\n"
    )
    assert out.endswith(sentence)
    monkeypatch.chdir(runs.path)
    assert status(".")[1].endswith(sentence)
    monkeypatch.chdir(runs.path.parent)
    assert "run psdnorm study FILE --work . with" in status("runs")[1]


def test_a_folder_above_the_runs_of_studies_names_them(runs, status, tmp_path):
    code, out, err = status(tmp_path)
    assert (code, out) == (2, "")
    expected = f"psdnorm: {tmp_path} holds the runs of runs: give {runs.path}\n"
    assert err == expected
    other = tmp_path / "another" / "grid.json"
    other.parent.mkdir()
    other.write_text("{}")
    named = f"holds the runs of another, runs: give one of them, {other.parent}\n"
    assert status(tmp_path)[2] == f"psdnorm: {tmp_path} {named}"


def test_it_tells_who_works_now(runs, status):
    with held(runs.folder(RUNS[2])):
        (runs.folder(RUNS[2]) / "config.json").write_text("{}")
        _, out, _ = status(runs.path)
        assert f"  running: {RUNS[2].name}, 0 epochs done, for 0 s, process " in out
        assert out.endswith("about 8 min left at 1 run in parallel\n")
    _, out, _ = status(runs.path)
    assert f"  interrupted: {RUNS[2].name}, 0 epochs done\n" in out


def test_programs_get_all_of_it(runs, status):
    code, out, _ = status(runs.path, "--json")
    found = json.loads(out)
    assert code == 0
    assert {name: found[name] for name in ("done", "running", "waiting", "failed")} == {
        "done": 1,
        "running": 0,
        "waiting": 2,
        "failed": 1,
    }
    assert (found["work_s"], found["left_s"]) == (480.0, None)
    assert [run["state"] for run in found["cells"]] == ["done", "failed", "waiting", "waiting"]
    assert found["cells"][0]["cell"] == RUNS[0].to_json()
    assert found["cells"][1]["reason"].endswith("nan at step 3")


def test_before_the_first_run_is_done_it_says_so_and_how_to_go_on_if_nothing_runs(runs, status):
    (runs.folder(RUNS[0]) / "done.json").unlink()
    said = "no training is finished yet, so the time left is unknown"
    _, out, _ = status(runs.path)
    resumed = "run the same psdnorm lodo command again to resume"
    assert out.endswith(f"{said}; nothing runs: {resumed}\n")
    with held(runs.folder(RUNS[2])):
        assert status(runs.path)[1].endswith(f"{said}\n")


def test_a_folder_without_a_grid_is_one_sentence_and_exit_code_2(status, tmp_path):
    code, out, err = status(tmp_path)
    assert (code, out) == (2, "")
    assert err == f"psdnorm: {tmp_path} has no grid.json, expected the folder of psdnorm lodo\n"


def test_what_is_no_folder_of_runs_is_called_what_it_is(runs, status, tmp_path):
    expected = {
        tmp_path / "nowhere": "does not exist, expected the folder of psdnorm lodo",
        tmp_path / "store": "is a store of prepared nights, expected the folder of psdnorm lodo",
        runs.path / "cells": f"holds the runs of {runs.path}: give that folder",
    }
    for path, words in expected.items():
        code, out, err = status(path)
        assert (code, out, err) == (2, "", f"psdnorm: {path} {words}\n")


def test_one_is_not_many(status, tmp_path):
    runs = ExperimentFolder(tmp_path / "runs")
    runs.extend(small_store(tmp_path / "store"), PROTOCOL, [PlannedRun(RUNS[0], 10)])
    runs.folder(RUNS[0]).mkdir(parents=True)
    (runs.folder(RUNS[0]) / "config.json").write_text("{}")
    (runs.folder(RUNS[0]) / "history.csv").write_text("epoch,step\n0,8\n")
    _, out, _ = status(runs.path)
    assert out.startswith("1 run: 0 done, ")
    assert f"  interrupted: {RUNS[0].name}, 1 epoch done\n" in out
