"""Filtering keeps what is below 30 Hz where it was; scaling, trimming and clipping do as named."""

import numpy as np
import pytest
import scipy.signal
from cohort_folder import samples

from psdnorm.errors import RecordingError
from psdnorm.io import Recording
from psdnorm.prepare.recipe import RECIPES, Recipe
from psdnorm.prepare.signals import lowpass_resample, preprocess

RATES = (64, 99.9999, 100, 128, 128.2051, 199.9, 200, 250, 256, 1 / 0.003, 500, 512)
PLAIN = Recipe("plain", n_channels=1)
SECONDS = 180


def recorded(signal, sfreq=100.0, stages=None, channels=None):
    """A recording of (C, T) or (T,)."""
    signal = np.atleast_2d(signal).astype(np.float32)
    n_epochs = int(signal.shape[1] / sfreq / 30 + 1e-6)
    stages = np.zeros(n_epochs, np.int8) if stages is None else np.asarray(stages, np.int8)
    channels = channels or tuple(f"c{i}" for i in range(len(signal)))
    return Recording(signal, channels, sfreq, stages, None, "night.edf")


def eeg(n_epochs, sfreq=100, seed=0):
    """Two channels, (2, T), in µV."""
    return 0.1 * np.stack([samples(n_epochs, sfreq, [seed, c]).ravel() for c in range(2)])


def filtered(signal, sfreq, seconds=SECONDS):
    """One channel at 100 Hz, (T,)."""
    rows = np.atleast_2d(signal).astype(np.float32)
    return lowpass_resample(rows, sfreq, PLAIN, seconds * 100)[0]


def tone(hz, sfreq, seconds=SECONDS, phase=0.4):
    return 50 * np.sin(2 * np.pi * hz * np.arange(round(seconds * sfreq)) / sfreq + phase)


@pytest.mark.parametrize("sfreq", RATES)
@pytest.mark.parametrize("hz", [0.3, 4.0, 13.0, 25.0])
def test_a_tone_below_25_hz_keeps_its_size_and_its_phase(sfreq, hz):
    found = filtered(tone(hz, sfreq), sfreq)
    expected = tone(hz, 100)
    inside = slice(50, -50)
    assert np.abs(found - expected)[inside].max() < 50 * 0.01


@pytest.mark.parametrize("sfreq", [rate for rate in RATES if rate > 128])
@pytest.mark.parametrize("hz", [50, 60])
def test_the_mains_is_taken_out(sfreq, hz):
    found = filtered(tone(hz, sfreq), sfreq)
    assert np.abs(found[50:-50]).max() < 50 * 10 ** (-40 / 20)


def test_the_slope_is_that_of_mne():
    mne = pytest.importorskip("mne")
    frequencies = np.array([29, 31.5, 33.75, 36, 37.5])
    rows = [filtered(tone(hz, 256), 256)[500:-500] for hz in frequencies]
    gains = np.std(rows, axis=1) / (50 / np.sqrt(2))
    taps = mne.filter.create_filter(None, 256, None, 30, verbose="ERROR")
    expected = np.abs(scipy.signal.freqz(taps, worN=frequencies, fs=256)[1])
    np.testing.assert_allclose(gains, expected, atol=0.01)
    assert gains[2] == pytest.approx(0.5, abs=0.01)


def test_what_is_beyond_half_the_new_rate_does_not_come_back_below_it():
    found = filtered(tone(58.0, 128), 128)  # would be 42 Hz at 100 Hz
    assert np.abs(found[50:-50]).max() < 0.25
    found = filtered(tone(90.0, 256), 256)  # would be 10 Hz
    assert np.abs(found[50:-50]).max() < 0.25


def test_it_is_mnes_filter_and_resampling():
    mne = pytest.importorskip("mne")
    rng = np.random.default_rng(0)
    signal = np.cumsum(rng.standard_normal(60 * 256))
    reference = mne.filter.filter_data(signal, 256, None, 30, verbose="ERROR")
    reference = mne.filter.resample(reference, up=100, down=256, method="fft", npad=0)
    found = filtered(signal, 256, 60)
    error = (found - reference)[200:-200]
    assert np.std(error) < 0.005 * np.std(np.diff(found)) + 0.002 * np.std(found)


def test_in_its_band_it_is_as_a_filter_without_delay():
    signal = samples(4, 100).ravel() * 0.1
    slow = scipy.signal.butter(6, 12, fs=100, output="sos")
    signal = scipy.signal.sosfiltfilt(slow, signal)
    again = scipy.signal.sosfiltfilt(scipy.signal.butter(12, 36, fs=100, output="sos"), signal)
    np.testing.assert_allclose(filtered(signal, 100, 120), again, atol=0.01 * signal.std())


