"""What is wrong with a signal is named; what is mostly wrong is refused."""

import dataclasses
import re

import numpy as np
import pytest
from cohort_folder import samples

from psdnorm.errors import RecordingError
from psdnorm.io import Recording
from psdnorm.prepare.quality import examine, share_in_words
from psdnorm.prepare.recipe import RECIPES, Recipe
from psdnorm.prepare.signals import preprocess

RECIPE = Recipe("plain")


def night(n_epochs=10, sfreq=100.0):
    signal = 0.1 * np.stack([samples(n_epochs, int(sfreq), [7, c]).ravel() for c in (0, 1)])
    stages = np.full(n_epochs, 2, np.int8)
    return Recording(signal.astype(np.float32), ("C3-A2", "C4-A1"), sfreq, stages, None, "n.edf")


def spoil(recording, channel, epochs, how):
    """Change some epochs of a channel, (samples,) → (samples,)."""
    for epoch in epochs:
        samples = recording.signal[channel, epoch * 3000 : (epoch + 1) * 3000]
        samples[:] = how(samples)


def some_nan(samples):
    return np.where(np.arange(3000) == 17, np.nan, samples)


def railed(samples):
    return np.clip(100 * samples, -300, 300)


def test_a_good_night_has_no_flag():
    recording = night()
    assert not examine(recording).bad.any()
    assert preprocess(recording, RECIPE).flags == ()


def test_samples_that_are_not_finite_are_zeroed_and_their_epochs_unscored():
    recording = night()
    expected = preprocess(night(), RECIPE).signals
    spoil(recording, 0, [3, 7], some_nan)
    found = preprocess(recording, RECIPE)
    assert found.flags == ("C3-A2 not finite 20 %",)
    assert found.stages.tolist() == [2, 2, 2, -1, 2, 2, 2, -1, 2, 2]
    assert np.isfinite(found.signals).all()
    np.testing.assert_array_equal(found.signals[:, 1], expected[:, 1])
    np.testing.assert_array_equal(found.signals[0], expected[0])


def test_a_rest_that_is_not_finite_leaves_the_last_epoch_whole():
    recording = night()
    rest = np.full((2, 500), np.nan, np.float32)
    longer = dataclasses.replace(recording, signal=np.hstack([recording.signal, rest]))
    found = preprocess(longer, RECIPE)
    assert np.isfinite(found.signals).all()
    assert found.stages.tolist() == [2] * 10


def test_one_sample_that_is_not_finite_in_a_long_night_is_still_named():
    recording = night(300)
    recording.signal[1, 100 * 3000] = np.inf
    assert preprocess(recording, RECIPE).flags == ("C4-A1 not finite 0.3 %",)


@pytest.mark.parametrize(("deviation_uv", "flat"), [(0, True), (0.45, True), (0.55, False)])
def test_an_epoch_is_flat_below_half_a_microvolt(deviation_uv, flat):
    recording = night()
    noise = np.random.default_rng(0).standard_normal(3000)
    spoil(recording, 1, [4], lambda _: 30 + deviation_uv * noise / noise.std())
    quality = examine(recording)
    assert quality.flat[4, 1] == flat
    assert quality.bad.sum() == flat
    assert preprocess(recording, RECIPE).flags == (("C4-A1 flat 10 %",) if flat else ())


