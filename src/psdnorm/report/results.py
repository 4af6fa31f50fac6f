"""The results of a folder of runs: the tables from which a whole report is made."""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.errors import ArgumentError, PsdnormError
from psdnorm.evaluation import COUNTS, read_scores, subject_metrics
from psdnorm.experiments import CELLS, DONE_STATE, GRID, ExperimentFolder, status_of
from psdnorm.runtime import read_json
from psdnorm.store import RECIPE_FILE as RECIPE
from psdnorm.training import (
    ARM,
    CONFIG,
    DONE,
    MODEL_NAMES,
    NORM_NAMES,
    PROTOCOL_DEPTH,
    PROTOCOL_FILTER,
    SCORES,
    WEIGHTS,
    Arm,
    Run,
    chosen_filter_size,
)


@dataclass(frozen=True)
class Results:
    """Finished runs of an experiment and the scores of their subjects.

    Attributes
    ----------
    path : Path
        The folder.
    runs : DataFrame
        One row per finished run: ``run``, a number; ``model``, ``norm``; ``filter_size``,
        ``norm_depth`` and ``balanced`` (NA if there is none, or for all subjects); ``chosen``, the
        size chosen for a filter size of :data:`psdnorm.training.AUTO_SIZE`; ``hold_out``,
        ``seed``; ``arm``, all but cohort and seed, as in ``usleep psd f5 d3 @400``;
        ``epochs``, ``seconds``; ``prediction_seconds``, ``nights`` and ``sequences`` of the
        prediction (NaN in runs that did not record them); ``folder``.
    subjects : DataFrame
        One row per run and held-out subject: ``run``, ``cohort``, ``subject``, the counts of
        :mod:`psdnorm.evaluation.scores`, and all of :data:`psdnorm.evaluation.METRICS`.
    config : dict
        ``config.json`` of the first run: protocol, recipe, versions.
    simulated : bool
        Whether any night was simulated.
    missing : dict of Run to str
        A sentence for each requested run that has no result, or an unreadable one.
    """

    path: Path
    runs: pd.DataFrame
    subjects: pd.DataFrame
    config: dict[str, Any]
    simulated: bool
    missing: dict[Run, str] = field(default_factory=dict)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The subjects with the columns that identify their runs, as `aggregate` takes them."""
        known = self.runs[["run", *ARM, "hold_out", "seed", "arm"]]
        return self.subjects.drop(columns=COUNTS).merge(known, on="run", how="left")

    @cached_property
    def damaged(self) -> list[str]:
        """Sentences of ``missing`` on finished runs: a failure, as these cannot be read."""
        folder = ExperimentFolder(self.path)
        return [sentence for run, sentence in self.missing.items() if folder.is_done(run)]

    @property
    def recipe(self) -> str:
        """Name of the recipe of all nights."""
        return str(self.config["recipe"].get("name", "unnamed"))

    def named(self, arm: str, said: Collection[str] = ()) -> str:
        """Return the norm and unusual settings of an arm, as :meth:`psdnorm.training.Arm.named`."""
        run = self.runs[self.runs["arm"] == arm].iloc[0]
        return Arm.of_row(run).named(said)

    def of(self, **wanted: Any) -> "Results":
        """Return the runs with these values, as ``of(norm="psd", balanced=None)``."""
        kept = pd.Series(True, index=self.runs.index)
        for name, value in wanted.items():
            column = self.runs[name]
            kept &= column.isna() if value is None else (column == value).fillna(False)
        runs = self.runs[kept.astype(bool)]
        subjects = self.subjects[self.subjects["run"].isin(runs["run"])]
        return replace(self, runs=runs, subjects=subjects)


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read the results of the finished runs in the folder that ``psdnorm lodo`` wrote."""
    experiment = ExperimentFolder(path)
    if not os.path.exists(experiment.path / GRID):
        raise ArgumentError(instead_of_runs(path))
    missing: dict[Run, str] = {}
    runs: list[dict[str, Any]] = []
    subjects, configs = [], []
    for found in status_of(experiment).runs:
        name, folder = found.run.name, experiment.folder(found.run)
        if found.state != DONE_STATE:
            reason = f": {found.reason}" if found.reason else ""
            missing[found.run] = f"{name} is not finished ({found.state}{reason})"
            continue
        try:
            scores, config = read_scores(folder / SCORES), read_json(folder / CONFIG)
            done = read_json(folder / DONE)
        except PsdnormError as error:
            missing[found.run] = f"{name}: {error}"
            continue
        row = {"run": len(runs), **found.run.row(), "chosen": chosen_filter_size(done)}
        row |= {"epochs": done["epochs"], "seconds": done["seconds"], "folder": folder}
        for name in ("prediction_seconds", "nights", "sequences"):
            row[name] = float(done.get(name, "nan"))
        subjects.append(scores.assign(run=len(runs)))
        runs.append(row)
        configs.append(config)
    if not runs:
        raise ArgumentError(f"{experiment.path} has no finished run, expected at least one")
    table = pd.DataFrame(runs).astype(dict.fromkeys([*ARM[2:], "chosen"], "Int64"))
    counts = pd.concat(subjects, ignore_index=True)
    computed = subject_metrics(counts).drop(columns=["cohort", "subject"])
    simulated = any(config["simulated"] for config in configs)
    merged = pd.concat([counts, computed], axis="columns")
    return Results(experiment.path, table, merged, configs[0], simulated, missing)


