"""The page of a comparison of two experiments, or two cells."""

import os
from pathlib import Path

import pandas as pd

from psdnorm.report.compared import HEAD, A, ArmComparison, B, Comparison
from psdnorm.report.drilldown import MOST_SUBJECTS, SUBJECTS_CSV, lowest_first, whole_rows
from psdnorm.report.duels import gain_words, people_words
from psdnorm.report.folder import PAGE, TABLES, new_folder
from psdnorm.report.page import Page, Part
from psdnorm.store.atomic import written

COMPARED_CSV = "compared.csv"
_COLUMNS = [("subject", "text"), ("B − A", "gain"), ("A", "percent"), ("B", "percent")]


def write_comparison(comparison: Comparison, out: str | os.PathLike[str], command: str) -> None:
    """Write the page of a comparison, and its tables beside it.

    Parameters
    ----------
    comparison : Comparison
    out : path
        Folder: new, empty, or an earlier report, whose place it takes.
    command : str
        That made it.
    """
    record = {
        "a": str(comparison.a.path),
        "b": str(comparison.b.path),
        "simulated": comparison.simulated,
        "sentences": {arm.name: sentences(arm) for arm in comparison.arms},
        "remarks": comparison.remarks,
    }
    with new_folder(Path(out), record) as folder:
        (folder / TABLES).mkdir()
        _write_csv(folder / TABLES / COMPARED_CSV, _all_rows(comparison))
        _write_csv(folder / TABLES / SUBJECTS_CSV, _all_subjects(comparison))
        comparison_page(comparison, command).write(folder / PAGE)


def sentences(arm: ArmComparison) -> list[str]:
    """Say how much B gains over A in one arm, how sure that is, and for whom.

    Parameters
    ----------
    arm : ArmComparison
    """
    return [gain_words(B, A, arm.duel.gains), *people_words(B, A, arm.duel)]


def comparison_page(comparison: Comparison, command: str) -> Page:
    """Return the page of a comparison.

    Parameters
    ----------
    comparison : Comparison
    command : str
        That made it.
    """
    a, b = comparison.a, comparison.b
    page = Page(
        f"{b.path.name} against {a.path.name}", simulated=comparison.simulated, contents=True
    )
    page.heading("Verdict")
    page.items([f"A is {a.path}, recipe {a.recipe}.", f"B is {b.path}, recipe {b.recipe}."])
    for arm in comparison.arms:
        first, *others = sentences(arm)
        page.verdict(page.part().text(f"{arm.name}: {first}").items(others))
    page.heading("What this cannot say", 3)
    page.items([*comparison.remarks, *{arm.duel.caption: None for arm in comparison.arms}])
    page.heading("Tables")
    nights = " of simulated nights" if comparison.simulated else ""
    for arm in comparison.arms:
        title = f"{arm.name}: balanced accuracy{nights}, {comparison.recipes}; gains of B over A"
        page.table(title, HEAD, arm.rows(), sortable=True)
    beside = [(f"{TABLES}/{name}", name) for name in (COMPARED_CSV, SUBJECTS_CSV)]
    page.links("As", beside)
    page.heading("Subjects")
    for arm in comparison.arms:
        page.fold(arm.name, _subjects(page, arm, MOST_SUBJECTS // len(comparison.arms)))
    return page.heading("How it was made").command(command)


def _subjects(page: Page, arm: ArmComparison, most: int) -> Part:
    values = arm.subjects
    scores = pd.DataFrame({"gain": values[B] - values[A], "a": values[A], "b": values[B]})
    scores.index = [f"{cohort} {subject}" for cohort, subject in values.index]
    rows = whole_rows((10_000 * scores).round())
    part, n = page.part(), len(rows)
    beside = f"{TABLES}/{SUBJECTS_CSV}"
    if most < n:
        rows = sorted(rows, key=lowest_first)[:most]
        part.text(f"The {most:,} lowest of {n:,} subjects; all are in {beside}.", "note")
    words = f"Without scripts, subjects are not listed here: see {beside}."
    return part.subjects("Balanced accuracy, %, mean over seeds", _COLUMNS, rows, 1, words)


def _all_rows(comparison: Comparison) -> pd.DataFrame:
    tables = [
        pd.DataFrame(arm.rows(), columns=HEAD).assign(arm=arm.name) for arm in comparison.arms
    ]
    return pd.concat(tables)[["arm", *HEAD]]


def _all_subjects(comparison: Comparison) -> pd.DataFrame:
    tables = [
        arm.subjects.assign(gain=arm.subjects[B] - arm.subjects[A], arm=arm.name).reset_index()
        for arm in comparison.arms
    ]
    return pd.concat(tables)[["arm", "cohort", "subject", A, B, "gain"]]


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with written(path) as file:
        table.to_csv(file, index=False, float_format="%.6g")
