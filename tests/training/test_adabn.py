"""AdaBN evaluates the network of a BatchNorm run with statistics of each held-out subject."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from small_runs import LAYOUT, PROTOCOL, learnable, nights, small_store
from stores import tree

from psdnorm.adaptation import adapt_batchnorm
from psdnorm.batches import Loader
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import score_predictions
from psdnorm.models import from_pretrained
from psdnorm.training import Run, predict_nights, train_run
from psdnorm.training.network import Network, build_model
from psdnorm.training.predict import adapted_predictions
from psdnorm.training.train import run_adapted

SHORT = replace(PROTOCOL, max_epochs=1)
RUN = Run("usleep", "adabn2", hold_out="abc")
WINDOWS = {"batch_size": 4, "length": 9, "stride": 5}
# a subject who came twice, in another order than that of the visits
SECOND = learnable("abc-00", 31, gain=5.0, subject="1", visit="2")


def two_visits(stages=None):
    made = [*nights(), SECOND]
    if stages is not None:
        made = [
            replace(n, stages=np.full_like(n.stages, stages)) if n.cohort == "abc" else n
            for n in made
        ]
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store, and the folder of its BatchNorm run."""
    root = tmp_path_factory.mktemp("adabn")
    store = small_store(root / "store", two_visits())
    train_run(store, RUN.base, SHORT, root / "batch", keep="weights")
    return store, root / "batch"


@pytest.fixture(scope="module")
def adapted(trained, tmp_path_factory):
    store, base = trained
    folder = tmp_path_factory.mktemp("adapted")
    run_adapted(store, RUN, SHORT, folder, base, keep="predictions")
    return folder


def by_hand(store, base, rows, layers):
    model = from_pretrained(base / "weights").eval()
    loader = Loader(store, rows, seed=None, only_scored=False, **WINDOWS)
    windows = [x for x, _ in loader.epoch(0)]
    with adapt_batchnorm(model, windows, layers):
        return {
            rows["recording"].iloc[night]: probabilities
            for night, probabilities, _ in predict_nights(model, store, rows, **WINDOWS)
        }


def test_a_subject_is_predicted_as_by_adapting_the_network_by_hand_to_all_its_visits(
    trained, adapted
):
    store, base = trained
    kept = pd.read_parquet(adapted / "predictions.parquet")
    index = store.index[store.index["cohort"] == "abc"]
    rows = index[index["subject"] == "1"]
    assert set(rows["visit"]) == {"", "2"}
    expected = by_hand(store, base, rows, 2)
    for recording, probabilities in expected.items():
        found = kept[kept["recording"] == recording].filter(regex=r"p\d").to_numpy()
        assert np.array_equal(found, probabilities)
    one_visit = by_hand(store, base, rows[rows["visit"] == ""], 2)
    assert not np.allclose(one_visit["abc-1"], expected["abc-1"])


def test_every_night_is_predicted_once_and_scored_as_any_other_run(trained, adapted):
    store, _ = trained
    kept = pd.read_parquet(adapted / "predictions.parquet")
    held_out = store.index[store.index["cohort"] == "abc"]
    assert kept.groupby("recording").size().to_dict() == dict(
        zip(held_out["recording"], held_out["epochs"], strict=True)
    )
    scores = pd.read_parquet(adapted / "scores.parquet")
    pd.testing.assert_frame_equal(score_predictions(kept), scores, check_exact=False)


def test_the_folder_says_whose_network_it_is(trained, adapted):
    config = json.loads((adapted / "config.json").read_text())
    assert Run.from_json(config["cell"]) == RUN
    assert config["weights_of"] == "usleep_batch_abc_all_seed0"
    done, base = (json.loads((f / "done.json").read_text()) for f in (adapted, trained[1]))
    assert done["keep"] == "predictions"
    assert [done[k] for k in ("steps", "epochs")] == [base[k] for k in ("steps", "epochs")]


def test_the_network_is_as_it_was_afterwards(trained, tmp_path):
    store, base = trained
    before = tree(base)
    model = from_pretrained(base / "weights").eval()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    list(adapted_predictions(Network(model, model), store, store.index, SHORT, "all"))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    run_adapted(store, replace(RUN, norm="adabnall"), SHORT, tmp_path, base)
    assert tree(base) == before


