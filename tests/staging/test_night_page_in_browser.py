"""The page of a night works in a browser: from disk, alone, by keyboard, wide and narrow."""

import os
from pathlib import Path

import pytest
import staged_nights
from browsers import MARKS, chromium, watched

from psdnorm.staging.night_page import write_page

pytestmark = MARKS
OPENED = ("not-trusted", "ten-pairs", "without-votes", "one-epoch")


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nights")
    for name in OPENED:
        night = staged_nights.NIGHTS[name]()
        compared = staged_nights.compared(night) if name == "not-trusted" else None
        write_page(folder / f"{name}.html", night, compared)
    return folder


@pytest.fixture(params=OPENED)
def opened(browser, folder, request):
    with watched(browser, (folder / f"{request.param}.html").as_uri()) as open_page:
        yield open_page


@pytest.mark.parametrize("width", [320, 360, 1280])
def test_the_page_itself_never_scrolls_sideways(opened, width):
    page = opened(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_pictures_are_shown_and_each_has_words(opened):
    page = opened()
    pictures = page.evaluate(
        "[...document.images].map((image) => [image.naturalWidth, image.alt.length])"
    )
    assert pictures
    assert all(width > 500 and letters > 40 for width, letters in pictures)


def test_on_a_phone_the_picture_stays_readable_and_the_keyboard_reaches_it(opened):
    page = opened(360)
    region = page.locator(".wide").first
    assert region.get_attribute("tabindex") == "0"
    assert region.evaluate("region => region.scrollWidth") >= 700


def test_the_verdict_is_on_the_first_screen_of_a_phone(opened):
    box = opened(360).locator(".verdict > p").first.bounding_box()
    assert box["y"] + box["height"] < 844


def test_the_first_stop_of_the_keyboard_skips_to_the_content(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"


def test_every_table_has_a_name_and_every_column_a_head(opened):
    page = opened()
    tables = page.evaluate(
        "[...document.querySelectorAll('table')].map((table) => [table.caption.textContent,"
        "[...table.tHead.rows[0].cells].every((cell) => cell.textContent.trim() !== '')])"
    )
    assert tables
    assert all(name and headed for name, headed in tables)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_picture_of_it_can_be_taken(opened, width, scheme, tmp_path):
    page = opened(width, scheme)
    # PSDNORM_SCREENSHOTS names a folder for whoever wants to look at them
    folder = Path(os.environ.get("PSDNORM_SCREENSHOTS", tmp_path))
    name = Path(page.url).stem
    path = folder / f"night-{name}-{width}-{scheme}.png"
    page.screenshot(path=path)
    assert path.stat().st_size > 10_000
