"""The spectrogram has the power of each epoch where it belongs."""

import numpy as np
import pytest

from psdnorm.staging.preparing import spectrogram_of


@pytest.mark.parametrize("sfreq", [100.0, 256.0, 199.7])
def test_a_sine_has_its_power_at_its_frequency_in_its_epoch(sfreq):
    time_s = np.arange(int(90 * sfreq)) / sfreq
    row = np.where((time_s >= 30) & (time_s < 60), 20 * np.sin(2 * np.pi * 10 * time_s), 0)
    row += np.random.default_rng(0).standard_normal(len(row))
    found = spectrogram_of(row.astype(np.float32), sfreq, 3, "C3")
    assert found.channel == "C3"
    assert found.power_db.shape == (3, len(found.frequencies_hz))
    assert found.frequencies_hz[-1] <= 30 < found.frequencies_hz[-1] + 0.3
    peak_hz = found.frequencies_hz[found.power_db[1].argmax()]
    assert peak_hz == pytest.approx(10, abs=0.26)
    width_hz = found.frequencies_hz[1]
    power = (10 ** (found.power_db[1] / 10)).sum() * width_hz  # of all bins, in µV²
    assert power == pytest.approx(200, rel=0.05)
    white_db = 10 * np.log10(2 / sfreq)
    assert np.median(found.power_db[0]) == pytest.approx(white_db, abs=0.5)


def test_what_is_not_finite_is_unknown_and_what_is_flat_is_low():
    row = np.zeros(9000, np.float32)
    row[4000] = np.nan
    found = spectrogram_of(row, 100.0, 3, "C3")
    assert np.isnan(found.power_db[1]).all()
    assert (found.power_db[[0, 2]] == -40).all()
