"""Training curves are the rows of the histories, and a bad one is named."""

import numpy as np
import pandas as pd
import pytest
from experiment_runs import COHORTS, write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import MOST_RUNS, draw_learning
from psdnorm.report.results import read_results
from psdnorm.training import Run


@pytest.fixture
def two_norms(tmp_path):
    runs = write_runs(
        tmp_path, [Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0, 1))]
    )
    return tmp_path, runs


def draw(path):
    return draw_learning(contests(read_results(path))[0])


def test_lines_are_the_losses_of_every_run(contest, runs, line_of):
    drawing = draw_learning(contest)
    axes = drawing.canvas.axes[-1]
    lowest = []
    for cohort in COHORTS:
        for seed in range(3):
            name = Run("usleep", "psd", hold_out=cohort, seed=seed).name
            history = pd.read_csv(runs / "cells" / name / "history.csv")
            for what in ("train", "validation"):
                line = line_of(axes, f"{what} {name}")
                assert list(line.get_xdata()) == list(history["step"])
                assert list(line.get_ydata()) == pytest.approx(list(history[f"{what}_loss"]))
            lowest.append(history["validation_loss"].min())
    assert f"PSDNorm: the lowest validation loss is {np.mean(lowest):.3f}" in drawing.words


def test_losses_are_compared_after_as_many_steps(two_norms):
    path, runs = two_norms
    histories = [path / "cells" / run.name / "history.csv" for run in runs]
    tables = [pd.read_csv(file) for file in histories]
    tables[0] = tables[0].iloc[:2]
    tables[0].to_csv(histories[0], index=False)
    step = tables[0]["step"].iloc[-1]
    rows = [table[table["step"] == step].iloc[0] for table in tables]
    said = []
    for norm, name in (("batch", "BatchNorm"), ("psd", "PSDNorm")):
        own = pd.DataFrame([row for row, run in zip(rows, runs, strict=True) if run.norm == norm])
        said.append(
            f"{name} {own['train_loss'].mean():.3f} and {own['validation_loss'].mean():.3f}"
        )
    assert f"After {step:,.0f} steps" in draw(path).words
    assert f"losses are: {'; '.join(said)}." in draw(path).words


def test_a_damaged_history_is_named_and_the_others_are_drawn(two_norms):
    path, runs = two_norms
    broken = [path / "cells" / run.name / "history.csv" for run in runs[:3]]
    broken[0].write_bytes(b"\xff\xfe\x00no table")
    broken[1].write_text("step,train_loss,validation_loss\n1,2,three\n")
    broken[2].unlink()
    drawing = draw(path)
    assert len(drawing.missing) == 3
    for file in broken:
        assert any(str(file) in sentence for sentence in drawing.missing)
    assert [axes.get_title(loc="left") for axes in drawing.canvas.axes] == [
        "BatchNorm (1)",
        "PSDNorm (4)",
    ]


def test_without_any_history_it_is_said(two_norms):
    path, runs = two_norms
    for run in runs:
        (path / "cells" / run.name / "history.csv").unlink()
    with pytest.raises(CannotDraw, match=r"no run has a history\.csv"):
        draw(path)


def test_no_more_runs_are_drawn_than_can_be_told_apart_and_it_is_said(tmp_path):
    seeds = tuple(range(MOST_RUNS + 3))
    write_runs(tmp_path, [Axes(norms=("psd",), hold_outs=("ABC",), seeds=seeds)], {"ABC": 1})
    drawing = draw(tmp_path)
    assert f"PSDNorm ({MOST_RUNS} of {MOST_RUNS + 3})" in drawing.caption
    lines = [each.get_label() for each in drawing.canvas.axes[0].lines]
    assert sum(label.startswith("validation usleep") for label in lines) == MOST_RUNS


def test_adabn_has_no_panel_as_it_does_not_train(tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch", "adabn3"), hold_outs=("ABC",), seeds=(0,))])
    drawing = draw(tmp_path)
    assert len(drawing.canvas.axes) == 1
    assert "AdaBN(3): not trained" in drawing.caption
