"""Files of studies: one that is trained in seconds, and one whose scores are drawn."""

import json

from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.lab.study import read_study
from psdnorm.lab.study.study import experiment_of

COHORTS = {"ABC": 4, "MASS": 5}
NORMS = ["batch", "psd"]


def described(**changes):
    """What the file of a study says: two cohorts, two norms."""
    known = {
        "name": "tiny",
        "about": "two cohorts, two norms",
        "store": {"subjects": dict(COHORTS), "recipe": "paper"},
        "grid": [{"norms": NORMS, "seeds": 1}],
    }
    return known | changes


def written_study(folder, **changes):
    """Write the file of a study, which JSON is good enough for; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    document = described(**changes)
    path = folder / f"{document['name']}.yaml"
    path.write_text(json.dumps(document))
    return path


def trained_study(folder, norms=("batch", "psd"), **changes):
    """Write the file of a study that is trained in seconds."""
    small = {"batch_size": 4, "max_epochs": 2, "length": 9, "stride": 5}
    return written_study(
        folder,
        store={"subjects": {"ABC": 2, "MASS": 2}, "recipe": "paper", "hours": 0.2},
        grid=[{"norms": list(norms), "seeds": 1}],
        protocol={**small, "model_arguments": {"depth": 3, "n_time_filters": 4}},
        **changes,
    )


def drawn_study(folder, work, norms=NORMS, unfinished=(), **changes):
    """Write a study and the runs that it would have left, with drawn scores; return both."""
    grid = [{"norms": list(norms), "seeds": 1}]
    study = read_study(written_study(folder, grid=grid, **changes))
    experiment = experiment_of(study, work)
    axes = [Axes(norms=tuple(norms), hold_outs=tuple(COHORTS), seeds=(0,))]
    runs = write_runs(experiment.path, axes, COHORTS, unfinished=unfinished)
    assert {*runs} == {*study.runs}
    return study, experiment
