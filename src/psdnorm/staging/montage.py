"""The EEG derivations that a recording offers, found by the labels of its channels."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from psdnorm.io.derivation import fold

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
