"""Every metric is scikit-learn's, also for subjects who lack a stage."""

import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
from properties import given, st

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.evaluation import (
    accuracy,
    balanced_accuracy,
    cohen_kappa,
    confusion_matrix,
    f1_per_class,
    macro_f1,
    weighted_f1,
)

ALL = (accuracy, balanced_accuracy, f1_per_class, macro_f1, weighted_f1, cohen_kappa)
STAGES = range(5)

# few epochs and few stages to choose from, so that stages are often absent on either side
subsets = st.lists(st.integers(0, 4), min_size=1, max_size=5)
predictions = st.tuples(subsets, subsets, st.integers(1, 12)).flatmap(
    lambda s: st.lists(
        st.tuples(st.sampled_from(s[0]), st.sampled_from(s[1])), min_size=s[2], max_size=s[2]
    )
)


def scikit_learns(true, predicted):
    """The same metrics, in the order of ALL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of stages that lack, which is what is tested
        return [
            sk.accuracy_score(true, predicted),
            sk.balanced_accuracy_score(true, predicted),
            sk.f1_score(true, predicted, labels=STAGES, average=None, zero_division=np.nan),
            sk.f1_score(true, predicted, average="macro", zero_division=0),
            sk.f1_score(true, predicted, average="weighted", zero_division=0),
            sk.cohen_kappa_score(true, predicted),
        ]


@given(predictions)
def test_every_metric_equals_scikit_learns(pairs):
    true, predicted = np.array(pairs).T
    confusion = confusion_matrix(true, predicted)
    assert np.array_equal(confusion, sk.confusion_matrix(true, predicted, labels=STAGES))
    for metric, expected in zip(ALL, scikit_learns(true, predicted), strict=True):
        found = metric(confusion)
        assert np.allclose(found, expected, rtol=1e-14, atol=1e-15, equal_nan=True), metric


@given(st.lists(predictions, min_size=1, max_size=4))
def test_many_matrices_at_once_are_the_same_as_one_by_one(subjects):
    matrices = np.stack([confusion_matrix(*np.array(pairs).T) for pairs in subjects])
    for metric in ALL:
        expected = np.stack([metric(matrix) for matrix in matrices])
        assert np.array_equal(metric(matrices), expected, equal_nan=True)
        assert np.array_equal(metric(matrices[None]), expected[None], equal_nan=True)


@given(predictions, st.lists(st.integers(0, 4), max_size=5))
def test_unscored_epochs_change_nothing(pairs, unscored):
    true, predicted = np.array(pairs).T
    expected = confusion_matrix(true, predicted)
    found = confusion_matrix([*true, *(-1 for _ in unscored)], [*predicted, *unscored])
    assert np.array_equal(found, expected)


def test_a_stage_that_only_the_prediction_has_counts_in_f1_but_not_in_balanced_accuracy():
    confusion = confusion_matrix([0, 0, 2, 2], [0, 1, 2, 2])
    assert balanced_accuracy(confusion) == (1 / 2 + 1) / 2
    assert macro_f1(confusion) == pytest.approx((2 / 3 + 0 + 1) / 3)
    expected = [2 / 3, 0, 1, np.nan, np.nan]
    assert np.allclose(f1_per_class(confusion), expected, equal_nan=True)


def test_without_a_scored_epoch_everything_is_nan():
    confusion = confusion_matrix([-1, -1], [0, 9])
    assert confusion.sum() == 0
    for metric in ALL:
        assert np.isnan(metric(confusion)).all()
        assert np.isnan(metric(np.stack([confusion, np.eye(5)]))[0]).all()


def test_large_counts_do_not_overflow():
    confusion = np.full((5, 5), 2**40)
    assert cohen_kappa(confusion) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("true", "predicted", "error", "said"),
    [
        ([5], [0], ArgumentError, "true has values from 5 to 5, expected stages 0 to 4, or -1"),
        (
            [0],
            [-1],
            ArgumentError,
            "predicted has values from -1 to -1, expected stages 0 to 4 at scored",
        ),
        ([0.0], [0], ArgumentError, "true is of type float64, expected integers"),
        ([0], [0.5], ArgumentError, "predicted is of type float64, expected integers"),
        ([0, 1], [0], ShapeError, r"predicted has shape \(1,\), expected that of true, \(2,\)"),
        ([[0]], [[0]], ShapeError, r"true has shape \(1, 1\), expected \(n,\)"),
    ],
)
def test_invalid_stages_are_rejected(true, predicted, error, said):
    with pytest.raises(error, match=said):
        confusion_matrix(true, predicted)


@pytest.mark.parametrize("metric", ALL)
def test_an_invalid_confusion_matrix_is_rejected(metric):
    with pytest.raises(ShapeError, match=r"confusion has shape \(4, 4\), expected \(…, 5, 5\)"):
        metric(np.zeros((4, 4)))
    with pytest.raises(ArgumentError, match="negative or NaN"):
        metric(np.full((5, 5), -1))
