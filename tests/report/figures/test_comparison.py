"""Norms are compared at one setting each, and what is left out is named."""

import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.figures.comparison import comparisons
from psdnorm.report.figures.critical_difference import draw_ranks
from psdnorm.report.figures.stage_figures import draw_calibration, draw_learning, draw_stages
from psdnorm.report.figures.subject_figures import draw_scatter
from psdnorm.report.results import read_results
from psdnorm.report.verdict.duels import contests
from psdnorm.training import Run

ONE = {"hold_outs": ("ABC",), "seeds": (0,)}


@pytest.fixture
def compared(tmp_path):
    def compare(*axes):
        write_runs(tmp_path, list(axes))
        return comparisons(read_results(tmp_path))

    return compare


def test_each_model_and_size_is_a_comparison_of_its_own(compared):
    found = compared(
        Axes(norms=("batch",), balanced=(40, 400, None), **ONE),
        Axes(models=("cnn-transformer",), norms=("batch",), balanced=(400,), **ONE),
    )
    assert [each.setting for each in found] == [
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
    assert set(found.results.of(norm="psd").cells["arm"]) == {"usleep psd f5 d3 @all"}
    assert found.left_out == ["PSDNorm with f = 1, 1 block and f = 17 is left out."]


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


def test_figures_stand_on_the_norms_and_scores_of_the_verdict(without_shared_tma):
    (contest,) = contests(without_shared_tma)
    (found,) = comparisons(without_shared_tma)
    assert list(found.labels) == list(contest.arms) == ["batch", "instance", "psd"]
    assert set(found.results.cells["arm"]) == set(contest.arms.values())
    assert found.tables.subjects.equals(100 * contest.tables.subjects)
    assert found.tables.by_seed.equals(100 * contest.tables.by_seed)
    assert found.tables.datasets.equals(100 * contest.tables.datasets)


def test_figures_are_drawn_without_a_norm_that_shares_no_cell_and_name_it(without_shared_tma):
    (found,) = comparisons(without_shared_tma)
    drawn = [draw_ranks(found, "subjects")]
    drawn += [draw(found) for draw in (draw_scatter, draw_stages, draw_calibration, draw_learning)]
    for drawing in drawn:
        assert "TMA is left out: it has none of the 4 cells" in drawing.caption


def test_where_one_norm_is_left_the_refusal_says_what_was_dropped(tmp_path):
    write_runs(
        tmp_path,
        [
            Axes(norms=(norm,), hold_outs=("ABC",), seeds=(n,))
            for n, norm in enumerate(["batch", "psd"])
        ],
    )
    (found,) = comparisons(read_results(tmp_path))
    with pytest.raises(
        CannotDraw, match=r"found only BatchNorm\. PSDNorm is left out: it has none"
    ):
        found.needs_two_norms("Ranks")


def test_rows_that_count_are_of_the_cells_that_all_norms_have(tmp_path):
    gone = Run("usleep", "psd", hold_out="MASS", seed=1).name
    axes = Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0, 1))
    write_runs(tmp_path, [axes], unfinished=[gone])
    (found,) = comparisons(read_results(tmp_path))
    places = {*zip(found.runs["cohort"], found.runs["seed"], strict=True)}
    assert places == {("ABC", 0), ("ABC", 1), ("MASS", 0)}
    assert len(found.runs) == 2 * (6 + 6 + 7)
