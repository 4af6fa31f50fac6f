"""A folder of runs becomes tables in which nothing is lost and nothing is made up."""

import re

import pytest
from experiment_runs import COHORTS, NORMS, write_runs

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import METRICS, read_scores, subject_metrics
from psdnorm.report.results import read_results
from psdnorm.training import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    write_runs(path)
    return path


def test_every_finished_run_and_every_subject_of_it_is_there(runs):
    results = read_results(runs)
    assert len(results.runs) == len(NORMS) * len(COHORTS) * 3
    assert len(results.subjects) == len(NORMS) * sum(COHORTS.values()) * 3
    assert not results.missing
    assert results.simulated
    assert results.recipe == "paper"


def test_metrics_are_those_of_the_runs_own_scores(runs):
    results = read_results(runs)
    run = Run("usleep", "psd", hold_out="CHAT", seed=1)
    expected = subject_metrics(read_scores(runs / "cells" / run.name / "scores.parquet"))
    found = results.of(norm="psd", hold_out="CHAT", seed=1).scores
    for metric in METRICS:
        assert found[metric].to_list() == pytest.approx(expected[metric].to_list(), nan_ok=True)
    assert found["arm"].unique().tolist() == ["usleep psd f5 d3 @all"]


def test_none_selects_what_has_no_such_setting(runs):
    results = read_results(runs)
    assert set(results.of(filter_size=None).runs["norm"]) == {"batch", "layer", "instance"}
    assert len(results.of(balanced=None).runs) == len(results.runs)
    assert results.of(balanced=400).runs.empty


def test_what_is_not_finished_is_named(tmp_path):
    run = Run("usleep", "psd", hold_out="CHAT", seed=1)
    write_runs(tmp_path, unfinished=[run.name])
    assert read_results(tmp_path).missing == {run: f"{run.name} is not finished (waiting)"}


def test_what_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    runs = write_runs(tmp_path)
    broken = tmp_path / "cells" / runs[0].name / "scores.parquet"
    broken.write_bytes(b"no Parquet")
    results = read_results(tmp_path)
    assert len(results.runs) == len(runs) - 1
    assert len(results.missing) == 1
    assert str(broken) in next(iter(results.missing.values()))


def test_what_is_no_folder_of_runs_is_refused_as_what_it_is(runs, tmp_path):
    run = runs / "cells" / Run("usleep", "psd", hold_out="CHAT", seed=1).name
    (run / "weights").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "recipe.json").write_text("{}")
    wanted = "expected the folder of psdnorm lodo"
    single = f"is a single run: give {runs}, or compare two runs"
    for path, words in {
        tmp_path / "nothing": f"does not exist, {wanted}",
        tmp_path / "file": f"is not a folder, {wanted}",
        tmp_path / "store": f"is a store of prepared nights, {wanted}",
        runs / "cells": f"holds the runs of {runs}: give that folder",
        run: single,
        run / "weights": single,
        tmp_path: f"has no grid.json, {wanted}",
    }.items():
        with pytest.raises(ArgumentError, match=re.escape(f"{path} {words}")):
            read_results(path)


def test_a_folder_without_a_finished_run_is_refused_in_a_sentence(tmp_path):
    from psdnorm.experiments.grid import Axes

    axes = [Axes(norms=("batch",), hold_outs=("ABC",), seeds=(0,))]
    write_runs(tmp_path, axes, unfinished=["usleep_batch_ABC_all_seed0"])
    with pytest.raises(ArgumentError, match="has no finished run"):
        read_results(tmp_path)
