"""Means over subjects and datasets, and their spread over seeds, as the paper takes them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.scores import METRICS

MEAN_DATASET, MEAN_SUBJECT = "Mean(Dataset)", "Mean(Subject)"


def aggregate(runs: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Average the metrics of subjects, per dataset and over datasets.

    In each seed, a dataset's value is the mean over its subjects, Mean(Dataset) the mean of these
    values and Mean(Subject) the mean over all subjects; what is printed as ± is the standard
    deviation of these over seeds (ddof = 1). A subject of whom a metric is undefined does not count
    in it. A seed that lacks one of the datasets has no mean over datasets or subjects: it would be
    one of other people.

    Parameters
    ----------
    runs : DataFrame
        :func:`~psdnorm.evaluation.scores.subject_metrics` of every run, with a column ``seed`` and
        those of ``by``. Any of the metrics may be absent.
    by : sequence of str
        What else tells runs apart, such as ``["model", "norm"]``: each is averaged by itself.

    Returns
    -------
    DataFrame
        One row per combination of ``by``, ``metric`` and ``dataset`` (a cohort, or one of the two
        means): ``mean`` and ``std`` over seeds (NaN for a single one), the number of ``seeds``, of
        ``datasets``, and of ``subjects`` (where seeds differ, the fewest).
    """
    keys = [*by, "seed", "cohort", "subject"]
    lacking = [name for name in keys if name not in runs]
    if lacking:
        raise ArgumentError(f"runs lack the columns {', '.join(lacking)}")
    found = [name for name in METRICS if name in runs]
    if not found or runs.empty:
        raise ArgumentError(f"runs has {len(runs)} rows and {len(found)} metrics, expected some")
    unknown = runs[["seed", "cohort", "subject"]].isna().any()
    if unknown.any():
        raise ArgumentError(f"runs has rows without {unknown.idxmax()}")
    twice = runs.duplicated(keys)
    if twice.any():
        row = ", ".join(f"{name} {runs.loc[twice, name].iloc[0]}" for name in keys)
        raise ArgumentError(f"runs has {row} more than once: name what tells them apart in by")
    groups = runs.groupby(list(by), sort=True, dropna=False) if by else [((), runs)]
    rows = [
        {**dict(zip(by, names, strict=True)), "metric": metric, **row}
        for names, group in groups
        for metric in found
        for row in _rows(group, metric)
    ]
    return pd.DataFrame(rows)


def _rows(runs: pd.DataFrame, metric: str) -> list[dict[str, object]]:
    """Return the values of one metric: of each dataset, then the two means."""
    grouped = runs.groupby(["seed", "cohort"])[metric]
    means = grouped.mean().unstack("cohort")  # seeds by datasets
    counts = grouped.count().unstack("cohort", fill_value=0)
    rows = [_row(str(cohort), means[cohort], counts[cohort], 1) for cohort in means.columns]
    means = means.dropna(axis="columns", how="all")  # undefined for all subjects of these
    complete = means.dropna()
    counts = counts.loc[complete.index, complete.columns]
    people = counts.sum(axis=1)
    over_subjects = (complete * counts).sum(axis=1) / people
    n_datasets = len(means.columns)
    return [
        *rows,
        _row(MEAN_DATASET, complete.mean(axis=1), people, n_datasets),
        _row(MEAN_SUBJECT, over_subjects, people, n_datasets),
    ]


def _row(
    dataset: str, values: "pd.Series[float]", subjects: "pd.Series[int]", n_datasets: int
) -> dict[str, object]:
    """Return mean and spread of one value per seed."""
    values = values.dropna()
    return {
        "dataset": dataset,
        "mean": float(values.mean()) if len(values) else np.nan,
        "std": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
        "seeds": len(values),
        "datasets": n_datasets,
        "subjects": int(subjects[values.index].min()) if len(values) else 0,
    }
