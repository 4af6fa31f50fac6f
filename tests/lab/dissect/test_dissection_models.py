"""Networks of a dissection: missing weights are reported once, and earlier predictions count."""

import json

import pytest

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import FORMAT, ExperimentFolder, complete
from psdnorm.lab.dissect.dissection import (
    Dissection,
    begun_with,
    claim_dissection,
    find_models,
    predicted_folder,
    predicting_order,
)
from psdnorm.lab.dissect.shifts import conditions_of
from psdnorm.training import Run

BATCH, PSD, TMA = (Run("usleep", norm, hold_out="SHHS") for norm in ("batch", "psd", "tma"))
ADABN = Run("usleep", "adabn3", hold_out="SHHS")
CONDITIONS = tuple(conditions_of(["gain"]))


def grid(folder, runs, weights=()):
    """A folder of finished runs; some kept weights."""
    folder.mkdir(parents=True)
    listed = [{"cell": run.to_json(), "sequences": 1} for run in runs]
    (folder / "grid.json").write_text(json.dumps({"format": FORMAT, "cells": listed}))
    experiment = ExperimentFolder(folder)
    for run in runs:
        experiment.folder(run).mkdir(parents=True)
        (experiment.folder(run) / "done.json").touch()
    for run in weights:
        (experiment.folder(run) / "weights").mkdir()
        (experiment.folder(run) / "weights" / "model.safetensors").touch()
    return experiment


def predicted(out, run, conditions):
    """The traces of a network that predicted some conditions; none: it was only begun."""
    for condition in conditions:
        predicted_folder(out, run, condition).mkdir(parents=True)
        (predicted_folder(out, run, condition) / "scores.parquet").touch()
    (out / "scores" / run.name).mkdir(parents=True, exist_ok=True)
    (out / "scores" / run.name / "weights.json").touch()


def test_a_network_without_weights_counts_with_what_it_predicted_and_is_named_once(tmp_path):
    experiment, out = grid(tmp_path / "runs", [BATCH, ADABN, PSD, TMA]), tmp_path / "out"
    predicted(out, BATCH, CONDITIONS)
    predicted(out, ADABN, CONDITIONS[:3])
    predicted(out, PSD, CONDITIONS[:2])
    predicted(out, TMA, ())
    found = find_models(experiment, out, CONDITIONS)
    assert found.runs == [BATCH, ADABN, PSD]
    assert found.skipped == []
    assert found.gone == [
        f"{ADABN.name} counts with 3 of 4 conditions: the weights of {BATCH.name} were gone before "
        "it predicted the others",
        f"{PSD.name} counts with 2 of 4 conditions: its weights were gone before it predicted the "
        "others",
        f"{TMA.name} is left out: its weights were gone before it predicted a night with and "
        "without a shift",
    ]


def test_scores_that_do_not_say_of_which_weights_they_are_do_not_count(tmp_path):
    experiment, out = grid(tmp_path / "runs", [BATCH, PSD], weights=[BATCH]), tmp_path / "out"
    predicted(out, PSD, CONDITIONS)
    (out / "scores" / PSD.name / "weights.json").unlink()
    found = find_models(experiment, out, CONDITIONS)
    assert found.runs == [BATCH]
    assert found.skipped == [f"{PSD.name} is left out: it kept no weights"]


@pytest.mark.parametrize("there", [CONDITIONS[:1], CONDITIONS[1:]])
def test_a_network_without_weights_that_has_no_loss_to_show_is_left_out(tmp_path, there):
    experiment, out = grid(tmp_path / "runs", [BATCH, PSD], weights=[BATCH]), tmp_path / "out"
    predicted(out, PSD, there)
    found = find_models(experiment, out, CONDITIONS)
    assert found.runs == [BATCH]
    assert f"{PSD.name} is left out" in found.gone[0]


def test_only_requested_conditions_can_be_missing(tmp_path):
    experiment, out = grid(tmp_path / "runs", [PSD]), tmp_path / "out"
    predicted(out, PSD, CONDITIONS)
    assert find_models(experiment, out, CONDITIONS).gone == []
    (sentence,) = find_models(experiment, out, conditions_of(["gain", "age"])).gone
    assert "counts with 4 of 7 conditions" in sentence


def test_runs_that_never_kept_weights_are_skipped_and_the_others_are_found(tmp_path):
    experiment = grid(tmp_path / "runs", [BATCH, ADABN, TMA, PSD], weights=[TMA, PSD])
    (experiment.folder(PSD) / "done.json").unlink()
    found = find_models(experiment, tmp_path / "out", CONDITIONS)
    assert found.runs == [TMA]
    assert found.gone == []
    assert found.skipped == [
        f"{BATCH.name} is left out: it kept no weights",
        f"{ADABN.name} is left out: {BATCH.name} kept no weights",
        f"{PSD.name} is left out: it is not finished",
    ]


def test_a_folder_without_a_grid_weights_or_scores_raises(tmp_path):
    with pytest.raises(ArgumentError, match="has no grid"):
        find_models(ExperimentFolder(tmp_path / "none"))
    experiment, out = grid(tmp_path / "runs", [PSD]), tmp_path / "out"
    with pytest.raises(ArgumentError, match="has no finished run with weights, expected some"):
        find_models(experiment, out, CONDITIONS)
    predicted(out, PSD, ())
    with pytest.raises(ArgumentError, match=r"and .*out has no loss of any"):
        find_models(experiment, out, CONDITIONS)


