"""Random laboratories, and subjects that depart from the templates."""

from dataclasses import replace

import numpy as np
import scipy.signal

from psdnorm.lab.simulate import PROFILES, simulate_night
from psdnorm.lab.simulate.brain import draw_variety
from psdnorm.lab.simulate.hypnograms import N2
from psdnorm.lab.simulate.profiles import fitted
from psdnorm.lab.simulate.recorder import DERIVATIONS
from psdnorm.lab.simulate.simulated_night import (
    CONTRAST_DB,
    wide_profile,
    wide_recording,
    wide_table,
)

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
