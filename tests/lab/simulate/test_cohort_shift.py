"""At shift 0 cohorts are the same; beyond it, each knob does what it says and nothing else."""

import functools
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.signal

from psdnorm.cohorts import COHORTS
from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate import PROFILES, CohortProfile, simulate_night
from psdnorm.lab.simulate.brain import AGES_Y, age_effects
from psdnorm.lab.simulate.hypnograms import bouts
from psdnorm.lab.simulate.profiles import band_powers_db

PLAIN = CohortProfile("plain", sfreq=200.0, line_hz=60.0)


@functools.lru_cache(maxsize=4)
def night_of(hours=1.0, subject=0, **knobs):
    return simulate_night(replace(PLAIN, **knobs), subject, hours=hours)


def test_at_shift_0_every_profile_is_the_reference():
    as_they_are = {"name", "sfreq", "unit", "line_hz", "channels"}
    for profile in PROFILES.values():
        scaled, neutral = profile.at(0.0), CohortProfile("neutral")
        for field in fields(profile):
            if field.name not in as_they_are:
                assert getattr(scaled, field.name) == getattr(neutral, field.name), field.name


def test_at_shift_0_the_same_stream_gives_the_same_night_in_every_cohort():
    same = {"name": "same", "sfreq": 200.0}
    nights = [simulate_night(replace(p, **same), 0, hours=1, shift=0) for p in PROFILES.values()]
    for night in nights[1:]:
        assert np.array_equal(night.signal, nights[0].signal)
        assert np.array_equal(night.stages, nights[0].stages)
        assert (night.age_y, night.sex) == (nights[0].age_y, nights[0].sex)


@pytest.mark.slow
def test_at_shift_0_cohorts_of_other_rates_have_the_same_spectra_and_shares():
    powers, shares = [], []
    for name in ("PHYS", "SHHS", "MASS"):
        nights = [simulate_night(name, n, hours=3, shift=0) for n in range(8)]
        decibels = [band_powers_db(n.signal, n.sfreq)[n.stages == 2] for n in nights]
        powers.append(np.mean([np.median(d, axis=0) for d in decibels], axis=0))
        shares.append(np.mean([np.bincount(n.stages, minlength=5) / 360 for n in nights], axis=0))
    # subjects differ by up to 4 dB, so means of 8 by about one
    assert np.ptp(powers, axis=0).max() < 5
    assert np.ptp(shares, axis=0).max() < 0.15


def test_shift_1_is_the_profile_and_2_goes_on():
    shhs = PROFILES["SHHS"]
    assert shhs.at(1.0) == shhs
    assert shhs.at(2.0).gain_db == 2 * shhs.gain_db
    assert shhs.at(2.0).lowpass_hz == shhs.lowpass_hz / 2


@pytest.mark.parametrize("shift", [-0.1, 10.1, float("inf"), float("nan")])
def test_a_shift_that_would_leave_nothing_but_artefacts_raises(shift):
    with pytest.raises(ArgumentError, match=rf"^shift is {shift}, expected a number from 0 to 10$"):
        PROFILES["SHHS"].at(shift)


def test_the_mains_frequency_is_that_of_the_table_of_cohorts():
    for name, profile in PROFILES.items():
        assert profile.line_hz == COHORTS[name].line_hz


def test_gain_scales_the_signal_and_nothing_else():
    plain, loud = night_of(), night_of(gain_db=6.0)
    assert np.allclose(loud.signal, 10 ** (6 / 20) * plain.signal, rtol=1e-5)
    assert np.array_equal(loud.stages, plain.stages)


def test_gains_spread_between_subjects():
    ratios = [
        night_of(0.1, n, gain_sd_db=2.0).signal.std() / night_of(0.1, n).signal.std()
        for n in range(12)
    ]
    assert 1 < np.std(20 * np.log10(ratios)) < 4


