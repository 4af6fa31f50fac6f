"""A report: one page on a folder of runs, with its tables and figures beside it."""

import contextlib
import os
import platform
import shlex
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import psdnorm
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, StoreError, os_errors_as
from psdnorm.evaluation import CONFUSION, METRICS, aggregate, confusions_of
from psdnorm.experiments import ExperimentFolder
from psdnorm.present import FRAME_BYTES, Page, Part
from psdnorm.report.contest import BATCH, METRIC, Contest, contests
from psdnorm.report.figures import Figure, build_figures
from psdnorm.report.provenance import provenance
from psdnorm.report.results import Results, read_results, shown_path, without_roots
from psdnorm.report.tables import Table, build_tables, write_tables
from psdnorm.report.verdict import DUEL_HEAD, Verdict, duel_cells, duels, judge, percent
from psdnorm.runtime import json_text, listed, plural, read_json, write_json, written
from psdnorm.training import norm_name

if TYPE_CHECKING:
    from psdnorm.store import Store

PAGE, RECORD, TABLES, FIGURES = "index.html", "report.json", "tables", "figures"
SUBJECTS_CSV = "subjects.csv"
MOST_BYTES = 4_900_000  # of a page, which must stay below 5 MB
MOST_SUBJECTS = 20_000  # on a page
_FORMAT = 1
_SHOWN_NOTES = 4
_METRICS = {
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "weighted_f1": "weighted F1",
    "cohen_kappa": "Cohen's κ × 100",
    **{f"f1_{stage}": f"F1 {stage}" for stage in STAGES},
    "calibration_error": "calibration error",
}


def build_report(
    runs: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    store: "Store | None" = None,
    figures: bool = True,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Verdict, Results]:
    """Write a report on a folder of runs; return the verdict on its main contest, and results.

    Parameters
    ----------
    runs : path
        The folder that ``psdnorm lodo`` wrote; it need not be finished.
    out : path
        Folder for the report: new, empty, or an earlier report, which is replaced.
    store : Store, optional
        The nights of the runs, for spectra and for the ages of people.
    progress : callable
        Called with the name of each step.
    """
    place = Path(out)
    check_place(place)
    progress("Reading scores")
    results = read_results(runs)
    differs = None if store is None else ExperimentFolder(results.path).other_nights(store)
    if store is not None and differs is not None:
        raise ArgumentError(
            f"--store {store.path} does not hold the nights of the runs: "
            f"{results.path} was started with {differs}"
        )
    progress("Comparing norms")
    verdicts = [judge(results, contest) for contest in contests(results)]
    subjects = subject_means(results)
    progress("Making tables")
    tables, missing = build_tables(results, store)
    drawn: list[Figure] = []
    if figures:
        progress("Drawing figures")
        drawn = found = build_figures(results, store)
        listed_tables = {sentence.partition(": ")[0] for sentence in missing}
        # a listed table already says why its figure is missing
        alone = [each for each in found.missing if each.partition(": ")[0] not in listed_tables]
        missing = [*dict.fromkeys([*missing, *alone])]
    else:
        missing = [*missing, "Figures were not requested."]
    progress("Writing")
    record = {
        "psdnorm": psdnorm.__version__,
        "runs": results.path.name,
        "recipe": results.recipe,
        "simulated": results.simulated,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }
    with new_folder(place, record) as folder:
        write_tables(tables, folder / TABLES)
        with written(folder / TABLES / SUBJECTS_CSV) as file:
            subjects.to_csv(file, index=False, float_format="%.6g")
        write_figures(drawn, folder / FIGURES)
        title = f"Norms on held-out cohorts: {results.path.name}"
        page = Page(title, simulated=results.simulated, contents=True)
        _add_verdicts(page, verdicts)
        _add_tables(page, tables)
        after = page.part()
        _add_cohorts(after, results, verdicts[0], subjects)
        roots = [results.path, *([] if store is None else [store.path])]
        after.heading("What is missing")
        if sentences := (*missing, *results.missing.values()):
            after.items([without_roots(sentence, *roots) for sentence in sentences])
        else:
            after.text("Nothing: every requested run has a result, every table its numbers.")
        _add_origin(after, results, runs, _command(runs, out, store, figures))
        add_figures(page, drawn, MOST_BYTES - page.n_bytes - after.n_bytes - FRAME_BYTES)
        page.add(after).write(folder / PAGE)
    return verdicts[0], results


