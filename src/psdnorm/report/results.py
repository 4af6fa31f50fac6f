"""What a folder of runs came to, as the tables that everything in a report is made from."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.errors import ArgumentError, PsdnormError
from psdnorm.evaluation import COUNTS, read_scores, subject_metrics
from psdnorm.experiments import CELLS, DONE_STATE, GRID, CellStanding, ExperimentFolder, standing
from psdnorm.runtime import read_json
from psdnorm.store import RECIPE_FILE as RECIPE
from psdnorm.training import ARM, CONFIG, DONE, SCORES, WEIGHTS, Arm, Run, chosen_filter_size


@dataclass(frozen=True)
class Results:
    """Finished cells of an experiment and the scores of their subjects.

    Attributes
    ----------
    path : Path
        The folder.
    cells : DataFrame
        One row per finished cell: ``cell``, a number; ``model``, ``norm``; ``filter_size``,
        ``norm_depth`` and ``balanced`` (NA where there is none, or all subjects); where the filter
        size is :data:`psdnorm.training.AUTO_SIZE`, ``chosen``, which one was; ``hold_out``,
        ``seed``; ``arm``, what it is but for its cohort and seed, as ``usleep psd f5 d3 @400``;
        ``epochs``, ``seconds``; ``prediction_seconds``, ``nights`` and ``sequences`` of the
        prediction (NaN in runs that did not record them); ``folder``.
    subjects : DataFrame
        One row per cell and held-out subject: ``cell``, ``cohort``, ``subject``, the counts of
        :mod:`psdnorm.evaluation.scores`, and all of :data:`psdnorm.evaluation.METRICS`.
    lacking : list of str
        A sentence for each cell that was asked for and has no result, or an unreadable one.
    config : dict
        ``config.json`` of the first cell: protocol, recipe, versions.
    simulated : bool
        Whether any night was simulated.
    unfinished : tuple of Run
        Those that ``lacking`` tells about.
    """

    path: Path
    cells: pd.DataFrame
    subjects: pd.DataFrame
    lacking: list[str]
    config: dict[str, Any]
    simulated: bool
    unfinished: tuple[Run, ...] = ()

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The subjects with all that tells their cells apart; what `aggregate` takes."""
        known = self.cells[["cell", *ARM, "hold_out", "seed", "arm"]]
        return self.subjects.drop(columns=COUNTS).merge(known, on="cell", how="left")

    @cached_property
    def damaged(self) -> list[str]:
        """Those of ``lacking`` whose cells are finished: what cannot be read is a failure."""
        grid, lacking = ExperimentFolder(self.path), zip(self.unfinished, self.lacking, strict=True)
        return [words for cell, words in lacking if grid.is_done(cell)]

    @property
    def recipe(self) -> str:
        """Name of the recipe of all nights."""
        return str(self.config["recipe"].get("name", "unnamed"))

    def named(self, arm: str, said: Collection[str] = ()) -> str:
        """Return what people call the norm of an arm, see :meth:`psdnorm.training.Arm.named`.

        Parameters
        ----------
        arm : str
            One of ``cells``, as ``usleep psd f17 d3 @all``, which is "PSDNorm (f = 17)".
        said : collection of str
        """
        cell = self.cells[self.cells["arm"] == arm].iloc[0]
        return Arm.of_row(cell).named(said)

    def of(self, **wanted: Any) -> "Results":
        """Return the cells whose columns have these values; None stands for NA.

        Examples
        --------
        ``results.of(model="usleep", balanced=400)``
        """
        kept = pd.Series(True, index=self.cells.index)
        for name, value in wanted.items():
            column = self.cells[name]
            kept &= column.isna() if value is None else (column == value).fillna(False)
        cells = self.cells[kept.astype(bool)]
        subjects = self.subjects[self.subjects["cell"].isin(cells["cell"])]
        return replace(self, cells=cells, subjects=subjects)


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read what the finished cells of a folder of runs came to.

    Parameters
    ----------
    path : path
        The folder that ``psdnorm lodo`` wrote; unfinished too.

    Returns
    -------
    Results
    """
    runs = ExperimentFolder(path)
    if not os.path.exists(runs.path / GRID):
        raise ArgumentError(instead_of_runs(path))
    lacking: dict[Run, str] = {}
    cells: list[dict[str, Any]] = []
    subjects, configs = [], []
    for found in standing(runs).cells:
        if found.state != DONE_STATE:
            lacking[found.cell] = _sentence(found)
            continue
        folder = runs.folder(found.cell)
        try:
            scores, config = read_scores(folder / SCORES), read_json(folder / CONFIG)
            done = read_json(folder / DONE)
        except PsdnormError as error:
            lacking[found.cell] = f"{found.cell.name}: {error}"
            continue
        number = len(cells)
        row = {"cell": number, **found.cell.row(), "chosen": chosen_filter_size(done)}
        cells.append({**row, **_spent(done), "folder": folder})
        subjects.append(scores.assign(cell=number))
        configs.append(config)
    if not cells:
        raise ArgumentError(f"{runs.path} has no finished cell, expected one at least")
    table = pd.DataFrame(cells).astype(dict.fromkeys([*ARM[2:], "chosen"], "Int64"))
    counts = pd.concat(subjects, ignore_index=True)
    computed = subject_metrics(counts).drop(columns=["cohort", "subject"])
    simulated = any(config["simulated"] for config in configs)
    merged = pd.concat([counts, computed], axis="columns")
    told = list(lacking.values())
    return Results(runs.path, table, merged, told, configs[0], simulated, tuple(lacking))


def instead_of_runs(path: str | os.PathLike[str]) -> str:
    """Say what is found where the folder of runs was expected.

    Parameters
    ----------
    path : path
        That has no ``grid.json``.

    Returns
    -------
    str
        A sentence.
    """
    folder = Path(path).absolute()
    expected = "expected the folder of psdnorm lodo"
    if not os.path.lexists(folder):
        return f"{path} does not exist, {expected}"
    if not folder.is_dir():
        return f"{path} is not a folder, {expected}"
    if os.path.exists(folder / RECIPE):
        return f"{path} is a store of prepared nights, {expected}"
    if folder.name == CELLS and os.path.exists(folder.parent / GRID):
        return f"{path} holds the cells of {folder.parent}: give that folder"
    cell = folder.parent if folder.name == WEIGHTS else folder
    if cell.parent.name == CELLS and os.path.exists(cell / CONFIG):
        runs = cell.parent.parent
        return f"{path} is of a single cell: give {runs}, or compare two cells (psdnorm compare)"
    return runs_inside(path) or f"{path} has no {GRID}, {expected}"


def runs_inside(path: str | os.PathLike[str]) -> str | None:
    """Name the folders of runs in a folder, where psdnorm study has them side by side.

    Parameters
    ----------
    path : path

    Returns
    -------
    str or None
        A sentence; None where there are none.
    """
    inside = sorted(grid.parent.name for grid in Path(path).glob(f"*/{GRID}"))
    if not inside:
        return None
    which = "one of them, " if len(inside) > 1 else ""
    return f"{path} holds the runs of {', '.join(inside)}: give {which}{Path(path, inside[0])}"


def _spent(done: dict[str, Any]) -> dict[str, float]:
    predicted = ("prediction_seconds", "nights", "sequences")
    known = {"epochs": done["epochs"], "seconds": done["seconds"]}
    return known | {name: float(done.get(name, "nan")) for name in predicted}


def _sentence(found: CellStanding) -> str:
    reason = f": {found.reason}" if found.reason else ""
    return f"{found.cell.name} is not finished ({found.state}{reason})"
