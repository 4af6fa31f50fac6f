"""Which EEG derivations a recording offers, and their signals as the model expects them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import ArgumentError, MissingExtraError, RecordingError
from psdnorm.io import (
    MICROVOLTS,
    Recording,
    Source,
    Wanted,
    candidates,
    fold,
    microvolts,
    one_rate,
    resolve,
)
from psdnorm.prepare import (
    NARROWEST_HZ,
    Quality,
    Recipe,
    between_gaps,
    electrodes_of,
    examine,
    in_time,
    preprocess,
)
from psdnorm.runtime import listed, plural
from psdnorm.staging.trust import ChannelCondition, conditions_of, electrode_conditions

MOST_DERIVATIONS = 6
MOST_GROUPS = 10
# front to back, the order in which a model is shown derivations
_REGIONS = ("fp", "af", "f", "fc", "c", "ft", "t", "cp", "tp", "p", "po", "o", "i")
_SITE = rf"(?:{'|'.join(sorted(_REGIONS, key=len, reverse=True))})(?:z|10|[1-9])"
_EAR = r"[am][12]"
_COMMON = r"(?:ref\w*|vref|cle|ler|le|avg|av|car|ar|aa|a1\+?a2|m1\+?m2|\([^()]*\))"
_EEG = r"(?:eeg[-_:.]?)?"
_BETWEEN = r"[-_:/.]?"
_DERIVATION = re.compile(
    rf"{_EEG}(?P<site>{_SITE})(?:{_BETWEEN}(?:(?P<against>{_SITE}|{_EAR})|{_COMMON}))?"
)
_EAR_ALONE = re.compile(rf"{_EEG}(?P<ear>{_EAR})(?:{_BETWEEN}{_COMMON})?")
# SHHS and home recorders name no site
_NOWHERE = re.compile(r"eeg[-_:.]?(?:\(?(?:sec|\d{1,3}|l|r|left|right)\)?)?")
# by the AASM: preferred if there are more than enough
_RECOMMENDED = ("f3", "f4", "c3", "c4", "o1", "o2")


def find_montage(labels: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Find at most six EEG derivations among the labels of channels; return them and notes.

    A channel that names two sites (``EEG Fpz-Cz``, ``C3-M2``, ``C4:M1``) is used as recorded. One
    with a common reference is re-referenced to the contralateral mastoid or ear if that was
    recorded, else used as recorded, with a note. A channel that is just called EEG is used only if
    no label names a site. There is one derivation per site, front to back and left to right: its
    name and the expression by which ``psdnorm.io`` reads it.

    >>> find_montage(["EEG Fpz-Cz", "EOG horizontal", "C4", "M1"])
    ({'Fpz-Cz': 'EEG Fpz-Cz', 'C4-M1': 'C4-M1'}, [])
    """

    def too_many(n: int) -> list[str]:
        note = f"{MOST_DERIVATIONS} of {n} EEG derivations are used"
        return [note] if n > MOST_DERIVATIONS else []

    notes = []
    folded = [fold(label) for label in labels]
    twice = {text for text in folded if folded.count(text) > 1}
    pairs = zip(folded, labels, strict=True)
    known = [(text, label.strip()) for text, label in pairs if text not in twice]
    if any(_DERIVATION.fullmatch(text) or _NOWHERE.fullmatch(text) for text in twice):
        notes.append(
            "several channels have the same label, and none of them is used: "
            + ", ".join(sorted(text.upper() for text in twice))
        )
    ears = {
        match["ear"][1]: label for text, label in known if (match := _EAR_ALONE.fullmatch(text))
    }
    by_site: dict[str, tuple[int, str, str]] = {}
    for text, label in known:
        if match := _DERIVATION.fullmatch(text):
            derived = _derived(match, label, ears)
            if derived[0] > by_site.get(match["site"], (-1,))[0]:
                by_site[match["site"]] = derived
    if not by_site:
        unnamed = [label for text, label in known if _NOWHERE.fullmatch(text)]
        return {label: label for label in unnamed[:MOST_DERIVATIONS]}, notes + too_many(
            len(unnamed)
        )
    ordered = sorted(by_site, key=_place)
    chosen = sorted(ordered, key=lambda site: site not in _RECOMMENDED)[:MOST_DERIVATIONS]
    kept = sorted(chosen, key=_place)
    as_recorded = [by_site[site][1] for site in kept if by_site[site][0] == 0]
    if as_recorded:
        notes.append(
            f"{', '.join(as_recorded)} taken against the reference of the recording, as it has "
            "no mastoid or ear channel"
        )
    derivations = {name: expression for _, name, expression in map(by_site.__getitem__, kept)}
    return derivations, notes + too_many(len(by_site))


