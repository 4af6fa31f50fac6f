"""A unit that cannot be right is asked for, never guessed."""

import numpy as np
import pytest

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.staging.derivations import doubt_unit, factor_of, spread_uv


@pytest.mark.parametrize("spread", [2.1, 20.0, 299.0])
def test_eeg_of_a_usual_size_raises_no_doubt(spread):
    assert doubt_unit([spread, spread], None, "night.edf") == ""


@pytest.mark.parametrize(
    ("spread", "words"), [(2e-5, "1000000 times larger"), (2e7, "1000000 times smaller")]
)
def test_what_can_be_eeg_in_another_unit_alone_is_refused_with_the_flag(spread, words):
    with pytest.raises(RecordingError) as caught:
        doubt_unit([spread], None, "night.edf")
    assert str(caught.value).startswith("night.edf: 30 s of its EEG vary by")
    assert words in str(caught.value)
    assert str(caught.value).endswith("give the unit (V, mV, uV, nV) by --unit")


@pytest.mark.parametrize("spread", [0.02, 20000.0])
def test_what_may_be_flat_or_too_large_for_other_reasons_is_said(spread):
    assert "if so, give --unit" in doubt_unit([spread], None, "night.edf")


def test_a_unit_that_was_given_and_does_not_fit_is_said_and_obeyed():
    assert "the unit V was given" in doubt_unit([2e7], "V", "night.edf")


def test_nothing_is_said_of_the_unit_of_a_flat_signal():
    assert doubt_unit([float("nan")], None, "night.edf") == ""
    assert doubt_unit([1e-12], None, "night.edf") == ""


def test_the_spread_does_not_mind_drifts_artefacts_and_gaps():
    rng = np.random.default_rng(0)
    row = (20 * rng.standard_normal(300_000)).astype(np.float32)
    row[:9000] = 0
    row[9000:12000] = np.nan
    row[12000:15000] += 1e5 * rng.standard_normal(3000).astype(np.float32)
    row[60000:] += 500
    assert spread_uv(row, 100.0) == pytest.approx(20, rel=0.02)
    assert np.isnan(spread_uv(np.zeros(9000, np.float32), 100.0))


def test_units_are_volts():
    assert [factor_of(unit) for unit in ("V", "mV", "uV", "µV", "nV")] == [1e6, 1e3, 1, 1, 1e-3]
    with pytest.raises(ArgumentError, match="unit is 'T', expected one of V, mV, uV, nV"):
        factor_of("T")
