"""A report from a folder of runs: one page, its tables and figures beside it."""

import json
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.experiments import ExperimentFolder
from psdnorm.present import FRAME_BYTES, Page, Part
from psdnorm.report.drilldown import SUBJECTS_CSV, add_cohorts, subject_means, write_subjects
from psdnorm.report.figures import Figure, build_figures
from psdnorm.report.naming import shown_path, without_roots
from psdnorm.report.pieces import MOST_BYTES, add_figures, add_tables, add_verdict, write_figures
from psdnorm.report.provenance import Provenance, provenance
from psdnorm.report.report_folder import FIGURES, PAGE, TABLES, check_place, new_folder
from psdnorm.report.results import Results, read_results
from psdnorm.report.tables import Table, build_tables, write_tables
from psdnorm.report.verdict import Verdict, contests, judge
from psdnorm.runtime import listed
from psdnorm.training import norm_name

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
        The nights that the runs were made from, for figures of them and ages of people.
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
    _check_store(store, results)
    told("Comparing norms")
    verdicts = [judge(results, contest) for contest in contests(results)]
    subjects = subject_means(results)
    told("Making tables")
    tables, missing = build_tables(results, store)
    pictures: list[Figure] = []
    if figures:
        told("Drawing figures")
        pictures, missing = _draw(results, store, missing)
    else:
        missing = [*missing, "Figures were not asked for."]
    told("Writing")
    with new_folder(place, _record(results, verdicts)) as folder:
        write_tables(tables, folder / TABLES)
        write_subjects(subjects, folder / TABLES / SUBJECTS_CSV)
        write_figures(pictures, folder / FIGURES)
        page = _begun(results, verdicts, tables)
        after = page.part()
        _add_drilldown(after, results, verdicts[0], subjects)
        roots = [results.path, *([] if store is None else [store.path])]
        lacking = [without_roots(words, *roots) for words in (*missing, *results.lacking)]
        _add_missing(after, lacking)
        command = _command(runs, out, store, figures)
        _add_origin(after, provenance(results, shown_path(runs)), command)
        add_figures(page, pictures, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
        page.add(after).write(folder / PAGE)
    return verdicts[0], results


def _check_store(store: "Store | None", results: Results) -> None:
    differs = None if store is None else ExperimentFolder(results.path).other_nights(store)
    if store is not None and differs is not None:
        raise ArgumentError(
            f"--store {store.path} holds other nights than the runs were made from: "
            f"{results.path} was begun with {differs}"
        )


def _draw(
    results: Results, store: "Store | None", missing: Sequence[str]
) -> tuple[list[Figure], list[str]]:
    """Return figures, and what lacks: one that lacks where its table does is not named again."""
    drawn = build_figures(results, store)
    tables = {sentence.partition(": ")[0] for sentence in missing}
    alone = [words for words in drawn.missing if words.partition(": ")[0] not in tables]
    return list(drawn), list(dict.fromkeys([*missing, *alone]))


def _record(results: Results, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "psdnorm": psdnorm.__version__,
        "runs": results.path.name,
        "recipe": results.recipe,
        "simulated": results.simulated,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }


def _begun(results: Results, verdicts: Sequence[Verdict], tables: Sequence[Table]) -> Page:
    """Return a page with what stands before the figures."""
    title = f"Norms on held-out cohorts: {results.path.name}"
    page = Page(title, simulated=results.simulated, contents=True)
    add_verdict(page, verdicts)
    add_tables(page, tables)
    return page


def _add_drilldown(page: Part, results: Results, verdict: Verdict, subjects: Any) -> None:
    page.heading("Cohorts and subjects")
    page.text(f"Of {verdict.contest.name}: {listed(list(map(norm_name, verdict.contest.arms)))}.")
    beside = f"{TABLES}/{SUBJECTS_CSV}"
    add_cohorts(page, results, verdict, subjects, beside)
    page.links("All subjects of all arms, with every metric:", [(beside, beside)])


def _add_missing(page: Part, missing: Sequence[str]) -> None:
    page.heading("What is lacking")
    if missing:
        page.items(missing)
    else:
        page.text("Nothing: every cell that was asked for has a result, every table its numbers.")


def _add_origin(page: Part, origin: Provenance, command: str) -> None:
    page.heading("How it was made")
    page.text("The runs, then this report:")
    page.command("\n".join([*origin.commands, command]))
    page.text(
        f"STORE is the folder of prepared nights, whose name no run has; it held {origin.store}."
    )
    rows = [[cohort, f"{n:,}", f"{nights:,}"] for cohort, n, nights in origin.tested]
    page.table("Held-out data", ["cohort", "subjects", "nights"], rows)
    here = f"psdnorm {psdnorm.__version__}, python {platform.python_version()}"
    page.text("Versions").items([*origin.versions, f"this report: {here}"])
    page.heading("Recipe and protocol", 3)
    page.text(f"Recipe {origin.recipe.get('name', 'unnamed')}, {origin.recipe_sha256[:12]}:")
    page.command(json.dumps(origin.recipe, indent=2, ensure_ascii=False))
    page.text("Protocol:").command(json.dumps(origin.protocol, indent=2, ensure_ascii=False))


def _command(runs: Any, out: Any, store: "Store | None", figures: bool) -> str:
    parts = ["psdnorm", "report", shown_path(runs), "--out", shown_path(out)]
    parts += [] if store is None else ["--store", shown_path(store.path)]
    return shlex.join([*parts, *([] if figures else ["--no-figures"])])
