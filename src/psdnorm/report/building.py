"""A report from a folder of runs: one page, its tables and figures beside it."""

import json
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psdnorm
from psdnorm.report.contest import contests
from psdnorm.report.drilldown import SUBJECTS_CSV, add_cohorts, subject_means, write_subjects
from psdnorm.report.figures import Figure, build_figures
from psdnorm.report.folder import FIGURES, PAGE, TABLES, check_place, new_folder
from psdnorm.report.page import FRAME_BYTES, Page, Part
from psdnorm.report.pieces import MOST_BYTES, add_figures, add_tables, add_verdict, write_figures
from psdnorm.report.provenance import Provenance, provenance
from psdnorm.report.results import Results, read_results
from psdnorm.report.tables import build_tables, write_tables
from psdnorm.report.verdict import Verdict, judge

if TYPE_CHECKING:
    from psdnorm.store import Store

Told = Callable[[str], None]


def build_report(
    runs: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    store: "Store | None" = None,
    figures: bool = True,
    told: Told = lambda words: None,
) -> tuple[Verdict, Results]:
    """Write a report on a folder of runs.

    Parameters
    ----------
    runs : path
        Of ``psdnorm lodo``; unfinished too.
    out : path
        Folder for the report: new, empty, or an earlier report, whose place it takes.
    store : Store, optional
        The nights, for the figures that need them.
    figures : bool
        Whether to draw.
    told : callable
        Called with what is being done.

    Returns
    -------
    verdict : Verdict
        Of the main contest.
    results : Results
    """
    place = Path(out)
    check_place(place)
    told("Reading scores")
    results = read_results(runs)
    told("Comparing norms")
    verdicts = [judge(results, contest) for contest in contests(results)]
    subjects = subject_means(results)
    told("Making tables")
    tables, missing = build_tables(results, store)
    pictures: list[Figure] = []
    if figures:
        told("Drawing figures")
        drawn = build_figures(results, store)
        pictures, missing = list(drawn), [*missing, *drawn.missing]
    told("Writing")
    record: dict[str, Any] = {
        "psdnorm": psdnorm.__version__,
        "runs": str(results.path),
        "recipe": results.recipe,
        "simulated": results.simulated,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }
    with new_folder(place, record) as folder:
        write_tables(tables, folder / TABLES)
        write_subjects(subjects, folder / TABLES / SUBJECTS_CSV)
        write_figures(pictures, folder / FIGURES)
        page = Page(_title(results), simulated=results.simulated, contents=True)
        add_verdict(page, verdicts)
        add_tables(page, tables)
        after = page.part()
        _add_drilldown(after, results, verdicts[0], subjects)
        _add_missing(after, results, missing, drawn=figures)
        origin = provenance(results, os.fspath(runs))
        _add_origin(after, origin, _command(runs, out, store, figures))
        add_figures(page, pictures, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
        page.add(after).write(folder / PAGE)
    return verdicts[0], results


def _title(results: Results) -> str:
    return f"Norms on held-out cohorts: {results.path.name}"


def _add_drilldown(page: Part, results: Results, verdict: Verdict, subjects: Any) -> None:
    page.heading("Cohorts and subjects")
    page.text(
        f"Of {verdict.contest.name}; the arms are {', '.join(verdict.contest.arms.values())}."
    )
    beside = f"{TABLES}/{SUBJECTS_CSV}"
    add_cohorts(page, results, verdict, subjects, beside)
    page.links("All subjects of all arms, with every metric:", [(beside, beside)])


def _add_missing(page: Part, results: Results, missing: Sequence[str], *, drawn: bool) -> None:
    page.heading("What is lacking")
    told = [*missing, *([] if drawn else ["Figures were not asked for."]), *results.lacking]
    if told:
        page.items(told)
    else:
        page.text("Nothing: every cell that was asked for has a result, every table its numbers.")


def _add_origin(page: Part, origin: Provenance, command: str) -> None:
    page.heading("How it was made")
    page.text("The runs, with STORE for the folder of prepared nights, and this report:")
    page.command("\n".join([*origin.commands, command]))
    rows = [[cohort, f"{n:,}", f"{nights:,}"] for cohort, n, nights in origin.tested]
    page.table("Held-out data", ["cohort", "subjects", "nights"], rows)
    here = f"psdnorm {psdnorm.__version__}, python {platform.python_version()}"
    page.text("Versions").items([*origin.versions, f"this report: {here}"])
    page.heading("Recipe and protocol", 3)
    page.text(f"Recipe {origin.recipe.get('name', 'unnamed')}, {origin.recipe_sha256[:12]}:")
    page.command(json.dumps(origin.recipe, indent=2, ensure_ascii=False))
    page.text("Protocol:").command(json.dumps(origin.protocol, indent=2, ensure_ascii=False))


def _command(runs: Any, out: Any, store: "Store | None", figures: bool) -> str:
    parts = ["psdnorm", "report", os.fspath(runs), "--out", os.fspath(out)]
    parts += [] if store is None else ["--store", str(store.path)]
    return shlex.join([*parts, *([] if figures else ["--no-figures"])])
