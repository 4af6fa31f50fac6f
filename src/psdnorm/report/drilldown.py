"""Subjects and confusions below the tables."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from psdnorm.constants import STAGES
from psdnorm.evaluation import CONFUSION, METRICS, aggregate, confusions_of
from psdnorm.present import Part
from psdnorm.report.results import Results
from psdnorm.report.verdict import (
    BATCH,
    DUEL_HEAD,
    METRIC,
    Contest,
    Verdict,
    duel_cells,
    duels,
    percent,
)
from psdnorm.runtime import listed, written
from psdnorm.training import norm_name


def confusion_matrix(scores: pd.DataFrame) -> NDArray[np.int64]:
    """Sum the confusion matrices of scores, (5, 5): rows are true stages, columns predicted.

    Parameters
    ----------
    scores : DataFrame
        Of ``Results.subjects``.
    """
    return confusions_of(scores[CONFUSION]).sum(axis=0)


def add_confusions(part: Part, scores: pd.DataFrame, arms: dict[str, str], over: str) -> None:
    """Add the confusion matrix of every norm, beside each other.

    Parameters
    ----------
    part : Part
    scores : DataFrame
        Of ``Results.subjects``, with the column ``arm``; those that count in one cohort.
    arms : dict of str to str
        The arm of each norm.
    over : str
        What was summed over, in words.
    """
    matrices = part.part()
    for norm, arm in arms.items():
        own = scores[scores["arm"] == arm]
        if len(own):
            caption = f"{norm_name(norm)}: predicted stages, % of true"
            matrices.matrix(caption, STAGES, _entries(confusion_matrix(own)))
    part.beside(matrices)
    part.text(f"Epochs are summed over {over}; each entry tells their number.", "note")


def _entries(counts: NDArray[np.int64]) -> list[list[tuple[str, str]]]:
    return [
        [(f"{100 * n / total:.1f}" if total else "–", f"{n:,} of {total:,} epochs") for n in row]
        for row, total in zip(counts.tolist(), counts.sum(axis=1).tolist(), strict=True)
    ]


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
    arms = verdict.contest.arms | verdict.contest.dropped
    everybody = max(MOST_SUBJECTS, len(subjects[["cohort", "subject"]].drop_duplicates()))
    for cohort in sorted(subjects["cohort"].unique()):
        people = subjects[(subjects["cohort"] == cohort) & subjects["arm"].isin(arms.values())]
        if people.empty:
            continue
        part = page.part()
        basis = _basis(results, verdict.contest, str(cohort))
        _add_metrics(part, basis, arms)
        _add_gains(part, verdict.contest, str(cohort))
        add_confusions(part, basis.scores, arms, f"subjects and {basis.seeds}")
        columns, lines = _subject_rows(people, arms, verdict)
        n = len(lines)
        most = max(1, MOST_SUBJECTS * n // everybody)
        if most < n:
            lines = sorted(lines, key=lowest_first)[:most]
            part.text(f"The {most:,} lowest of {n:,} subjects; all are in {beside}.", "note")
        part.subjects(
            f"Subjects of {cohort}: balanced accuracy, %, mean over {basis.seeds}",
            columns,
            lines,
            1,
            f"Without scripts, subjects are not listed here: see {beside}.",
        )
        page.fold(f"{cohort}: {n:,} subject{'s' * (n != 1)}", part)


@dataclass(frozen=True, eq=False)
class _Basis:
    """The scores that count in one cohort.

    Attributes
    ----------
    cohort : str
    scores : DataFrame
        Rows of ``Results.subjects`` with ``arm`` and ``seed``: of the norms of the contest those
        that all of them have, where there are any; all scores of the norms that it dropped.
    seeds : str
        Over which seeds means are, in words.
    """

    cohort: str
    scores: pd.DataFrame
    seeds: str


def _basis(results: Results, contest: Contest, cohort: str) -> _Basis:
    """Choose scores so that every table of a cohort, and its gains, are of the same ones."""
    arms = contest.arms | contest.dropped
    cells = results.cells[results.cells["arm"].isin(arms.values())][["cell", "arm", "seed"]]
    own = results.subjects[results.subjects["cohort"] == cohort].merge(cells, on="cell")
    table = contest.tables.by_seed.dropna()
    shared = table[table.index.get_level_values("cohort") == cohort].index.droplevel("cohort")
    if not len(shared):
        return _Basis(cohort, own, "the seeds that each norm has, as none is shared by all")
    is_shared = pd.MultiIndex.from_frame(own[["subject", "seed"]]).isin(shared)
    is_dropped = own["arm"].isin(contest.dropped.values())
    numbers = listed([str(seed) for seed in sorted(shared.unique("seed"))])
    if is_dropped.any():
        numbers += f"; {listed([norm_name(norm) for norm in contest.dropped])}: all seeds"
    words = f"the seeds that all norms have ({numbers})"
    return _Basis(cohort, own[is_shared | is_dropped], words)


def _add_metrics(part: Part, basis: _Basis, arms: dict[str, str]) -> None:
    """Add the table of all metrics in one cohort."""
    table = aggregate(basis.scores, by=["arm"])
    by_arm = table.set_index(["arm", "metric", "dataset"])[["mean", "std"]]
    rows = []
    for norm, arm in arms.items():
        cells = []
        for metric in _SHOWN:
            key = (arm, metric, basis.cohort)
            mean, std = by_arm.loc[key] if key in by_arm.index else (np.nan, np.nan)
            deviation = "" if np.isnan(std) else f" ± {percent(std)}"
            cells.append(percent(mean) + deviation)
        rows.append([norm_name(norm), *cells])
    caption = f"{basis.cohort}: %, mean over subjects and {basis.seeds} ± over seeds"
    part.table(caption, ["norm", *_SHOWN.values()], rows)


def _add_gains(part: Part, contest: Contest, cohort: str) -> None:
    """Add the gains over BatchNorm in one cohort, where there are any."""
    values = contest.tables.by_seed.dropna()
    values = values[values.index.get_level_values("cohort") == cohort]
    if BATCH not in values or values.shape[1] < 2 or values.empty:
        part.text("No gain over BatchNorm can be told here.", "note")
        return
    found = duels(values, BATCH)
    rows = [[norm_name(norm), *duel_cells(duel)] for norm, duel in found.items()]
    part.table(f"{cohort}: gain over BatchNorm, points", ["norm", *DUEL_HEAD], rows)
    part.text(next(iter(found.values())).caption, "note")


def _subject_rows(
    people: pd.DataFrame, arms: dict[str, str], verdict: Verdict
) -> tuple[list[tuple[str, str]], Sequence[Sequence[Any]]]:
    """Return columns and rows for the table of a cohort's subjects.

    Who has scores in the same seeds under all norms is shown with these, and with a gain; anybody
    else with the means over all seeds.
    """
    norm_of = {arm: norm for norm, arm in arms.items()}
    wide = people.assign(norm=people["arm"].map(norm_of)).pivot(
        index="subject", columns="norm", values=METRIC
    )
    values = verdict.contest.subjects
    values = values[values.index.get_level_values("cohort") == people["cohort"].iloc[0]]
    shared = values.droplevel("cohort")
    wide.update(shared)
    focus, norms = verdict.focus, [norm for norm in arms if norm in wide]
    about = people.drop_duplicates("subject").set_index("subject").loc[wide.index]
    hundredths = (10_000 * wide[norms]).round()
    columns = [(norm_name(norm), "percent") for norm in norms]
    if focus in shared and BATCH in shared and focus != BATCH:
        columns.insert(0, (f"{norm_name(focus)} − BatchNorm", "gain"))
        hundredths.insert(0, "gain", (10_000 * (shared[focus] - shared[BATCH])).round())
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
