"""Texture, gaze, stray events, boundaries and unrest, all off by default."""

from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.signal

from psdnorm.constants import SIMULATED_BANDS_HZ
from psdnorm.lab.simulate import PROFILES, CohortProfile, simulate_night
from psdnorm.lab.simulate.brain import ALPHA_HEIGHT, ALPHA_SD_HZ, draw_texture
from psdnorm.lab.simulate.profiles import ACTIVE, band_powers_db

PLAIN = CohortProfile("plain")
KNOBS = (
    *("unrest_sd_db", "epoch_log_spread", "epoch_memory", "waxing_sd_db", "alpha_sd"),
    *("peak_sd_db", "infraslow_db", "coherence_sd", "event_leak", "boundary_s", "gaze"),
)


def simulated(hours=1.0, **knobs):
    return simulate_night(replace(PLAIN, **knobs), 0, hours=hours)


def states_of(night):
    return np.where(night.is_active, ACTIVE, night.true_stages)


def powers_of(night):
    return band_powers_db(night.signal, night.sfreq).reshape(len(night.stages), -1)


def slow_power(night, states):
    """Power below 0.5 Hz of the frontal channel, over all epochs of some states."""
    epochs = night.signal[0].reshape(len(night.stages), -1)[np.isin(states_of(night), states)]
    frequency, psd = scipy.signal.periodogram(epochs, night.sfreq)
    return psd[:, (frequency > 0.05) & (frequency < 0.5)].mean()


def test_the_cohorts_have_none_of_it():
    names = {field.name for field in fields(CohortProfile)}
    assert names.issuperset(KNOBS)
    for profile in PROFILES.values():
        assert all(getattr(profile, knob) == 0 for knob in KNOBS)


@pytest.mark.parametrize("knob", KNOBS)
def test_each_knob_changes_the_signal_and_neither_stages_nor_scoring(knob):
    usual, other = simulated(), simulated(**{knob: 0.3})
    assert np.array_equal(usual.true_stages, other.true_stages)
    assert np.array_equal(usual.stages, other.stages)
    assert not np.array_equal(usual.signal, other.signal)


@pytest.mark.parametrize("knob", ["gaze", "infraslow_db", "boundary_s", "unrest_sd_db"])
def test_other_parts_stay_where_they_were(knob):
    usual, other = simulated(), simulated(**{knob: 0.3})
    for kind, onsets in usual.events.items():
        assert len(onsets) == len(other.events[kind])


class TestTexture:
    def test_alpha_peaks_differ_and_the_bands_power_stays(self):
        texture = draw_texture(replace(PLAIN, alpha_sd=0.8), 1.0, np.random.default_rng(0))
        assert np.ptp(np.log(texture.alpha_height[:2] / ALPHA_HEIGHT[:2])) > 0.1
        frequency = np.linspace(*SIMULATED_BANDS_HZ["alpha"], 500)

        def mean_of(height, width_hz, under_db):
            peak = np.exp(-0.5 * ((frequency - 10.5) / width_hz) ** 2)
            return 10 ** (under_db / 10) * (1 + height * peak).mean()

        for state in range(6):
            usual = mean_of(ALPHA_HEIGHT[state], ALPHA_SD_HZ, 0.0)
            own = mean_of(texture.alpha_height[state], texture.alpha_sd_hz, texture.alpha_db[state])
            assert own == pytest.approx(usual, rel=0.05)

    def test_peaks_add_what_they_say_where_they_say(self):
        texture = draw_texture(replace(PLAIN, peak_sd_db=3.0), 1.0, np.random.default_rng(0))
        fine = texture.fine_db(np.array([texture.peak_hz[0], 200.0]))
        others = np.exp(-0.5 * ((texture.peak_hz[0] - texture.peak_hz) / texture.peak_sd_hz) ** 2)
        assert fine[:, 0] == pytest.approx(texture.peak_db @ others)
        assert fine[:, 1] == pytest.approx(0, abs=1e-6)

    def test_infraslow_power_rises_and_the_bands_hardly(self):
        usual, slower = simulated(), simulated(infraslow_db=9.0)
        everywhere = range(6)
        assert slow_power(slower, everywhere) > 2 * slow_power(usual, everywhere)
        assert abs(np.median(powers_of(slower) - powers_of(usual), axis=0)[1:5]).max() < 0.3

    def test_power_that_waxes_within_an_epoch_keeps_its_mean(self):
        usual, waxing = simulated(), simulated(waxing_sd_db=2.5)
        beta = scipy.signal.butter(4, (13, 30), "bandpass", fs=usual.sfreq, output="sos")

        def course(night):
            band = scipy.signal.sosfilt(beta, night.signal[1])
            return (band.reshape(-1, int(2 * night.sfreq)) ** 2).mean(axis=1)

        def spread_db(night):
            return (10 * np.log10(course(night))).reshape(-1, 15).std(axis=1).mean()

        assert spread_db(waxing) > spread_db(usual) + 0.5
        assert course(waxing).mean() == pytest.approx(course(usual).mean(), rel=0.2)

    def test_channels_go_together_as_far_as_the_subject_says(self):
        correlations = [
            np.corrcoef(simulate_night(replace(PLAIN, coherence_sd=sd), who, hours=0.3).signal)[
                0, 1
            ]
            for sd in (0.0, 0.4)
            for who in range(6)
        ]
        assert np.std(correlations[6:]) > 1.5 * np.std(correlations[:6])


