"""How far to trust a night: its channels, its distance from the training nights, its verdict."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from psdnorm import ops
from psdnorm.constants import BANDS_HZ, EPOCH_S, UNSCORED
from psdnorm.drift import (
    EEG_HZ,
    FEW,
    SEGMENT_S,
    NightSpectra,
    Spread,
    bin_weights,
    frequencies_hz,
    measure_night,
    measures,
    spread_of,
    swap_gap,
)
from psdnorm.errors import ArgumentError
from psdnorm.io import Recording, whole_epochs
from psdnorm.models import Pretrained
from psdnorm.prepare import EXTREME, MOST_BAD, RUN, Quality, examine, flat_epochs, share_in_words
from psdnorm.runtime import listed, plural

if TYPE_CHECKING:
    from psdnorm.io import Source
    from psdnorm.staging.derivations import PlannedChannel, PreparedNight

IN_RANGE, UNUSUAL, NOT_TRUSTED = "in range", "unusual", "do not trust"
VERDICTS = (IN_RANGE, UNUSUAL, NOT_TRUSTED)
# in limits; each is some 2.5 standard deviations from the middle of the training nights, so over 4
TRUSTED_EXCESS = 1.75
# a band with less of a channel's power than this, in dB, is weak: losing it loses little signal
WEAK_BAND_DB = -6.0
OF_INPUT, OF_LAYERS = ("input",), ("layers",)  # subjects of reasons


class Reason(NamedTuple):
    """Why a night is not in range."""

    verdict: str
    sentence: str
    # its subject: ("dead", channel), ("channel", channel), OF_INPUT or OF_LAYERS; of several
    # reasons with one subject, the worst is reported. Empty if it stands alone
    about: tuple[str, ...] = ()
    excess: float = 0.0  # how far out, in limits

    @property
    def weight(self) -> tuple[int, float]:
        """Reasons compare by verdict, then by excess."""
        return VERDICTS.index(self.verdict), self.excess


def dead(channel: str) -> Reason:
    """Return the reason for a channel without any power."""
    sentence = f"{channel} is flat or was not measured."
    return Reason(NOT_TRUSTED, sentence, ("dead", channel), math.inf)


def together(channels: Iterable[str]) -> str:
    """Name the channels of a group; one that is used twice is named once."""
    return listed(list(dict.fromkeys(channels)))


def worst_of(verdicts: Sequence[str]) -> str:
    """Return the worst verdict, "in range" if there is none."""
    return max(verdicts, key=VERDICTS.index, default=IN_RANGE)


def verdict_of(excess: float) -> str:
    """Return the verdict on a distance in limits."""
    if excess <= 1:
        return IN_RANGE
    return UNUSUAL if excess <= TRUSTED_EXCESS else NOT_TRUSTED


def most_telling(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the worst reason on each subject, the worst verdict first."""
    by_subject: dict[tuple[str, ...], list[Reason]] = {}
    for reason in reasons:
        by_subject.setdefault(reason.about or (reason.sentence,), []).append(reason)
    kept = []
    for about, same in by_subject.items():
        worst = max(same, key=lambda reason: reason.weight)
        n_others = len(same) - 1
        if about in (OF_INPUT, OF_LAYERS) and n_others:
            others = plural(n_others, "other pair is", "other pairs are")
            worst = worst._replace(sentence=f"{worst.sentence} {others} beyond the limit, too.")
        kept.append(worst)
    return sorted(kept, key=lambda reason: VERDICTS.index(reason.verdict), reverse=True)


