"""Which channels of a file the model is given: names, units, montage, electrode contact."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import (
    Source,
    Wanted,
    candidates,
    fold,
    microvolts,
    one_rate,
    resolve,
)
from psdnorm.prepare import NARROWEST_HZ, Recipe, electrodes_of, flat_epochs, percent
from psdnorm.staging.shift import UNUSUAL, UNUSUAL_SHARE, Condition

MOST_DERIVATIONS = 6
MOST_GROUPS = 10
# from the front to the back, in which derivations are shown to a model
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
# SHHS and home recorders name no place
_NOWHERE = re.compile(r"eeg[-_:.]?(?:\(?(?:sec|\d{1,3}|l|r|left|right)\)?)?")
# the AASM's, which come first where there are more than enough
_RECOMMENDED = ("f3", "f4", "c3", "c4", "o1", "o2")


class Derivation(NamedTuple):
    """One EEG derivation: what it is called, and what it is made from.

    Attributes
    ----------
    name : str
    expression : str
        As :func:`psdnorm.io.read_channels` takes it.
    """

    name: str
    expression: str


class Montage(NamedTuple):
    """What a recording offers.

    Attributes
    ----------
    derivations : tuple of Derivation
        One per place on the head, from front to back and left to right.
    notes : tuple of str
    """

    derivations: tuple[Derivation, ...]
    notes: tuple[str, ...]


def find_montage(labels: Sequence[str]) -> Montage:
    """Find EEG derivations among the labels of channels.

    A channel that is named after two places (``EEG Fpz-Cz``, ``C3-M2``, ``C4:M1``) is taken as it
    is. One that was recorded against a common reference is taken against the mastoid or ear of the
    other side, where the recording has it; else as it is, and a note says so. What is named EEG
    and nothing besides is taken only where no channel names a place.

    Parameters
    ----------
    labels : sequence of str

    Returns
    -------
    Montage
        At most six derivations; those at the AASM's places come before others.

    Examples
    --------
    >>> find_montage(["EEG Fpz-Cz", "EOG horizontal"]).derivations
    (Derivation(name='Fpz-Cz', expression='EEG Fpz-Cz'),)
    >>> [each.expression for each in find_montage(["C4", "M1", "C3", "M2"]).derivations]
    ['C3-M2', 'C4-M1']
    """
    notes = []
    folded = [fold(label) for label in labels]
    twice = {text for text in folded if folded.count(text) > 1}
    known = [
        (text, label.strip())
        for text, label in zip(folded, labels, strict=True)
        if text not in twice
    ]
    if any(_DERIVATION.fullmatch(text) or _NOWHERE.fullmatch(text) for text in twice):
        notes.append(
            "several channels have the same label, and none of them is used: "
            + ", ".join(sorted(text.upper() for text in twice))
        )
    ears = {
        match["ear"][1]: label for text, label in known if (match := _EAR_ALONE.fullmatch(text))
    }
    by_site: dict[str, tuple[int, Derivation]] = {}
    for text, label in known:
        match = _DERIVATION.fullmatch(text)
        if match is None:
            continue
        worth, derivation = _derived(match, label, ears)
        if worth > by_site.get(match["site"], (-1, derivation))[0]:
            by_site[match["site"]] = worth, derivation
    if not by_site:
        unnamed = [Derivation(label, label) for text, label in known if _NOWHERE.fullmatch(text)]
        return Montage(tuple(unnamed[:MOST_DERIVATIONS]), tuple(notes + _too_many(unnamed)))
    kept = _kept(by_site)
    as_recorded = [by_site[site][1].name for site in kept if by_site[site][0] == 0]
    if as_recorded:
        notes.append(
            f"{', '.join(as_recorded)} taken against the reference of the recording, as it has "
            "no mastoid or ear channel"
        )
    notes += _too_many(list(by_site))
    return Montage(tuple(by_site[site][1] for site in kept), tuple(notes))


def groups_of(names: Sequence[str], n_channels: int) -> tuple[tuple[tuple[str, ...], ...], str]:
    """Return which channels are shown to a model together, and what to say of it.

    Parameters
    ----------
    names : sequence of str
        The channels that can be used, from front to back.
    n_channels : int
        C of the model.

    Returns
    -------
    groups : tuple of tuple of str
        All unordered groups of C, those of the foremost channels first, ten at most. Where there
        are fewer channels, they are repeated.
    note : str
        "" where there is nothing to say.

    Examples
    --------
    >>> groups_of(["F3", "C3", "O1"], 2)
    ((('F3', 'C3'), ('F3', 'O1'), ('C3', 'O1')), '')
    >>> groups_of(["Cz"], 2)
    ((('Cz', 'Cz'),), 'Cz is fed 2 times, as the model takes 2 channels')
    """
    if len(names) < n_channels:
        group = tuple(names[place % len(names)] for place in range(n_channels))
        times = {name: group.count(name) for name in dict.fromkeys(group) if group.count(name) > 1}
        fed = " and ".join(f"{name} is fed {count} times" for name, count in times.items())
        return (group,), f"{fed}, as the model takes {n_channels} channels"
    places = sorted(
        combinations(range(len(names)), n_channels), key=lambda group: (sum(group), group)
    )
    groups = tuple(tuple(names[place] for place in group) for group in places[:MOST_GROUPS])
    if len(places) <= MOST_GROUPS:
        return groups, ""
    return groups, f"at most {MOST_GROUPS} of {len(places)} groups of channels vote"


def _derived(match: re.Match[str], label: str, ears: dict[str, str]) -> tuple[int, Derivation]:
    """Return a derivation, and how much it is worth among those of the same place."""
    site, against = match["site"], match["against"]
    if against is not None:
        worth = 3 if against in (f"a{_other_side(site)}", f"m{_other_side(site)}") else 2
        return worth, Derivation(f"{_spelt(site)}-{_spelt(against)}", label)
    if not ears:
        return 0, Derivation(_spelt(site), label)
    sides = [_other_side(site)] if _other_side(site) in ears else sorted(ears)
    if site.endswith("z") and len(ears) == 2:
        both = f"{label}-({ears['1']}+{ears['2']})/2"
        return 1, Derivation(f"{_spelt(site)}-M1M2", both)
    ear = ears[sides[0]]
    ear_name = _spelt(_EAR_ALONE.fullmatch(fold(ear))["ear"])  # type: ignore[index]
    return 1, Derivation(f"{_spelt(site)}-{ear_name}", f"{label}-{ear}")


def _kept(sites: Iterable[str]) -> list[str]:
    """Return at most six places, from front to back."""
    ordered = sorted(sites, key=_place)
    recommended = [site for site in ordered if site in _RECOMMENDED]
    others = [site for site in ordered if site not in _RECOMMENDED]
    return sorted((recommended + others)[:MOST_DERIVATIONS], key=_place)


def _too_many(found: Sequence[object]) -> list[str]:
    if len(found) <= MOST_DERIVATIONS:
        return []
    return [f"{MOST_DERIVATIONS} of {len(found)} EEG derivations are used"]


def _place(site: str) -> tuple[int, int]:
    region = site.rstrip("z0123456789")
    number = site[len(region) :]
    return _REGIONS.index(region), 0 if number == "z" else int(number)


def _other_side(site: str) -> str:
    """Return the number of the ear on the other side; for the midline, the right one's."""
    return "1" if site[-1] in "02468" else "2"


