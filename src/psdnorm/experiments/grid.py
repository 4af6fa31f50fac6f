"""The runs of an experiment: their axes, the files that describe them, and their folder.

::

    RUNS/
      grid.json      the request: protocol, recipe, nights, runs
      cells/NAME/    one folder per run, see :mod:`psdnorm.training.run_folder`; also
                     failed.json if it failed, and lock while a process is working on it
"""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from psdnorm.errors import ArgumentError
from psdnorm.runtime import digest, held, read_json, write_json
from psdnorm.store import Store
from psdnorm.training import ALL, AUTO, DONE, PAPER_NORMS, TMA, Protocol, Run

# in files, a run is called a cell, so that packed results of earlier versions can still be read
GRID, CELLS, FAILED = "grid.json", "cells", "failed.json"
FORMAT = 1
Unit = tuple[Run, ...]


@dataclass(frozen=True)
class Axes:
    """A block of a grid: the product of these axes, each combination once."""

    models: tuple[str, ...] = ("usleep",)
    norms: tuple[str, ...] = PAPER_NORMS
    filter_sizes: tuple[int | str, ...] = (5,)
    norm_depths: tuple[int, ...] = (3,)
    hold_outs: tuple[str, ...] = ()
    balanced: tuple[int | None, ...] = (None,)  # None for all subjects
    seeds: tuple[int, ...] = (0, 1, 2)

    def runs(self) -> Iterator[Run]:
        """Yield the runs; some may be repeated."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in names:
            if not getattr(self, name):
                raise ArgumentError(f"{name} is empty, expected at least one")
        for values in itertools.product(*(getattr(self, name) for name in names)):
            yield Run(*values)


def grid_of(blocks: Iterable[Axes]) -> list[Run]:
    """Return the runs of all blocks, each once, ordered by :func:`complete`."""
    return complete(itertools.chain.from_iterable(axes.runs() for axes in blocks))


def complete(runs: Iterable[Run]) -> list[Run]:
    """Deduplicate and sort runs, adding the base of each AdaBN run before it; group by network."""
    return sorted({each for run in runs for each in (run, run.base)}, key=_place)


def _place(run: Run) -> tuple:
    # TMA uses BatchNorm's network; AdaBN follows the run that it adapts
    base = run.base
    filter_size = math.inf if base.filter_size == AUTO else base.filter_size or 0
    is_tma = base.norm == TMA
    shape = ("batch", 0, 0) if is_tma else (base.norm, filter_size, base.norm_depth or 0)
    data = base.seed, base.balanced or 2**31, base.hold_out
    layers = (2, 0) if run.layers == ALL else (1, run.layers) if run.is_adapted else (0, 0)
    return base.model, *shape, is_tma, filter_size, *data, layers


def units_of(grid: Sequence[Run]) -> list[Unit]:
    """Group a grid into units of work: a training, and the AdaBN evaluations of its network."""
    units: dict[Run, list[Run]] = {}
    for run in grid:
        units.setdefault(run.base, []).append(run)
    return [tuple(unit) for unit in units.values()]


_AXES = tuple(field.name for field in dataclasses.fields(Axes))
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read_blocks(document: Any, hold_outs: Sequence[str]) -> list[Axes]:
    """Read the blocks of a grid; ``hold_outs`` is the default for blocks without their own."""
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
    """Raise unless a document is a mapping with only known keys, including the needed ones."""
    if not isinstance(document, dict):
        raise invalid(where, document, f"the keys {', '.join(known)}")
    for key in document:
        if key not in known:
            raise ArgumentError(f"{where} has the key {key!r}, expected one of {', '.join(known)}")
    for key in needed:
        if key not in document:
            raise ArgumentError(f"{where} is missing the key {key!r}")


def file_name(where: str, value: Any) -> str:
    """Validate and return a file name."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise invalid(where, value, "small letters and digits with - between them")
    return value


def text(where: str, value: Any) -> str:
    """Validate and return a non-empty text, stripped."""
    if not isinstance(value, str) or not value.strip():
        raise invalid(where, value, "words")
    return value.strip()


def one_of(where: str, value: Any, known: Sequence[str]) -> str:
    """Validate and return one of the known values."""
    if value not in known:
        raise invalid(where, value, f"one of {', '.join(known)}")
    return str(value)


