"""What TMA promises about spectra and units, against a slow oracle, POT and closed forms."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
from coloured_noise import coloured, relative_error

from psdnorm.alignment import TMA

PADDING_MODES = ("circular", "zeros", "reflect")
NUMPY_PADDING = {"circular": "wrap", "zeros": "constant", "reflect": "reflect"}


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
    ot = pytest.importorskip("ot")
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
