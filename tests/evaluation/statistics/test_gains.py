"""Who gains, against counting and against chance."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.statistics import gain_on_hardest, share_improved

SCORES = pd.DataFrame(
    {
        "batch": [0.50, 0.60, 0.70, 0.80, 0.90, 0.40, 0.30, 0.95, 0.85, 0.75],
        "psd": [0.60, 0.70, 0.70, 0.70, 0.90, 0.60, 0.20, 0.96, 0.86, 0.76],
    }
)


def test_improved_tied_and_worse_subjects_are_counted_apart():
    result = share_improved(SCORES, "psd", "batch")
    assert (result.improved, result.tied, result.worse) == (6, 2, 2)
    assert result.share == 0.6
    turned = share_improved(SCORES, "batch", "psd")
    assert (turned.improved, turned.tied, turned.worse) == (2, 2, 6)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("improved", [0, 1, 7, 20])
def test_the_interval_is_wilsons(improved, confidence):
    values = pd.DataFrame(
        {"batch": np.full(20, 0.5), "psd": np.where(np.arange(20) < improved, 1, 0)}
    )
    result = share_improved(values, "psd", "batch", confidence)
    # its ends are the shares that a score test at this level just does not reject
    z = stats.norm.ppf((1 + confidence) / 2)
    for end in (result.low, result.high):
        distance = abs(improved / 20 - end)
        assert distance == pytest.approx(z * np.sqrt(end * (1 - end) / 20), abs=1e-12)
    assert result.low <= improved / 20 <= result.high


def test_subjects_without_one_of_the_two_scores_are_left_out():
    values = SCORES.assign(layer=np.nan)
    values.loc[2, "psd"] = np.nan
    result = share_improved(values, "psd", "batch")
    assert (result.n_blocks, result.left_out, result.tied) == (9, (2,), 1)


def test_the_hardest_are_those_with_the_lowest_scores_under_the_reference():
    result = gain_on_hardest(SCORES, "psd", "batch", share=0.3)
    assert result.n_hardest == 3  # 0.3, 0.4 and 0.5
    assert result.threshold == 0.5
    assert result.gain == pytest.approx((-0.1 + 0.2 + 0.1) / 3)
    assert result.gain_of_all == pytest.approx((SCORES["psd"] - SCORES["batch"]).mean())


def test_by_mean_they_are_those_with_the_lowest_mean_of_both():
    values = pd.DataFrame({"batch": [0.2, 0.5, 0.6, 0.9], "psd": [0.9, 0.4, 0.7, 0.9]})
    assert gain_on_hardest(values, "psd", "batch", 0.25).gain == pytest.approx(0.7)
    assert gain_on_hardest(values, "psd", "batch", 0.25, by="mean").gain == pytest.approx(-0.1)


def test_choosing_by_the_reference_finds_a_gain_in_chance_and_choosing_by_the_mean_does_not():
    generator = np.random.default_rng(0)
    ability = generator.normal(0.75, 0.05, 20_000)
    values = pd.DataFrame(
        {name: ability + generator.normal(0, 0.05, 20_000) for name in ("batch", "psd")}
    )
    # expected of the first: half of the distance from the mean, 0.0495 for the lowest fifth
    by_reference = gain_on_hardest(values, "psd", "batch")
    assert by_reference.gain == pytest.approx(0.0495, abs=0.003)
    assert by_reference.note == "hardest by the scores of batch itself, which favours psd"
    by_mean = gain_on_hardest(values, "psd", "batch", by="mean")
    assert by_mean.gain == pytest.approx(0, abs=0.003)
    assert by_mean.note == ""


def test_those_who_tie_with_the_last_belong_to_the_hardest_in_any_order():
    values = pd.DataFrame({"batch": [0.5, 0.5, 0.5, 0.9, 0.9], "psd": [0.6, 0.7, 0.8, 0.9, 0.9]})
    for rows in (values, values[::-1]):
        result = gain_on_hardest(rows, "psd", "batch")
        assert result.n_hardest == 3
        assert result.gain == pytest.approx(0.2)


def test_of_few_subjects_one_is_the_hardest():
    assert gain_on_hardest(SCORES[:2], "psd", "batch").n_hardest == 1


def test_where_nobody_is_left_gains_are_nan_with_a_reason():
    nobody = SCORES * np.nan
    improved, hardest = (f(nobody, "psd", "batch") for f in (share_improved, gain_on_hardest))
    assert np.isnan([improved.share, improved.low, improved.high]).all()
    assert np.isnan([hardest.gain, hardest.gain_of_all, hardest.threshold]).all()
    assert hardest.n_hardest == improved.n_blocks == 0
    for result in (improved, hardest):
        assert result.note == "no block is left that psd and batch both have"


def test_norms_and_options_that_do_not_exist_are_rejected():
    with pytest.raises(ArgumentError, match="reference is 'tma', expected one of batch, psd"):
        share_improved(SCORES, "psd", "tma")
    with pytest.raises(ArgumentError, match="norm and reference are both 'psd'"):
        gain_on_hardest(SCORES, "psd", "psd")
    with pytest.raises(ArgumentError, match="by is 'norm', expected 'reference' or 'mean'"):
        gain_on_hardest(SCORES, "psd", "batch", by="norm")
    with pytest.raises(ArgumentError, match="share is 20, expected a number between 0 and 1"):
        gain_on_hardest(SCORES, "psd", "batch", share=20)