def test_the_amplifier_has_the_response_that_its_knobs_ask_for():
    plain = night_of()
    shaped = night_of(highpass_hz=1.0, lowpass_hz=30.0, tilt_db_per_octave=-1.0)
    frequency_hz, before = scipy.signal.welch(plain.signal, 200, nperseg=800)
    _, after = scipy.signal.welch(shaped.signal, 200, nperseg=800)
    found_db = 10 * np.log10(after / before)
    for hertz in (1.0, 10.0, 30.0, 80.0):
        low, high = 1 / (1 + 1 / hertz**2), 1 / (1 + (hertz / 30) ** 2)
        expected_db = 10 * np.log10(low * high) - np.log2(hertz / 10)
        at = np.argmin(np.abs(frequency_hz - hertz))
        assert found_db[:, at] == pytest.approx(expected_db, abs=0.7)


def test_the_amplifier_does_not_look_ahead():
    from psdnorm.lab.simulate.recorder import Amplifier, amplify

    click = np.zeros((2, 4000), dtype=np.float32)
    click[:, 2000] = 1
    heard = amplify(click, 200, Amplifier(np.zeros(2), 0.5, 40.0, 0.5))
    assert np.abs(heard[:, :2000]).max() < 1e-6
    assert heard[:, 2000].min() > 0.3


@pytest.mark.parametrize("line_hz", [50.0, 60.0])
def test_hum_is_a_line_at_the_mains_frequency(line_hz):
    night = night_of(line_uv=5.0, line_hz=line_hz)
    frequency_hz, psd = scipy.signal.welch(night.signal, 200, nperseg=800)
    above = psd[:, frequency_hz > 30]
    assert (frequency_hz[frequency_hz > 30][above.argmax(axis=1)] == line_hz).all()
    rms = np.sqrt((psd[:, np.abs(frequency_hz - line_hz) <= 1].sum(axis=1)) * 0.25)
    assert ((rms > 1) & (rms < 15)).all()


def test_hum_beyond_half_the_rate_is_not_recorded():
    assert np.array_equal(night_of(sfreq=100.0, line_uv=5.0).signal, night_of(sfreq=100.0).signal)


def test_electrodes_add_noise_that_differs_between_subjects():
    added = []
    for subject in range(9):
        plain, noisy = (night_of(0.5, subject, electrode_uv=rms).signal for rms in (0.0, 20.0))
        frequency_hz, psd = scipy.signal.welch(np.stack([plain, noisy]), 200, nperseg=800)
        band = (frequency_hz >= 0.5) & (frequency_hz <= 50)
        added.append(np.sqrt((psd[1] - psd[0])[:, band].sum(axis=1) * 0.25))
    assert 14 < np.median(added) < 28
    assert np.std(np.log(added)) > 0.15


def test_pops_and_heart_beats_come_at_their_rates():
    pops = night_of(8.0, pops_per_hour=5.0).signal - night_of(8.0).signal
    steps = (np.abs(np.diff(pops, axis=1)) > 60).sum(axis=1)
    assert ((steps > 20) & (steps < 70)).all()
    central = {"channels": ("C3-A2", "C4-A1")}
    heart = night_of(ecg_uv=30.0, **central).signal - night_of(**central).signal
    beats, _ = scipy.signal.find_peaks(heart[0], height=20)
    assert 45 < len(beats) / 60 < 80
    assert np.corrcoef(heart)[0, 1] < -0.9  # the mastoids see it from two sides


def test_a_mastoid_montage_mixes_the_channels():
    plain, central = night_of(), night_of(channels=("C3-A2", "C4-A1"))
    assert np.corrcoef(plain.signal)[0, 1] < 0.6
    assert np.corrcoef(central.signal)[0, 1] > 0.6
    assert np.array_equal(plain.stages, central.stages)


def test_the_eyes_are_seen_in_front_and_hardly_at_the_mastoids():
    heights = []
    for channels in (("Fpz-Cz", "Pz-Oz"), ("C3-A2", "C4-A1")):
        night = night_of(4.0, channels=channels)
        starts = (night.events["blink"] * 200).astype(int)
        waves = np.array([night.signal[:, s : s + 80] for s in starts if s + 80 < 2_880_000])
        heights.append(waves.mean(axis=0).max(axis=1))
    assert heights[0][0] > 40
    assert heights[0][0] > 3 * heights[1][0]


