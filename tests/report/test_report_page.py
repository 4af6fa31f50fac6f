"""A report is a folder that appears whole, opens from disk, and loses nothing of a user's."""

import itertools
import json
import re
import shutil

import pytest
from experiment_runs import COHORTS, write_runs
from stores import filled, night

from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import Axes, ExperimentFolder
from psdnorm.report import figures
from psdnorm.report import report_page as building
from psdnorm.report.figures import Figure
from psdnorm.report.report_page import build_report
from psdnorm.training import Protocol, Run

SMALL = Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT"), seeds=(0, 1))
SMALLEST = Axes(norms=("batch",), hold_outs=("ABC",), seeds=(0,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "runs"
    write_runs(path, [SMALL], epochs=30)
    return path


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    """For all that the runs do not matter to."""
    path = tmp_path_factory.mktemp("smallest") / "runs"
    write_runs(path, [SMALLEST], epochs=30)
    return path


@pytest.fixture
def earlier(report, tmp_path):
    """A report alone in its folder, that a test may alter."""
    return shutil.copytree(report, tmp_path / "report")


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "report"
    build_report(runs, path, figures=False)
    return path


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn, but not made into pictures."""
    monkeypatch.setattr(figures.all_figures, "rendered", lambda drawing, **_: drawn(1, 10)[0])


def page_of(path):
    return (path / "index.html").read_text()


def headings(page):
    return [int(level) for level in re.findall(r"<h(\d)", page)]


def test_page_tables_and_record_are_there(report):
    assert {path.name for path in report.iterdir()} == {"index.html", "report.json", "tables"}
    for ending in ("md", "tex", "csv"):
        assert (report / "tables" / f"results.{ending}").exists()
    record = json.loads((report / "report.json").read_text())
    files = {p.relative_to(report).as_posix() for p in report.rglob("*") if p.is_file()}
    assert set(record["files"]) == files
    assert record["verdicts"][0]["winner"] == "psd"


def test_the_band_comes_first_then_the_verdict_then_the_rest(report):
    page = page_of(report)
    order = ["These nights are simulated", *re.findall(r"<h2[^>]*>(.*?)</h2>", page)]
    assert order[1:] == [
        "Verdict",
        "Tables",
        "Figures",
        "Cohorts and subjects",
        "What is missing",
        "How it was made",
    ]
    places = [page.index(f">{text}") for text in order]
    assert places[0] < page.index("<h1>")
    assert places == sorted(places)


def test_headings_go_down_one_level_at_a_time(report):
    levels = headings(page_of(report))
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_every_table_has_a_caption_and_every_head_a_scope(report):
    page = page_of(report)
    assert page.count("<table") == page.count("<caption")
    assert not re.findall(r"<th(?![^>]*scope=)[ >]", page)


def test_every_link_leads_to_a_file_beside_the_page_or_into_it(report):
    page = page_of(report)
    for target in re.findall(r'(?:href|src)="([^"]*)"', page):
        if target.startswith("#"):
            assert f'id="{target[1:]}"' in page
        else:
            assert target.startswith("data:") or (report / target).exists()


def test_the_commands_and_the_recipe_are_there(report, runs):
    page = page_of(report)
    assert "psdnorm lodo STORE --norms batch,psd " in page
    assert "psdnorm report runs --out report --no-figures" in page
    assert str(runs.parent) not in page  # a folder above may name a user
    assert str(runs.parent) not in (report / "report.json").read_text()
    assert "&#34;name&#34;: &#34;paper&#34;" in page
    assert "psdnorm 0, torch 0, python 0 (8 runs)" in page


def test_tables_whose_rows_are_different_quantities_are_not_sortable(report):
    page = page_of(report)
    for name, is_sorted in (("results", True), ("timing", False), ("other-metrics", False)):
        before = page[: page.index(f'href="tables/{name}.md"')]
        opened = before[before.rindex("<table") :]
        assert opened.startswith('<table class="sortable">') is is_sorted, name


def test_a_cohort_shows_a_confusion_matrix_of_each_norm(report):
    fold = re.search("<summary>ABC: .*?</details>", page_of(report), re.S)[0]
    captions = re.findall(r"<caption[^>]*>(\w+): predicted stages, % of true<", fold)
    assert captions == ["BatchNorm", "PSDNorm"]
    assert "summed over subjects and the seeds that all norms have (0 and 1)" in fold


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    """The report on runs whose norms share no seed of CHAT, and the results."""
    path = tmp_path_factory.mktemp("partial")
    gone = [Run("usleep", "psd", hold_out="CHAT", seed=0).name]
    gone.append(Run("usleep", "batch", hold_out="CHAT", seed=1).name)
    write_runs(path / "runs", [SMALL], epochs=30, unfinished=gone)
    _, results = build_report(path / "runs", path / "report", figures=False)
    return path / "report", results


def test_a_cohort_without_a_shared_seed_says_over_which_its_means_are(partial):
    fold = re.search("<summary>CHAT: .*?</details>", page_of(partial[0]), re.S)[0]
    assert "mean over subjects and the seeds that each norm has, as none is shared by all" in fold
    assert "The gain over BatchNorm is unknown here." in fold
    data = json.loads(re.search('<script type="application/json"[^>]*>(.*?)</script>', fold)[1])
    place = [name for name, _ in data["columns"]].index("PSDNorm − BatchNorm")
    assert {row[place] for row in data["rows"]} == {None}
    assert all(row[place + 1] is not None for row in data["rows"])


def test_every_missing_run_is_listed(partial):
    report, results = partial
    page = page_of(report)
    assert len(results.missing) == 2
    for sentence in results.missing.values():
        assert f"<li>{sentence}</li>" in page


def test_a_file_that_cannot_be_read_is_named_without_its_path_from_the_root(tmp_path, unrendered):
    write_runs(tmp_path / "runs", [SMALL], epochs=30, keep="predictions")
    runs = tmp_path / "runs" / "cells"
    broken = runs / Run("usleep", "batch", hold_out="CHAT", seed=1).name / "scores.parquet"
    for file in [broken, *runs.glob("*/predictions.parquet")]:
        file.write_bytes(b"no Parquet")
    build_report(tmp_path / "runs", tmp_path / "report")
    page = page_of(tmp_path / "report")
    assert f"runs/cells/{broken.parent.name}/scores.parquet cannot be read" in page
    assert "predictions.parquet cannot be read" in page
    assert str(tmp_path) not in page


def test_names_of_users_are_never_markup(tmp_path):
    name = "<script>alert('x')</script> & {}"
    cohorts = {"<b>lab</b>": 3, "x&y": 3}
    axes = Axes(norms=("batch", "psd"), hold_outs=tuple(cohorts), seeds=(0,))
    write_runs(tmp_path / "runs", [axes], cohorts, epochs=30, subject=name)
    build_report(tmp_path / "runs", tmp_path / "report", figures=False)
    page = page_of(tmp_path / "report")
    assert "<script>alert" not in page
    assert "<b>lab" not in page
    assert "&lt;b&gt;lab&lt;/b&gt;: 3 subjects" in page
    assert r"\u003cscript\u003ealert('x')\u003c/script\u003e \u0026 0" in page


@pytest.mark.parametrize(
    "axes",
    [
        SMALLEST,
        Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0,)),
        Axes(norms=("instance", "psd"), hold_outs=("ABC",), seeds=(0, 1)),
        Axes(norms=("batch", "psd"), hold_outs=("ABC",), balanced=(None, 40), seeds=(0,)),
    ],
    ids=["one run", "one norm", "no BatchNorm", "two sizes"],
)
def test_whatever_there_is_makes_a_report(tmp_path, axes):
    write_runs(tmp_path / "runs", [axes], epochs=30, simulated=False)
    verdict, _ = build_report(tmp_path / "runs", tmp_path / "report", figures=False)
    page = page_of(tmp_path / "report")
    assert "These nights are simulated" not in page
    assert "What this cannot say" in page
    assert verdict.limits


def test_a_store_of_other_nights_is_refused_before_anything_is_written(runs, tmp_path):
    store = filled(tmp_path / "store", [night("ABC-1", 5), night("CHAT-1", 5)])
    words = f"--store {store.path} does not hold the nights of the runs: {runs} was"
    with pytest.raises(ArgumentError, match=re.escape(words)):
        build_report(runs, tmp_path / "report", store=store, figures=False)
    assert not (tmp_path / "report").exists()


def test_the_store_of_the_runs_tells_the_ages(tmp_path):
    write_runs(tmp_path / "runs", [SMALLEST], epochs=30)
    nights = [night(f"{cohort}-1", 5, age=61.25) for cohort in COHORTS]
    store = filled(tmp_path / "store", nights)
    ExperimentFolder(tmp_path / "asked").extend(store, Protocol(), [])
    asked = json.loads((tmp_path / "asked" / "grid.json").read_text())
    grid = tmp_path / "runs" / "grid.json"
    runs = json.loads(grid.read_text())["cells"]
    grid.write_text(json.dumps(asked | {"cells": runs}))
    build_report(tmp_path / "runs", tmp_path / "report", store=store, figures=False)
    assert ",61.25," in (tmp_path / "report" / "tables" / "datasets.csv").read_text()


def test_what_is_missing_as_table_and_as_figure_is_named_once(tmp_path, unrendered):
    axes = Axes(norms=("batch", "psd"), hold_outs=("ABC",), seeds=(0,))
    write_runs(tmp_path / "runs", [axes], epochs=30)
    build_report(tmp_path / "runs", tmp_path / "report")
    page = page_of(tmp_path / "report")
    missing = re.search(r"What is missing</h2>(.*?)<h2", page, re.DOTALL).group(1)
    named = [re.split(r":|\(", item)[0] for item in re.findall("<li>(.*?)</li>", missing)]
    for what in ("filter size", "number of layers with the norm", "number of training subjects"):
        assert named.count(f"Balanced accuracy by {what}") == 1
    assert len({*named}) == len(named)


def test_a_report_takes_the_place_of_an_earlier_one(one_run, earlier, tmp_path):
    (earlier / "tables" / "results.md").write_text("old")
    build_report(one_run, earlier, figures=False)
    assert (earlier / "tables" / "results.md").read_text() != "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_folder_of_something_else_is_refused_and_left_alone(runs, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ArgumentError, match="holds something other than a report, expected an"):
        build_report(runs, tmp_path, figures=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_report_with_a_users_file_in_it_is_refused_and_names_the_file(runs, earlier):
    (earlier / "tables" / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"holds tables/notes.txt, which no report wrote"):
        build_report(runs, earlier, figures=False)
    assert (earlier / "tables" / "notes.txt").read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(runs, tmp_path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(ArgumentError, match="is not a folder, expected one for the report"):
        build_report(runs, tmp_path / "report", figures=False)


def test_a_link_to_a_folder_stays_one(one_run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "report").symlink_to(tmp_path / "elsewhere")
    build_report(one_run, tmp_path / "report", figures=False)
    assert (tmp_path / "report").is_symlink()
    assert (tmp_path / "elsewhere" / "index.html").exists()


def test_a_report_that_fails_leaves_the_earlier_one_as_it_was(
    one_run, earlier, tmp_path, monkeypatch
):
    before = page_of(earlier)

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "provenance", fail)
    with pytest.raises(KeyboardInterrupt):
        build_report(one_run, earlier, figures=False)
    assert page_of(earlier) == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def drawn(n, size):
    names = [f"figure-{number}" for number in range(n)]
    return [
        Figure(name, name.title(), f"words of {name}", "Caption.", b"p" * size, b"s" * (size + 1))
        for name in names
    ]


class Drawn(list):
    missing = ("Spectra: no weights were kept.",)


def test_figures_are_shown_with_words_and_captions_and_kept_beside(one_run, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "build_figures", lambda *_: Drawn(drawn(2, 100)))
    build_report(one_run, tmp_path / "report")
    page = page_of(tmp_path / "report")
    assert page.count('<img alt="words of figure-') == 2
    assert page.count("<figcaption>Caption.</figcaption>") == 2
    assert "<li>Spectra: no weights were kept.</li>" in page
    assert (tmp_path / "report" / "figures" / "figure-1.svg").read_bytes() == b"s" * 101


def test_figures_that_would_make_the_page_too_large_are_linked_and_said_so(
    one_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(building, "build_figures", lambda *_: Drawn(drawn(4, 1_500_000)))
    build_report(one_run, tmp_path / "report")
    page = page_of(tmp_path / "report")
    assert len(page.encode()) < 5_000_000
    assert page.count("<img") == 2
    assert page.count("Not shown, to keep this page small: see the files.") == 2
    assert 'href="figures/figure-3.png"' in page


@pytest.mark.slow
def test_a_report_with_all_its_figures_is_one_page_below_5_mb(tmp_path):
    write_runs(tmp_path / "runs", None, COHORTS, keep="predictions")
    build_report(tmp_path / "runs", tmp_path / "report")
    page = page_of(tmp_path / "report")
    assert page.count("<img") >= 6
    assert len(page.encode()) < 5_000_000
