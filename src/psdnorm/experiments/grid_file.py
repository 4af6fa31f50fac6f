"""Read grids of runs from YAML, with the checks that all such files share."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import Axes, grid_of
from psdnorm.training import AUTO

_AXES = tuple(field.name for field in dataclasses.fields(Axes))
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read_blocks(document: Any, hold_outs: Sequence[str]) -> list[Axes]:
    """Read the blocks of a grid; a block without ``hold_outs`` has all of the given ones."""
    if not isinstance(document, list) or not document:
        raise invalid("grid", document, "a list of blocks")
    blocks = []
    for number, block in enumerate(document):
        where = f"grid[{number}]"
        check_keys(where, block, _AXES, ("norms",))
        axes: dict[str, Any] = {"hold_outs": tuple(hold_outs)}
        axes |= {name: _axis(f"{where}.{name}", name, value) for name, value in block.items()}
        for cohort in axes["hold_outs"]:
            one_of(f"{where}.hold_outs", cohort, hold_outs)
        try:
            grid_of([Axes(**axes)])
        except ArgumentError as error:
            raise ArgumentError(f"{where}: {error}") from None
        blocks.append(Axes(**axes))
    return blocks


def _axis(where: str, name: str, value: Any) -> tuple:
    if name == "seeds":
        return tuple(range(integer(where, value, 1)))
    if not isinstance(value, list) or not value:
        raise invalid(where, value, "a list")
    if name == "balanced":
        return tuple(None if each == "all" else integer(where, each, 2) for each in value)
    if name == "filter_sizes":
        expected = f"{AUTO}, or a whole number from 1 on"
        return tuple(AUTO if each == AUTO else integer(where, each, 1, expected) for each in value)
    if name == "norm_depths":
        return tuple(integer(where, each, 0) for each in value)
    return tuple(text(where, each) for each in value)


def check_keys(where: str, document: Any, known: Sequence[str], needed: Sequence[str] = ()) -> None:
    """Raise unless a document is a mapping with known keys, among them the needed ones."""
    if not isinstance(document, dict):
        raise invalid(where, document, f"the keys {', '.join(known)}")
    for key in document:
        if key not in known:
            raise ArgumentError(f"{where} has the key {key!r}, expected one of {', '.join(known)}")
    for key in needed:
        if key not in document:
            raise ArgumentError(f"{where} lacks the key {key!r}")


def file_name(where: str, value: Any) -> str:
    """Return a name that a file can have."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise invalid(where, value, "small letters and digits with - between them")
    return value


def text(where: str, value: Any) -> str:
    """Return a text that is not empty, stripped."""
    if not isinstance(value, str) or not value.strip():
        raise invalid(where, value, "words")
    return value.strip()


def one_of(where: str, value: Any, known: Sequence[str]) -> str:
    """Return one of the known values."""
    if value not in known:
        raise invalid(where, value, f"one of {', '.join(known)}")
    return str(value)


def integer(where: str, value: Any, least: int, expected: str = "") -> int:
    """Return an integer of at least ``least``."""
    if type(value) is not int or value < least:
        raise invalid(where, value, expected or f"a whole number from {least} on")
    return value


def number(where: str, value: Any, least: float, most: float) -> float:
    """Return a number between two others."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise invalid(where, value, f"a number from {least:g} to {most:g}")
    return float(value)


def invalid(where: str, value: Any, expected: str) -> ArgumentError:
    """Return the error for an invalid value."""
    return ArgumentError(f"{where} is {value!r:.80}, expected {expected}")
