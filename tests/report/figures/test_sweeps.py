"""Curves over a setting pass through the means of its runs."""

import functools

import numpy as np
import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.report.contest import contests
from psdnorm.report.figures.curve_figures import FILTER_SIZE, NORM_DEPTH, draw_sweep
from psdnorm.report.results import read_results
from psdnorm.training import Run

COHORTS = {"ABC": 5, "MASS": 4}
BOTH = tuple(COHORTS)
SIZES, DEPTHS = (1, 5, 9), (1, 3)
AXES = [
    Axes(norms=("psd",), filter_sizes=SIZES, hold_outs=BOTH, seeds=(0, 1)),
    Axes(norms=("psd",), norm_depths=DEPTHS, hold_outs=BOTH, seeds=(0, 1)),
    Axes(norms=("batch", "tma"), hold_outs=BOTH, seeds=(0, 1)),
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("swept")
    write_runs(path, AXES, COHORTS)
    return path


@functools.cache
def read_once(path):
    return read_results(path)


def draw(path, sweep):
    results = read_once(path)
    return draw_sweep(results, contests(results)[0], sweep)


@pytest.mark.parametrize(
    ("sweep", "axis", "places"),
    [(FILTER_SIZE, "filter_size", SIZES), (NORM_DEPTH, "norm_depth", DEPTHS)],
)
def test_points_are_the_means_over_seeds(swept, raw_of, line_of, sweep, axis, places):
    raw, drawing = raw_of(swept), draw(swept, sweep)
    for axes, mean in zip(drawing.canvas.axes, (raw.mean_dataset, raw.mean_subject), strict=True):
        line = line_of(axes, "PSDNorm")
        by_seed = [[mean("psd", s, BOTH, **{axis: place}) for s in (0, 1)] for place in places]
        assert list(line.get_xdata()) == list(places)
        assert line.get_ydata() == pytest.approx(np.mean(by_seed, axis=1))
    of_first = [raw.mean_dataset("psd", s, BOTH, **{axis: places[0]}) for s in (0, 1)]
    expected = f"{np.mean(of_first):.2f} ± {np.std(of_first, ddof=1):.2f} at {places[0]}"
    assert expected in drawing.words


def test_bands_are_the_spread_over_seeds(swept, raw_of):
    raw, axes = raw_of(swept), draw(swept, FILTER_SIZE).canvas.axes[0]
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    for place in SIZES:
        by_seed = [raw.mean_dataset("psd", s, BOTH, filter_size=place) for s in (0, 1)]
        spread = np.std(by_seed, ddof=1)
        ends = corners[corners[:, 0] == place][:, 1]
        assert ends.min() == pytest.approx(np.mean(by_seed) - spread)
        assert ends.max() == pytest.approx(np.mean(by_seed) + spread)


def test_norms_that_do_not_vary_are_horizontal_lines(swept, raw_of, line_of):
    raw, drawing = raw_of(swept), draw(swept, FILTER_SIZE)
    for norm, label in {"batch": "BatchNorm", "tma": "TMA"}.items():
        expected = np.mean([raw.mean_dataset(norm, s, BOTH) for s in (0, 1)])
        line = line_of(drawing.canvas.axes[0], label)
        assert list(line.get_ydata()) == pytest.approx([expected, expected])
        assert f"{label} {expected:.2f}" in drawing.words


def test_a_cohort_without_a_setting_does_not_count_and_is_named(tmp_path, raw_of, line_of):
    lacking = [Run("usleep", "psd", 9, hold_out="MASS", seed=s).name for s in (0, 1)]
    write_runs(tmp_path, AXES, COHORTS, unfinished=lacking)
    drawing = draw(tmp_path, FILTER_SIZE)
    expected = np.mean([raw_of(tmp_path).mean_dataset("batch", s, ("ABC",)) for s in (0, 1)])
    line = line_of(drawing.canvas.axes[0], "BatchNorm")
    assert line.get_ydata()[0] == pytest.approx(expected)
    assert "Without MASS, where some settings have no result." in drawing.caption
    assert "1 held-out cohort." in drawing.caption


def test_an_arm_without_a_complete_seed_is_named_and_the_others_are_drawn(tmp_path, line_of):
    lacking = [
        Run("usleep", "psd", 9, hold_out="MASS", seed=0).name,
        Run("usleep", "psd", 9, hold_out="ABC", seed=1).name,
    ]
    write_runs(tmp_path, AXES, COHORTS, unfinished=lacking)
    drawing = draw(tmp_path, FILTER_SIZE)
    assert list(line_of(drawing.canvas.axes[0], "PSDNorm").get_xdata()) == [1, 5]
    assert len(drawing.missing) == 1
    assert "usleep psd f9 d3 @all has no seed with every cohort" in drawing.missing[0]


def test_a_size_that_was_chosen_is_a_line_across_beside_the_fixed_ones(tmp_path, raw_of, line_of):
    chosen = Axes(norms=("psd",), filter_sizes=("auto",), hold_outs=BOTH, seeds=(0, 1))
    write_runs(tmp_path, [*AXES, chosen], COHORTS)
    drawing = draw(tmp_path, FILTER_SIZE)
    assert list(line_of(drawing.canvas.axes[0], "PSDNorm").get_xdata()) == list(SIZES)
    own = line_of(drawing.canvas.axes[0], "PSDNorm (f auto)").get_ydata()
    raw = raw_of(tmp_path)
    means = [raw.mean_dataset("psd", s, BOTH, filter_size="auto") for s in (0, 1)]
    assert list(own) == pytest.approx([np.mean(means)] * 2)


def test_a_norm_that_was_only_run_with_a_chosen_size_is_drawn_once(tmp_path):
    white = Axes(norms=("psd-white",), filter_sizes=("auto",), hold_outs=BOTH, seeds=(0, 1))
    write_runs(tmp_path, [*AXES, white], COHORTS)
    words = draw(tmp_path, FILTER_SIZE).words
    assert words.count("PSDNorm-white (f auto)") == 1
