"""Which norms are compared, on which scores, and the sentences on the others."""

import numpy as np
import pandas as pd
import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present import CannotDraw
from psdnorm.report.contest import contests, norms_to_compare, paper_order
from psdnorm.report.figures.score_figures import (
    draw_calibration,
    draw_learning,
    draw_ranks,
    draw_scatter,
    draw_stages,
)
from psdnorm.report.results import read_results
from psdnorm.training import Run

COHORTS = {"ABC": 2, "CHAT": 3, "MASS": 4}
TEN = tuple("ABCDEFGHIJ")
ONE = {"hold_outs": ("ABC",), "seeds": (0,)}


def grid(cohorts=tuple(COHORTS), seeds=(0, 1, 2)):
    return {(cohort, seed) for cohort in cohorts for seed in seeds}


@pytest.fixture
def contest(tmp_path):
    """Draw norms at all places but the lacking ones, and return the first contest."""

    def draw(norms, lacking=None, seeds=(0, 1, 2)):
        gone = [
            Run("usleep", norm, hold_out=cohort, seed=seed).name
            for norm, places in (lacking or {}).items()
            for cohort, seed in places
        ]
        axes = [Axes(norms=norms, hold_outs=tuple(COHORTS), seeds=seeds)]
        write_runs(tmp_path, axes, COHORTS, epochs=30, unfinished=gone)
        return contests(read_results(tmp_path))[0]

    return draw


def test_norms_with_the_same_places_are_all_compared():
    norms, shared = norms_to_compare(dict.fromkeys(["batch", "layer", "psd"], grid()))
    assert norms == ["batch", "layer", "psd"]
    assert shared == grid()


@pytest.mark.parametrize("others", [("batch", "psd"), ("batch", "instance", "tma", "psd")])
@pytest.mark.parametrize(
    "few", [{("ABC", 0)}, grid(seeds=(1,))], ids=["one place", "one seed of three"]
)
def test_a_norm_with_few_places_does_not_cost_the_others_theirs(others, few):
    norms, shared = norms_to_compare(dict.fromkeys(others, grid()) | {"layer": few})
    assert norms == list(others)
    assert shared == grid()


def test_two_norms_with_few_places_do_not_keep_each_other():
    few = {norm: {("ABC", 0)} for norm in ("layer", "tma")}
    norms, _ = norms_to_compare(dict.fromkeys(["batch", "instance", "psd"], grid()) | few)
    assert norms == ["batch", "instance", "psd"]


@pytest.mark.parametrize("others", [("batch", "psd"), ("batch", "layer", "instance", "psd")])
def test_a_norm_without_one_cohort_of_ten_is_kept(others):
    places = dict.fromkeys(others, grid(TEN)) | {"tma": grid(TEN[1:])}
    norms, shared = norms_to_compare(places)
    assert norms == [*others, "tma"]
    assert shared == grid(TEN[1:])


def test_two_norms_are_compared_on_the_one_place_that_they_share():
    norms, shared = norms_to_compare({"batch": grid(), "psd": {("ABC", 0)}})
    assert norms == ["batch", "psd"]
    assert shared == {("ABC", 0)}


def test_a_norm_that_is_ahead_does_not_cost_the_others_their_place():
    others = dict.fromkeys(["layer", "instance", "psd"], grid(seeds=(0,)))
    norms, shared = norms_to_compare({"batch": grid()} | others)
    assert norms == ["batch", "layer", "instance", "psd"]
    assert shared == grid(seeds=(0,))


def test_where_nothing_is_shared_the_norm_with_most_places_is_alone():
    norms, _ = norms_to_compare({"batch": {("ABC", 0)}, "psd": grid(seeds=(1, 2))})
    assert norms == ["psd"]


def test_among_equals_batchnorm_and_psdnorm_are_preferred():
    halves = {"layer": 0, "batch": 1, "instance": 0, "psd": 1}
    norms, _ = norms_to_compare({norm: grid(seeds=(seed,)) for norm, seed in halves.items()})
    assert norms == ["batch", "psd"]


