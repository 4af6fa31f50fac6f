"""A night is compared with those that its model learned from, and the verdict says why."""

import functools
import math

import edf_files
import numpy as np
import pytest
import scipy.signal
import torch
from cohort_folder import samples
from small_stagers import flat, recording, small_model, small_network

from psdnorm.constants import UNSCORED
from psdnorm.drift import measure_spread
from psdnorm.errors import ArgumentError, RecordingError, ShapeError
from psdnorm.io import Recording, open_source
from psdnorm.lab.simulate import simulate_night
from psdnorm.models import USleep
from psdnorm.prepare.recipe import RECIPES
from psdnorm.prepare.signals import preprocess
from psdnorm.staging import load_model, stage
from psdnorm.staging.derivations import (
    PreparedNight,
    electrode_conditions,
    plan_channels,
)
from psdnorm.staging.trust import (
    IN_RANGE,
    NOT_TRUSTED,
    UNUSUAL,
    ChannelCondition,
    Reason,
    channel_conditions,
    doubt_of_unit,
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
    assert "dB more power in sigma (12–16 Hz), relative to its other bands, than a" in reason
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


def test_a_dead_channel_is_reported_once_and_by_a_model_that_knows_no_nights_too():
    signals = night(1000)
    signals[:, 0] = 0
    said = ChannelCondition(
        "C3-A2", "flat", 1.0, NOT_TRUSTED, "C3-A2 is flat in 100 % of the epochs."
    )
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
    weak = ChannelCondition("C3-A2", "clipped", 0.2, UNUSUAL, "C3-A2 is clipped.")
    strong = ChannelCondition("C4-A1", "flat", 0.9, NOT_TRUSTED, "C4-A1 is flat.")
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
    strong = ChannelCondition("C4-A1", "flat", 0.9, NOT_TRUSTED, "C4-A1 is flat.")
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


def test_a_night_that_is_not_as_the_model_expects_it_raises():
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
    saturated = ChannelCondition("C3-A2", "saturated", 0.9, NOT_TRUSTED, "C3-A2 is saturated.")
    amplitude = ChannelCondition(
        "C4-A1", "amplitude", 1.0, NOT_TRUSTED, "C4-A1: is its unit right?"
    )
    unit = Reason(NOT_TRUSTED, "Its unit may be another.")
    found = night_report(
        trained(), [measured(3 * night(1000))], [saturated, amplitude], [unit]
    ).reasons
    assert found[:3] == (unit.sentence, amplitude.sentence, saturated.sentence)
    assert len(found) > 3


@functools.cache
def simulated():
    return simulate_night("ABC", subject=1, seed=3, hours=0.5)


def eeg():
    made = simulated()
    return made.signal.copy(), made.sfreq, made.channels


def conditions(signal):
    _, sfreq, channels = eeg()
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
    signal, _, _ = eeg()
    epochs(signal, share)[:] = 0
    (found,) = conditions(signal)
    assert (found.channel, found.kind, found.verdict) == ("C3-A2", "flat", verdict)
    assert found.share == pytest.approx(share)
    assert found.sentence == f"C3-A2 is flat in {100 * share:.0f} % of the epochs."


def test_a_channel_that_is_flat_all_night_is_only_flat():
    signal, _, _ = eeg()
    signal[0] = 7
    assert only(conditions(signal)) == ("C3-A2", "flat", NOT_TRUSTED)


def test_a_channel_that_is_never_finite_is_named_once():
    signal, _, _ = eeg()
    signal[1] = np.nan
    assert only(conditions(signal)) == ("C4-A1", "not finite", NOT_TRUSTED)


def test_a_saturated_channel_is_not_called_clipped_too():
    signal, _, _ = eeg()
    limit = np.quantile(np.abs(signal[0]), 0.6)
    np.clip(signal[0], -limit, limit, out=signal[0])
    assert only(conditions(signal)) == ("C3-A2", "saturated", NOT_TRUSTED)


def test_a_channel_of_which_peaks_are_cut_off_is_clipped():
    signal, _, _ = eeg()
    limit = np.quantile(np.abs(signal[0]), 0.985)
    np.clip(signal[0], -limit, limit, out=signal[0])
    assert only(conditions(signal)) == ("C3-A2", "clipped", UNUSUAL)


@pytest.mark.parametrize("gain", [50, 1 / 50])
def test_a_gain_of_50_is_not_trusted_and_its_unit_is_asked_for(gain):
    signal, _, _ = eeg()
    found = conditions(gain * signal)
    assert {each.kind for each in found} <= {"amplitude", "flat"}
    assert {each.verdict for each in found} == {NOT_TRUSTED}
    if gain > 1:
        assert all(each.sentence.endswith("is its unit right?") for each in found)


def test_white_noise_is_noise():
    signal, _, _ = eeg()
    signal[1] = 20 * np.random.default_rng(0).standard_normal(signal.shape[1])
    (found,) = conditions(signal)
    assert (found.channel, found.kind) == ("C4-A1", "noise")
    assert "C4-A1 is noise" in found.sentence


def test_pink_noise_is_as_steep_as_the_least_of_eeg():
    signal, _, _ = eeg()
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(signal.shape[1]))
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))))
    signal[1] = 15 * pink / pink.std()
    assert conditions(signal) == ()


