"""Channels of a file, and how requested derivations are computed from them."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from psdnorm.errors import ArgumentError, RecordingError

MICROVOLTS = {"V": 1e6, "mV": 1e3, "uV": 1.0, "nV": 1e-3}
# "" is a missing unit: in EDF's own example and for most of its writers, that means µV
_BY_SPELLING = {unit.lower(): factor for unit, factor in MICROVOLTS.items()} | {"": 1.0}
_SPELLINGS = {
    "µ": "u",
    "μ": "u",
    "micro": "u",
    "milli": "m",
    "nano": "n",
    "volts": "v",
    "volt": "v",
}


@dataclass(frozen=True)
class Channel:
    """Header of one channel."""

    label: str
    sfreq: float
    unit: str  # as written, "" where none is given
    physical_range: tuple[float, float]  # in that unit; nan where the file gives no numbers
    digital_range: tuple[float, float] = (math.nan, math.nan)  # the corresponding stored values
    span: tuple[int, int] = field(default=(0, 0), repr=False)  # its bytes in a data record


@dataclass(frozen=True)
class Header:
    """Header of a file."""

    channels: tuple[Channel, ...]  # without those that hold annotations
    start: datetime | None
    duration_s: float  # recorded time, without the gaps of a discontinuous file
    discontinuous: bool  # whether the recording paused (EDF+D)
    simulated: bool = False  # by psdnorm; nothing else in that header field is used
    # where the samples of an EDF are
    n_records: int = field(default=0, repr=False)
    record_s: float = field(default=0.0, repr=False)
    header_bytes: int = field(default=0, repr=False)
    record_bytes: int = field(default=0, repr=False)
    sample_bytes: int = field(default=2, repr=False)
    annotation_spans: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(channel.label for channel in self.channels)


def microvolts(channel: Channel, path: str | Path) -> float:
    """Return a channel's unit in µV; raise RecordingError if it is not a unit of voltage."""
    unit = "".join(channel.unit.split()).casefold()
    for spelling, short in _SPELLINGS.items():
        unit = unit.replace(spelling, short)
    if unit not in _BY_SPELLING:
        raise RecordingError(
            f"{path} has {channel.label!r} in {channel.unit!r}, expected V, mV, uV or nV"
        )
    if not unit and not max(map(abs, channel.physical_range)) >= 1:
        low, high = channel.physical_range
        raise RecordingError(
            f"{path} gives no unit for {channel.label!r}, and its range, {low:g} to {high:g}, "
            "cannot be in µV"
        )
    return _BY_SPELLING[unit]


def one_rate(rates: Mapping[str, float], path: str | Path) -> float:
    """Return the rate in Hz that all channels share; raise RecordingError if they differ."""
    lowest, highest = min(rates.values()), max(rates.values())
    if not 0 < lowest <= highest <= 1e5:
        raise RecordingError(
            f"{path} has channels of {lowest:g} to {highest:g} Hz, expected up to 100 kHz"
        )
    # a rate is a quotient of numbers in the header, exact up to rounding
    if not math.isclose(lowest, highest, rel_tol=1e-9):
        found = ", ".join(f"{label} at {rate:g} Hz" for label, rate in rates.items())
        raise RecordingError(f"{path} has {found}, expected one rate for the channels wanted")
    return highest


Wanted = Sequence[str] | Mapping[str, str | Sequence[str]]
Weights = dict[int, float]  # index of a channel in the file → its factor

_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
# parentheses right after a name are part of it: EEG(sec)
_NAME = re.compile(r"[^-+*/()]+(?:\([^()]*\)[^-+*/()]*)*")
# C3/A2 is a name in many files
_NAMES = re.compile(rf"{_NAME.pattern}(?:/(?![\d.]){_NAME.pattern})*")
_LONGEST = 200  # characters; expressions are parsed recursively
# the prefix that EDF's label standard puts before an electrode, and few people type
_KIND = re.compile(r"\s*EEG\s+(?=[A-Z])", re.IGNORECASE)


def fold(label: str) -> str:
    """Normalize a label for comparison: no blanks, one case."""
    return "".join(label.split()).casefold()


def candidates(wanted: Wanted) -> dict[str, tuple[str, ...]]:
    """Return the candidate expressions for each wanted channel, in order of preference."""
    if isinstance(wanted, str):
        raise ArgumentError(f"wanted must be a list of channels, found the text {wanted!r}")
    pairs = wanted.items() if isinstance(wanted, Mapping) else [(item, item) for item in wanted]
    named = {
        name: (options,) if isinstance(options, str) else tuple(options) for name, options in pairs
    }
    if not named or not all(named.values()):
        raise ArgumentError(f"wanted must name at least one channel, found {wanted!r}")
    if len(named) != len(wanted):
        raise ArgumentError(f"wanted must name each channel once, found {wanted!r}")
    return named


def check_expression(expression: str) -> None:
    """Raise ArgumentError if a text is not an expression, for any file."""
    _AnyFile(expression).weights()


