"""The numbers that ``psdnorm inspect`` shows."""

import numpy as np
import pytest
import scipy.signal
from stores import filled, night

from psdnorm.errors import StoreError
from psdnorm.store import Layout, Store, mean_psd, summarize
from psdnorm.store.summary import CohortPSD, count_flags, describe

LAYOUT = Layout(2, 300, 10.0, "float32")


@pytest.fixture
def store(tmp_path):
    half = np.array([0, 2] * 30)
    nights = [
        night("abc-1", 60, layout=LAYOUT, stages=half, age=20, sex="F", visit="a"),
        night("abc-1b", 60, layout=LAYOUT, stages=half, subject="1", age=20, sex="F", visit="b"),
        night("abc-2", 60, layout=LAYOUT, stages=half, age=40, sex="M", flags=("flat",)),
        night("xyz-1", 30, layout=LAYOUT, stages=np.full(30, -1), simulated=True),
    ]
    return filled(tmp_path, nights, LAYOUT)


def test_subjects_nights_hours_and_shares_are_counted(store):
    table = summarize(store)
    assert table.index.tolist() == ["abc", "xyz", "all"]
    row = table.loc["abc"]
    assert (row["subjects"], row["nights"], row["hours"]) == (2, 3, 1.5)
    assert row[["W", "N1", "N2", "N3", "REM", "unscored"]].tolist() == [0.5, 0, 0.5, 0, 0, 0]
    assert row[["age_mean", "age_min", "age_max", "female"]].tolist() == [30, 20, 40, 0.5]
    assert (row["flagged"], row["simulated"]) == (1, 0)
    assert table.loc["all", ["subjects", "nights", "hours"]].tolist() == [3, 4, 1.75]


def test_what_nobody_knows_is_nan(store):
    row = summarize(store).loc["xyz"]
    assert row[["age_mean", "female", "W", "REM"]].isna().all()
    assert (row["unscored"], row["simulated"]) == (1, 1)


def test_the_mean_spectrum_is_scipys(store):
    found = mean_psd(store, segment_s=4)["xyz"]
    signals, _ = store.read("xyz-1", 0, 30)
    centred = signals - signals.mean(axis=-1, keepdims=True)
    freqs_hz, expected = scipy.signal.welch(centred, 10.0, nperseg=40, detrend=False)
    assert np.allclose(found.freqs_hz, freqs_hz)
    assert np.allclose(found.psd, expected.mean(axis=0), rtol=1e-4)
    assert found.n_nights == 1


def test_the_sample_of_nights_is_bounded_and_seeded(store):
    one, again = (mean_psd(store, most_nights=1, seed=3)["abc"] for _ in range(2))
    assert one.n_nights == 1
    assert np.array_equal(one.psd, again.psd)


def test_segments_longer_than_an_epoch_are_refused(store):
    with pytest.raises(StoreError, match=r"^segment_s is 31, expected part of 30.0 s$"):
        mean_psd(store, segment_s=31)


def test_bytes_are_those_on_disk(store):
    on_disk = sum(path.stat().st_size for path in (store.path / "nights").iterdir())
    assert summarize(store).loc["all", "bytes"] == on_disk


def test_age_and_sex_count_from_whichever_visit_knows_them(tmp_path):
    nights = [
        night("abc-1", 4, visit="a"),
        night("abc-1b", 4, subject="1", visit="b", age=70, sex="F"),
    ]
    row = summarize(filled(tmp_path, nights)).loc["abc"]
    assert (row["subjects"], row["age_mean"], row["female"]) == (1, 70, 1)


def test_a_cohort_that_is_called_all_keeps_its_row(tmp_path):
    store = filled(tmp_path, [night("all-1", 4), night("abc-1", 4)])
    assert summarize(store)["nights"].tolist() == [1, 1, 2]
    spectra = mean_psd(store)
    assert describe(store, summarize(store), spectra)["cohorts"]["all"]["nights"] == 1


def test_a_flag_is_counted_once_a_night_however_much_of_it_is_bad(tmp_path):
    flags = ("C3-A2 flat 12 %", "C3-A2 flat 0.3 %", "short")
    nights = [night("abc-1", 4, flags=flags), night("abc-2", 4, flags=("C3-A2 flat 7 %",))]
    store = filled(tmp_path, [*nights, night("abc-3", 4)])
    assert count_flags(store.index) == {"C3-A2 flat": 2, "short": 1}


def test_a_channel_is_called_by_its_commonest_name(tmp_path):
    names = [("C3-A2", "C4-A1"), ("C3-A2", "C4-M1"), ("C3-A2", "C4-M1"), ()]
    nights = [night(f"abc-{n}", 4, channels=each) for n, each in enumerate(names)]
    nights.append(night("xyz-1", 4))
    spectra = mean_psd(filled(tmp_path, nights))
    assert spectra["abc"].channels == ("C3-A2", "C4-M1 and 1 other")
    assert spectra["xyz"].channels == ("channel 1", "channel 2")


def test_band_powers_are_mean_densities_and_nan_without_power():
    freqs_hz = np.arange(0, 16, 0.5)
    psd = np.stack([np.where(freqs_hz < 4, 100.0, 1.0), np.zeros(32)])
    powers = CohortPSD(freqs_hz, psd, 1, ("a", "b")).band_powers_db()
    assert [powers[band][0] for band in ("delta", "theta", "alpha", "sigma")] == [20, 0, 0, 0]
    assert np.isnan([*(powers[band][1] for band in powers), powers["beta"][0]]).all()


def test_an_empty_store_and_a_night_with_samples_that_are_not_finite_are_named(tmp_path, store):
    with pytest.raises(StoreError, match="empty: no night was prepared into it yet"):
        summarize(Store.create(tmp_path / "empty", {"name": "robust"}))
    store.signals("xyz-1")[:] = np.nan  # a private mapping: not on disk
    with pytest.raises(StoreError, match=r"'xyz-1' of .* has samples that are not finite"):
        mean_psd(store)
