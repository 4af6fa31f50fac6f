"""Losses are those of the raw predictions, and zero where nothing is shifted."""

import dataclasses
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from small_runs import TINY

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.evaluation import score_night, subject_metrics
from psdnorm.experiments.estimate import read_cost
from psdnorm.experiments.execute import run_grid
from psdnorm.experiments.grid import ExperimentFolder
from psdnorm.lab.dissect import dissection
from psdnorm.lab.dissect.dissection import (
    Dissection,
    Made,
    Predicted,
    TestNights,
    find_models,
    metered,
    predicted_folder,
)
from psdnorm.lab.dissect.dissection_report import arm_names, interval, read_losses
from psdnorm.lab.dissect.shifts import UNSHIFTED, ShiftCondition
from psdnorm.lab.simulate.cohort_files import add_nights
from psdnorm.lab.simulate.plan import Settings, plan_nights
from psdnorm.models import USleep
from psdnorm.prepare.recipe import RECIPES, Recipe
from psdnorm.store import Store
from psdnorm.training import Run
from psdnorm.training.predict import predict_night

RUNS = [
    Run("usleep", "batch", hold_out="SHHS"),
    Run("usleep", "batch", hold_out="SHHS", seed=1),
    Run("usleep", "adabnall", hold_out="SHHS"),
    Run("usleep", "tma", hold_out="SHHS"),
]
NOTHING = ShiftCondition("gain", 0.0)
CONDITIONS = (UNSHIFTED, NOTHING, ShiftCondition("gain", -12.0), ShiftCondition("scorer", 2.0))


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """The smallest networks, trained at shift 0."""
    root = tmp_path_factory.mktemp("dissected")
    nights = plan_nights(["ABC", "SHHS"], 3, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(root / "store", nights, RECIPES["paper"]))
    store = Store.open(root / "store")
    outcomes = list(run_grid(store, RUNS, TINY, root / "runs", device="cpu", keep="weights"))
    assert {outcome.status for outcome in outcomes} == {"done"}
    return ExperimentFolder(root / "runs")


def planned(experiment, out, **others):
    runs = tuple(find_models(experiment).runs)
    given = {"runs": runs, "conditions": CONDITIONS, "subjects": 3, "hours": 1.0, **others}
    return Dissection(experiment, out, **given)


def predicted_by(dissection):
    dissection.claim()
    made = list(dissection.make_nights())
    return made, list(dissection.predict(device="cpu", fast=False, keep=True))


@pytest.fixture(scope="module")
def finished(experiment, tmp_path_factory):
    found = planned(experiment, tmp_path_factory.mktemp("out") / "out")
    made, predicted = predicted_by(found)
    assert [each.reason for each in (*made, *predicted)] == [""] * (12 + 16)
    return found


def by_hand(predictions):
    """Balanced accuracy of each subject from one file of predictions."""
    central = predictions[predictions["central"] & (predictions["true"] >= 0)]
    said = central[[f"p{n}" for n in range(5)]].to_numpy().argmax(axis=1)
    right = (central["true"] == said).groupby([central["subject"], central["true"]]).mean()
    return right.groupby("subject").mean()


@pytest.mark.slow
def test_the_matrix_is_recomputed_from_raw_predictions_in_a_few_lines(finished):
    matrix = read_losses(finished).matrix.set_index(["arm", "kind", "strength"])
    for arm, runs in (("usleep batch @all", RUNS[:2]), ("usleep tma f5 @all", RUNS[3:])):
        lost = []
        for run in runs:
            plain, shifted = (
                by_hand(
                    pd.read_parquet(
                        predicted_folder(finished.out, run, each) / "predictions.parquet"
                    )
                )
                for each in (UNSHIFTED, CONDITIONS[2])
            )
            lost.append(100 * (plain - shifted))
        row = matrix.loc[(arm, "gain", -12.0)]
        assert row["lost"] == pytest.approx(np.mean([np.mean(each) for each in lost]))
        means = [each.mean() for each in lost]
        if len(means) > 1:
            assert row["seeds_sd"] == pytest.approx(np.std(means, ddof=1))
        else:
            assert np.isnan(row["seeds_sd"])
        assert (row["subjects"], row["trainings"]) == (3, len(runs))


