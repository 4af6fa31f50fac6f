"""What TMA refuses, and how it says so."""

import importlib
import sys

import numpy as np
import pytest
from coloured_noise import coloured

from psdnorm.alignment import TMA
from psdnorm.errors import ArgumentError, MissingExtraError, ShapeError


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_a_value_that_is_not_finite_is_rejected(fitted, train, step, value):
    train[3, 1, 7] = value
    with pytest.raises(ValueError, match="Input X contains"):
        getattr(fitted, step)(train)


@pytest.mark.parametrize("shape", [(400,), (2, 400), (3, 2, 1, 400)])
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_signals_without_three_dimensions_are_rejected(fitted, step, shape):
    with pytest.raises(ShapeError, match=rf"^X has {len(shape)} dimensions, .* expected 3"):
        getattr(fitted, step)(np.ones(shape))


def test_another_number_of_channels_is_rejected(fitted):
    with pytest.raises(ShapeError, match=r"^X has 3 channels, expected 2 as in fit$"):
        fitted.transform(coloured(2, n_channels=3))


def test_signals_without_channels_are_rejected():
    with pytest.raises(ShapeError, match=r"^X has 0 channels"):
        TMA().fit(np.ones((2, 0, 400)))


@pytest.mark.parametrize("step", ["fit", "transform"])
def test_windows_shorter_than_the_filter_are_rejected(fitted, step):
    with pytest.raises(ShapeError, match=r"^X has 4 time samples, .* filter_size 5$"):
        getattr(fitted, step)(coloured(2, length=4))


@pytest.mark.parametrize("step", ["fit", "transform", "fit_transform"])
def test_a_wrong_number_of_labels_is_rejected(fitted, train, step):
    with pytest.raises(ShapeError, match=r"^domains has 11 labels, expected 12"):
        getattr(fitted, step)(train, domains=["ann"] * 11)


@pytest.mark.parametrize("label", ["twelve chars", 3, np.array("ann")])
def test_one_label_for_all_windows_is_rejected(fitted, train, label):
    with pytest.raises(ShapeError, match=r"^domains is .* expected one label for each of 12"):
        fitted.transform(train, domains=label)


@pytest.mark.parametrize("label", [None, np.nan, [1]])
def test_a_missing_or_unhashable_label_is_rejected(fitted, train, label):
    with pytest.raises(ArgumentError, match=r"^domains has .* for window 4, expected a label"):
        fitted.transform(train, domains=[1, 1, 1, 1, label, 1, 1, 1, 1, 1, 1, 1])


def test_a_column_of_labels_is_rejected(fitted, train, domains):
    with pytest.raises(ArgumentError, match=r"^domains has \[0\] for window 0"):
        fitted.transform(train, domains=domains[:, None])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("filter_size", 0),
        ("filter_size", 2.5),
        ("filter_size", True),
        ("eps", -1e-5),
        ("window", "kaiser"),
        ("padding_mode", "mirror"),
    ],
)
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_an_option_that_does_not_exist_is_rejected(fitted, train, step, name, value):
    fitted.set_params(**{name: value})
    with pytest.raises(ArgumentError, match=rf"^{name} must .* found {value!r}"):
        getattr(fitted, step)(train)


def test_a_filter_size_changed_after_fit_is_rejected(fitted, unseen):
    fitted.set_params(filter_size=4)  # as many bins as 5 has
    with pytest.raises(ArgumentError, match=r"^filter_size is 4, expected 5 as in fit"):
        fitted.transform(unseen)


@pytest.mark.parametrize("step", ["fit", "transform"])
def test_a_power_beyond_float64_is_rejected_and_not_turned_into_nan(fitted, train, step):
    with pytest.raises(ArgumentError, match=r"^X has values up to .*e\+20\d, expected"):
        getattr(fitted, step)(1e200 * train)


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "psdnorm.alignment")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError) as error:
        importlib.import_module("psdnorm.alignment")
    assert str(error.value) == 'TMA needs scikit-learn: pip install "psdnorm[sklearn]"'
