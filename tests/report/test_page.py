"""A page is one file, says what was simulated, and takes no text for markup."""

import re

import pytest

from psdnorm.errors import StoreError
from psdnorm.report import Page


def test_texts_are_shown_as_they_are():
    evil = "<script>alert('x')</script> & \"y\""
    page = Page(evil).heading(evil).text(evil).command(evil).picture(b"png", evil)
    page.table(evil, [evil, evil], [[evil, evil]])
    assert "<script" not in page.html()
    assert page.html().count("&lt;script&gt;") == 11


@pytest.mark.parametrize("simulated", [True, False])
def test_simulated_nights_are_named_on_top(simulated):
    first = re.search(r"<main>\n(.*)", Page("Norms", simulated=simulated).html())[1]
    assert ("These nights are simulated" in first) is simulated


def test_nothing_is_asked_of_a_network():
    page = Page("Norms").picture(b"png", "a picture").html()
    assert re.findall(r"(?:https?:)?//[^\s\"']+", page.replace("data:image/png;base64,", "")) == []


def test_a_row_is_named_by_its_first_cell():
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], [["psd", "0.5"]]).html()
    assert '<th scope="row">psd</th><td>0.5</td>' in page


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"index\.html cannot be written"):
        Page("Norms").write(tmp_path / "nowhere" / "index.html")