@pytest.mark.parametrize("line_hz", [50, 60])
def test_hum_that_is_stronger_than_all_eeg_is_named_with_its_frequency(line_hz):
    signal, sfreq, _ = eeg()
    t = np.arange(signal.shape[1]) / sfreq
    signal[0] += 100 * np.sin(2 * np.pi * line_hz * t)
    (found,) = conditions(signal)
    assert (found.kind, found.verdict) == ("line", UNUSUAL)
    assert found.sentence == f"C3-A2 has more power at {line_hz} Hz than in its EEG."


def test_what_lasts_less_than_a_tenth_of_the_night_is_not_held_against_it():
    signal, _, _ = eeg()
    epochs(signal, 0.05)[:] = 0
    assert conditions(signal) == ()


def test_a_recording_without_a_whole_epoch_has_no_condition():
    signal, _, _ = eeg()
    assert conditions(signal[:, :100]) == ()


def test_names_that_do_not_fit_raise():
    signal, sfreq, _ = eeg()
    with pytest.raises(RecordingError, match=r"n\.edf: channels has 1 names"):
        channel_conditions(signal, sfreq, ["C3-A2"], source="n.edf")


def test_noise_that_rises_with_frequency_is_not_trusted():
    signal, _, _ = eeg()
    white = np.random.default_rng(0).standard_normal(signal.shape[1] + 1)
    rising = white[1:] - 0.7 * white[:-1]  # by 5 dB from delta to beta
    signal[1] = 40 * rising / rising.std()
    assert only(conditions(signal)) == ("C4-A1", "noise", NOT_TRUSTED)


def off_electrodes(recorded, wanted=None, unit=None, measured=None, n_epochs=4):
    source = open_source(recorded)
    planned, _ = plan_channels(source, wanted, RECIPES["robust"], unit)
    if measured is None:
        measured = {each.name: np.ones(n_epochs, bool) for each in planned}
    return electrode_conditions(source, planned, measured)


