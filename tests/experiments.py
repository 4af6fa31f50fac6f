"""Folders of runs as ``psdnorm lodo`` leaves them; scores are drawn instead of trained."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

from psdnorm.evaluation.scores import SCHEMA, score_night, score_predictions, write_scores
from psdnorm.training import Cell, Protocol
from psdnorm.training.grid import CELLS, FORMAT, GRID, Axes, grid_of
from psdnorm.training.records import write_json

COHORTS = {"ABC": 6, "CHAT": 9, "MASS": 7}
NORMS = ("batch", "layer", "instance", "tma", "psd")
# chances to be right: what a norm adds, in its order of merit
MERIT = {
    "batch": 0.0,
    "layer": -0.03,
    "instance": 0.02,
    "tma": 0.03,
    "psd": 0.06,
    "psd-white": 0.04,
}
_PREVALENCE = (0.2, 0.1, 0.4, 0.15, 0.15)


def write_runs(
    path,
    axes=None,
    cohorts=COHORTS,
    epochs=120,
    unfinished=(),
    simulated=True,
    merit=MERIT,
    keep="scores",
    subject="{:04}",
):
    """Write a folder of runs; ``unfinished`` are names of cells that have no result.

    Subjects have a difficulty of their own, the same in every cell; seeds differ a little. With
    ``keep="predictions"`` these are there, too, and scores are those of their central epochs.
    ``subject`` makes names of numbers.
    """
    path = Path(path)
    axes = axes or [Axes(norms=NORMS, hold_outs=tuple(cohorts), seeds=(0, 1, 2))]
    cells = grid_of(axes)
    protocol = Protocol().to_json()
    for cell in cells:
        folder = path / CELLS / cell.name
        if cell.name in unfinished:
            continue
        folder.mkdir(parents=True)
        if keep == "predictions":
            drawn = drawn_predictions(cell, cohorts[cell.hold_out], epochs, merit, subject)
            drawn.to_parquet(folder / "predictions.parquet", index=False)
            scores = score_predictions(drawn)
        else:
            scores = drawn_scores(cell, cohorts[cell.hold_out], epochs, merit, subject)
        write_scores(folder / "scores.parquet", scores)
        write_json(folder / "config.json", _config(cell, protocol, cohorts, simulated))
        _write_history(folder / "history.csv", cell)
        done = {"balanced_accuracy": 0.5, "subjects": cohorts[cell.hold_out], "epochs": 6}
        done |= {"best_epoch": 3, "steps": 60, "seconds": 30.0, "keep": keep}
        if cell.filter_size == "auto":
            done["filter_size_choice"] = {"filter_size": 7 + 2 * cell.seed, "table": []}
        write_json(folder / "done.json", done)
    document = {"format": FORMAT, "protocol": protocol, "recipe_sha256": "0" * 64}
    document |= {"nights": sum(cohorts.values()), "data": "0" * 64, "simulated": simulated}
    document["cells"] = [{"cell": cell.to_json(), "sequences": 100} for cell in cells]
    write_json(path / GRID, document)
    return cells


def drawn_scores(
    cell: Cell, n_subjects: int, epochs: int, merit=MERIT, subject="{:04}"
) -> pd.DataFrame:
    """Draw the scores of a cell's subjects."""
    tables = [
        score_night(cell.hold_out, subject.format(number), *_drawn(cell, number, epochs, merit))
        for number in range(n_subjects)
    ]
    return pd.concat(tables, ignore_index=True)[SCHEMA.names]


def drawn_predictions(
    cell: Cell, n_subjects: int, epochs: int, merit=MERIT, subject="{:04}"
) -> pd.DataFrame:
    """Draw predictions: some epochs unscored, the first and last of a night not central.

    The first subject has two visits.
    """
    tables = []
    for number in range(n_subjects):
        stages, p = _drawn(cell, number, epochs, merit)
        stages = np.where(np.arange(epochs) % 17 == 3, -1, stages)
        visits = np.where(np.arange(epochs) * 2 < epochs, "1", "2") if number == 0 else "1"
        central = (np.arange(epochs) >= 7) & (np.arange(epochs) < epochs - 7)
        owner = {"cohort": cell.hold_out, "subject": subject.format(number), "visit": visits}
        table = pd.DataFrame({"epoch": np.arange(epochs), "central": central, "true": stages})
        tables.append(table.assign(**owner, **{f"p{n}": p[:, n] for n in range(5)}))
    return pd.concat(tables, ignore_index=True)


def _drawn(cell, number, epochs, merit):
    """Draw true stages and probabilities of a subject."""
    subject = np.random.default_rng([1, number, *cell.hold_out.encode()])
    stages = subject.choice(5, epochs, p=_PREVALENCE)
    skill = 0.62 + 0.12 * subject.standard_normal() + merit.get(cell.norm, 0.0)
    skill += 0.01 * np.log2((cell.balanced or 1000) / 400)
    seed = np.random.default_rng([cell.seed, number, *cell.name.encode()])
    right = seed.random(epochs) < np.clip(skill + 0.01 * seed.standard_normal(), 0.05, 0.98)
    guess = np.where(right, stages, seed.integers(0, 5, epochs))
    p = np.full((epochs, 5), 0.075)
    p[np.arange(epochs), guess] = 0.7
    return stages, p


def _config(cell, protocol, cohorts, simulated):
    part = {"cohorts": [], "subjects": 0, "nights": 0, "sha256": "0" * 64}
    own = {"cohorts": [cell.hold_out], "subjects": cohorts[cell.hold_out]}
    others = {name: n for name, n in cohorts.items() if name != cell.hold_out}
    size = sum(min(n, cell.balanced or n) for n in others.values())
    train = {"cohorts": sorted(others), "subjects": round(0.8 * size)}
    return {
        "cell": cell.to_json(),
        "protocol": protocol,
        "recipe_sha256": "0" * 64,
        "data": {"train": part | train, "validation": part, "test": part | own},
        "run": "0" * 64,
        "recipe": {"name": "paper", "sfreq": 100.0, "lowpass_hz": 30.0},
        "simulated": simulated,
        "versions": {"psdnorm": "0", "torch": "0", "python": "0"},
    }


def _write_history(path, cell):
    columns = ("epoch", "step", "train_loss", "validation_loss", "validation_balanced_accuracy")
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for epoch in range(6):
            loss = 1.6 * 0.7**epoch
            table.writerow(
                [epoch, 10 * (epoch + 1), loss, loss + 0.1 + 0.02 * cell.seed, 0.3 + epoch / 12]
            )
