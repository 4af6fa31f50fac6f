"""The results of a study as one small file, and back: scores without nights or weights.

``results/NAME.tar.xz`` beside the study's file, or in a folder of one's own, has ``grid.json``,
``cost.json``, ``nights.json``, and of each finished cell what a report reads. Same cells, same
bytes, but for the times in them.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.experiments.cost import COST, merged_costs, read_cost
from psdnorm.experiments.grid import CELLS, GRID, Runs, units_of
from psdnorm.lab.study.archive import NEEDED, NIGHTS, Archive
from psdnorm.lab.study.definition import Study
from psdnorm.lab.study.study_cost import COUNTED
from psdnorm.lab.study.taking import alone_with, finished_scores, is_in_work, takable, take
from psdnorm.runtime.files import written
from psdnorm.training import Cell
from psdnorm.training.cell import read_json
from psdnorm.training.run import KEEP
from psdnorm.training.run_folder import CONFIG, DONE, SCORES, write_json
from psdnorm.training.run_logs import HISTORY


def packed_path(study: Study, lender: str | None = None) -> Path:
    """Return the file that the results of a study are packed into.

    Parameters
    ----------
    study : Study
    lender : str, optional
        The name of a study that it borrows from, whose file is asked for instead.
    """
    folder = study.results or study.path.parent / "results"
    return folder / f"{lender or study.name}.tar.xz"


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
    for name in (GRID, COST, NIGHTS):
        if (runs.path / name).exists():
            yield name, (runs.path / name).read_bytes()
    for name in (CONFIG, HISTORY, SCORES):  # files that are alike together: they pack best so
        for cell in cells:
            if name in NEEDED or (runs.folder(cell) / name).exists():
                yield f"{CELLS}/{cell.name}/{name}", (runs.folder(cell) / name).read_bytes()
    for cell in cells:
        done = read_json(runs.folder(cell) / DONE) | {"keep": KEEP[0]}
        text = json.dumps(done, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        yield f"{CELLS}/{cell.name}/{DONE}", text.encode()


def is_packed(study: Study) -> bool:
    """Tell whether every cell of a study is in its packed results.

    Parameters
    ----------
    study : Study
    """
    path = packed_path(study)
    return path.exists() and all(map(Archive(path).has, study.cells))


def restorable(study: Study, runs: Runs) -> tuple[Archive, list[Cell]] | None:
    """Look what :func:`restore` would unpack.

    Parameters
    ----------
    study : Study
    runs : Runs

    Returns
    -------
    tuple of Archive and list of Cell, or None
        The packed results, and what :func:`~psdnorm.lab.study.taking.takable` finds in them; None
        where nothing was packed.
    """
    path = packed_path(study)
    if not path.exists():
        return None
    archive = Archive(path)
    check_same(study, archive, runs.path, runs.settings())
    return archive, takable(study, archive, runs, finished_scores(study, runs))


def left_behind(study: Study, runs: Runs) -> list[Cell]:
    """Return packed cells of a study that :func:`restore` left where they are.

    Those are of networks that AdaBN cells share, where not all are packed that the study asks for,
    or some are in ``runs`` already, of another training.

    Parameters
    ----------
    study : Study
    runs : Runs
    """
    path = packed_path(study)
    if not path.exists():
        return []
    archive = Archive(path)
    return [
        cell
        for unit in units_of(study.cells)
        if not is_in_work(unit, runs)
        for cell in unit
        if archive.has(cell) and not runs.is_done(cell)
    ]


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
    found = restorable(study, runs)
    if found is None:
        return 0
    archive, cells = found
    try:
        with alone_with(runs):
            if not (runs.path / GRID).exists():
                write_json(runs.path / GRID, archive.grid)
            note_nights(runs, archive.nights)
        taken = take(study, archive, runs, cells)
    except OSError as error:
        raise StoreError(f"{runs.path} cannot be written: {error.strerror}") from error
    if archive.cost is not None:
        cost = merged_costs(archive.cost, read_cost(runs.path), counted=COUNTED)
        write_json(runs.path / COST, cost)
    return len(taken)


def note_nights(runs: Runs, nights: Mapping[str, Any] | None) -> None:
    """Write into a folder what its nights were made from, where that is known.

    Parameters
    ----------
    runs : Runs
    nights : mapping, optional
        From :meth:`psdnorm.lab.study.Nights.to_json`.
    """
    if nights is not None and not (runs.path / NIGHTS).exists():
        write_json(runs.path / NIGHTS, dict(nights))


def check_folder(study: Study, runs: Runs) -> None:
    """Refuse a folder of cells of other nights than the study's file describes.

    Parameters
    ----------
    study : Study
    runs : Runs
    """
    path = runs.path / NIGHTS
    if path.exists():
        _check_nights(study, runs.path, read_json(path))


def _check_nights(study: Study, place: Path, nights: Mapping[str, Any]) -> None:
    for name, value in study.nights.to_json().items():
        if nights.get(name) != value:
            raise ArgumentError(
                f"{place} has cells of nights whose {name} is {nights.get(name)!r}, expected "
                f"{value!r} as in {study.path}: move it away, or give the study another name"
            )


def check_same(study: Study, archive: Archive, place: Path, settings: Mapping[str, Any]) -> None:
    """Refuse packed results of another protocol than a study's, or of other nights than are there.

    Parameters
    ----------
    study : Study
    archive : Archive
    place : Path
        What the settings are from.
    settings : mapping
        That the results are to have, from :meth:`psdnorm.experiments.grid.Runs.settings`; may be
        empty.
    """
    if archive.settings.get("protocol") != study.protocol.to_json():
        raise ArgumentError(
            f"{archive.path} was made with another protocol than that of {study.path}: expected "
            "the same, or another folder of results"
        )
    if archive.nights is not None:
        _check_nights(study, archive.path, archive.nights)
    for name, value in settings.items():
        if archive.settings.get(name) != value:
            raise ArgumentError(
                f"{archive.path} and {place} differ in their {name}, expected results of the same "
                "nights and protocol: move one of them away"
            )