def test_a_dropped_norm_is_named_with_the_places_that_it_shares(contest):
    found = contest(("batch", "tma", "psd"), {"tma": grid() - {("ABC", 0)}})
    assert list(found.arms) == ["batch", "psd"]
    assert found.dropped == {"tma": "usleep tma f5 @all"}
    assert len(found.subjects) == sum(COHORTS.values())
    assert list(found.reasons.values()) == [
        "TMA is not compared: it has 1 of the 9 places (a cohort in a seed) that the other norms "
        "share."
    ]
    assert found.uncounted == []


def test_a_cohort_without_scores_of_a_norm_is_named_with_the_norm(contest):
    found = contest(("batch", "tma", "psd"), {"tma": grid(("CHAT",))})
    assert list(found.cohorts.index) == ["ABC", "MASS"]
    assert found.uncounted == ["CHAT is excluded: TMA has no score there."]
    assert found.n_seeds == (3, 3)


def test_a_cohort_of_which_no_seed_has_all_norms_is_named(contest):
    lacking = {"batch": {("CHAT", 0), ("CHAT", 1)}, "psd": {("CHAT", 2)}}
    assert contest(("batch", "psd"), lacking).uncounted == [
        "CHAT is excluded: no subject has a score of every norm in the same seed."
    ]


def test_a_complete_grid_counts_as_a_whole(contest):
    found = contest(("batch", "psd"))
    assert found.uncounted == []
    assert found.partial == ""
    assert found.dropped == {}


def test_a_missing_run_costs_the_other_norms_its_place_and_not_its_seed(contest):
    found = contest(("batch", "psd"), {"psd": {("CHAT", 1)}})
    known = found.tables.by_seed.dropna().index.to_frame(index=False)
    assert {*zip(known["cohort"], known["seed"], strict=True)} == grid() - {("CHAT", 1)}
    assert found.n_seeds == (2, 3)
    assert found.uncounted == ["PSDNorm is missing 3 of the 9 scores of CHAT."]


def test_means_of_a_partial_grid_are_of_all_cohorts_each_over_the_seeds_that_it_shares(
    contest, tmp_path
):
    found = contest(("batch", "psd"), {"psd": {("CHAT", 1)}})
    for norm in ("batch", "psd"):
        of_cohorts = [
            np.mean([mean_of(tmp_path, norm, cohort, seed) for seed in seeds])
            for cohort, seeds in {"ABC": (0, 1, 2), "CHAT": (0, 2), "MASS": (0, 1, 2)}.items()
        ]
        assert found.means.loc["Mean(Dataset)", norm] == pytest.approx(np.mean(of_cohorts))
        over_subjects = np.average(of_cohorts, weights=list(COHORTS.values()))
        assert found.means.loc["Mean(Subject)", norm] == pytest.approx(over_subjects)
    gains = found.subjects["psd"] - found.subjects["batch"]
    difference = found.means.loc["Mean(Subject)", "psd"] - found.means.loc["Mean(Subject)", "batch"]
    assert difference == pytest.approx(gains.mean())


def test_the_spread_is_of_seeds_that_have_all_cohorts(contest, tmp_path):
    found = contest(("batch", "psd"), {"psd": {("CHAT", 1)}})
    expected = [np.mean([mean_of(tmp_path, "psd", c, seed) for c in COHORTS]) for seed in (0, 2)]
    assert list(found.seeds["Mean(Dataset)"].index) == [0, 2]
    assert found.seeds["Mean(Dataset)"]["psd"].to_list() == pytest.approx(expected)


def mean_of(path, norm, cohort, seed):
    """Mean of a cohort's subjects' balanced accuracies, straight from the files."""
    name = Run("usleep", norm, hold_out=cohort, seed=seed).name
    table = pd.read_parquet(path / "cells" / name / "scores.parquet")
    columns = [c for c in table if "_as_" in c]
    matrices = table[columns].to_numpy(float).reshape(-1, 5, 5)
    return np.mean(
        [np.mean([m[i, i] / m[i].sum() for i in range(5) if m[i].any()]) for m in matrices]
    )


