"""Every subject is a point where its two scores say."""

import numpy as np
import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import draw_scatter
from psdnorm.report.results import read_results
from psdnorm.report.verdict.verdict import judge
from psdnorm.training import Run


def points(axes):
    return {each.get_label(): np.asarray(each.get_offsets()) for each in axes.collections}


def test_points_are_the_scores_under_batchnorm_and_psdnorm(contest, raw):
    drawing = draw_scatter(contest)
    batch, psd = raw.subject_means("batch"), raw.subject_means("psd")
    expected = sorted((batch[who], psd[who]) for who in batch)
    found = points(drawing.canvas.axes[0])
    together = sorted(map(tuple, np.concatenate(list(found.values()))))
    assert np.array(together) == pytest.approx(np.array(expected))
    better = sum(psd[who] > batch[who] for who in batch)
    assert len(found["improved"]) == better
    assert f"Of 22 subjects, {better} ({100 * better / 22:.2f} %" in drawing.words
    assert f"{100 * better / 22:.1f} % of 22" in drawing.canvas.axes[0].get_title(loc="left")


def test_the_second_panel_is_against_the_best_baseline(contest, raw):
    means = {
        norm: np.mean([raw.mean_dataset(norm, seed) for seed in range(3)])
        for norm in ("batch", "layer", "instance", "tma")
    }
    best = {"tma": "TMA", "instance": "InstanceNorm"}[max(means, key=means.get)]
    drawing = draw_scatter(contest)
    assert drawing.canvas.axes[1].get_xlabel().startswith(best)
    assert f"is {best}." in drawing.caption


def test_points_are_the_subjects_that_the_verdict_counts(tmp_path):
    lacking = [Run("usleep", "tma", hold_out="MASS", seed=0).name]
    axes = [Axes(norms=("batch", "tma", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    write_runs(tmp_path, axes, unfinished=lacking)
    results = read_results(tmp_path)
    improved = judge(results, contests(results)[0]).duels["psd"].improved
    drawing = draw_scatter(contests(results)[0])
    assert improved.n_blocks == 6  # those of ABC
    assert f"Of 6 subjects, {improved.improved} (" in drawing.words
    assert "MASS is excluded: TMA has no score there." in drawing.caption


def test_without_psdnorm_it_is_said(tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch", "layer"), hold_outs=("ABC",), seeds=(0,))])
    with pytest.raises(CannotDraw, match="PSDNorm has no result"):
        draw_scatter(contests(read_results(tmp_path))[0])
