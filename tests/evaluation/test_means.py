"""Mean(Dataset), Mean(Subject) and ±, against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate


def runs_of(*rows, metric="balanced_accuracy", **known):
    return pd.DataFrame(rows, columns=["seed", "cohort", "subject", metric]).assign(**known)


def value(table, dataset, column="mean", **where):
    chosen = table["dataset"] == dataset
    for name, wanted in where.items():
        chosen &= table[name] == wanted
    return table.loc[chosen, column].item()


# "big" has three subjects, "one" has one: the two means differ
SEED_0 = [(0, "big", "1", 0.5), (0, "big", "2", 0.6), (0, "big", "3", 0.7), (0, "one", "1", 1.0)]
SEED_1 = [(1, "big", "1", 0.7), (1, "big", "2", 0.8), (1, "big", "3", 0.9), (1, "one", "1", 0.6)]


def test_the_mean_over_datasets_and_that_over_subjects_are_what_the_paper_says():
    table = aggregate(runs_of(*SEED_0, *SEED_1))
    assert table["dataset"].tolist() == ["big", "one", MEAN_DATASET, MEAN_SUBJECT]
    # big: 0.6 and 0.8; one: 1.0 and 0.6; over datasets 0.8 and 0.7; over subjects 0.7 and 0.75
    assert table["mean"].tolist() == pytest.approx([0.7, 0.8, 0.75, 0.725])
    deviations = [0.2, 0.4, 0.1, 0.05]  # of two numbers: their distance over the root of two
    assert table["std"].tolist() == pytest.approx([d / np.sqrt(2) for d in deviations])
    assert table["seeds"].tolist() == [2, 2, 2, 2]
    assert table["subjects"].tolist() == [3, 1, 4, 4]
    assert table["datasets"].tolist() == [1, 1, 2, 2]


def test_one_seed_has_a_mean_and_no_spread():
    table = aggregate(runs_of(*SEED_0))
    assert value(table, MEAN_SUBJECT) == pytest.approx(0.7)
    assert table["std"].isna().all()


def test_a_subject_of_whom_a_metric_is_undefined_does_not_count_in_it():
    table = aggregate(runs_of(*SEED_0, (0, "one", "2", np.nan)))
    assert value(table, "one") == 1.0
    assert value(table, "one", "subjects") == 1
    assert value(table, MEAN_SUBJECT) == pytest.approx(0.7)


def test_a_seed_without_one_dataset_is_in_the_datasets_but_in_neither_mean():
    table = aggregate(runs_of(*SEED_0, *SEED_1[:3]))
    assert value(table, "big") == pytest.approx(0.7)
    for mean, expected in ((MEAN_DATASET, 0.8), (MEAN_SUBJECT, 0.7)):
        assert value(table, mean) == pytest.approx(expected)
        assert value(table, mean, "seeds") == 1


def test_where_no_seed_has_every_dataset_the_means_are_nan():
    table = aggregate(runs_of(*SEED_0[:3], *SEED_1[3:]))
    assert np.isnan(value(table, MEAN_DATASET))
    assert value(table, MEAN_SUBJECT, "seeds") == 0


def test_a_dataset_in_which_a_metric_is_never_defined_is_left_out_of_its_means():
    table = aggregate(runs_of(*SEED_0[:3], (0, "one", "1", np.nan), metric="f1_N1"))
    assert value(table, MEAN_DATASET) == pytest.approx(0.6)
    assert value(table, MEAN_DATASET, "datasets") == 1
    assert value(table, "one", "seeds") == 0


def test_a_metric_that_is_defined_for_nobody_is_nan():
    table = aggregate(runs_of((0, "one", "1", np.nan)))
    assert table["mean"].isna().all()
    assert table["seeds"].tolist() == [0, 0, 0]


def test_runs_that_differ_otherwise_are_averaged_apart():
    runs = pd.concat([runs_of(*SEED_0, norm="psd"), runs_of(*SEED_1, norm="batch")])
    table = aggregate(runs, by=["norm"])
    assert value(table, MEAN_DATASET, norm="psd") == pytest.approx(0.8)
    assert value(table, MEAN_DATASET, norm="batch") == pytest.approx(0.7)


def test_runs_that_nothing_tells_apart_are_rejected():
    runs = pd.concat([runs_of(*SEED_0, norm="psd"), runs_of(*SEED_0, norm="batch")])
    with pytest.raises(ArgumentError, match="seed 0, cohort big, subject 1 more than once"):
        aggregate(runs)


def test_what_does_not_apply_to_a_run_is_a_group_of_its_own_but_a_seed_must_be_known():
    runs = pd.concat([runs_of(*SEED_0, size=5), runs_of(*SEED_1, size=None)])
    assert aggregate(runs, by=["size"])["size"].isna().sum() == 4
    with pytest.raises(ArgumentError, match="runs has rows without seed"):
        aggregate(runs.assign(seed=np.nan), by=["size"])


def test_runs_without_a_seed_or_without_a_row_are_rejected():
    with pytest.raises(ArgumentError, match="runs lack the columns seed"):
        aggregate(runs_of(*SEED_0).drop(columns="seed"))
    with pytest.raises(ArgumentError, match="runs has 0 rows and 1 metrics"):
        aggregate(runs_of())