def groups_of(names: Sequence[str], n_channels: int) -> tuple[tuple[tuple[str, ...], ...], str]:
    """Return all groups of channels that a model can be shown, at most ten, and a note.

    >>> groups_of(["F3", "C3", "O1"], 2)
    ((('F3', 'C3'), ('F3', 'O1'), ('C3', 'O1')), '')
    >>> groups_of(["Cz"], 2)
    ((('Cz', 'Cz'),), 'Cz is used twice because the model takes 2 channels')
    """
    if len(names) < n_channels:
        group = tuple(names[place % len(names)] for place in range(n_channels))
        times = {name: group.count(name) for name in group}
        often = {n: "twice" if n == 2 else f"{n} times" for n in times.values()}
        used = listed([f"{name} is used {often[n]}" for name, n in times.items() if n > 1])
        return (group,), f"{used} because the model takes {n_channels} channels"
    places = sorted(combinations(range(len(names)), n_channels), key=lambda p: (sum(p), p))
    groups = tuple(tuple(names[place] for place in group) for group in places[:MOST_GROUPS])
    if len(places) <= MOST_GROUPS:
        return groups, ""
    return groups, f"at most {MOST_GROUPS} of {len(places)} groups of channels vote"


def _derived(match: re.Match[str], label: str, ears: dict[str, str]) -> tuple[int, str, str]:
    """Return the rank of a derivation among those of the same site, its name and expression."""
    site, against = match["site"], match["against"]
    if against is not None:
        rank = 3 if against in (f"a{_other_side(site)}", f"m{_other_side(site)}") else 2
        return rank, f"{_spelt(site)}-{_spelt(against)}", label
    if not ears:
        return 0, _spelt(site), label
    if site.endswith("z") and len(ears) == 2:
        return 1, f"{_spelt(site)}-M1M2", f"{label}-({ears['1']}+{ears['2']})/2"
    ear = ears.get(_other_side(site)) or ears[min(ears)]
    ear_name = _spelt(_EAR_ALONE.fullmatch(fold(ear))["ear"])  # type: ignore[index]
    return 1, f"{_spelt(site)}-{ear_name}", f"{label}-{ear}"


def _place(site: str) -> tuple[int, int]:
    region = site.rstrip("z0123456789")
    number = site[len(region) :]
    return _REGIONS.index(region), 0 if number == "z" else int(number)


def _other_side(site: str) -> str:
    """Return the number of the contralateral ear; for the midline, that of the right ear."""
    return "1" if site[-1] in "02468" else "2"


def _spelt(place: str) -> str:
    """Return the usual spelling: Fpz, AF3, C3, M2."""
    if place.startswith("fp"):
        return f"Fp{place[2:]}"
    return f"{place[:-1].upper()}z" if place.endswith("z") else place.upper()


# generous limits on the standard deviation of 30 s of sleep EEG, in µV
_LEAST_UV, _MOST_UV = 2.0, 300.0
# no amplifier is this quiet, and none reaches this far: between these, a signal may be flat or too
# large for reasons other than its unit
_SURELY_BELOW_UV, _SURELY_ABOVE_UV = 1e-3, 1e6


def factor_of(unit: str) -> float:
    """Return a unit in µV."""
    spelt = unit.replace("µ", "u").replace("μ", "u")
    if spelt not in MICROVOLTS:
        raise ArgumentError(f"unit is {unit!r}, expected one of {', '.join(MICROVOLTS)}")
    return MICROVOLTS[spelt]


