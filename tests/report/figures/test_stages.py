"""Differences in F1 are those of scikit-learn's scores, seed by seed."""

import numpy as np
import pytest
from experiment_runs import COHORTS, write_runs
from sklearn.metrics import f1_score

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import draw_stages
from psdnorm.report.results import read_results
from psdnorm.training import Run


def f1_by_hand(raw, norm, seed, cohorts=tuple(COHORTS)):
    """Mean over datasets of subjects' F1, (5,), by scikit-learn on epochs laid out again."""
    of_cohorts = []
    for cohort in cohorts:
        scores = []
        for matrix in raw.matrices(norm, cohort, seed).values():
            true, found = np.repeat(
                np.indices((5, 5)).reshape(2, -1), matrix.ravel().astype(int), 1
            )
            scores.append(
                f1_score(true, found, labels=range(5), average=None, zero_division=np.nan)
            )
        of_cohorts.append(np.nanmean(scores, axis=0))
    return 100 * np.mean(of_cohorts, axis=0)


def drawn(axes):
    found = {}
    for container in axes.containers:
        points, _, (bars,) = container.lines
        reach = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
        found[container.get_label()] = (points.get_ydata(), reach)
    return found


def test_points_and_bars_are_mean_and_spread_over_seeds(contest, raw):
    drawing = draw_stages(contest)
    found = drawn(drawing.canvas.axes[0])
    for norm, label in {"instance": "InstanceNorm", "psd": "PSDNorm"}.items():
        differences = [f1_by_hand(raw, norm, s) - f1_by_hand(raw, "batch", s) for s in range(3)]
        mean, spread = np.mean(differences, axis=0), np.std(differences, axis=0, ddof=1)
        assert found[label][0] == pytest.approx(mean)
        assert found[label][1] == pytest.approx(spread)
        assert f"N1 {mean[1]:+.2f} ± {spread[1]:.2f}" in drawing.words


def test_a_seed_without_all_cohorts_is_not_averaged(tmp_path, raw_of):
    lacking = [Run("usleep", "psd", hold_out="MASS", seed=1).name]
    axes = [Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0, 1))]
    write_runs(tmp_path, axes, unfinished=lacking)
    drawing = draw_stages(contests(read_results(tmp_path))[0])
    raw = raw_of(tmp_path)
    expected = f1_by_hand(raw, "psd", 0, ("ABC", "MASS")) - f1_by_hand(
        raw, "batch", 0, ("ABC", "MASS")
    )
    assert drawn(drawing.canvas.axes[0])["PSDNorm"][0] == pytest.approx(expected)
    assert "one seed has no ±" in drawing.caption
    assert "PSDNorm is missing 7 of the 14 scores of MASS." in drawing.caption
    assert "Seeds without all cohorts are not counted." in drawing.caption
    assert "±" not in drawing.words


def test_all_norms_are_drawn_over_the_cohorts_that_all_have(tmp_path, raw_of):
    lacking = [Run("usleep", "tma", hold_out="MASS", seed=0).name]
    axes = [Axes(norms=("batch", "tma", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    write_runs(tmp_path, axes, unfinished=lacking)
    drawing = draw_stages(contests(read_results(tmp_path))[0])
    raw = raw_of(tmp_path)
    for norm, label in {"tma": "TMA", "psd": "PSDNorm"}.items():
        expected = f1_by_hand(raw, norm, 0, ("ABC",)) - f1_by_hand(raw, "batch", 0, ("ABC",))
        assert drawn(drawing.canvas.axes[0])[label][0] == pytest.approx(expected)
    assert "MASS is excluded: TMA has no score there." in drawing.caption


def test_without_a_seed_that_has_every_cohort_it_is_said(tmp_path):
    axes = [
        Axes(norms=("batch", "psd"), hold_outs=(cohort,), seeds=(seed,))
        for cohort, seed in (("ABC", 0), ("MASS", 1))
    ]
    write_runs(tmp_path, axes)
    with pytest.raises(CannotDraw, match="no seed in which every norm has all cohorts"):
        draw_stages(contests(read_results(tmp_path))[0])
