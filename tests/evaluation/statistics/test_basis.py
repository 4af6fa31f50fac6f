"""What every result says about the blocks behind it."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError, DtypeError
from psdnorm.evaluation.statistics import friedman, share_improved, subject_caveat

SCORES = {"batch": [0.5, 0.6, 0.7], "layer": [0.4, 0.3, 0.5], "psd": [0.6, 0.7, np.nan]}
PEOPLE = pd.MultiIndex.from_tuples(
    [("a", "1"), ("a", "2"), ("b", "1")], names=["cohort", "subject"]
)
COHORTS = pd.Index(["a", "b", "c"], name="cohort")


def test_a_caption_counts_blocks_and_those_left_out():
    result = friedman(pd.DataFrame(SCORES, COHORTS))
    assert (result.blocks, result.n_blocks, result.left_out) == ("datasets", 2, ("c",))
    assert result.n_cohorts == 2
    assert result.caption.startswith("2 datasets; 1 left out, as a norm has no score.")


def test_results_over_subjects_carry_the_caveat_and_those_over_datasets_do_not():
    result = friedman(pd.DataFrame(SCORES, PEOPLE))
    assert result.caveat == subject_caveat(2, 1)
    assert result.caption.startswith("2 subjects; 1 left out")
    assert result.caption.endswith(subject_caveat(2, 1))
    assert friedman(pd.DataFrame(SCORES, COHORTS)).caveat == ""
    assert share_improved(pd.DataFrame(SCORES, COHORTS), "psd", "batch").caveat == ""


def test_the_caveat_has_the_numbers_of_the_data():
    assert ": 1,500 subjects from 10 cohorts are not independent, " in subject_caveat(1500, 10)
    assert ": 6 subjects from 1 cohort are not independent, " in subject_caveat(6, 1)
    assert ": 6 subjects are not independent, " in subject_caveat(6, 0)
    two = pd.DataFrame(SCORES, PEOPLE).fillna(0.1)
    assert "3 subjects from 2 cohorts" in share_improved(two, "psd", "batch").caveat


def test_a_caption_says_why_a_number_is_missing():
    result = friedman(pd.DataFrame(SCORES, COHORTS)[["batch", "psd"]][:1])
    assert result.caption == "1 dataset. Ranks are tested from three norms on, found 2."


def test_means_that_differ_by_rounding_alone_are_ties():
    values = pd.DataFrame({"batch": [0.1 + 0.2], "psd": [0.3]})
    assert share_improved(values, "batch", "psd").tied == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (pd.DataFrame([[1, 2]], columns=["psd", "psd"]), "the norm 'psd' more than once"),
        (pd.DataFrame({"psd": [1, 2]}, ["s", "s"]), "the block 's' more than once"),
        (pd.DataFrame({"psd": [np.inf]}), "infinite entries"),
        (pd.DataFrame(index=[0]), "no column, expected one for each norm"),
    ],
)
def test_invalid_tables_are_rejected(values, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        friedman(values)


def test_a_table_without_numbers_is_rejected():
    with pytest.raises(DtypeError, match="values is a list, expected a DataFrame"):
        friedman([[1, 2]])
    with pytest.raises(DtypeError, match="entries that are not numbers"):
        friedman(pd.DataFrame({"psd": ["good"]}))


def test_without_scipy_statistics_say_what_to_install():
    script = """
import sys
sys.modules["scipy"] = sys.modules["scipy.stats"] = None
import pandas as pd
from psdnorm.evaluation.statistics import friedman
friedman(pd.DataFrame({"batch": [1, 2], "layer": [2, 3], "psd": [3, 4]}))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    expected = 'MissingExtraError: statistics need SciPy: pip install "psdnorm[data]"'
    assert run.stderr.strip().endswith(expected)