def resolve(options: Sequence[str], labels: Sequence[str], path: str | Path) -> tuple[str, Weights]:
    """Return the first expression that the file has all channels for, and their weights."""
    absent, others = dict[str, str](), dict[str, str]()
    for expression in options:
        try:
            return expression, _Reader(expression, labels).weights()
        except _AbsentError as error:
            absent[expression] = str(error.args[0])
        except LookupError as error:
            others[expression] = str(error.args[0])
    # if no expression matches, retry without the prefix EEG in the file's labels
    bare = [_KIND.sub("", label) for label in labels]
    for expression in absent if bare != list(labels) else ():
        with contextlib.suppress(LookupError):
            return expression, _Reader(expression, bare).weights()
    lacks = [f"has none of {', '.join(map(repr, absent))}"] if len(absent) > 1 else absent.values()
    problems = " and ".join(dict.fromkeys((*lacks, *others.values())))
    found = ", ".join(label.strip() for label in labels) or "none"
    raise RecordingError(f"{path} {problems}, found {found}")


class _AbsentError(LookupError):
    """A channel is missing from a file."""


class _Reader:
    """Parses labels, numbers, + - * / and parentheses; LookupError names the missing label.

    A label may itself contain such signs (``EEG Fp1-LER``, ``EEG(sec)``): the longest match wins,
    so ``C3-A2`` is the channel of that name if there is one.
    """

    def __init__(self, expression: str, labels: Sequence[str]):
        self.expression = expression
        self.text = fold(expression)
        self.place = 0
        self.labels: dict[str, list[int]] = {}
        for index, label in enumerate(labels):
            self.labels.setdefault(fold(label), []).append(index)
        self.labels.pop("", None)
        self.by_length = sorted(self.labels, key=len, reverse=True)
        if len(self.text) > _LONGEST:
            raise ArgumentError(
                f"a channel's expression has {len(self.text)} characters, expected at most "
                f"{_LONGEST}"
            )

    def weights(self) -> Weights:
        if self.text in self.labels:
            return {self._only(self.text): 1.0}
        weights = {index: weight for index, weight in self._sum().items() if weight}
        if self.place < len(self.text) or not weights:
            raise self._malformed()
        return weights

    def _sum(self) -> Weights:
        total: Weights = {}
        sign = -1.0 if self._take("-") else 1.0
        while True:
            for index, weight in self._product().items():
                total[index] = total.get(index, 0.0) + sign * weight
            if self._take("+"):
                sign = 1.0
            elif self._take("-"):
                sign = -1.0
            else:
                return total

    def _product(self) -> Weights:
        factor = 1.0
        # a label may begin with a digit
        while self._label() is None and (number := self._number()) is not None:
            factor *= number
            if not self._take("*"):
                raise self._malformed()
        weights = self._atom()
        while True:
            if self._take("*"):
                operand = self._number()
            elif self._take("/"):
                operand = self._number()
                operand = 1 / operand if operand else None
            else:
                return {index: factor * weight for index, weight in weights.items()}
            if operand is None:
                raise self._malformed()
            factor *= operand

    def _atom(self) -> Weights:
        label = self._label()
        if label is not None:
            self.place += len(label)
            return {self._only(label): 1.0}
        if self._take("("):
            weights = self._sum()
            if not self._take(")"):
                raise self._malformed()
            return weights
        name = _NAME.match(self.text, self.place)
        if name is None:
            raise self._malformed()
        within = "" if name[0] == self.text else f" for {self.expression!r}"
        raise _AbsentError(f"has no channel {self._as_typed(name[0])!r}{within}")

    def _label(self) -> str | None:
        """Return the longest label at this position that ends where a name can end."""
        for label in self.by_length:
            end = self.place + len(label)
            if self.text.startswith(label, self.place) and self.text[end : end + 1] in "+-*/)":
                return label
        return None

    def _only(self, label: str) -> int:
        places = self.labels[label]
        if len(places) > 1:
            raise LookupError(
                f"has {len(places)} channels named {self._as_typed(label)!r}, expected one"
            )
        return places[0]

    def _number(self) -> float | None:
        match = _NUMBER.match(self.text, self.place)
        if match is None:
            return None
        self.place = match.end()
        return float(match[0])

    def _take(self, sign: str) -> bool:
        taken = self.text.startswith(sign, self.place)
        self.place += taken
        return taken

    def _as_typed(self, folded: str) -> str:
        # blanks and case as the caller wrote them, for a recognisable message
        pattern = r"\s*".join(map(re.escape, folded))
        match = re.search(pattern, self.expression, re.IGNORECASE)
        return match[0].strip() if match else folded

    def _malformed(self) -> ArgumentError:
        return ArgumentError(
            f"{self.expression!r} is neither a channel nor an expression of channels such as "
            "'C3-A2' or '(Fp1+Fp2)/2-Cz'"
        )


class _AnyFile(_Reader):
    """Parses an expression as if the file had every channel named in it."""

    def __init__(self, expression: str):
        super().__init__(expression, ())

    def _label(self) -> str | None:
        name = _NAMES.match(self.text, self.place)
        return None if name is None or _NUMBER.fullmatch(name[0]) else name[0]

    def _only(self, label: str) -> int:
        return self.labels.setdefault(label, [len(self.labels)])[0]
