"""A training that goes wrong says which, where, and what is left of it."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import PROTOCOL, RUN, learnable, small_store

from psdnorm.errors import TrainingError
from psdnorm.models import from_pretrained
from psdnorm.training import loop as objective
from psdnorm.training import train_run
from psdnorm.training.train import split_of

BAD_STEP = 11  # in the second epoch of 8 steps each


@pytest.fixture
def breaking(monkeypatch):
    """Let the loss be NaN from one step of training on."""
    real, steps = objective.weighted_sums, 0

    def weighted_sums(logits, stages, weights):
        nonlocal steps
        sums = real(logits, stages, weights)
        steps += logits.requires_grad
        return sums * float("nan") if steps >= BAD_STEP and logits.requires_grad else sums

    monkeypatch.setattr(objective, "weighted_sums", weighted_sums)


@pytest.mark.usefixtures("breaking")
def test_a_loss_that_is_not_finite_names_run_and_step_and_keeps_the_last_good_weights(
    store, tmp_path
):
    said = f"{RUN.name}: the loss is nan at step {BAD_STEP}, in epoch 2; the last good weights are"
    with pytest.raises(TrainingError, match=said):
        train_run(store, RUN, PROTOCOL, tmp_path / "bad")
    assert not (tmp_path / "bad" / "done.json").exists()
    kept = from_pretrained(tmp_path / "bad" / "weights").state_dict()
    state = torch.load(tmp_path / "bad" / "resume.pt", weights_only=True)
    assert state["position"]["step"] == 8
    assert all(torch.equal(value, state["best"][name]) for name, value in kept.items())


def test_weights_that_are_not_finite_are_never_saved_though_the_loss_still_is(
    store, tmp_path, monkeypatch
):
    real, steps = objective.weighted_sums, 0

    def weighted_sums(logits, stages, weights):
        nonlocal steps
        steps += logits.requires_grad
        if steps == BAD_STEP and logits.requires_grad:
            logits.register_hook(lambda gradient: gradient * float("nan"))
        return real(logits, stages, weights)

    monkeypatch.setattr(objective, "weighted_sums", weighted_sums)
    with pytest.raises(TrainingError, match=rf"the gradient of \S+ is nan at step {BAD_STEP}, in"):
        train_run(store, RUN, PROTOCOL, tmp_path, save_every_steps=1)
    state = torch.load(tmp_path / "resume.pt", weights_only=True)
    assert state["position"]["step"] == BAD_STEP - 1
    assert all(value.isfinite().all() for value in state["model"].values())


def test_steps_that_are_far_too_large_are_told_as_such(store, tmp_path):
    with pytest.raises(TrainingError, match=r"at step \d+, in epoch 1; no weights had been saved"):
        train_run(store, RUN, replace(PROTOCOL, lr=1e30), tmp_path)


def test_stages_that_only_validate_are_told_as_such(tmp_path):
    nights = [learnable(f"xyz-{i}", 20) for i in range(4)] + [learnable("abc-0")]
    split = split_of(small_store(tmp_path / "store", nights), RUN, PROTOCOL)
    for night in nights:
        night.stages[:] = 4 if night.recording in set(split.validation["recording"]) else 1
    store = small_store(tmp_path / "other", nights)
    with pytest.raises(TrainingError, match="no epoch of the validation set has a stage"):
        train_run(store, RUN, PROTOCOL, tmp_path / "run")


def test_a_held_out_night_without_a_central_epoch_counts_for_nothing(tmp_path):
    nights = [learnable(f"xyz-{i}", 20) for i in range(4)]
    store = small_store(tmp_path / "store", [*nights, learnable("abc-0", 1)])
    result = train_run(store, RUN, PROTOCOL, tmp_path / "run")
    assert np.isnan(result.balanced_accuracy)
    assert result.subjects == 1


@pytest.mark.slow
def test_it_runs_where_what_reads_recordings_is_not_installed(store, tmp_path):
    script = f"""
import sys
for name in ("mne", "edfio", "dask", "distributed"):
    sys.modules[name] = None
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from small_runs import RUN, PROTOCOL
from psdnorm.store import Store
from psdnorm.training import train_run
print(train_run(Store.open({str(store.path)!r}), RUN, PROTOCOL, {str(tmp_path)!r}, keep="weights"))
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-W", "error", "-c", script], env=environment)
    assert run.returncode == 0
    assert (tmp_path / "done.json").exists()
