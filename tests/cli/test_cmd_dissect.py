"""``psdnorm dissect`` says what it needs, and does nothing before it has it."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from dissections import RUNS, written_dissection
from small_runs import TINY

from psdnorm.batches import window_starts
from psdnorm.experiments.estimate import read_cost
from psdnorm.experiments.execute import run_grid
from psdnorm.lab.dissect.dissection import TestNights
from psdnorm.lab.dissect.shifts import conditions_of
from psdnorm.lab.simulate import Settings, add_nights, plan_nights
from psdnorm.prepare.recipe import RECIPES
from psdnorm.runtime.files import held
from psdnorm.store import Store
from psdnorm.training import Run
from psdnorm.training.network import build_model


@pytest.fixture
def dissect(run_command):
    return partial(run_command, "dissect")


def test_a_folder_without_a_grid_raises_one_sentence(dissect, tmp_path):
    code, _, err = dissect(tmp_path, "-o", tmp_path / "out")
    assert code == 2
    assert f"{tmp_path} has no grid.json, expected the folder of psdnorm lodo" in err
    assert not (tmp_path / "out").exists()


def test_a_folder_above_the_runs_of_studies_names_them(dissect, restored):
    runs, out = restored
    code, _, err = dissect(runs.parent, "-o", out.with_name("other"))
    assert code == 2
    assert f"{runs.parent} holds the runs of runs: give {runs}" in err


def test_an_unknown_kind_raises_by_the_name_of_the_option(dissect, tmp_path):
    code, _, err = dissect(tmp_path, "--kinds", "gain,hum")
    assert code == 2
    assert "--kinds is 'hum', expected one of gain, response" in " ".join(err.split())


@pytest.fixture
def restored(tmp_path, monkeypatch):
    """Runs and a dissection whose weights are gone: PSDNorm was not ready, InstanceNorm begun."""

    def never(*_):
        raise AssertionError("a night is simulated")

    monkeypatch.setattr(TestNights, "make", never)
    return written_dissection(tmp_path)


def test_where_weights_are_gone_the_report_is_of_what_was_predicted_and_the_rest_is_named(
    dissect, restored
):
    runs, out = restored
    code, said, err = dissect(runs, "-o", out, "--no-figures")
    assert code == 1
    lines = err.splitlines()
    assert [line.split(":")[0] for line in lines if RUNS[1].name in line] == [
        f"{RUNS[1].name} is left out"
    ]
    assert [line.split(":")[0] for line in lines if RUNS[2].name in line] == [
        f"{RUNS[2].name} counts with 4 of 7 conditions"
    ]
    assert "\nGain. No norm is better than another beyond noise" in said
    assert "\nLine noise. There is no norm to compare with" in said
    assert "PSDNorm is not compared: it has no score at any strength." in said
    page = (out / "report" / "index.html").read_text()
    assert "--subjects 2 --hours 0.5 --seed 3 --kinds gain,line" in page
    assert f"{RUNS[1].name} is left out: " in page  # its norm is nowhere else on the page


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(b"no weights"), Path.mkdir], ids=["file", "folder"]
)
def test_where_weights_are_damaged_what_was_predicted_counts_and_nothing_is_simulated(
    dissect, restored, damage
):
    runs, out = restored
    weights = runs / "cells" / RUNS[2].name / "weights"
    weights.mkdir()
    damage(weights / "model.safetensors")
    (out / "scores" / RUNS[2].name / "weights.json").write_text("{}")
    code, said, err = dissect(runs, "-o", out, "--no-figures")
    assert code == 1
    words = " ".join(err.split())
    assert f"{RUNS[2].name} counts with 4 of 7 conditions: {weights / 'config.json'}" in words
    assert f"{RUNS[1].name} is left out: its weights were gone" in words
    assert "\nGain. " in said


def test_weights_that_are_damaged_once_all_is_predicted_are_no_matter(dissect, restored):
    runs, out = restored
    weights = runs / "cells" / RUNS[0].name / "weights"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"no weights")
    (out / "scores" / RUNS[0].name / "weights.json").write_text("{}")
    code, said, err = dissect(runs, "-o", out, "--no-figures")
    assert code == 1  # of the others, which have not predicted all
    assert RUNS[0].name not in err
    assert "\nGain. " in said


def test_damaged_weights_are_not_taken_for_those_that_predicted(dissect, restored):
    runs, out = restored
    weights = runs / "cells" / RUNS[2].name / "weights"
    which = out / "scores" / RUNS[2].name / "weights.json"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"no weights")
    which.unlink()
    code, _, err = dissect(runs, "-o", out, "--no-figures")
    assert code == 1
    assert f"{RUNS[2].name} counts with 4 of 7 conditions: " in " ".join(err.split())
    assert not which.exists()


def test_where_no_network_can_predict_it_raises_before_anything_is_simulated(dissect, restored):
    runs, out = restored
    for run in RUNS:
        (runs / "cells" / run.name / "weights").mkdir()
        (runs / "cells" / run.name / "weights" / "model.safetensors").write_bytes(b"no weights")
    other = out.with_name("other")
    code, _, err = dissect(runs, "-o", other, "--no-figures")
    assert code == 2
    said = " ".join(err.split())
    assert said.startswith(f"psdnorm: {runs} has no network that can predict, expected at least ")
    assert "weights/config.json" in said
    assert not other.exists()


def test_a_dissection_that_is_whole_needs_nothing_but_its_folders(dissect, restored):
    runs, out = restored
    shutil.rmtree(out / "scores" / RUNS[1].name)
    code, said, err = dissect(runs, "-o", out, "--no-figures", "--kinds", "gain")
    assert code == 0, err
    assert "Gain. " in said
    assert "Line noise" not in said
    assert not (out / "cost.json").exists()  # it was predicted before, nobody knows in what time


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--subjects", 10, "subjects 2, found 10"),
        ("--hours", 8, "hours 0.5, found 8.0"),
        ("--seed", 0, "seed 3, found 0"),
    ],
)
def test_an_option_that_is_given_and_differs_raises(dissect, restored, option, value, words):
    runs, out = restored
    code, _, err = dissect(runs, "-o", out, option, value)
    assert code == 2
    assert f"was started with {words}" in " ".join(err.split())


@pytest.mark.slow
def test_a_dissection_is_run_reported_and_not_run_again(dissect, tmp_path):
    nights = plan_nights(["ABC", "SHHS"], 3, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(tmp_path / "store", nights, RECIPES["paper"]))
    grid = [Run("usleep", norm, norm_depth=2, hold_out="SHHS") for norm in ("batch", "instance")]
    store, runs, out = Store.open(tmp_path / "store"), tmp_path / "runs", tmp_path / "out"
    list(run_grid(store, grid[:1], TINY, runs, device="cpu", keep="weights"))
    list(run_grid(store, grid[1:], TINY, runs, device="cpu", keep="scores"))
    arguments = (runs, "-o", out, "--subjects", 2, "--hours", 0.5, "--jobs", 1, "--device", "cpu")
    code, said, err = dissect(*arguments, "--kinds", "gain")
    assert code == 0, err
    assert "usleep_instance_d2_SHHS_all_seed0 is left out: it kept no weights" in " ".join(
        err.split()
    )
    assert "SIMULATED" in said
    assert "\nGain. " in said
    assert "Line noise" not in said
    assert not (out / "nights").exists()
    assert "gain" in json.loads((out / "report" / "report.json").read_text())["sentences"]
    cost = read_cost(out)
    windows = len(window_starts(60, TINY.length, TINY.stride))  # of half an hour
    assert (cost["predictions"], cost["sequences"]) == (4, 4 * 2 * windows)
    assert cost["seconds"] > 0
    assert cost["simulation_seconds"] > 0
    before = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    code, said, err = dissect(*arguments, "--kinds", "gain,line")
    assert code == 0, err
    assert "Line noise. " in said
    after = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    assert len(before) == 4
    assert len(after) == 7
    assert before.items() <= after.items()
    (first,), cost = cost["pieces"], read_cost(out)
    assert cost["pieces"][0] == first
    assert [piece["predictions"] for piece in cost["pieces"]] == [4, 3]
    code, _, err = dissect(*arguments, "--seed", 1)
    assert code == 2
    assert "was started with seed 0, found 1" in " ".join(err.split())
    with held(out):
        code, _, err = dissect(*arguments, "--kinds", "gain")
    assert code == 2
    assert "another process is already working in" in " ".join(err.split())
    shutil.rmtree(runs / "cells" / grid[0].name / "weights")
    shutil.rmtree(out / "report")
    code, said, err = dissect(*arguments, "--kinds", "gain,line")
    assert code == 0, err  # scores are all that a report needs
    assert "Line noise. " in said
    assert read_cost(out) == cost
    shutil.rmtree(out / "scores" / grid[0].name / "line_80")
    code, _, err = dissect(runs, "-o", out)
    assert code == 1
    assert f"{grid[0].name} counts with 6 of 7 conditions" in " ".join(err.split())
    assert not (out / "nights").exists()


def test_weights_of_a_run_that_held_out_another_cohort_are_not_used(dissect, restored):
    runs, out = restored
    grid = json.loads((runs / "grid.json").read_text())
    (runs / "grid.json").write_text(json.dumps(grid | {"protocol": TINY.to_json()}))
    weights, other = runs / "cells" / RUNS[2].name / "weights", replace(RUNS[2], hold_out="ABC")
    build_model(other, TINY, RECIPES["paper"].layout()).save_pretrained(
        weights,
        recipe=RECIPES["paper"].to_dict(),
        training_data={"cell": other.to_json()},
    )
    (out / "scores" / RUNS[2].name / "weights.json").write_text("{}")
    code, _, err = dissect(runs, "-o", out, "--no-figures")
    assert code == 1
    sentence = (
        f"{RUNS[2].name} counts with 4 of 7 conditions: {weights} has a network that was trained "
        f"with hold_out 'ABC', expected 'SHHS' as {RUNS[2].name} has it"
    )
    assert sentence in " ".join(err.split())


@pytest.mark.slow
def test_a_network_whose_weights_are_damaged_is_named_first_and_the_others_go_on(
    dissect, tmp_path, monkeypatch, capsys
):
    nights = plan_nights(["ABC", "SHHS"], 3, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(tmp_path / "store", nights, RECIPES["paper"]))
    grid = [Run("usleep", norm, norm_depth=2, hold_out="SHHS") for norm in ("batch", "instance")]
    store, runs, out = Store.open(tmp_path / "store"), tmp_path / "runs", tmp_path / "out"
    list(run_grid(store, grid, TINY, runs, device="cpu", keep="weights"))
    broken = runs / "cells" / grid[0].name / "weights" / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    said_before = []
    make = TestNights.make

    def heard(self, conditions, jobs=1):
        said_before.append(capsys.readouterr().err)
        return make(self, conditions, jobs)

    monkeypatch.setattr(TestNights, "make", heard)
    how = ("--subjects", 2, "--hours", 0.5, "--jobs", 1, "--device", "cpu", "--kinds", "gain")
    code, said, err = dissect(runs, "-o", out, *how, "--no-figures")
    assert code == 1
    sentence = f"{grid[0].name} is left out: {broken} has {broken.stat().st_size} bytes, expected "
    assert sentence in " ".join(said_before[0].split())
    assert "failed: " not in err
    assert "\nGain. " in said
    assert [folder.name for folder in (out / "scores").iterdir()] == [grid[1].name]
    assert not (out / "nights").exists()
    page = (out / "report" / "index.html").read_text()
    assert f"{grid[0].name} is left out: runs/cells/" in page
    assert str(tmp_path) not in page


@pytest.mark.slow
def test_norms_that_are_trained_again_predict_and_the_others_count_without_weights(
    dissect, tmp_path, monkeypatch
):
    nights = plan_nights(["ABC", "SHHS"], 3, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(tmp_path / "store", nights, RECIPES["paper"]))
    store, runs, out = Store.open(tmp_path / "store"), tmp_path / "runs", tmp_path / "out"
    kin = [Run("usleep", "batch", hold_out="SHHS")]
    kin += [Run("usleep", "adabnall", hold_out="SHHS")]
    psd = [Run("usleep", "psd", f, norm_depth=2, hold_out="SHHS") for f in (5, 17)]
    list(run_grid(store, [*kin, psd[0]], TINY, runs, device="cpu", keep="weights"))
    once = ("--subjects", 2, "--hours", 0.5, "--kinds", "gain")
    how = ("--jobs", 1, "--device", "cpu", "--no-figures")
    assert dissect(runs, "-o", out, *once, *how)[0] == 0
    shutil.rmtree(runs / "cells" / kin[0].name / "weights")
    shutil.rmtree(runs / "cells" / psd[0].name)
    shutil.rmtree(out / "scores" / psd[0].name)
    before = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    list(run_grid(store, psd, TINY, runs, device="cpu", keep="weights"))
    made = []
    make = TestNights.make

    def counted(self, conditions, jobs=1):
        for night in make(self, conditions, jobs):
            made.append((night.condition.name, night.subject))
            yield night

    monkeypatch.setattr(TestNights, "make", counted)
    code, said, err = dissect(runs, "-o", out, *how)
    assert code == 0, err
    assert len(set(made)) == len(made) == 2 * len(conditions_of(["gain"]))
    assert "no score" not in said + err
    after = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    assert before.items() <= after.items()
    assert {file.parts[-3] for file in after.keys() - before.keys()} == {c.name for c in psd}
    matrix = pd.read_csv(out / "report" / "tables" / "matrix.csv")
    names = ["BatchNorm", "AdaBN(all)", "PSDNorm (f = 5, 2 blocks)", "PSDNorm (f = 17, 2 blocks)"]
    assert matrix["norm"].tolist() == 3 * names
    assert not (out / "nights").exists()
