"""The figures of a comparison show what the raw scores of both sides say."""

import numpy as np
import pandas as pd
import pytest
from experiment_runs import MERIT, write_runs

from psdnorm import compare as compared_figures
from psdnorm.compare import compare, comparison_figures
from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.training import Run

AXES = Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0, 1))
STAGES = ("W", "N1", "N2", "N3", "REM")
BETTER = {norm: merit + 0.1 for norm, merit in MERIT.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_runs(folder / "a", [AXES], epochs=60)
    write_runs(folder / "b", [AXES], epochs=60, merit=BETTER)
    return folder


@pytest.fixture(scope="module")
def comparison(folders):
    return compare(folders / "a", folders / "b")


def matrices(folder, seed):
    """Confusion matrices by cohort and subject, straight from the files."""
    found = {}
    for cohort in ("ABC", "CHAT"):
        name = Run("usleep", "psd", hold_out=cohort, seed=seed).name
        for row in pd.read_parquet(folder / "cells" / name / "scores.parquet").to_dict("records"):
            counts = [[row[f"{true}_as_{guess}"] for guess in STAGES] for true in STAGES]
            found[cohort, row["subject"]] = np.array(counts)
    return found


def accuracies(folder):
    """Balanced accuracy in percent of each subject, mean over seeds."""
    by_seed = [matrices(folder, seed) for seed in (0, 1)]
    return {
        who: np.mean(
            [100 * np.mean([m[i, i] / m[i].sum() for i in range(5) if m[i].sum()]) for m in own]
        )
        for who, own in ((who, [each[who] for each in by_seed]) for who in by_seed[0])
    }


def test_every_subject_is_a_point_at_its_two_scores(folders, comparison):
    drawing = compared_figures._subjects(comparison.arms[0])
    (axes,) = drawing.canvas.axes
    points = np.concatenate([np.asarray(each.get_offsets()) for each in axes.collections])
    a, b = accuracies(folders / "a"), accuracies(folders / "b")
    expected = np.array(sorted((a[who], b[who]) for who in a))
    assert np.array(sorted(map(tuple, points))) == pytest.approx(expected)
    better = sum(b[who] > a[who] for who in a)
    assert f"Of 15 subjects, {better} (" in drawing.words
    assert "score higher with B than with A" in drawing.words


def test_gains_of_cohorts_are_those_of_their_subjects(folders, comparison):
    drawing = compared_figures._gains(comparison.arms[0])
    a, b = accuracies(folders / "a"), accuracies(folders / "b")
    for cohort in ("ABC", "CHAT"):
        gain = np.mean([b[who] - a[who] for who in a if who[0] == cohort])
        assert f"{cohort} {gain:+.2f}" in drawing.words
    assert drawing.words.startswith("B over A, in points: ")


def test_stages_differ_as_the_confusion_matrices_do(folders, comparison):
    drawing = compared_figures._stages(comparison.arms[0])

    def f1(folder, seed, stage):
        by_cohort = {}
        for (cohort, _), m in matrices(folder, seed).items():
            of = m[stage].sum() + m[:, stage].sum()
            by_cohort.setdefault(cohort, []).append(200 * m[stage, stage] / of if of else np.nan)
        return np.mean([np.nanmean(each) for each in by_cohort.values()])

    for number, stage in enumerate(STAGES):
        gains = [f1(folders / "b", s, number) - f1(folders / "a", s, number) for s in (0, 1)]
        assert f"{stage} {np.mean(gains):+.2f} ± {np.std(gains, ddof=1):.2f}" in drawing.words


def test_seeds_without_a_cohort_do_not_count_in_stages(folders, tmp_path):
    gone = [Run("usleep", "psd", hold_out="CHAT", seed=1).name]
    write_runs(tmp_path / "part", [AXES], epochs=60, unfinished=gone)
    (arm,) = compare(folders / "a", tmp_path / "part").arms
    assert "Seeds without all cohorts are not counted." in compared_figures._stages(arm).caption
    gone.append(Run("usleep", "psd", hold_out="ABC", seed=0).name)
    write_runs(tmp_path / "none", [AXES], epochs=60, unfinished=gone)
    (arm,) = compare(folders / "a", tmp_path / "none").arms
    with pytest.raises(CannotDraw, match="no seed in which both have all cohorts"):
        compared_figures._stages(arm)


def test_all_three_are_png_and_svg_and_say_that_nights_are_simulated(comparison):
    figures = comparison_figures(comparison)
    names = [figure.name for figure in figures]
    key = "usleep-psd-f5-d3-all"
    assert names == [f"subjects-{key}", f"gains-{key}", f"stages-{key}"]
    assert figures.missing == []
    for figure in figures:
        assert figure.png.startswith(b"\x89PNG")
        assert b"<svg" in figure.svg
        assert figure.title.startswith("SIMULATED: ")
        assert "Recipe: paper." in figure.caption
