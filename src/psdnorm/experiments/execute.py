"""An experiment: a grid of cells on a store, and what came of it."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from psdnorm.errors import ArgumentError
from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate, read_scores, subject_metrics
from psdnorm.experiments.estimate import Amounts
from psdnorm.experiments.grid import Runs, units_of
from psdnorm.experiments.places import run_units
from psdnorm.experiments.work import Job, Outcome, Told
from psdnorm.runtime.parallel import check_scheduler
from psdnorm.store import Store
from psdnorm.training.adabn import base_of
from psdnorm.training.cell import AUTO, Cell, Protocol, read_json
from psdnorm.training.network import check_model
from psdnorm.training.process import resolve_device
from psdnorm.training.run import KEEP, check_cohorts, split_of
from psdnorm.training.run_folder import DONE, SCORES

if TYPE_CHECKING:
    import pandas as pd


def cohorts_to_hold_out(store: Store, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the cohorts to hold out one after the other; refuse those that are not there.

    Parameters
    ----------
    store : Store
    wanted : sequence of str
        All cohorts of the store if there are none.
    """
    cohorts = sorted(store.index["cohort"].unique())
    if len(cohorts) < 2:
        raise ArgumentError(
            f"{store.path} has {len(cohorts)} cohort{'s' * (len(cohorts) != 1)}, expected two at "
            "least: one is held out, the others train"
        )
    check_cohorts(store, wanted)
    return tuple(wanted) or tuple(cohorts)


def run_grid(
    store: Store,
    cells: Sequence[Cell],
    protocol: Protocol | None = None,
    runs: Runs | str | os.PathLike[str] = "runs",
    *,
    device: str = "auto",
    fast: bool | str = "auto",
    keep: str = "scores",
    jobs: int = 1,
    gpus: Sequence[str] = (),
    dask: str | None = None,
    save_every_s: float = 300.0,
    told: Told = lambda name, words: None,
) -> Iterator[Outcome]:
    """Run the cells of a grid: what is finished stays, what was interrupted goes on.

    A cell that fails leaves its reason in its folder and does not stop the others; it is tried
    again the next time.

    Parameters
    ----------
    store : Store
    cells : sequence of Cell
        From :func:`psdnorm.experiments.grid.grid_of`.
    protocol : Protocol, optional
    runs : Runs or path
        The folder of the experiment; one that has other cells gets these besides.
    device, fast, keep, save_every_s
        As in :func:`psdnorm.training.run_cell`.
    jobs, gpus, dask, told
        Where it runs, see :func:`psdnorm.experiments.places.run_units`.

    Yields
    ------
    Outcome
        One for each cell, as they come.

    Raises
    ------
    ArgumentError
        Before anything is written, see :func:`check_grid`; or if no scheduler answers that some
        cell needs.
    """
    protocol = protocol or Protocol()
    runs = runs if isinstance(runs, Runs) else Runs(runs)
    # a cluster's devices are not this machine's
    check_grid(store, cells, protocol, runs, device=None if dask else device, keep=keep)
    if dask is not None and not all(map(runs.is_done, cells)):
        check_scheduler(dask)
    amounts = Amounts(store, protocol)
    runs.extend(store, protocol, [amounts.entry(cell) for cell in cells])
    job = Job(store, runs, protocol, device, fast, keep, save_every_s)
    return run_units(units_of(cells), job, jobs=jobs, gpus=gpus, dask=dask, told=told)


