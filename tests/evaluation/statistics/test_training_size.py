"""How many times fewer subjects, on curves of which the answer is known."""

import numpy as np
import pytest

from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.evaluation.statistics import fewer_subjects_factor

SIZES = np.array([100, 200, 400, 800, 1600])


def rising(sizes):
    return 0.5 + 0.05 * np.log2(np.asarray(sizes) / 100)


@pytest.mark.parametrize("factor", [1.5, 2, 3.7])
def test_a_curve_that_is_shifted_in_log_size_gives_the_shift_back(factor):
    result = fewer_subjects_factor(SIZES, rising(SIZES), rising(SIZES * factor))
    assert result.factor == pytest.approx(factor)
    assert result.norm_size == pytest.approx(1600 / factor)
    assert (result.reference_size, result.target) == (1600, pytest.approx(0.7))
    assert (result.note, result.n_sizes, result.left_out) == ("", 5, ())


def test_the_order_of_the_sizes_does_not_matter():
    order = [3, 0, 4, 2, 1]
    result = fewer_subjects_factor(SIZES[order], rising(SIZES[order]), rising(SIZES[order] * 2))
    assert result.factor == pytest.approx(2)


def test_the_same_curve_has_factor_one():
    assert fewer_subjects_factor(SIZES, rising(SIZES), rising(SIZES)).factor == pytest.approx(1)


def test_a_norm_that_never_gets_there_has_no_factor():
    result = fewer_subjects_factor(SIZES, rising(SIZES), rising(SIZES / 2))
    assert np.isnan(result.factor)
    assert np.isnan(result.at_least)
    assert result.note == "the norm never reaches 0.7, the reference's with 1,600"


def test_a_norm_that_is_there_from_the_smallest_size_on_has_a_lower_bound():
    result = fewer_subjects_factor(SIZES, rising(SIZES), rising(SIZES) + 1)
    assert np.isnan(result.factor)
    assert result.at_least == 16
    assert result.note == "the norm is as good from its smallest size on: at least ×16"


def test_a_lucky_small_size_is_smoothed_and_not_believed():
    # 0.72 with 200 subjects would be ×8; with the two that follow it is 0.66
    scores = [0.50, 0.72, 0.62, 0.64, 0.74]
    result = fewer_subjects_factor(SIZES, rising(SIZES), scores)
    assert result.norm_size == pytest.approx(800 * 2 ** (0.04 / 0.08))
    assert result.note == "the norm's scores do not rise throughout, and were smoothed"


def test_where_the_curve_is_level_the_first_size_that_gets_there_counts():
    result = fewer_subjects_factor(SIZES, [0.5, 0.5, 0.5, 0.5, 0.7], [0.5, 0.6, 0.7, 0.7, 0.7])
    assert result.factor == pytest.approx(4)


def test_sizes_without_a_score_are_left_out_and_named():
    reference, norm = rising(SIZES), rising(SIZES * 2)
    reference[4] = norm[1] = np.nan
    result = fewer_subjects_factor(SIZES, reference, norm)
    assert result.left_out == (200, 1600)
    assert result.reference_size == 800
    assert result.factor == pytest.approx(2)


def test_a_norm_that_needs_more_subjects_has_a_factor_below_one():
    reference = [*rising(SIZES[:4]), np.nan]
    assert fewer_subjects_factor(SIZES, reference, rising(SIZES / 2)).factor == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("reference", "norm", "why"),
    [
        ([0.5, 0.6], [0.6, np.nan], "a curve needs two sizes or more, found 1 for the norm"),
        ([np.nan, np.nan], [0.6, 0.7], "the reference has no score"),
    ],
)
def test_without_a_curve_the_factor_is_nan_with_a_reason(reference, norm, why):
    result = fewer_subjects_factor([40, 100], reference, norm)
    assert np.isnan(result.factor)
    assert result.note == why


def test_invalid_sizes_are_rejected():
    with pytest.raises(ShapeError, match=r"shapes \(2,\), \(2,\) and \(1,\), expected the same"):
        fewer_subjects_factor([40, 100], [0.5, 0.6], [0.5])
    with pytest.raises(ArgumentError, match="sizes has entries that are not above 0"):
        fewer_subjects_factor([0, 100], [0.5, 0.6], [0.5, 0.6])
    with pytest.raises(ArgumentError, match="sizes has a number more than once"):
        fewer_subjects_factor([100, 100], [0.5, 0.6], [0.5, 0.6])
    with pytest.raises(DtypeError, match="entries that are not numbers"):
        fewer_subjects_factor([40, "all"], [0.5, 0.6], [0.5, 0.6])
    with pytest.raises(ArgumentError, match="infinite entries"):
        fewer_subjects_factor([40, 100], [0.5, np.inf], [0.5, 0.6])
