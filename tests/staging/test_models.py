"""The model that stages knows its recipe, or is refused in one sentence."""

import json

import numpy as np
import pytest
import torch
from small_runs import small_store
from small_stagers import small_model, small_network

from psdnorm.errors import CheckpointError
from psdnorm.prepare.recipe import RECIPES
from psdnorm.staging import load_model, models
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter

ROBUST = RECIPES["robust"].to_dict()


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_brings_its_recipe_and_no_notice(tmp_path):
    model = load_model(small_model(tmp_path / "mine", recipe="paper"))
    assert model.recipe == RECIPES["paper"]
    assert model.notice is None
    card = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert model.description["sha256"] == card["weights"]["sha256"]
    assert (model.description["name"], model.description["norm"]) == ("mine", "psd")
    assert not model.network.training


def test_the_folder_of_a_run_is_loaded_by_its_weights(tmp_path):
    small_model(tmp_path / "run" / "weights")
    (tmp_path / "run" / "config.json").write_text("{}")  # the run's own
    assert load_model(tmp_path / "run").description["name"] == "run"


def test_the_model_in_the_box_carries_the_notice(tmp_path, monkeypatch):
    small_model(tmp_path / "shipped")
    monkeypatch.setattr(models.resources, "files", lambda package: tmp_path)
    assert load_model().notice == "For research and demonstration, not for diagnosis."


def test_without_a_model_in_the_box_the_flag_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(models.resources, "files", lambda package: tmp_path)
    assert "--model" in refusal(None)


def test_a_run_that_kept_no_weights_says_how_to_keep_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "--keep weights" in refusal(tmp_path)


def test_models_that_cannot_stage_raise(tmp_path):
    assert "is not a folder" in refusal(tmp_path / "nowhere")
    small_network().save_pretrained(tmp_path / "a")
    assert "does not say how its recordings were prepared" in refusal(tmp_path / "a")
    small_network().save_pretrained(tmp_path / "b", recipe=ROBUST, stages=list("abcde"))
    assert "as stages, expected W, N1, N2, N3, REM" in refusal(tmp_path / "b")
    small_network().save_pretrained(tmp_path / "c", recipe=ROBUST | {"version": 99})
    assert "version is 99" in refusal(tmp_path / "c")
    small_network().save_pretrained(tmp_path / "d", recipe=ROBUST | {"n_channels": 1})
    assert "takes 2 channels of 3000 samples" in refusal(tmp_path / "d")


@pytest.mark.parametrize(
    "facts",
    [
        {"cell": {"norm": "tma", "filter_size": 5}},
        {"cell": {"norm": "tma", "filter_size": 5}, "sqrt_barycenter": [[1.0, 2.0]] * 2},
        {"cell": {"norm": "tma"}, "sqrt_barycenter": [[1.0, 2.0, 3.0]] * 2},
        {"sqrt_barycenter": [[1.0, 2.0, 3.0]] * 2},
    ],
)
def test_a_model_of_aligned_nights_without_its_barycenter_raises(tmp_path, facts):
    small_model(tmp_path, training_data=facts)
    assert "(TMA) but does not say onto what" in refusal(tmp_path)


def test_a_model_of_aligned_nights_sees_them_aligned_as_in_training(tmp_path):
    store = small_store(tmp_path / "store")
    names = store.index["recording"].tolist()
    barycenter = training_barycenter(store, names, 5, torch.device("cpu"))
    facts = {"cell": {"norm": "tma", "filter_size": 5}, "sqrt_barycenter": barycenter.tolist()}
    aligned = AlignedStore(store, barycenter, 5, torch.device("cpu"))
    recipe = ROBUST | {"dtype": store.layout.dtype}
    network = small_network()
    network.save_pretrained(tmp_path / "model", recipe=recipe, training_data=facts)
    model = load_model(tmp_path / "model")
    shown = model.inputs(store.signals(names[0]))
    np.testing.assert_array_equal(shown, aligned.signals(names[0]))
    assert not np.array_equal(shown, store.signals(names[0]))


def test_other_models_see_nights_as_they_were_prepared(tmp_path):
    signals = np.ones((3, 2, 3000), np.float16)
    assert load_model(small_model(tmp_path)).inputs(signals) is signals
