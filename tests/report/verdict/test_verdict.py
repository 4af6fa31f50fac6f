"""The verdict says who won and how surely, and what the data cannot say."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from experiment_runs import COHORTS, MERIT, write_runs

from psdnorm.evaluation.statistics import (
    bootstrap_gains,
    cohort_caveat,
    friedman,
    nemenyi,
    subject_caveat,
    wilcoxon_holm,
)
from psdnorm.experiments.grid import Axes
from psdnorm.report.contest import contests
from psdnorm.report.figures.curve_figures import draw_training_size
from psdnorm.report.results import read_results
from psdnorm.report.verdict.duel import points
from psdnorm.report.verdict.verdict import judge
from psdnorm.training import Run


def text_of(row):
    return " ".join(cell if isinstance(cell, str) else cell.text for cell in row)


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
    ending = " over BatchNorm, but not distinguishable from TMA (3 cohorts, 3 seeds)."
    assert verdict.headline.endswith(ending)


def test_an_interval_that_covers_0_is_not_distinguishable(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, merit=dict.fromkeys(MERIT, 0.0))
    other = next(iter(verdict.duels.values())).gains["Mean(Dataset)"]
    assert other.low <= 0 <= other.high
    words = " ".join([verdict.headline, *verdict.sentences])
    assert "not distinguishable from BatchNorm" in words
    assert "is better than" not in words


def test_a_baseline_that_wins_is_said_to_win_and_psdnorm_is_still_judged(tmp_path):
    merit = MERIT | {"tma": 0.2}
    verdict = verdict_on(tmp_path, {"norms": ("batch", "tma", "psd")}, merit=merit)
    assert verdict.winner == "tma"
    assert verdict.headline.startswith("TMA has the highest")
    assert verdict.headline.endswith(" over BatchNorm (3 cohorts, 3 seeds).")  # far from the next
    assert any(
        s.startswith("PSDNorm is behind the best baseline (here TMA, chosen anew in every draw)")
        for s in verdict.sentences
    )


@pytest.mark.parametrize(("ahead", "following"), [("instance", "tma"), ("tma", "psd")])
def test_a_winner_that_cannot_be_distinguished_from_the_next_is_named_with_it(
    tmp_path, ahead, following
):
    merit = MERIT | {following: 0.1, ahead: 0.11}
    verdict = verdict_on(tmp_path, {"norms": ("batch", ahead, following)}, merit=merit)
    assert verdict.winner == ahead
    name = {"tma": "TMA", "psd": "PSDNorm"}[following]
    ending = f" over BatchNorm, but not distinguishable from {name} (3 cohorts, 3 seeds)."
    assert verdict.headline.endswith(ending)


def test_batchnorm_that_wins_is_said_to_with_the_next_and_its_interval(tmp_path):
    merit = MERIT | {"batch": 0.3, "layer": 0.0}
    verdict = verdict_on(tmp_path, {"norms": ("batch", "layer", "psd")}, merit=merit)
    gain = verdict.duels["psd"].gains["Mean(Dataset)"]
    expected = f"; the next is PSDNorm, {gain.words} against it (3 cohorts, 3 seeds)."
    assert verdict.headline.endswith(expected)
    assert any("PSDNorm is behind BatchNorm in this" in sentence for sentence in verdict.sentences)


def test_batchnorm_that_wins_by_nothing_is_not_distinguishable_from_the_next(tmp_path):
    merit = MERIT | {"batch": 0.065}
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, merit=merit)
    assert verdict.winner == "batch"
    assert ", but is not distinguishable from the next, PSDNorm: " in verdict.headline


def test_norms_that_share_the_highest_mean_are_all_named(tmp_path):
    write_runs(tmp_path, [Axes(norms=("batch", "layer", "psd"), hold_outs=("ABC", "MASS"))])
    for file in tmp_path.glob("cells/usleep_psd_f5_d3_*/scores.parquet"):
        other = file.parent.name.replace("_psd_f5_d3_", "_batch_")
        (tmp_path / "cells" / other / file.name).write_bytes(file.read_bytes())
    results = read_results(tmp_path)
    verdict = judge(results, contests(results)[0])
    assert verdict.headline.startswith("BatchNorm and PSDNorm share the highest balanced accuracy")
    assert verdict.headline.endswith(" % (Mean(Dataset)) (2 cohorts, 3 seeds).")
    assert not any("is first" in sentence for sentence in verdict.sentences)


@pytest.mark.parametrize(
    ("sizes", "of_17", "words"),
    [
        ((5, 17), 0.2, "PSDNorm (f = 17), the only other setting, has more: "),
        ((5, 9, 17), 0.2, "PSDNorm (f = 17), the best of 2 other settings by these same scores, "),
        ((5, 17), 0.0, ""),
        ((5,), 0.2, ""),
    ],
    ids=["one", "two", "lower", "none"],
)
def test_a_setting_above_the_winner_that_stands_for_no_norm_is_named(tmp_path, sizes, of_17, words):
    axes = {"norms": ("batch", "psd"), "filter_sizes": sizes}
    verdict = verdict_on(tmp_path, axes, merit=MERIT | {("psd", 17): of_17})
    first, _, rest = verdict.headline.partition("(3 cohorts, 3 seeds).")
    assert first.startswith("PSDNorm has the highest balanced accuracy")
    assert rest.startswith(f" {words}") if words else not rest
    if words:
        scores = verdict.results.scores.groupby(["arm", "cohort"])["balanced_accuracy"].mean()
        mean = scores["usleep psd f17 d3 @all"].mean()
        assert rest.endswith(f"has more: {100 * mean:.2f} %.")


def test_a_setting_without_all_counted_scores_is_not_set_beside_the_winner(tmp_path):
    few = {"norms": ("psd",), "filter_sizes": (17,), "hold_outs": ("ABC", "MASS")}
    verdict = verdict_on(
        tmp_path, {"norms": ("batch", "psd")}, few, merit=MERIT | {("psd", 17): 0.2}
    )
    assert verdict.headline.endswith("(3 cohorts, 3 seeds).")


def test_without_batchnorm_the_gain_over_it_is_unknown(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("instance", "psd")})
    assert "so its gain over BatchNorm is unknown (3 cohorts" in verdict.headline
    assert verdict.duels == {}
    assert any("InstanceNorm, the only baseline" in sentence for sentence in verdict.sentences)
    limits = " ".join(verdict.limits)
    assert "nothing is said of: BatchNorm, LayerNorm, TMA." in limits
    assert cohort_caveat(3) in limits


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
    assert "Intervals allow for other people, not for the spread between trainings" in limits
    assert "±" not in text_of(verdict.rows()[0])


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


def test_a_cohort_without_scores_of_a_norm_is_excluded(tmp_path):
    axes = [
        {"norms": ("batch", "layer", "psd"), "seeds": (0,)},
        {"norms": ("tma",), "hold_outs": ("ABC", "MASS"), "seeds": (0,)},
    ]
    verdict = verdict_on(tmp_path, *axes)
    limits = " ".join(verdict.limits)
    assert "CHAT is excluded: TMA has no score there." in limits


def test_a_missing_run_does_not_count_for_any_norm_and_is_named(tmp_path):
    gone = Run("usleep", "psd", hold_out="CHAT", seed=1).name
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, unfinished=[gone])
    limits = " ".join(verdict.limits)
    assert "PSDNorm is missing 9 of the 27 scores of CHAT." in limits
    assert "1 requested run gave no result; the page lists it." in limits
    assert verdict.sentences[-1].endswith("; 2 to 3 seeds.")
    by_seed = verdict.contest.tables.by_seed.dropna()
    assert ("CHAT", "0000", 1) not in by_seed.index


def test_what_is_missing_is_said_before_the_data(tmp_path, whole):
    gone = Run("usleep", "psd", hold_out="CHAT", seed=1).name
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd")}, unfinished=[gone])
    assert verdict.sentences[-2] == verdict.contest.partial
    assert verdict.sentences[-2].startswith("Incomplete: 1 of 18 runs has no result; ")
    assert not any("Not complete" in sentence for sentence in whole.sentences)


def test_a_missing_run_leaves_all_seeds_to_the_intervals(tmp_path, whole):
    gone = Run("usleep", "layer", hold_out="CHAT", seed=1).name
    verdict = verdict_on(tmp_path, unfinished=[gone])
    full, partial = (v.contest.tables.by_seed.dropna() for v in (whole, verdict))
    assert len(full) - len(partial) == COHORTS["CHAT"]
    drawn = bootstrap_gains(partial, "batch", resample_seeds=True).gains
    own = drawn[(drawn["norm"] == "psd") & (drawn["mean"] == "Mean(Dataset)")].iloc[0]
    gain = verdict.duels["psd"].gains["Mean(Dataset)"]
    assert (gain.gain, gain.low, gain.high) == pytest.approx((own["gain"], own["low"], own["high"]))


def test_means_and_gains_of_a_partial_grid_agree(tmp_path):
    gone = Run("usleep", "psd", hold_out="CHAT", seed=1).name
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
    assert "±" not in text_of(verdict.rows()[1])
    assert any(limit.startswith("Cohorts have different seeds, ") for limit in verdict.limits)


def test_a_norm_that_shares_no_place_is_left_out_and_named(tmp_path):
    shared = {"norms": ("batch", "psd"), "hold_outs": ("ABC", "CHAT")}
    alone = {"norms": ("layer",), "hold_outs": ("MASS",)}
    verdict = verdict_on(tmp_path, shared, alone)
    assert list(verdict.contest.arms) == ["batch", "psd"]
    assert any(limit.startswith("LayerNorm is not compared: ") for limit in verdict.limits)


def test_a_norm_stands_with_the_papers_filter_size_and_the_others_are_named(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd"), "filter_sizes": (3, 5)})
    assert verdict.contest.arms["psd"] == "usleep psd f5 d3 @all"
    assert verdict.contest.others == ["usleep psd f3 d3 @all"]
    assert (
        "Norms are compared as BatchNorm, PSDNorm (f = 5, 3 blocks); the results of other filter "
        "sizes and depths (PSDNorm (f = 3, 3 blocks)) are in tables and figures."
    ) in verdict.limits
    assert "usleep" not in " ".join([verdict.headline, *verdict.sentences, *verdict.limits])


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


def test_the_best_baseline_is_named_for_each_mean(tmp_path):
    """TMA is best in two small cohorts, InstanceNorm in the large one."""
    cohorts = {"ABC": 4, "CHAT": 30, "MASS": 4}
    small = MERIT | {"tma": 0.2, "instance": -0.1}
    large = MERIT | {"tma": -0.1, "instance": 0.2}
    axes = {"norms": ("batch", "instance", "tma", "psd"), "seeds": (0,)}
    write_runs(tmp_path / "a", [Axes(hold_outs=("ABC", "MASS"), **axes)], cohorts, merit=small)
    write_runs(tmp_path / "b", [Axes(hold_outs=("CHAT",), **axes)], cohorts, merit=large)
    parts = [read_results(tmp_path / name) for name in "ab"]
    n = len(parts[0].runs)
    results = replace(
        parts[0],
        runs=pd.concat([parts[0].runs, parts[1].runs.assign(run=lambda c: c["run"] + n)]),
        subjects=pd.concat(
            [parts[0].subjects, parts[1].subjects.assign(run=lambda c: c["run"] + n)]
        ),
    )
    verdict = judge(results, contests(results)[0])
    gains = verdict.over_best["psd"]
    assert [gains[m].reference for m in ("Mean(Dataset)", "Mean(Subject)")] == ["tma", "instance"]
    sentence = next(s for s in verdict.sentences if "the best baseline" in s)
    assert "the best baseline (chosen anew in every draw)" in sentence
    assert f"Mean(Dataset) against TMA {gains['Mean(Dataset)'].words}" in sentence
    assert f"Mean(Subject) against InstanceNorm {gains['Mean(Subject)'].words}" in sentence


def test_every_norm_has_its_gain_over_the_best_baseline_and_the_best_mean_is_bold(whole):
    assert list(whole.over_best) == list(whole.contest.arms)
    values = whole.contest.tables.by_seed.dropna()
    baselines = ["batch", "instance", "layer"]
    drawn = bootstrap_gains(values, "best baseline", baselines=baselines, resample_seeds=True)
    expected = drawn.gains[drawn.gains["norm"] == "tma"].iloc[0]
    found = whole.over_best["tma"]["Mean(Dataset)"]
    assert (found.reference, found.gain) == (expected["reference"], expected["gain"])
    assert (found.low, found.high) == pytest.approx((expected["low"], expected["high"]))
    assert whole.head[-1].startswith("gain over the best other baseline")
    for norm, row in zip(whole.contest.arms, whole.rows(), strict=True):
        assert len(row) == len(whole.head)
        gain = whole.over_best[norm]["Mean(Dataset)"]
        assert row[-1] == f"{points(gain.gain)} ({points(gain.low)} to {points(gain.high)})"
        assert row[1].bold == (norm == whole.contest.means.loc["Mean(Dataset)"].idxmax())


def test_batchnorm_alone_is_no_best_baseline(tmp_path):
    verdict = verdict_on(tmp_path, {"norms": ("batch", "psd"), "seeds": (0,)})
    assert verdict.over_best == {}
    assert not any("baseline" in words for words in [*verdict.sentences, *verdict.head])


def test_limits_have_the_numbers_of_the_data(whole):
    limits = " ".join(whole.limits)
    assert cohort_caveat(3) in limits
    assert subject_caveat(22, 3) in limits
    assert "treats subjects as independent" in limits
    assert "as far as 3 seeds show them" in limits


def test_friedmans_p_over_few_cohorts_is_called_rough(whole):
    assert any("rough with fewer than ten blocks" in sentence for sentence in whole.sentences)


def test_one_cohort_is_not_held_out_each(tmp_path):
    one = {"norms": ("batch", "psd"), "hold_outs": ("ABC",), "seeds": (0,)}
    verdict = verdict_on(tmp_path, one, cohorts={"ABC": 1})
    assert "Data: 1 cohort, held out (ABC 1 subject), " in verdict.sentences[-1]
    assert "1 subjects" not in " ".join([*verdict.sentences, *verdict.limits])


def test_programs_get_p_values_shares_and_the_hardest(whole):
    document = json.loads(json.dumps(whole.to_json(), allow_nan=False))
    tables, tests = whole.contest.tables, document["tests"]
    for name, values in (("datasets", tables.datasets), ("subjects", tables.subjects)):
        assert tests[name]["friedman"]["p"] == friedman(values).p
        assert tests[name]["nemenyi"]["p"]["psd"]["batch"] == nemenyi(values).p.loc["psd", "batch"]
        pairs = wilcoxon_holm(values).p
        assert tests[name]["wilcoxon_holm"]["p"]["psd"]["tma"] == pairs.loc["psd", "tma"]
    gains = whole.contest.subjects["psd"] - whole.contest.subjects["batch"]
    assert document["improved"]["psd"]["improved"] == (gains > 0).sum()
    assert document["improved"]["psd"]["share"] == pytest.approx((gains > 0).mean())
    hardest = whole.contest.subjects[["psd", "batch"]].mean(axis=1).nsmallest(4).index
    found = document["hardest_fifth"]["psd"]["by_mean_of_both"]
    assert (found["gain"], found["subjects"]) == (pytest.approx(gains[hardest].mean()), 4)
    assert document["gains_over_best_baseline"]["layer"]["Mean(Subject)"]["reference"] == "tma"


@pytest.mark.slow
def test_the_factor_of_fewer_subjects_is_that_of_the_figure(tmp_path):
    axes = {"norms": ("batch", "psd"), "balanced": (2, 8, None), "seeds": (0,)}
    cohorts = {"ABC": 12, "CHAT": 14, "MASS": 16}
    verdict = verdict_on(tmp_path, axes, cohorts=cohorts, merit={"batch": -0.1, "psd": -0.095})
    result = verdict.factors["PSDNorm"][0]
    sentence = next(s for s in verdict.sentences if "fewer" in s)
    assert sentence.startswith(
        "By the training sizes of U-Sleep (Mean(Dataset)): PSDNorm is as good"
    )
    assert sentence.partition(": ")[2] in draw_training_size(verdict.results, "usleep").words
    found = verdict.to_json()["fewer_subjects"]["PSDNorm"]
    assert found["factor"] == result.factor > 1
    assert found["target"] == pytest.approx(result.target / 100)


def test_without_training_sizes_there_is_no_factor(whole):
    assert whole.factors == whole.to_json()["fewer_subjects"] == {}
