"""The hierarchical bootstrap, against plain loops, closed forms and known gains."""

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT
from psdnorm.evaluation.statistics import (
    BEST_BASELINE,
    bootstrap_gains,
    cohort_caveat,
    subject_caveat,
)
from psdnorm.evaluation.statistics.gains import HELD, drawn_means

SIZES = {"a": 3, "b": 12, "c": 6}


def people(sizes=SIZES):
    pairs = [(cohort, f"{k:03}") for cohort, n in sizes.items() for k in range(n)]
    return pd.MultiIndex.from_tuples(pairs, names=["cohort", "subject"])


def table(norms=("batch", "layer", "psd"), sizes=SIZES, seed=0):
    """Scores whose norms differ by cohort and by subject."""
    generator = np.random.default_rng(seed)
    index = people(sizes)
    cohort = pd.Index(sizes).get_indexer(index.get_level_values("cohort"))
    scores = 0.7 + 0.05 * generator.normal(size=(len(sizes), len(norms)))[cohort]
    scores = scores + 0.05 * generator.normal(size=(len(index), len(norms)))
    return pd.DataFrame(scores, index, list(norms))


def row(result, norm, mean):
    gains = result.gains
    return gains[(gains["norm"] == norm) & (gains["mean"] == mean)].iloc[0]


def plain_loops(cohorts, n_draws, resample_seeds, rng):
    """One draw after the other, one subject after the other; cohorts are (subjects, seeds)."""
    draws = []
    for _ in range(n_draws):
        means, everybody = [], []
        for place in rng.choice(len(cohorts), len(cohorts)):
            scores = cohorts[place]
            n_subjects, n_seeds = scores.shape
            seeds = rng.choice(n_seeds, n_seeds) if resample_seeds else range(n_seeds)
            drawn = [scores[k, list(seeds)].mean() for k in rng.choice(n_subjects, n_subjects)]
            means.append(np.mean(drawn))
            everybody += drawn
        draws.append((np.mean(means), np.mean(everybody)))
    return np.transpose(draws)


@pytest.mark.slow
@pytest.mark.parametrize("resample_seeds", [False, True])
def test_draws_are_distributed_as_those_of_plain_loops(resample_seeds):
    generator = np.random.default_rng(0)
    cohorts = [
        generator.normal(size=(n, 3)) + generator.normal(size=3) + 2 * generator.normal()
        for n in SIZES.values()
    ]
    expected = plain_loops(cohorts, 20_000, resample_seeds, np.random.default_rng(1))
    arrays = [scores[:, :, None] for scores in cohorts]
    found = drawn_means(arrays, 20_000, resample_seeds, np.random.default_rng(2))
    for one, other in zip(expected, found, strict=True):
        spread = one.std()
        assert other.mean() == pytest.approx(one.mean(), abs=0.04 * spread)  # 4 standard errors
        assert other.std() == pytest.approx(spread, rel=0.03)
        levels = [0.025, 0.25, 0.5, 0.75, 0.975]
        apart = np.quantile(other[:, 0], levels) - np.quantile(one, levels)
        assert np.abs(apart).max() < 0.11 * spread


def test_the_point_is_the_gain_in_both_means():
    values = table()
    result = bootstrap_gains(values, "batch", n_draws=10)
    gains = values["psd"] - values["batch"]
    by_hand = {
        MEAN_DATASET: gains.groupby(level="cohort").mean().mean(),
        MEAN_SUBJECT: gains.mean(),
    }
    for mean, expected in by_hand.items():
        assert row(result, "psd", mean)["gain"] == pytest.approx(expected)
    assert result.gains["norm"].tolist() == ["layer", "psd"] * 2
    assert set(result.gains["reference"]) == {"batch"}


def test_with_one_cohort_the_interval_is_that_of_its_mean_and_the_result_says_so():
    values = table(sizes={"only": 400})
    result = bootstrap_gains(values, "batch", n_draws=4000)
    gains = values["psd"] - values["batch"]
    error = gains.std(ddof=0) / np.sqrt(400)
    found = row(result, "psd", MEAN_SUBJECT)
    # an end of the interval is uncertain by 0.042 standard errors
    assert found["low"] == pytest.approx(gains.mean() - 1.96 * error, abs=0.17 * error)
    assert found["high"] == pytest.approx(gains.mean() + 1.96 * error, abs=0.17 * error)
    assert found["low"] == row(result, "psd", MEAN_DATASET)["low"]
    assert result.resampled == ("subjects",)
    assert "only its subjects were drawn" in result.note
    assert result.caveat == subject_caveat(400, 1)
    assert result.caption.startswith("400 subjects of 1 cohort. One cohort: only its subjects")