def _add_verdicts(page: Part, verdicts: Sequence[Verdict]) -> None:
    """Add who won, by how much, how certain that is, and its limits; the first contest in full."""
    main = verdicts[0]
    page.heading("Verdict")
    page.verdict(page.part().text(main.headline).items(main.sentences))
    recipe, nights = main.results.recipe, " of simulated nights" if main.results.simulated else ""
    caption = (
        f"{main.contest.name}: balanced accuracy{nights}, recipe {recipe}; gains are over "
        "BatchNorm unless their column says otherwise, in points of Mean(Dataset)"
    )
    page.table(caption, main.head, main.rows(), sortable=True)
    page.heading("What this cannot say", 3).items(main.limits)
    if len(verdicts) > 1:
        page.heading("Other models and training sizes", 3)
        for verdict in verdicts[1:]:
            caption = f"{verdict.contest.name}: balanced accuracy{nights}, recipe {recipe}"
            part = page.part().items(verdict.sentences)
            part.table(caption, verdict.head, verdict.rows(), sortable=True)
            part.text("What this cannot say:").items(verdict.limits)
            page.fold(f"{verdict.contest.name}: {verdict.headline}", part)


def _add_tables(page: Part, tables: Sequence[Table]) -> None:
    """Add tables that can be sorted, with their notes and their files."""
    page.heading("Tables")
    page.text("Press the head of a column to sort by it; missing values stay last.", "note")
    for table in tables:
        page.heading(table.title, 3)
        page.table(table.title, table.head, table.rows, sortable=True, unseen=True)
        page.items(table.notes[:_SHOWN_NOTES])
        if others := table.notes[_SHOWN_NOTES:]:
            page.fold(f"More notes on this table: {len(others)}", page.part().items(others))
        files = [(f"{TABLES}/{table.name}.{kind}", kind) for kind in ("md", "tex", "csv")]
        page.links("As", files)


def add_figures(page: Part, figures: Sequence[Figure], room: int) -> None:
    """Add figures as long as there is room, in bytes, and links to the others."""
    page.heading("Figures")
    if not figures:
        page.text("None.")
    for figure in figures:
        kind, picture = min(("png", figure.png), ("svg", figure.svg), key=lambda p: len(p[1]))
        page.heading(figure.title, 3)
        room -= 4 * len(picture) // 3 + 5000  # plus its words
        if room > 0:
            page.picture(picture, figure.words, figure.caption, kind)
        else:
            page.text(f"{figure.words} {figure.caption}")
            page.text("Not shown, to keep this page small: see the files.", "note")
        files = [(f"{FIGURES}/{figure.name}.{ending}", ending) for ending in ("png", "svg")]
        page.links("As", files)


def write_figures(figures: Sequence[Figure], folder: Path) -> None:
    """Write figures as NAME.png and NAME.svg; create no folder if there are none."""
    if figures:
        folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        for ending, data in (("png", figure.png), ("svg", figure.svg)):
            with written(folder / f"{figure.name}.{ending}") as file:
                file.write(data)


def subject_means(results: Results) -> pd.DataFrame:
    """Average every metric of every subject over seeds, for each arm."""
    keys = ["arm", "cohort", "subject"]
    scores = results.scores[[*keys, "epochs", "missing_stages", *METRICS]]
    grouped = scores.groupby(keys, sort=True)
    means = grouped[["epochs", "missing_stages", *METRICS]].mean()
    means.insert(0, "seeds", grouped.size())
    whole = {"epochs": np.int64, "missing_stages": np.int64}  # the same in every seed
    return means.astype(whole).reset_index()


