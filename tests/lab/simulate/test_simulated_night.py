"""A night is a function of its seed, and holds what scorers look for."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import scipy.signal

from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate import PROFILES, CohortProfile, profile_of, simulate_night
from psdnorm.lab.simulate.brain import draw_variety
from psdnorm.lab.simulate.profiles import ACTIVE, band_powers_db, fitted
from psdnorm.lab.simulate.recorder import DERIVATIONS
from psdnorm.lab.simulate.simulated_night import (
    CONTRAST_DB,
    wide_profile,
    wide_recording,
    wide_table,
)

N1, N2, N3, REM = 1, 2, 3, 4


def digest(night):
    return hashlib.sha256(night.signal.tobytes() + night.stages.tobytes()).hexdigest()


def test_the_same_seed_gives_the_same_bytes():
    first, second = (simulate_night("HPAP", 3, 1, 5, hours=1) for _ in range(2))
    assert digest(first) == digest(second)


@pytest.mark.parametrize(
    "other", [("HPAP", 3, 1, 6), ("HPAP", 3, 0, 5), ("HPAP", 4, 1, 5), ("CHAT", 3, 1, 5)]
)
def test_another_seed_night_subject_or_cohort_gives_other_bytes(other):
    assert digest(simulate_night("HPAP", 3, 1, 5, hours=1)) != digest(
        simulate_night(*other, hours=1)
    )


def test_a_subject_stays_the_same_person_over_nights():
    nights = [simulate_night("CFS", 9, night, hours=0.5) for night in range(3)]
    assert len({(night.age_y, night.sex) for night in nights}) == 1


@pytest.mark.parametrize("name", PROFILES)
def test_every_cohort_has_nights_of_the_right_shape_and_size(name):
    night = simulate_night(name, 0, hours=1)
    assert night.signal.shape == (2, 3600 * PROFILES[name].sfreq)
    assert night.signal.dtype == np.float32
    assert night.stages.dtype == np.int8
    assert night.stages.shape == night.true_stages.shape == night.is_active.shape == (120,)
    assert np.isfinite(night.signal).all()
    assert 2 < np.median(np.abs(night.signal)) < 100


def test_the_two_channels_are_correlated_but_not_the_same():
    night = simulate_night("SHHS", 0, hours=2)
    correlation = np.corrcoef(night.signal)[0, 1]
    assert 0.2 < correlation < 0.95


def epochs_of(night, is_chosen):
    length = int(30 * night.sfreq)
    return night.signal.reshape(2, -1, length)[:, is_chosen]


def mean_psd(nights, channel, choose):
    epochs = np.concatenate([epochs_of(n, choose(n))[channel] for n in nights])
    frequency_hz, psd = scipy.signal.welch(epochs, nights[0].sfreq, nperseg=400)
    return frequency_hz, psd.mean(axis=0)


def peak_over_neighbours(frequency_hz, psd, band, sides):
    def mean(low, high):
        return psd[(frequency_hz >= low) & (frequency_hz < high)].mean()

    return mean(*band) / np.sqrt(np.prod([mean(*side) for side in sides]))


def test_alpha_peaks_over_the_back_of_the_head_in_quiet_wake(reference_nights):
    quiet = mean_psd(reference_nights, 1, lambda n: (n.true_stages == 0) & ~n.is_active)
    active = mean_psd(reference_nights, 1, lambda n: n.is_active)
    ratio = [peak_over_neighbours(*p, (9, 11), [(5, 7), (14, 16)]) for p in (quiet, active)]
    assert ratio[0] > 4
    assert ratio[0] > 1.5 * ratio[1]


@pytest.mark.slow
def test_spindles_give_n2_more_sigma_power_than_their_absence_would(reference_nights):
    for other in (REM, N1):
        ratio = [
            peak_over_neighbours(
                *mean_psd(reference_nights, 0, lambda n, s=stage: n.true_stages == s),
                (12, 14.5),
                [(8, 10), (18, 22)],
            )
            for stage in (N2, other)
        ]
        assert ratio[0] > 1.3 * ratio[1]


def per_minute(nights, kind, choose):
    count = minutes = 0.0
    for night in nights:
        epochs = (night.events[kind] / 30).astype(int)
        count += choose(night)[epochs].sum()
        minutes += choose(night).sum() / 2
    return count / minutes


@pytest.mark.parametrize(
    ("kind", "stage", "low", "high"),
    [
        ("spindle", N2, 2.0, 5.0),
        ("k_complex", N2, 1.0, 2.5),
        ("slow_wave", N3, 10.0, 20.0),
        ("vertex", N1, 1.0, 2.0),
        ("sawtooth", REM, 0.5, 1.2),
        ("eye_movement", REM, 3.0, 5.0),
        ("slow_eye_movement", N1, 2.0, 4.0),
    ],
)
def test_events_come_where_scorers_look_for_them(reference_nights, kind, stage, low, high):
    assert low < per_minute(reference_nights, kind, lambda n: n.true_stages == stage) < high
    assert per_minute(reference_nights, kind, lambda n: n.is_active | (n.true_stages == 0)) < low


def test_the_body_moves_and_the_eyes_blink_in_wake(reference_nights):
    for kind in ("movement", "blink", "muscle"):
        awake = per_minute(reference_nights, kind, lambda n: n.true_stages == 0)
        assert awake > 5 * per_minute(reference_nights, kind, lambda n: n.true_stages == N3)


def test_a_k_complex_stands_out_where_the_night_says_it_is(reference_nights):
    night = reference_nights[0]
    in_n2 = night.true_stages[(night.events["k_complex"] / 30).astype(int)] == N2
    starts = (night.events["k_complex"][in_n2] * night.sfreq).astype(int)
    waves = np.array(
        [night.signal[0, s : s + 130] for s in starts if s + 130 < night.signal.shape[1]]
    )
    mean = waves.mean(axis=0)
    assert mean.min() < -30
    assert 10 < mean.argmin() < 45  # sharp and early
    assert mean[45:].max() > 15  # blunt and late


def test_spectra_change_smoothly_from_epoch_to_epoch(reference_nights):
    night = reference_nights[0]
    jumps = np.abs(np.diff(night.signal[1])) / night.signal[1].std()
    at_boundaries = jumps[2999::3000]
    assert np.median(at_boundaries) < 1.5 * np.median(jumps)


def test_states_are_wake_twice_and_the_four_stages_of_sleep(reference_nights):
    for night in reference_nights:
        assert not (night.is_active & (night.true_stages > 0)).any()
    assert ACTIVE == 5


def test_band_powers_of_white_noise_are_flat():
    noise = np.random.default_rng(0).standard_normal((2, 100 * 30 * 20))
    powers = band_powers_db(noise, 100.0)
    assert powers.shape == (20, 2, 5)
    assert np.abs(powers.mean(axis=0) - 10 * np.log10(2 / 100)).max() < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hours": 0}, "hours is 0, expected"),
        ({"hours": 0.005}, "at least two epochs"),
        ({"shift": -1}, "shift is -1, expected"),
        ({"shift": float("nan")}, "shift is nan, expected"),
        ({"seed": -1}, "seed is -1, expected"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        simulate_night("PHYS", 0, **arguments)


def test_a_wrong_profile_is_named():
    with pytest.raises(ArgumentError, match="'NOPE' has no profile, expected one of ABC"):
        profile_of("NOPE")
    with pytest.raises(ArgumentError, match=r"sfreq is 50.0 Hz"):
        simulate_night(replace(PROFILES["PHYS"], sfreq=50.0), 0)
    with pytest.raises(ArgumentError, match="'Xz' is no known derivation"):
        simulate_night(CohortProfile("mine", channels=("Xz", "Pz-Oz")), 0)
    assert profile_of("phys") is PROFILES["PHYS"]


PLAIN = PROFILES["PHYS"].at(0.0)


def simulated(**knobs):
    return simulate_night(replace(PLAIN, **knobs), 0, hours=0.5)


def density(night, low_hz, high_hz):
    frequency, psd = scipy.signal.welch(night.signal, night.sfreq, nperseg=40 * int(night.sfreq))
    return psd[:, (frequency >= low_hz) & (frequency < high_hz)].mean()


class TestVariety:
    def test_the_cohorts_have_none(self):
        rng = np.random.default_rng(0)
        before = rng.bit_generator.state
        assert all(draw_variety(each.at(1.0), 13, rng) is None for each in PROFILES.values())
        assert rng.bit_generator.state == before

    def test_subjects_have_events_at_rates_of_their_own(self):
        usual = simulated()
        other = simulated(event_rate_sd=1.0)
        assert np.array_equal(usual.true_stages, other.true_stages)
        counts = [{kind: len(each) for kind, each in n.events.items()} for n in (usual, other)]
        assert sum(counts[0][kind] != counts[1][kind] for kind in counts[0]) >= 5

    def test_levels_and_weights_change_the_signal_and_not_the_stages(self):
        usual = simulated()
        for knob in ("state_sd_db", "montage_sd", "event_gain_sd"):
            other = simulated(**{knob: 0.5})
            assert np.array_equal(usual.stages, other.stages)
            assert not np.allclose(usual.signal, other.signal, atol=1.0)

    def test_drift_adds_to_what_is_slower_than_the_eeg(self):
        usual, drifting = simulated(), simulated(drift_uv=20.0)
        assert density(drifting, 0.03, 0.3) > 5 * density(usual, 0.03, 0.3)
        assert density(drifting, 2, 30) < 1.1 * density(usual, 2, 30)


class TestDay:
    def test_a_recording_that_goes_on_by_day_is_active_wake_before_and_after_the_night(self):
        night = simulate_night(replace(PLAIN, day_h=2.0), 0, hours=3.0)
        asleep = np.flatnonzero(night.true_stages > 0)
        around = np.r_[: asleep[0], asleep[-1] + 1 : len(night.stages)]
        assert len(night.stages) == 360
        assert len(around) >= 240
        assert night.is_active[around].sum() >= 240
        assert len(asleep) <= 120

    def test_without_it_nothing_changes(self):
        assert simulated().signal.tobytes() == simulated(day_h=0.0).signal.tobytes()


class TestWide:
    def test_every_night_has_eyes_that_look_about_and_a_grain_of_its_own(self):
        rng = np.random.default_rng(0)
        drawn = [wide_profile(rng) for _ in range(100)]
        for knob in ("gaze", "waxing_sd_db", "event_leak", "unrest_sd_db"):
            values = [getattr(each, knob) for each in drawn]
            assert min(values) > 0
            assert max(values) > 3 * min(values)
        assert all(each.alpha_sd and each.peak_sd_db and each.coherence_sd for each in drawn)

    def test_contrasts_between_stages_are_set_beside_n2_and_the_cohorts_keep_theirs(self):
        assert not CONTRAST_DB[N2].any()
        assert np.allclose(wide_table().knot_db - fitted().knot_db, CONTRAST_DB)
        assert wide_table().knot_db is not fitted().knot_db

    def test_the_same_subject_has_the_same_bytes(self):
        first, second = (wide_recording(3, seed=1, hours=0.25) for _ in range(2))
        assert first.signal.tobytes() == second.signal.tobytes()
        assert first.stages.tobytes() == second.stages.tobytes()
        other = wide_recording(3, seed=2, hours=0.25)
        assert first.channels != other.channels or not np.array_equal(first.signal, other.signal)

    def test_clinics_reach_beyond_those_of_the_cohorts(self):
        rng = np.random.default_rng(0)
        drawn = [wide_profile(rng) for _ in range(300)]
        assert {name for each in drawn for name in each.channels} == set(DERIVATIONS)
        for knob in ("gain_db", "highpass_hz", "lowpass_hz", "tilt_db_per_octave", "electrode_uv"):
            values = [getattr(each, knob) for each in drawn]
            of_cohorts = [getattr(each, knob) for each in PROFILES.values()]
            finite = [value for value in of_cohorts if np.isfinite(value) and value != 0]
            assert min(values) < min(finite)
            assert max(values) > max(finite)

    def test_some_have_one_channel_twice_under_two_names(self):
        nights = [wide_recording(number, hours=0.1) for number in range(40)]
        twice = [
            abs(np.corrcoef(night.signal)[0, 1]) > 1 - 1e-6 and len(set(night.channels)) == 2
            for night in nights
        ]
        assert 2 <= sum(twice) <= 14

    def test_a_recording_names_nobody_and_fits_any_recipe(self):
        night = wide_recording(0, hours=0.1)
        assert night.signal.dtype == np.float32
        assert night.start is None
        assert len(night.stages) == 12
