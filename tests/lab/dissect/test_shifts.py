"""Turning one knob leaves everything else of a night unchanged."""

from dataclasses import fields

import numpy as np
import pytest
import scipy.signal

from psdnorm.errors import ArgumentError
from psdnorm.lab.dissect.shifts import (
    KINDS,
    UNSHIFTED,
    ShiftCondition,
    conditions_of,
    simulate_condition,
)
from psdnorm.lab.simulate.brain import _electrode_density, age_effects

HOURS = 0.5


def night(condition=UNSHIFTED, subject=0, hours=HOURS):
    return simulate_condition(condition, subject, seed=3, hours=hours)


def severe(kind):
    return ShiftCondition(kind, KINDS[kind].strengths[-1])


@pytest.fixture(scope="module")
def plain():
    return night()


def density(signal, sfreq):
    return scipy.signal.welch(signal.astype(float), sfreq, nperseg=int(4 * sfreq))


def same_scene(one, other):
    """Whether two nights have the same stages, events and person."""
    assert one.true_stages.tolist() == other.true_stages.tolist()
    assert {k: v.tolist() for k, v in one.events.items()} == {
        k: v.tolist() for k, v in other.events.items()
    }
    assert (one.age_y, one.sex) == (other.age_y, other.sex)


def test_all_kinds_have_three_strengths_that_go_away_from_the_neutral_one():
    assert list(KINDS) == [
        "gain", "response", "line", "electrode", "montage", "age", "scorer", "rate",
    ]  # fmt: skip
    for kind in KINDS.values():
        away = [abs(strength - kind.neutral) for strength in kind.strengths]
        assert len(away) == 3
        assert 0 < away[0] < away[1] < away[2]


def test_the_unshifted_condition_comes_first_and_each_other_one_once():
    found = conditions_of(["rate", "gain", "rate"])
    assert found[0] == UNSHIFTED
    assert [c.name for c in found[1:]] == [
        "rate_128", "rate_100", "rate_80", "gain_-3", "gain_-6", "gain_-12",
    ]  # fmt: skip
    assert len(conditions_of()) == 25


def test_an_unknown_kind_raises():
    with pytest.raises(ArgumentError, match="kind is 'hum', expected one of gain, response"):
        conditions_of(["hum"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_neutral_strength_of_every_kind_is_the_unshifted_night(kind, plain):
    same = night(ShiftCondition(kind, KINDS[kind].neutral))
    for field in fields(same):
        if field.name == "events":
            continue
        assert np.array_equal(getattr(same, field.name), getattr(plain, field.name)), field.name
    same_scene(same, plain)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "age"])
def test_every_kind_but_age_leaves_the_sleeper_and_what_happens_in_the_night(kind, plain):
    same_scene(night(severe(kind)), plain)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("age", "scorer")])
def test_only_the_scorer_and_age_change_labels(kind, plain):
    assert night(severe(kind)).stages.tolist() == plain.stages.tolist()


def test_gain_is_one_exact_factor(plain):
    factor = np.float32(10 ** (-12 / 20))
    assert np.array_equal(night(severe("gain")).signal, factor * plain.signal)


def test_the_response_tilts_the_spectrum_by_its_decibels_per_octave(plain):
    frequency_hz, before = density(plain.signal, plain.sfreq)
    _, after = density(night(severe("response")).signal, plain.sfreq)
    at = (frequency_hz > 1) & (frequency_hz < 40)
    octaves = np.log2(frequency_hz[at] / 10)
    assert np.allclose(10 * np.log10(after / before)[:, at], -2 * octaves, atol=0.6)


def test_line_noise_adds_the_hum_and_nothing_else(plain):
    hum = night(severe("line")).signal - plain.signal
    frequency_hz, power = density(hum, plain.sfreq)
    is_line = np.abs(frequency_hz - 50) < 1
    assert power[:, is_line].sum() > 0.999 * power.sum()
    assert np.all((hum.std(axis=1) > 20) & (hum.std(axis=1) < 300))


def test_electrode_noise_adds_its_own_density_to_each_channel():
    before, after = night(hours=2), night(severe("electrode"), hours=2)
    frequency_hz, first = density(before.signal, before.sfreq)
    _, second = density(after.signal, before.sfreq)
    at = (frequency_hz > 15) & (frequency_hz < 45)
    added = (second - first)[:, at]
    own = _electrode_density(frequency_hz, 1.0)[at]
    rms_uv = np.sqrt((added / own).mean(axis=1))
    # one electrode's quality for both channels, around the median of 10 µV
    assert rms_uv[0] == pytest.approx(rms_uv[1], rel=0.1)
    assert 3 < rms_uv[0] < 30
    assert np.allclose(added / own, rms_uv[:, None] ** 2, rtol=0.5)


def test_the_montage_half_way_sees_half_way_between_what_both_montages_see_of_an_event(plain):
    half, whole = night(ShiftCondition("montage", 50.0)), night(severe("montage"))
    # a movement is so large that all else is small beside it: 0.6 of it in Pz-Oz, all in C4-A1
    at = slice(*(int(plain.sfreq * (plain.events["movement"][0] + s)) for s in (0, 2)))
    seen = [n.signal[1, at].astype(float) for n in (plain, half, whole)]
    shares = [float(each @ seen[2] / (seen[2] @ seen[2])) for each in seen]
    assert shares == pytest.approx([0.6, 0.8, 1.0], abs=0.05)


def test_age_makes_the_same_sleeper_older_and_leaves_their_own_traits(plain):
    older = night(severe("age"))
    assert older.age_y == pytest.approx(plain.age_y + 45)
    assert older.sex == plain.sex
    assert age_effects(older.age_y)["delta_db"] < age_effects(plain.age_y)["delta_db"] - 3


def test_scorer_bias_changes_labels_and_no_sample():
    before = night(hours=8)
    after = night(severe("scorer"), hours=8)
    assert np.array_equal(before.signal, after.signal)
    changed = before.stages != after.stages
    assert changed.any()
    assert set(zip(before.stages[changed], after.stages[changed], strict=True)) == {(2, 1)}


def test_a_lower_rate_keeps_the_same_eeg_up_to_resampling(plain):
    fewer = night(severe("rate"))
    assert (fewer.sfreq, fewer.signal.shape[1]) == (80.0, plain.signal.shape[1] * 2 // 5)
    back = scipy.signal.resample_poly(fewer.signal, 5, 2, axis=1)
    bands = scipy.signal.butter(6, [1, 30], "bandpass", fs=200, output="sos")
    one, other = (scipy.signal.sosfiltfilt(bands, x)[:, 2000:-2000] for x in (plain.signal, back))
    # of another subject the difference is 1.4 times as large as the signal
    assert (one - other).std() < 0.01 * one.std()


def test_other_subjects_and_seeds_are_other_nights(plain):
    assert not np.allclose(night(subject=1).signal, plain.signal)
