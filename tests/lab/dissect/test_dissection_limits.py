"""Missing scores, subjects and trainings of a dissection are reported."""

import pandas as pd
import pytest

from psdnorm.lab.dissect.dissection_report import Losses, limits
from psdnorm.lab.dissect.shifts import UNSHIFTED, conditions_of

NAMES = {"b": "BatchNorm", "i": "InstanceNorm", "p": "PSDNorm"}
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


def said(table):
    return limits(Losses(table, NAMES, "paper", 2, ASKED))


def test_nothing_is_said_if_nothing_is_missing(whole):
    assert said(whole) == []


def test_norms_without_a_score_are_named_with_these_shifts(whole):
    is_late = (whole["kind"] == "age") | ((whole["kind"] == "line") & (whole["strength"] > 5))
    some = whole[~((whole["arm"] == "p") & is_late)]
    assert said(some) == ["PSDNorm has no score of line noise (20 and 80 µV) and age."]
    two = whole[~(whole["arm"].isin(["i", "p"]) & is_late)]
    (sentence,) = said(two)
    assert sentence.startswith("InstanceNorm and PSDNorm have no score of line noise (20 and")


def test_a_norm_with_a_single_score_misses_all_others_by_name(whole):
    mild = (whole["kind"] == "gain") & (whole["strength"] == -3)
    one = whole[(whole["arm"] != "p") | (whole["kind"] == UNSHIFTED.kind) | mild]
    assert said(one) == ["PSDNorm has no score of gain (−6 and −12 dB), line noise and age."]


def test_a_norm_misses_what_others_have_even_if_the_request_is_unknown(whole):
    some = whole[~((whole["arm"] == "p") & (whole["kind"] == "age"))]
    assert limits(Losses(some, NAMES, "paper", 2)) == ["PSDNorm has no score of age."]


def test_a_shift_that_nobody_has_and_a_norm_that_has_none_are_named(whole):
    assert said(whole[whole["kind"] != "age"]) == ["No norm has a score of age."]
    plain = whole["kind"] == UNSHIFTED.kind
    only = whole[(whole["arm"] != "p") | plain]
    assert said(only) == ["PSDNorm has no score of any shift."]


def test_subjects_without_a_score_are_counted(whole):
    mild = (whole["kind"] == "gain") & (whole["strength"] == -3)
    assert said(whole[~(mild & (whole["subject"] == "0"))]) == [
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
    assert said(whole[~(is_psd & second)]) == ["PSDNorm has 1 of 2 trainings."]
    (sentence,) = said(whole[~(is_psd & second & (whole["kind"] == "age"))])
    assert sentence == "PSDNorm has 1 of 2 trainings in some conditions."
    assert "another seed" in said(whole[~second])[0]
