"""The verdict says who won and how surely, and what the data cannot say."""

import numpy as np
import pandas as pd
import pytest
from experiments import COHORTS, MERIT, write_runs

from psdnorm.report.contest import contests
from psdnorm.report.duels import BETTER, UNSURE, WORSE, Gain, duels
from psdnorm.report.results import read_results
from psdnorm.report.verdict import judge
from psdnorm.training import Cell
from psdnorm.training.grid import Axes


def verdict_on(path, *axes, **settings):
    write_runs(
        path, [Axes(**{"hold_outs": tuple(COHORTS)} | each) for each in axes] or None, **settings
    )
    results = read_results(path)
    return judge(results, contests(results)[0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The verdict on five norms, three cohorts and three seeds."""
    return verdict_on(tmp_path_factory.mktemp("runs"))


def test_the_norm_with_the_highest_mean_over_datasets_wins(whole):
    verdict = whole
    means = verdict.contest.tables.datasets.mean()
    assert verdict.winner == means.idxmax() == "psd"
    assert verdict.headline.startswith("PSDNorm has the highest balanced accuracy, ")
    assert " over BatchNorm." in verdict.headline


def test_an_interval_that_covers_0_is_not_distinguishable(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, merit=dict.fromkeys(MERIT, 0.0))
    other = next(iter(verdict.duels.values())).gains["Mean(Dataset)"]
    assert other.low <= 0 <= other.high
    told = " ".join([verdict.headline, *verdict.sentences])
    assert "not distinguishable from BatchNorm" in told
    assert "is better than" not in told


@pytest.mark.parametrize(
    ("low", "high", "judgement"),
    [(0.001, 0.02, BETTER), (-0.02, -0.001, WORSE), (-0.01, 0.02, UNSURE), (0.0, 0.02, UNSURE)],
)
def test_a_gain_is_judged_by_its_interval(low, high, judgement):
    assert Gain("batch", (low + high) / 2, low, high, 0.5).judgement == judgement


def test_a_baseline_that_wins_is_said_to_win_and_psdnorm_is_still_judged(tmp_path):
    merit = MERIT | {"tma": 0.2}
    verdict = verdict_on(tmp_path, {"norms": ("batch", "tma", "psd")}, merit=merit)
    assert verdict.winner == "tma"
    assert verdict.headline.startswith("TMA has the highest")
    assert any(
        s.startswith("PSDNorm is worse than the best baseline (TMA") for s in verdict.sentences
    )


def test_batchnorm_that_wins_leaves_no_gain(tmp_path):
    merit = MERIT | {"batch": 0.3}
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, merit=merit)
    assert verdict.headline.endswith("no other norm gained over it.")
    assert any("PSDNorm is worse than BatchNorm" in sentence for sentence in verdict.sentences)


def test_without_batchnorm_no_gain_over_it_is_told(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("instance", "psd")})
    assert verdict.headline.endswith("so that no gain over it can be told.")
    assert verdict.duels == {}
    assert any("InstanceNorm, the only baseline" in sentence for sentence in verdict.sentences)
    assert "nothing is said of them: BatchNorm, LayerNorm, TMA." in " ".join(verdict.limits)


def test_one_norm_alone_is_compared_with_nothing(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("psd",)})
    assert verdict.headline.startswith("Only PSDNorm can be judged: ")
    assert verdict.over_best == {}


def test_one_seed_and_one_cohort_are_limits(tmp_path):
    one = {"norms": ("batch", "psd"), "hold_outs": ("ABC",), "seeds": (0,)}
    verdict = verdict_on(tmp_path, one)
    limits = " ".join(verdict.limits)
    assert "One seed: " in limits
    assert "nothing is said of other cohorts" in limits
    assert "±" not in " ".join(verdict.rows()[0])


def test_three_seeds_and_cohorts_are_not_called_one(whole):
    limits = " ".join(whole.limits)
    assert "One seed" not in limits
    assert "One cohort" not in limits


@pytest.mark.parametrize("simulated", [True, False])
def test_what_was_simulated_is_said(tmp_path, simulated):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd"), "seeds": (0,)}, simulated=simulated)
    kind = "simulated nights" if simulated else "real nights"
    assert kind in verdict.sentences[-1]
    assert any("Nights are simulated" in limit for limit in verdict.limits) is simulated


def test_recipe_seeds_cohorts_and_their_subjects_are_named(whole):
    data = whole.sentences[-1]
    assert "3 cohorts, each held out once (ABC 6, CHAT 9, MASS 7: 22 subjects)" in data
    assert "recipe paper; U-Sleep, all subjects; 3 seeds." in data


def test_a_cell_that_lacks_is_left_out_of_all_norms_and_named(tmp_path):
    gone = Cell("usleep", "psd", hold_out="CHAT", seed=1).name
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, unfinished=[gone])
    limits = " ".join(verdict.limits)
    assert "Left out of the comparison: PSDNorm lacks 9 of the 27 scores of CHAT." in limits
    assert "1 cell that was asked for gave no result" in limits
    assert "Cohorts have different seeds." in limits
    assert verdict.sentences[-1].endswith("2 to 3 seeds.")
    by_seed = verdict.contest.tables.by_seed.dropna()
    assert ("CHAT", "0000", 1) not in by_seed.index


def test_means_and_gains_of_a_partial_grid_agree(tmp_path):
    gone = Cell("usleep", "psd", hold_out="CHAT", seed=1).name
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, unfinished=[gone])
    means = verdict.contest.means.loc["Mean(Dataset)"]
    gain = verdict.duels["psd"].gains["Mean(Dataset)"].gain
    assert means["psd"] - means["batch"] == pytest.approx(gain)


def test_cohorts_that_share_no_seed_are_judged_all_the_same(tmp_path):
    norms = {"norms": ("batch", "psd")}
    verdict = verdict_on(
        tmp_path,
        norms | {"hold_outs": ("ABC",), "seeds": (0,)},
        norms | {"hold_outs": ("CHAT",), "seeds": (1,)},
    )
    assert list(verdict.contest.cohorts.index) == ["ABC", "CHAT"]
    assert "±" not in " ".join(verdict.rows()[1])
    assert any(limit.startswith("Cohorts have different seeds.") for limit in verdict.limits)


def test_a_norm_that_shares_no_cell_is_left_out_and_named(tmp_path):
    shared = {"norms": ("batch", "psd"), "hold_outs": ("ABC", "CHAT")}
    alone = {"norms": ("layer",), "hold_outs": ("MASS",)}
    verdict = verdict_on(tmp_path, shared, alone)
    assert list(verdict.contest.arms) == ["batch", "psd"]
    assert any(
        limit.endswith("shared with the other norms: LayerNorm.") for limit in verdict.limits
    )


def test_a_norm_stands_with_the_papers_filter_size_and_the_others_are_named(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd"), "filter_sizes": (3, 5)})
    assert verdict.contest.arms["psd"] == "usleep psd f5 d3 @all"
    assert verdict.contest.others == ["usleep psd f3 d3 @all"]
    assert any("usleep psd f3 d3 @all" in limit for limit in verdict.limits)


def test_each_model_and_size_is_a_contest_and_the_one_with_most_norms_is_first(tmp_path):
    write_runs(
        tmp_path,
        [
            Axes(norms=("batch", "psd"), hold_outs=("ABC",), balanced=(None, 40), seeds=(0,)),
            Axes(norms=("layer",), hold_outs=("ABC",), balanced=(40,), seeds=(0,)),
        ],
    )
    names = [contest.name for contest in contests(read_results(tmp_path))]
    assert names == ["U-Sleep, balanced@40", "U-Sleep, all subjects"]


def test_programs_get_the_numbers(whole):
    document = whole.to_json()
    gain = whole.duels["psd"].gains["Mean(Dataset)"]
    assert document["gains_over_batchnorm"]["psd"]["Mean(Dataset)"]["low"] == gain.low
    assert document["winner"] == "psd"


def test_the_gain_of_a_duel_is_the_mean_of_the_differences():
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([["x", "y"], range(10)], names=["cohort", "subject"])
    values = pd.DataFrame(rng.random((20, 2)), index, ["batch", "psd"])
    duel = duels(values, "batch")["psd"]
    gains = values["psd"] - values["batch"]
    assert duel.gains["Mean(Subject)"].gain == pytest.approx(gains.mean())
    assert duel.improved.improved == (gains > 0).sum()
