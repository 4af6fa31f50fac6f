"""Staged nights that the tests of pages and pictures share: simulated, staged by a dice."""

import functools
import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import scipy.signal

from psdnorm.lab.simulate import simulate_night
from psdnorm.staging import agreement, sleep_statistics
from psdnorm.staging.stager import Spectrogram, StagedNight
from psdnorm.staging.trust import IN_RANGE, NOT_TRUSTED, UNUSUAL, Distance, ShiftReport

START = datetime(2021, 3, 4, 22, 41, 10)
NOTICE = "For research and demonstration, not for diagnosis."
SFREQ = 100.0
LAYERS = ("encoder.0.norm", "encoder.1.norm", "encoder.2.norm")
REASONS = (
    "The input is 7.4 times as far from the training nights as 99 % of them are.",
    "C4-A1 is flat in 83 % of the night.",
)


@functools.cache
def simulated(hours):
    """Stages, signal and channels of a night that nobody slept."""
    night = simulate_night("ABC", subject=3, seed=1, hours=hours)
    step = round(night.sfreq / SFREQ * 1000)
    signal = scipy.signal.resample_poly(night.signal, 1000, step, axis=1)
    return night.stages, signal, night.channels


@functools.cache
def spectrogram(hours):
    stages, signal, channels = simulated(hours)
    epochs = signal[0][: len(stages) * 3000].reshape(len(stages), 3000)
    frequencies, power = scipy.signal.welch(epochs, SFREQ, nperseg=400)
    shown = frequencies <= 30
    return Spectrogram(
        channels[0], frequencies[shown], (10 * np.log10(power[:, shown])).astype(np.float32)
    )


@functools.cache
def psds(hours):
    frequencies, psd = scipy.signal.welch(simulated(hours)[1] / 10, SFREQ, nperseg=100)
    return frequencies[frequencies <= 30], psd[:, frequencies <= 30]


def votes(stages, n_pairs=3, certainty=2.0, seed=0):
    """What pairs gave, (P, E, 5): mostly the stage, sometimes another one; NaN where unscored."""
    rng = np.random.default_rng(seed)
    shared = certainty * np.eye(5)[stages] + rng.gumbel(size=(len(stages), 5)) / 2
    own = shared + rng.normal(size=(n_pairs, len(stages), 5)) / 2
    odds = np.exp(2 * own)
    probabilities = odds / odds.sum(axis=2, keepdims=True)
    probabilities[:, np.asarray(stages) < 0] = np.nan
    return probabilities.astype(np.float32)


def shift_report(verdict=IN_RANGE, reasons=(), *, hours=2.0, known=True, factor=1.0):
    """A report of PSDs as a simulated night has them."""
    channels = simulated(hours)[2]
    frequencies, night = psds(hours)
    night = factor * night
    training = np.array([2.0, 1.6])[:, None] / (1 + (frequencies / 3) ** 2)
    distances = tuple(
        Distance(where, value=0.8 * factor * (1 + place), typical=0.7 + place, limit=1.5 + place,
                 rank=min(1.0, 0.62 * factor))
        for place, where in enumerate(("input", *LAYERS))
    )  # fmt: skip
    if not known:
        training, distances = np.full_like(night, np.nan), ()
    return ShiftReport(
        verdict=verdict,
        reasons=tuple(reasons),
        distances=distances,
        channels=channels,
        frequencies_hz=frequencies,
        night_psd=night,
        training_psd=training,
        filter_db=10 * np.log10(training / night),
    )


def staged(hours=2.0, n_pairs=3, **others):
    """A night in range, with some of its fields otherwise."""
    stages, _, channels = simulated(hours)
    return with_stages(stages, spectrogram(hours), channels, n_pairs, hours, **others)


def with_stages(stages, spectra, channels, n_pairs, hours, **others):
    pair_probabilities = votes(stages, n_pairs)
    probabilities = pair_probabilities.mean(axis=0)
    hypnogram = np.where(
        np.isnan(probabilities).any(axis=1), -1, np.nan_to_num(probabilities).argmax(axis=1)
    ).astype(np.int8)
    pairs = tuple((f"{channels[0]}", f"E{number}-A1") for number in range(n_pairs))
    night = StagedNight(
        source="night.edf",
        start=START,
        hypnogram=hypnogram,
        probabilities=probabilities,
        pairs=pairs,
        pair_probabilities=pair_probabilities,
        statistics=sleep_statistics(hypnogram),
        shift=shift_report(hours=hours),
        spectrogram=spectra,
        model={"name": "robust-sim", "architecture": "USleep", "sha256": "0123456789abcdef" * 4},
        notes=("C3-A2 was sampled at 256 Hz and is staged at 100 Hz.",),
        notice=NOTICE,
    )
    return replace(night, **others)


def not_trusted(hours=2.0):
    return staged(hours, shift=shift_report(NOT_TRUSTED, REASONS, hours=hours, factor=30.0))


def one_epoch():
    stages, _, channels = simulated(2.0)
    spectra = replace(spectrogram(2.0), power_db=spectrogram(2.0).power_db[:1])
    return with_stages(stages[:1], spectra, channels, 1, 2.0)


def two_days():
    """48 h: nights of 8 h on end, with two hours in which no channel could be staged."""
    stages, _, channels = simulated(8.0)
    tiled = np.tile(stages, 6)
    tiled[2000:2240] = -1
    spectra = replace(spectrogram(8.0), power_db=np.tile(spectrogram(8.0).power_db, (6, 1)))
    return with_stages(tiled, spectra, channels, 2, 8.0)


def never_staged():
    stages, _, channels = simulated(2.0)
    spectra = replace(spectrogram(2.0), power_db=np.full_like(spectrogram(2.0).power_db, np.nan))
    night = with_stages(np.full_like(stages, -1), spectra, channels, 1, 2.0)
    return replace(night, shift=shift_report(NOT_TRUSTED, ["No channel could be staged."]))


def without_clock():
    return staged(start=None, notice=None)


def fed_twice():
    night = staged(n_pairs=1)
    channel = night.pairs[0][0]
    notes = (f"{channel} alone was found: the model was shown it twice.",)
    return replace(night, pairs=((channel, channel),), notes=notes)


def unknown_training():
    reason = "The model does not know its training nights."
    return staged(shift=shift_report(UNUSUAL, [reason], known=False))


def without_votes():
    """No channel was fit to be shown to the model."""
    night = never_staged()
    empty = np.empty((0, 31))
    shift = replace(
        night.shift,
        channels=(),
        night_psd=empty,
        training_psd=empty,
        filter_db=empty,
        distances=(Distance("input", math.nan, 0.7, 1.5, 1.0),),
    )
    votes = np.empty((0, len(night.hypnogram), 5), np.float32)
    return replace(night, pairs=(), pair_probabilities=votes, shift=shift)


def compared(night):
    """What a scorer would have said, as far as a dice knows."""
    rng = np.random.default_rng(1)
    scored = night.hypnogram.copy()
    other = rng.random(len(scored)) < 0.15
    scored[other] = rng.integers(0, 5, other.sum())
    return agreement(scored, night.hypnogram, night.probabilities)


NIGHTS = {
    "in-range": staged,
    "not-trusted": not_trusted,
    "one-epoch": one_epoch,
    "never-staged": never_staged,
    "without-clock": without_clock,
    "fed-twice": fed_twice,
    "ten-pairs": functools.partial(staged, n_pairs=10),
    "unknown-training": unknown_training,
    "without-votes": without_votes,
}
