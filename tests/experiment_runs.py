"""Folders of runs as ``psdnorm lodo`` leaves them; scores are drawn instead of trained."""

import csv
import functools
import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from psdnorm.evaluation.scores import SCHEMA, score_predictions
from psdnorm.experiments.grid import CELLS, FORMAT, GRID, Axes, grid_of
from psdnorm.training import Protocol, Run

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
    """Write a folder of runs; ``unfinished`` are names of runs that have no result.

    Subjects have a difficulty of their own, the same in every run; seeds differ a little. With
    ``keep="predictions"`` these are there, too, and scores are those of their central epochs.
    ``subject`` makes names of numbers, ``merit`` may have a norm's filter size of its own.
    """
    path = Path(path)
    axes = axes or [Axes(norms=NORMS, hold_outs=tuple(cohorts), seeds=(0, 1, 2))]
    runs = grid_of(axes)
    protocol = Protocol().to_json()
    for run in runs:
        folder = path / CELLS / run.name
        if run.name in unfinished:
            continue
        folder.mkdir(parents=True)
        of_norm = merit.get((run.norm, run.filter_size), merit.get(run.norm, 0.0))
        drawn = _drawn_files(run, cohorts[run.hold_out], epochs, of_norm, keep, subject)
        for name, content in drawn.items():
            (folder / name).write_bytes(content)
        _write_json(folder / "config.json", _config(run, protocol, cohorts, simulated))
        _write_history(folder / "history.csv", run)
        done = {"balanced_accuracy": 0.5, "subjects": cohorts[run.hold_out], "epochs": 6}
        done |= {"best_epoch": 3, "steps": 60, "seconds": 30.0, "keep": keep}
        if run.filter_size == "auto":
            done["filter_size_choice"] = {"filter_size": 7 + 2 * run.seed, "table": []}
        _write_json(folder / "done.json", done)
    document = {"format": FORMAT, "protocol": protocol, "recipe_sha256": "0" * 64}
    document |= {"nights": sum(cohorts.values()), "data": "0" * 64, "simulated": simulated}
    document["cells"] = [{"cell": run.to_json(), "sequences": 100} for run in runs]
    _write_json(path / GRID, document)
    return runs


@functools.cache
def _drawn_files(run: Run, n_subjects, epochs, merit, keep, subject) -> dict[str, bytes]:
    """Draw what a run keeps, by name of file; many folders have the same runs."""
    nights = [_drawn(run, number, epochs, merit) for number in range(n_subjects)]
    names = [subject.format(number) for number in range(n_subjects)]
    predictions = _predictions(run.hold_out, names, nights, partly=keep == "predictions")
    scores = score_predictions(predictions)
    columns = {name: scores[name].to_numpy() for name in SCHEMA.names}
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pydict(columns, SCHEMA), content, compression="zstd")
    files = {"scores.parquet": content.getvalue()}
    if keep == "predictions":
        files["predictions.parquet"] = predictions.to_parquet(index=False)
    return files


def _predictions(cohort, names, nights, partly) -> pd.DataFrame:
    """Predictions of subjects' (stages, probabilities); ``partly``, not every epoch counts.

    Then some are unscored, the first and last of a night are not central, and the first subject
    has two visits.
    """
    n_epochs = len(nights[0][0])
    epoch = np.tile(np.arange(n_epochs), len(names))
    true, p = map(np.concatenate, zip(*nights, strict=True))
    central, visit = np.ones(epoch.shape, bool), np.full(epoch.shape, "1")
    if partly:
        true = np.where(epoch % 17 == 3, -1, true)
        central = (epoch >= 7) & (epoch < n_epochs - 7)
        visit[:n_epochs][epoch[:n_epochs] * 2 >= n_epochs] = "2"
    owner = {"cohort": cohort, "subject": np.repeat(names, n_epochs), "visit": visit}
    table = pd.DataFrame({"epoch": epoch, "central": central, "true": true} | owner)
    return table.assign(**{f"p{n}": p[:, n] for n in range(5)})


def _drawn(run, number, epochs, merit):
    """Draw true stages and probabilities of a subject."""
    subject = np.random.default_rng([1, number, *run.hold_out.encode()])
    stages = subject.choice(5, epochs, p=_PREVALENCE)
    skill = 0.62 + 0.12 * subject.standard_normal() + merit
    skill += 0.01 * np.log2((run.balanced or 1000) / 400)
    seed = np.random.default_rng([run.seed, number, *run.name.encode()])
    right = seed.random(epochs) < np.clip(skill + 0.01 * seed.standard_normal(), 0.05, 0.98)
    guess = np.where(right, stages, seed.integers(0, 5, epochs))
    p = np.full((epochs, 5), 0.075)
    p[np.arange(epochs), guess] = 0.7
    return stages, p


def _write_json(path, document):
    """Write as the runs do, but not against power cuts: discs take their time for that."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_bytes(text.encode())


def _config(run, protocol, cohorts, simulated):
    part = {"cohorts": [], "subjects": 0, "nights": 0, "sha256": "0" * 64}
    own = {"cohorts": [run.hold_out], "subjects": cohorts[run.hold_out]}
    others = {name: n for name, n in cohorts.items() if name != run.hold_out}
    size = sum(min(n, run.balanced or n) for n in others.values())
    train = {"cohorts": sorted(others), "subjects": round(0.8 * size)}
    return {
        "cell": run.to_json(),
        "protocol": protocol,
        "recipe_sha256": "0" * 64,
        "data": {"train": part | train, "validation": part, "test": part | own},
        "run": "0" * 64,
        "recipe": {"name": "paper", "sfreq": 100.0, "lowpass_hz": 30.0},
        "simulated": simulated,
        "versions": {"psdnorm": "0", "torch": "0", "python": "0"},
    }


def _write_history(path, run):
    columns = ("epoch", "step", "train_loss", "validation_loss", "validation_balanced_accuracy")
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for epoch in range(6):
            loss = 1.6 * 0.7**epoch
            table.writerow(
                [epoch, 10 * (epoch + 1), loss, loss + 0.1 + 0.02 * run.seed, 0.3 + epoch / 12]
            )
