"""One file of packed results, for reading: finished cells, and what there is to know of them all.

That is ``grid.json``, ``cost.json``, and ``nights.json``: what the nights were made from.
"""

import json
import lzma
import tarfile
from functools import cached_property
from pathlib import Path
from typing import Any

from psdnorm.errors import StoreError
from psdnorm.experiments.cost import COST
from psdnorm.experiments.grid import CELLS, FORMAT, GRID
from psdnorm.runtime.files import written
from psdnorm.training import Cell
from psdnorm.training.run_folder import CONFIG, DONE, LENDER, SCORES, write_json
from psdnorm.training.run_logs import HISTORY
from psdnorm.training.run_state import FILE as RESUME

NIGHTS = "nights.json"
NEEDED = (CONFIG, SCORES, DONE)  # AdaBN has no history of its own


class Archive:
    """What a file of packed results has; it is read whole, and nothing is written by its names.

    Parameters
    ----------
    path : Path

    Raises
    ------
    StoreError
        It is not sound, or not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members: dict[str, bytes] = {}
        try:
            with tarfile.open(path, mode="r:xz") as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    if file is not None:
                        self._members[member.name] = file.read()
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise StoreError(f"{path} cannot be read as packed results: {error}") from error

    @cached_property
    def grid(self) -> dict[str, Any]:
        """What ``grid.json`` says."""
        document = self._document(GRID)
        if document.get("format") != FORMAT:
            raise StoreError(f"{self.path} has the {GRID} of another version of psdnorm")
        return document

    @property
    def settings(self) -> dict[str, Any]:
        """What all cells share, as :meth:`psdnorm.experiments.grid.Runs.settings` tells it."""
        return {key: value for key, value in self.grid.items() if key not in ("format", "cells")}

    @property
    def cost(self) -> dict[str, Any] | None:
        """What ``cost.json`` says; None where nothing was run."""
        return self._document(COST) if COST in self._members else None

    @property
    def nights(self) -> dict[str, Any] | None:
        """What the nights were made from; None in results of a psdnorm that did not write it."""
        return self._document(NIGHTS) if NIGHTS in self._members else None

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell is finished here."""
        return self._named(cell, DONE) in self._members

    def scores(self, cell: Cell) -> bytes:
        """Return the scores of a finished cell, as they are on disk."""
        return self._content(cell, SCORES)

    def unpack(self, cell: Cell, folder: Path, lender: str | None = None) -> None:
        """Write the files of a finished cell, in place of what one that was interrupted left.

        Parameters
        ----------
        cell : Cell
        folder : Path
            Made if it does not exist.
        lender : str, optional
            The study that it is borrowed from, which ``config.json`` is to name; where that one
            borrowed it, too, the study that ran it stays.
        """
        config, scores, done = (self._content(cell, name) for name in NEEDED)
        folder.mkdir(parents=True, exist_ok=True)
        if lender is None:
            _write(folder / CONFIG, config)
        else:
            described = self._document(self._named(cell, CONFIG))
            write_json(folder / CONFIG, {LENDER: lender} | described)
        if self._named(cell, HISTORY) in self._members:
            _write(folder / HISTORY, self._content(cell, HISTORY))
        _write(folder / SCORES, scores)
        _write(folder / DONE, done)  # last: then it counts as finished
        (folder / RESUME).unlink(missing_ok=True)

    def _content(self, cell: Cell, name: str) -> bytes:
        content = self._members.get(self._named(cell, name))
        if content is None:
            raise StoreError(f"{self.path} lacks {name} of {cell.name}, expected a packed study")
        return content

    def _document(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads(self._members[name])
        except (KeyError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise StoreError(f"{self.path} has no sound {name}, expected a packed study")
        return document

    @staticmethod
    def _named(cell: Cell, name: str) -> str:
        return f"{CELLS}/{cell.name}/{name}"


def _write(path: Path, content: bytes) -> None:
    with written(path) as file:
        file.write(content)
