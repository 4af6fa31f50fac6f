"""Critical-difference diagrams show the ranks that one can count by hand."""

import numpy as np
import pytest
from experiment_runs import COHORTS, write_runs
from scipy import stats

from psdnorm.experiments.grid import Axes
from psdnorm.present.figure import CannotDraw
from psdnorm.report.contest import contests
from psdnorm.report.figures.score_figures import draw_ranks
from psdnorm.report.results import read_results

LABELS = {
    "batch": "BatchNorm",
    "layer": "LayerNorm",
    "instance": "InstanceNorm",
    "tma": "TMA",
    "psd": "PSDNorm",
}


@pytest.fixture(scope="module")
def by_subject(raw):
    return {norm: raw.subject_means(norm) for norm in LABELS}


def ranks_by_hand(table):
    """Mean ranks of the columns, 1 is highest."""
    return stats.rankdata(-np.array(table), axis=1).mean(axis=0)


def test_over_subjects_every_norm_is_at_its_mean_rank(contest, by_subject, line_of):
    people = list(by_subject["batch"])
    expected = ranks_by_hand([[by_subject[norm][who] for norm in LABELS] for who in people])
    drawing = draw_ranks(contest, "subjects")
    for axes in drawing.canvas.axes:
        found = [line_of(axes, label).get_xdata()[0] for label in LABELS.values()]
        assert found == pytest.approx(expected)
    for label, rank in zip(LABELS.values(), expected, strict=True):
        assert f"{label} {rank:.2f}" in drawing.words
    assert "22 subjects" in drawing.words


def test_over_datasets_every_norm_is_at_its_mean_rank(contest, by_subject, line_of):
    table = [
        [np.mean([v for (c, _), v in by_subject[norm].items() if c == cohort]) for norm in LABELS]
        for cohort in COHORTS
    ]
    expected = ranks_by_hand(table)
    axes = draw_ranks(contest, "datasets").canvas.axes[0]
    found = [line_of(axes, label).get_xdata()[0] for label in LABELS.values()]
    assert found == pytest.approx(expected)


def test_the_critical_difference_is_nemenyis(contest, line_of):
    drawing = draw_ranks(contest, "subjects")
    expected = stats.studentized_range.ppf(0.95, 5, np.inf) * np.sqrt(5 * 6 / (12 * 22))
    low, high = line_of(drawing.canvas.axes[0], "CD").get_xdata()
    assert high - low == pytest.approx(expected)
    assert f"critical difference {expected:.2f}" in drawing.words


def test_dots_mark_exactly_the_members_of_each_bar(contest):
    from psdnorm.evaluation.statistics import nemenyi, wilcoxon_holm

    drawing = draw_ranks(contest, "subjects")
    for axes, test in zip(drawing.canvas.axes, (nemenyi, wilcoxon_holm), strict=True):
        result = test(contest.tables.subjects)
        dots = [each.get_xdata() for each in axes.lines if each.get_label() == "members"]
        assert len(dots) == len(result.cliques)
        for found, clique in zip(dots, result.cliques, strict=True):
            assert list(found) == pytest.approx([result.mean_ranks[norm] for norm in clique])


def test_over_subjects_the_caption_says_that_they_are_not_independent(contest):
    assert "not independent" in draw_ranks(contest, "subjects").caption
    assert "not independent" not in draw_ranks(contest, "datasets").caption


def test_two_norms_have_no_bar_where_nothing_was_tested(tmp_path):
    axes = [Axes(norms=("batch", "psd"), hold_outs=("ABC", "MASS"), seeds=(0,))]
    write_runs(tmp_path, axes)
    drawing = draw_ranks(contests(read_results(tmp_path))[0], "subjects")
    nemenyi = drawing.canvas.axes[0]
    assert "not tested" in nemenyi.get_title(loc="left")
    assert not [each for each in nemenyi.lines if each.get_label() == "members"]


@pytest.mark.parametrize(
    ("norms", "cohorts", "sentence"),
    [
        (("psd",), ("ABC", "MASS"), "found only PSDNorm"),
        (("batch", "psd"), ("ABC",), "two datasets that every norm has, found 1"),
    ],
)
def test_what_cannot_be_ranked_is_said(tmp_path, norms, cohorts, sentence):
    write_runs(tmp_path, [Axes(norms=norms, hold_outs=cohorts, seeds=(0,))])
    with pytest.raises(CannotDraw, match=sentence):
        draw_ranks(contests(read_results(tmp_path))[0], "datasets")