def half_flat(n_epochs=4):
    spoilt = samples(n_epochs)
    spoilt[: n_epochs // 2] = 0
    return spoilt


def test_where_all_electrodes_are_attached_nothing_is_reported(tmp_path):
    assert off_electrodes(recording(tmp_path / "night.edf")) == []


def test_an_electrode_that_is_off_makes_the_night_unusual_and_is_named(tmp_path):
    night = stage(recording(tmp_path / "night.edf", C3=flat()), load_model(small_model(tmp_path)))
    said = "The electrode C3 of C3-M2 is flat in 100 % of the epochs."
    assert said in night.shift.reasons


def test_epochs_are_counted_in_which_the_electrode_is_flat_and_the_derivation_is_not(tmp_path):
    path = recording(tmp_path / "night.edf", C3=half_flat())
    (found,) = off_electrodes(path)
    assert (found.channel, found.kind, found.share, found.verdict) == (
        *("C3-M2", "electrode", 0.5, UNUSUAL),
    )
    measured = {"C3-M2": np.array([False, True, True, True]), "C4-M1": np.ones(4, bool)}
    assert off_electrodes(path, measured=measured)[0].share == 0.25
    assert off_electrodes(path, measured={"C4-M1": np.ones(4, bool)}) == []


def test_a_few_flat_epochs_of_an_electrode_are_not_worth_a_word(tmp_path):
    spoilt = samples(20)
    spoilt[3] = 0
    path = recording(tmp_path / "night.edf", n_epochs=20, C3=spoilt)
    assert off_electrodes(path, n_epochs=20) == []


def test_a_flat_reference_may_be_what_all_others_were_recorded_against(tmp_path):
    assert off_electrodes(recording(tmp_path / "night.edf", M2=flat(), M1=flat())) == []


def test_a_channel_that_the_file_holds_itself_has_no_electrode_besides(tmp_path):
    assert off_electrodes(recording(tmp_path / "night.edf", C3=flat()), wanted=["C3"]) == []


@pytest.mark.parametrize(("unit", "n_flat"), [("uV", 0), ("nV", 2)])
def test_electrodes_are_examined_in_the_unit_that_was_given(tmp_path, unit, n_flat):
    assert len(off_electrodes(recording(tmp_path / "night.edf"), unit=unit)) == n_flat


def test_electrodes_of_what_mne_has_opened_are_examined_too(tmp_path):
    mne = pytest.importorskip("mne")
    path = recording(tmp_path / "night.edf", C4=flat())
    (found,) = off_electrodes(mne.io.read_raw_edf(path, verbose=False))
    assert found.channel == "C4-M1"


LABELS = ("F3-M2", "C3-M2", "C4-M1")
DOUBT = "its unit may be 1000 times larger than the file says"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """It knows nights such as the tests' own."""
    nights = []
    for seed in range(30):
        rows = np.stack([samples(4, seed=[5, seed, place]).ravel() for place in (0, 1)])
        signal_uv = (edf_files.GAIN_UV * rows).astype(np.float32)
        stages = np.full(4, UNSCORED, np.int8)
        night = Recording(signal_uv, ("C3-M2", "C4-M1"), 100.0, stages, None, "made up")
        nights.append(preprocess(night, RECIPES["robust"]).signals)
    spread = measure_spread(small_network(), nights)
    return load_model(small_model(tmp_path_factory.mktemp("model"), training_spread=spread))


def with_alpha(amplitude, seed=9):
    """Digital values of a channel with waves of 10 Hz besides."""
    rows = samples(4, seed=seed)
    return np.rint(rows + amplitude * np.sin(2 * np.pi * np.arange(3000) / 10)).astype(int)


def test_a_night_whose_pairs_are_all_in_range_is_in_range_and_all_of_them_vote(tmp_path, model):
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert (night.shift.verdict, night.shift.reasons, len(night.pairs)) == (IN_RANGE, (), 3)
    assert night.shift.channels == night.pairs[0]


def test_a_pair_that_is_not_the_first_decides_the_verdict_too(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"C4-M1": with_alpha(27)})
    night = stage(path, model)
    assert len(night.pairs) == 3
    assert night.shift.verdict == UNUSUAL
    assert any(each.startswith("C4-M1 has") for each in night.shift.reasons)
    assert not any(each.startswith(("F3-M2", "C3-M2")) for each in night.shift.reasons)
    assert "C4-M1" in night.shift.channels


def test_a_pair_that_is_not_to_be_trusted_does_not_vote_beside_one_that_is(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"F3-M2": with_alpha(900)})
    night = stage(path, model)
    assert night.pairs == (("C3-M2", "C4-M1"),)
    assert night.pair_probabilities.shape == (1, 4, 5)
    assert (night.shift.verdict, night.shift.reasons) == (IN_RANGE, ())
    (note,) = [each for each in night.notes if "not vote" in each]
    assert note.startswith("F3-M2 + C3-M2 and F3-M2 + C4-M1 do not vote: F3-M2 has ")
    assert "alpha" in note
    remark = "The verdict does not cover F3-M2, which did not vote: see the notes."
    assert night.shift.remarks[-1] == remark


def test_a_pair_whose_channels_vote_with_others_is_named_as_a_pair(tmp_path, model, monkeypatch):
    import psdnorm.staging.vote as trust

    def measure(network, signals, group, sfreq, original=trust.measure_pair):
        return original(network, signals * (9 if group == LABELS[:2] else 1), group, sfreq)

    monkeypatch.setattr(trust, "measure_pair", measure)
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert night.pairs == (("F3-M2", "C4-M1"), ("C3-M2", "C4-M1"))
    assert any(note.startswith("F3-M2 + C3-M2 does not vote: ") for note in night.notes)
    assert night.shift.remarks[-1].startswith("The verdict does not cover F3-M2 + C3-M2, which")


