"""Block tables, against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate
from psdnorm.evaluation.statistics import block_tables, friedman, share_improved


def tidy(*rows):
    return pd.DataFrame(rows, columns=["norm", "cohort", "subject", "seed", "value"])


COMPLETE = [
    ("psd", "big", "1", 0, 0.6),
    ("psd", "big", "1", 1, 0.8),
    ("psd", "big", "2", 0, 0.5),
    ("psd", "big", "2", 1, 0.5),
    ("psd", "one", "1", 0, 0.9),
    ("batch", "big", "1", 0, 0.5),
    ("batch", "big", "1", 1, 0.5),
    ("batch", "big", "2", 0, 0.2),
    ("batch", "big", "2", 1, 0.4),
    ("batch", "one", "1", 0, 0.8),
]


def test_subjects_are_means_over_seeds_and_datasets_are_means_over_subjects():
    tables = block_tables(tidy(*COMPLETE))
    assert tables.subjects.columns.tolist() == ["psd", "batch"]
    assert tables.subjects.index.tolist() == [("big", "1"), ("big", "2"), ("one", "1")]
    np.testing.assert_allclose(tables.subjects, [[0.7, 0.5], [0.5, 0.3], [0.9, 0.8]])
    assert tables.datasets.index.tolist() == ["big", "one"]
    np.testing.assert_allclose(tables.datasets, [[0.6, 0.4], [0.9, 0.8]])
    assert len(tables.by_seed) == 5
    assert tables.left_out == []


def test_the_means_of_the_tables_are_those_of_the_paper_where_nothing_is_missing():
    generator = np.random.default_rng(0)
    keys = pd.MultiIndex.from_product([("psd", "batch"), ("a", "b"), list("123"), (0, 1)])
    scores = keys.to_frame(index=False, name=["norm", "cohort", "subject", "seed"])
    scores = scores[(scores["cohort"] == "a") | (scores["subject"] == "1")]
    scores["accuracy"] = generator.random(len(scores))
    tables = block_tables(scores, metric="accuracy")
    means = aggregate(scores, by=["norm"]).set_index(["norm", "dataset"])["mean"]
    for norm in ("psd", "batch"):
        assert tables.datasets[norm].mean() == pytest.approx(means[norm, MEAN_DATASET])
        assert tables.subjects[norm].mean() == pytest.approx(means[norm, MEAN_SUBJECT])


def test_a_seed_missing_under_one_norm_counts_for_no_norm():
    lacking = [row for row in COMPLETE if row[:4] != ("batch", "big", "1", 1)]
    tables = block_tables(tidy(*lacking))
    assert tables.subjects.loc[("big", "1")].tolist() == [0.6, 0.5]  # both of seed 0
    assert tables.lacking.loc["big"].tolist() == [0, 1]
    assert tables.left_out == ["batch is missing 1 of the 4 scores of big"]


def test_a_cohort_missing_under_one_norm_is_left_out_by_every_statistic_and_counted():
    tables = block_tables(tidy(*(row for row in COMPLETE if row[:2] != ("batch", "one"))))
    assert tables.datasets.loc["one"].isna().all()
    assert friedman(tables.datasets).left_out == ("one",)
    assert friedman(tables.datasets).n_blocks == 1
    assert share_improved(tables.subjects, "psd", "batch").left_out == (("one", "1"),)
    assert tables.left_out == ["batch is missing 1 of the 1 scores of one"]


def test_a_subject_missing_under_one_norm_is_not_in_the_mean_of_its_dataset():
    tables = block_tables(tidy(*(row for row in COMPLETE if row[:3] != ("batch", "big", "2"))))
    np.testing.assert_allclose(tables.datasets.loc["big"], [0.7, 0.5])


def test_an_undefined_score_counts_as_missing():
    rows = [(*row[:4], np.nan) if row[:3] == ("psd", "one", "1") else row for row in COMPLETE]
    assert block_tables(tidy(*rows)).left_out == ["psd is missing 1 of the 1 scores of one"]


def test_norms_can_be_chosen_and_others_are_then_not_missing():
    scores = tidy(*COMPLETE, ("layer", "big", "1", 0, 0.1))
    assert block_tables(scores).subjects.notna().all(axis=1).sum() == 1
    tables = block_tables(scores, norms=["batch", "psd"])
    assert tables.subjects.columns.tolist() == ["batch", "psd"]
    assert tables.left_out == []


def test_scores_that_cannot_be_arranged_are_rejected():
    with pytest.raises(ArgumentError, match="scores lack the columns seed"):
        block_tables(tidy(*COMPLETE).drop(columns="seed"))
    with pytest.raises(ArgumentError, match="norm psd, cohort big, subject 1, seed 0 more than"):
        block_tables(tidy(*COMPLETE, COMPLETE[0]))
    with pytest.raises(ArgumentError, match=r"norms are tma, expected some of .* psd, batch"):
        block_tables(tidy(*COMPLETE), norms=["tma"])
    with pytest.raises(ArgumentError, match="scores has rows without subject"):
        block_tables(tidy(("psd", "big", None, 0, 0.5)))
    with pytest.raises(ArgumentError, match="scores has no row"):
        block_tables(tidy())
