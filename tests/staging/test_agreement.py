"""Agreement with a human scoring, and the epochs in which there is none."""

import json

import numpy as np
import pytest
from sklearn import metrics

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.staging import agreement


@pytest.fixture
def night():
    """True and predicted stages, (400,), and probabilities whose largest is the prediction."""
    rng = np.random.default_rng(0)
    true = rng.integers(5, size=400)
    predicted = np.where(rng.random(400) < 0.7, true, rng.integers(5, size=400))
    probabilities = rng.dirichlet(np.ones(5), 400)
    highest = probabilities.argmax(axis=1)
    rows = np.arange(400)
    swapped = probabilities[rows, predicted]
    probabilities[rows, predicted] = probabilities[rows, highest]
    probabilities[rows, highest] = np.where(
        highest == predicted, probabilities[rows, highest], swapped
    )
    return true, predicted, probabilities


def test_the_metrics_are_those_of_scikit_learn(night):
    true, predicted, _ = night
    found = agreement(true, predicted)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(true, predicted))
    assert found.kappa == pytest.approx(metrics.cohen_kappa_score(true, predicted))
    assert found.balanced_accuracy == pytest.approx(
        metrics.balanced_accuracy_score(true, predicted)
    )
    assert found.macro_f1 == pytest.approx(metrics.f1_score(true, predicted, average="macro"))
    np.testing.assert_array_equal(found.confusion, metrics.confusion_matrix(true, predicted))


def test_epochs_that_either_leaves_unscored_are_not_compared_but_counted():
    found = agreement([0, -1, 2, 2, -1], [0, 1, -1, 3, -1])
    assert (found.n_compared, found.n_left_out, found.accuracy) == (2, 3, 0.5)
    assert [d.epoch for d in found.disagreements] == [3]


def test_disagreements_are_all_there_with_the_most_confident_first(night):
    true, predicted, probabilities = night
    found = agreement(true, predicted, probabilities).disagreements
    assert sorted(d.epoch for d in found) == np.flatnonzero(true != predicted).tolist()
    confidences = [d.confidence for d in found]
    assert confidences == sorted(confidences, reverse=True)
    names = ("W", "N1", "N2", "N3", "REM")
    for epoch, onset_s, of_true, of_predicted, confidence in found:
        assert onset_s == 30 * epoch
        assert (of_true, of_predicted) == (names[true[epoch]], names[predicted[epoch]])
        assert confidence == probabilities[epoch, predicted[epoch]]


def test_without_probabilities_disagreements_are_by_time_and_their_confidence_is_nan():
    found = agreement([0, 1, 2, 3], [1, 1, 3, 2]).disagreements
    assert [d.epoch for d in found] == [0, 2, 3]
    assert np.isnan([d.confidence for d in found]).all()


def test_where_nothing_can_be_compared_every_metric_is_nan():
    found = agreement([-1, -1], [0, 1])
    assert found.n_compared == 0
    values = [found.accuracy, found.kappa, found.balanced_accuracy, found.macro_f1]
    assert np.isnan(values).all()


def test_different_lengths_are_refused_with_both_numbers():
    with pytest.raises(ShapeError, match="true has 3 epochs and predicted 2, expected as many"):
        agreement([0, 1, 2], [0, 1])


@pytest.mark.parametrize(
    ("probabilities", "error", "message"),
    [
        (np.full((3, 5), 0.2), ShapeError, r"shape \(3, 5\), expected \(2, 5\)"),
        (np.full((2, 4), 0.25), ShapeError, r"shape \(2, 4\), expected \(2, 5\)"),
        (np.ones((2, 5)), ArgumentError, "at epoch 0, expected five from 0 to 1 that sum to 1"),
        (np.eye(5)[:2] * [[1], [-1]], ArgumentError, "at epoch 1"),
        (np.array([[0.2] * 5, [np.nan, 0.5, 0.5, 0, 0]]), ArgumentError, "at epoch 1"),
        (np.array([[0.2] * 5, [np.inf, -np.inf, 1, 0, 0]]), ArgumentError, "at epoch 1"),
        (np.eye(5, dtype=int)[:2], ArgumentError, "of type int64, expected floats"),
    ],
)
def test_what_are_no_probabilities_is_refused(probabilities, error, message):
    with pytest.raises(error, match=message):
        agreement([0, 1], [0, 1], probabilities)


def test_a_dictionary_of_it_is_json_with_every_disagreement(night):
    true, predicted, probabilities = night
    found = agreement(true, predicted, probabilities)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["confusion"] == found.confusion.tolist()
    assert read["disagreements"][0] == found.disagreements[0]._asdict()
    assert len(read["disagreements"]) == np.count_nonzero(true != predicted)
