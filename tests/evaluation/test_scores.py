"""One row of counts per subject, from which every metric follows."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import sklearn.metrics as sk

from psdnorm.errors import ArgumentError, ShapeError, StoreError
from psdnorm.evaluation import (
    METRICS,
    bins_of,
    calibration_bins,
    confusion_matrix,
    confusions_of,
    expected_calibration_error,
    merge_scores,
    read_scores,
    score_night,
    score_predictions,
    subject_metrics,
    write_scores,
)

PROBABILITIES = ["p0", "p1", "p2", "p3", "p4"]


def night(cohort, subject, visit, n_epochs, seed, stages=range(-1, 5)):
    rng = np.random.default_rng(seed)
    central = np.arange(n_epochs) % 5 > 0
    table = {"cohort": cohort, "subject": subject, "visit": visit, "epoch": np.arange(n_epochs)}
    table |= {"central": central, "true": rng.choice(list(stages), n_epochs).astype(np.int8)}
    probabilities = rng.dirichlet(np.full(5, 0.3), n_epochs).astype(np.float32)
    return pd.DataFrame({**table, **dict(zip(PROBABILITIES, probabilities.T, strict=True))})


@pytest.fixture
def predictions():
    nights = [
        night("shhs", "2", "2", 60, seed=1),
        night("abc", "2", "1", 50, seed=2),
        night("shhs", "2", "1", 40, seed=3),
        night("shhs", "10", "1", 30, seed=4, stages=[-1, 0, 2]),
        night("shhs", "11", "1", 20, seed=5, stages=[-1]),
    ]
    return pd.concat(nights, ignore_index=True)


def of(predictions, cohort, subject):
    mine = (predictions["cohort"] == cohort) & (predictions["subject"] == subject)
    return predictions[mine & (predictions["true"] >= 0)]


def test_all_visits_of_a_subject_are_one_row_and_a_name_in_two_cohorts_is_two_people(predictions):
    scores = score_predictions(predictions)
    people = [("abc", "2"), ("shhs", "10"), ("shhs", "11"), ("shhs", "2")]
    assert list(scores[["cohort", "subject"]].itertuples(index=False, name=None)) == people


@pytest.mark.parametrize("only_central", [True, False])
def test_metrics_are_those_of_each_subjects_own_predictions(predictions, only_central):
    table = subject_metrics(score_predictions(predictions, only_central))
    for row in table[table["epochs"] > 0].to_dict("records"):
        mine = of(predictions, row["cohort"], row["subject"])
        mine = mine[mine["central"]] if only_central else mine
        true, probabilities = mine["true"].to_numpy(), mine[PROBABILITIES].to_numpy()
        predicted = probabilities.argmax(axis=1)
        assert row["epochs"] == len(mine)
        assert row["missing_stages"] == 5 - len(set(true))
        f1 = sk.f1_score(true, predicted, labels=range(5), average=None, zero_division=np.nan)
        expected = [
            # the mean of recalls, without scikit-learn's warning of stages that lack
            np.mean([(predicted[true == s] == s).mean() for s in set(true)]),
            sk.accuracy_score(true, predicted),
            sk.f1_score(true, predicted, average="macro", zero_division=0),
            sk.f1_score(true, predicted, average="weighted", zero_division=0),
            sk.cohen_kappa_score(true, predicted),
            *f1,
            expected_calibration_error(calibration_bins(probabilities, true)),
        ]
        found = [row[metric] for metric in METRICS]
        assert np.allclose(found, expected, equal_nan=True), row["subject"]


def test_a_subject_without_a_scored_epoch_stays_with_nan(predictions):
    table = subject_metrics(score_predictions(predictions))
    row = table[table["subject"] == "11"].iloc[0]
    assert (row["epochs"], row["missing_stages"]) == (0, 5)
    assert row[list(METRICS)].isna().all()


@pytest.mark.parametrize("only_central", [True, False])
def test_nights_scored_one_by_one_merge_to_the_scores_of_all_predictions(predictions, only_central):
    parts = [
        score_night(
            cohort,
            subject,
            mine["true"].to_numpy(),
            mine[PROBABILITIES].to_numpy(),
            mine["central"].to_numpy() if only_central else None,
        )
        for (cohort, subject, _), mine in predictions.groupby(["cohort", "subject", "visit"])
    ]
    merged = merge_scores(reversed(parts))
    pd.testing.assert_frame_equal(merged, score_predictions(predictions, only_central))


def test_matrices_and_bins_come_back_from_the_table(predictions):
    mine = predictions[predictions["cohort"] == "abc"]
    true, probabilities = mine["true"].to_numpy(), mine[PROBABILITIES].to_numpy()
    scores = score_night("abc", "2", true, probabilities)
    expected = confusion_matrix(true, probabilities.argmax(axis=1))
    assert np.array_equal(confusions_of(scores)[0], expected)
    assert scores["N1_as_REM"].item() == expected[1, 4]
    assert np.array_equal(bins_of(scores).counts[0], calibration_bins(probabilities, true).counts)


def test_scores_come_back_from_parquet_as_they_were(predictions, tmp_path):
    scores = score_predictions(predictions)
    write_scores(tmp_path / "scores.parquet", scores)
    pd.testing.assert_frame_equal(read_scores(tmp_path / "scores.parquet"), scores)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.parquet"]


def test_an_empty_table_of_scores_has_the_same_columns(predictions, tmp_path):
    scores = score_predictions(predictions)
    nobody = merge_scores([])
    assert nobody.columns.tolist() == scores.columns.tolist()
    assert nobody.dtypes.tolist() == scores.dtypes.tolist()
    write_scores(tmp_path / "scores.parquet", nobody)
    assert len(read_scores(tmp_path / "scores.parquet")) == 0


def test_a_file_that_holds_no_scores_is_named(predictions, tmp_path):
    path = tmp_path / "scores.parquet"
    with pytest.raises(StoreError, match=r"scores.parquet is missing"):
        read_scores(path)
    path.write_text("no scores")
    with pytest.raises(StoreError, match=r"scores.parquet cannot be read as Parquet"):
        read_scores(path)
    predictions.to_parquet(path)
    with pytest.raises(StoreError, match=r"scores.parquet has other columns"):
        read_scores(path)


def test_counts_that_do_not_add_up_are_neither_written_nor_read(predictions, tmp_path):
    path = tmp_path / "scores.parquet"
    scores = score_predictions(predictions)
    write_scores(path, scores)
    table = pq.read_table(path)
    changed = table.column("N2_as_N2").to_numpy() + 1
    place = table.schema.get_field_index("N2_as_N2")
    pq.write_table(table.set_column(place, "N2_as_N2", [changed]), path)
    with pytest.raises(StoreError, match="counts of abc 2 do not add up"):
        read_scores(path)
    with pytest.raises(StoreError, match="counts of abc 2 do not add up"):
        write_scores(path, scores.assign(N2_as_N2=changed))
    with pytest.raises(StoreError, match="has abc 2 more than once"):
        write_scores(path, pd.concat([scores, scores.head(1)]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.drop(columns=["p3", "visit"]), "lack the columns visit, p3"),
        (lambda p: pd.concat([p, p.head(1)]), "visit 2, epoch 0 more than once"),
        (lambda p: p.assign(central=1), "column central of int64, expected bool"),
        (lambda p: p.assign(subject=p["subject"].where(p["epoch"] > 0)), "rows without subject"),
        (lambda p: p.assign(p0=p["p0"] + 1), "do not add up to 1"),
    ],
)
def test_predictions_that_would_be_miscounted_are_rejected(predictions, change, said):
    with pytest.raises(ArgumentError, match=said):
        score_predictions(change(predictions))


def test_a_mask_of_another_length_is_rejected():
    with pytest.raises(ShapeError, match=r"counted is bool of shape \(1,\), expected bool of \(2"):
        score_night("abc", "1", [0, 1], np.eye(5)[:2], [True])
