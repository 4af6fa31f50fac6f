"""What TMA promises about domains, their labels, and channels that are flat in some of them."""

import numpy as np
import pytest
from coloured_noise import relative_error

from psdnorm.alignment import TMA


def test_every_domain_of_a_call_is_transformed_as_if_it_came_alone(fitted, train, domains):
    together = fitted.transform(train, domains=domains)
    for d in range(3):
        alone = fitted.transform(train[domains == d])
        np.testing.assert_allclose(together[domains == d], alone, rtol=1e-12)


def test_without_domains_all_windows_are_one_domain(train):
    labelled = TMA().fit(train, domains=["all"] * 12).transform(train, domains=["all"] * 12)
    np.testing.assert_array_equal(TMA().fit(train).transform(train), labelled)


@pytest.mark.parametrize("step", ["fit", "fit_transform"])
def test_what_comes_second_is_y_and_ignored(train, domains, step):
    tma = TMA()
    getattr(tma, step)(train, domains)
    assert tma.n_domains_ == 1


def test_domains_change_the_result(train, domains):
    with_domains = TMA().fit_transform(train, domains=domains)
    assert relative_error(TMA().fit_transform(train), with_domains) > 0.1


def test_the_order_of_windows_inside_a_domain_does_not_matter(fitted, unseen):
    order = [3, 0, 4, 2, 1]
    np.testing.assert_allclose(
        fitted.transform(unseen[order]), fitted.transform(unseen)[order], rtol=1e-12
    )


def test_a_window_is_transformed_by_what_its_whole_domain_says(fitted, unseen):
    unseen[1:] *= 5
    alone, with_domain = fitted.transform(unseen[:1]), fitted.transform(unseen)[:1]
    assert relative_error(alone, with_domain) > 0.5


@pytest.mark.parametrize(
    "labels",
    [
        ["ann", "bob", "cy"],
        np.array(["ann", "bob", "cy"], dtype=object),
        [("shhs", 1), ("shhs", 2), ("mass", 1)],
        [1, "bob", 2.5],  # hashable is enough: nothing needs to be sortable
        [True, False, 7],
        [np.datetime64("2020-01-01"), np.datetime64("2020-01-02"), np.datetime64("2020-01-03")],
    ],
    ids=["str", "object", "tuple", "mixed", "bool", "date"],
)
def test_labels_are_names_and_nothing_more(train, domains, labels):
    named = [labels[d] for d in domains]
    np.testing.assert_array_equal(
        TMA().fit_transform(train, domains=named), TMA().fit_transform(train, domains=domains)
    )


@pytest.mark.parametrize("as_array", [np.asarray, "torch", "pandas"])
def test_labels_may_come_in_any_array(train, domains, as_array):
    if as_array == "torch":
        as_array = pytest.importorskip("torch").as_tensor
    elif as_array == "pandas":
        as_array = pytest.importorskip("pandas").Series
    tma = TMA().fit(train, domains=as_array(domains))
    assert tma.n_domains_ == 3


# -------------------------------- flat channels


def test_a_flat_channel_is_left_out_of_its_barycenter_and_of_no_other(train, domains):
    others = domains != 1
    train[domains == 1, 0] = 12345.678
    tma = TMA().fit(train, domains=domains)
    without = TMA().fit(train[others], domains=domains[others])
    np.testing.assert_array_equal(tma.sqrt_barycenter_[0], without.sqrt_barycenter_[0])
    assert not np.allclose(tma.sqrt_barycenter_[1], without.sqrt_barycenter_[1])


@pytest.mark.parametrize("f", [1, 4, 5, 100])
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1, 12345.678])
def test_a_flat_channel_comes_out_as_exact_zeros(train, domains, unseen, value, f):
    tma = TMA(filter_size=f).fit(train, domains=domains)
    unseen[:, 0] = value
    aligned = tma.transform(unseen.astype(np.float32))
    np.testing.assert_array_equal(aligned[:, 0], 0)
    assert np.isfinite(aligned).all()


def test_a_flat_window_of_a_living_channel_comes_out_as_exact_zeros(fitted, unseen):
    unseen[2, 1] = 0.1
    aligned = fitted.transform(unseen)
    np.testing.assert_array_equal(aligned[2, 1], 0)
    assert aligned[3, 1].std() > 0.1


def test_a_channel_flat_in_every_training_domain_comes_out_as_zeros(train, domains, unseen):
    train[:, 0] = 5
    aligned = TMA().fit(train, domains=domains).transform(unseen)
    np.testing.assert_array_equal(aligned[:, 0], 0)
    assert aligned[:, 1].std() > 0.1


def test_without_eps_a_bin_without_power_divides_nothing_by_zero():
    X = np.tile([1.0, -1.0], 50)[None, None]  # with f = 2, bin 0 is exactly zero
    np.testing.assert_allclose(TMA(filter_size=2, eps=0).fit_transform(X), X, atol=1e-12)
