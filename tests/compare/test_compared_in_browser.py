"""The page of a comparison works in a browser: alone, wide and narrow, with its figures."""

import pytest
from browsers import MARKS, chromium, watched
from experiment_runs import MERIT, write_runs

from psdnorm.compare import compare, write_comparison
from psdnorm.experiments.grid import Axes

pytestmark = MARKS


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    axes = Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT"), seeds=(0, 1))
    write_runs(folder / "a", [axes], epochs=30)
    better = {norm: merit + 0.1 for norm, merit in MERIT.items()}
    write_runs(folder / "b", [axes], epochs=30, merit=better)
    write_comparison(compare(folder / "a", folder / "b"), folder / "out", "psdnorm compare a b")
    return (folder / "out" / "index.html").as_uri()


@pytest.mark.parametrize("width", [390, 1280])
def test_it_shows_its_figures_sorts_and_never_scrolls_sideways(address, width):
    with chromium() as browser, watched(browser, address) as open_page:
        page = open_page(width)
        widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert len(widths) == 6
        assert min(widths) > 100
        head = page.locator("table.sortable").first.locator("thead th").nth(4)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
