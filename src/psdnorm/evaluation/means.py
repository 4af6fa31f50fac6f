"""Means over subjects and datasets, and their spread over seeds, as in the paper."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.evaluation.scores import METRICS, check_columns, check_rows

MEAN_DATASET, MEAN_SUBJECT = "Mean(Dataset)", "Mean(Subject)"


def overall_means(scores: Any, by: Sequence[str] = ()) -> dict[str, Any]:
    """Average scores over datasets, each the mean of its subjects, and over all subjects.

    ``scores`` is a Series or DataFrame with an index level ``cohort`` and the levels in ``by``, by
    which the averages are grouped. NaN is ignored, as is a dataset with only NaN.

    Examples
    --------
    >>> subjects = pd.MultiIndex.from_tuples([("ABC", "1"), ("ABC", "2"), ("CHAT", "1")])
    >>> scores = pd.Series([0.5, 0.7, 0.9], subjects.set_names(["cohort", "subject"]))
    >>> {name: round(float(mean), 2) for name, mean in overall_means(scores).items()}
    {'Mean(Dataset)': 0.75, 'Mean(Subject)': 0.7}
    """
    datasets = scores.groupby(level=[*by, "cohort"], observed=True).mean()
    if by:
        datasets, scores = (each.groupby(level=[*by], observed=True) for each in (datasets, scores))
    return {MEAN_DATASET: datasets.mean(), MEAN_SUBJECT: scores.mean()}


def aggregate(runs: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Average the metrics of subjects, per dataset and over datasets.

    In each seed, a dataset's value is the mean over its subjects; :func:`overall_means` gives the
    other two. Subjects with an undefined metric are excluded from its mean. A seed without all
    datasets has no mean over datasets or subjects, as it would be over different people.

    Parameters
    ----------
    runs : DataFrame
        :func:`subject_metrics` of every run, with ``seed`` and the columns of ``by``.
    by : sequence of str
        Other columns that distinguish runs, such as ``["model", "norm"]``, to group the averages.

    Returns
    -------
    DataFrame
        One row per combination of ``by``, ``metric`` and ``dataset`` (a cohort, or one of the two
        means): ``mean`` and ``std`` over seeds (ddof = 1, NaN for a single one), the number of
        ``seeds``, of ``datasets``, and of ``subjects`` (the minimum if seeds differ).
    """
    keys = [*by, "seed", "cohort", "subject"]
    check_columns("runs", runs, keys)
    found = [name for name in METRICS if name in runs]
    if not found or runs.empty:
        raise ArgumentError(f"runs has {len(runs)} rows and {len(found)} metrics, expected some")
    hint = ": name what tells them apart in by"
    check_rows("runs", runs, ["seed", "cohort", "subject"], by, hint)
    groups = runs.groupby(list(by), sort=True, dropna=False) if by else [((), runs)]
    rows = [
        {**dict(zip(by, names, strict=True)), "metric": metric, **row}
        for names, group in groups
        for metric in found
        for row in _rows(group.set_index(["seed", "cohort", "subject"])[metric])
    ]
    return pd.DataFrame(rows)


def _rows(scores: "pd.Series[float]") -> list[dict[str, object]]:
    datasets = scores.groupby(level=["seed", "cohort"])
    means = datasets.mean().unstack("cohort")  # seeds by datasets
    counts = datasets.count().unstack("cohort", fill_value=0)
    rows = [_row(str(cohort), means[cohort], counts[cohort], 1) for cohort in means.columns]
    means = means.dropna(axis="columns", how="all")  # undefined for all their subjects
    seeds = means.dropna().index
    people = counts.loc[seeds, means.columns].sum(axis=1)
    whole = scores[scores.index.isin(seeds, level="seed")]
    both = overall_means(whole, by=["seed"])
    return [*rows, *(_row(name, each, people, means.shape[1]) for name, each in both.items())]


def _row(
    dataset: str, values: "pd.Series[float]", subjects: "pd.Series[int]", n_datasets: int
) -> dict[str, object]:
    values = values.dropna()
    return {
        "dataset": dataset,
        "mean": float(values.mean()) if len(values) else np.nan,
        "std": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
        "seeds": len(values),
        "datasets": n_datasets,
        "subjects": int(subjects[values.index].min()) if len(values) else 0,
    }