@pytest.mark.parametrize(("n_samples", "saturated"), [(149, False), (150, True)])
def test_an_epoch_is_saturated_from_5_percent_at_the_extremes(n_samples, saturated):
    recording = night()
    high, low = recording.signal[0].max() + 1, recording.signal[0].min() - 1
    rails = np.where(np.arange(n_samples) // 5 % 2, high, low)
    spoil(recording, 0, [2], lambda samples: np.concatenate([rails, samples[n_samples:]]))
    quality = examine(recording)
    assert quality.saturated[2, 0] == saturated
    assert quality.bad.sum() == saturated
    flags = preprocess(recording, RECIPE).flags
    assert flags == (("C3-A2 saturated 10 %",) if saturated else ())


def tone(hz, sfreq, phase=0.0):
    wave = 50 * np.cos(2 * np.pi * hz * np.arange(int(150 * sfreq)) / sfreq + phase)
    stages = np.full(5, 2, np.int8)
    return Recording(np.float32([wave]), ("C3-A2",), sfreq, stages, None, "n.edf")


@pytest.mark.parametrize("sfreq", [100.0, 125.0, 128.0, 200.0, 256.0])
@pytest.mark.parametrize("hz", [0.1, 1.0, 5.0, 10.0, 12.5, 20.0, 25.0])
def test_a_pure_tone_is_not_saturated_wherever_its_samples_fall(hz, sfreq):
    # on the peak, and on either side of it
    for phase in (0, 0.3, np.pi / 2, np.pi * hz / sfreq):
        assert not examine(tone(hz, sfreq, phase)).bad.any()


@pytest.mark.parametrize("hz", [1.0, 5.0])
def test_a_tone_whose_peaks_are_cut_off_is_saturated(hz):
    recording = tone(hz, 100.0)
    recording.signal.clip(-40, 40, out=recording.signal)
    assert examine(recording).saturated.all()


@pytest.mark.parametrize(("length", "saturated"), [(2, False), (3, True)])
def test_saturation_is_three_samples_in_a_row_at_one_extreme(length, saturated):
    recording = night()
    high = recording.signal[0].max() + 1
    spoil(
        *(recording, 0, [2]),
        lambda samples: np.where(np.arange(3000) % 10 < length, high, samples),
    )
    assert examine(recording).saturated[2, 0] == saturated


@pytest.mark.parametrize(("deviation_uv", "large"), [(990, False), (1010, True)])
def test_an_epoch_is_too_large_above_a_millivolt_and_stays_as_it_is(deviation_uv, large):
    recording = night()
    wave = np.random.default_rng(0).standard_normal(3000)
    spoil(recording, 1, [4], lambda _: deviation_uv * wave / wave.std())
    quality = examine(recording)
    assert quality.large[4, 1] == large
    assert quality.large.sum() == large
    assert not quality.bad.any()
    found = preprocess(recording, RECIPE)
    assert found.flags == (("C4-A1 above 1 mV 10 %",) if large else ())
    assert found.stages[4] == 2


@pytest.mark.parametrize("recipe", ["robust", "as-released"])
def test_a_night_in_a_unit_too_large_is_flagged_where_scaling_undoes_it(recipe):
    recording = night()
    recording.signal[0] *= 1000
    flags = preprocess(recording, RECIPES[recipe]).flags
    assert flags == ("C3-A2 above 1 mV (is its unit right?) 100 %",)


@pytest.mark.parametrize(("n_epochs", "flagged"), [(101, False), (100, True)])
def test_a_flag_is_raised_from_1_percent_on(n_epochs, flagged):
    recording = night(n_epochs)
    spoil(recording, 0, [50], np.zeros_like)
    assert preprocess(recording, RECIPE).flags == (("C3-A2 flat 1 %",) if flagged else ())


@pytest.mark.parametrize(
    ("kind", "how"), [("not finite", some_nan), ("flat", np.zeros_like), ("saturated", railed)]
)
def test_a_channel_that_is_bad_for_more_than_half_is_refused(kind, how):
    recording = night()
    spoil(recording, 1, range(5), how)
    assert preprocess(recording, RECIPE).flags == (f"C4-A1 {kind} 50 %",)
    spoil(recording, 1, [5], how)
    message = f"n.edf: C4-A1 is {kind} in 60 % of the epochs, expected at most 50 %"
    with pytest.raises(RecordingError, match=f"^{re.escape(message)}"):
        preprocess(recording, RECIPE)


def test_faults_of_several_kinds_add_up():
    recording = night()
    spoil(recording, 0, range(3), some_nan)
    spoil(recording, 0, range(3, 6), np.zeros_like)
    with pytest.raises(RecordingError, match=r"C3-A2 is not finite in 30 %, flat in 30 % of the"):
        preprocess(recording, RECIPE)


def test_a_channel_without_one_finite_sample_is_refused():
    recording = night()
    recording.signal[0] = np.nan
    with pytest.raises(RecordingError, match="C3-A2 is not finite in 100 %"):
        preprocess(recording, RECIPE)


def test_a_wrong_unit_is_suspected_where_all_is_flat():
    recording = night()
    recording.signal[0] /= 1000
    with pytest.raises(RecordingError, match=r"C3-A2 is flat in 100 %.*is its unit right"):
        preprocess(recording, RECIPE)


def test_epochs_are_found_at_rates_that_are_no_whole_numbers():
    recording = night(6, 200)
    odd = 199.9
    length = int(5 * 30 * odd) + 1
    recording = Recording(
        recording.signal[:, :length], recording.channels, odd, recording.stages[:5], None, "n.edf"
    )
    recording.signal[0, round(2 * 30 * odd) : round(3 * 30 * odd)] = 4
    assert examine(recording).bad[:, 0].tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "100 %"), (0.124, "12 %"), (0.01, "1 %"), (0.003, "0.3 %")]
)
def test_a_share_is_said_in_percent(share, words):
    assert share_in_words(share) == words