class TestGaze:
    def test_eyes_move_the_frontal_channel_in_wake_and_rem_and_not_in_deep_sleep(self):
        usual, looking = (simulated(4.0, gaze=gaze) for gaze in (0.0, 1.5))
        for state in (0, 4, ACTIVE):
            assert slow_power(looking, state) > 1.5 * slow_power(usual, state)
        assert slow_power(looking, 3) < 1.1 * slow_power(usual, 3)

    def test_a_channel_that_sees_no_eyes_has_none(self):
        usual, looking = (simulated(gaze=gaze, channels=("Pz-Oz", "Fpz-Cz")) for gaze in (0.0, 1.0))
        moved = np.abs(looking.signal - usual.signal).mean(axis=1)
        assert moved[0] < 0.2 * moved[1]


class TestEpochs:
    def test_strays_bring_a_stages_marks_into_others(self):
        usual, leaky = simulated(4.0), simulated(4.0, event_leak=0.1)

        def spindles_in(night, stage):
            at = (night.events["spindle"] / 30).astype(int)
            return np.count_nonzero(night.true_stages[at] == stage)

        assert spindles_in(usual, 4) == 0
        assert spindles_in(leaky, 4) > 0

    def test_a_boundary_lies_off_the_stroke_by_12_s_at_most(self):
        usual, off = simulated(4.0), simulated(4.0, boundary_s=12.0)
        for kind, onsets in usual.events.items():
            assert np.abs(onsets - off.events[kind]).max(initial=0.0) <= 12.0
        moved = np.concatenate([off.events[kind] - usual.events[kind] for kind in usual.events])
        assert np.abs(moved).max() > 5
        assert PLAIN.boundary_s == 0
        assert replace(PLAIN, boundary_s=10.0).at(5.0).boundary_s == 12.0

    def test_epochs_of_a_stage_are_more_alike_and_forget_sooner(self):
        usual = simulated(4.0)
        calm = simulated(4.0, epoch_log_spread=-0.7, epoch_memory=-0.6)

        def spread_and_memory(night):
            own = powers_of(night)[states_of(night) == 2][:, 6]
            own = own - np.median(own)
            return own.std(), np.corrcoef(own[1:], own[:-1])[0, 1]

        (usual_sd, usual_memory), (sd, memory) = map(spread_and_memory, (usual, calm))
        assert sd < 0.8 * usual_sd
        assert memory < usual_memory - 0.2

    def test_unrest_is_of_active_wake_alone_and_slow(self):
        usual, restless = (simulated(2.0, day_h=1.0, unrest_sd_db=sd) for sd in (0.0, 4.0))
        change = (powers_of(restless) - powers_of(usual))[:, 8]
        is_active = usual.is_active
        inside = ~np.convolve(is_active, [1, 1, 1], "same").astype(bool)
        assert np.abs(change[inside]).max() < 0.1
        active = change[is_active]
        assert active.std() > 0.5
        assert np.corrcoef(active[1:], active[:-1])[0, 1] > 0.5
