"""A night is held against those that its model learned from, and the verdict says why."""

import functools
import math

import numpy as np
import pytest
import scipy.signal
import torch

from psdnorm.drift import measure_spread
from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.models import USleep
from psdnorm.staging.shift import (
    IN_RANGE,
    NOT_TRUSTED,
    UNUSUAL,
    Condition,
    Reason,
    measure_pair,
    night_report,
    shift_report,
    verdict_of,
)

SFREQ, N_TIMES = 64.0, 640
CHANNELS = ("C3-A2", "C4-A1")


def night(seed, n_epochs=20, *, second=0.8):
    """Coloured noise with a gain of its own; the second channel is less slow than the first."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((2, n_epochs * N_TIMES))
    poles = (0.95, second)
    rows = [scipy.signal.lfilter([1], [1, -p], row) for p, row in zip(poles, noise, strict=True)]
    rows = [row / row.std() * np.exp(0.05 * rng.standard_normal()) for row in rows]
    return np.stack(rows).reshape(2, n_epochs, N_TIMES).swapaxes(0, 1).astype(np.float32)


@functools.cache
def trained(n_nights=60, second=0.8, norm="psd"):
    torch.manual_seed(0)
    model = USleep(n_times=N_TIMES, sfreq=SFREQ, depth=4, n_time_filters=3, norm=norm)
    nights = [night(n, second=second) for n in range(n_nights)]
    for signals in nights[:10]:
        model(torch.from_numpy(signals)[None])
    model.eval().card = {"training_spread": measure_spread(model, nights)}
    return model


def without_a_spread():
    return USleep(n_times=N_TIMES, sfreq=SFREQ, depth=4, n_time_filters=3, norm="psd").eval()


def report(signals, model=None, conditions=()):
    return shift_report(model or trained(), signals, CHANNELS, SFREQ, conditions)


def filtered(signals, b, a=1.0):
    rows = signals.swapaxes(0, 1).reshape(2, -1)
    made = scipy.signal.lfilter(np.atleast_1d(b), np.atleast_1d(a), rows)
    return made.reshape(2, -1, N_TIMES).swapaxes(0, 1).astype(np.float32)


def test_a_night_like_those_of_the_training_is_in_range_without_a_reason():
    found = report(night(1000))
    assert (found.verdict, found.reasons, found.remarks) == (IN_RANGE, (), ())


def test_distances_are_of_the_input_and_of_each_layer_with_a_rank_among_training_nights():
    found = report(night(1000)).distances
    assert found[0].where == "input"
    assert [each.where.split(".")[1] for each in found[1:]] == ["0", "1", "2"]
    for each in found:
        assert 0 < each.typical < each.limit
        assert 0 <= each.rank <= 1
        assert each.value <= each.limit
    far = report(3 * night(1000)).distances[:2]  # the first layer takes the gain away
    assert all(each.rank == 1 for each in far)
    assert all(each.value > each.limit for each in far)


def test_rank_is_the_share_of_training_nights_that_are_nearer():
    ranks = [report(night(n)).distances[1].rank for n in range(60)]
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.02)


def test_psds_are_one_sided_densities_and_the_filter_maps_one_onto_the_other():
    found = report(2 * night(1000))
    width_hz = found.frequencies_hz[1]
    np.testing.assert_allclose(found.night_psd.sum(axis=1) * width_hz, 4, rtol=0.15)
    ratio_db = 10 * np.log10(found.training_psd / found.night_psd)
    np.testing.assert_allclose(found.filter_db, ratio_db, rtol=1e-6)
    assert np.median(found.filter_db) == pytest.approx(-6, abs=1)
    assert found.channels == CHANNELS


def test_the_reason_names_the_channel_and_the_band_that_are_off_most():
    signals = night(1000)
    t = np.arange(signals.size // 2) / SFREQ
    signals[:, 1] += 3 * np.sin(2 * np.pi * 14 * t).reshape(-1, N_TIMES)
    found = report(signals)
    assert found.verdict == NOT_TRUSTED
    (reason,) = [each for each in found.reasons if each.startswith("C4-A1")]
    assert "dB more power in sigma (12–16 Hz), beside its other bands, than a typical" in reason
    assert not any(each.startswith("C3-A2") for each in found.reasons)


def test_the_stronger_the_shift_the_worse_the_verdict():
    verdicts = [report(gain * night(1000)).verdict for gain in (1.0, 1.15, 2.0)]
    assert verdicts == [IN_RANGE, UNUSUAL, NOT_TRUSTED]


def test_a_spectrum_that_rises_is_not_trusted():
    assert report(filtered(night(1000), [1, -1.9, 0.9])).verdict == NOT_TRUSTED


def lowpassed(signals, highest_hz):
    sections = scipy.signal.butter(4, highest_hz, fs=SFREQ, output="sos")
    rows = signals.swapaxes(0, 1).reshape(2, -1)
    left = scipy.signal.sosfiltfilt(sections, rows).reshape(2, -1, N_TIMES).swapaxes(0, 1)
    return left.astype(np.float32)


def test_a_weak_band_that_is_lost_makes_a_night_unusual_and_three_of_them_untrusted():
    assert report(lowpassed(night(1000), 4)).verdict == NOT_TRUSTED
    found = report(lowpassed(night(1000), 20))
    assert found.verdict == UNUSUAL
    for channel in CHANNELS:
        (reason,) = [each for each in found.reasons if each.startswith(channel)]
        assert "less power in beta (16–30 Hz)" in reason


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_channel_that_is_flat_or_not_measured_is_not_trusted_and_named(value):
    signals = night(1000)
    signals[:, 0] = value
    found = report(signals)
    assert found.verdict == NOT_TRUSTED
    assert found.reasons[0] == "C3-A2 is flat or was not measured."
    assert np.isnan(found.filter_db[0]).all()
    assert np.isfinite(found.filter_db[1]).all()
    assert all(math.isfinite(each.value) for each in found.distances)


def test_a_dead_channel_is_said_once_and_by_a_model_that_knows_no_nights_too():
    signals = night(1000)
    signals[:, 0] = 0
    said = Condition("C3-A2", "flat", 1.0, NOT_TRUSTED, "C3-A2 is flat in 100 % of the epochs.")
    found = report(signals, conditions=[said])
    assert [each for each in found.reasons if each.startswith("C3-A2")] == [said.sentence]
    assert report(signals, without_a_spread()).verdict == NOT_TRUSTED


def test_a_channel_that_is_fed_twice_is_named_once():
    signals = 3 * night(1000)[:, [0, 0]]
    found = shift_report(trained(second=0.95), signals, ("C3-A2", "C3-A2"), SFREQ)
    assert sum(each.startswith("C3-A2") for each in found.reasons) == 1
    assert any(each.startswith("The spectrum of C3-A2 is") for each in found.reasons)


def test_swapped_channels_are_named_where_the_training_nights_tell_them_apart():
    swapped = "C3-A2 and C4-A1 look swapped"
    assert any(each.startswith(swapped) for each in report(night(1000)[:, ::-1].copy()).reasons)
    alike = trained(second=0.95)
    found = report(night(1000, second=0.95)[:, ::-1].copy(), alike)
    assert not any("swapped" in each for each in found.reasons)


def test_conditions_of_channels_count_and_the_worst_reason_comes_first():
    weak = Condition("C3-A2", "clipped", 0.2, UNUSUAL, "C3-A2 is clipped.")
    strong = Condition("C4-A1", "flat", 0.9, NOT_TRUSTED, "C4-A1 is flat.")
    assert report(night(1000), conditions=[weak]).verdict == UNUSUAL
    found = report(night(1000), conditions=[weak, strong])
    assert found.verdict == NOT_TRUSTED
    assert found.reasons == ("C4-A1 is flat.", "C3-A2 is clipped.")


def test_a_model_that_does_not_know_its_training_nights_calls_every_night_unusual():
    model = without_a_spread()
    found = report(night(1000), model)
    assert (found.verdict, found.distances) == (UNUSUAL, ())
    assert "does not know its training nights" in found.reasons[0]
    assert np.isnan(found.training_psd).all()
    assert np.isnan(found.filter_db).all()
    assert np.isfinite(found.night_psd).all()
    strong = Condition("C4-A1", "flat", 0.9, NOT_TRUSTED, "C4-A1 is flat.")
    assert report(night(1000), model, [strong]).verdict == NOT_TRUSTED


def test_a_model_without_psdnorm_is_held_against_its_input_alone():
    found = report(night(1000), trained(norm="batch"))
    assert (found.verdict, [each.where for each in found.distances]) == (IN_RANGE, ["input"])


def test_a_model_that_knows_few_nights_says_so():
    found = report(night(1000), trained(n_nights=8))
    assert found.remarks[0].startswith("The model knows only 8 of its training nights")


def test_a_model_that_learned_from_simulated_nights_says_so():
    model = trained()
    card = model.card | {"training_data": {"simulated": True}}
    model.card, before = card, model.card
    try:
        found = report(night(1000), model)
    finally:
        model.card = before
    assert found.remarks == (
        "The model learned from simulated nights: the verdict compares with those.",
    )


def test_a_single_epoch_gets_a_report():
    found = report(night(1000, n_epochs=1))
    assert all(math.isfinite(each.value) for each in found.distances)


def test_a_night_that_is_not_as_the_model_expects_it_is_refused():
    with pytest.raises(ArgumentError, match="sfreq is 100 Hz, expected the model's 64 Hz"):
        shift_report(trained(), night(0), CHANNELS, 100.0)
    with pytest.raises(ArgumentError, match="channels has 1 names, expected the model's 2"):
        shift_report(trained(), night(0), CHANNELS[:1], SFREQ)
    with pytest.raises(ShapeError, match="signals have shape"):
        report(night(0)[:, :1])


@pytest.mark.parametrize(
    ("excess", "verdict"),
    [(0.0, IN_RANGE), (1.0, IN_RANGE), (1.01, UNUSUAL), (1.75, UNUSUAL), (1.76, NOT_TRUSTED)],
)
def test_beyond_a_limit_is_unusual_and_far_beyond_it_not_to_be_trusted(excess, verdict):
    assert verdict_of(excess) == verdict


def test_channels_that_are_hardly_apart_are_not_called_swapped():
    alike = [night(1000 + n, second=pole)[:, 1] for n, pole in enumerate((0.87, 0.89))]
    found = report(np.stack(alike, axis=1))
    assert not any("swapped" in each for each in found.reasons)


def measured(signals, channels=CHANNELS):
    return measure_pair(trained(), signals, channels, SFREQ)


def test_a_night_is_no_better_than_the_worst_of_its_pairs_which_is_shown():
    fine, louder, loudest = (
        measured(gain * night(seed), (f"F{seed}", f"C{seed}"))
        for seed, gain in enumerate((1.0, 1.2, 2.0), 1000)
    )
    pairs = [fine, louder, loudest, fine]
    assert [each.verdict for each in pairs] == [IN_RANGE, UNUSUAL, NOT_TRUSTED, IN_RANGE]
    found = night_report(trained(), pairs)
    assert (found.verdict, found.channels) == (NOT_TRUSTED, loudest.channels)
    assert found.distances == loudest.distances
    assert night_report(trained(), [fine, louder]).verdict == UNUSUAL


def test_of_pairs_that_are_all_in_range_the_first_is_shown():
    pairs = [measured(night(seed), (f"F{seed}", f"C{seed}")) for seed in (1000, 1001)]
    found = night_report(trained(), pairs)
    assert (found.verdict, found.reasons, found.channels) == (IN_RANGE, (), ("F1000", "C1000"))


def test_every_reason_of_a_spectrum_names_its_channels():
    found = measured(filtered(2 * night(1000), [1, -1.9, 0.9])).reasons
    assert len(found) >= 3
    assert all("C3-A2" in each.sentence or "C4-A1" in each.sentence for each in found)


def test_of_distances_of_several_pairs_the_worst_is_told_and_the_others_are_counted():
    pairs = [
        measured(gain * night(1000), (f"F{gain:g}", f"C{gain:g}")) for gain in (1.5, 3.0, 2.0, 1.0)
    ]
    reasons = night_report(trained(), pairs).reasons
    for start in ("The spectrum of", "What reaches"):
        (distance,) = [each for each in reasons if each.startswith(start)]
        assert " of F3 and C3 is " in distance
        assert distance.endswith("2 other pairs are beyond the limit, too.")
    assert "other pair" not in "".join(night_report(trained(), pairs[1:2]).reasons)


def test_a_channel_that_is_out_of_range_in_several_pairs_is_told_of_once():
    pairs = [measured(3 * night(1000), ("C3-A2", name)) for name in ("C4-A1", "O2-A1")]
    starts = [each.split()[0] for each in night_report(trained(), pairs).reasons]
    assert [starts.count(name) for name in ("C3-A2", "C4-A1", "O2-A1")] == [1, 1, 1]


def test_what_may_be_the_unit_is_told_before_what_it_may_have_caused():
    saturated = Condition("C3-A2", "saturated", 0.9, NOT_TRUSTED, "C3-A2 is saturated.")
    amplitude = Condition("C4-A1", "amplitude", 1.0, NOT_TRUSTED, "C4-A1: is its unit right?")
    unit = Reason(NOT_TRUSTED, "Its unit may be another.")
    found = night_report(
        trained(), [measured(3 * night(1000))], [saturated, amplitude], [unit]
    ).reasons
    assert found[:3] == (unit.sentence, amplitude.sentence, saturated.sentence)
    assert len(found) > 3