def reasons_of(
    night: NightSpectra, found: Mapping[str, float], spread: Spread, channels: Sequence[str]
) -> list[Reason]:
    """Return why a night is out of the range of the training nights."""
    typical = {name: limits.typical for name, limits in spread.ranges.items()}
    excess = {
        name: limits.excess(found[name])
        for name, limits in spread.ranges.items()
        if math.isfinite(found.get(name, math.nan))
    }
    reasons: list[Reason] = []
    for place, channel in enumerate(channels):
        if night.sqrt_psd[place].sum() > 0:  # else it is dead, and no band stands out
            start = f"level/{place}/"
            levels = {
                n.removeprefix(start): (excess[n], found[n], typical[n])
                for n in excess
                if n.startswith(start)
            }
            reasons += _of_channel(channel, levels, excess.get(f"channel/{place}", 0.0))
    subjects = [("input", "The spectrum", OF_INPUT)]
    layers = [name for name in excess if name.startswith("layer/")]
    if layers:
        worst = max(layers, key=lambda name: excess[name])
        subjects.append((worst, f"What reaches {worst.removeprefix('layer/')}", OF_LAYERS))
    for name, what, about in subjects:
        verdict = verdict_of(excess.get(name, 0.0))
        if verdict != IN_RANGE:
            sentence = (
                f"{what} of {together(channels)} is {found[name] / typical[name]:.1f} times as far "
                "from the barycenter of the training nights as that of a typical training night."
            )
            reasons.append(Reason(verdict, sentence, about, excess[name]))
    return reasons + _of_swap(night, spread, channels)


def remarks_of(model: Pretrained, spread: Spread | None) -> tuple[str, ...]:
    """Return what weakens every verdict of a model."""
    remarks = []
    facts = (model.card or {}).get("training_data")
    if isinstance(facts, dict) and facts.get("simulated") is True:
        remarks.append("The model learned from simulated nights: the verdict compares with those.")
    if spread is not None and spread.n_nights < FEW:
        remarks.append(
            f"The model knows only {spread.n_nights} of its training nights: its limits are wide, "
            "and little is called unusual."
        )
    return tuple(remarks)


def _of_channel(
    channel: str, levels: Mapping[str, tuple[float, float, float]], distance: float
) -> list[Reason]:
    """Return why a channel is out of range: its power, or the band that stands out.

    ``levels`` are the excess, the level and the typical level, in dB, of its power and bands.
    """
    beyond, lost = [distance], list[float]()
    for name, (excess, level, typical) in levels.items():
        is_lost = name != "power" and level < typical < WEAK_BAND_DB
        (lost if is_lost else beyond).append(excess)
    # losing two weak bands is unusual at most; with a third, most of what separates stages is lost
    lost.sort()
    beyond += [*lost[:-2], *(min(each, TRUSTED_EXCESS) for each in lost[-2:])]
    verdict = verdict_of(max(beyond))
    if verdict == IN_RANGE:
        return []
    more_db = {name: level - typical for name, (_, level, typical) in levels.items()}
    what, db = "power", more_db.pop("power")
    if more_db and levels["power"][0] < max(excess for excess, _, _ in levels.values()):
        # these are shares of power: if one band has more, all others have less
        middle_db = statistics.median(more_db.values())
        band = max(more_db, key=lambda name: abs(more_db[name] - middle_db))
        db = more_db[band] - middle_db
        low_hz, high_hz = BANDS_HZ[band]
        what = f"power in {band} ({low_hz:g}–{high_hz:g} Hz), relative to its other bands,"
    more = f"{abs(db):.0f} dB {'more' if db > 0 else 'less'}"
    sentence = f"{channel} has {more} {what} than a typical training night."
    return [Reason(verdict, sentence, ("channel", channel), max(beyond))]


def _of_swap(night: NightSpectra, spread: Spread, channels: Sequence[str]) -> list[Reason]:
    # swapping flips the sign of the gap; one below that of 99 % of the training nights says nothing
    if spread.least_gap <= 0 or len(channels) != 2 or channels[0] == channels[1]:
        return []
    gap = swap_gap(night.sqrt_psd, spread.sqrt_barycenter, night.size)
    if not gap <= -spread.least_gap:  # NaN, if a channel was not measured
        return []
    names = together(channels)
    sentence = f"{names} look swapped: each has the spectrum of the other one in training nights."
    return [Reason(UNUSUAL, sentence)]


