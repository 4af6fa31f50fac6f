"""The cells of an experiment, and the folder that they are in.

::

    RUNS/
      grid.json      what was asked for: protocol, recipe, nights, cells
      cells/NAME/    one folder per cell, see :mod:`psdnorm.training.run_folder`; also
                     failed.json where it failed, and lock while a process works on it
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError
from psdnorm.runtime import held, read_json, write_json
from psdnorm.store import Store
from psdnorm.training import ALL, AUTO, DONE, PAPER_NORMS, TMA, Protocol, Run

GRID, CELLS, FAILED = "grid.json", "cells", "failed.json"
FORMAT = 1
Unit = tuple[Run, ...]


@dataclass(frozen=True)
class Axes:
    """A block of cells: every combination of these, each once.

    Parameters
    ----------
    models, norms : tuple of str
        Norms are those of :class:`psdnorm.training.Run`, and "adabn3", "adabn12", "adabnall", ….
    filter_sizes, norm_depths : tuple of int
        For the norms that have them; a filter size may be "auto".
    hold_outs : tuple of str
    balanced : tuple of int or None
        None for all subjects.
    seeds : tuple of int
    """

    models: tuple[str, ...] = ("usleep",)
    norms: tuple[str, ...] = PAPER_NORMS
    filter_sizes: tuple[int | str, ...] = (5,)
    norm_depths: tuple[int, ...] = (3,)
    hold_outs: tuple[str, ...] = ()
    balanced: tuple[int | None, ...] = (None,)
    seeds: tuple[int, ...] = (0, 1, 2)

    def cells(self) -> Iterator[Run]:
        """Yield the cells, some of them more than once."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in names:
            if not getattr(self, name):
                raise ArgumentError(f"{name} is empty, expected one at least")
        for values in itertools.product(*(getattr(self, name) for name in names)):
            yield Run(*values)


def grid_of(blocks: Iterable[Axes]) -> list[Run]:
    """Return the cells of all blocks as :func:`complete` orders them.

    Parameters
    ----------
    blocks : iterable of Axes
    """
    return complete(itertools.chain.from_iterable(axes.cells() for axes in blocks))


def complete(cells: Iterable[Run]) -> list[Run]:
    """Return cells each once, those that share a compiled network together."""
    found: set[Run] = set()
    for cell in cells:
        found |= {cell, cell.base}
    return sorted(found, key=_place)


def _place(cell: Run) -> tuple:
    # TMA has BatchNorm's network; AdaBN follows the cell that it adapts
    base = cell.base
    filter_size = math.inf if base.filter_size == AUTO else base.filter_size or 0
    is_tma = base.norm == TMA
    shape = ("batch", 0, 0) if is_tma else (base.norm, filter_size, base.norm_depth or 0)
    data = base.seed, base.balanced or 2**31, base.hold_out
    layers = (2, 0) if cell.layers == ALL else (1, cell.layers) if cell.is_adapted else (0, 0)
    return base.model, *shape, is_tma, filter_size, *data, layers


def units_of(cells: Sequence[Run]) -> list[Unit]:
    """Group a grid into units of work: a training, and the AdaBN evaluations of its network."""
    units: dict[Run, list[Run]] = {}
    for cell in cells:
        units.setdefault(cell.base, []).append(cell)
    return [tuple(unit) for unit in units.values()]


@dataclass(frozen=True)
class Entry:
    """A cell of a grid."""

    cell: Run
    sequences: int


class ExperimentFolder:
    """The folder of an experiment.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # workers may have been started elsewhere

    def folder(self, cell: Run) -> Path:
        """Return the folder of a cell."""
        return self.path / CELLS / cell.name

    def is_done(self, cell: Run) -> bool:
        """Tell whether a cell is finished."""
        return (self.folder(cell) / DONE).exists()

    def entries(self) -> list[Entry]:
        """Return all cells that were asked for so far; none if there is no grid here."""
        document = self._read()
        if document is None:
            return []
        try:
            return [
                Entry(Run.from_json(entry["cell"]), int(entry["sequences"]))
                for entry in document["cells"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{self.path / GRID} is not that of a grid: {error}") from error

    def check(self, store: Store, protocol: Protocol) -> None:
        """Refuse other settings than the folder has, in one sentence for all cells."""
        document = self._read()
        if document is None:
            return
        for name, value in _settings(store, protocol).items():
            there = document.get(name)
            if there == value:
                continue
            raise ArgumentError(
                f"{self.path} was begun with {_difference(name, there, value)}: give another folder"
            )

    def settings(self) -> dict[str, Any]:
        """Return what all cells share: protocol, nights and their recipe; of no grid, nothing."""
        document = self._read() or {}
        return {name: value for name, value in document.items() if name not in ("format", "cells")}

    def other_nights(self, store: Store) -> str | None:
        """Tell how a store differs from the one that the cells were made from."""
        own = self.settings()
        for name, value in _nights_of(store).items():
            if own.get(name) != value:
                return _difference(name, own.get(name), value)
        return None

    def extend(self, store: Store, protocol: Protocol, entries: Sequence[Entry]) -> None:
        """Write down what is asked for, beside what was asked for before."""
        self.check(store, protocol)
        # nothing is touched where nothing is new: the folder may be for reading alone
        while self._extended(store, protocol, entries) != self._read():
            with held(self.path) as free:  # two may be started at once
                if free:
                    self.check(store, protocol)
                    write_json(self.path / GRID, self._extended(store, protocol, entries))

    def _extended(
        self, store: Store, protocol: Protocol, entries: Sequence[Entry]
    ) -> dict[str, Any]:
        known = {entry.cell: entry for entry in (*self.entries(), *entries)}
        cells = [
            {"cell": cell.to_json(), "sequences": known[cell].sequences}
            for cell in sorted(known, key=_place)
        ]
        return {"format": FORMAT, **_settings(store, protocol), "cells": cells}

    def _read(self) -> dict[str, Any] | None:
        path = self.path / GRID
        if not path.exists():
            return None
        document = read_json(path)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ArgumentError(f"{path} is not that of a grid, or of another version of psdnorm")
        return document


def _settings(store: Store, protocol: Protocol) -> dict[str, Any]:
    """Return what all cells of a grid share."""
    return {"protocol": protocol.to_json(), **_nights_of(store)}


def _nights_of(store: Store) -> dict[str, Any]:
    nights = sorted(zip(store.index["recording"], store.index["digest"], strict=True))
    return {
        "recipe_sha256": store.hash,
        "nights": len(nights),
        "data": hashlib.sha256(json.dumps(nights).encode()).hexdigest(),
        "simulated": bool(store.index["simulated"].any()),
    }


def _difference(name: str, there: Any, value: Any) -> str:
    if name == "protocol" and isinstance(there, Mapping):
        key = next(key for key in value if value[key] != there.get(key))
        return f"{key} {there.get(key)!r}, found {value[key]!r}"
    if name == "recipe_sha256":
        return f"nights of the recipe {there!s:.12}, found {value:.12}"
    if name == "nights":
        return f"a store of {there} nights, found {value}"
    return "other nights than the store has now"