def test_the_spread_of_many_draws_is_that_of_cohorts_and_subjects_together():
    values = table(sizes={f"c{k}": 20 for k in range(12)})
    gains = (values["psd"] - values["batch"]).groupby(level="cohort")
    # a mean of cohorts varies as these do, and each by its subjects
    variance = (gains.mean().var(ddof=0) + gains.var(ddof=0).mean() / 20) / 12
    result = bootstrap_gains(values, "batch", n_draws=8000, confidence=0.6827)
    found = row(result, "psd", MEAN_DATASET)
    assert (found["high"] - found["low"]) / 2 == pytest.approx(np.sqrt(variance), rel=0.05)
    assert result.resampled == ("cohorts", "subjects")
    assert result.caveat == cohort_caveat(12)
    assert "240 subjects of 12 cohorts" in result.caption


def test_a_sure_gain_is_above_zero_in_every_draw_and_no_gain_in_none():
    values = table(norms=["batch"]).assign(
        twin=lambda t: t["batch"], psd=lambda t: t["batch"] + 0.1
    )
    result = bootstrap_gains(values, "batch", n_draws=200)
    for mean in (MEAN_DATASET, MEAN_SUBJECT):
        sure, none = row(result, "psd", mean), row(result, "twin", mean)
        assert sure[["gain", "low", "high", "share_above_0"]].tolist() == pytest.approx(
            [0.1, 0.1, 0.1, 1]
        )
        assert none[["gain", "low", "high", "share_above_0"]].tolist() == [0, 0, 0, 0]


def test_the_share_above_zero_is_that_of_the_exact_distribution():
    # two cohorts of one subject each: both drawn once (1/2), the first twice (1/4), the other (1/4)
    index = people({"a": 1, "b": 1})
    values = pd.DataFrame({"batch": [0.5, 0.5], "psd": [0.9, 0.2]}, index)
    result = bootstrap_gains(values, "batch", n_draws=20_000)
    assert row(result, "psd", MEAN_DATASET)["share_above_0"] == pytest.approx(0.75, abs=0.013)


