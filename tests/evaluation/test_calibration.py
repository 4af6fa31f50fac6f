"""Calibration in bins, against a loop and against torchmetrics."""

import numpy as np
import pytest
import torch
from properties import given, st

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.evaluation import CalibrationBins, calibration_bins, expected_calibration_error


def draw(seed, n=200):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(5, 0.3), n)
    return probabilities, rng.integers(-1, 5, n)


def one_hot_like(confidence):
    """Five probabilities of which the first is ``confidence``, for confidences from 0.5."""
    return [confidence, 1 - confidence, 0, 0, 0]


def slow_bins(probabilities, true, n_bins):
    """The definition, epoch by epoch."""
    counts, correct, sums = np.zeros((3, n_bins))
    for p, stage in zip(probabilities, true, strict=True):
        if stage == -1:
            continue
        for b in range(n_bins):
            if b / n_bins < max(p) <= (b + 1) / n_bins:
                counts[b] += 1
                correct[b] += int(np.argmax(p) == stage)
                sums[b] += max(p)
    return counts, correct, sums


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_bins_are_those_of_a_loop(seed, n_bins):
    probabilities, true = draw(seed, 30)
    bins = calibration_bins(probabilities, true, n_bins)
    counts, correct, sums = slow_bins(probabilities, true, n_bins)
    assert np.array_equal(bins.counts, counts)
    assert np.array_equal(bins.correct, correct)
    assert np.allclose(bins.confidence_sums, sums)


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_calibration_error_is_that_of_torchmetrics(seed):
    torchmetrics = pytest.importorskip("torchmetrics.functional.classification")
    probabilities, true = draw(seed)
    expected = torchmetrics.multiclass_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(true), 5, n_bins=15, ignore_index=-1
    )
    found = expected_calibration_error(calibration_bins(probabilities, true))
    assert found == pytest.approx(float(expected), rel=1e-6)


def test_an_edge_belongs_to_the_bin_below_it_and_certainty_to_the_last():
    bins = calibration_bins([one_hot_like(0.5), one_hot_like(1.0), one_hot_like(0.75)], [0] * 3, 4)
    assert bins.counts.tolist() == [0, 1, 1, 1]


def test_a_network_that_is_right_as_often_as_it_says_has_no_error():
    bins = calibration_bins([one_hot_like(0.75)] * 4, [0, 0, 0, 1])
    assert expected_calibration_error(bins) == 0
    assert bins.accuracy[11] == bins.mean_confidence[11] == 0.75
    assert np.isnan(bins.accuracy[0])


def test_a_network_that_is_sure_and_wrong_has_all_the_error():
    bins = calibration_bins([one_hot_like(1.0)] * 4, [3] * 4)
    assert expected_calibration_error(bins) == 1


def test_bins_of_parts_add_up_to_the_bins_of_the_whole():
    probabilities, true = draw(0)
    whole = calibration_bins(probabilities, true)
    sums = calibration_bins(probabilities[:70], true[:70]) + calibration_bins(
        probabilities[70:], true[70:]
    )
    assert np.array_equal(sums.counts, whole.counts)
    assert np.array_equal(sums.correct, whole.correct)
    assert np.allclose(sums.confidence_sums, whole.confidence_sums)


def test_without_a_scored_epoch_the_error_is_nan_even_where_probabilities_are():
    bins = calibration_bins(np.full((2, 5), np.nan), [-1, -1])
    assert np.isnan(expected_calibration_error(bins))


@pytest.mark.parametrize("wrong", [np.nan, 3.0, -0.1])
def test_invalid_probabilities_are_rejected(wrong):
    probabilities, true = draw(1)
    true[7] = 0
    probabilities[7, 2] = wrong
    with pytest.raises(ArgumentError, match="expected the softmax of a network"):
        calibration_bins(probabilities, true)


def test_other_shapes_are_rejected():
    probabilities, true = draw(1)
    with pytest.raises(ShapeError, match=r"shape \(200, 4\), expected \(200, 5\)"):
        calibration_bins(probabilities[:, :4], true)
    with pytest.raises(ArgumentError, match="n_bins is 0, expected a positive integer"):
        calibration_bins(probabilities, true, 0)
    small = CalibrationBins(np.zeros(3, int), np.zeros(3, int), np.zeros(3))
    with pytest.raises(ShapeError, match="cannot be added"):
        small + calibration_bins(probabilities, true)