def spread_uv(row: NDArray[np.float32], sfreq: float) -> float:
    """Return the median standard deviation of 30 s of a channel, (T,), without flat pieces."""
    length = min(len(row), max(1, round(EPOCH_S * sfreq)))
    pieces = row[: len(row) // length * length].reshape(-1, length)
    # a hundred pieces are enough for a median
    chosen = pieces[:: max(1, len(pieces) // 100)]
    spreads = chosen.std(axis=1, dtype=np.float64)
    spreads = spreads[np.isfinite(spreads) & (spreads > 0)]
    return float(np.median(spreads)) if len(spreads) else float("nan")


def doubt_unit(spreads_uv: list[float], given: str | None, source: str) -> str:
    """Say so if a signal looks like EEG only in another unit, else return "".

    Raises RecordingError if only a wrong unit can explain the signal and none was ``given``.
    """
    known = [spread for spread in spreads_uv if np.isfinite(spread)]
    if not known:
        return ""
    found_uv = float(np.median(known))
    factors = [f for f in (1e3, 1e6, 1e-3, 1e-6) if _LEAST_UV <= f * found_uv <= _MOST_UV]
    if _LEAST_UV <= found_uv <= _MOST_UV or not factors:
        return ""
    factor = min(factors, key=lambda each: abs(np.log10(each)))
    times = "1000" if abs(round(np.log10(factor))) == 3 else "1000000"
    words = (
        f"its EEG has a standard deviation of {float(f'{found_uv:.2g}'):g} µV, expected "
        f"{_LEAST_UV:g} to {_MOST_UV:g} µV for sleep EEG: its unit may be {times} times "
        f"{'larger' if factor > 1 else 'smaller'} than the file says"
    )
    if given is not None:
        return f"{words}; the unit {given} was given"
    if _SURELY_BELOW_UV < found_uv < _SURELY_ABOVE_UV:
        return f"{words}; if so, give --unit"
    raise RecordingError(f"{source}: {words}; give the unit ({', '.join(MICROVOLTS)}) by --unit")


class PlannedChannel(NamedTuple):
    """A channel that will be read."""

    name: str
    expression: str
    sfreq: float
    factor: float  # from what the file calls µV to µV, if the user gave another unit
    electrodes: tuple[str, ...]  # labels of the electrodes that are referenced to others


def plan_channels(
    source: Source, wanted: Wanted | None, recipe: Recipe, unit: str | None
) -> tuple[list[PlannedChannel], list[str]]:
    """Return the channels to read, at least one, and notes; by default all known derivations."""
    found, notes = find_montage(source.header.labels)
    planned, left_out = [], list[RecordingError]()
    if wanted is not None:
        # what outputs call Fp1 may have the label EEG Fp1-LER
        called = {fold(name): expression for name, expression in found.items()}
        for name, given in candidates(wanted).items():
            options = (*given, *(called[fold(each)] for each in given if fold(each) in called))
            planned.append(_planned(source, name, options, recipe, unit))
        return planned, []
    for name, expression in found.items():
        try:
            planned.append(_planned(source, name, (expression,), recipe, unit))
        except RecordingError as error:  # others may be usable
            left_out.append(error)
            notes.append(f"{name} is left out: {error}")
    if left_out and not planned:
        raise left_out[0]
    if not source.header.labels:
        raise RecordingError(f"{source.called} has no channel, as a scoring has none: expected EEG")
    if not planned:
        labels = ", ".join(label.strip() for label in source.header.labels)
        why = f": {notes[-1]}" if notes else ""
        raise RecordingError(
            f"{source.called} has no EEG channel with a known name, found {labels}; name the "
            f"channels to use by --channels, as in 'C3-M2,C4-M1'{why}"
        )
    return planned, notes


def _planned(
    source: Source, name: str, options: Sequence[str], recipe: Recipe, unit: str | None
) -> PlannedChannel:
    header = source.header
    expression, weights = resolve(options, header.labels, source.called)
    used = [header.channels[index] for index in weights]
    sfreq = one_rate({each.label: each.sfreq for each in used}, source.called)
    least_hz = 2 * (recipe.lowpass_hz + NARROWEST_HZ)
    if sfreq < least_hz:
        raise RecordingError(
            f"{source.called} has {expression!r} at {sfreq:g} Hz, expected at least {least_hz:g} Hz"
        )
    declared = {microvolts(each, source.called) for each in used}
    if unit is not None and len(declared) > 1:
        raise RecordingError(
            f"{source.called} has the channels of {expression!r} in several units, and the unit "
            f"{unit} was given for all"
        )
    factor = 1.0 if unit is None else factor_of(unit) / declared.pop()
    electrodes = electrodes_of(weights, header.labels)
    return PlannedChannel(name, expression, sfreq, factor, electrodes)


_SEGMENT_S = 4
_HIGHEST_HZ = 30.0
_LEAST_POWER = 1e-4  # µV²/Hz, in place of the power of a flat signal
# samples read at a time: six channels at 256 Hz are read together for 8 h, one by one for 48 h
_AT_ONCE = 2**26
_LEAST_REST_S = 0.01  # less is rounding


@dataclass(frozen=True, eq=False)
class Spectrogram:
    """The power of one channel over the night, in dB of µV²/Hz.

    Power is averaged over each 30 s epoch, (E, F); NaN in epochs that are not finite.
    """

    channel: str
    frequencies_hz: NDArray[np.float64]
    power_db: NDArray[np.float32]


def spectrogram_of(
    row: NDArray[np.float32], sfreq: float, n_epochs: int, channel: str
) -> Spectrogram:
    """Welch's PSD of each epoch of a channel, (T,), in Hann windows of 4 s, up to 30 Hz."""
    try:
        from scipy.signal import welch
    except ImportError as error:
        raise MissingExtraError('staging needs SciPy: pip install "psdnorm[recordings]"') from error
    length = min(round(_SEGMENT_S * sfreq), int(EPOCH_S * sfreq))
    frequencies_hz = np.fft.rfftfreq(length, 1 / sfreq).astype(np.float64)
    shown = frequencies_hz <= _HIGHEST_HZ
    power_db = np.full((n_epochs, int(shown.sum())), np.nan, np.float32)
    edges = np.rint(np.arange(n_epochs + 1) * EPOCH_S * sfreq).astype(int)
    for epoch in range(n_epochs):
        samples = row[edges[epoch] : edges[epoch + 1]]
        if np.isfinite(samples).all():
            power = welch(samples, sfreq, "hann", length, detrend="constant")[1][shown]
            power_db[epoch] = 10 * np.log10(np.maximum(power, _LEAST_POWER))
    return Spectrogram(channel, frequencies_hz[shown], power_db)


@dataclass(eq=False)
class PreparedNight:
    """A night as a model sees it, channel by channel."""

    n_epochs: int = 0
    # the usable channels as prepare would store them, each (E, T) in the dtype of the recipe
    prepared: dict[str, NDArray[np.float16 | np.float32]] = field(default_factory=dict)
    # which of their epochs are finite, not flat, and not in a gap, each (E,)
    measured: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # channel → why
    conditions: list[ChannelCondition] = field(default_factory=list)
    spectrogram: Spectrogram | None = None  # of the first usable channel, else of the first
    start: datetime | None = None
    notes: list[str] = field(default_factory=list)
    unit_doubt: str = ""  # why its unit may be wrong


def prepare_night(
    source: Source, planned: Sequence[PlannedChannel], recipe: Recipe, unit: str | None = None
) -> PreparedNight:
    """Read, examine and prepare channels as in training; a bad one does not affect the others."""
    night = PreparedNight()
    spreads_uv: list[float] = []
    ends: list[float] = []
    lengths: list[int] = []
    for recording, some in _read(source, planned, night):
        duration_s = recording.signal.shape[1] / recording.sfreq
        if not len(recording.stages):
            raise RecordingError(
                f"{recording.source} lasts {duration_s:g} s, expected at least {EPOCH_S} s"
            )
        for row, each in zip(recording.signal, some, strict=True):
            if each.factor != 1:
                row *= np.float32(each.factor)
        night.start = recording.start
        gaps_s, n_paused = recording.gaps_s, int(recording.in_gap.sum())
        if gaps_s and not ends:
            gone_s = sum(end_s - begin_s for begin_s, end_s in gaps_s)
            night.notes.append(
                f"the recording pauses {plural(len(gaps_s), 'time')}, for {gone_s:g} s in all: "
                f"{plural(n_paused, 'epoch')} not staged"
            )
        ends.append(duration_s)
        lengths.append(len(recording.stages))
        spreads_uv += [spread_uv(row, recording.sfreq) for row in recording.signal]
        doubt_unit(spreads_uv, unit, source.called)  # raises before anything takes long
        between = between_gaps(recording)
        quality = examine(between)
        night.conditions += conditions_of(between, quality)
        _prepare_each(recording, between, quality, recipe, night)
    if not ends:
        raise RecordingError(next(iter(night.unusable.values())))
    night.n_epochs = min(lengths)
    last = slice(night.n_epochs)  # all channels have these; below, in planned order
    usable = [each.name for each in planned if each.name in night.prepared]
    night.prepared = {name: night.prepared[name][last] for name in usable}
    night.measured = {name: night.measured[name][last] for name in usable}
    if night.spectrogram is not None:
        power_db = night.spectrogram.power_db[last]
        night.spectrogram = replace(night.spectrogram, power_db=power_db)
    night.unit_doubt = doubt_unit(spreads_uv, unit, source.called)
    night.conditions += electrode_conditions(source, planned, night.measured)
    rest_s = min(ends) - EPOCH_S * night.n_epochs
    if rest_s >= _LEAST_REST_S:
        night.notes.append(f"the last {rest_s:.3g} s are less than an epoch and not staged")
    if len({each.sfreq for each in planned}) > 1:
        rates = ", ".join(f"{each.name} at {each.sfreq:g} Hz" for each in planned)
        night.notes.append(f"channels were recorded at several rates and resampled: {rates}")
    return night


def _read(
    source: Source, planned: Sequence[PlannedChannel], night: PreparedNight
) -> Iterator[tuple[Recording, list[PlannedChannel]]]:
    """Read channels together where possible; those that cannot be read are noted one by one."""
    waiting = list(_batches(source, planned))
    while waiting:
        some = waiting.pop(0)
        try:
            read = source.read({each.name: each.expression for each in some})
        except RecordingError as error:
            if len(some) == 1:
                night.unusable[some[0].name] = str(error)
            else:
                waiting[:0] = [[each] for each in some]
        else:
            yield read, some


def _batches(source: Source, planned: Sequence[PlannedChannel]) -> Iterator[list[PlannedChannel]]:
    """Yield channels of one rate that fit into memory together."""
    for sfreq in dict.fromkeys(each.sfreq for each in planned):
        alike = [each for each in planned if each.sfreq == sfreq]
        step = max(1, int(_AT_ONCE // max(1.0, sfreq * source.header.duration_s)))
        for first in range(0, len(alike), step):
            yield alike[first : first + step]


def _prepare_each(
    recording: Recording, between: Recording, quality: Quality, recipe: Recipe, night: PreparedNight
) -> None:
    """Prepare channels one by one from the signal ``between`` gaps, then put the gaps back."""
    alone, in_gap = replace(recipe, n_channels=1), recording.in_gap
    for index, name in enumerate(recording.channels):
        one = replace(between, signal=between.signal[index : index + 1], channels=(name,))
        is_first = night.spectrogram is None
        try:
            prepared = preprocess(one, alone, quality=quality.at(np.s_[:, [index]]))
            with np.errstate(over="ignore"):
                # rounded as in a store, since networks were trained on that
                stored = prepared.signals[:, 0].astype(recipe.dtype)
            if not np.isfinite(stored).all():
                raise RecordingError(f"{name} has samples that are not finite in {recipe.dtype}")
        except RecordingError as error:
            night.unusable[name] = str(error).removeprefix(f"{recording.source}: ")
        else:
            is_first = is_first or not night.prepared
            night.prepared[name] = in_time(stored, in_gap)
            night.measured[name] = in_time(quality.measured[:, index], in_gap)
            night.notes += prepared.flags
        if is_first:
            row, n_epochs = recording.signal[index], len(recording.stages)
            night.spectrogram = spectrogram_of(row, recording.sfreq, n_epochs, name)