def test_the_same_seed_gives_the_same_and_another_seed_does_not():
    first, again, other = (
        bootstrap_gains(table(), "batch", n_draws=50, seed=seed).gains for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(first, again)
    assert (first["low"] != other["low"]).all()


def test_relabelling_norms_and_reordering_subjects_change_no_gain():
    values = table()
    names = {"batch": "layer", "layer": "batch", "psd": "psd"}
    turned = bootstrap_gains(values.rename(columns=names)[::-1], "layer", n_draws=100)
    there = bootstrap_gains(values, "batch", n_draws=100)
    for mean in (MEAN_DATASET, MEAN_SUBJECT):
        numbers = [
            row(result, "psd", mean)[["gain", "low", "high", "share_above_0"]].tolist()
            for result in (there, turned)
        ]
        assert numbers[0] == pytest.approx(numbers[1])


def test_the_best_baseline_is_the_one_with_the_highest_mean_and_each_mean_has_its_own():
    sizes = {"small": 2, "large": 8}
    columns = {"batch": [0.9] * 2 + [0.5] * 8, "layer": [0.4] * 2 + [0.6] * 8, "psd": [0.8] * 10}
    values = pd.DataFrame(columns, people(sizes))
    result = bootstrap_gains(values, BEST_BASELINE, n_draws=400)
    assert result.gains["norm"].tolist() == ["psd", "psd"]
    assert result.gains["reference"].tolist() == ["batch", "batch"]  # 0.7 > 0.5, 0.58 > 0.56
    assert result.gains["gain"].tolist() == pytest.approx([0.1, 0.22])
    # a draw of the small cohort alone has batch at 0.9, of the large one alone layer at 0.6
    found = row(result, "psd", MEAN_DATASET)
    assert (found["low"], found["high"]) == pytest.approx((-0.1, 0.2))
    named = bootstrap_gains(values, BEST_BASELINE, baselines=["layer"], n_draws=10)
    assert named.gains["norm"].tolist() == ["batch", "psd"] * 2


def test_a_gain_over_the_best_baseline_is_never_above_that_over_a_single_one():
    values = table(norms=["batch", "layer", "tma", "psd"])
    best = bootstrap_gains(values, BEST_BASELINE, n_draws=300).gains.set_index("mean")
    for name in ("batch", "layer", "tma"):
        single = bootstrap_gains(values[[name, "psd"]], name, n_draws=300).gains.set_index("mean")
        assert (best["gain"] <= single["gain"] + 1e-12).all()
        assert (best["low"] <= single["low"] + 1e-12).all()


def test_each_baseline_is_compared_with_the_best_of_the_others():
    values = table(norms=["batch", "layer", "tma", "psd"])
    among = bootstrap_gains(values, BEST_BASELINE, among_baselines=True, n_draws=300)
    assert among.gains["norm"].tolist() == ["batch", "layer", "tma", "psd"] * 2
    alone = bootstrap_gains(values, BEST_BASELINE, n_draws=300)
    for mean in (MEAN_DATASET, MEAN_SUBJECT):
        assert row(among, "psd", mean).tolist() == row(alone, "psd", mean).tolist()
        others = values[["batch", "layer", "tma"]]
        own = bootstrap_gains(others, BEST_BASELINE, baselines=["batch", "tma"], n_draws=300)
        found, expected = row(among, "layer", mean), row(own, "layer", mean)
        assert found["reference"] == expected["reference"]
        numbers = ["gain", "low", "high", "share_above_0"]
        assert found[numbers].tolist() == pytest.approx(expected[numbers].tolist())


def test_a_baseline_without_another_has_no_gain_over_it():
    values = table(norms=["batch", "psd"])
    result = bootstrap_gains(values, BEST_BASELINE, among_baselines=True, n_draws=5)
    assert result.gains["norm"].tolist() == ["psd", "psd"]


@pytest.mark.parametrize(
    ("n_cohorts", "number"),
    [(2, "two"), (3, "three"), (4, "five"), (6, "five"), (8, "ten"), (12, "ten"), (30, "40")],
)
def test_the_caveat_quotes_the_simulations_nearest_to_the_number_of_cohorts(n_cohorts, number):
    share = HELD[{"two": 2, "three": 3, "five": 5, "ten": 10, "40": 40}[number]]
    assert cohort_caveat(n_cohorts).endswith(
        f"held {share:.0%} with {number}, in simulations.".replace("%", " %")
    )


def test_forty_cohorts_need_no_caveat():
    assert cohort_caveat(40) == ""


def by_seed(n_seeds=3, seed=0):
    generator = np.random.default_rng(seed)
    tables = {
        k: table() + 0.1 * generator.normal(size=3) for k in range(n_seeds)
    }  # a seed moves everybody
    return pd.concat(tables, names=["seed"]).reorder_levels(["cohort", "subject", "seed"])


def test_seeds_are_averaged_first_unless_they_are_drawn():
    values = by_seed()
    averaged = bootstrap_gains(values, "batch", n_draws=300)
    means = values.groupby(level=["cohort", "subject"]).mean()
    expected = bootstrap_gains(means, "batch", n_draws=300)
    pd.testing.assert_frame_equal(averaged.gains, expected.gains)
    drawn = bootstrap_gains(values, "batch", n_draws=300, resample_seeds=True)
    assert drawn.resampled == ("cohorts", "subjects", "seeds")
    width = drawn.gains["high"] - drawn.gains["low"]
    assert (width > averaged.gains["high"] - averaged.gains["low"]).all()
    assert drawn.gains["gain"].tolist() == pytest.approx(averaged.gains["gain"].tolist())


def test_where_seeds_are_drawn_subjects_without_one_are_left_out():
    values = by_seed().drop(index=("b", "004", 1))
    assert bootstrap_gains(values, "batch", n_draws=5).n_blocks == 21
    result = bootstrap_gains(values, "batch", n_draws=5, resample_seeds=True)
    assert (result.n_blocks, result.left_out) == (20, (("b", "004"),))
    with pytest.raises(ArgumentError, match="values is not indexed by seed"):
        bootstrap_gains(table(), "batch", resample_seeds=True)


def test_subjects_and_cohorts_missing_under_a_norm_are_left_out():
    values = table()
    values.loc["a", "psd"] = np.nan
    values.loc[("b", "000"), "batch"] = np.nan
    result = bootstrap_gains(values, "batch", n_draws=5)
    assert (result.n_cohorts, result.n_blocks) == (2, 17)
    assert [label[0] for label in result.left_out] == ["a", "a", "a", "b"]
    pd.testing.assert_frame_equal(
        result.gains, bootstrap_gains(values.dropna(), "batch", n_draws=5).gains
    )


def test_where_nobody_is_left_gains_are_nan_with_a_reason():
    result = bootstrap_gains(table() * np.nan, "batch", n_draws=5)
    assert result.gains[["gain", "low", "high", "share_above_0"]].isna().all(axis=None)
    assert len(result.gains) == 4
    assert result.note == "no subject is left that every norm has"


def test_invalid_arguments_are_rejected():
    with pytest.raises(ArgumentError, match=r"reference is tma, expected .* batch, layer, psd"):
        bootstrap_gains(table(), "tma")
    with pytest.raises(ArgumentError, match=r"baselines are none, expected some of .* psd"):
        bootstrap_gains(table(norms=["psd", "psd-white"]), BEST_BASELINE)
    with pytest.raises(ArgumentError, match="n_draws is 0, expected a whole number from 1"):
        bootstrap_gains(table(), "batch", n_draws=0)
    with pytest.raises(ArgumentError, match="values is indexed by None, expected cohort and subj"):
        bootstrap_gains(table().reset_index(drop=True), "batch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_cohorts", "n_seeds", "lowest", "highest"), [(1, 1, 0.4, 0.65), (10, 3, 0.0, 0.04)]
)
def test_norms_that_are_alike_seem_to_differ_as_often_as_the_page_says(
    n_cohorts, n_seeds, lowest, highest
):
    generator = np.random.default_rng(0)
    names = [[f"c{k}" for k in range(n_cohorts)], range(30), range(n_seeds)]
    index = pd.MultiIndex.from_product(names, names=["cohort", "subject", "seed"])
    n_simulations, excluded = 300, 0
    for seed in range(n_simulations):
        trainings = 0.01 * generator.normal(size=(n_cohorts, 1, n_seeds, 2))
        gains = 0.03 * generator.normal(size=(n_cohorts, 30, 1, 1)) * [0, 1]
        values = pd.DataFrame((trainings + gains).reshape(-1, 2), index, ["batch", "psd"])
        result = bootstrap_gains(
            values, "batch", n_draws=500, resample_seeds=n_seeds > 1, seed=seed
        )
        found = row(result, "psd", MEAN_DATASET)
        excluded += not found["low"] <= 0 <= found["high"]
    assert lowest <= excluded / n_simulations <= highest


