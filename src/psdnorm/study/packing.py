"""The results of a study as one small file, and back: scores without nights or weights.

``results/NAME.tar.xz`` beside the study's file has ``grid.json``, ``cost.json`` and of each
finished cell what a report reads. Same cells, same bytes, but for the times in them.
"""

import io
import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store.atomic import written
from psdnorm.study.cost import COST, merged_costs, read_cost
from psdnorm.study.reading import Study
from psdnorm.training import Cell
from psdnorm.training.cell import read_json
from psdnorm.training.grid import CELLS, GRID, Runs, units_of
from psdnorm.training.logs import HISTORY
from psdnorm.training.records import CONFIG, DONE, SCORES, write_json
from psdnorm.training.runs import KEEP

_OF_A_CELL = (CONFIG, HISTORY, SCORES, DONE)  # done.json last: then a cell counts as finished
_NEEDED = (CONFIG, SCORES, DONE)  # AdaBN has no history of its own


def packed_path(study: Study) -> Path:
    """Return the file that the results of a study are packed into.

    Parameters
    ----------
    study : Study
    """
    return study.path.parent / "results" / f"{study.name}.tar.xz"


def finished_units(study: Study, runs: Runs) -> list[tuple[Cell, ...]]:
    """Return trainings that are finished together with the AdaBN evaluations of their networks.

    What is packed has no weights: a BatchNorm cell whose AdaBN cells are still to come would have
    to be trained again for them.

    Parameters
    ----------
    study : Study
    runs : Runs
    """
    return [unit for unit in units_of(study.cells) if all(map(runs.is_done, unit))]


def pack(study: Study, runs: Runs) -> Path | None:
    """Pack what is finished of a study.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells.

    Returns
    -------
    Path or None
        None where nothing is finished yet.
    """
    cells = [cell for unit in finished_units(study, runs) for cell in unit]
    if not cells:
        return None
    path = packed_path(study)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = list(_contents(runs, cells))
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be packed: {error.strerror}") from error
    with written(path) as file, tarfile.open(fileobj=file, mode="w:xz", preset=6) as archive:
        for name, content in contents:
            member = tarfile.TarInfo(name)  # of nobody, at no time: same bytes every time
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _contents(runs: Runs, cells: list[Cell]) -> Iterator[tuple[str, bytes]]:
    for name in (GRID, COST):
        if (runs.path / name).exists():
            yield name, (runs.path / name).read_bytes()
    for name in (CONFIG, HISTORY, SCORES):  # files that are alike together: they pack best so
        for cell in cells:
            if name in _NEEDED or (runs.folder(cell) / name).exists():
                yield f"{CELLS}/{cell.name}/{name}", (runs.folder(cell) / name).read_bytes()
    for cell in cells:
        done = read_json(runs.folder(cell) / DONE) | {"keep": KEEP[0]}
        text = json.dumps(done, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        yield f"{CELLS}/{cell.name}/{DONE}", text.encode()


def restore(study: Study, runs: Runs) -> int:
    """Unpack the results of a study, where there are any; what is there already stays.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells; made if it does not exist.

    Returns
    -------
    int
        How many cells were unpacked.

    Raises
    ------
    ArgumentError
        The results are of another protocol than the study's, or of other nights than ``runs``.
    """
    path = packed_path(study)
    if not path.exists():
        return 0
    members = _members(path)
    grid = _document(path, members, GRID)
    _check_same(study, runs, path, grid)
    names = {cell.name for cell in study.cells}
    unpacked = [
        name
        for name in sorted(names)
        if f"{CELLS}/{name}/{DONE}" in members and not (runs.path / CELLS / name / DONE).exists()
    ]
    try:
        runs.path.mkdir(parents=True, exist_ok=True)
        if not (runs.path / GRID).exists():
            write_json(runs.path / GRID, grid)
        for name in unpacked:
            _unpack_cell(path, members, runs.path / CELLS / name)
    except OSError as error:
        raise StoreError(f"{runs.path} cannot be written: {error.strerror}") from error
    if COST in members:
        costs = merged_costs(_document(path, members, COST), read_cost(runs.path))
        write_json(runs.path / COST, costs)
    return len(unpacked)


def _unpack_cell(path: Path, members: dict[str, bytes], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    contents = {name: members.get(f"{CELLS}/{folder.name}/{name}") for name in _OF_A_CELL}
    for name in _NEEDED:
        if contents[name] is None:
            raise StoreError(f"{path} lacks {name} of {folder.name}, expected a packed study")
    for name, content in contents.items():
        if content is not None:
            with written(folder / name) as file:
                file.write(content)


def _check_same(study: Study, runs: Runs, path: Path, grid: dict[str, Any]) -> None:
    if grid.get("protocol") != study.protocol.to_json():
        raise ArgumentError(
            f"{path} was made with another protocol than that of {study.path}: expected the same, "
            "or move the results away"
        )
    there = runs.settings()
    for name, value in there.items():
        if grid.get(name) != value:
            raise ArgumentError(
                f"{path} and {runs.path} differ in their {name}, expected results of the same "
                "study: move one of them away"
            )


def _members(path: Path) -> dict[str, bytes]:
    """Read all files of an archive; none is written under the name that it has there."""
    found = {}
    try:
        with tarfile.open(path, mode="r:xz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    found[member.name] = file.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise StoreError(f"{path} cannot be read as packed results: {error}") from error
    return found


def _document(path: Path, members: dict[str, bytes], name: str) -> dict[str, Any]:
    try:
        document = json.loads(members[name])
    except (KeyError, ValueError):
        document = None
    if not isinstance(document, dict):
        raise StoreError(f"{path} has no sound {name}, expected a packed study")
    return document