UNUSUAL_SHARE = 0.1  # of the epochs are bad in the same way
# median over the night of the RMS from 0.5 to 30 Hz: sleep EEG has some 5 to 50 µV. The largest
# possible is 50 times the least usual, so that no night passes with a gain 50 times too large
USUAL_UV = (3.0, 100.0)
POSSIBLE_UV = (1.0, 50 * USUAL_UV[0])
# mean density of beta over that of delta: 0 dB is white noise, -11 dB is 1/f, and EEG is steeper
USUAL_SLOPE_DB = -6.0
POSSIBLE_SLOPE_DB = 0.0
_LINES_HZ = (50.0, 60.0)
_LINE_WIDTH_HZ = 1.0
_MOST_EPOCHS = 240  # whose spectra are taken, evenly spaced


@dataclass(frozen=True)
class ChannelCondition:
    """What is wrong with a channel, in what share of the epochs, and the verdict on the night.

    Kinds are not finite, flat, saturated, clipped, amplitude, noise, line and electrode; verdicts
    are "unusual" and "do not trust".
    """

    channel: str
    kind: str
    share: float
    verdict: str
    sentence: str


def channel_conditions(
    signal_uv: NDArray[np.floating],
    sfreq: float,
    names: Sequence[str],
    source: str = "the recording",
) -> tuple[ChannelCondition, ...]:
    """Look for flat, saturated, clipped, noisy and implausibly large channels.

    ``signal_uv`` is (C, T) in µV, neither filtered nor scaled, ``names`` has C, and errors name
    ``source``. The result is empty if nothing is wrong.
    """
    signal = np.ascontiguousarray(signal_uv, dtype=np.float32)
    n_epochs = whole_epochs(signal.shape[-1] / sfreq) if sfreq > 0 else 0
    stages = np.full(n_epochs, UNSCORED, np.int8)
    recording = Recording(signal, tuple(names), sfreq, stages, None, source)
    return tuple(conditions_of(recording, examine(recording))) if n_epochs else ()


def conditions_of(recording: Recording, quality: Quality) -> list[ChannelCondition]:
    """Return the conditions of a recording that was already examined."""
    sfreq, n_epochs = recording.sfreq, len(recording.stages)
    found: list[ChannelCondition] = []
    for channel, (name, row) in enumerate(zip(recording.channels, recording.signal, strict=True)):
        found += _of_epochs(name, quality, channel)
        usable = np.flatnonzero(quality.measured[:, channel])
        if not len(usable):
            continue
        if not any(each.channel == name and each.kind == "saturated" for each in found):
            found += _of_clipping(name, row, sfreq, n_epochs)
        found += _of_spectrum(name, *_densities(row, sfreq, usable))
    return found


def electrode_conditions(
    source: "Source", planned: Sequence["PlannedChannel"], measured: Mapping[str, NDArray[np.bool_]]
) -> list[ChannelCondition]:
    """Find electrodes that are flat where the derivation from them is not."""
    found = []
    for each in planned:
        for electrode in each.electrodes if each.name in measured else ():
            read = source.read({electrode: electrode})
            signal_uv = read.signal[0] * np.float32(each.factor)
            share = float(np.mean(flat_epochs(signal_uv, read.sfreq, measured[each.name])))
            if share >= UNUSUAL_SHARE:
                of_epochs = f"{share_in_words(share)} of the epochs"
                sentence = f"The electrode {electrode} of {each.name} is flat in {of_epochs}."
                # no worse: it may be the reference electrode of the recording
                found.append(ChannelCondition(each.name, "electrode", share, UNUSUAL, sentence))
    return found


def _of_epochs(name: str, quality: Quality, channel: int) -> list[ChannelCondition]:
    found = []
    for kind in ("not finite", "flat", "saturated"):
        share = float(getattr(quality, kind.replace(" ", "_"))[:, channel].mean())
        if share >= UNUSUAL_SHARE:
            verdict = NOT_TRUSTED if share > MOST_BAD else UNUSUAL
            sentence = f"{name} is {kind} in {share_in_words(share)} of the epochs."
            found.append(ChannelCondition(name, kind, share, verdict, sentence))
    return found


