"""A report is a folder that appears whole, opens from disk, and loses nothing of a user's."""

import itertools
import json
import re

import pytest
from experiments import COHORTS, write_runs

from psdnorm.errors import ArgumentError
from psdnorm.report import building
from psdnorm.report.building import build_report
from psdnorm.report.figures import Figure
from psdnorm.training import Cell
from psdnorm.training.grid import Axes

SMALL = Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT"), seeds=(0, 1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "runs"
    write_runs(path, [SMALL], epochs=30)
    return path


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("built") / "report"
    build_report(runs, path, figures=False)
    return path


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
        "What is lacking",
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
    assert f"psdnorm report {runs} --out {report} --no-figures" in page
    assert "&quot;name&quot;: &quot;paper&quot;" in page
    assert "psdnorm 0, torch 0, python 0 (8 cells)" in page


def test_every_cell_that_lacks_is_listed(tmp_path):
    gone = [Cell("usleep", "psd", hold_out="CHAT", seed=seed).name for seed in (0, 1)]
    write_runs(tmp_path / "runs", [SMALL], epochs=30, unfinished=gone)
    _, results = build_report(tmp_path / "runs", tmp_path / "report", figures=False)
    page = page_of(tmp_path / "report")
    assert len(results.lacking) == 2
    for sentence in results.lacking:
        assert f"<li>{sentence}</li>" in page


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
        Axes(norms=("batch",), hold_outs=("ABC",), seeds=(0,)),
        Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0,)),
        Axes(norms=("instance", "psd"), hold_outs=("ABC",), seeds=(0, 1)),
        Axes(norms=("batch", "psd"), hold_outs=("ABC",), balanced=(None, 40), seeds=(0,)),
    ],
    ids=["one cell", "one norm", "no BatchNorm", "two sizes"],
)
def test_whatever_there_is_makes_a_report(tmp_path, axes):
    write_runs(tmp_path / "runs", [axes], epochs=30, simulated=False)
    verdict, _ = build_report(tmp_path / "runs", tmp_path / "report", figures=False)
    page = page_of(tmp_path / "report")
    assert "These nights are simulated" not in page
    assert "What this cannot say" in page
    assert verdict.limits


def test_a_report_takes_the_place_of_an_earlier_one(runs, tmp_path):
    out = tmp_path / "report"
    build_report(runs, out, figures=False)
    (out / "tables" / "results.md").write_text("old")
    build_report(runs, out, figures=False)
    assert (out / "tables" / "results.md").read_text() != "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_folder_of_something_else_is_refused_and_left_alone(runs, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ArgumentError, match="holds something else than a report, expected an"):
        build_report(runs, tmp_path, figures=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_report_with_a_users_file_in_it_is_refused_and_names_the_file(runs, tmp_path):
    out = tmp_path / "report"
    build_report(runs, out, figures=False)
    (out / "tables" / "notes.txt").write_text("mine")
    with pytest.raises(ArgumentError, match=r"holds tables/notes.txt, which no report wrote"):
        build_report(runs, out, figures=False)
    assert (out / "tables" / "notes.txt").read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(runs, tmp_path):
    (tmp_path / "report").write_text("a file")
    with pytest.raises(ArgumentError, match="is not a folder, expected one for the report"):
        build_report(runs, tmp_path / "report", figures=False)


def test_a_link_to_a_folder_stays_one(runs, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "report").symlink_to(tmp_path / "elsewhere")
    build_report(runs, tmp_path / "report", figures=False)
    assert (tmp_path / "report").is_symlink()
    assert (tmp_path / "elsewhere" / "index.html").exists()


def test_a_report_that_fails_leaves_the_earlier_one_as_it_was(runs, tmp_path, monkeypatch):
    out = tmp_path / "report"
    build_report(runs, out, figures=False)
    before = page_of(out)

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "provenance", fail)
    with pytest.raises(KeyboardInterrupt):
        build_report(runs, out, figures=False)
    assert page_of(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def drawn(n, size):
    names = [f"figure-{number}" for number in range(n)]
    return [
        Figure(name, name.title(), f"words of {name}", "Caption.", b"p" * size, b"s" * (size + 1))
        for name in names
    ]


class Drawn(list):
    missing = ("Spectra: no weights were kept.",)


def test_figures_are_shown_with_words_and_captions_and_kept_beside(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "build_figures", lambda *_: Drawn(drawn(2, 100)))
    build_report(runs, tmp_path / "report")
    page = page_of(tmp_path / "report")
    assert page.count('<img alt="words of figure-') == 2
    assert page.count("<figcaption>Caption.</figcaption>") == 2
    assert "<li>Spectra: no weights were kept.</li>" in page
    assert (tmp_path / "report" / "figures" / "figure-1.svg").read_bytes() == b"s" * 101


def test_figures_that_would_make_the_page_too_large_are_linked_and_said_so(
    runs, tmp_path, monkeypatch
):
    monkeypatch.setattr(building, "build_figures", lambda *_: Drawn(drawn(4, 1_500_000)))
    build_report(runs, tmp_path / "report")
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