def check_grid(
    store: Store,
    cells: Sequence[Cell],
    protocol: Protocol,
    runs: Runs,
    *,
    device: str | None = None,
    keep: str = "scores",
) -> None:
    """Refuse a grid that cannot be run as it is asked for; nothing is written.

    That is: a folder of other settings, finished cells that kept less, cohorts that are not there,
    a device that this machine has not, and cells whose network cannot be built or run or that leave
    nobody to learn from.

    Parameters
    ----------
    store : Store
    cells : sequence of Cell
    protocol : Protocol
    runs : Runs
    device : str, optional
        Where it runs on this machine.
    keep : {"scores", "predictions", "weights"}
    """
    check_keep(runs, cells, keep)
    cohorts_to_hold_out(store, sorted({cell.hold_out for cell in cells}))
    runs.check(store, protocol)
    if device is not None:
        resolve_device(device)
    left = [cell for cell in cells if not runs.is_done(cell)]
    trained = map(base_of, left)
    shapes = {(c.model, c.norm, c.filter_size, c.norm_depth): c for c in trained}
    for cell in shapes.values():
        check_model(cell, protocol, store.layout)
    splits = {(c.hold_out, c.balanced, c.seed, c.filter_size == AUTO): c for c in left}
    for cell in splits.values():
        split_of(store, cell, protocol)


def check_keep(runs: Runs, cells: Sequence[Cell], keep: str) -> None:
    """Refuse to keep more than finished cells did: they are not run again.

    Parameters
    ----------
    runs : Runs
    cells : sequence of Cell
    keep : {"scores", "predictions", "weights"}
    """
    if keep not in KEEP:
        raise ArgumentError(f"keep is {keep!r}, expected one of {', '.join(KEEP)}")
    less = []
    for cell in cells:
        if runs.is_done(cell):
            kept = read_json(runs.folder(cell) / DONE)["keep"]
            if KEEP.index(kept) < KEEP.index(keep):
                less.append((cell, kept))
    if less:
        cell, kept = less[0]
        raise ArgumentError(
            f"keep is {keep!r}, but {len(less)} finished cells in {runs.path} kept less, such as "
            f"{cell.name} with {kept!r}: delete their folders to run them again"
        )


def label(cell: Cell) -> str:
    """Say what a cell is, but for its cohort and seed.

    Parameters
    ----------
    cell : Cell

    Examples
    --------
    >>> label(Cell("usleep", "psd", balanced=400))
    'usleep psd f5 d3 @400'
    """
    parts = [cell.model, cell.norm]
    parts += [] if cell.filter_size is None else [f"f{cell.filter_size}"]
    parts += [] if cell.norm_depth is None else [f"d{cell.norm_depth}"]
    return " ".join([*parts, f"@{cell.balanced or 'all'}"])


def means(
    runs: Runs, cells: Sequence[Cell], metric: str = "balanced_accuracy"
) -> dict[str, dict[str, tuple[float, float]]]:
    """Average what finished cells came to, see :func:`psdnorm.evaluation.aggregate`.

    Parameters
    ----------
    runs : Runs
    cells : sequence of Cell
        Those that are not finished are left out.
    metric : str

    Returns
    -------
    dict of str to dict
        By :func:`label`, in the order of ``cells``: mean and standard deviation over seeds, by
        "Mean(Dataset)" and "Mean(Subject)". NaN where no seed has all cohorts of the grid.
    """
    tables = [_scored(runs, cell, metric) for cell in cells if runs.is_done(cell)]
    if not tables:
        return {}
    import pandas as pd

    cohorts = {label(cell): set[str]() for cell in cells}
    for cell in cells:
        cohorts[label(cell)].add(cell.hold_out)
    table = aggregate(pd.concat(tables), by=["label"])
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name in cohorts:
        rows = table[table["label"] == name].set_index("dataset")
        for mean in (MEAN_DATASET, MEAN_SUBJECT) if len(rows) else ():
            row = rows.loc[mean]
            whole = row["datasets"] == len(cohorts[name])
            figures = (float(row["mean"]), float(row["std"]))
            found.setdefault(name, {})[mean] = figures if whole else (float("nan"),) * 2
    return found


def _scored(runs: Runs, cell: Cell, metric: str) -> "pd.DataFrame":
    scores = subject_metrics(read_scores(runs.folder(cell) / SCORES))
    return scores[["cohort", "subject", metric]].assign(label=label(cell), seed=cell.seed)