@pytest.mark.slow
def test_strength_zero_loses_exactly_nothing(finished):
    pairs = read_losses(finished).pairs
    nothing = pairs[(pairs["kind"] == "gain") & (pairs["strength"] == 0)]
    assert len(nothing) == 4 * 3
    assert (nothing["lost"] == 0).all()


@pytest.mark.slow
def test_scorer_bias_leaves_every_prediction_as_it_was(finished):
    for run in RUNS:
        plain, biased = (
            pd.read_parquet(predicted_folder(finished.out, run, each) / "predictions.parquet")
            for each in (UNSHIFTED, CONDITIONS[3])
        )
        names = [f"p{n}" for n in range(5)]
        assert np.array_equal(plain[names], biased[names])


@pytest.mark.slow
def test_tma_undoes_a_gain_that_changes_what_batch_norm_says(finished):
    change = {}
    for run in (RUNS[0], RUNS[3]):
        plain, quiet = (
            pd.read_parquet(predicted_folder(finished.out, run, each) / "predictions.parquet")
            for each in (UNSHIFTED, CONDITIONS[2])
        )
        names = [f"p{n}" for n in range(5)]
        change[run.norm] = np.abs(plain[names] - quiet[names]).to_numpy().max()
    assert change["tma"] < 1e-5
    assert change["batch"] > 1e-3


@pytest.mark.slow
def test_adabn_predicts_each_subject_with_statistics_of_the_condition_itself(finished):
    adapted, plain = (
        pd.read_parquet(predicted_folder(finished.out, run, CONDITIONS[2]) / "predictions.parquet")
        for run in (RUNS[2], RUNS[0])
    )
    assert not np.allclose(adapted[["p0", "p1"]], plain[["p0", "p1"]])


def test_arms_of_one_norm_are_distinguished_by_what_differs_and_by_nothing_else():
    runs = [Run("usleep", "psd", f, hold_out="SHHS") for f in ("auto", 17, 5)]
    runs += [Run("usleep", "tma", 9), Run("usleep", "instance"), Run("usleep", "batch")]
    assert list(arm_names(runs).values()) == [
        "BatchNorm",
        "InstanceNorm",
        "TMA (f = 9)",
        "PSDNorm (f = 5)",
        "PSDNorm (f = 17)",
        "PSDNorm (f auto)",
    ]
    depths = [Run("usleep", "psd", norm_depth=depth) for depth in (3, 1)]
    assert list(arm_names(depths).values()) == ["PSDNorm (1 block)", "PSDNorm (3 blocks)"]
    sizes = [Run("usleep", "psd", balanced=n) for n in (5, 40)]
    assert list(arm_names(sizes).values()) == [
        "PSDNorm, U-Sleep, balanced@5",
        "PSDNorm, U-Sleep, balanced@40",
    ]


