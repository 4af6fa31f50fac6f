"""The page of a comparison."""

import json
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import psdnorm
from psdnorm.compare.runs import HEAD, A, ArmComparison, B, Comparison
from psdnorm.present import FRAME_BYTES, CannotDraw, Drawing, Page, Part, rendered, styled
from psdnorm.report import (
    FIGURES,
    MOST_BYTES,
    MOST_SUBJECTS,
    PAGE,
    SUBJECTS_CSV,
    TABLES,
    Results,
    add_figures,
    lowest_first,
    new_folder,
    whole_rows,
    write_figures,
)
from psdnorm.report.figures import SEEDS_LEFT_OUT, Figure, Figures, by_stage, forest, scattered
from psdnorm.report.verdict import gain_words, people_words
from psdnorm.runtime import read_json, written
from psdnorm.training import CONFIG

_LABELS = {A: A, B: B}


def comparison_figures(comparison: Comparison) -> Figures:
    """Draw subjects, gains by cohort and differences by stage of every arm.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Figures
    """
    figures: list[Figure] = []
    missing: list[str] = []
    draws: tuple[Callable[[ArmComparison], Drawing], ...] = (_subjects, _gains, _stages)
    with styled():
        for arm in comparison.arms:
            for draw in draws:
                try:
                    drawing = draw(arm)
                except CannotDraw as reason:
                    missing.append(str(reason))
                    continue
                recipe = comparison.recipes.removeprefix("recipe ")
                figures.append(rendered(drawing, simulated=comparison.simulated, recipe=recipe))
    return Figures(figures, missing)


def _key(arm: ArmComparison) -> str:
    return re.sub(r"[^a-z0-9]+", "-", arm.arm.lower()).strip("-")


def _subjects(arm: ArmComparison) -> Drawing:
    return scattered(
        100 * arm.subjects,
        B,
        [A],
        _LABELS,
        name=f"subjects-{_key(arm)}",
        title=f"Balanced accuracy of each subject: {arm.name}",
        remarks="Intervals are Wilson's.",
    )


def _gains(arm: ArmComparison) -> Drawing:
    return forest(
        100 * arm.scores,
        A,
        _LABELS,
        name=f"gains-{_key(arm)}",
        title=f"Gain of B over A, by cohort: {arm.name}",
        remarks="",
    )


def _stages(arm: ArmComparison) -> Drawing:
    title = "F1 of each stage, difference of B to A"
    cohorts = arm.runs.groupby("seed")["cohort"].nunique()
    whole = cohorts.index[cohorts == arm.runs["cohort"].nunique()]
    if whole.empty:
        raise CannotDraw(f"{title} ({arm.name}): there is no seed in which both have all cohorts.")
    runs = arm.runs[arm.runs["seed"].isin(whole)]
    left_out = "" if len(whole) == len(cohorts) else SEEDS_LEFT_OUT
    return by_stage(
        runs,
        A,
        _LABELS,
        name=f"stages-{_key(arm)}",
        title=f"{title}: {arm.name}",
        remarks=left_out,
    )


COMPARED_CSV = "compared.csv"
_NOT_ASKED = "Figures were not asked for."
_CAPTION = "Balanced accuracy, %, mean over the seeds that both have"
_COLUMNS = [("subject", "text"), ("B − A", "gain"), ("A", "percent"), ("B", "percent")]


def write_comparison(
    comparison: Comparison, out: str | os.PathLike[str], command: str, *, figures: bool = True
) -> None:
    """Write the page of a comparison, its tables and figures beside it.

    Parameters
    ----------
    comparison : Comparison
    out : path
        Folder: new, empty, or an earlier report, whose place it takes.
    command : str
        That made it.
    figures : bool
        Whether to draw them.
    """
    drawn = comparison_figures(comparison) if figures else Figures([], [_NOT_ASKED])
    record = {
        "psdnorm": psdnorm.__version__,
        "a": _origin(comparison.a),
        "b": _origin(comparison.b),
        "simulated": comparison.simulated,
        "sentences": {arm.arm: sentences(arm) for arm in comparison.arms},
        "limits": comparison.limits,
        "remarks": comparison.remarks,
    }
    with new_folder(Path(out), record) as folder:
        (folder / TABLES).mkdir()
        _write_csv(folder / TABLES / COMPARED_CSV, _all_rows(comparison))
        _write_csv(folder / TABLES / SUBJECTS_CSV, _all_subjects(comparison))
        write_figures(drawn, folder / FIGURES)
        comparison_page(comparison, command, drawn).write(folder / PAGE)