def test_nothing_is_left_to_simulate_or_predict_for_networks_without_weights(tmp_path):
    experiment, out = grid(tmp_path / "runs", [BATCH, PSD], weights=[BATCH]), tmp_path / "out"
    predicted(out, BATCH, CONDITIONS[:3])
    predicted(out, PSD, CONDITIONS[:2])
    found = Dissection(experiment, out, (BATCH, PSD), CONDITIONS, subjects=1, hours=0.1)
    assert found.left() == [(BATCH, CONDITIONS[3])]


def test_psdnorm_predicts_first_then_batch_norm_with_its_kin_each_shape_compiled_once():
    axes = [("layer", 0), ("psd", 0), ("tma", 0), ("instance", 0), ("batch", 0), ("batch", 1)]
    axes += [("psd", 1), ("tma", 1)]
    runs = [Run("usleep", norm, hold_out="SHHS", seed=seed) for norm, seed in axes]
    order = predicting_order(complete([*runs, ADABN]))
    assert [[(run.norm, run.seed) for run in unit] for unit in order] == [
        [("psd", 0)],
        [("psd", 1)],
        [("batch", 0), ("adabn3", 0)],
        [("batch", 1)],
        [("tma", 0)],
        [("tma", 1)],
        [("instance", 0)],
        [("layer", 0)],
    ]


def test_filter_sizes_of_psdnorm_are_predicted_one_after_the_other_not_seed_by_seed():
    axes = [(5, 0), (17, 0), (5, 1), (17, 1)]
    runs = [Run("usleep", "psd", f, hold_out="SHHS", seed=seed) for f, seed in axes]
    order = predicting_order(complete(runs))
    assert [(run.filter_size, run.seed) for (run,) in order] == [
        (5, 0),
        (5, 1),
        (17, 0),
        (17, 1),
    ]


NIGHTS = {"subjects": 3, "hours": 1.0, "seed": 0, "recipe": {"name": "paper"}}


@pytest.fixture
def begun(tmp_path):
    claim_dissection(tmp_path / "out", NIGHTS, ["gain"], to_predict=True)
    return tmp_path / "out"


def changed(folder, **others):
    path = folder / "dissection.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **others}))


def test_a_folder_says_what_it_was_begun_with_and_a_new_one_nothing(begun, tmp_path):
    found = begun_with(begun)
    assert {name: found[name] for name in NIGHTS} == NIGHTS
    assert found["kinds"] == ["gain"]
    assert begun_with(tmp_path / "new") == {}


def test_kinds_are_added_and_none_is_forgotten(begun):
    claim_dissection(begun, NIGHTS, ["age", "response"], to_predict=True)
    claim_dissection(begun, NIGHTS, ["age"], to_predict=True)
    assert begun_with(begun)["kinds"] == ["gain", "response", "age"]


def test_a_folder_to_which_nothing_is_added_is_not_written_to(begun):
    before = (begun / "dissection.json").stat()
    claim_dissection(begun, NIGHTS, ["gain"], to_predict=False)
    after = (begun / "dissection.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_folder_that_says_no_kinds_stays_one_of_all(begun):
    path = begun / "dissection.json"
    document = json.loads(path.read_text())
    del document["kinds"]
    path.write_text(json.dumps(document))
    claim_dissection(begun, NIGHTS, ["age"], to_predict=True)
    assert len(begun_with(begun)["kinds"]) == 8


@pytest.mark.parametrize(("name", "value"), [("subjects", 2), ("hours", 0.5), ("seed", 1)])
def test_other_nights_raise_even_where_nothing_is_predicted(begun, name, value):
    with pytest.raises(ArgumentError, match=f"was started with {name}"):
        claim_dissection(begun, {**NIGHTS, name: value}, ["gain"], to_predict=False)


def test_scores_of_another_version_may_be_reported_but_not_added_to(begun):
    changed(begun, psdnorm="0.0.1")
    claim_dissection(begun, NIGHTS, ["gain"], to_predict=False)
    assert begun_with(begun)["psdnorm"] == "0.0.1"
    with pytest.raises(ArgumentError, match=f"psdnorm '0.0.1', found '{psdnorm.__version__}'"):
        claim_dissection(begun, NIGHTS, ["gain"], to_predict=True)


def test_a_folder_of_something_else_raises_and_an_empty_one_is_taken(tmp_path):
    claim_dissection(tmp_path, NIGHTS, ["gain"], to_predict=True)
    (tmp_path / "dissection.json").rename(tmp_path / "mine.json")
    with pytest.raises(ArgumentError, match="holds something other than a dissection"):
        claim_dissection(tmp_path, NIGHTS, ["gain"], to_predict=True)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"format": 9}, "is not of a dissection"),
        ({"subjects": "3"}, "'3' as subjects, expected int"),
        ({"subjects": 2.5}, "2.5 as subjects, expected int"),
        ({"seed": True}, "True as seed, expected int"),
        ({"hours": None}, "None as hours, expected float"),
        ({"kinds": ["hum"]}, r"\['hum'\] as kinds"),
        ({"kinds": [["gain"]]}, "as kinds"),
        ({"kinds": "gain"}, "'gain' as kinds"),
    ],
)
def test_an_invalid_settings_file_raises_with_its_name(begun, others, words):
    changed(begun, **others)
    with pytest.raises(ArgumentError, match=f"dissection.json .*{words}"):
        begun_with(begun)
