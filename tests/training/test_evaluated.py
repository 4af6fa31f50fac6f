"""What a run is judged by: its best weights, nights as the training has them, each subject."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from small_runs import PROTOCOL, RUN, balanced_accuracies, learnable, nights, outcome, small_store

from psdnorm.models import from_pretrained
from psdnorm.training import Run, Silent, predict_nights, train_run
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter
from psdnorm.training.train import run_adapted, split_of

CPU = torch.device("cpu")
TMA = Run("usleep", "tma", filter_size=3, hold_out="abc")
ONE_EPOCH = replace(PROTOCOL, max_epochs=1)
# learns in an epoch
SHALLOW = replace(PROTOCOL, lr=1e-2, model_arguments={"depth": 2, "n_time_filters": 4})
PROBABILITIES = [f"p{stage}" for stage in range(5)]


def kept_predictions(folder):
    return pd.read_parquet(folder / "predictions.parquet")


@pytest.fixture(scope="module")
def misled(tmp_path_factory):
    """A store in which all who validate are scored wrongly: what is learned makes it worse."""
    root = tmp_path_factory.mktemp("misled")
    made = nights()
    split = split_of(small_store(root / "right", made), RUN, PROTOCOL)
    for night in made:
        if night.recording in set(split.validation["recording"]):
            night.stages[:] = np.where(night.stages < 0, -1, (night.stages + 2) % 5)
    return small_store(root / "wrong", made)


@pytest.mark.parametrize("norm", ["psd", "batch"])
def test_predictions_and_weights_are_those_of_the_epoch_with_the_lowest_validation_loss(
    misled, tmp_path, norm
):
    run = replace(RUN, norm=norm, norm_depth=2)
    protocol = replace(SHALLOW, patience=2, max_epochs=9)
    result = train_run(misled, run, protocol, tmp_path / "long", keep="weights")
    assert (result.best_epoch, result.epochs) == (0, 3)
    train_run(misled, run, replace(protocol, max_epochs=1), tmp_path / "best", keep="weights")
    found, best = outcome(tmp_path / "long"), outcome(tmp_path / "best")
    for name in ("predictions.parquet", "weights/model.safetensors"):
        assert found[name] == best[name]


def test_the_best_weights_outlive_an_interruption_in_a_later_epoch(misled, tmp_path):
    class Stopping(Silent):
        def end_epoch(self, row):
            if row["epoch"] == 1:
                raise KeyboardInterrupt

    run, protocol = replace(RUN, norm_depth=2), replace(SHALLOW, patience=2, max_epochs=9)
    train_run(misled, run, protocol, tmp_path / "whole", keep="weights")
    with pytest.raises(KeyboardInterrupt):
        train_run(misled, run, protocol, tmp_path / "stopped", watcher=Stopping())
    result = train_run(misled, run, protocol, tmp_path / "stopped", keep="weights")
    assert (result.best_epoch, result.epochs) == (0, 3)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


@pytest.fixture(scope="module")
def aligned_run(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tma")
    train_run(store, TMA, ONE_EPOCH, folder, keep="weights")
    return folder


def test_held_out_nights_are_aligned_to_the_barycenter_of_those_that_train(store, aligned_run):
    model = from_pretrained(aligned_run / "weights")
    split = split_of(store, TMA, ONE_EPOCH)

    def predicted(nights):
        windows = {"length": 9, "stride": 5, "batch_size": 4}
        return np.concatenate(
            [p for _, p, _ in predict_nights(model, nights, split.test, **windows)]
        )

    def aligned_to(rows):
        return AlignedStore(store, training_barycenter(store, rows["recording"], 3, CPU), 3, CPU)

    kept = kept_predictions(aligned_run)[PROBABILITIES].to_numpy()
    assert np.array_equal(kept, predicted(aligned_to(split.train)))
    assert not np.allclose(kept, predicted(aligned_to(split.test)), atol=1e-3)
    assert not np.allclose(kept, predicted(store), atol=1e-3)


def test_tma_is_batchnorm_on_a_store_of_aligned_nights(store, aligned_run, tmp_path):
    train = split_of(store, TMA, ONE_EPOCH).train
    aligned = AlignedStore(store, training_barycenter(store, train["recording"], 3, CPU), 3, CPU)
    made = [replace(n, signals=aligned.signals(n.recording).astype(np.float32)) for n in nights()]
    batch = Run("usleep", "batch", hold_out="abc")
    other = small_store(tmp_path / "store", made)
    train_run(other, batch, ONE_EPOCH, tmp_path / "run", keep="weights")
    expected, found = outcome(tmp_path / "run"), outcome(aligned_run)
    for name in ("history.csv", "predictions.parquet", "weights/model.safetensors"):
        assert found[name] == expected[name]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The folders of a run and of AdaBN on it, where one of those held out came twice."""
    root = tmp_path_factory.mktemp("judged")
    second = learnable("abc-00", 31, gain=5.0, subject="1", visit="2")
    store = small_store(root / "store", [*nights(), second])
    adapted = Run("usleep", "adabn2", hold_out="abc")
    train_run(store, adapted.base, SHALLOW, root / "trained", keep="weights")
    run_adapted(store, adapted, SHALLOW, root / "adapted", root / "trained", keep="predictions")
    return root


@pytest.mark.parametrize("which", ["trained", "adapted"])
def test_the_balanced_accuracy_is_the_mean_over_subjects_of_their_central_epochs(judged, which):
    def mean(owner, margin):
        nights = [
            (night[owner].iloc[0], night["true"], night[PROBABILITIES].to_numpy().argmax(axis=1))
            for _, night in kept_predictions(judged / which).assign(all="").groupby("recording")
        ]
        return np.mean([*balanced_accuracies(nights, margin).values()])

    found = json.loads((judged / which / "done.json").read_text())["balanced_accuracy"]
    margin = (PROTOCOL.length - PROTOCOL.stride) // 2
    assert found == pytest.approx(mean("subject", margin), abs=1e-12)
    others = mean("subject", 0), mean("all", margin), mean("recording", margin)
    assert all(abs(found - other) > 1e-4 for other in others)