def _spelt(place: str) -> str:
    """Return the usual spelling: Fpz, AF3, C3, M2."""
    if place.startswith("fp"):
        return f"Fp{place[2:]}"
    return f"{place[:-1].upper()}z" if place.endswith("z") else place.upper()


MICROVOLTS = {"V": 1e6, "mV": 1e3, "uV": 1.0, "nV": 1e-3}
# what the standard deviation of 30 s of sleep EEG is like, in µV, far beyond what is usual
_LEAST_UV, _MOST_UV = 2.0, 300.0
# no amplifier is so quiet, and none reaches so far: between these, a signal may be flat or too
# large for other reasons than its unit
_SURELY_BELOW_UV, _SURELY_ABOVE_UV = 1e-3, 1e6


def factor_of(unit: str) -> float:
    """Return what a unit is in µV; refuse what is none.

    Parameters
    ----------
    unit : {"V", "mV", "uV", "nV"}
        ``µV`` is ``uV``.
    """
    spelt = unit.replace("µ", "u").replace("μ", "u")
    if spelt not in MICROVOLTS:
        raise ArgumentError(f"unit is {unit!r}, expected one of {', '.join(MICROVOLTS)}")
    return MICROVOLTS[spelt]


def spread_uv(row: NDArray[np.float32], sfreq: float) -> float:
    """Return the median over 30 s pieces of a channel, (T,), of its standard deviation.

    Drifts and single artefacts do not change it. What is not finite, or does not change at all, is
    left out; NaN if nothing is left.
    """
    length = min(len(row), max(1, round(EPOCH_S * sfreq)))
    pieces = row[: len(row) // length * length].reshape(-1, length)
    # a hundred pieces tell it as well as all
    chosen = pieces[:: max(1, len(pieces) // 100)]
    spreads = chosen.std(axis=1, dtype=np.float64)
    spreads = spreads[np.isfinite(spreads) & (spreads > 0)]
    return float(np.median(spreads)) if len(spreads) else float("nan")


def doubt_unit(spreads_uv: list[float], given: str | None, source: str) -> str:
    """Say if another unit would make EEG of a signal that is none as it is.

    Parameters
    ----------
    spreads_uv : list of float
        Of each channel, from :func:`spread_uv`.
    given : str or None
        The unit that the user gave.
    source : str
        The file, for the error.

    Returns
    -------
    str
        One sentence, "" where there is nothing to say.

    Raises
    ------
    RecordingError
        If the signal can only be EEG in another unit, and the user has given none.
    """
    known = [spread for spread in spreads_uv if np.isfinite(spread)]
    if not known:
        return ""
    found_uv = float(np.median(known))
    factors = [
        factor for factor in (1e3, 1e6, 1e-3, 1e-6) if _LEAST_UV <= factor * found_uv <= _MOST_UV
    ]
    if _LEAST_UV <= found_uv <= _MOST_UV or not factors:
        return ""
    factor = min(factors, key=lambda each: abs(np.log10(each)))
    words = (
        f"30 s of its EEG vary by {float(f'{found_uv:.2g}'):g} µV, where sleep EEG varies by some "
        f"{_LEAST_UV:g} to {_MOST_UV:g} µV, as they would if its numbers were "
        f"{_words(factor)} what it says"
    )
    if given is not None:
        return f"{words}: the unit {given} was given"
    if _SURELY_BELOW_UV < found_uv < _SURELY_ABOVE_UV:
        return f"{words}: if so, give --unit"
    raise RecordingError(f"{source}: {words}: give the unit ({', '.join(MICROVOLTS)}) by --unit")


def _words(factor: float) -> str:
    power = round(np.log10(factor))
    times = "1000" if abs(power) == 3 else "1000000"
    return f"in a unit {times} times {'larger' if power > 0 else 'smaller'} than"


class PlannedChannel(NamedTuple):
    """A channel that will be read.

    Attributes
    ----------
    name, expression : str
    sfreq : float
        In Hz.
    factor : float
        From what the file calls µV to µV, where the user gave another unit.
    electrodes : tuple of str
        Labels of what is held against a reference; empty where the file holds the channel itself.
    """

    name: str
    expression: str
    sfreq: float
    factor: float
    electrodes: tuple[str, ...]


def plan_channels(
    source: Source, wanted: Wanted | None, recipe: Recipe, unit: str | None
) -> tuple[list[PlannedChannel], list[str]]:
    """Decide which channels of a recording are read.

    Parameters
    ----------
    source : Source
    wanted : sequence or mapping, or None
        Channels, as :func:`psdnorm.io.read_channels` takes them, or as outputs call them;
        without, the EEG derivations that the labels tell of.
    recipe : Recipe
        Whose filter needs some sampling rate.
    unit : {"V", "mV", "uV", "nV"} or None
        What the numbers in the file are in, whatever it says.

    Returns
    -------
    channels : list of PlannedChannel
        One at least.
    notes : list of str

    Raises
    ------
    RecordingError
        If there is none: the error lists the channels that were found.
    """
    found: Montage = find_montage(source.header.labels)
    if wanted is not None:
        given = _by_label_or_name(wanted, found)
        return [
            _planned(source, name, options, recipe, unit) for name, options in given.items()
        ], []
    planned, notes = [], list(found.notes)
    left_out: list[RecordingError] = []
    for derivation in found.derivations:
        try:
            options = (derivation.expression,)
            planned.append(_planned(source, derivation.name, options, recipe, unit))
        except RecordingError as error:  # another may do
            left_out.append(error)
            notes.append(f"{derivation.name} is left out: {error}")
    if left_out and not planned:
        raise left_out[0]
    if not source.header.labels:
        raise RecordingError(f"{source.called} has no channel, as a scoring has none, expected EEG")
    if not planned:
        labels = ", ".join(label.strip() for label in source.header.labels)
        why = f": {notes[-1]}" if notes else ""
        raise RecordingError(
            f"{source.called} has no EEG channel that is known by its name, found {labels}; say "
            f"by --channels which to use, as in 'C3-M2,C4-M1'{why}"
        )
    return planned, notes


def _by_label_or_name(wanted: Wanted, found: Montage) -> dict[str, tuple[str, ...]]:
    """Return candidates; what outputs call ``Fp1`` may be labelled ``EEG Fp1-LER``."""
    called = {fold(each.name): each.expression for each in found.derivations}
    return {
        name: (*options, *(called[fold(each)] for each in options if fold(each) in called))
        for name, options in candidates(wanted).items()
    }


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
    electrodes = electrodes_of(weights, header.labels)
    if unit is None:
        return PlannedChannel(name, expression, sfreq, 1.0, electrodes)
    if len(declared) > 1:
        raise RecordingError(
            f"{source.called} has the channels of {expression!r} in several units, and the unit "
            f"{unit} was given for all"
        )
    return PlannedChannel(name, expression, sfreq, factor_of(unit) / declared.pop(), electrodes)


def electrode_conditions(
    source: Source, planned: Sequence[PlannedChannel], measured: Mapping[str, NDArray[np.bool_]]
) -> list[Condition]:
    """Look for electrodes that are flat where the derivation from them is not.

    Parameters
    ----------
    source : Source
    planned : sequence of PlannedChannel
    measured : mapping of str to ndarray of bool, (E,)
        Which epochs of the channels that can be used hold a signal.

    Returns
    -------
    list of Condition
        Unusual and no worse: files may hold the electrode that all others were recorded against,
        which is flat by right.
    """
    found = []
    for each in planned:
        if each.name not in measured:
            continue
        speaks = measured[each.name]
        for electrode in each.electrodes:
            read = source.read({electrode: electrode})
            signal_uv = read.signal[0] * np.float32(each.factor)
            share = float(np.mean(flat_epochs(signal_uv, read.sfreq, speaks)))
            if share >= UNUSUAL_SHARE:
                sentence = (
                    f"{each.name} is without {electrode} in {percent(share)} of the epochs, where "
                    "that electrode is flat."
                )
                found.append(Condition(each.name, "electrode", share, UNUSUAL, sentence))
    return found
