"""A run is trained on the others, tested on one cohort, and leaves a folder that says so."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from small_runs import PROTOCOL, RUN, learnable, outcome, small_store
from torch.nn import functional as F

from psdnorm import domains
from psdnorm.batches import Loader, class_weights
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import score_predictions, subject_metrics
from psdnorm.models import from_pretrained
from psdnorm.store import Store
from psdnorm.training import Protocol, Run, network, train_run
from psdnorm.training import loop as objective
from psdnorm.training import train as runs
from psdnorm.training.predict import predict_nights
from psdnorm.training.run import TRAINED_NORMS

TRANSFORMER = replace(
    PROTOCOL,
    model_arguments={"channels": [4, 8, 8], "strides": [3, 2, 2], "n_layers": 1, "n_heads": 2},
)


def split_of(store, run, protocol=PROTOCOL):
    return runs.split_of(store, run, protocol)


@pytest.fixture(scope="module")
def finished(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "psd"
    return train_run(store, RUN, PROTOCOL, folder, keep="weights")


@pytest.mark.parametrize("norm", TRAINED_NORMS)
def test_every_norm_runs(store, tmp_path, norm):
    protocol = replace(PROTOCOL, max_epochs=1)
    result = train_run(store, Run("usleep", norm, hold_out="mno"), protocol, tmp_path)
    assert 0 <= result.balanced_accuracy <= 1
    assert (result.subjects, result.epochs, result.best_epoch) == (3, 1, 0)


def test_the_other_model_runs(store, tmp_path):
    run = Run("cnn-transformer", "psd", hold_out="xyz")
    assert train_run(store, run, TRANSFORMER, tmp_path).steps > 0


def test_the_folder_says_what_was_done(store, finished):
    config = json.loads((finished.folder / "config.json").read_text())
    assert Run.from_json(config["cell"]) == RUN
    assert Protocol.from_json(config["protocol"]) == PROTOCOL
    assert (config["recipe"], config["recipe_sha256"]) == (store.recipe, store.hash)
    assert config["simulated"] is True
    assert config["data"]["test"]["cohorts"] == ["abc"]
    assert config["data"]["train"]["cohorts"] == ["mno", "xyz"]
    assert not (finished.folder / "resume.pt").exists()


def test_the_history_has_a_row_per_epoch(finished):
    history = pd.read_csv(finished.folder / "history.csv")
    assert history["epoch"].tolist() == [0, 1, 2]
    assert history["validation_loss"].idxmin() == finished.best_epoch
    assert history["train_loss"].is_monotonic_decreasing
    assert (finished.folder / "tensorboard").is_dir()


def test_predictions_cover_every_held_out_epoch_and_give_the_scores(store, finished):
    predictions = pd.read_parquet(finished.folder / "predictions.parquet")
    held_out = store.index[store.index["cohort"] == "abc"]
    assert len(predictions) == held_out["epochs"].sum()
    for _, row in held_out.iterrows():
        night = predictions[predictions["recording"] == row["recording"]]
        assert night["epoch"].tolist() == list(range(row["epochs"]))
        assert night["true"].tolist() == np.frombuffer(row["stages"], np.int8).tolist()
    scores = score_predictions(predictions)
    pd.testing.assert_frame_equal(scores, finished.scores, check_exact=False)
    mean = subject_metrics(scores)["balanced_accuracy"].mean()
    assert finished.balanced_accuracy == pytest.approx(mean, abs=0)


def test_the_weights_that_are_kept_are_those_that_predicted(store, finished):
    model = from_pretrained(finished.folder / "weights")
    assert model.card["recipe"] == store.recipe
    assert model.card["training_data"]["cohorts"] == ["mno", "xyz"]
    test = split_of(store, RUN).test
    options = {"length": 9, "stride": 5, "batch_size": 4}
    found = [p for _, p, _ in predict_nights(model, store, test, **options)]
    kept = pd.read_parquet(finished.folder / "predictions.parquet")
    columns = [f"p{i}" for i in range(5)]
    assert np.array_equal(np.concatenate(found), kept[columns].to_numpy())


def test_the_validation_loss_is_one_mean_over_all_that_validates(store, finished):
    model = from_pretrained(finished.folder / "weights")
    split = split_of(store, RUN)
    loader = Loader(store, split.validation, batch_size=1000, length=9, stride=5, seed=None)
    ((x, stages),) = loader.epoch(0)
    with torch.no_grad():
        weights = class_weights(split.train)
        loss = F.cross_entropy(model(x), stages, weights, ignore_index=-1).item()
    history = pd.read_csv(finished.folder / "history.csv")
    assert history["validation_loss"][finished.best_epoch] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("batch_size", [4, 64])  # nights have 7 to 9 windows
def test_with_nights_as_domains_the_validation_loss_is_that_of_whole_nights(
    store, tmp_path, batch_size
):
    run, protocol = replace(RUN, norm="psd-night-unit"), replace(PROTOCOL, batch_size=batch_size)
    train_run(store, run, protocol, tmp_path, keep="weights")
    model = from_pretrained(tmp_path / "weights")
    split = split_of(store, run)
    weights, sums = class_weights(split.train), 0
    for i in range(len(split.validation)):
        night = split.validation.iloc[[i]]
        options = {"batch_size": 1000, "length": 9, "stride": 5, "only_scored": False}
        ((x, stages),) = Loader(store, night, **options, seed=None).epoch(0)
        with torch.no_grad(), domains([0] * len(x)):
            sums = sums + objective.weighted_sums(model(x), stages, weights)
    history = pd.read_csv(tmp_path / "history.csv")
    expected = float(sums[0] / sums[1])
    assert history["validation_loss"].min() == pytest.approx(expected, rel=1e-5)


def test_with_nights_as_domains_a_step_of_training_knows_the_nights(store, tmp_path, monkeypatch):
    told, real = [], objective.domains
    monkeypatch.setattr(objective, "domains", lambda ids: told.append([*ids]) or real(ids))
    protocol = replace(PROTOCOL, max_epochs=2, batch_size=6, sequences_per_night=3)
    train_run(store, replace(RUN, norm="psd-night"), protocol, tmp_path)
    index = split_of(store, RUN).train
    options = {"length": 9, "stride": 5, "last": "fill", "seed": 0}
    loader = Loader(store, index, batch_size=6, sequences_per_night=3, **options)
    expected = [[*nights] for epoch in (0, 1) for nights in loader.nights(epoch)]
    assert told == expected
    assert max(len(set(ids)) for ids in told) < 6


@pytest.mark.parametrize(
    ("keep", "files"),
    [("scores", set()), ("predictions", {"predictions.parquet"})],
)
def test_no_more_is_kept_than_was_asked_for(store, tmp_path, keep, files):
    train_run(store, RUN, replace(PROTOCOL, max_epochs=1), tmp_path, keep=keep)
    found = set(outcome(tmp_path)) - {"config.json", "history.csv", "scores.parquet"}
    assert found == files


def test_a_finished_run_is_not_repeated(store, finished, monkeypatch):
    monkeypatch.setattr(runs, "learn", None)
    assert train_run(store, RUN, PROTOCOL, finished.folder) == finished


def test_a_finished_run_that_kept_less_is_refused(store, tmp_path):
    protocol = replace(PROTOCOL, max_epochs=1)
    train_run(store, RUN, protocol, tmp_path)
    with pytest.raises(ArgumentError, match="was finished with keep='scores', found keep='weights"):
        train_run(store, RUN, protocol, tmp_path, keep="weights")


def test_a_folder_of_another_run_is_refused(store, finished, tmp_path):
    with pytest.raises(ArgumentError, match=r"holds another run, whose .* differs in cell"):
        train_run(store, replace(RUN, seed=1), PROTOCOL, finished.folder)
    with pytest.raises(ArgumentError, match="differs in protocol"):
        train_run(store, RUN, replace(PROTOCOL, lr=1e-2), finished.folder)
    other = small_store(tmp_path / "more", [*map(_night, store.index["recording"]), EXTRA])
    with pytest.raises(ArgumentError, match="differs in data"):
        train_run(other, RUN, PROTOCOL, finished.folder)


EXTRA = learnable("xyz-9", 40)


def _night(recording):
    number = int(recording[-1])
    gain = 1 + ["abc", "mno", "xyz"].index(recording[:3])
    return learnable(recording, 38 + 3 * number, gain=gain)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"keep": "all"}, "keep is 'all', expected one of scores, predictions, weights"),
        ({"devices": 3}, "batch_size is 4, expected a multiple of the 3 devices"),
        ({"device": "tpu"}, "device is 'tpu', expected 'auto', 'cpu' or 'cuda'"),
        ({"save_every_steps": 0}, "save_every_steps must be a whole number from 1 on"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(store, tmp_path, wrong, said):
    with pytest.raises(ArgumentError, match=said):
        train_run(store, RUN, PROTOCOL, tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_built_is_refused_by_name(store, tmp_path):
    for arguments, said in (({"layers": 3}, "do not build a usleep"), ({"norm": "psd"}, "'norm'")):
        with pytest.raises(ArgumentError, match=said):
            train_run(store, RUN, replace(PROTOCOL, model_arguments=arguments), tmp_path / said)


def test_a_cohort_that_is_not_there_is_refused_by_name(store, tmp_path):
    with pytest.raises(ArgumentError, match="hold_out is 'CHAT', expected one of abc, mno, xyz"):
        train_run(store, replace(RUN, hold_out="CHAT"), PROTOCOL, tmp_path)


def test_a_store_with_nobody_to_validate_is_refused(tmp_path):
    store = small_store(tmp_path / "store", [learnable("abc-1"), learnable("xyz-1")])
    with pytest.raises(
        ArgumentError, match="has no subjects left for validation when abc is held out"
    ):
        train_run(store, RUN, PROTOCOL, tmp_path / "run")


def test_runs_of_one_shape_compile_once_and_leave_no_trace(store, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(network, "_latest", {})
    real = network.accelerate
    monkeypatch.setattr(
        network, "accelerate", lambda *args, **kw: made.append(args) or real(*args, **kw)
    )
    protocol = replace(PROTOCOL, max_epochs=1)
    train_run(store, RUN, protocol, tmp_path / "fresh", keep="weights")
    train_run(store, replace(RUN, seed=1, hold_out="mno"), protocol, tmp_path / "other")
    train_run(store, RUN, protocol, tmp_path / "after", keep="weights")
    assert len(made) == 1
    assert outcome(tmp_path / "fresh") == outcome(tmp_path / "after")


def test_a_run_leaves_the_callers_generators_and_settings_alone(store, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_run(store, RUN, replace(PROTOCOL, max_epochs=1), tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_seed_decides_the_first_weights_and_the_order(store, tmp_path, monkeypatch):
    split, real, learned_from = split_of(store, RUN), objective.weighted_sums, []

    def weighted_sums(logits, stages, weights):
        if logits.requires_grad:
            learned_from.append(stages)
        return real(logits, stages, weights)

    monkeypatch.setattr(runs, "split_of", lambda *_: split)  # which the seed decides, too
    monkeypatch.setattr(objective, "weighted_sums", weighted_sums)
    first, order = [], []
    still = replace(PROTOCOL, lr=1e-30, max_epochs=1)  # ends with the weights that it began with
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        train_run(store, replace(RUN, seed=seed), still, folder, keep="weights")
        drawn = from_pretrained(folder / "weights").parameters()
        first.append(torch.cat([value.flatten() for value in drawn if value.dim() > 1]))
        order.append(torch.cat(learned_from))
        learned_from.clear()
    assert (first[0] == first[1]).float().mean() < 0.01
    assert not torch.equal(*order)


def test_the_seed_decides_who_validates(store):
    validating = {
        tuple(split_of(store, replace(RUN, seed=seed)).validation["recording"]) for seed in range(5)
    }
    assert len(validating) > 1


@pytest.mark.parametrize("norm", ["batch", "psd", "psd-night"])
def test_norms_measure_at_every_step_of_training_and_at_no_other(store, tmp_path, norm):
    protocol = replace(PROTOCOL, max_epochs=1)
    result = train_run(store, replace(RUN, norm=norm), protocol, tmp_path, keep="weights")
    weights = from_pretrained(tmp_path / "weights").state_dict()
    measured = [weights[name] for name in weights if name.endswith("num_batches_tracked")]
    assert len(measured) > 2
    assert all((n_batches == result.steps).all() for n_batches in measured)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch", "psd", "psd-night"])
def test_it_learns_a_tiny_set_by_heart(store, tmp_path, norm):
    protocol = replace(PROTOCOL, lr=1e-2, max_epochs=60, patience=60)
    run = Run("usleep", norm, hold_out="abc")
    train_run(store, run, protocol, tmp_path, keep="weights")
    model = from_pretrained(tmp_path / "weights")
    train = split_of(store, run).train
    right = []
    for night, probabilities, _ in predict_nights(model, store, train, length=9, stride=5):
        true = np.frombuffer(train["stages"].iloc[night], np.int8)
        right.append((probabilities.argmax(axis=1) == true)[true >= 0])
    assert np.concatenate(right).mean() > 0.95


def test_the_store_can_be_opened_by_its_path(store, tmp_path, finished):
    again = train_run(Store.open(store.path), RUN, PROTOCOL, tmp_path, keep="weights")
    assert outcome(again.folder) == outcome(finished.folder)