def test_epochs_in_which_a_channel_is_flat_are_no_spectrum_of_its_pair(tmp_path, model):
    spoilt = samples(4, seed=3)
    spoilt[:2] = 0
    path = recording(tmp_path / "night.edf", labels=LABELS[1:], **{"C4-M1": spoilt})
    assert stage(path, model).shift.reasons == ("C4-M1 is flat in 50 % of the epochs.",)


def test_a_pair_that_mostly_disagrees_makes_a_night_unusual_whose_spectra_are_in_range(
    tmp_path, model, monkeypatch
):
    import psdnorm.staging.stager as night_of

    votes = np.full((3, 4, 5), 0.1, np.float32)
    votes[:2, :, 2] = votes[2, :, 0] = 0.6
    monkeypatch.setattr(night_of, "predict_groups", lambda *arguments: votes)
    night = stage(recording(tmp_path / "night.edf", labels=LABELS), model)
    assert night.shift.verdict == UNUSUAL
    (reason,) = night.shift.reasons
    assert reason.startswith("C3-M2 and C4-M1 alone disagree with the vote in ")


def test_pairs_that_are_all_not_to_be_trusted_vote_and_the_night_is_not_either(tmp_path, model):
    spoilt = {label: with_alpha(900, seed) for seed, label in enumerate(LABELS[:2])}
    path = recording(tmp_path / "night.edf", labels=LABELS[:2], **spoilt)
    night = stage(path, model)
    assert (night.hypnogram >= 0).all()
    assert night.shift.verdict == NOT_TRUSTED
    assert not any("vote" in note for note in (*night.notes, *night.shift.remarks))


def scaled(path, unit, physical):
    """Two channels of which the header says this unit and this range."""
    channels = [
        edf_files.channel(label, samples(4, seed=seed), unit=unit, physical=physical)
        for seed, label in enumerate(("C3-M2", "C4-M1"))
    ]
    path.write_bytes(edf_files.edf(channels, record_s=30))
    return path


def test_microvolts_that_are_called_millivolts_are_the_first_reason(tmp_path, model):
    path = scaled(tmp_path / "night.edf", "mV", (-3276.8, 3276.7))
    night = stage(path, model)
    assert (night.hypnogram >= 0).all()
    assert night.shift.verdict == NOT_TRUSTED
    assert (
        "its unit may be 1000 times smaller than the file says; if so, give --unit."
        in (night.shift.reasons[0])
    )
    assert not any("--unit" in text for text in (*night.shift.reasons[1:], *night.notes))
    right = stage(path, model, unit="uV")
    assert (right.shift.verdict, right.shift.reasons) == (IN_RANGE, ())


def test_millivolts_that_are_called_microvolts_are_the_first_reason(tmp_path, model):
    path = scaled(tmp_path / "night.edf", "uV", (-3.2768, 3.2767))
    night = stage(path, model)
    assert night.shift.verdict == NOT_TRUSTED
    first, second, *_ = night.shift.reasons
    assert "its unit may be 1000 times larger than the file says; if so, give --unit." in first
    assert second == "No channel could be staged."
    assert stage(path, model, unit="mV").shift.verdict == IN_RANGE


def test_a_unit_that_was_given_and_does_not_fit_is_the_first_reason(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=("C3-M2",))
    assert "the unit mV was given." in stage(path, model, unit="mV").shift.reasons[0]


def size(channel, kind="amplitude", verdict=NOT_TRUSTED):
    return ChannelCondition(channel, kind, 1.0, verdict, f"{channel} is {kind}.")


@pytest.mark.parametrize(
    "conditions",
    [(), (size("C4"),), (size("C3", "noise"), size("C4")), (size("C3", verdict=UNUSUAL),)],
)
def test_a_doubt_of_the_unit_is_a_note_where_a_channel_votes_that_is_as_large_as_eeg(conditions):
    night = PreparedNight(unit_doubt=DOUBT, conditions=list(conditions))
    assert doubt_of_unit(night, (("C3", "C4"),)) == []
    assert night.notes == [DOUBT]


def test_without_a_doubt_of_the_unit_nothing_is_reported(tmp_path):
    night = PreparedNight(conditions=[size("C3", "flat")])
    assert doubt_of_unit(night, ()) == []
    assert night.notes == []


def test_a_flat_channel_is_no_doubt_of_the_unit_of_the_others(tmp_path, model):
    path = recording(tmp_path / "night.edf", labels=LABELS, **{"F3-M2": flat()})
    night = stage(path, model)
    assert (night.shift.verdict, night.shift.reasons) == (IN_RANGE, ())
