"""The numbers that ``psdnorm inspect`` shows."""

import numpy as np
import pytest
import scipy.signal
from stores import filled, night

from psdnorm.errors import StoreError
from psdnorm.store import Layout, mean_psd, summarize

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
