"""Weights of a dissection are checked before its nights are simulated."""

import json
import shutil
from dataclasses import replace

import pytest
from small_runs import TINY

from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.experiments.grid import FORMAT, ExperimentFolder
from psdnorm.lab.dissect.dissection import (
    Dissection,
    find_models,
    predicted_folder,
    trained_for,
    without_damaged,
)
from psdnorm.lab.dissect.shifts import conditions_of
from psdnorm.prepare.recipe import RECIPES
from psdnorm.store import Store
from psdnorm.training import Run
from psdnorm.training.network import build_model

RECIPE = RECIPES["paper"]
BATCH, PSD = (Run("usleep", norm, norm_depth=2, hold_out="SHHS") for norm in ("batch", "psd"))
ADABN = Run("usleep", "adabn3", hold_out="SHHS")
RUNS = [BATCH, ADABN, PSD]
CONDITIONS = tuple(conditions_of(["gain"]))


@pytest.fixture
def experiment(tmp_path):
    """A folder of runs that kept their first weights."""
    experiment = ExperimentFolder(tmp_path / "runs")
    for run in (BATCH, PSD):
        model = build_model(run, TINY, RECIPE.layout())
        model.save_pretrained(
            experiment.folder(run) / "weights",
            recipe=RECIPE.to_dict(),
            training_data={"cell": run.to_json()},
        )
    for run in RUNS:
        experiment.folder(run).mkdir(parents=True, exist_ok=True)
        (experiment.folder(run) / "done.json").touch()
        (experiment.folder(run) / "config.json").write_text(
            json.dumps({"recipe": RECIPE.to_dict()})
        )
    listed = [{"cell": run.to_json(), "sequences": 1} for run in RUNS]
    grid = {"format": FORMAT, "protocol": TINY.to_json(), "cells": listed}
    (experiment.path / "grid.json").write_text(json.dumps(grid))
    return experiment


def planned(experiment, out):
    return Dissection(
        experiment, out, tuple(find_models(experiment).runs), CONDITIONS, subjects=1, hours=0.1
    )


def truncated(experiment):
    path = experiment.folder(BATCH) / "weights" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    return f"{path} has 1000 bytes, expected "


def of_another_run(experiment):
    folder = experiment.folder(BATCH) / "weights"
    shutil.rmtree(folder)
    shutil.copytree(experiment.folder(PSD) / "weights", folder)
    return f"{folder} has a network whose norm is 'psd', expected 'batch' as {BATCH.name} has it"


def of_another_shape(experiment):
    folder = experiment.folder(BATCH) / "weights"
    card = json.loads((folder / "config.json").read_text())
    card["arguments"]["n_time_filters"] += 1
    (folder / "config.json").write_text(json.dumps(card))
    return f"{folder / 'model.safetensors'} does not fit the USleep of config.json: "


def without_a_card(experiment):
    (experiment.folder(BATCH) / "weights" / "config.json").unlink()
    return f"{experiment.folder(BATCH) / 'weights' / 'config.json'} does not exist"


def predicted(found, run, conditions):
    """The traces of a network that predicted some conditions with the weights that it has now."""
    found.claim()
    for condition in conditions:
        predicted_folder(found.out, run, condition).mkdir(parents=True)
        (predicted_folder(found.out, run, condition) / "scores.parquet").touch()


DAMAGES = [truncated, of_another_run, of_another_shape, without_a_card]


def test_sound_weights_are_not_found_damaged(experiment, tmp_path):
    assert planned(experiment, tmp_path / "out").damaged() == {}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_used_is_named_with_its_kin_and_not_with_others(
    experiment, tmp_path, damage
):
    sentence = damage(experiment)
    found = planned(experiment, tmp_path / "out").damaged()
    assert found.keys() == {BATCH, ADABN}
    assert found[BATCH] == found[ADABN]
    assert found[BATCH].startswith(sentence)


def test_networks_that_are_damaged_have_nothing_left_and_the_others_have_all(experiment, tmp_path):
    truncated(experiment)
    found = planned(experiment, tmp_path / "out")
    damaged = found.damaged()
    models = without_damaged(find_models(experiment), experiment, found.out, CONDITIONS, damaged)
    assert models.runs == [PSD]
    assert [sentence.split(":")[0] for sentence in models.gone] == [
        f"{BATCH.name} is left out",
        f"{ADABN.name} is left out",
    ]


