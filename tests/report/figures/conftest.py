"""A folder of drawn scores, and scores by another path than the one that is tested."""

import functools

import numpy as np
import pandas as pd
import pytest
from experiment_runs import COHORTS, write_runs

from psdnorm.report.contest import contests
from psdnorm.report.results import read_results
from psdnorm.training import Run

STAGES = ("W", "N1", "N2", "N3", "REM")


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Three cohorts, five norms, three seeds."""
    path = tmp_path_factory.mktemp("figures") / "runs"
    write_runs(path)
    return path


@pytest.fixture(scope="session")
def results(runs):
    return read_results(runs)


@pytest.fixture(scope="session")
def contest(results):
    return contests(results)[0]


class Raw:
    """Scores straight from the files: loops over confusion matrices, nothing of ours."""

    def __init__(self, path):
        self.path = path

    def matrices(self, norm, cohort, seed, **run):
        name = Run("usleep", norm, hold_out=cohort, seed=seed, **run).name
        return _matrices(self.path / "cells" / name / "scores.parquet")

    def accuracies(self, norm, cohort, seed, **run):
        """Balanced accuracy of each subject in percent."""
        return {
            subject: 100 * np.mean([m[i, i] / m[i].sum() for i in range(5) if m[i].sum()])
            for subject, m in self.matrices(norm, cohort, seed, **run).items()
        }

    def subject_means(self, norm, cohorts=tuple(COHORTS), seeds=(0, 1, 2)):
        """Mean over seeds of each (cohort, subject)."""
        found = {}
        for cohort in cohorts:
            by_seed = [self.accuracies(norm, cohort, seed) for seed in seeds]
            for subject in by_seed[0]:
                found[cohort, subject] = np.mean([each[subject] for each in by_seed])
        return found

    def mean_dataset(self, norm, seed, cohorts=tuple(COHORTS), **run):
        return np.mean(
            [np.mean(list(self.accuracies(norm, c, seed, **run).values())) for c in cohorts]
        )

    def mean_subject(self, norm, seed, cohorts=tuple(COHORTS), **run):
        return np.mean([x for c in cohorts for x in self.accuracies(norm, c, seed, **run).values()])


@functools.cache
def _matrices(path):
    table = pd.read_parquet(path)
    counts = table[[f"{true}_as_{found}" for true in STAGES for found in STAGES]].to_numpy(float)
    return dict(zip(table["subject"], counts.reshape(-1, 5, 5), strict=True))


@pytest.fixture(scope="session")
def raw(runs):
    return Raw(runs)


@pytest.fixture(scope="session")
def raw_of():
    """Make a :class:`Raw` of another folder."""
    return Raw


def line(axes, label):
    """The one line of a label."""
    (found,) = [each for each in axes.lines if each.get_label() == label]
    return found


@pytest.fixture(scope="session")
def line_of():
    return line
