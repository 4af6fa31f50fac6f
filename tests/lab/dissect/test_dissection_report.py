"""Sentences, figure and page of a dissection agree with its numbers."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from psdnorm.lab.dissect.dissection_report import (
    Losses,
    cell_text,
    choices,
    draw_losses,
    limits,
    write_dissection,
)
from psdnorm.lab.dissect.shifts import KINDS, UNSHIFTED, conditions_of
from psdnorm.present.figure import styled

NAMES = {"b": "BatchNorm", "i": "InstanceNorm", "p": "PSDNorm"}
SUBJECTS = 8


def losses(lost, spread=0.5, unshifted=(80.0, 80.0, 80.0), subjects=SUBJECTS, seeds=2):
    """Accuracies in which norms lose ``lost[kind][strength number]`` points on average."""
    rng = np.random.default_rng(0)
    rows = []
    for arm, start in zip(NAMES, unshifted, strict=True):
        for seed in range(seeds):
            for subject in range(subjects):
                base = start / 100
                owner = {"arm": arm, "training": f"SHHS, seed {seed}", "subject": f"{subject}"}
                rows.append({**owner, "kind": UNSHIFTED.kind, "strength": 0.0, "a": base})
                for kind, by_strength in lost.items():
                    steps = zip(KINDS[kind].strengths, by_strength, strict=True)
                    for strength, by_arm in steps:
                        points = by_arm[list(NAMES).index(arm)] + spread * rng.standard_normal()
                        case = {"kind": kind, "strength": strength, "a": base - points / 100}
                        rows.append({**owner, **case})
    table = pd.DataFrame(rows).rename(columns={"a": "balanced_accuracy"})
    return Losses(table, NAMES, "paper", subjects)


TILTED = {"response": [(3, 0, 0), (9, 2, 0), (20, 10, 1)]}
HARMLESS = {"line": [(0, 0, 0)] * 3}


def without(found, arm, kind, strengths):
    """The same where an arm has no score at some strengths of a kind."""
    table = found.accuracies
    gone = (table["arm"] == arm) & (table["kind"] == kind) & table["strength"].isin(strengths)
    return dataclasses.replace(found, accuracies=table[~gone])


def said(found):
    return [" ".join(choice.sentences()) for choice in choices(found)]


def test_a_norm_that_loses_least_beyond_noise_is_picked_and_the_others_are_listed():
    (words,) = said(losses(TILTED))
    assert words.startswith("Pick PSDNorm: at −2 dB per octave it loses least, ")
    assert "These lose more: InstanceNorm " in words
    assert "BatchNorm " in words
    assert "Losses beyond noise: BatchNorm at −0.5, −1 and −2 dB per octave" in words
    assert "InstanceNorm at −1 and −2 dB per octave" in words


def test_norms_within_noise_of_the_best_are_named_with_it():
    tied = {"response": [(3, 0, 0), (9, 0, 0), (20, 1, 1)]}
    (words,) = said(losses(tied, spread=3.0))
    assert "within noise of it: " in words
    assert "Pick one of these." in words
    assert "Pick PSDNorm" not in words
    assert "Pick InstanceNorm" not in words
    assert "These lose more: BatchNorm" in words


def test_where_nobody_loses_no_norm_is_picked():
    (words,) = said(losses(HARMLESS, spread=0.0))
    assert words.startswith("Pick for other reasons: up to 80 µV, no norm loses more than noise")
    assert "8 subjects" in words


def test_where_all_lose_alike_none_is_better_than_another():
    (words,) = said(losses({"scorer": [(1, 1, 1), (2, 2, 2), (5, 5, 5)]}, spread=0.0))
    assert words.startswith("No norm is better than another beyond noise: at +2 epochs ")
    losers = "BatchNorm, InstanceNorm and PSDNorm"
    assert f"Losses beyond noise: {losers} at +0.5, +1 and +2 epochs." in words


def test_a_difference_of_less_than_half_a_point_picks_nobody_however_sure(tmp_path):
    nearly = {"scorer": [(1, 1, 1), (2, 2, 2), (5.0, 5.2, 5.4)]}
    found = losses(nearly, spread=0.01, unshifted=(80, 80, 90))
    (words,) = said(found)
    assert words.startswith(
        "Pick for other reasons: at +2 epochs all lose nearly the same, 5.0 to 5.4 points."
    )
    assert "Less than half a point lies between them: BatchNorm 5.0 (" in words
    losers = "BatchNorm, InstanceNorm and PSDNorm"
    assert f"Losses beyond noise: {losers} at +0.5, +1 and +2 epochs." in words
    assert "still the most accurate" not in words
    write_dissection(found, tmp_path / "report", "x", figures=False)
    page = (tmp_path / "report" / "index.html").read_text().replace("\n", "")
    assert "<td>nobody</td><td>all, nearly: less than half a point</td>" in page
    more = {"scorer": [(1, 1, 1), (2, 2, 2), (5.0, 5.2, 5.6)]}
    assert said(losses(more, spread=0.01))[0].startswith("Pick BatchNorm: at +2 epochs it loses")


def test_a_loss_shown_as_zero_is_not_reported():
    (words,) = said(losses({"gain": [(0.02, 0, 3), (0.02, 0, 3), (0.02, 0, 3)]}, spread=0.001))
    assert "Losses beyond noise: PSDNorm at −3, −6 and −12 dB." in words
    assert "BatchNorm and InstanceNorm lose nothing beyond noise at any strength." in words


def test_a_gain_is_not_reported_as_a_loss():
    (words,) = said(losses({"gain": [(-2, 0, 3), (-2, 0, 3), (-2, 0, 3)]}, spread=0.01))
    assert "Losses beyond noise: PSDNorm at −3, −6 and −12 dB." in words


def test_a_loss_at_a_lesser_strength_alone_is_reported_and_norms_without_loss_too():
    (words,) = said(losses({"electrode": [(4, 0, 0), (0, 0, 0), (0, 0, 0)]}, spread=0.0))
    assert "Losses beyond noise: BatchNorm at 2 µV RMS." in words
    assert "InstanceNorm and PSDNorm lose nothing beyond noise at any strength." in words


def test_a_norm_that_loses_more_but_stays_ahead_is_said_to_stay_ahead():
    found = losses({"gain": [(1, 0, 0), (2, 0, 0), (5, 0, 0)]}, unshifted=(90, 70, 70))
    (words,) = said(found)
    assert "BatchNorm is still the most accurate, with 8" in words
    assert "it started from 90.0 %" in words


def test_with_one_subject_no_norm_is_picked():
    (words,) = said(losses(TILTED, subjects=1))
    assert words.startswith("1 subject cannot tell norms apart")
    assert "Pick" not in words


def test_the_matrix_goes_from_mild_to_severe_in_the_order_of_kinds_and_norms():
    matrix = losses(TILTED | {"gain": [(0, 0, 0)] * 3}).matrix
    assert list(dict.fromkeys(matrix["kind"])) == ["gain", "response"]
    own = matrix[matrix["kind"] == "response"]
    assert own["strength"].unique().tolist() == [-0.5, -1.0, -2.0]
    assert own["norm"].tolist()[:3] == list(NAMES.values())


def test_a_norm_without_a_score_at_the_greatest_strength_is_said_not_to_be_compared():
    found = without(losses(TILTED), "p", "response", [-2.0])
    (choice,) = choices(found)
    first, *others = choice.sentences()
    assert first.startswith("Pick InstanceNorm: at −2 dB per octave it loses least, ")
    assert first.endswith("PSDNorm is not compared: it has no score at −2 dB per octave.")
    assert "PSDNorm loses nothing beyond noise at −0.5 and −1 dB per octave." in others
    (words,) = said(without(found, "i", "response", [-2.0]))
    assert "InstanceNorm and PSDNorm are not compared: they have no score at −2 dB" in words
    assert words.startswith("There is no norm to compare with: at −2 dB per octave BatchNorm loses")


def test_a_norm_without_any_score_of_a_kind_is_named_there_whatever_is_picked():
    everywhere = KINDS["line"].strengths
    found = losses(TILTED | HARMLESS, spread=0.0)
    for arm, name in (("p", "PSDNorm"), ("b", "BatchNorm")):
        tilted, harmless = said(without(found, arm, "line", everywhere))
        assert f"{name} is not compared: it has no score at any strength." in harmless
        assert "not compared" not in tilted
    alone = losses(TILTED | HARMLESS, subjects=1)
    assert "PSDNorm is not compared" in said(without(alone, "p", "line", everywhere))[1]


def test_a_norm_without_a_score_at_a_lesser_strength_is_compared_and_the_lack_is_said():
    (words,) = said(without(losses(TILTED), "p", "response", [-0.5]))
    assert words.startswith("Pick PSDNorm: ")
    assert "PSDNorm has no score at −0.5 dB per octave." in words
    assert "not compared" not in words
    tilted = {"response": [(3, 0, 0), (9, 0, 0), (20, 0, 0)]}
    (words,) = said(without(losses(tilted, spread=0.0), "p", "response", [-0.5]))
    assert "PSDNorm loses nothing beyond noise at −1 and −2 dB per octave." in words
    assert "InstanceNorm loses nothing beyond noise at any strength." in words


def test_a_norm_of_fewer_trainings_is_said_to_have_fewer_under_each_kind():
    found = losses(TILTED | HARMLESS)
    table = found.accuracies
    once = table[~((table["arm"] == "p") & (table["training"] == "SHHS, seed 1"))]
    for words in said(dataclasses.replace(found, accuracies=once)):
        assert words.endswith("PSDNorm has 1 of 2 trainings here.")
    assert not any("trainings" in words for words in said(found))


def test_the_figure_has_every_number_and_the_units_of_strengths():
    found = losses(TILTED | HARMLESS)
    with styled():
        drawing = draw_losses(found)
        first, second = drawing.canvas.axes[:2]
    shown = {
        axes.get_title(loc="left"): [text.get_text() for text in axes.texts]
        for axes in (first, second)
    }
    for kind in found.kinds():
        own = found.matrix[found.matrix["kind"] == kind.name]
        expected = [cell_text(r.lost, r.low, r.high) for r in own.itertuples()]
        assert shown[kind.title] == expected
    assert first.get_xlabel() == "dB per octave"
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["−0.5", "−1", "−2"]
    assert [tick.get_text() for tick in first.get_yticklabels()] == list(NAMES.values())


def test_a_norm_without_a_score_has_a_dash_in_the_figure_which_the_caption_explains():
    whole = losses(TILTED | HARMLESS)
    found = without(whole, "p", "line", KINDS["line"].strengths)
    with styled():
        drawing, full = draw_losses(found), draw_losses(whole)
        tilted, line = drawing.canvas.axes[:2]
    at = [text.get_position() for text in line.texts if text.get_text() == "–"]
    assert at == [(0, 2), (1, 2), (2, 2)]
    assert "–" not in [text.get_text() for text in tilted.texts]
    assert "– on hatching: the norm has no score there." in drawing.caption
    assert "no score of PSDNorm" in drawing.words
    assert "hatching" not in full.caption
    assert "no score" not in full.words


def test_a_loss_whose_interval_holds_zero_is_in_brackets():
    assert cell_text(3.0, 1.0, 5.0) == "3.0"
    assert cell_text(3.0, -1.0, 5.0) == "(3.0)"
    assert cell_text(-2.0, -3.0, -1.0) == "−2.0"
    assert cell_text(1.0, float("nan"), float("nan")) == "(1.0)"


def test_a_number_that_rounds_to_zero_is_in_brackets_as_the_caption_says():
    assert cell_text(0.049, 0.01, 0.06) == "(0.0)"
    assert cell_text(-0.049, -0.06, -0.01) == "(0.0)"
    assert cell_text(0.06, 0.01, 0.09) == "0.1"
    with styled():
        assert "contains zero, or the number rounds to it." in draw_losses(losses(HARMLESS)).caption


def test_the_page_has_the_words_and_the_tables_are_the_matrix(tmp_path):
    found = losses(TILTED | HARMLESS)
    headlines = write_dissection(found, tmp_path / "report", "psdnorm dissect runs")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "These nights are simulated" in page
    assert "<td>nobody</td><td>all</td>" in page.replace("\n", "")
    assert "psdnorm dissect runs" in page
    assert "Subjects: 8; trainings of each norm: 2. Recipe: paper." in page.split("<table")[0]
    record = json.loads((tmp_path / "report" / "report.json").read_text())
    assert record["sentences"]["response"][0] in headlines[0]
    for words in record["sentences"].values():
        assert all(word.split(" (")[0] in page for word in words)
    tables = tmp_path / "report" / "tables"
    pd.testing.assert_frame_equal(pd.read_parquet(tables / "matrix.parquet"), found.matrix)
    as_text = pd.read_csv(tables / "matrix.csv")
    assert as_text["lost"].to_numpy() == pytest.approx(found.matrix["lost"].to_numpy(), rel=1e-5)
    assert len(pd.read_parquet(tables / "subjects.parquet")) == len(found.pairs)
    figures = {file.name for file in (tmp_path / "report" / "figures").iterdir()}
    assert figures == {"dissection.png", "dissection.svg"}


def test_the_picks_name_who_was_not_compared_and_the_page_says_whose_scores_they_are(tmp_path):
    found = without(losses(TILTED | HARMLESS), "p", "line", KINDS["line"].strengths)
    found = dataclasses.replace(found, version="0.0.1")
    write_dissection(found, tmp_path / "report", "x", figures=False)
    page = (tmp_path / "report" / "index.html").read_text().replace("\n", "")
    assert "not compared: no score</th>" in page
    assert "<td>nobody</td><td>all</td>" in page
    assert "<td>PSDNorm</td></tr>" in page
    assert "PSDNorm has no score of line noise." in page
    assert "Scores: psdnorm 0.0.1, recipe paper" in page
    write_dissection(losses(TILTED), tmp_path / "report", "x", figures=False)
    assert "not compared" not in (tmp_path / "report" / "index.html").read_text()
    alone = losses(HARMLESS)
    for arm in ("i", "p"):
        alone = without(alone, arm, "line", KINDS["line"].strengths)
    write_dissection(alone, tmp_path / "report", "x", figures=False)
    assert "only BatchNorm" in (tmp_path / "report" / "index.html").read_text()


def test_a_page_without_figures_is_written_too(tmp_path):
    write_dissection(losses(HARMLESS), tmp_path / "report", "x", figures=False)
    assert not (tmp_path / "report" / "figures").exists()


ASKED = tuple(conditions_of(["gain", "line", "age"]))


@pytest.fixture
def whole():
    """Accuracies of three norms, two trainings and two subjects under all that is asked for."""
    rows = [
        (arm, f"SHHS, seed {seed}", f"{subject}", condition.kind, condition.strength, 0.8)
        for arm in NAMES
        for seed in range(2)
        for subject in range(2)
        for condition in ASKED
    ]
    columns = ["arm", "training", "subject", "kind", "strength", "balanced_accuracy"]
    return pd.DataFrame(rows, columns=columns)


def limits_of(table):
    return limits(Losses(table, NAMES, "paper", 2, ASKED))


def test_nothing_is_said_if_nothing_is_missing(whole):
    assert limits_of(whole) == []


def test_norms_without_a_score_are_named_with_these_shifts(whole):
    is_late = (whole["kind"] == "age") | ((whole["kind"] == "line") & (whole["strength"] > 5))
    some = whole[~((whole["arm"] == "p") & is_late)]
    assert limits_of(some) == ["PSDNorm has no score of line noise (20 and 80 µV) and age."]
    two = whole[~(whole["arm"].isin(["i", "p"]) & is_late)]
    (sentence,) = limits_of(two)
    assert sentence.startswith("InstanceNorm and PSDNorm have no score of line noise (20 and")


def test_a_norm_with_a_single_score_misses_all_others_by_name(whole):
    mild = (whole["kind"] == "gain") & (whole["strength"] == -3)
    one = whole[(whole["arm"] != "p") | (whole["kind"] == UNSHIFTED.kind) | mild]
    assert limits_of(one) == ["PSDNorm has no score of gain (−6 and −12 dB), line noise and age."]


def test_a_norm_misses_what_others_have_even_if_the_request_is_unknown(whole):
    some = whole[~((whole["arm"] == "p") & (whole["kind"] == "age"))]
    assert limits(Losses(some, NAMES, "paper", 2)) == ["PSDNorm has no score of age."]


def test_a_shift_that_nobody_has_and_a_norm_that_has_none_are_named(whole):
    assert limits_of(whole[whole["kind"] != "age"]) == ["No norm has a score of age."]
    plain = whole["kind"] == UNSHIFTED.kind
    only = whole[(whole["arm"] != "p") | plain]
    assert limits_of(only) == ["PSDNorm has no score of any shift."]


def test_subjects_without_a_score_are_counted(whole):
    mild = (whole["kind"] == "gain") & (whole["strength"] == -3)
    assert limits_of(whole[~(mild & (whole["subject"] == "0"))]) == [
        "Gain, −3 dB: 1 of 2 subjects have a score with and without it."
    ]
    third = whole[whole["subject"] == "0"].assign(subject="2")
    three = pd.concat([whole, third])
    some = (three["arm"] == "i") & (three["subject"] == "0")
    more = (three["arm"] == "p") & three["subject"].isin(["0", "1"])
    is_mild = (three["kind"] == "gain") & (three["strength"] == -3)
    (sentence,) = limits(Losses(three[~(is_mild & (some | more))], NAMES, "paper", 3, ASKED))
    assert sentence == "Gain, −3 dB: 1 of 3 subjects have a score with and without it."


def test_fewer_trainings_are_counted_and_a_single_one_is_a_caveat(whole):
    second = whole["training"] == "SHHS, seed 1"
    is_psd = whole["arm"] == "p"
    assert limits_of(whole[~(is_psd & second)]) == ["PSDNorm has 1 of 2 trainings."]
    (sentence,) = limits_of(whole[~(is_psd & second & (whole["kind"] == "age"))])
    assert sentence == "PSDNorm has 1 of 2 trainings in some conditions."
    assert "another seed" in limits_of(whole[~second])[0]