# a tenth of the subjects of the paper's cohorts: one of them has half of all
UNEQUAL = [4, 51, 68, 123, 16, 6, 210, 7, 573, 43]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "between", "mean", "expected"),
    [
        *(([30] * n_cohorts, 1, MEAN_DATASET, held) for n_cohorts, held in HELD.items()),
        ([30] * 10, 0, MEAN_DATASET, 0.99),
        (UNEQUAL, 1, MEAN_DATASET, 0.91),
        (UNEQUAL, 1, MEAN_SUBJECT, 0.87),
    ],
)
def test_an_interval_holds_the_true_gain_as_often_as_the_page_says(sizes, between, mean, expected):
    generator = np.random.default_rng(3)
    index = people({f"c{k:02}": n for k, n in enumerate(sizes)})
    n_simulations, held = 500, 0
    for seed in range(n_simulations):
        of_cohorts = np.repeat(between * generator.normal(size=len(sizes)), sizes)
        gains = 0.5 + of_cohorts + generator.normal(size=len(index))
        values = pd.DataFrame({"batch": 0.0, "psd": gains}, index)
        result = bootstrap_gains(values, "batch", n_draws=500, seed=seed)
        found = row(result, "psd", mean)
        held += found["low"] <= 0.5 <= found["high"]
    error = np.sqrt(expected * (1 - expected) / n_simulations)
    assert held / n_simulations == pytest.approx(expected, abs=3 * error)
