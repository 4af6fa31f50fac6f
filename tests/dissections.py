"""Folders of a dissection as ``psdnorm dissect`` leaves them; scores are drawn, not predicted."""

import json

import numpy as np

import psdnorm
from psdnorm.evaluation import score_night
from psdnorm.evaluation.scores import merge_scores, write_scores
from psdnorm.experiments.grid import FORMAT
from psdnorm.lab.dissect.shifts import conditions_of
from psdnorm.prepare.recipe import RECIPES
from psdnorm.training import Run

RUNS = [Run("usleep", norm, hold_out="SHHS") for norm in ("batch", "instance", "psd")]


def written_dissection(folder):
    """Write runs and a dissection whose weights are gone; return both folders.

    BatchNorm has predicted all, PSDNorm was not ready, InstanceNorm begun.
    """
    runs, out = folder / "runs", folder / "out"
    listed = [{"cell": run.to_json(), "sequences": 1} for run in RUNS]
    for run in RUNS:
        own = runs / "cells" / run.name
        own.mkdir(parents=True)
        (own / "done.json").touch()
        (own / "config.json").write_text(json.dumps({"recipe": RECIPES["paper"].to_dict()}))
        (out / "scores" / run.name).mkdir(parents=True)
        (out / "scores" / run.name / "weights.json").touch()
    (runs / "grid.json").write_text(json.dumps({"format": FORMAT, "cells": listed}))
    nights = {"subjects": 2, "hours": 0.5, "seed": 3, "recipe": RECIPES["paper"].to_dict()}
    settings = {"format": 1, **nights, "psdnorm": psdnorm.__version__, "kinds": ["gain", "line"]}
    (out / "dissection.json").write_text(json.dumps(settings))
    for run, kinds in ((RUNS[0], ["gain", "line"]), (RUNS[2], ["gain"])):
        for condition in conditions_of(kinds):
            own = out / "scores" / run.name / condition.name
            own.mkdir()
            true = np.arange(10) % 5
            said = np.eye(5)[(true + (true < 2) * bool(condition.strength)) % 5]
            tables = [score_night(condition.name, f"00{n}", true, said) for n in range(2)]
            write_scores(own / "scores.parquet", merge_scores(tables))
    return runs, out
