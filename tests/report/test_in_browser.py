"""The page works in a browser: from disk, alone, by mouse and by keyboard, wide and narrow."""

import os
from pathlib import Path

import pytest
from browsers import MARKS, chromium, watched
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes
from psdnorm.report.report_page import build_report

NAME = "<script>alert(1)</script>{:04}"
COHORTS = {"ABC": 6, "CHAT": 260}

pytestmark = MARKS


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    axes = Axes(norms=("batch", "layer", "psd"), hold_outs=tuple(COHORTS), seeds=(0,))
    write_runs(folder / "runs", [axes], COHORTS, epochs=30, subject=NAME)
    build_report(folder / "runs", folder / "report")
    return (folder / "report" / "index.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def opened(browser, address):
    with watched(browser, address) as open_page:
        yield open_page


def column(table, number):
    return [
        row.locator("th, td").nth(number).inner_text() for row in table.locator("tbody tr").all()
    ]


def is_sorted(texts, falling=False):
    known = [float(text.replace("−", "-").split()[0]) for text in texts if text != "–"]
    missing_last = "–" not in texts[: len(known)]
    return missing_last and known == sorted(known, reverse=falling)


def test_pictures_are_shown(opened):
    page = opened()
    widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert len(widths) >= 3
    assert min(widths) > 100


def test_the_verdicts_table_needs_no_scrolling_on_a_laptop(opened):
    page = opened(1280)
    scroll = page.locator(".scroll", has=page.locator("table.sortable")).first
    assert scroll.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0


def test_a_click_on_a_head_sorts_and_another_one_turns_it_around(opened):
    page = opened()
    table = page.locator("table.sortable").first  # that of the verdict: BatchNorm has no gain
    head = table.locator("thead th").nth(3)
    assert head.get_attribute("aria-sort") is None
    for falling, name in ((False, "ascending"), (True, "descending")):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == name
        texts = column(table, 3)
        assert "–" in texts
        assert is_sorted(texts, falling)


def test_enter_and_space_sort_too_and_only_one_head_says_so(opened):
    page = opened()
    table = page.locator("table.sortable").first
    heads = table.locator("thead th")
    heads.nth(1).locator("button").focus()
    page.keyboard.press("Enter")
    assert is_sorted(column(table, 1))
    heads.nth(2).locator("button").focus()
    page.keyboard.press("Space")
    assert is_sorted(column(table, 2))
    said = [head.get_attribute("aria-sort") for head in heads.all()]
    assert [name for name in said if name] == ["ascending"]
    assert said[2] == "ascending"


def test_blocks_of_a_table_are_sorted_by_themselves(opened):
    page = opened()
    table = page.locator("table.sortable", has=page.locator("th.group")).first
    groups = table.locator("th.group").all_inner_texts()
    assert len(groups) > 1
    table.locator("thead th").nth(1).locator("button").click()
    assert table.locator("th.group").all_inner_texts() == groups
    for body in table.locator("tbody:not(:has(th.group)):not(.means)").all():
        texts = [row.locator("td").first.inner_text() for row in body.locator("tr").all()]
        assert is_sorted(texts)


def test_means_stay_below_the_cohorts_whichever_way_these_are_sorted(opened):
    page = opened()
    table = page.locator("table.sortable", has=page.locator("tbody.means")).first
    before = column(table, 0)
    place = before.index("Mean(Dataset)")
    button = table.locator("thead button").nth(0)
    for _ in range(2):
        button.click()
        after = column(table, 0)
        assert after[place : place + 2] == ["Mean(Dataset)", "Mean(Subject)"]
    assert after != before
    assert sorted(after) == sorted(before)


@pytest.mark.parametrize("width", [390, 1000])
def test_the_keyboard_stops_at_a_table_only_where_it_scrolls(opened, width):
    page = opened(width)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    regions = "[...document.querySelectorAll('.scroll')]"
    stops, scrolls = "region.tabIndex === 0", "region.scrollWidth > region.clientWidth"
    # the page notices by itself that a table has changed its size, a moment later
    page.wait_for_function(
        f"{regions}.every((region) => ({stops}) === ({scrolls}))", timeout=600_000
    )
    assert set(page.evaluate(f"{regions}.map((region) => {stops})")) == {True, False}


def cohort(page, name):
    part = page.locator("details", has=page.locator("summary", has_text=f"{name}: "))
    part.locator("summary").click()
    place = part.locator("[data-subjects]")
    place.locator("tbody tr").first.wait_for()  # the page lists them a moment after the click
    return place


def test_the_worst_subjects_are_shown_first_and_no_more_than_200(opened):
    place = cohort(opened(), "CHAT")
    assert place.locator("tbody tr").count() == 200
    assert "Shows 200 of 260 subjects" in place.locator(".status").inner_text()
    assert is_sorted(column(place, 1))


def test_subjects_are_found_by_name_and_a_name_is_text(opened):
    place = cohort(opened(), "CHAT")
    place.locator("input").fill("SCRIPT>0123")
    assert column(place, 0) == [NAME.format(123)]
    assert "(1 fit)" in place.locator(".status").inner_text()
    place.locator("input").fill("nobody")
    assert place.locator("tbody tr").count() == 0


def test_sorting_subjects_looks_at_all_of_them(opened):
    place = cohort(opened(), "CHAT")
    button = place.locator("thead button").first
    button.click()
    assert column(place, 0)[0] == NAME.format(0)
    button.click()
    assert column(place, 0)[0] == NAME.format(259)
    assert place.locator("thead th").first.get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_itself_never_scrolls_sideways(opened, width):
    page = opened(width)
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_stop_of_the_keyboard_skips_to_the_content(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_without_scripts_all_is_read_and_subjects_are_pointed_to(opened):
    page = opened(scripts=False)
    assert page.locator("th button").count() == 0
    assert page.locator("noscript").count() == len(COHORTS)
    # <noscript> inside the markup is shown only in a parse without scripts
    assert "tables/subjects.csv" in page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_picture_of_it_can_be_taken(opened, width, scheme, tmp_path):
    page = opened(width, scheme)
    # PSDNORM_SCREENSHOTS names a folder for whoever wants to look at them
    folder = Path(os.environ.get("PSDNORM_SCREENSHOTS", tmp_path))
    path = folder / f"report-{width}-{scheme}.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 10_000
