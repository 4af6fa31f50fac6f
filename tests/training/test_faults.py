"""What comes from outside while a training runs: it is named, and what was saved stands."""

import errno
import json
import os
import re
import struct
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_runs import PROTOCOL, RUN, small_store
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from psdnorm.errors import StoreError, TrainingError
from psdnorm.runtime.files import held
from psdnorm.store.folder import night_path
from psdnorm.training import Run, Silent, loop, train, train_run
from psdnorm.training import run_folder as state
from psdnorm.training.train import split_of

SHORT = replace(PROTOCOL, max_epochs=2)


def spoil(store, recording):
    """Let the last sample of a night be NaN, as no program of ours writes it."""
    signals = store.signals(recording)
    assert signals.dtype == np.float16
    with open(night_path(store.path, recording), "r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(struct.pack("<e", float("nan")))
    return len(signals) - 1


@pytest.mark.parametrize("norm", ["psd", "batch", "tma"])
@pytest.mark.parametrize("role", ["train", "validation", "test"])
def test_a_night_with_samples_that_are_not_finite_is_named(tmp_path, norm, role):
    store = small_store(tmp_path / "store")
    run = Run("usleep", norm, hold_out="abc")
    recording = getattr(split_of(store, run, SHORT), role)["recording"].iloc[-1]
    epoch = spoil(store, recording)
    path = re.escape(str(night_path(store.path, recording)))
    with pytest.raises(
        TrainingError, match=f"{path} has samples that are not finite, from epoch {epoch} on: prep"
    ):
        train_run(store, run, SHORT, tmp_path / "run")
    assert not (tmp_path / "run" / "done.json").exists()


def test_where_all_samples_are_finite_it_says_how_to_look_further(store, tmp_path):
    said = f"are finite; psdnorm inspect {re.escape(str(store.path))} --verify tells"
    with pytest.raises(TrainingError, match=said):
        train_run(store, RUN, replace(SHORT, lr=1e30), tmp_path)


def full(self, data):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_disk_that_is_full_for_the_curves_is_one_sentence(store, tmp_path, monkeypatch):
    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(StoreError, match="run/tensorboard cannot be written: No space left on"):
        train_run(store, RUN, SHORT, tmp_path / "run")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_resume_file_of_an_epoch_is_written_before_its_curves(store, tmp_path, monkeypatch):
    class FullLater(Silent):
        def begin_epoch(self, epoch, first_batch, n_batches):
            monkeypatch.setattr(RecordWriter, "write", full)

    with pytest.raises(StoreError, match="tensorboard cannot be written"):
        train_run(store, RUN, SHORT, tmp_path, watcher=FullLater())
    assert torch.load(tmp_path / "resume.pt", weights_only=True)["position"]["epoch"] == 1
    monkeypatch.undo()
    assert train_run(store, RUN, SHORT, tmp_path).epochs == 2


def test_curves_can_be_read_by_tensorboard(store, tmp_path):
    train_run(store, RUN, SHORT, tmp_path)
    curves = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = (tmp_path / "history.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    points = curves.Scalars("validation_loss")
    assert [point.step for point in points] == [int(row["step"]) for row in rows]
    expected = [float(row["validation_loss"]) for row in rows]
    assert [point.value for point in points] == pytest.approx(expected)


def test_a_second_process_in_a_folder_is_refused_with_who_is_there(store, tmp_path):
    with held(tmp_path / "run"):
        with pytest.raises(
            TrainingError, match=rf"{os.getpid()} on \S+ is already working in \S*run"
        ):
            train_run(store, RUN, SHORT, tmp_path / "run")
        assert {path.name for path in (tmp_path / "run").iterdir()} == {"lock"}
    train_run(store, RUN, SHORT, tmp_path / "run")
    assert not (tmp_path / "run" / "lock").exists()


def test_a_finished_run_is_read_whoever_works_there(store, tmp_path):
    first = train_run(store, RUN, SHORT, tmp_path)
    with held(tmp_path):
        assert train_run(store, RUN, SHORT, tmp_path) == first


def test_the_lock_of_a_process_that_died_as_it_finished_is_removed(store, tmp_path):
    train_run(store, RUN, SHORT, tmp_path)
    (tmp_path / "lock").write_text('{"host": "dead", "pid": 1, "since": 0}')
    train_run(store, RUN, SHORT, tmp_path)
    assert not (tmp_path / "lock").exists()


def test_time_spent_before_an_interruption_counts(store, tmp_path, monkeypatch):
    now = 0.0

    class AnHourAnEpoch(Silent):
        def begin_epoch(self, *_):
            nonlocal now
            now += 3600

        def end_epoch(self, row):
            if row["epoch"] == 0:
                raise KeyboardInterrupt

    for module in (loop, train):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    with pytest.raises(KeyboardInterrupt):
        train_run(store, RUN, SHORT, tmp_path, watcher=AnHourAnEpoch())
    run = json.loads((tmp_path / "config.json").read_text())["run"]
    assert state.read_state(tmp_path, run).position.seconds == 3600
    now = 1e6  # what passes between the two processes does not count
    assert train_run(store, RUN, SHORT, tmp_path, watcher=AnHourAnEpoch()).seconds == 7200