def test_what_was_predicted_before_the_weights_were_damaged_counts(experiment, tmp_path):
    found = planned(experiment, tmp_path / "out")
    predicted(found, BATCH, CONDITIONS[:3])
    predicted(found, ADABN, CONDITIONS)
    reason = truncated(experiment)
    damaged = found.damaged()
    models = without_damaged(find_models(experiment), experiment, found.out, CONDITIONS, damaged)
    assert models.runs == RUNS
    (sentence,) = models.gone
    assert sentence.startswith(f"{BATCH.name} counts with 3 of 4 conditions: {reason}")
    now = Dissection(
        experiment, found.out, tuple(RUNS), CONDITIONS, 1, 0.1, unable=frozenset(damaged)
    )
    assert {run for run, _ in now.left()} == {PSD}
    now.claim()  # though the files differ from those that predicted


def test_valid_weights_other_than_those_that_predicted_raise(experiment, tmp_path):
    found = planned(experiment, tmp_path / "out")
    predicted(found, PSD, CONDITIONS)
    folder = experiment.folder(PSD) / "weights"
    fresh = build_model(PSD, TINY, RECIPE.layout())
    fresh.save_pretrained(folder, recipe=RECIPE.to_dict(), training_data={"cell": PSD.to_json()})
    assert found.damaged() == {}
    with pytest.raises(ArgumentError, match="is of other weights than"):
        found.claim()


def test_if_all_weights_are_damaged_the_error_has_the_reason(experiment, tmp_path):
    found = planned(experiment, tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"no network that can predict.*: torn$"):
        without_damaged(
            find_models(experiment), experiment, found.out, CONDITIONS, dict.fromkeys(RUNS, "torn")
        )


def test_a_network_for_other_nights_raises(experiment, tmp_path):
    recipe = RECIPES["robust"]
    store = Store.plan(tmp_path / "nights", recipe.to_dict(), recipe.layout())
    with pytest.raises(ArgumentError, match="expects nights of the recipe paper"):
        trained_for(experiment, PSD, store)


def test_a_network_of_another_filter_size_raises(experiment, tmp_path):
    other = Run("usleep", "psd", 17, norm_depth=2, hold_out="SHHS")
    shutil.copytree(experiment.folder(PSD), experiment.folder(other))
    store = Store.plan(tmp_path / "nights", RECIPE.to_dict(), RECIPE.layout())
    with pytest.raises(CheckpointError, match=r"whose filter_size is 5, expected 17 as usleep_psd"):
        trained_for(experiment, other, store)


@pytest.mark.parametrize(("own", "expected"), [(0.05, 1.0), (1.0, 0.05)])
def test_a_network_that_sees_its_input_at_another_scale_raises(experiment, tmp_path, own, expected):
    for scale in (own, expected):
        arguments = TINY.model_arguments | {"input_scale": scale}
        protocol = replace(TINY, model_arguments=arguments)
        if scale == own:
            build_model(PSD, protocol, RECIPE.layout()).save_pretrained(
                experiment.folder(PSD) / "weights", recipe=RECIPE.to_dict()
            )
    grid = json.loads((experiment.path / "grid.json").read_text())
    (experiment.path / "grid.json").write_text(json.dumps(grid | {"protocol": protocol.to_json()}))
    store = Store.plan(tmp_path / "nights", RECIPE.to_dict(), RECIPE.layout())
    with pytest.raises(CheckpointError, match="has a network whose input_scale is"):
        trained_for(experiment, PSD, store)


def test_a_network_of_aligned_nights_that_does_not_say_onto_what_raises(experiment, tmp_path):
    tma = Run("usleep", "tma", norm_depth=None, hold_out="SHHS")
    build_model(tma, TINY, RECIPE.layout()).save_pretrained(
        experiment.folder(tma) / "weights",
        recipe=RECIPE.to_dict(),
        training_data={"cell": tma.to_json()},
    )
    store = Store.plan(tmp_path / "nights", RECIPE.to_dict(), RECIPE.layout())
    with pytest.raises(CheckpointError, match=r"aligned nights \(TMA\) but does not say onto what"):
        trained_for(experiment, tma, store)
