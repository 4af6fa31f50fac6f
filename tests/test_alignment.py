"""TMA, the scikit-learn transformer: what it promises about spectra, units, domains and manners."""

import importlib
import pickle
import sys

import numpy as np
import ot
import pytest
import scipy.linalg
import scipy.signal
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from psdnorm import alignment
from psdnorm.alignment import TMA
from psdnorm.errors import ArgumentError, MissingExtraError, ShapeError
from psdnorm.ops import reference

PADDING_MODES = ("circular", "zeros", "reflect")
NUMPY_PADDING = {"circular": "wrap", "zeros": "constant", "reflect": "reflect"}


def coloured(n_windows, n_channels=2, length=400, seed=0, pole=0.7, gain=1.0):
    """Windows of autoregressive noise with a mean, (n_windows, n_channels, length)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_windows, n_channels, length + 50))
    return gain * (scipy.signal.lfilter([1], [1, -pole], noise)[..., 50:] + 3)


@pytest.fixture
def domains():
    return np.array([0, 1, 2] * 4)


@pytest.fixture
def train(domains):
    """Twelve windows, (12, 2, 400), of three interleaved domains that differ in colour and gain."""
    X = np.empty((12, 2, 400))
    for d, (pole, gain) in enumerate([(0.3, 1.0), (0.7, 4.0), (-0.4, 2.0)]):
        X[domains == d] = coloured(4, seed=d, pole=pole, gain=gain)
    return X


@pytest.fixture
def fitted(train, domains):
    return TMA().fit(train, domains=domains)


@pytest.fixture
def unseen():
    return coloured(5, seed=9, pole=0.5, gain=7.0)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def log_power(X):
    return np.log(X.var(axis=-1))


# -------------------------------- a slow oracle, on its own


def oracle_psd(X, f, eps=1e-5, window="boxcar"):
    """PSD of one domain at all f bins, (C, f)."""
    centred = X - X.mean(axis=-1, keepdims=True)
    _, psd = scipy.signal.welch(
        centred,
        fs=1,
        window=window,
        nperseg=f,
        noverlap=f // 2,
        detrend=False,
        return_onesided=False,
    )
    psd = psd.mean(axis=0)
    return psd + eps * psd[:, : f // 2 + 1].mean(axis=-1, keepdims=True)


def oracle_sqrt_barycenter(X, domains, f, **options):
    roots = [np.sqrt(oracle_psd(X[domains == d], f, **options)) for d in np.unique(domains)]
    return np.mean(roots, axis=0)  # (C, f)


def oracle_taps(gain, f):
    """Zero-phase taps at the lags -(f // 2) … f // 2 with the gains (f,) at the bins."""
    half = f // 2
    taps = []
    for lag in range(-half, half + 1):
        tap = sum(gain[k] * np.cos(2 * np.pi * k * lag / f) for k in range(f)) / f
        taps.append(tap / 2 if 2 * abs(lag) == f else tap)
    return np.array(taps)


def oracle_transform(X, sqrt_target, f, padding_mode="circular", **options):
    """Align one domain, row by row."""
    gain = sqrt_target / np.sqrt(oracle_psd(X, f, **options))
    out = np.empty_like(X)
    for n, c in np.ndindex(X.shape[:2]):
        row = X[n, c] - X[n, c].mean()
        padded = np.pad(row, f // 2, mode=NUMPY_PADDING[padding_mode])
        out[n, c] = np.convolve(padded, oracle_taps(gain[c], f), mode="valid")
    return out


# -------------------------------- the mathematics


@pytest.mark.parametrize("padding_mode", PADDING_MODES)
@pytest.mark.parametrize("f", [1, 2, 4, 5, 16, 17, 80])
def test_transform_equals_a_slow_oracle(train, domains, unseen, f, padding_mode):
    tma = TMA(filter_size=f, padding_mode=padding_mode).fit(train, domains=domains)
    sqrt_target = oracle_sqrt_barycenter(train, domains, f)
    expected = oracle_transform(unseen, sqrt_target, f, padding_mode)
    np.testing.assert_allclose(tma.transform(unseen), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", ["hann", "hamming"])
def test_windows_other_than_boxcar_equal_the_oracle(train, domains, unseen, window):
    tma = TMA(filter_size=8, window=window).fit(train, domains=domains)
    sqrt_target = oracle_sqrt_barycenter(train, domains, 8, window=window)
    expected = oracle_transform(unseen, sqrt_target, 8, window=window)
    np.testing.assert_allclose(tma.transform(unseen), expected, rtol=1e-9, atol=1e-9)


def test_eps_is_a_share_of_the_mean_power_of_each_channel(train, domains, unseen):
    tma = TMA(eps=0.5).fit(train, domains=domains)
    sqrt_target = oracle_sqrt_barycenter(train, domains, 5, eps=0.5)
    expected = oracle_transform(unseen, sqrt_target, 5, eps=0.5)
    np.testing.assert_allclose(tma.transform(unseen), expected, rtol=1e-9, atol=1e-9)


def test_a_long_filter_over_whole_windows_is_circular_convolution_by_fft(train, domains, unseen):
    T = unseen.shape[-1]
    tma = TMA(filter_size=T).fit(train, domains=domains)
    gain = oracle_sqrt_barycenter(train, domains, T) / np.sqrt(oracle_psd(unseen, T))
    centred = unseen - unseen.mean(axis=-1, keepdims=True)
    expected = np.fft.ifft(np.fft.fft(centred) * gain).real
    np.testing.assert_allclose(tma.transform(unseen), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", [4, 5])
def test_the_barycenter_is_that_of_dense_gaussians(train, domains, f):
    tma = TMA(filter_size=f).fit(train, domains=domains)
    dft = scipy.linalg.dft(f, scale="sqrtn")
    for c in range(2):
        psds = [oracle_psd(train[domains == d], f)[c] for d in range(3)]
        covariances = [(dft.conj().T @ np.diag(psd) @ dft).real for psd in psds]
        _, dense = ot.gaussian.bures_wasserstein_barycenter(
            np.zeros((3, f)), np.stack(covariances), eps=1e-12
        )
        eigenvalues = np.diag(dft @ dense @ dft.conj().T).real[: f // 2 + 1]
        np.testing.assert_allclose(tma.sqrt_barycenter_[c] ** 2, eigenvalues, rtol=1e-6)


def test_each_domain_weighs_the_same_however_many_windows_it_has(train, domains):
    kept = np.r_[0:12, 0, 3, 6, 9, 0, 3, 6, 9]  # domain 0 three times over
    repeated = TMA().fit(train[kept], domains=domains[kept])
    once = TMA().fit(train, domains=domains)
    np.testing.assert_allclose(repeated.sqrt_barycenter_, once.sqrt_barycenter_, rtol=1e-12)


def test_the_psd_of_every_domain_comes_closer_to_the_barycenter(train, domains):
    f = 16
    tma = TMA(filter_size=f).fit(train, domains=domains)
    aligned = tma.transform(train, domains=domains)
    for d in range(3):
        before = np.sqrt(oracle_psd(train[domains == d], f)[:, : f // 2 + 1])
        after = np.sqrt(oracle_psd(aligned[domains == d], f)[:, : f // 2 + 1])
        assert relative_error(after, tma.sqrt_barycenter_) < 0.2 * relative_error(
            before, tma.sqrt_barycenter_
        )


def test_the_only_training_domain_comes_back_centred_and_otherwise_unchanged(unseen):
    aligned = TMA(filter_size=7).fit_transform(unseen)
    np.testing.assert_allclose(aligned, unseen - unseen.mean(axis=-1, keepdims=True), atol=1e-9)


def test_a_gain_on_an_unseen_domain_is_undone(fitted, unseen):
    gains = np.array([[100.0], [0.01]])  # another one in each channel
    np.testing.assert_allclose(
        fitted.transform(gains * unseen), fitted.transform(unseen), rtol=1e-9, atol=1e-12
    )


def test_a_smooth_filter_on_an_unseen_domain_is_undone_the_better_the_longer_the_filter(
    train, domains
):
    unseen = coloured(10, length=1000, seed=9, pole=0.3)
    unseen -= unseen.mean(axis=-1, keepdims=True)
    omega = 2 * np.pi * np.fft.rfftfreq(1000)
    smooth = 1 + 0.5 * np.cos(omega)  # zero phase
    shifted = np.fft.irfft(np.fft.rfft(unseen) * smooth, n=1000)
    errors = [relative_error(shifted, unseen)]
    for f in (1, 5, 17, 49):
        tma = TMA(filter_size=f).fit(train, domains=domains)
        errors.append(relative_error(tma.transform(shifted), tma.transform(unseen)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


# -------------------------------- units


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fitting_and_transforming_in_volts_gives_the_microvolt_result_in_volts(
    train, domains, unseen, dtype
):
    volts, microvolts = TMA(filter_size=8), TMA(filter_size=8)
    volts.fit((1e-6 * train).astype(dtype), domains=domains)
    microvolts.fit(train.astype(dtype), domains=domains)
    np.testing.assert_allclose(
        1e6 * volts.transform((1e-6 * unseen).astype(dtype)),
        microvolts.transform(unseen.astype(dtype)),
        rtol=1e-5 if dtype == np.float32 else 1e-9,
        atol=1e-5 if dtype == np.float32 else 1e-9,
    )


def test_a_domain_in_volts_comes_out_as_its_microvolt_version_does(train, domains, unseen):
    tma = TMA(filter_size=8).fit(train, domains=domains)
    np.testing.assert_allclose(
        tma.transform(1e-6 * unseen), tma.transform(unseen), rtol=1e-9, atol=1e-9
    )


def test_a_quiet_channel_is_not_drowned_by_the_eps_of_a_loud_one(train, domains, unseen):
    scale = np.array([[1.0], [1e-9]])
    mixed = TMA().fit(scale * train, domains=domains)
    plain = TMA().fit(train, domains=domains)
    np.testing.assert_allclose(
        mixed.transform(scale * unseen), scale * plain.transform(unseen), rtol=1e-6, atol=0
    )


# -------------------------------- domains


def test_every_domain_of_a_call_is_transformed_as_if_it_came_alone(fitted, train, domains):
    together = fitted.transform(train, domains=domains)
    for d in range(3):
        alone = fitted.transform(train[domains == d])
        np.testing.assert_allclose(together[domains == d], alone, rtol=1e-12)


def test_without_domains_all_windows_are_one_domain(train):
    labelled = TMA().fit(train, domains=["all"] * 12).transform(train, domains=["all"] * 12)
    np.testing.assert_array_equal(TMA().fit(train).transform(train), labelled)


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
    step = getattr(reference, name)
    monkeypatch.setattr(
        reference, name, lambda x, *args: seen.append(tuple(x.shape)) or step(x, *args)
    )
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


def test_transform_before_fit_is_refused_as_scikit_learn_does(unseen):
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


def test_a_pipeline_that_did_not_ask_for_domains_refuses_them(labelled):
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


# -------------------------------- what is refused, and how it is said


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_a_value_that_is_not_finite_is_refused(fitted, train, step, value):
    train[3, 1, 7] = value
    with pytest.raises(ValueError, match="Input X contains"):
        getattr(fitted, step)(train)


@pytest.mark.parametrize("shape", [(400,), (2, 400), (3, 2, 1, 400)])
@pytest.mark.parametrize("step", ["fit", "transform"])
def test_signals_without_three_dimensions_are_refused(fitted, step, shape):
    with pytest.raises(ShapeError, match=rf"^X has {len(shape)} dimensions, .* expected 3"):
        getattr(fitted, step)(np.ones(shape))


def test_another_number_of_channels_is_refused(fitted):
    with pytest.raises(ShapeError, match=r"^X has 3 channels, expected 2 as in fit$"):
        fitted.transform(coloured(2, n_channels=3))


def test_signals_without_channels_are_refused():
    with pytest.raises(ShapeError, match=r"^X has 0 channels"):
        TMA().fit(np.ones((2, 0, 400)))


@pytest.mark.parametrize("step", ["fit", "transform"])
def test_windows_shorter_than_the_filter_are_refused(fitted, step):
    with pytest.raises(ShapeError, match=r"^X has 4 time samples, .* filter_size 5$"):
        getattr(fitted, step)(coloured(2, length=4))


@pytest.mark.parametrize("step", ["fit", "transform", "fit_transform"])
def test_a_wrong_number_of_labels_is_refused(fitted, train, step):
    with pytest.raises(ShapeError, match=r"^domains has 11 labels, expected 12"):
        getattr(fitted, step)(train, domains=["ann"] * 11)


@pytest.mark.parametrize("label", ["twelve chars", 3, np.array("ann")])
def test_one_label_for_all_windows_is_refused(fitted, train, label):
    with pytest.raises(ShapeError, match=r"^domains is .* expected one label for each of 12"):
        fitted.transform(train, domains=label)


@pytest.mark.parametrize("label", [None, np.nan, [1]])
def test_a_missing_or_unhashable_label_is_refused(fitted, train, label):
    with pytest.raises(ArgumentError, match=r"^domains has .* for window 4, expected a label"):
        fitted.transform(train, domains=[1, 1, 1, 1, label, 1, 1, 1, 1, 1, 1, 1])


def test_a_column_of_labels_is_refused(fitted, train, domains):
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
def test_an_option_that_does_not_exist_is_refused(fitted, train, step, name, value):
    fitted.set_params(**{name: value})
    with pytest.raises(ArgumentError, match=rf"^{name} must .* found {value!r}"):
        getattr(fitted, step)(train)


def test_a_filter_size_changed_after_fit_is_refused(fitted, unseen):
    fitted.set_params(filter_size=4)  # as many bins as 5 has
    with pytest.raises(ArgumentError, match=r"^filter_size is 4, expected 5 as in fit"):
        fitted.transform(unseen)


@pytest.mark.parametrize("step", ["fit", "transform"])
def test_a_power_beyond_float64_is_refused_and_not_turned_into_nan(fitted, train, step):
    with pytest.raises(ArgumentError, match=r"^X has values up to .*e\+20\d, expected"):
        getattr(fitted, step)(1e200 * train)


def test_without_scikit_learn_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "psdnorm.alignment")
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtraError) as error:
        importlib.import_module("psdnorm.alignment")
    assert str(error.value) == 'TMA needs scikit-learn: pip install "psdnorm[sklearn]"'