def test_the_stages_of_those_who_are_tested_are_not_looked_at(adapted, tmp_path):
    poisoned = small_store(tmp_path / "store", two_visits(stages=3))
    train_run(poisoned, RUN.base, SHORT, tmp_path / "batch", keep="weights")
    run_adapted(poisoned, RUN, SHORT, tmp_path / "adapted", tmp_path / "batch", keep="predictions")
    found, kept = (
        pd.read_parquet(folder / "predictions.parquet")
        for folder in (tmp_path / "adapted", adapted)
    )
    assert (found["true"] == 3).all()
    pd.testing.assert_frame_equal(
        found.drop(columns="true"), kept.drop(columns="true"), check_exact=True
    )


def test_a_stretch_that_nobody_scored_is_adapted_to_as_well(tmp_path):
    night = learnable("abc-0", 40)
    night.signals[8:32] *= 20  # longer than a window, and unlike the rest
    unscored = replace(night, stages=night.stages.copy())
    unscored.stages[8:32] = -1
    torch.manual_seed(0)
    model = build_model(RUN.base, SHORT, LAYOUT).eval()
    found = []
    for name, made in (("scored", night), ("unscored", unscored)):
        store = small_store(tmp_path / name, [made])
        predictions = adapted_predictions(Network(model, model), store, store.index, SHORT, 2)
        ((_, probabilities, _),) = predictions
        found.append(probabilities)
    assert np.array_equal(*found)


def test_all_is_every_batch_norm_and_more_than_there_are_is_refused(trained):
    store, base = trained
    rows = store.index[store.index["recording"] == "abc-0"]
    model = from_pretrained(base / "weights").eval()
    n_layers = sum(isinstance(module, torch.nn.BatchNorm1d) for module in model.modules())
    assert n_layers > 2
    every, counted, fewer = (by_hand(store, base, rows, n) for n in ("all", n_layers, n_layers - 1))
    ((_, found, _),) = adapted_predictions(Network(model, model), store, rows, SHORT, "all")
    assert np.array_equal(found, every["abc-0"])
    assert np.array_equal(found, counted["abc-0"])
    assert not np.array_equal(found, fewer["abc-0"])
    with pytest.raises(ValueError, match=f"expected {n_layers + 1} eligible BatchNorm layers"):
        list(adapted_predictions(Network(model, model), store, rows, SHORT, n_layers + 1))


def test_a_base_that_is_not_trained_or_kept_no_weights_is_named(trained, tmp_path):
    store, _ = trained
    with pytest.raises(ArgumentError, match=r"usleep_batch_abc_all_seed0, which is not trained"):
        run_adapted(store, RUN, SHORT, tmp_path / "adapted", tmp_path / "nothing")
    train_run(store, RUN.base, SHORT, tmp_path / "batch")
    with pytest.raises(ArgumentError, match=r"was finished with keep='scores': delete .*batch to"):
        run_adapted(store, RUN, SHORT, tmp_path / "adapted", tmp_path / "batch")


def test_a_run_knows_its_layers_and_its_base():
    run = Run("usleep", "adabn12", 17, 2, "CHAT", 400, 1)
    assert run == Run("usleep", "adabn12", None, None, "CHAT", 400, 1)
    assert (run.layers, replace(run, norm="adabnall").layers) == (12, "all")
    assert run.base == Run("usleep", "batch", hold_out="CHAT", balanced=400, seed=1)
    assert Run.from_json(run.to_json()) == run


@pytest.mark.parametrize("norm", ["adabn", "adabn0", "adabn-1", "adabn03", "adabnsome"])
def test_other_numbers_of_layers_are_refused(norm):
    with pytest.raises(ArgumentError, match="expected adabn and a number from 1 on, or adabnall"):
        Run("usleep", norm)


def test_what_is_wrong_with_the_base_is_refused_too():
    with pytest.raises(ArgumentError, match="model is 'unet', expected one of"):
        Run("unet", "adabn3")