@pytest.mark.slow
def test_age_thins_slow_waves_spindles_and_deep_sleep():
    young, old = (
        [night_of(8.0, n, age_mean_y=age, age_sd_y=0.0, sfreq=100.0) for n in range(4)]
        for age in (8.0, 80.0)
    )
    n3_share = [np.mean([np.mean(n.stages == 3) for n in group]) for group in (young, old)]
    assert n3_share[0] > 1.5 * n3_share[1]
    delta = [
        np.median([np.median(band_powers_db(n.signal, 100)[n.stages == 2, 0, 0]) for n in group])
        for group in (young, old)
    ]
    assert delta[0] - delta[1] > 6
    wake = [np.mean([np.mean(n.stages == 0) for n in group]) for group in (young, old)]
    assert wake[0] < wake[1]


def test_age_is_neutral_at_the_reference_and_monotonous_in_slow_waves():
    neutral = age_effects(29.0)
    assert neutral["delta_db"] == neutral["n3_log_odds"] == 0
    assert neutral["slow_gain"] == neutral["spindle_rate"] == 1
    gains = [age_effects(age)["slow_gain"] for age in AGES_Y]
    assert gains == sorted(gains, reverse=True)


def test_ages_and_sexes_are_those_of_the_cohort():
    for name in ("CHAT", "MROS", "SOF"):
        people = [simulate_night(name, n, hours=0.05) for n in range(40)]
        profile = PROFILES[name]
        ages = [night.age_y for night in people]
        assert np.mean(ages) == pytest.approx(
            profile.age_mean_y, abs=4 * profile.age_sd_y / 40**0.5
        )
        women = np.mean([night.sex == "F" for night in people])
        assert abs(women - profile.female_share) < 0.25


@pytest.mark.slow
def test_patients_wake_and_move_more():
    calm, ill = (
        [night_of(8.0, n, sfreq=100.0, **knobs) for n in range(6)]
        for knobs in ({}, {"wake_log_odds": 1.0, "artefact_log_rate": 1.0})
    )
    waking = [np.mean([(bouts(n.stages)[0] == 0).sum() for n in g]) for g in (calm, ill)]
    assert waking[1] > 1.5 * waking[0]
    for kind in ("muscle", "movement"):
        counts = [sum(len(n.events[kind]) for n in g) for g in (calm, ill)]
        assert counts[1] > 1.5 * counts[0]


SCORERS = {
    "later N2": ({"n1_bias": 2.0}, 1, 1),
    "earlier N2": ({"n1_bias": -2.0}, 1, -1),
    "more N3": ({"n3_bias": 0.8}, 3, 1),
    "less N3": ({"n3_bias": -0.8}, 3, -1),
}


@pytest.mark.parametrize("name", SCORERS)
def test_a_scorer_changes_labels_and_not_signals(name):
    knobs, stage, direction = SCORERS[name]
    plain, biased = night_of(8.0, sfreq=100.0), night_of(8.0, sfreq=100.0, **knobs)
    assert np.array_equal(plain.signal, biased.signal)
    assert np.array_equal(biased.true_stages, plain.stages)
    change = (biased.stages == stage).sum() - (plain.stages == stage).sum()
    assert direction * change > 5


def test_a_ready_scorer_calls_the_deepest_n2_epochs_n3():
    night = night_of(8.0, sfreq=100.0, n3_bias=0.5)
    delta = band_powers_db(night.signal, 100)[:, :, 0].mean(axis=1)
    was_n2 = night.true_stages == 2
    assert delta[was_n2 & (night.stages == 3)].mean() > delta[was_n2 & (night.stages == 2)].mean()


def test_labels_are_noisy_only_beside_transitions():
    night = night_of(8.0, sfreq=100.0, transition_noise=0.5)
    wrong = np.flatnonzero(night.stages != night.true_stages)
    edges = np.flatnonzero(np.diff(night.true_stages))
    assert len(wrong) > 10
    assert set(wrong) <= set(edges) | set(edges + 1)