def test_what_is_missing_and_how_the_rest_counts_is_one_sentence(contest):
    found = contest(("batch", "tma", "psd"), {"psd": {("CHAT", 1)}, "tma": {("CHAT", 1)}})
    assert found.partial == (
        "Incomplete: 2 of 27 runs have no result; norms are compared on the 8 of 9 places (a "
        "cohort in a seed) that all of them have, where each cohort counts by the mean over its "
        "seeds; ± is over seeds 0 and 2, which have all of these cohorts."
    )
    assert found.uncounted == ["TMA and PSDNorm are each missing 3 of the 9 scores of CHAT."]


def test_a_cohort_that_does_not_count_is_in_that_sentence(contest):
    found = contest(("batch", "tma", "psd"), {"tma": grid(("CHAT",))})
    assert "on the 6 of 9 places" in found.partial
    assert "counts by the mean over its seeds (CHAT is excluded); ± is over seeds 0, 1 and 2" in (
        found.partial
    )


def test_a_seed_that_no_norm_has_finished_is_missing_too(contest):
    every = dict.fromkeys(("batch", "psd"), grid(seeds=(1, 2)))
    found = contest(("batch", "psd"), every)
    assert found.partial.startswith("Incomplete: 12 of 18 runs have no result; ")
    assert found.partial.endswith("; there is no ±, as only seed 0 has all of these cohorts.")


def test_of_one_norm_alone_nothing_is_said_of_others(contest):
    found = contest(("psd",), {"psd": {("CHAT", 1)}})
    assert found.partial == (
        "Incomplete: 1 of 9 runs has no result; each cohort counts by the mean over its seeds; "
        "± is over seeds 0 and 2, which have all of these cohorts."
    )


def test_where_no_seed_has_all_cohorts_all_seeds_count_and_there_is_no_spread(contest):
    lacking = {"psd": {("ABC", 0), ("CHAT", 1), ("MASS", 2)}}
    found = contest(("batch", "psd"), lacking)
    assert found.seeds["Mean(Dataset)"].empty
    assert found.seeds["Mean(Subject)"].empty
    assert found.n_seeds == (2, 2)
    assert len(found.subjects) == sum(COHORTS.values())
    assert found.means.notna().all(axis=None)
    assert found.partial.endswith("; there is no ±, as no seed has all of these cohorts.")


def test_runs_of_filter_sizes_that_are_not_compared_are_no_part_of_the_grid(tmp_path):
    axes = [
        Axes(norms=("batch", "psd"), hold_outs=tuple(COHORTS), seeds=(0,)),
        Axes(norms=("psd",), filter_sizes=(17,), hold_outs=("ABC",), seeds=(3,)),
    ]
    gone = [Run("usleep", "psd", 17, hold_out="ABC", seed=3).name]
    write_runs(tmp_path, axes, COHORTS, epochs=30, unfinished=gone)
    assert contests(read_results(tmp_path))[0].partial == ""


def test_a_grid_with_one_seed_more_for_one_cohort_is_complete(tmp_path):
    norms = ("batch", "psd")
    axes = [
        Axes(norms=norms, hold_outs=tuple(COHORTS), seeds=(0,)),
        Axes(norms=norms, hold_outs=("ABC",), seeds=(1,)),
    ]
    write_runs(tmp_path, axes, COHORTS, epochs=30)
    assert contests(read_results(tmp_path))[0].partial == ""


@pytest.fixture
def compared(tmp_path):
    def compare(*axes):
        write_runs(tmp_path, list(axes))
        return contests(read_results(tmp_path))

    return compare


def test_each_model_and_size_is_a_contest_of_its_own(compared):
    found = compared(
        Axes(norms=("batch",), balanced=(40, 400, None), **ONE),
        Axes(models=("cnn-transformer",), norms=("batch",), balanced=(400,), **ONE),
    )
    assert [each.name for each in sorted(found, key=paper_order)] == [
        "U-Sleep, all subjects",
        "U-Sleep, balanced@400",
        "U-Sleep, balanced@40",
        "CNNTransformer, balanced@400",
    ]
    assert len({each.key for each in found}) == 4


