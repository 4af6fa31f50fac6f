"""Small folders of runs, and their scores by a path of their own."""

import functools

import numpy as np
import pandas as pd
import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.report.results import read_results
from psdnorm.report.tables import build_tables

COHORTS = {"ABC": 4, "CHAT": 5}
STAGES = ("W", "N1", "N2", "N3", "REM")
MAIN = ("batch", "layer", "instance", "tma", "psd")


def axes(**wanted):
    return Axes(**{"norms": MAIN, "hold_outs": tuple(COHORTS), "seeds": (0, 1)} | wanted)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A folder with some runs of every table."""
    path = tmp_path_factory.mktemp("whole")
    white = ("batch", "psd-white", "adabn3", "adabn7")
    blocks = [
        axes(),
        axes(norms=white, balanced=(400,)),
        axes(norms=("batch", "psd", "layer"), filter_sizes=(5, 15), balanced=(40,)),
        axes(norms=("psd",), norm_depths=(1, 3), filter_sizes=(5, 9)),
        axes(norms=("batch", "layer", "psd"), models=("cnn-transformer",), balanced=(400,)),
    ]
    write_runs(path, blocks, COHORTS, epochs=25)
    return path


@pytest.fixture(scope="session")
def results(whole):
    return read_results(whole)


@pytest.fixture(scope="session")
def built(results):
    return build_tables(results)


@pytest.fixture(scope="session")
def tables(built):
    return {table.name: table for table in built.tables}


def ours(table):
    """The numbers of ours in a table, by what they are of."""
    return [entry for row in table.rows for entry in row if entry.facts.get("block") == "ours"]


def blocks(table):
    """The rows of a table by their headings."""
    found = []
    for row in table.rows:
        if len(row) == 1:
            found.append((row[0].text, []))
        else:
            found[-1][1].append(row)
    return found


def by_hand(path, name, metric):
    """Score the held-out subjects of a run one by one, by the book."""
    return [_subject(row, metric) for row in _counts(path / "cells" / name / "scores.parquet")]


@functools.cache
def _counts(path):
    return pd.read_parquet(path).to_dict("records")


def _subject(row, metric):
    matrix = [[row[f"{true}_as_{guess}"] for guess in STAGES] for true in STAGES]
    right = [matrix[k][k] for k in range(5)]
    true = [sum(line) for line in matrix]
    guessed = [sum(column) for column in zip(*matrix, strict=True)]
    n = sum(true)
    f1 = {s: 2 * right[s] / (true[s] + guessed[s]) for s in range(5) if true[s] + guessed[s]}
    if metric == "accuracy":
        return sum(right) / n
    if metric == "balanced_accuracy":
        return np.mean([right[s] / true[s] for s in range(5) if true[s]])
    if metric == "macro_f1":
        return np.mean([*f1.values()])
    if metric == "weighted_f1":
        return sum(true[s] / n * score for s, score in f1.items())
    if metric == "cohen_kappa":
        chance = sum(t * g for t, g in zip(true, guessed, strict=True)) / n**2
        return (sum(right) / n - chance) / (1 - chance)
    if metric == "calibration_error":
        bins = range(sum(key.endswith("_correct") for key in row))
        gaps = (row[f"bin_{b:02}_correct"] - row[f"bin_{b:02}_confidence"] for b in bins)
        return sum(map(abs, gaps)) / n
    return f1.get(STAGES.index(metric.removeprefix("f1_")), np.nan)