def _of_clipping(
    name: str, row: NDArray[np.float32], sfreq: float, n_epochs: int
) -> list[ChannelCondition]:
    """Find epochs with cut-off peaks that are too few to be saturated."""
    finite = row[np.isfinite(row)]
    low, high = finite.min(), finite.max()
    near = EXTREME * (high - low)
    is_extreme = (row <= low + near) | (row >= high - near)
    edges = np.flatnonzero(np.diff(is_extreme, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    epochs = starts[ends - starts >= RUN] // (EPOCH_S * sfreq)
    share = len(np.unique(epochs[epochs < n_epochs])) / n_epochs
    if share < UNUSUAL_SHARE:
        return []
    sentence = f"{name} is clipped at its extremes in {share_in_words(share)} of the epochs."
    return [ChannelCondition(name, "clipped", share, UNUSUAL, sentence)]


def _densities(
    row: NDArray[np.float32], sfreq: float, usable: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return frequencies, (F,), and the power of each bin in up to 240 usable epochs, (n, F)."""
    some = usable[np.linspace(0, len(usable) - 1, min(len(usable), _MOST_EPOCHS)).astype(int)]
    length = int(EPOCH_S * sfreq)
    starts = np.minimum(np.rint(some * EPOCH_S * sfreq).astype(int), len(row) - length)
    epochs = torch.from_numpy(row[starts[:, None] + np.arange(length)])
    size = min(round(SEGMENT_S * sfreq), length)
    psd = ops.welch_psd(ops.center(epochs), size, "hann").double().numpy()
    return frequencies_hz(size, sfreq), psd * bin_weights(size)


def _of_spectrum(
    name: str, hz: NDArray[np.float64], power: NDArray[np.float64]
) -> list[ChannelCondition]:
    def total(low_hz: float, high_hz: float) -> NDArray[np.float64]:
        return power[:, (low_hz <= hz) & (hz < high_hz)].sum(axis=1)

    eeg, found = total(*EEG_HZ), []
    amplitude = float(np.sqrt(np.median(eeg)))
    verdict = _outside(amplitude, USUAL_UV, POSSIBLE_UV)
    if verdict:
        low, high = USUAL_UV
        sentence = (
            f"{name} has an amplitude of {amplitude:.3g} µV, expected {low:g} to {high:g} µV for "
            "sleep EEG: is its unit right?"
        )
        found.append(ChannelCondition(name, "amplitude", 1.0, verdict, sentence))
    delta, beta = (total(*BANDS_HZ[b]) / np.diff(BANDS_HZ[b]) for b in ("delta", "beta"))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_db = float(np.nanmedian(10 * np.log10(beta / delta)))
    verdict = _outside(slope_db, (-np.inf, USUAL_SLOPE_DB), (-np.inf, POSSIBLE_SLOPE_DB))
    if verdict:
        sentence = (
            f"{name} is noise: its beta density is {slope_db:.0f} dB above its delta density; EEG "
            f"stays below {USUAL_SLOPE_DB:.0f} dB."
        )
        found.append(ChannelCondition(name, "noise", 1.0, verdict, sentence))
    for line_hz in _LINES_HZ:
        if line_hz + _LINE_WIDTH_HZ > hz[-1]:
            continue  # aliased or removed
        line = total(line_hz - _LINE_WIDTH_HZ, line_hz + _LINE_WIDTH_HZ)
        share = float(np.mean(line > eeg))
        if share > MOST_BAD:
            sentence = f"{name} has more power at {line_hz:g} Hz than in its EEG."
            found.append(ChannelCondition(name, "line", share, UNUSUAL, sentence))
    return found


def _outside(value: float, usual: tuple[float, float], possible: tuple[float, float]) -> str | None:
    if not possible[0] <= value <= possible[1]:
        return NOT_TRUSTED
    return None if usual[0] <= value <= usual[1] else UNUSUAL


@dataclass(frozen=True)
class Distance:
    """How far a night's PSDs are from a barycenter, compared with the training nights.

    ``where`` is "input", or the name of a PSDNorm layer in the model, and ``value`` the
    Bures–Wasserstein distance in the unit of the prepared signal (of the layer's input).
    ``typical`` is the median of the training nights; 99 % of them are below ``limit``, in this and
    all other measures at once, and a share of ``rank`` is nearer.
    """

    where: str
    value: float
    typical: float
    limit: float
    rank: float


@dataclass(frozen=True, eq=False)
class ShiftReport:
    """Whether to trust a night's hypnogram.

    Attributes
    ----------
    verdict : {"in range", "unusual", "do not trust"}
    reasons : tuple of str
        One sentence each; empty where the night is in range.
    distances : tuple of Distance
        Of the input (unless a channel was not measured), then of each PSDNorm layer; empty if the
        model does not know its training nights.
    channels : tuple of str
        C names of the pair that the distances and spectra describe: of the pairs that voted, the
        one farthest out of range, or the first if all are in range.
    frequencies_hz : ndarray, (F,)
    night_psd, training_psd : ndarray, (C, F)
        One-sided densities, in squared units of the recipe per Hz, of the prepared night and of
        the barycenter of the training nights (NaN where that is unknown).
    filter_db : ndarray, (C, F)
        Response of the Monge filter that maps the first onto the second; NaN where there is none.
    remarks : tuple of str
        What weakens the verdict.
    """

    verdict: str
    reasons: tuple[str, ...]
    distances: tuple[Distance, ...]
    channels: tuple[str, ...]
    frequencies_hz: NDArray[np.float64]
    night_psd: NDArray[np.float64]
    training_psd: NDArray[np.float64]
    filter_db: NDArray[np.float64]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PairShift:
    """How far a group of channels, fed to a model together, is from its training nights."""

    channels: tuple[str, ...]
    spectra: NightSpectra
    distances: tuple[Distance, ...]
    reasons: tuple[Reason, ...]

    @property
    def name(self) -> str:
        """Its channels, in words."""
        return " + ".join(self.channels)

    @property
    def verdict(self) -> str:
        """The verdict from their spectra alone."""
        return worst_of([reason.verdict for reason in self.reasons])

    @property
    def worst(self) -> Reason | None:
        """The weightiest reason; None where they are in range."""
        return max(self.reasons, key=lambda reason: reason.weight, default=None)


def shift_report(
    model: Pretrained,
    signals: NDArray[np.floating],
    channels: Sequence[str],
    sfreq: float,
    conditions: Sequence[ChannelCondition] = (),
) -> ShiftReport:
    """Compare a night with a model's training nights; raise if it does not fit the model.

    Parameters
    ----------
    model : Pretrained
        With the spread of its training nights in its card; without it the verdict is "unusual" at
        best.
    signals : ndarray, (E, C, T)
        The night, prepared by the model's recipe. Epochs that are not finite are left out.
    channels : sequence of str
        C names.
    conditions : sequence of ChannelCondition
        From :func:`channel_conditions`.
    """
    return night_report(model, [measure_pair(model, signals, channels, sfreq)], conditions)


def measure_pair(
    model: Pretrained, signals: NDArray[np.floating], channels: Sequence[str], sfreq: float
) -> PairShift:
    """Compare the spectra of one pair of channels with the training nights of a model."""
    rate = model.config["sfreq"]
    if sfreq != rate:
        raise ArgumentError(f"sfreq is {sfreq:g} Hz, expected the model's {rate:g} Hz")
    if len(channels) != model.config["n_chans"]:
        raise ArgumentError(
            f"channels has {len(channels)} names, expected the model's {model.config['n_chans']}"
        )
    spread = spread_of(model)
    night = measure_night(model, signals)
    alive = night.sqrt_psd.sum(axis=1) > 0  # NaN is not
    reasons = [dead(channel) for channel, lives in zip(channels, alive, strict=True) if not lives]
    if spread is None:
        why = "The model does not know its training nights: the distance from them is unknown."
        return PairShift(tuple(channels), night, (), (*reasons, Reason(UNUSUAL, why)))
    found = measures(night, spread.sqrt_barycenter)
    reasons += reasons_of(night, found, spread, channels)
    return PairShift(tuple(channels), night, _distances(found, spread), tuple(reasons))


def night_report(
    model: Pretrained,
    pairs: Sequence[PairShift],
    conditions: Sequence[ChannelCondition] = (),
    others: Sequence[Reason] = (),
) -> ShiftReport:
    """Return the verdict on a night: no better than the worst pair that votes."""
    known = {dead(each.channel) for each in conditions if each.verdict == NOT_TRUSTED}
    # a wrong unit comes first, as it explains the rest
    ordered = sorted(conditions, key=lambda each: each.kind != "amplitude")
    of_conditions = [Reason(each.verdict, each.sentence) for each in ordered]
    of_pairs = [reason for pair in pairs for reason in pair.reasons if reason not in known]
    reasons = most_telling([*others, *of_conditions, *of_pairs])
    shown = max(pairs, key=lambda pair: pair.worst.weight if pair.worst else (0, 0.0))
    night, spread = shown.spectra, spread_of(model)
    target = np.full_like(night.sqrt_psd, np.nan) if spread is None else spread.sqrt_barycenter
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = target / night.sqrt_psd
        filter_db = 20 * np.log10(np.where(ratio > 0, ratio, np.nan))
    return ShiftReport(
        verdict=worst_of([reason.verdict for reason in reasons]),
        reasons=tuple(reason.sentence for reason in reasons),
        distances=shown.distances,
        channels=shown.channels,
        frequencies_hz=night.frequencies_hz,
        night_psd=_density(night.sqrt_psd, night),
        training_psd=_density(target, night),
        filter_db=np.where(np.isfinite(filter_db), filter_db, np.nan),
        remarks=remarks_of(model, spread),
    )


def _distances(found: Mapping[str, float], spread: Spread) -> tuple[Distance, ...]:
    distances = []
    for name, value in found.items():
        limits = spread.ranges.get(name) if name.startswith(("input", "layer/")) else None
        if limits is not None and math.isfinite(value):
            where, rank = name.removeprefix("layer/"), limits.rank(value)
            distances.append(Distance(where, value, limits.typical, limits.high, rank))
    return tuple(distances)


def _density(sqrt_psd: NDArray[np.float64], night: NightSpectra) -> NDArray[np.float64]:
    """Return a one-sided density, (C, F): its sum times the width of a bin is the variance."""
    return sqrt_psd**2 * bin_weights(night.size) * night.size / night.sfreq


def doubt_of_unit(night: "PreparedNight", groups: Sequence[tuple[str, ...]]) -> list[Reason]:
    """Return the doubt about the unit as a reason if no voter has the amplitude of EEG."""
    bad = [each for each in night.conditions if each.verdict == NOT_TRUSTED]
    wrong = {each.channel for each in bad if each.kind in ("amplitude", "flat")}
    if night.unit_doubt and wrong.issuperset(name for group in groups for name in group):
        return [Reason(NOT_TRUSTED, f"{night.unit_doubt}.")]
    # the doubt comes from other channels or from a drift
    night.notes += filter(None, [night.unit_doubt])
    return []


def report_of_votes(
    model: Pretrained,
    night: "PreparedNight",
    voters: Sequence[PairShift],
    excluded: Sequence[PairShift],
    doubts: Sequence[Reason] = (),
) -> ShiftReport:
    """Return the verdict of the pairs that voted; a remark names those that did not."""
    if not voters:
        return _nothing_staged(night, doubts)
    voted = {name for pair in voters for name in pair.channels}
    concerned = [each for each in night.conditions if each.channel in voted]
    report = night_report(model, voters, concerned, doubts)
    silent = [name for name in (*night.prepared, *night.unusable) if name not in voted]
    silent += [pair.name for pair in excluded if voted.issuperset(pair.channels)]
    if not silent:
        return report
    remark = f"The verdict does not cover {listed(silent)}, which did not vote: see the notes."
    return dataclasses.replace(report, remarks=(*report.remarks, remark))


def _nothing_staged(night: "PreparedNight", doubts: Sequence[Reason]) -> ShiftReport:
    names = tuple(night.unusable)
    nothing = np.empty((len(names), 0))
    reasons = dict.fromkeys(
        [each.sentence for each in night.conditions if each.verdict == NOT_TRUSTED]
        or [f"{name} cannot be used: {why}" for name, why in night.unusable.items()]
    )
    said = (*(doubt.sentence for doubt in doubts), "No channel could be staged.", *reasons)
    return ShiftReport(NOT_TRUSTED, said, (), names, np.empty(0), nothing, nothing, nothing)
