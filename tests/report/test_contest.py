"""Which norms are compared, on which scores, and what is said of the others."""

import numpy as np
import pandas as pd
import pytest
from experiments import write_runs

from psdnorm.report.contest import contests, norms_to_compare
from psdnorm.report.results import read_results
from psdnorm.training import Cell
from psdnorm.training.grid import Axes

COHORTS = {"ABC": 2, "CHAT": 3, "MASS": 4}
TEN = tuple("ABCDEFGHIJ")


def grid(cohorts=tuple(COHORTS), seeds=(0, 1, 2)):
    return {(cohort, seed) for cohort in cohorts for seed in seeds}


@pytest.fixture
def contest(tmp_path):
    """Draw norms at all places but those that each lacks, and return the first contest."""

    def draw(norms, lacking=None, seeds=(0, 1, 2)):
        gone = [
            Cell("usleep", norm, hold_out=cohort, seed=seed).name
            for norm, places in (lacking or {}).items()
            for cohort, seed in places
        ]
        axes = [Axes(norms=norms, hold_outs=tuple(COHORTS), seeds=seeds)]
        write_runs(tmp_path, axes, COHORTS, epochs=30, unfinished=gone)
        return contests(read_results(tmp_path))[0]

    return draw


def test_norms_with_the_same_cells_are_all_compared():
    norms, shared = norms_to_compare(dict.fromkeys(["batch", "layer", "psd"], grid()))
    assert norms == ["batch", "layer", "psd"]
    assert shared == grid()


@pytest.mark.parametrize("others", [("batch", "psd"), ("batch", "instance", "tma", "psd")])
@pytest.mark.parametrize(
    "few", [{("ABC", 0)}, grid(seeds=(1,))], ids=["one cell", "one seed of three"]
)
def test_a_norm_with_few_cells_does_not_cost_the_others_theirs(others, few):
    norms, shared = norms_to_compare(dict.fromkeys(others, grid()) | {"layer": few})
    assert norms == list(others)
    assert shared == grid()


def test_two_norms_with_few_cells_do_not_keep_each_other():
    few = {norm: {("ABC", 0)} for norm in ("layer", "tma")}
    norms, _ = norms_to_compare(dict.fromkeys(["batch", "instance", "psd"], grid()) | few)
    assert norms == ["batch", "instance", "psd"]


@pytest.mark.parametrize("others", [("batch", "psd"), ("batch", "layer", "instance", "psd")])
def test_a_norm_that_lacks_one_cohort_of_ten_is_kept(others):
    places = dict.fromkeys(others, grid(TEN)) | {"tma": grid(TEN[1:])}
    norms, shared = norms_to_compare(places)
    assert norms == [*others, "tma"]
    assert shared == grid(TEN[1:])


def test_two_norms_are_compared_on_the_one_cell_that_they_share():
    norms, shared = norms_to_compare({"batch": grid(), "psd": {("ABC", 0)}})
    assert norms == ["batch", "psd"]
    assert shared == {("ABC", 0)}


def test_a_norm_that_is_ahead_does_not_cost_the_others_their_place():
    others = dict.fromkeys(["layer", "instance", "psd"], grid(seeds=(0,)))
    norms, shared = norms_to_compare({"batch": grid()} | others)
    assert norms == ["batch", "layer", "instance", "psd"]
    assert shared == grid(seeds=(0,))


def test_where_nothing_is_shared_the_norm_with_most_cells_is_alone():
    norms, _ = norms_to_compare({"batch": {("ABC", 0)}, "psd": grid(seeds=(1, 2))})
    assert norms == ["psd"]


def test_among_equals_batchnorm_and_psdnorm_are_preferred():
    halves = {"layer": 0, "batch": 1, "instance": 0, "psd": 1}
    norms, _ = norms_to_compare({norm: grid(seeds=(seed,)) for norm, seed in halves.items()})
    assert norms == ["batch", "psd"]


def test_a_dropped_norm_is_named_with_the_cells_that_it_shares(contest):
    found = contest(("batch", "tma", "psd"), {"tma": grid() - {("ABC", 0)}})
    assert list(found.arms) == ["batch", "psd"]
    assert found.dropped == {"tma": "usleep tma f5 @all"}
    assert len(found.subjects) == sum(COHORTS.values())
    assert found.left_out == [
        "TMA is left out: it has 1 of the 9 cells (a cohort in a seed) that the other norms share."
    ]


def test_a_cohort_that_a_norm_lacks_is_named_with_the_norm(contest):
    found = contest(("batch", "tma", "psd"), {"tma": grid(("CHAT",))})
    assert list(found.cohorts.index) == ["ABC", "MASS"]
    assert found.left_out == ["CHAT is left out for all norms, as TMA has no score there."]
    assert found.n_seeds == (3, 3)


def test_a_cohort_of_which_no_seed_has_all_norms_is_named(contest):
    lacking = {"batch": {("CHAT", 0), ("CHAT", 1)}, "psd": {("CHAT", 2)}}
    assert contest(("batch", "psd"), lacking).left_out == [
        "CHAT is left out for all norms, as no subject has a score of every norm in the same seed."
    ]


def test_a_whole_grid_leaves_nothing_out(contest):
    found = contest(("batch", "psd"))
    assert found.left_out == []
    assert found.dropped == {}


def test_means_spreads_and_gains_are_of_the_same_seeds(contest, tmp_path):
    found = contest(("batch", "psd"), {"psd": {("CHAT", 1)}})
    assert list(found.seeds["Mean(Dataset)"].index) == [0, 2]
    assert found.n_seeds == (2, 2)
    for mean in ("Mean(Dataset)", "Mean(Subject)"):
        assert found.means.loc[mean].to_numpy() == pytest.approx(found.seeds[mean].mean())
    assert found.means.loc["Mean(Dataset)", "psd"] == pytest.approx(
        np.mean([mean_dataset(tmp_path, "psd", seed) for seed in (0, 2)])
    )
    gains = found.subjects["psd"] - found.subjects["batch"]
    difference = found.means.loc["Mean(Subject)", "psd"] - found.means.loc["Mean(Subject)", "batch"]
    assert difference == pytest.approx(gains.mean())
    assert found.left_out == [
        "PSDNorm lacks 3 of the 9 scores of CHAT.",
        "Seed 1 is left out, as not every norm has all cohorts in it.",
    ]


def mean_dataset(path, norm, seed):
    """Mean over cohorts of subjects' balanced accuracies, straight from the files."""
    of_cohorts = []
    for cohort in COHORTS:
        name = Cell("usleep", norm, hold_out=cohort, seed=seed).name
        table = pd.read_parquet(path / "cells" / name / "scores.parquet")
        columns = [c for c in table if "_as_" in c]
        matrices = table[columns].to_numpy(float).reshape(-1, 5, 5)
        of_cohorts.append(
            np.mean(
                [np.mean([m[i, i] / m[i].sum() for i in range(5) if m[i].any()]) for m in matrices]
            )
        )
    return np.mean(of_cohorts)


def test_where_no_seed_has_all_cohorts_all_seeds_count_and_there_is_no_spread(contest):
    lacking = {"psd": {("ABC", 0), ("CHAT", 1), ("MASS", 2)}}
    found = contest(("batch", "psd"), lacking)
    assert found.seeds["Mean(Dataset)"].empty
    assert found.seeds["Mean(Subject)"].empty
    assert found.n_seeds == (2, 2)
    assert len(found.subjects) == sum(COHORTS.values())
    assert found.means.notna().all(axis=None)