def test_a_norm_is_compared_at_the_protocols_setting_and_others_are_named(compared):
    (found,) = compared(
        Axes(norms=("batch", "psd"), filter_sizes=(1, 5, 17), **ONE),
        Axes(norms=("psd",), norm_depths=(1,), **ONE),
    )
    assert found.labels == {"batch": "BatchNorm", "psd": "PSDNorm"}
    assert set(found.results.of(norm="psd").runs["arm"]) == {"usleep psd f5 d3 @all"}
    assert found.omitted_arms == ["PSDNorm with f = 1, 1 block and f = 17 is not shown."]


def test_another_setting_is_compared_where_there_is_no_other_and_its_name_says_so(compared):
    (found,) = compared(Axes(norms=("batch", "psd"), filter_sizes=(17,), **ONE))
    assert found.labels["psd"] == "PSDNorm (f = 17)"


def test_norms_are_in_the_order_of_the_paper(compared):
    norms = ("psd", "psd-white", "tma", "adabn3", "adabn5", "instance", "layer", "batch")
    (found,) = compared(Axes(norms=norms, **ONE))
    assert list(found.labels.values()) == [
        "BatchNorm",
        "AdaBN(3)",
        "LayerNorm",
        "InstanceNorm",
        "TMA",
        "PSDNorm-white",
        "PSDNorm",
        "AdaBN(5)",
    ]


@pytest.fixture
def without_shared_tma(tmp_path):
    """Results of three norms in two seeds, and of TMA in a third."""
    shared = Axes(norms=("batch", "instance", "psd"), hold_outs=("ABC", "MASS"), seeds=(0, 1))
    write_runs(tmp_path, [shared, Axes(norms=("tma",), hold_outs=("ABC", "MASS"), seeds=(2,))])
    return read_results(tmp_path)


def test_figures_have_the_norms_of_the_verdict_in_percent(without_shared_tma):
    (found,) = contests(without_shared_tma)
    assert list(found.labels) == list(found.arms) == ["batch", "instance", "psd"]
    assert set(found.results.runs["arm"]) == set(found.arms.values())
    for name in ("by_seed", "subjects", "datasets"):
        assert getattr(found.percent, name).equals(100 * getattr(found.tables, name))


def test_figures_are_drawn_without_a_norm_that_shares_no_place_and_name_it(without_shared_tma):
    (found,) = contests(without_shared_tma)
    drawn = [draw_ranks(found, "subjects")]
    drawn += [draw(found) for draw in (draw_scatter, draw_stages, draw_calibration, draw_learning)]
    for drawing in drawn:
        assert "TMA is not compared: it has none of the 4 places" in drawing.caption


def test_where_one_norm_is_left_the_refusal_says_what_was_dropped(tmp_path):
    write_runs(
        tmp_path,
        [
            Axes(norms=(norm,), hold_outs=("ABC",), seeds=(n,))
            for n, norm in enumerate(["batch", "psd"])
        ],
    )
    (found,) = contests(read_results(tmp_path))
    with pytest.raises(
        CannotDraw, match=r"found only BatchNorm\. PSDNorm is not compared: it has none"
    ):
        found.needs_two_norms("Ranks")


def test_rows_that_count_are_of_the_places_that_all_norms_have(tmp_path):
    gone = Run("usleep", "psd", hold_out="MASS", seed=1).name
    axes = Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0, 1))
    write_runs(tmp_path, [axes], unfinished=[gone])
    (found,) = contests(read_results(tmp_path))
    places = {*zip(found.scores["cohort"], found.scores["seed"], strict=True)}
    assert places == {("ABC", 0), ("ABC", 1), ("MASS", 0)}
    assert len(found.scores) == 2 * (6 + 6 + 7)
