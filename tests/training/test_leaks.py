"""Nothing of those who validate or are held out reaches what is learned from."""

from dataclasses import replace

import numpy as np
import pytest
from small_runs import PROTOCOL, RUN, learnable, outcome, small_store

from psdnorm.errors import TrainingError
from psdnorm.training import Run, train_run
from psdnorm.training import train as runs

ONE_EPOCH = replace(PROTOCOL, max_epochs=1)
WEIGHTS = "weights/model.safetensors"
RUNS = [RUN, Run("usleep", "tma", hold_out="abc")]


def made():
    return [learnable(f"{c}-{i}", 38 + 3 * i) for c in ("abc", "mno", "xyz") for i in range(3)]


def weights(folder, run, poisoned=()):
    """Train where some recordings say that everything is N3 at a thousand times the voltage."""
    nights = made()
    for night in nights:
        if night.recording in poisoned:
            night.signals[:] = 1000 * np.random.default_rng(7).standard_normal(night.signals.shape)
            night.stages[:] = 3
    store = small_store(folder / "store", nights)
    train_run(store, run, ONE_EPOCH, folder / "run", keep="weights")
    return outcome(folder / "run")[WEIGHTS]


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: run.norm)
def trained(request, tmp_path_factory):
    """A run, and its weights where nothing is poisoned."""
    return request.param, weights(tmp_path_factory.mktemp("clean"), request.param)


def roles(tmp_path, run):
    store = small_store(tmp_path / "roles", made())
    return {
        role: set(rows["recording"])
        for role, rows in runs.split_of(store, run, ONE_EPOCH)._asdict().items()
    }


def test_the_held_out_cohort_leaves_no_bit_in_the_weights(tmp_path, trained):
    run, clean = trained
    held_out = roles(tmp_path, run)["test"]
    assert held_out == {"abc-0", "abc-1", "abc-2"}
    assert weights(tmp_path / "poisoned", run, held_out) == clean


def test_class_weights_and_barycenter_come_from_those_who_train(tmp_path, trained):
    # after one epoch, validation has decided nothing: its nights can have come in only by a leak
    run, clean = trained
    by_role = roles(tmp_path, run)
    assert weights(tmp_path / "validation", run, by_role["validation"]) == clean
    assert weights(tmp_path / "train", run, by_role["train"]) != clean


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    """A store of families, in which everybody was there twice."""
    nights = [
        learnable(
            f"{cohort}-{i}",
            12,
            subject=str(i // 2),  # two visits each
            visit=str(i % 2),
            family=f"f{i // 6}" if cohort == "mno" else None,
        )
        for cohort in ("abc", "mno", "xyz")
        for i in range(16)
    ]
    return small_store(tmp_path_factory.mktemp("families"), nights)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("balanced", [None, 4])
def test_no_subject_and_no_family_is_on_two_sides(families, tmp_path, monkeypatch, seed, balanced):
    tasks = []

    def learn(task, *rest):
        tasks.append(task)
        raise TrainingError("not today")

    monkeypatch.setattr(runs, "learn", learn)
    run = replace(RUN, seed=seed, balanced=balanced)
    with pytest.raises(TrainingError, match="not today; no weights had been saved before"):
        train_run(families, run, PROTOCOL, tmp_path / "run")
    (task,) = tasks
    sides = []
    for rows in (task.train, task.validation):
        assert not rows.empty
        assert set(rows["cohort"]) <= {"mno", "xyz"}
        related = rows["family"].fillna(rows["cohort"] + "/" + rows["subject"])
        sides.append(({*zip(rows["cohort"], rows["subject"], strict=True)}, {*related}))
    for one, other in zip(*sides, strict=True):
        assert not one & other