def sentences(arm: ArmComparison) -> list[str]:
    """Say how much B gains over A in one arm, how sure that is, and for whom.

    Parameters
    ----------
    arm : ArmComparison
    """
    duel = arm.duel
    return [gain_words(B, A, duel.gains, duel.reservation), *people_words(B, A, duel)]


def comparison_page(comparison: Comparison, command: str, figures: Figures) -> Page:
    """Return the page of a comparison.

    Parameters
    ----------
    comparison : Comparison
    command : str
        That made it.
    figures : Figures
    """
    a, b = _name(comparison.a), _name(comparison.b)
    page = Page(f"{b} against {a}", simulated=comparison.simulated, contents=True)
    page.heading("Verdict")
    sides = ((A, a, comparison.a.recipe), (B, b, comparison.b.recipe))
    told = [f"{side} is {name}, recipe {recipe}." for side, name, recipe in sides]
    page.items([*told, *comparison.nights])
    for arm in comparison.arms:
        first, *others = sentences(arm)
        page.verdict(page.part().text(f"{arm.name}: {first}").items(others))
    page.heading("What this cannot say", 3)
    page.items([*comparison.failed, *comparison.others, *comparison.limits, *figures.missing])
    page.heading("Tables")
    nights = " of simulated nights" if comparison.simulated else ""
    for arm in comparison.arms:
        title = f"{arm.name}: balanced accuracy{nights}, {comparison.recipes}; gains of B over A"
        page.table(title, HEAD, arm.rows(), sortable=True)
    beside = [(f"{TABLES}/{name}", name) for name in (COMPARED_CSV, SUBJECTS_CSV)]
    page.links("As", beside)
    after = page.part().heading("Subjects")
    for arm in comparison.arms:
        after.fold(
            arm.name, _compared_page_subjects(after, arm, MOST_SUBJECTS // len(comparison.arms))
        )
    _add_origins(after, comparison, command)
    if figures:
        add_figures(page, figures, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
    page.add(after)
    return page


def _add_origins(page: Part, comparison: Comparison, command: str) -> None:
    page.heading("How it was made").command(command)
    ours, theirs = _origin(comparison.a), _origin(comparison.b)
    here = f"this comparison: psdnorm {psdnorm.__version__}, python {platform.python_version()}"
    versions = [
        f"{side}: {words}" for side, o in ((A, ours), (B, theirs)) for words in o["versions"]
    ]
    page.text("Versions").items([*versions, here])
    page.heading("Recipe and protocol", 3)
    for what in ("recipe", "protocol"):
        if ours[what] == theirs[what]:
            documents = {f"{what.capitalize()} of both:": ours[what]}
        else:
            documents = {f"{what.capitalize()} of {A}:": ours[what]}
            documents |= {f"{what.capitalize()} of {B}:": theirs[what]}
        for title, document in documents.items():
            page.text(title).command(json.dumps(document, indent=2, ensure_ascii=False))


def _origin(results: Results) -> dict[str, Any]:
    """Return where results come from, as JSON holds it."""
    versions: dict[str, int] = {}
    for folder in results.cells["folder"]:
        found = read_json(folder / CONFIG).get("versions", {})
        words = ", ".join(f"{name} {version}" for name, version in found.items())
        versions[words] = versions.get(words, 0) + 1
    return {
        "name": _name(results),
        "recipe": {**results.config["recipe"], "sha256": results.config["recipe_sha256"]},
        "protocol": results.config["protocol"],
        "versions": [f"{words}{_cells(n, results)}" for words, n in versions.items()],
    }


def _cells(n: int, results: Results) -> str:
    return f" ({n} cell{'s' * (n != 1)})" if len(results.cells) > 1 else ""


def _name(results: Results) -> str:
    """Return the last part of a path: what is above it may name a user."""
    return results.path.resolve().name


def _compared_page_subjects(page: Part, arm: ArmComparison, most: int) -> Part:
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
    return part.subjects(_CAPTION, _COLUMNS, rows, 1, words)


def _all_rows(comparison: Comparison) -> pd.DataFrame:
    tables = [pd.DataFrame(arm.rows(), columns=HEAD).assign(arm=arm.arm) for arm in comparison.arms]
    return pd.concat(tables)[["arm", *HEAD]]


def _all_subjects(comparison: Comparison) -> pd.DataFrame:
    tables = [
        arm.subjects.assign(gain=arm.subjects[B] - arm.subjects[A], arm=arm.arm).reset_index()
        for arm in comparison.arms
    ]
    return pd.concat(tables)[["arm", "cohort", "subject", A, B, "gain"]]


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with written(path) as file:
        table.to_csv(file, index=False, float_format="%.6g")
