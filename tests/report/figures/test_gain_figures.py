"""Gains in the forest are differences of means, each where its row says."""

import numpy as np
import pytest
from experiment_runs import COHORTS, write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import draw_gains
from psdnorm.report.results import read_results
from psdnorm.report.verdict.verdict import judge


def drawn(axes):
    """Points and intervals of the rows, by their names."""
    names = [tick.get_text() for tick in axes.figure.axes[0].get_yticklabels()]
    found = {}
    for container in axes.containers:
        points, _, (bars,) = container.lines
        for x, y, bar in zip(*points.get_data(), bars.get_segments(), strict=True):
            found[names[round(y)]] = (x, bar[0][0], bar[1][0])
    return found


@pytest.fixture(scope="module")
def drawing(contest):
    return draw_gains(contest)


def test_points_are_differences_of_means(drawing, raw):
    panels = {axes.get_title(loc="left"): axes for axes in drawing.canvas.axes}
    for norm, label in {"layer": "LayerNorm", "psd": "PSDNorm"}.items():
        own, batch = raw.subject_means(norm), raw.subject_means("batch")
        of_cohort = {c: np.mean([own[w] - batch[w] for w in own if w[0] == c]) for c in COHORTS}
        expected = of_cohort | {
            "Mean(Dataset)": np.mean(list(of_cohort.values())),
            "Mean(Subject)": np.mean([own[w] - batch[w] for w in own]),
        }
        found = drawn(panels[label])
        assert {row: x for row, (x, _, _) in found.items()} == pytest.approx(expected)
        assert f"Mean(Dataset) {expected['Mean(Dataset)']:+.2f}" in drawing.words
        assert f"CHAT {expected['CHAT']:+.2f}" in drawing.words


def test_intervals_of_a_cohort_are_those_of_drawing_its_subjects_and_seeds(drawing, raw):
    of_seeds = [
        (raw.accuracies("psd", "CHAT", seed), raw.accuracies("batch", "CHAT", seed))
        for seed in range(3)
    ]
    gains = np.array([[own[who] - batch[who] for who in own] for own, batch in of_seeds])
    rng = np.random.default_rng(1)
    seeds, people = rng.integers(3, size=(20_000, 3, 1)), rng.integers(9, size=(20_000, 1, 9))
    draws = gains[seeds, people].mean(axis=(1, 2))
    _, low, high = drawn(drawing.canvas.axes[-1])["CHAT"]
    expected = np.quantile(draws, [0.025, 0.975])
    assert [low, high] == pytest.approx(expected, abs=0.1 * np.ptp(expected))


def test_intervals_of_the_means_are_those_of_the_verdict(drawing, results):
    gains = judge(results, contests(results)[0]).duels["psd"].gains
    found = drawn(drawing.canvas.axes[-1])
    for mean in ("Mean(Dataset)", "Mean(Subject)"):
        expected = [100 * x for x in (gains[mean].gain, gains[mean].low, gains[mean].high)]
        assert found[mean] == pytest.approx(expected)


def test_the_caption_says_what_was_drawn_and_how_rough_it_is(drawing):
    assert "its subjects and seeds are drawn" in drawing.caption
    assert "cohorts, subjects and seeds" in drawing.caption
    assert "few cohorts are rough" in drawing.caption


def test_without_batchnorm_it_is_said(tmp_path):
    write_runs(tmp_path, [Axes(norms=("layer", "psd"), hold_outs=("ABC",), seeds=(0,))])
    with pytest.raises(CannotDraw, match="BatchNorm has no result"):
        draw_gains(contests(read_results(tmp_path))[0])


def test_one_cohort_is_one_row_with_the_interval_of_the_verdict(tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch", "psd"), hold_outs=("CHAT",), seeds=(0, 1))])
    results = read_results(tmp_path)
    drawing = draw_gains(contests(results)[0])
    gain = judge(results, contests(results)[0]).duels["psd"].gains["Mean(Dataset)"]
    expected = [100 * x for x in (gain.gain, gain.low, gain.high)]
    assert drawn(drawing.canvas.axes[0]) == {"CHAT": pytest.approx(expected)}
    assert "of the means" not in drawing.caption
    assert drawing.words.startswith(f"PSDNorm over BatchNorm, in points: CHAT {expected[0]:+.2f}")
