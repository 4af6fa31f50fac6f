"""A channel that is no good EEG is named, with what is wrong; a good one is not."""

import functools

import numpy as np
import pytest

from psdnorm.errors import RecordingError
from psdnorm.lab.simulate import simulate_night
from psdnorm.staging.shift import NOT_TRUSTED, UNUSUAL, channel_conditions


@functools.cache
def simulated():
    return simulate_night("ABC", subject=1, seed=3, hours=0.5)


def night():
    made = simulated()
    return made.signal.copy(), made.sfreq, made.channels


def conditions(signal):
    _, sfreq, channels = night()
    return channel_conditions(signal, sfreq, channels)


def only(found):
    """The one condition that there is, as (channel, kind, verdict)."""
    (each,) = found
    return each.channel, each.kind, each.verdict


def epochs(signal, share):
    """The first samples of a night, a share of its epochs, of the first channel."""
    return signal[0, : int(share * signal.shape[1])]


@pytest.mark.parametrize("cohort", ["CFS", "CHAT", "MASS", "SOF", "phys-st"])
def test_a_good_night_has_no_condition(cohort):
    made = simulate_night(cohort, subject=1, seed=3, hours=0.25)
    assert channel_conditions(made.signal, made.sfreq, made.channels) == ()


@pytest.mark.parametrize(("share", "verdict"), [(0.2, UNUSUAL), (0.8, NOT_TRUSTED)])
def test_a_flat_channel_is_named_with_its_share(share, verdict):
    signal, _, _ = night()
    epochs(signal, share)[:] = 0
    (found,) = conditions(signal)
    assert (found.channel, found.kind, found.verdict) == ("C3-A2", "flat", verdict)
    assert found.share == pytest.approx(share)
    assert found.sentence == f"C3-A2 is flat in {100 * share:.0f} % of the epochs."


def test_a_channel_that_is_flat_all_night_is_only_flat():
    signal, _, _ = night()
    signal[0] = 7
    assert only(conditions(signal)) == ("C3-A2", "flat", NOT_TRUSTED)


def test_a_channel_that_is_never_finite_is_named_once():
    signal, _, _ = night()
    signal[1] = np.nan
    assert only(conditions(signal)) == ("C4-A1", "not finite", NOT_TRUSTED)


def test_a_saturated_channel_is_not_called_clipped_too():
    signal, _, _ = night()
    limit = np.quantile(np.abs(signal[0]), 0.6)
    np.clip(signal[0], -limit, limit, out=signal[0])
    assert only(conditions(signal)) == ("C3-A2", "saturated", NOT_TRUSTED)


def test_a_channel_of_which_peaks_are_cut_off_is_clipped():
    signal, _, _ = night()
    limit = np.quantile(np.abs(signal[0]), 0.985)
    np.clip(signal[0], -limit, limit, out=signal[0])
    assert only(conditions(signal)) == ("C3-A2", "clipped", UNUSUAL)


@pytest.mark.parametrize("gain", [50, 1 / 50])
def test_a_gain_of_50_is_not_trusted_and_its_unit_is_asked_for(gain):
    signal, _, _ = night()
    found = conditions(gain * signal)
    assert {each.kind for each in found} <= {"amplitude", "flat"}
    assert {each.verdict for each in found} == {NOT_TRUSTED}
    if gain > 1:
        assert all(each.sentence.endswith("is its unit right?") for each in found)


def test_white_noise_is_noise():
    signal, _, _ = night()
    signal[1] = 20 * np.random.default_rng(0).standard_normal(signal.shape[1])
    (found,) = conditions(signal)
    assert (found.channel, found.kind) == ("C4-A1", "noise")
    assert "C4-A1 is noise" in found.sentence


def test_pink_noise_is_as_steep_as_the_least_of_eeg():
    signal, _, _ = night()
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(signal.shape[1]))
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))))
    signal[1] = 15 * pink / pink.std()
    assert conditions(signal) == ()


@pytest.mark.parametrize("line_hz", [50, 60])
def test_hum_that_is_stronger_than_all_eeg_is_named_with_its_frequency(line_hz):
    signal, sfreq, _ = night()
    t = np.arange(signal.shape[1]) / sfreq
    signal[0] += 100 * np.sin(2 * np.pi * line_hz * t)
    (found,) = conditions(signal)
    assert (found.kind, found.verdict) == ("line", UNUSUAL)
    assert found.sentence == f"C3-A2 has more power at {line_hz} Hz than in all of its EEG."


def test_what_lasts_less_than_a_tenth_of_the_night_is_not_held_against_it():
    signal, _, _ = night()
    epochs(signal, 0.05)[:] = 0
    assert conditions(signal) == ()


def test_a_recording_without_a_whole_epoch_has_no_condition():
    signal, _, _ = night()
    assert conditions(signal[:, :100]) == ()


def test_names_that_do_not_fit_are_refused():
    signal, sfreq, _ = night()
    with pytest.raises(RecordingError, match=r"n\.edf: channels has 1 names"):
        channel_conditions(signal, sfreq, ["C3-A2"], source="n.edf")


def test_noise_that_rises_with_frequency_is_not_trusted():
    signal, _, _ = night()
    white = np.random.default_rng(0).standard_normal(signal.shape[1] + 1)
    rising = white[1:] - 0.7 * white[:-1]  # by 5 dB from delta to beta
    signal[1] = 40 * rising / rising.std()
    assert only(conditions(signal)) == ("C4-A1", "noise", NOT_TRUSTED)
