"""TMA as an estimator: dtypes, memory and state, and scikit-learn's manners."""

import pickle

import numpy as np
import pytest
import sklearn
from coloured_noise import coloured
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from psdnorm import alignment, ops
from psdnorm.alignment import TMA


def log_power(X):
    return np.log(X.var(axis=-1))


# -------------------------------- dtypes, memory, state


def test_float32_comes_out_as_float32_and_close_to_the_float64_result(fitted, unseen):
    aligned = fitted.transform(unseen.astype(np.float32))
    assert aligned.dtype == np.float32
    np.testing.assert_allclose(aligned, fitted.transform(unseen), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.float16])
def test_everything_but_float32_comes_out_as_float64(fitted, unseen, dtype):
    assert fitted.transform((10 * unseen).astype(dtype)).dtype == np.float64


def test_fit_transform_keeps_float32(train, domains):
    assert TMA().fit_transform(train.astype(np.float32), domains=domains).dtype == np.float32


def test_the_barycenter_is_float64_whatever_the_signals_are(train):
    assert TMA().fit(train.astype(np.float32)).sqrt_barycenter_.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_x_is_not_modified(train, domains, dtype):
    X = train.astype(dtype)
    before = X.copy()
    tma = TMA().fit(X, domains=domains)
    tma.transform(X, domains=domains)
    tma.fit_transform(X, domains=domains)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_read_only_arrays_are_welcome_and_the_result_is_writable(train, domains, dtype):
    X = train.astype(dtype)
    X.setflags(write=False)
    aligned = TMA().fit(X, domains=domains).transform(X, domains=domains)
    assert aligned.flags.writeable


def test_a_memory_map_gives_what_an_array_gives(train, domains, tmp_path):
    np.save(tmp_path / "X.npy", train)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        TMA().fit_transform(mapped, domains=domains), TMA().fit_transform(train, domains=domains)
    )


def test_strided_signals_give_what_contiguous_ones_give(train, domains):
    strided = np.asfortranarray(np.repeat(train, 2, axis=-1))[..., ::2]
    np.testing.assert_allclose(
        TMA().fit_transform(strided, domains=domains),
        TMA().fit_transform(train, domains=domains),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("chunk_values", [1, 2 * 400 * 3 + 17])
def test_chunks_do_not_change_the_result(train, domains, monkeypatch, chunk_values):
    whole = TMA().fit_transform(train, domains=domains)
    monkeypatch.setattr(alignment, "_CHUNK_VALUES", chunk_values)
    chunked = TMA().fit_transform(train, domains=domains)
    np.testing.assert_allclose(chunked, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["welch_psd", "monge_map"])
def test_no_step_sees_more_than_a_chunk(fitted, train, monkeypatch, name):
    seen = []
    step = getattr(ops, name)
    monkeypatch.setattr(ops, name, lambda x, *args: seen.append(tuple(x.shape)) or step(x, *args))
    monkeypatch.setattr(alignment, "_CHUNK_VALUES", 5 * 2 * 400)
    fitted.transform(train)
    assert seen == [(5, 2, 400), (5, 2, 400), (2, 2, 400)]


def test_fit_transform_is_fit_then_transform(train, domains):
    np.testing.assert_array_equal(
        TMA().fit_transform(train, domains=domains),
        TMA().fit(train, domains=domains).transform(train, domains=domains),
    )


def test_a_refit_forgets_the_first_fit(train, domains, unseen):
    refitted = TMA().fit(unseen[:, :1]).fit(train, domains=domains)
    fresh = TMA().fit(train, domains=domains)
    assert vars(refitted).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(refitted.transform(unseen), fresh.transform(unseen))


def test_transform_does_not_change_the_state(fitted, unseen):
    before = fitted.sqrt_barycenter_.copy()
    fitted.transform(unseen)
    np.testing.assert_array_equal(fitted.sqrt_barycenter_, before)


def test_windows_of_another_length_are_transformed(fitted):
    assert fitted.transform(coloured(3, length=1023)).shape == (3, 2, 1023)


# -------------------------------- a scikit-learn estimator


def test_init_stores_its_arguments_as_they_are():
    filter_size, eps = object(), object()  # even nonsense: fit is what checks
    tma = TMA(filter_size, eps)
    assert tma.filter_size is filter_size
    assert tma.eps is eps


def test_a_clone_has_the_parameters_and_not_the_state():
    tma = TMA(filter_size=3, eps=0.1, window="hann", padding_mode="zeros").fit(coloured(2))
    copy = clone(tma)
    assert vars(copy) == tma.get_params()


def test_parameters_can_be_read_and_set():
    tma = TMA().set_params(filter_size=9, window="hamming")
    assert tma.get_params() == {
        "filter_size": 9,
        "eps": 1e-5,
        "window": "hamming",
        "padding_mode": "circular",
    }


def test_set_params_reaches_the_next_fit(train):
    assert TMA().set_params(filter_size=9).fit(train).sqrt_barycenter_.shape == (2, 5)


def test_transform_before_fit_is_rejected_as_scikit_learn_does(unseen):
    with pytest.raises(NotFittedError):
        TMA().transform(unseen)


def test_a_pickled_copy_transforms_alike(fitted, unseen):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(unseen), fitted.transform(unseen))


def test_fitted_attributes_tell_what_was_seen(fitted):
    assert (fitted.n_channels_in_, fitted.n_domains_, fitted.filter_size_) == (2, 3, 5)
    assert fitted.sqrt_barycenter_.shape == (2, 3)


def test_fit_returns_itself(train):
    tma = TMA()
    assert tma.fit(train) is tma


def routed_model():
    tma = TMA().set_fit_request(domains=True).set_transform_request(domains=True)
    return make_pipeline(tma, FunctionTransformer(log_power), LogisticRegression())


@pytest.fixture
def labelled(train, domains):
    y = np.repeat([0, 1], 6)
    train[y == 1] *= 1.7
    return train, y, domains


def test_a_pipeline_carries_domains_to_fit_and_to_transform(labelled):
    X, y, domains = labelled
    with sklearn.config_context(enable_metadata_routing=True):
        model = routed_model().fit(X, y, domains=domains)
        found = model.predict_proba(X, domains=domains)
    tma = TMA()
    by_hand = LogisticRegression().fit(log_power(tma.fit_transform(X, domains=domains)), y)
    np.testing.assert_array_equal(model[0].sqrt_barycenter_, tma.sqrt_barycenter_)
    expected = by_hand.predict_proba(log_power(tma.transform(X, domains=domains)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_domains_routed_to_predict_change_the_prediction(labelled):
    X, y, domains = labelled
    with sklearn.config_context(enable_metadata_routing=True):
        model = routed_model().fit(X, y, domains=domains)
        with_domains = model.predict_proba(X, domains=domains)
        without = model.predict_proba(X)
    assert np.abs(with_domains - without).max() > 0.05


def test_a_pipeline_that_did_not_ask_for_domains_raises_for_them(labelled):
    X, y, domains = labelled
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(TMA(), FunctionTransformer(log_power), LogisticRegression())
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="domains"):
            model.fit(X, y, domains=domains)


def test_a_grid_search_over_filter_sizes_routes_domains(labelled):
    X, y, domains = labelled
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            routed_model(), {"tma__filter_size": np.arange(1, 4)}, cv=2, error_score="raise"
        )
        search.fit(X, y, domains=domains)
    assert search.best_estimator_[0].n_domains_ == 3
