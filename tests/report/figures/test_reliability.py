"""Reliability follows from the epochs in each bin."""

import numpy as np
import pandas as pd
import pytest
from experiment_runs import COHORTS, write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import draw_calibration
from psdnorm.report.results import read_results
from psdnorm.training import Run


def test_accuracy_confidence_and_error_are_those_of_all_epochs(contest, runs, line_of):
    epochs, right, confidence = np.zeros(15), np.zeros(15), np.zeros(15)
    for cohort in COHORTS:
        for seed in range(3):
            name = Run("usleep", "psd", hold_out=cohort, seed=seed).name
            table = pd.read_parquet(runs / "cells" / name / "scores.parquet")
            for b in range(15):
                epochs[b] += table[f"bin_{b:02}_epochs"].sum()
                right[b] += table[f"bin_{b:02}_correct"].sum()
                confidence[b] += table[f"bin_{b:02}_confidence"].sum()
    used = epochs > 0
    drawing = draw_calibration(contest)
    axes = drawing.canvas.axes[-1]
    assert axes.get_title(loc="left").startswith("PSDNorm")
    line = line_of(axes, "accuracy")
    assert line.get_xdata() == pytest.approx(100 * confidence[used] / epochs[used])
    assert line.get_ydata() == pytest.approx(100 * right[used] / epochs[used])
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(100 * epochs / epochs.sum())
    error = 100 * np.abs(right - confidence).sum() / epochs.sum()
    assert f"PSDNorm {error:.2f} %" in drawing.words


def test_a_norm_with_missing_runs_is_named(tmp_path):
    lacking = [Run("usleep", "psd", hold_out="MASS", seed=0).name]
    axes = [Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    write_runs(tmp_path, axes, unfinished=lacking)
    drawing = draw_calibration(contests(read_results(tmp_path))[0])
    assert "PSDNorm has 1 of 2 runs." in drawing.caption
    assert "The verdict does not count all of these runs." in drawing.caption


def test_norms_with_as_many_runs_of_other_people_are_named(tmp_path):
    lacking = [
        Run("usleep", norm, hold_out=cohort, seed=0).name
        for norm, cohort in (("psd", "MASS"), ("batch", "CHAT"))
    ]
    axes = [Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT", "MASS"), seeds=(0,))]
    write_runs(tmp_path, axes, unfinished=lacking)
    caption = draw_calibration(contests(read_results(tmp_path))[0]).caption
    assert "BatchNorm has 2 of 3 runs. PSDNorm has 2 of 3 runs." in caption


def test_norms_that_have_all_runs_are_not_named(contest):
    caption = draw_calibration(contest).caption
    assert "runs" not in caption.lower()
