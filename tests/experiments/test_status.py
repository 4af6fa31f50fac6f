"""The folder of an experiment tells how far it has come."""

import json
from dataclasses import replace

import pytest
from small_runs import PROTOCOL

from psdnorm.errors import ArgumentError
from psdnorm.experiments import status as rooms
from psdnorm.experiments.execute import run_grid
from psdnorm.experiments.grid import Axes, ExperimentFolder, PlannedRun, grid_of
from psdnorm.experiments.status import status_of
from psdnorm.runtime.files import held, holder

RUNS = grid_of([Axes(norms=("batch", "psd"), hold_outs=("abc",), seeds=(0, 1))])


@pytest.fixture
def runs(store, tmp_path):
    found = ExperimentFolder(tmp_path)
    found.extend(store, PROTOCOL, [PlannedRun(run, 100) for run in RUNS])
    return found


def states(runs):
    return [run.state for run in status_of(runs).runs]


def write(runs, run, name, **document):
    runs.folder(run).mkdir(parents=True, exist_ok=True)
    (runs.folder(run) / name).write_text(json.dumps(document))


def finish(runs, run, seconds):
    write(runs, run, "done.json", epochs=5, seconds=seconds)


def test_at_first_all_wait_and_nobody_knows_how_long(runs):
    found = status_of(runs)
    assert found.counts() == {
        **dict.fromkeys(("done", "running", "interrupted", "failed"), 0),
        "waiting": 4,
    }
    assert (found.work_s, found.left_s) == (None, None)


def test_a_run_is_running_as_long_as_its_process_holds_it(runs):
    folder = runs.folder(RUNS[1])
    with held(folder):
        write(runs, RUNS[1], "config.json")
        (folder / "history.csv").write_text("epoch,step\n0,8\n1,16\n")
        assert states(runs) == ["waiting", "running", "waiting", "waiting"]
        run = status_of(runs).runs[1]
        assert run.epochs == 2
        assert run.holder.pid > 0
    assert states(runs) == ["waiting", "interrupted", "waiting", "waiting"]
    assert holder(folder) is None


def test_a_lock_whose_process_died_is_an_interruption(runs):
    write(runs, RUNS[0], "lock", host="vm", pid=1, since=0.0)
    assert states(runs)[0] == "interrupted"


def test_a_failed_run_says_why_until_it_is_tried_again(runs):
    write(runs, RUNS[0], "failed.json", reason="the loss is nan at step 7", time="2026")
    found = status_of(runs).runs[0]
    assert (found.state, found.reason) == ("failed", "the loss is nan at step 7")
    with held(runs.folder(RUNS[0])):
        assert states(runs)[0] == "running"


def test_the_time_left_goes_by_finished_runs_and_by_those_who_work(runs, monkeypatch):
    finish(runs, RUNS[0], 60.0)
    found = status_of(runs)
    assert found.work_s == pytest.approx(3 * 60)
    assert found.left_s is None
    write(runs, RUNS[3], "failed.json", reason="", time="")
    assert status_of(runs).work_s == pytest.approx(2 * 60)
    with held(runs.folder(RUNS[1])), held(runs.folder(RUNS[2])):
        since = holder(runs.folder(RUNS[1])).since
        monkeypatch.setattr(rooms.time, "time", lambda: since + 45)
        found = status_of(runs)
        assert found.work_s == pytest.approx(15 + 15, abs=1)
        assert found.left_s == pytest.approx(15, abs=1)
        monkeypatch.setattr(rooms.time, "time", lambda: since + 1000)
        assert status_of(runs).left_s == 0  # longer than was thought, never negative


def test_more_to_learn_from_takes_longer(store, tmp_path):
    runs = ExperimentFolder(tmp_path)
    small, large = RUNS[0], replace(RUNS[0], seed=7)
    runs.extend(store, PROTOCOL, [PlannedRun(small, 100), PlannedRun(large, 300)])
    finish(runs, small, 10.0)
    assert status_of(runs).work_s == pytest.approx(30)


def test_a_finished_grid_has_nothing_left(store, tmp_path):
    protocol = replace(PROTOCOL, max_epochs=1)
    list(run_grid(store, RUNS[:1], protocol, tmp_path))
    found = status_of(ExperimentFolder(tmp_path))
    assert found.counts()["done"] == 1
    assert found.work_s == 0
    assert found.runs[0].epochs == 1


def test_a_folder_that_has_no_grid_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"has no grid.json, expected the folder of"):
        status_of(ExperimentFolder(tmp_path))
    (tmp_path / "grid.json").write_text("[]")
    with pytest.raises(ArgumentError, match=r"grid.json is not the file of a grid"):
        status_of(ExperimentFolder(tmp_path))