class PerWindow(torch.nn.Module):
    """A network behind a norm of its whole window."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x / x.std(dim=(1, 3), keepdim=True))


def test_a_network_that_normalises_its_window_loses_nothing_to_gain_and_batch_norm_may(tmp_path):
    torch.manual_seed(0)
    bare = USleep(n_chans=2, n_outputs=5, n_times=3000, sfreq=100, depth=2, n_time_filters=4)
    bare.eval()
    # float32, so that no rounding of a store comes between
    recipe = dataclasses.replace(RECIPES["paper"], dtype="float32", clip=None)
    nights = TestNights(tmp_path, recipe, 1, 1.0, 0)
    plain, quiet = (nights.night(Made(each, "000")) for each in (UNSHIFTED, CONDITIONS[2]))
    found = {}
    for name, network in (("window", PerWindow(bare).eval()), ("batch", bare)):
        first, second = (
            predict_night(network, n.signals, length=5, stride=3, batch_size=8)[0]
            for n in (plain, quiet)
        )
        accuracies = [
            subject_metrics(score_night("x", "000", n.stages, p))["balanced_accuracy"].item()
            for n, p in ((plain, first), (quiet, second))
        ]
        found[name] = np.abs(first - second).max(), accuracies[0] - accuracies[1]
    assert found["window"][0] < 1e-4
    assert found["window"][1] == 0
    assert found["batch"][0] > 1e-2


@pytest.mark.slow
def test_a_network_whose_filter_size_was_chosen_is_taken_apart_like_others(tmp_path):
    nights = plan_nights(["ABC", "MASS", "SHHS"], 2, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(tmp_path / "store", nights, RECIPES["paper"]))
    store = Store.open(tmp_path / "store")
    run = Run("usleep", "psd", "auto", norm_depth=2, hold_out="SHHS")
    assert [o.reason for o in run_grid(store, [run], TINY, tmp_path / "r", keep="weights")] == [""]
    found = planned(
        ExperimentFolder(tmp_path / "r"), tmp_path / "out", conditions=(UNSHIFTED, NOTHING)
    )
    made, predicted = predicted_by(found)
    assert [each.reason for each in (*made, *predicted)] == [""] * (6 + 2)


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_nights_are_forgotten_in_the_end(finished):
    assert finished.left() == []
    assert list(finished.predict(device="cpu", fast=False)) == []
    finished.forget_nights()
    assert not finished.nights.folder.exists()


@pytest.mark.slow
def test_a_dissection_that_was_stopped_goes_on_with_what_is_left(experiment, finished, tmp_path):
    found = planned(experiment, tmp_path / "out", runs=tuple(RUNS[:1]), conditions=CONDITIONS[:3])
    found.claim()
    list(found.make_nights())
    steps = found.predict(device="cpu", fast=False)
    next(steps)
    steps.close()
    again = planned(experiment, tmp_path / "out", runs=tuple(RUNS[:1]), conditions=CONDITIONS[:3])
    assert len(again.left()) == 2
    _, predicted = predicted_by(again)
    assert [step.condition for step in predicted] == list(CONDITIONS[1:3])
    whole = read_losses(finished).pairs.query("arm == 'usleep batch @all'")
    whole = whole[whole["training"] == "SHHS, seed 0"]
    own = read_losses(again).pairs
    assert own["lost"].tolist() == whole[whole["kind"] == "gain"]["lost"].tolist()


@pytest.mark.slow
def test_a_folder_of_other_test_nights_raises(experiment, finished):
    with pytest.raises(ArgumentError, match="was started with seed 0, found 1"):
        planned(experiment, finished.out, seed=1).claim()


@pytest.mark.slow
def test_scores_of_other_weights_raise(experiment, tmp_path):
    found = planned(experiment, tmp_path / "out")
    found.claim()
    path = tmp_path / "out" / "scores" / RUNS[0].name / "weights.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": "0"}))
    with pytest.raises(ArgumentError, match="is of other weights than"):
        found.claim()


@pytest.mark.slow
def test_weights_that_cannot_be_read_are_named_and_stop_no_other_network(experiment, tmp_path):
    runs = (RUNS[0], RUNS[3])
    broken = ExperimentFolder(tmp_path / "runs")
    for run in runs:
        for file in experiment.folder(run).rglob("*"):
            if file.is_file():
                to = broken.folder(run) / file.relative_to(experiment.folder(run))
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(file.read_bytes())
    (broken.path / "grid.json").write_bytes((experiment.path / "grid.json").read_bytes())
    (broken.folder(RUNS[0]) / "weights" / "model.safetensors").write_bytes(b"no weights")
    found = Dissection(
        broken, tmp_path / "out", runs, (UNSHIFTED, CONDITIONS[2]), subjects=2, hours=0.5
    )
    _, predicted = predicted_by(found)
    assert [bool(step.reason) for step in predicted] == [True, True, False, False]
    assert "model.safetensors" in predicted[0].reason
    assert read_losses(found).matrix["norm"].unique().tolist() == ["TMA"]


@pytest.mark.slow
def test_nights_that_were_never_made_and_scores_without_a_pair_are_said(experiment, tmp_path):
    found = planned(experiment, tmp_path / "out")
    found.claim()
    with pytest.raises(StoreError, match="no test night could be made"):
        list(found.predict(device="cpu"))
    with pytest.raises(ArgumentError, match="with and without a shift"):
        read_losses(found)


def digests(folder, jobs):
    nights = TestNights(folder, RECIPES["robust"], 2, 0.1, 0)
    assert [each.reason for each in nights.make(CONDITIONS, jobs)] == [""] * 8
    return nights.open().index.set_index("recording")["digest"].to_dict()


def test_nights_are_made_without_mne_and_edfio(tmp_path, monkeypatch):
    for name in ("mne", "edfio"):
        monkeypatch.setitem(sys.modules, name, None)
    assert len(digests(tmp_path, 1)) == 8


@pytest.mark.slow
def test_nights_are_the_same_with_any_number_of_jobs(tmp_path):
    assert digests(tmp_path / "one", 1) == digests(tmp_path / "two", 2)


def test_a_night_that_the_recipe_cannot_prepare_is_named_and_the_others_are_made(tmp_path):
    # at 80 Hz there is no room for the slope of a low-pass at 39 Hz
    recipe = dataclasses.replace(RECIPES["paper"], lowpass_hz=39.0)
    nights = TestNights(tmp_path, recipe, 1, 0.1, 0)
    made = list(nights.make([UNSHIFTED, ShiftCondition("rate", 80.0)]))
    assert [bool(each.reason) for each in made] == [False, True]
    assert "rate_80-000 has 80 Hz, expected at least 82 Hz" in made[1].reason
    assert nights.open().index["cohort"].tolist() == [UNSHIFTED.name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subjects": 0}, "subjects is 0"),
        ({"hours": 0.0}, "hours is 0.0"),
        ({"recipe": Recipe("three", n_channels=3)}, "has 3 channels, expected the 2"),
    ],
)
def test_nights_that_cannot_be_simulated_raise(tmp_path, change, words):
    nights = TestNights(tmp_path, RECIPES["paper"], 1, 0.1, 0)
    with pytest.raises(ArgumentError, match=words):
        dataclasses.replace(nights, **change).check()


def test_an_interval_holds_the_mean_is_repeatable_and_none_for_one_subject():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    low, high = interval(values)
    assert low < values.mean() < high
    assert (low, high) == interval(values)
    assert np.isnan(interval(values[:1])).all()
    assert interval(np.zeros(5)) == (0, 0)


RUN = Run("usleep", "psd")


def test_a_piece_counts_predictions_and_their_sequences_but_no_failures(tmp_path):
    with metered(tmp_path, "cpu", 3) as meter:
        meter.simulated()
        for step in (
            Predicted(RUN, UNSHIFTED, sequences=20),
            Predicted(RUN, UNSHIFTED, "it failed"),
            Predicted(RUN, UNSHIFTED, sequences=22),
        ):
            meter.count(step)
    found = read_cost(tmp_path)
    (piece,) = found["pieces"]
    assert (found["predictions"], found["sequences"]) == (2, 42)
    assert (piece["predictions"], piece["sequences"]) == (2, 42)
    assert (piece["jobs"], piece["device"]) == (3, "cpu")
    assert found["sequences_per_second"] == 42 / piece["seconds"]


def test_it_is_written_after_every_prediction_and_however_it_ends(tmp_path):
    found = []

    def interrupted():
        with metered(tmp_path, "cpu", 1) as meter:
            meter.simulated()
            meter.count(Predicted(RUN, UNSHIFTED, sequences=20))
            found.extend(read_cost(tmp_path)["pieces"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (before,), (after,) = found, read_cost(tmp_path)["pieces"]
    assert before["sequences"] == after["sequences"] == 20
    assert before["seconds"] < after["seconds"]


def test_the_commit_is_that_of_the_code(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        dissection, "commit_of", lambda path, **how: asked.append((path.parts, how)) or "abc"
    )
    with metered(tmp_path, "cpu", 1):
        pass
    ((parts, how),) = asked
    assert parts[-2:] == ("psdnorm", "__init__.py")
    assert how == {"only_tracked": True}
    assert read_cost(tmp_path)["pieces"][0]["commit"] == "abc"