def integer(where: str, value: Any, least: int, expected: str = "") -> int:
    """Validate and return an integer of at least ``least``."""
    if type(value) is not int or value < least:
        raise invalid(where, value, expected or f"a whole number from {least} on")
    return value


def number(where: str, value: Any, least: float, most: float) -> float:
    """Validate and return a number from ``least`` to ``most``."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise invalid(where, value, f"a number from {least:g} to {most:g}")
    return float(value)


def invalid(where: str, value: Any, expected: str) -> ArgumentError:
    """Return the error for an invalid value."""
    return ArgumentError(f"{where} is {value!r:.80}, expected {expected}")


class PlannedRun(NamedTuple):
    """A run of a grid and the number of sequences that its time is proportional to."""

    run: Run
    sequences: int  # trained on per epoch, or predicted in the case of AdaBN


class ExperimentFolder:
    """The folder of an experiment."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # workers may have another working directory

    def folder(self, run: Run) -> Path:
        """Return the folder of a run."""
        return self.path / CELLS / run.name

    def is_done(self, run: Run) -> bool:
        """Return whether a run is finished."""
        return (self.folder(run) / DONE).exists()

    def entries(self) -> list[PlannedRun]:
        """Return all runs requested so far; empty if there is no grid."""
        document = self._read()
        if document is None:
            return []
        try:
            listed = document["cells"]
            return [PlannedRun(Run.from_json(e["cell"]), int(e["sequences"])) for e in listed]
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{self.path / GRID} is not the file of a grid: {error}") from error

    def check(self, store: Store, protocol: Protocol) -> None:
        """Raise a single error for all runs if the folder has other settings."""
        document = self._read()
        if document is None:
            return
        for name, value in _settings(store, protocol).items():
            if document.get(name) != value:
                difference = _difference(name, document.get(name), value)
                raise ArgumentError(
                    f"{self.path} was started with {difference}: use another folder"
                )

    def settings(self) -> dict[str, Any]:
        """Return the settings shared by all runs: protocol, nights and recipe; empty if no grid."""
        document = self._read() or {}
        return {name: value for name, value in document.items() if name not in ("format", "cells")}

    def other_nights(self, store: Store) -> str | None:
        """Describe how a store differs from that of the runs; None if it does not."""
        own = self.settings()
        for name, value in _nights_of(store).items():
            if own.get(name) != value:
                return _difference(name, own.get(name), value)
        return None

    def extend(self, store: Store, protocol: Protocol, entries: Sequence[PlannedRun]) -> None:
        """Add runs to those requested before."""
        self.check(store, protocol)
        # nothing is written if nothing is new, as the folder may be read-only
        while self._extended(store, protocol, entries) != self._read():
            with held(self.path) as free:  # two processes may start at once
                if free:
                    self.check(store, protocol)
                    write_json(self.path / GRID, self._extended(store, protocol, entries))

    def _extended(
        self, store: Store, protocol: Protocol, entries: Sequence[PlannedRun]
    ) -> dict[str, Any]:
        known = dict((*self.entries(), *entries))
        runs = sorted(known, key=_place)
        listed = [{"cell": run.to_json(), "sequences": known[run]} for run in runs]
        return {"format": FORMAT, **_settings(store, protocol), "cells": listed}

    def _read(self) -> dict[str, Any] | None:
        path = self.path / GRID
        if not path.exists():
            return None
        document = read_json(path)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ArgumentError(
                f"{path} is not the file of a grid, or of another version of psdnorm"
            )
        return document


def _settings(store: Store, protocol: Protocol) -> dict[str, Any]:
    return {"protocol": protocol.to_json(), **_nights_of(store)}


def _nights_of(store: Store) -> dict[str, Any]:
    nights = sorted(zip(store.index["recording"], store.index["digest"], strict=True))
    return {
        "recipe_sha256": store.hash,
        "nights": len(nights),
        "data": digest(nights),
        "simulated": bool(store.index["simulated"].any()),
    }


def _difference(name: str, there: Any, value: Any) -> str:
    if name == "protocol" and isinstance(there, Mapping):
        key = next(key for key in {**value, **there} if value.get(key) != there.get(key))
        return f"{key} {there.get(key)!r}, found {value.get(key)!r}"
    if name == "recipe_sha256":
        return f"nights of the recipe {there!s:.12}, found {value:.12}"
    if name == "nights":
        return f"a store of {there} nights, found {value}"
    return "other nights than the store has now"