@pytest.mark.parametrize("sfreq", RATES)
def test_an_impulse_stays_in_its_epoch_at_any_rate(sfreq):
    n_epochs = 960 if sfreq == 128.2051 else 60  # a night, where a rate is no small ratio
    length = round(n_epochs * 30 * sfreq + 1)
    times_s = [
        30 * epoch + at_s for epoch in (0, n_epochs // 2, n_epochs - 1) for at_s in (0.5, 29.5)
    ]
    signal = np.zeros(length)
    for at_s in times_s:
        signal[round(at_s * sfreq)] = 1000
    found = filtered(signal, sfreq, n_epochs * 30)
    for at_s in times_s:
        first = round(100 * at_s) - 40
        peak_s = (first + int(np.argmax(found[first : first + 80]))) / 100
        assert abs(peak_s - at_s) <= 0.005 + 0.5 / sfreq


@pytest.mark.parametrize("sfreq", [99.9999, 128.2051, 199.9, 1 / 0.003])
def test_a_tone_is_in_phase_at_the_end_of_a_night(sfreq):
    hours = 8
    found = filtered(tone(13.0, sfreq, hours * 3600), sfreq, hours * 3600)
    error = (found - tone(13.0, 100, hours * 3600))[-6000:-50]
    # a hundredth of its size is a tenth of a millisecond
    assert np.abs(error).max() < 50 * 0.01


@pytest.mark.parametrize("sfreq", [64, 100, 128.2051, 256])
def test_the_ends_have_no_transient(sfreq):
    time = np.arange(round(SECONDS * sfreq)) / sfreq
    for signal, expected in [
        (3000 + 0 * time, 3000),
        (3000 + 2 * time, 3000 + 2 * np.arange(SECONDS * 100) / 100),
    ]:
        np.testing.assert_allclose(filtered(signal, sfreq), expected, rtol=2e-6)


def test_an_offset_becomes_no_tone():
    found = filtered(np.full(SECONDS * 256, 1e5), 256)
    assert np.ptp(found) < 0.2


def test_a_rate_too_low_for_the_filter_is_refused():
    with pytest.raises(RecordingError, match=r"^night.edf has 50 Hz, expected at least 64 Hz"):
        preprocess(recorded(samples(4, 50).ravel(), 50.0), PLAIN)


def test_another_number_of_channels_than_the_recipes_is_refused():
    with pytest.raises(RecordingError, match=r"^night.edf: 2 channels .* 'plain' expects 1$"):
        preprocess(recorded(eeg(2)), PLAIN)


def test_half_an_epoch_at_the_end_is_left_out():
    signal = eeg(3)[:, :7500]
    prepared = preprocess(recorded(signal, stages=[1, 2]), RECIPES["robust"])
    assert prepared.signals.shape == (2, 2, 3000)
    assert prepared.stages.tolist() == [1, 2]


def test_no_scaling_leaves_microvolts():
    signal = eeg(3)
    prepared = preprocess(recorded(signal), RECIPES["paper"])
    rows = [filtered(row, 100, 90) for row in signal]
    expected = np.stack(rows).reshape(2, 3, 3000).swapaxes(0, 1)
    np.testing.assert_allclose(prepared.signals, expected, atol=1e-4)
    assert prepared.signals.dtype == np.float32
    assert prepared.signals.flags.c_contiguous


def unscaled(recording):
    recipe = Recipe("plain", n_channels=len(recording.signal))
    return preprocess(recording, recipe).signals.astype(np.float64)


def test_epochs_are_scaled_by_their_own_mean_and_deviation():
    recording = recorded(eeg(4) + 500)
    plain = unscaled(recording)
    expected = (plain - plain.mean(axis=2, keepdims=True)) / plain.std(axis=2, keepdims=True)
    found = preprocess(recording, Recipe("z", scaling="epoch")).signals
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_recording_is_scaled_by_its_median_and_interquartile_range():
    recording = recorded(eeg(4) * [[1], [7]] + 500)
    plain = unscaled(recording)
    low, middle, high = np.percentile(plain, (25, 50, 75), axis=(0, 2))
    expected = (plain - middle[:, None]) / (high - low)[:, None]
    found = preprocess(recording, Recipe("r", scaling="recording")).signals
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_gain_reaches_the_network_only_without_scaling():
    signal = eeg(4)
    for recipe, same in ((RECIPES["paper"], False), (RECIPES["robust"], True)):
        before, after = (preprocess(recorded(gain * signal), recipe).signals for gain in (1, 1.5))
        assert np.allclose(before, after, atol=1e-3) == same


def test_epochs_that_were_not_measured_do_not_decide_the_scale():
    signal = eeg(8)
    whole = preprocess(recorded(signal[:, : 5 * 3000]), Recipe("r", scaling="recording")).signals
    signal[:, 5 * 3000 :] = 0
    found = preprocess(recorded(signal), Recipe("r", scaling="recording"))
    np.testing.assert_allclose(found.signals[:4], whole[:4], atol=1e-3)
    assert found.flags == ("c0 flat 38 %", "c1 flat 38 %")


def test_a_flat_epoch_is_zero_after_scaling_by_epoch():
    signal = eeg(4)
    signal[0, 3000:6000] = 12.3
    found = preprocess(recorded(signal), Recipe("z", scaling="epoch")).signals
    assert not found[1, 0].any()
    assert found[1, 1].std() == pytest.approx(1, abs=1e-3)


def test_samples_are_clipped_and_much_clipping_is_flagged():
    signal = eeg(4)
    found = preprocess(recorded(signal), Recipe("c", clip=20.0))
    assert np.abs(found.signals).max() == 20
    plain = unscaled(recorded(signal))
    np.testing.assert_array_equal(found.signals, plain.clip(-20, 20).astype(np.float32))
    shares = np.mean(np.abs(plain) > 20, axis=(0, 2))
    assert found.flags == tuple(f"c{i} clipped {100 * shares[i]:.0f} %" for i in (0, 1))
    assert preprocess(recorded(signal), Recipe("c", clip=1e4)).flags == ()


@pytest.mark.parametrize(("spoil", "share"), [(lambda x: 1000 * x, 98), (lambda x: x + 3000, 100)])
def test_a_channel_of_which_more_than_half_would_be_clipped_is_refused(spoil, share):
    signal = eeg(4)
    signal[1] = spoil(signal[1])
    message = (
        rf"^night.edf: {share} % of the samples of c1 are beyond ±500, where the recipe 'paper' "
        r"clips, expected at most 50 %: is its unit right, does it have an offset\?$"
    )
    with pytest.raises(RecordingError, match=message):
        preprocess(recorded(signal), RECIPES["paper"])


def test_up_to_half_of_a_channel_may_be_clipped():
    signal = eeg(4)
    signal[1, :6000] += 3000
    assert preprocess(recorded(signal), RECIPES["paper"]).flags == ("c1 clipped 50 %",)


@pytest.mark.parametrize("rest_uv", [0.0, 12.3])
def test_a_channel_that_rests_for_more_than_half_of_the_night_is_not_scaled_by_its_range(rest_uv):
    signal = eeg(4)
    # no epoch is flat
    signal[0] = np.where(np.arange(12000) % 3000 < 600, signal[0], rest_uv)
    message = r"^night.edf: half of the samples of c0 are within 0.1 µV, .* 'robust' divides by"
    with pytest.raises(RecordingError, match=message):
        preprocess(recorded(signal), RECIPES["robust"])
    assert preprocess(recorded(signal), RECIPES["paper"]).flags == ()


NIGHT = [-1, 0, 0, 0, 0, 1, 0, 2, -1, 4, 0, 0, 0, 0, -1]


@pytest.mark.parametrize(
    ("trim", "margin_s", "kept"),
    [
        ("all", 60, slice(3, 12)),
        ("all", 0, slice(5, 10)),
        ("all", 1800, slice(0, 15)),
        (("PHYS",), 60, slice(3, 12)),
        (("MASS",), 60, slice(0, 15)),
        ("none", 60, slice(0, 15)),
    ],
)
def test_wake_is_cut_off_around_sleep_and_nowhere_else(trim, margin_s, kept):
    recording = recorded(eeg(15), stages=NIGHT)
    whole = preprocess(recording, Recipe("w"))
    recipe = Recipe("t", trim=trim, trim_margin_s=margin_s)
    found = preprocess(recording, recipe, cohort="PHYS")
    assert found.first_epoch == kept.start
    assert found.stages.tolist() == NIGHT[kept]
    np.testing.assert_array_equal(found.signals, whole.signals[kept])


@pytest.mark.parametrize("stage", [-1, 0])
def test_without_a_scored_epoch_of_sleep_nothing_is_cut_off(stage):
    recording = recorded(eeg(4), stages=[stage] * 4)
    found = preprocess(recording, Recipe("t", trim="all", trim_margin_s=0))
    assert len(found.stages) == 4


def test_what_is_cut_off_does_not_count_as_bad():
    signal = eeg(15)
    signal[:, : 5 * 3000] = 0
    signal[:, 10 * 3000 :] = 0
    recording = recorded(signal, stages=NIGHT)
    found = preprocess(recording, Recipe("t", trim="all", trim_margin_s=0))
    assert found.flags == ()
    with pytest.raises(RecordingError, match="c0 is flat in 67 %"):
        preprocess(recording, Recipe("w"))
