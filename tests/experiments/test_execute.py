"""Wherever runs are executed, and whichever process dies, the results are the same."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from cluster import cluster
from small_runs import PROTOCOL, outcome

from psdnorm.errors import ArgumentError
from psdnorm.experiments import execute as places
from psdnorm.experiments.execute import FAILURE, FINISHED, Job, RunOutcome, run_grid, visible_gpus
from psdnorm.experiments.grid import Axes, ExperimentFolder, grid_of
from psdnorm.runtime import ProcessBrokenError, holder

LONG = replace(PROTOCOL, max_epochs=8, patience=8)
pytestmark = pytest.mark.usefixtures("one_thread")
RUNS = grid_of([Axes(norms=("batch", "psd", "adabn1"), hold_outs=("abc", "mno"), seeds=(0,))])


def executed(store, folder, **options):
    options = {"device": "cpu", **options}
    return {o.run.name: o.status for o in run_grid(store, RUNS, LONG, folder, **options)}


def results(folder):
    return {run.name: outcome(ExperimentFolder(folder).folder(run)) for run in RUNS}


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert set(executed(store, folder).values()) == {"done"}
    return results(folder)


@pytest.mark.slow
def test_processes_give_what_one_gives_though_one_of_them_is_killed(store, undisturbed, tmp_path):
    killed = []

    def kill_one(name, words):
        if "epoch 4" in words and not killed:
            killed.append(holder(tmp_path / "cells" / name).pid)
            os.kill(killed[0], signal.SIGKILL)

    before = set(multiprocessing.active_children())
    found = executed(store, tmp_path, jobs=2, on_progress=kill_one)
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert found.keys() == undisturbed.keys()
    assert "failed" not in found.values()
    assert results(tmp_path) == undisturbed
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_a_run_that_kills_its_process_twice_fails_and_the_others_are_done(store, tmp_path):
    victim = "usleep_psd_f5_d3_abc_all_seed0"

    def kill(name, words):
        if name == victim:
            os.kill(holder(tmp_path / "cells" / name).pid, signal.SIGKILL)

    outcomes = {
        o.run.name: o
        for o in run_grid(store, RUNS, LONG, tmp_path, device="cpu", jobs=2, on_progress=kill)
    }
    failed = [o for o in outcomes.values() if o.status == "failed"]
    assert [o.reason for o in failed] == [
        f"{victim}: its process died twice, perhaps out of memory"
    ]
    assert {o.status for o in outcomes.values() if o not in failed} == {"done"}
    assert (tmp_path / "cells" / victim / "failed.json").exists()


class Ended(BaseException):
    """Instead of the end of the process."""


@pytest.fixture
def gpu(monkeypatch):
    """What is asked of a GPU that this machine lacks, and of the process; broken if it is told."""
    heard, broken = [], []

    def synchronize():
        heard.append("waited")
        if broken:
            raise torch.AcceleratorError("an illegal memory access was encountered")

    def end(code):
        heard.append(f"ended with {code}")
        raise Ended

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(os, "_exit", end)
    return heard, broken


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_worker_that_is_asked_to_end_waits_for_its_gpu(gpu, is_broken):
    heard, broken = gpu
    broken += [True] * is_broken
    with pytest.raises(Ended):
        places._leave(signal.SIGTERM, None)
    assert heard == ["waited", "ended with 0"]


def served(monkeypatch, outcome):
    """Serve one unit with this outcome; return what is sent, and why the process ends."""
    sent = []
    monkeypatch.setattr(places, "attempt", lambda run, job, on_progress: outcome)
    try:
        places._send_all(None, RUNS[:1], sent.append)
    except ProcessBrokenError as error:
        return sent, str(error)
    return sent, None


def test_a_worker_whose_gpu_is_lost_dies_instead_of_failing_what_comes_next(gpu, monkeypatch):
    heard, broken = gpu
    broken.append(True)
    failure = RunOutcome(RUNS[0], FAILURE, "CUDA error")
    assert served(monkeypatch, failure) == ([], failure.reason)
    assert heard == ["waited"]


def test_a_worker_goes_on_after_a_failure_that_its_gpu_survived(gpu, monkeypatch):
    failure = RunOutcome(RUNS[0], FAILURE, "its loss was not finite")
    assert served(monkeypatch, failure) == ([failure], None)
    assert gpu[0] == ["waited"]


def test_a_run_that_is_done_is_told_though_the_gpu_is_lost_by_then(gpu, monkeypatch):
    gpu[1].append(True)
    done = RunOutcome(RUNS[0], FINISHED)
    assert served(monkeypatch, done) == ([done], None)


@pytest.mark.parametrize(
    ("last_words", "reason"),
    [
        (("", ""), "perhaps out of memory"),
        (("a fault", "a worse one"), "each time as its GPU was lost (a worse one)"),
        (("a fault", ""), "once as its GPU was lost (a fault)"),
        (("", "a fault"), "once as its GPU was lost (a fault)"),
    ],
)
def test_the_reason_why_processes_died_is_theirs_if_they_gave_one(tmp_path, last_words, reason):
    job = Job(None, ExperimentFolder(tmp_path), LONG)
    outcomes = places._lost_processes(job, tuple(RUNS[:1]), last_words)
    assert [o.reason for o in outcomes] == [f"{RUNS[0].name}: its process died twice, {reason}"]


@pytest.mark.slow
def test_a_run_that_is_closed_early_leaves_no_process_and_can_go_on(store, undisturbed, tmp_path):
    before = set(multiprocessing.active_children())
    outcomes = run_grid(store, RUNS, LONG, tmp_path, device="cpu", jobs=2)
    next(outcomes)
    outcomes.close()
    assert set(multiprocessing.active_children()) <= before
    assert not any(holder(ExperimentFolder(tmp_path).folder(run)) for run in RUNS)
    executed(store, tmp_path)
    assert results(tmp_path) == undisturbed


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_though_a_worker_is_killed(store, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    killed = []

    def kill_the_first_that_works(workers, stop):
        pids = [worker.pid for worker in workers]
        while not killed and not stop.is_set():
            for path in tmp_path.glob("runs/cells/*/history.csv"):
                who = holder(path.parent)
                if who is not None and who.pid in pids:
                    os.kill(who.pid, signal.SIGKILL)
                    killed.append(who.pid)
                    return
            time.sleep(0.02)

    stop = threading.Event()
    with cluster(tmp_path) as (address, workers):
        killer = threading.Thread(target=kill_the_first_that_works, args=(workers, stop))
        killer.start()
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(killer.join)
            at_the_end.callback(stop.set)
            found = executed(store, tmp_path / "runs", dask=address)
    assert len(killed) == 1
    assert found.keys() == undisturbed.keys()
    assert set(found.values()) <= {"done", "already there"}
    assert results(tmp_path / "runs") == undisturbed


def test_gpus_go_by_the_names_that_the_process_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    assert visible_gpus(1) == ["0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f")
    assert visible_gpus() == ["3", "GPU-8f"]
    with pytest.raises(ArgumentError, match="3 GPUs were asked for, found 2 CUDA devices"):
        visible_gpus(3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ArgumentError, match="a GPU was asked for, found 0 CUDA devices"):
        visible_gpus()


def test_each_process_is_given_a_gpu_and_its_share_of_the_threads(store, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)  # here, not in the process
    seen = []
    real = places.stream_all

    def note(work, items, gpus, *, begin, **options):
        seen.append((gpus, begin.args))
        return real(work, items, gpus, begin=begin, **options)

    monkeypatch.setattr(places, "stream_all", note)
    gpus = ["no-such-gpu", "1", "2"]
    outcomes = run_grid(store, RUNS[:1], LONG, tmp_path, device="cuda", gpus=gpus)
    reason = {o.reason for o in outcomes}
    assert seen == [(["no-such-gpu"], (6,))]  # one unit needs one process
    assert reason == {f"{RUNS[0].name}: device is 'cuda', found 0 CUDA devices"}
