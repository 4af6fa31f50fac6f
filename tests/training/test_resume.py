"""A run that was stopped ends as one that was not, bit for bit."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import DROPPING, PROTOCOL, RUN, WITH_DROPOUT, outcome

from psdnorm.errors import PsdnormError, StoreError, TrainingError
from psdnorm.runtime import files as atomic
from psdnorm.training import Silent, train_run

SCRIPT = Path(__file__).with_name("killed.py")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
OPTIONS = {"keep": "weights", "save_every_steps": 3}


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    train_run(store, RUN, PROTOCOL, folder, **OPTIONS)
    return outcome(folder)


class Stopping(Silent):
    """Interrupts after a number of steps, as Ctrl-C would."""

    def __init__(self, steps):
        self.steps = steps

    def step(self, batch, loss):
        self.steps -= 1
        if not self.steps:
            raise KeyboardInterrupt


def stopped(store, folder, steps, run=RUN, protocol=PROTOCOL):
    with pytest.raises(KeyboardInterrupt):
        train_run(store, run, protocol, folder, **OPTIONS, watcher=Stopping(steps))


def script(*arguments):
    paths = [str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("steps", [1, 5, 8, 9, 18])
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(
    store, tmp_path, undisturbed, steps
):
    stopped(store, tmp_path, steps)
    assert not (tmp_path / "done.json").exists()
    train_run(store, RUN, PROTOCOL, tmp_path, **OPTIONS)
    assert outcome(tmp_path) == undisturbed


@pytest.mark.parametrize("steps", [5, 9])
def test_interrupted_with_nights_as_domains_it_ends_as_if_uninterrupted(store, tmp_path, steps):
    run = replace(RUN, norm="psd-night")
    train_run(store, run, PROTOCOL, tmp_path / "undisturbed", **OPTIONS)
    stopped(store, tmp_path / "stopped", steps, run)
    train_run(store, run, PROTOCOL, tmp_path / "stopped", **OPTIONS)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "undisturbed")


def test_dropout_goes_on_from_where_it_was(store, tmp_path):
    for name in ("undisturbed", "stopped"):
        if name == "stopped":  # between two resume files, of which the first is not the start
            stopped(store, tmp_path / name, 5, DROPPING, WITH_DROPOUT)
        train_run(store, DROPPING, WITH_DROPOUT, tmp_path / name, **OPTIONS)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "undisturbed")


@pytest.mark.parametrize("often", [{"save_every_steps": 1}, {"save_every_s": 0.0}, {}])
def test_how_often_it_is_saved_changes_nothing(store, tmp_path, undisturbed, often):
    train_run(store, RUN, PROTOCOL, tmp_path, keep="weights", **often)
    assert outcome(tmp_path) == undisturbed


@pytest.mark.slow
@forks
def test_killed_with_dropout_every_397_lines_it_ends_bit_equal(tmp_path):
    assert int(script("killed", tmp_path, 397).split()[1]) > 5


@pytest.mark.slow
@forks
def test_killed_again_and_again_it_ends_bit_equal(tmp_path):
    assert int(script("often", tmp_path).split()[1]) > 3


@pytest.mark.slow
@forks
def test_killed_before_any_file_is_in_place_or_the_resume_file_is_gone_it_ends_bit_equal(tmp_path):
    names = script("placing", tmp_path).split()
    assert {"config.json", "history.csv", "predictions.parquet", "scores.parquet"} <= {*names}
    assert names.count("resume.pt") > 3
    assert names[-2:] == ["done.json", "unlink"]


@pytest.mark.slow
@forks
def test_after_another_run_in_the_same_process_it_ends_as_in_a_fresh_one(tmp_path):
    script("after", tmp_path)


def test_a_resume_file_holds_nothing_that_could_run(store, tmp_path):
    stopped(store, tmp_path, 4)
    content = torch.load(tmp_path / "resume.pt", weights_only=True)
    assert {"position", "model", "best", "optimizer", "generators"} <= set(content)


def test_a_resume_file_that_would_run_code_is_refused_and_runs_nothing(store, tmp_path):
    class Making:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    stopped(store, tmp_path, 4)
    content = torch.load(tmp_path / "resume.pt", weights_only=True)
    torch.save({**content, "extra": Making()}, tmp_path / "resume.pt")
    with pytest.raises(TrainingError, match=r"resume\.pt is damaged, .*; delete it to train"):
        train_run(store, RUN, PROTOCOL, tmp_path, **OPTIONS)
    assert not (tmp_path / "made").exists()


def test_a_damaged_resume_file_is_named(store, tmp_path):
    stopped(store, tmp_path, 4)
    path = tmp_path / "resume.pt"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(damaged)
        with pytest.raises(TrainingError, match=r"resume\.pt is damaged, .*; delete it to train"):
            train_run(store, RUN, PROTOCOL, tmp_path, **OPTIONS)


def test_a_resume_file_of_another_run_is_refused(store, tmp_path):
    stopped(store, tmp_path / "one", 4)
    other = replace(RUN, seed=1)
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "resume.pt").rename(tmp_path / "two" / "resume.pt")
    with pytest.raises(TrainingError, match=r"resume\.pt belongs to another run"):
        train_run(store, other, PROTOCOL, tmp_path / "two")


@pytest.mark.parametrize("n_written", [0, 1, 3, 6, 8, 11])
def test_a_full_disk_is_named_and_what_was_saved_before_goes_on(
    store, tmp_path, undisturbed, monkeypatch, n_written
):
    real, count = os.fsync, 0

    def full(handle):
        nonlocal count
        count += 1
        if count > 2 * n_written:  # each file is synced, and then its folder
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full)
        with pytest.raises(PsdnormError, match="cannot be written: No space left on device"):
            train_run(store, RUN, PROTOCOL, tmp_path, **OPTIONS)
    assert not list(tmp_path.glob(".*"))  # nothing half-written
    assert not (tmp_path / "done.json").exists()
    train_run(store, RUN, PROTOCOL, tmp_path, **OPTIONS)
    assert outcome(tmp_path) == undisturbed


def test_a_night_that_cannot_be_read_is_named_and_training_is_not_lost(store, tmp_path):
    broken = store.path / "nights" / "abc-1.safetensors"
    whole = broken.read_bytes()
    trained = []

    class Counting(Silent):
        def end_epoch(self, row):
            trained.append(row["epoch"])

    # in time for evaluation, not for training: the held-out night is opened last
    store._mapped.pop("abc-1", None)
    store.index  # noqa: B018 (read while all is well)
    try:
        broken.write_bytes(whole[:-100])
        with pytest.raises(StoreError, match=r"abc-1\.safetensors is truncated"):
            train_run(store, RUN, PROTOCOL, tmp_path, watcher=Counting())
    finally:
        broken.write_bytes(whole)
    assert trained == [0, 1, 2]
    assert not (tmp_path / "scores.parquet").exists()
    train_run(store, RUN, PROTOCOL, tmp_path, watcher=Counting())
    assert trained == [0, 1, 2]
