"""The training-size curve stands over the subjects that really trained."""

import json

import numpy as np
import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.figures.curve_figures import draw_training_size
from psdnorm.report.results import read_results
from psdnorm.training import Run

COHORTS = {"ABC": 12, "MASS": 14, "SOF": 16}
ALL = tuple(COHORTS)
SIZES = (2, 8, None)


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    path = tmp_path_factory.mktemp("sized")
    axes = [Axes(norms=("batch", "psd"), balanced=SIZES, hold_outs=ALL, seeds=(0, 1))]
    write_runs(path, axes, COHORTS, merit={"batch": -0.1, "psd": -0.095})
    return path


@pytest.fixture(scope="module")
def drawing(sized):
    return draw_training_size(read_results(sized), "usleep")


def trained(path):
    """Mean number of training subjects by size, from the files."""
    found = {}
    for file in path.glob("cells/*/config.json"):
        config = json.loads(file.read_text())
        size = config["cell"]["balanced"] or np.inf
        found.setdefault(size, []).append(config["data"]["train"]["subjects"])
    return [np.mean(found[size]) for size in sorted(found)]


def test_points_are_means_over_the_subjects_that_trained(sized, drawing, raw_of, line_of):
    raw = raw_of(sized)
    for norm, label in {"batch": "BatchNorm", "psd": "PSDNorm"}.items():
        line = line_of(drawing.canvas.axes[0], label)
        expected = [
            np.mean([raw.mean_dataset(norm, s, ALL, balanced=size) for s in (0, 1)])
            for size in SIZES
        ]
        assert line.get_xdata() == pytest.approx(trained(sized))
        assert line.get_ydata() == pytest.approx(expected)
    assert drawing.canvas.axes[0].get_xscale() == "log"


def test_the_factor_is_read_off_the_curves(sized, drawing, raw_of):
    raw = raw_of(sized)
    sizes = trained(sized)
    batch, psd = (
        [np.mean([raw.mean_dataset(n, s, ALL, balanced=b) for s in (0, 1)]) for b in SIZES]
        for n in ("batch", "psd")
    )
    # the drawn scores rise, and PSDNorm meets BatchNorm's last one before its own last
    assert (np.diff(psd) > 0).all()
    assert psd[0] < batch[-1] < psd[-1]
    size = np.exp(np.interp(batch[-1], psd, np.log(sizes)))
    assert f"from {size:,.0f} on: ×{sizes[-1] / size:.2g} fewer" in drawing.words
    said = " ".join(text.get_text() for text in drawing.canvas.axes[0].texts)
    assert f"×{sizes[-1] / size:.2g} fewer subjects" in said


def test_sizes_that_come_to_as_many_subjects_are_drawn_once_and_it_is_said(tmp_path, line_of):
    axes = [Axes(norms=("batch", "psd"), balanced=(5, 400, None), hold_outs=ALL, seeds=(0,))]
    write_runs(tmp_path, axes, COHORTS)
    drawing = draw_training_size(read_results(tmp_path), "usleep")
    assert len(line_of(drawing.canvas.axes[0], "PSDNorm").get_xdata()) == 2
    assert "balanced@400 has as many training subjects as a larger N" in drawing.caption


def test_one_size_is_no_curve_and_it_is_said(results):
    with pytest.raises(CannotDraw, match="no norm was run with two training sizes"):
        draw_training_size(results, "usleep")


def test_a_missing_run_does_not_make_one_size_two(tmp_path):
    axes = [Axes(norms=("batch", "psd"), balanced=(400, None), hold_outs=ALL, seeds=(0, 1))]
    gone = Run("usleep", "psd", hold_out="SOF", seed=1).name
    write_runs(tmp_path, axes, COHORTS, unfinished=[gone])
    with pytest.raises(CannotDraw, match="all sizes have as many training subjects"):
        draw_training_size(read_results(tmp_path), "usleep")


def test_a_norm_that_was_not_run_with_fewer_subjects_has_no_factor(tmp_path):
    axes = [
        Axes(norms=("batch",), balanced=(2, 8), hold_outs=ALL, seeds=(0,)),
        Axes(norms=("psd",), balanced=(8, None), hold_outs=ALL, seeds=(0,)),
    ]
    write_runs(tmp_path, axes, COHORTS)
    drawing = draw_training_size(read_results(tmp_path), "usleep")
    assert "PSDNorm is as good as BatchNorm with 13 subjects, and was not run with fewer" in (
        drawing.words
    )
    assert "×" not in drawing.words + "".join(t.get_text() for t in drawing.canvas.axes[0].texts)