def instead_of_runs(path: str | os.PathLike[str]) -> str:
    """Return a sentence on what was found where the folder of runs was expected."""
    folder = Path(path).absolute()
    expected = "expected the folder of psdnorm lodo"
    if not os.path.lexists(folder):
        return f"{path} does not exist, {expected}"
    if not folder.is_dir():
        return f"{path} is not a folder, {expected}"
    if os.path.exists(folder / RECIPE):
        return f"{path} is a store of prepared nights, {expected}"
    if folder.name == CELLS and os.path.exists(folder.parent / GRID):
        return f"{path} holds the runs of {folder.parent}: give that folder"
    run = folder.parent if folder.name == WEIGHTS else folder
    if run.parent.name == CELLS and os.path.exists(run / CONFIG):
        experiment = run.parent.parent
        return f"{path} is a single run: give {experiment}, or compare two runs (psdnorm compare)"
    return runs_inside(path) or f"{path} has no {GRID}, {expected}"


def runs_inside(path: str | os.PathLike[str]) -> str | None:
    """Return a sentence that names the folders of runs in a folder, as psdnorm study writes it."""
    inside = sorted(grid.parent.name for grid in Path(path).glob(f"*/{GRID}"))
    if not inside:
        return None
    which = "one of them, " if len(inside) > 1 else ""
    return f"{path} holds the runs of {', '.join(inside)}: give {which}{Path(path, inside[0])}"


def _place(name: str, known: dict[str, str]) -> tuple:
    places = list(known)
    return places.index(name) if name in known else len(places), len(name), name


def norm_place(norm: str) -> tuple:
    """Return the sort key of a norm: in the order of the paper, then all others."""
    return _place(norm, NORM_NAMES)


def model_place(model: str) -> tuple:
    """Return the sort key of a model: in the order of the paper, then all others."""
    return _place(model, MODEL_NAMES)


def norms_in_order(norms: Iterable[str]) -> list[str]:
    """Return norms, each once, in the order of the paper."""
    return sorted(set(norms), key=norm_place)


def representative_arm(runs: pd.DataFrame) -> str:
    """Return the arm that represents a norm: the protocol's, else the one with the most runs."""
    is_protocol = runs["filter_size"].fillna(PROTOCOL_FILTER).eq(PROTOCOL_FILTER)
    is_protocol &= runs["norm_depth"].fillna(PROTOCOL_DEPTH).eq(PROTOCOL_DEPTH)
    candidates = runs[is_protocol] if is_protocol.any() else runs
    return str(candidates["arm"].value_counts().index[0])


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path to show on a page: only the end of an absolute path, which may name a user.

    >>> shown_path("runs/a"), shown_path("/home/ada/runs")
    ('runs/a', 'runs')
    """
    return Path(path).name if Path(path).is_absolute() else os.fspath(path)


def without_roots(words: str, *folders: Path) -> str:
    """Return a sentence with these folders as in :func:`shown_path`.

    >>> without_roots("/home/ada/runs/grid.json is empty", Path("/home/ada/runs"))
    'runs/grid.json is empty'
    """
    for folder in folders:
        words = words.replace(str(folder), shown_path(folder))
    return words
