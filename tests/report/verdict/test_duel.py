"""A gain is judged by its interval, and claimed only as far as seeds and cohorts go."""

import numpy as np
import pandas as pd
import pytest

from psdnorm.evaluation.statistics import bootstrap_gains
from psdnorm.report.verdict.duel import (
    BETTER,
    UNSURE,
    WORSE,
    Gain,
    duels,
    gain_words,
    people_words,
)


def scores(n_cohorts=5, n_seeds=2, gain=0.05, n_subjects=10):
    """Scores of PSDNorm and BatchNorm by seed; each training is lucky or not."""
    rng = np.random.default_rng(0)
    names = [[f"c{k}" for k in range(n_cohorts)], range(n_subjects), range(n_seeds)]
    index = pd.MultiIndex.from_product(names, names=["cohort", "subject", "seed"])
    luck = 0.02 * rng.normal(size=(n_cohorts, 1, n_seeds, 2))
    values = 0.7 + luck + 0.01 * rng.normal(size=(n_cohorts, n_subjects, n_seeds, 2))
    return pd.DataFrame(values.reshape(-1, 2) + np.array([0, gain]), index, ["batch", "psd"])


def test_seeds_are_drawn_where_there_are_two():
    values = scores()
    found = duels(values, "batch")["psd"].gains["Mean(Dataset)"]
    drawn = bootstrap_gains(values, "batch", resample_seeds=True).gains.iloc[0]
    assert (found.low, found.high) == (drawn["low"], drawn["high"])
    averaged = bootstrap_gains(values, "batch").gains.iloc[0]
    assert found.low < averaged["low"]
    assert found.gain == pytest.approx(averaged["gain"])


@pytest.mark.parametrize(
    ("n_cohorts", "n_seeds", "reason"),
    [
        (5, 2, ""),
        (5, 1, "one seed"),
        (4, 2, "4 cohorts"),
        (1, 1, "one seed and 1 cohort"),
    ],
)
def test_a_norm_is_called_better_only_with_two_seeds_and_five_cohorts(n_cohorts, n_seeds, reason):
    duel = duels(scores(n_cohorts, n_seeds), "batch")["psd"]
    assert duel.reservation == reason
    said = gain_words("PSDNorm", "BatchNorm", duel.gains, duel.reservation)
    if reason:
        ahead = f"PSDNorm is ahead of BatchNorm in this data ({reason}: too few to claim more): "
        assert said.startswith(ahead)
    else:
        assert said.startswith("PSDNorm is better than BatchNorm: ")


def test_a_cohort_with_one_seed_is_a_reason_for_reserve():
    values = scores()
    values = values.drop(index=[label for label in values.index if label[::2] == ("c1", 1)])
    assert duels(values, "batch")["psd"].reservation == "one seed in some cohorts"


def test_a_gain_that_may_be_none_needs_no_reserve():
    gains = {"Mean(Dataset)": Gain("batch", 0.01, -0.01, 0.02, 0.8)}
    said = gain_words("PSDNorm", "BatchNorm", gains, "one seed")
    assert said.startswith("PSDNorm is not distinguishable from BatchNorm: Mean(Dataset) +1.00")


def test_where_the_means_judge_otherwise_both_judgements_and_references_are_said():
    gains = {
        "Mean(Dataset)": Gain("tma", 0.02, 0.01, 0.03, 1.0),
        "Mean(Subject)": Gain("instance", -0.02, -0.03, -0.01, 0.0),
    }
    said = gain_words("PSDNorm", "the best baseline", gains)
    assert said.startswith(
        "PSDNorm is better than the best baseline by Mean(Dataset) and is worse than it by "
        "Mean(Subject): Mean(Dataset) against TMA +2.00 points"
    )
    assert "; Mean(Subject) against InstanceNorm −2.00 points" in said


def test_what_is_the_same_in_both_means_is_said_once_and_few_people_have_no_decimals():
    duel = duels(scores(n_cohorts=1, n_subjects=3), "batch")["psd"]
    said = gain_words("PSDNorm", "BatchNorm", duel.gains)
    assert said.count("interval") == 1
    assert said.endswith("; Mean(Subject) the same.")
    people, hardest = people_words("PSDNorm", "BatchNorm", duel)
    assert people.startswith("100 % of 3 subjects do better")
    assert hardest.startswith("The hardest 20 % (1 subject, ")


def test_the_gain_of_a_duel_is_the_mean_of_the_differences():
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([["x", "y"], range(10)], names=["cohort", "subject"])
    values = pd.DataFrame(rng.random((20, 2)), index, ["batch", "psd"])
    duel = duels(values, "batch")["psd"]
    gains = values["psd"] - values["batch"]
    assert duel.gains["Mean(Subject)"].gain == pytest.approx(gains.mean())
    assert duel.improved.improved == (gains > 0).sum()


@pytest.mark.parametrize(
    ("low", "high", "judgement"),
    [(0.001, 0.02, BETTER), (-0.02, -0.001, WORSE), (-0.01, 0.02, UNSURE), (0.0, 0.02, UNSURE)],
)
def test_a_gain_is_judged_by_its_interval(low, high, judgement):
    assert Gain("batch", (low + high) / 2, low, high, 0.5).judgement == judgement
