"""Results of each cohort and each subject: what a reader opens after the verdict."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from psdnorm.evaluation import METRICS, aggregate
from psdnorm.models.card import STAGES
from psdnorm.report.contest import METRIC, Contest
from psdnorm.report.duels import DUEL_HEAD, duel_cells, duels, percent
from psdnorm.report.naming import norm_name
from psdnorm.report.page import Part
from psdnorm.report.results import Results
from psdnorm.report.verdict import BATCH, Verdict
from psdnorm.store.atomic import written

SUBJECTS_CSV = "subjects.csv"
MOST_SUBJECTS = 20_000  # that a page holds, to stay small
_SHOWN = {
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "weighted_f1": "weighted F1",
    "cohen_kappa": "Cohen's κ × 100",
    **{f"f1_{stage}": f"F1 {stage}" for stage in STAGES},
    "calibration_error": "calibration error",
}


def subject_means(results: Results) -> pd.DataFrame:
    """Average every metric of every subject over seeds, for each arm.

    Parameters
    ----------
    results : Results

    Returns
    -------
    DataFrame
        One row per ``arm``, ``cohort`` and ``subject``: ``seeds``, the number of them, ``epochs``
        that were scored, ``missing_stages``, and the metrics.
    """
    keys = ["arm", "cohort", "subject"]
    runs = results.runs[[*keys, "epochs", "missing_stages", *METRICS]]
    grouped = runs.groupby(keys, sort=True)
    means = grouped[["epochs", "missing_stages", *METRICS]].mean()
    means.insert(0, "seeds", grouped.size())
    whole = {"epochs": np.int64, "missing_stages": np.int64}  # the same in every seed
    return means.astype(whole).reset_index()


def write_subjects(means: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write the scores of all subjects as CSV, as shares, whole or not at all."""
    with written(Path(path)) as file:
        means.to_csv(file, index=False, float_format="%.6g")


def add_cohorts(
    page: Part, results: Results, verdict: Verdict, subjects: pd.DataFrame, beside: str
) -> None:
    """Add what can be folded out: one part per cohort, with all metrics and all subjects.

    Parameters
    ----------
    page : Part
    results : Results
    verdict : Verdict
        Of the contest whose arms are shown.
    subjects : DataFrame
        From :func:`subject_means`.
    beside : str
        Path of the table of all subjects, from the page.
    """
    contest = verdict.contest
    arms = contest.arms | contest.dropped
    table = aggregate(results.runs[results.runs["arm"].isin(arms.values())], by=["arm"])
    by_arm = table.set_index(["arm", "metric", "dataset"])[["mean", "std"]]
    everybody = max(MOST_SUBJECTS, len(subjects[["cohort", "subject"]].drop_duplicates()))
    for cohort in sorted(subjects["cohort"].unique()):
        people = subjects[(subjects["cohort"] == cohort) & subjects["arm"].isin(arms.values())]
        if people.empty:
            continue
        part = page.part()
        rows = _metric_rows(by_arm, arms, str(cohort))
        head = ["norm", *_SHOWN.values()]
        part.table(f"{cohort}: %, mean over subjects and seeds ± over seeds", head, rows)
        _add_gains(part, contest, str(cohort))
        columns, lines = _subject_rows(people, arms, verdict.focus)
        n = len(lines)
        most = max(1, MOST_SUBJECTS * n // everybody)
        if most < n:
            lines = sorted(lines, key=lowest_first)[:most]
            part.text(f"The {most:,} lowest of {n:,} subjects; all are in {beside}.", "note")
        part.subjects(
            f"Subjects of {cohort}: balanced accuracy, %, mean over seeds",
            columns,
            lines,
            1,
            f"Without scripts, subjects are not listed here: see {beside}.",
        )
        page.fold(f"{cohort}: {n:,} subject{'s' * (n != 1)}", part)


def _metric_rows(by_arm: pd.DataFrame, arms: dict[str, str], cohort: str) -> list[list[str]]:
    rows = []
    for norm, arm in arms.items():
        cells = []
        for metric in _SHOWN:
            key = (arm, metric, cohort)
            mean, std = by_arm.loc[key] if key in by_arm.index else (np.nan, np.nan)
            deviation = "" if np.isnan(std) else f" ± {percent(std)}"
            cells.append(percent(mean) + deviation)
        rows.append([norm_name(norm), *cells])
    return rows


def _add_gains(part: Part, contest: Contest, cohort: str) -> None:
    """Add the gains over BatchNorm in one cohort, where there are any."""
    values = contest.subjects
    values = values[values.index.get_level_values("cohort") == cohort]
    if BATCH not in values or values.shape[1] < 2 or values.empty:
        part.text("No gain over BatchNorm can be told here.", "note")
        return
    found = duels(values, BATCH)
    rows = [[norm_name(norm), *duel_cells(duel)] for norm, duel in found.items()]
    part.table(f"{cohort}: gain over BatchNorm, points", ["norm", *DUEL_HEAD], rows)
    part.text(next(iter(found.values())).caption, "note")


def _subject_rows(
    people: pd.DataFrame, arms: dict[str, str], focus: str
) -> tuple[list[tuple[str, str]], Sequence[Sequence[Any]]]:
    """Return columns and rows for the table of a cohort's subjects."""
    norm_of = {arm: norm for norm, arm in arms.items()}
    wide = people.assign(norm=people["arm"].map(norm_of)).pivot(
        index="subject", columns="norm", values=METRIC
    )
    norms = [norm for norm in arms if norm in wide]
    about = people.drop_duplicates("subject").set_index("subject").loc[wide.index]
    hundredths = (10_000 * wide[norms]).round()
    columns = [(norm_name(norm), "percent") for norm in norms]
    if focus in norms and BATCH in norms and focus != BATCH:
        columns.insert(0, (f"{norm_name(focus)} − BatchNorm", "gain"))
        hundredths.insert(0, "gain", (10_000 * (wide[focus] - wide[BATCH])).round())
    columns = [("subject", "text"), *columns, ("epochs", "count"), ("stages lacking", "count")]
    numbers = hundredths.assign(epochs=about["epochs"], lacking=about["missing_stages"])
    return columns, whole_rows(numbers)


def whole_rows(numbers: pd.DataFrame) -> list[list[Any]]:
    """Return a table of whole numbers as rows that JSON holds: the index first, None for NaN."""
    known = numbers.notna().to_numpy()
    values = numbers.fillna(0).to_numpy(np.int64).astype(object)
    values[~known] = None
    return [[str(name), *row] for name, row in zip(numbers.index, values.tolist(), strict=True)]


def lowest_first(row: Sequence[Any]) -> tuple[bool, float]:
    """Return what sorts rows by their second entry; those without come last."""
    return row[1] is None, row[1] or 0