def _add_cohorts(page: Part, results: Results, verdict: Verdict, subjects: pd.DataFrame) -> None:
    """Add a folded part for each cohort: all metrics, gains, confusions and subjects."""
    contest, beside = verdict.contest, f"{TABLES}/{SUBJECTS_CSV}"
    page.heading("Cohorts and subjects")
    page.text(f"Of {contest.name}: {listed([norm_name(norm) for norm in contest.arms])}.")
    arms = contest.arms | contest.dropped
    everybody = max(MOST_SUBJECTS, len(subjects[["cohort", "subject"]].drop_duplicates()))
    for cohort in sorted(subjects["cohort"].unique()):
        people = subjects[(subjects["cohort"] == cohort) & subjects["arm"].isin(arms.values())]
        if people.empty:
            continue
        part = page.part()
        scores, seeds = _counted_scores(results, contest, cohort)
        _add_metrics(part, cohort, scores, arms, seeds)
        _add_gains(part, contest, cohort)
        _add_confusions(part, scores, arms, f"subjects and {seeds}")
        columns, rows = _subject_rows(people, arms, verdict)
        n = len(rows)
        most = max(1, MOST_SUBJECTS * n // everybody)
        if most < n:
            rows = sorted(rows, key=lowest_first)[:most]
            part.text(f"The {most:,} lowest of {n:,} subjects; all are in {beside}.", "note")
        caption = f"Subjects of {cohort}: balanced accuracy, %, mean over {seeds}"
        without_scripts = f"Without scripts, subjects are not listed here: see {beside}."
        part.subjects(caption, columns, rows, 1, without_scripts)
        page.fold(f"{cohort}: {plural(n, 'subject')}", part)
    page.links("All subjects of all arms, with every metric:", [(beside, beside)])


def _counted_scores(results: Results, contest: Contest, cohort: str) -> tuple[pd.DataFrame, str]:
    """Return the scores behind all tables of a cohort, and their seeds in words.

    For norms of the contest, these are the scores that all of them have, if there are any; for
    dropped norms, all scores.
    """
    arms = contest.arms | contest.dropped
    runs = results.runs[results.runs["arm"].isin(arms.values())][["run", "arm", "seed"]]
    own = results.subjects[results.subjects["cohort"] == cohort].merge(runs, on="run")
    index = contest.by_seed.index
    shared = index[index.get_level_values("cohort") == cohort].droplevel("cohort")
    if not len(shared):
        return own, "the seeds that each norm has, as none is shared by all"
    is_shared = pd.MultiIndex.from_frame(own[["subject", "seed"]]).isin(shared)
    is_dropped = own["arm"].isin(contest.dropped.values())
    numbers = listed([str(seed) for seed in sorted(shared.unique("seed"))])
    if is_dropped.any():
        numbers += f"; {listed([norm_name(norm) for norm in contest.dropped])}: all seeds"
    return own[is_shared | is_dropped], f"the seeds that all norms have ({numbers})"


def _add_metrics(
    part: Part, cohort: str, scores: pd.DataFrame, arms: dict[str, str], seeds: str
) -> None:
    by_arm = aggregate(scores, by=["arm"]).set_index(["arm", "metric", "dataset"])[["mean", "std"]]
    rows = []
    for norm, arm in arms.items():
        of_arm = by_arm.reindex([(arm, metric, cohort) for metric in _METRICS])
        row = [norm_name(norm)]
        for mean, std in of_arm.to_numpy(float):
            row.append(percent(mean) + ("" if np.isnan(std) else f" ± {percent(std)}"))
        rows.append(row)
    caption = f"{cohort}: %, mean over subjects and {seeds} ± over seeds"
    part.table(caption, ["norm", *_METRICS.values()], rows)


def _add_gains(part: Part, contest: Contest, cohort: str) -> None:
    values = contest.by_seed
    values = values[values.index.get_level_values("cohort") == cohort]
    if BATCH not in values or values.shape[1] < 2 or values.empty:
        part.text("The gain over BatchNorm is unknown here.", "note")
        return
    found = duels(values, BATCH)
    rows = [[norm_name(norm), *duel_cells(duel)] for norm, duel in found.items()]
    part.table(f"{cohort}: gain over BatchNorm, points", ["norm", *DUEL_HEAD], rows)
    part.text(next(iter(found.values())).caption, "note")


def _add_confusions(part: Part, scores: pd.DataFrame, arms: dict[str, str], over: str) -> None:
    """Add the confusion matrix of every norm, beside each other."""
    matrices = part.part()
    for norm, arm in arms.items():
        own = scores[scores["arm"] == arm]
        if len(own):
            cells = []
            for row in confusions_of(own[CONFUSION]).sum(axis=0).tolist():
                n = sum(row)
                shares = [f"{100 * count / n:.1f}" if n else "–" for count in row]
                counts = [f"{count:,} of {n:,} epochs" for count in row]
                cells.append([*zip(shares, counts, strict=True)])
            matrices.matrix(f"{norm_name(norm)}: predicted stages, % of true", STAGES, cells)
    part.beside(matrices)
    part.text(f"Epochs are summed over {over}; each entry shows their number.", "note")


def _subject_rows(
    people: pd.DataFrame, arms: dict[str, str], verdict: Verdict
) -> tuple[list[tuple[str, str]], Sequence[Sequence[Any]]]:
    """Return columns and rows for the table of a cohort's subjects.

    Subjects with scores of all norms in the same seeds are shown with these scores and a gain, all
    others with their means over all seeds.
    """
    norm_of = {arm: norm for norm, arm in arms.items()}
    wide = people.pivot(index="subject", columns="arm", values=METRIC).rename(columns=norm_of)
    values = verdict.contest.subjects
    own = values.index.get_level_values("cohort") == people["cohort"].iloc[0]
    shared = values[own].droplevel("cohort")
    wide.update(shared)
    focus, norms = verdict.focus, [norm for norm in arms if norm in wide]
    about = people.drop_duplicates("subject").set_index("subject").loc[wide.index]
    hundredths = (10_000 * wide[norms]).round()
    columns = [(norm_name(norm), "percent") for norm in norms]
    if focus in shared and BATCH in shared and focus != BATCH:
        columns.insert(0, (f"{norm_name(focus)} − {norm_name(BATCH)}", "gain"))
        hundredths.insert(0, "gain", (10_000 * (shared[focus] - shared[BATCH])).round())
    columns = [("subject", "text"), *columns, ("epochs", "count"), ("missing stages", "count")]
    return columns, whole_rows(hundredths.assign(**about[["epochs", "missing_stages"]]))


def _add_origin(page: Part, results: Results, runs: Any, command: str) -> None:
    """Add the commands, the held-out data, versions, recipe and protocol."""
    origin = provenance(results, shown_path(runs))
    page.heading("How it was made")
    page.text("The runs, then this report:")
    page.command("\n".join([*origin.commands, command]))
    page.text(
        f"STORE is the folder of prepared nights (runs do not record its name): {origin.store}."
    )
    rows = [[cohort, f"{n:,}", f"{nights:,}"] for cohort, n, nights in origin.tested]
    page.table("Held-out data", ["cohort", "subjects", "nights"], rows)
    here = f"psdnorm {psdnorm.__version__}, python {platform.python_version()}"
    page.text("Versions").items([*origin.versions, f"this report: {here}"])
    page.heading("Recipe and protocol", 3)
    page.text(f"Recipe {results.recipe}, {results.config['recipe_sha256']:.12}:")
    page.command(json_text(results.config["recipe"]).rstrip())
    page.text("Protocol:")
    page.command(json_text(results.config["protocol"]).rstrip())


def _command(runs: Any, out: Any, store: "Store | None", figures: bool) -> str:
    parts = ["psdnorm", "report", shown_path(runs), "--out", shown_path(out)]
    parts += [] if store is None else ["--store", shown_path(store.path)]
    return shlex.join([*parts, *([] if figures else ["--no-figures"])])


def whole_rows(numbers: pd.DataFrame) -> list[list[Any]]:
    """Return a table of whole numbers as rows for JSON: the index first, None for NaN."""
    known = numbers.notna().to_numpy()
    values = numbers.fillna(0).to_numpy(np.int64).astype(object)
    values[~known] = None
    return [[str(name), *row] for name, row in zip(numbers.index, values.tolist(), strict=True)]


def lowest_first(row: Sequence[Any]) -> tuple[bool, float]:
    """Return the sort key of a row: its second entry, None last."""
    return row[1] is None, row[1] or 0


def check_place(path: Path) -> None:
    """Raise if the folder for a report holds anything but an earlier report."""
    if path.exists() and not path.is_dir():
        raise ArgumentError(f"{path} is not a folder, expected one for the report")
    if not path.exists() or not any(path.iterdir()):
        return
    if not (path / RECORD).exists():
        expected = "expected an empty folder or an earlier report"
        raise ArgumentError(f"{path} holds something other than a report, {expected}")
    record = read_json(path / RECORD)
    if not isinstance(record, dict) or not isinstance(record.get("files"), list):
        raise ArgumentError(f"{path / RECORD} is not of a report")
    if others := sorted({*_files(path)} - {*record["files"]}):
        raise ArgumentError(
            f"{path} holds {others[0]}, which no report wrote: move it, or give another folder"
        )


@contextlib.contextmanager
def new_folder(path: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Open a folder that replaces ``path``, and any report there, unless the block raises."""
    check_place(path)
    path = path.resolve()  # a link to a folder stays one
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    with os_errors_as(StoreError, path, "cannot be written"):
        partial.mkdir(parents=True)
        try:
            yield partial
            files = sorted([*_files(partial), RECORD])
            write_json(partial / RECORD, {"format": _FORMAT, **record, "files": files})
            _put(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _put(partial: Path, path: Path) -> None:
    """Replace ``path`` by a folder beside it."""
    check_place(path)  # again: files may have been added meanwhile
    old = path.with_name(f"{partial.name}.old")
    if path.exists():
        os.replace(path, old)
    try:
        os.replace(partial, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()]
