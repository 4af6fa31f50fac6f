"""A page is one file, says what was simulated, and takes no text for markup."""

import base64
import hashlib
import json
import re

import pytest

from psdnorm.errors import StoreError
from psdnorm.report import Page
from psdnorm.report.tables import TableCell


def test_texts_are_shown_as_they_are():
    evil = "<script>alert('x')</script> & \"y\""
    page = Page(evil).heading(evil).text(evil).command(evil).picture(b"png", evil)
    page.table(evil, [evil, evil], [[evil, evil]])
    assert "<script" not in page.html()
    assert page.html().count("&lt;script&gt;") == 11


@pytest.mark.parametrize("simulated", [True, False])
def test_simulated_nights_are_named_on_top(simulated):
    first = re.search(r"<main id=\"main\">\n(.*)", Page("Norms", simulated=simulated).html())[1]
    assert ("These nights are simulated" in first) is simulated


def test_a_notice_is_a_band_of_its_own():
    page = Page("Night", simulated=True, notice="not for <diagnosis>").html()
    bands = re.findall(r'<p class="band" role="note">(.*?)</p>', page)
    assert len(bands) == 2
    assert bands[1] == "not for &lt;diagnosis&gt;"


def test_a_column_of_words_is_no_column_of_numbers():
    page = Page("Night").table("Sleep", ["name", "is"], [["TST", "all of it"]], words={1}).html()
    assert '<th scope="col" class="words">is</th>' in page
    assert '<td class="words">all of it</td>' in page


def test_a_picture_that_scrolls_is_reached_by_the_keyboard():
    page = Page("Night").picture(b"png", "a night", scrolls=True).html()
    assert re.search(r'<div class="scroll wide" tabindex="0" role="region"[^>]*><img alt=', page)


def test_nothing_is_asked_of_a_network():
    page = Page("Norms").picture(b"png", "a picture").html()
    assert re.findall(r"(?:https?:)?//[^\s\"']+", page.replace("data:image/png;base64,", "")) == []


def test_a_row_is_named_by_its_first_cell():
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], [["psd", "0.5"]]).html()
    assert '<th scope="row">psd</th><td>0.5</td>' in page


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"index\.html cannot be written"):
        Page("Norms").write(tmp_path / "nowhere" / "index.html")


@pytest.mark.parametrize(
    ("text", "value"),
    [("79.51 ± 0.20", "79.51"), ("−1.50", "-1.5"), ("+0.25", "0.25"), ("5,730", "5730")],
)
def test_numbers_are_sorted_by_what_they_say(text, value):
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], [["psd", text]], sortable=True).html()
    assert f'<td data-v="{value}">{text}</td>' in page


def test_what_is_not_there_has_nothing_to_be_sorted_by():
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], [["psd", "–"]], sortable=True).html()
    assert "<td>–</td>" in page


def test_an_entry_is_sorted_by_its_value_and_the_best_stands_out():
    best = TableCell("79.51", 79.512345, bold=True)
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], [["psd", best]], sortable=True).html()
    assert '<td class="best" data-v="79.512345">79.51</td>' in page


def test_rows_below_a_heading_are_a_body_of_their_own():
    rows = [["Ours"], ["psd", "1"], ["The paper"], ["psd", "2"]]
    page = Page("Norms").table("Accuracy", ["norm", "CHAT"], rows).html()
    bodies = re.findall("<tbody>.*?</tbody>", page)
    assert [re.sub("<[^>]*>", " ", body).split() for body in bodies] == [
        ["Ours"],
        ["psd", "1"],
        ["The", "paper"],
        ["psd", "2"],
    ]


def test_rows_of_means_are_a_body_that_is_not_sorted():
    rows = [["Ours"], ["ABC", "1"], ["CHAT", "2"], ["Mean(Dataset)", "1.5"], ["Mean(Subject)", "1"]]
    page = Page("Norms").table("Accuracy", ["cohort", "psd"], rows, sortable=True).html()
    bodies = re.findall("<tbody[^>]*>.*?</tbody>", page)
    assert [body.count("<tr>") for body in bodies] == [1, 2, 2]
    assert [body.startswith('<tbody class="means">') for body in bodies] == [False, False, True]


@pytest.mark.parametrize(("metrics", "is_sorted"), [(("a", "a"), True), (("a", "b"), False)])
def test_rows_of_different_quantities_are_not_sorted(metrics, is_sorted):
    rows = [[name, TableCell("1", 1.0, facts={"metric": name})] for name in metrics]
    page = Page("Norms").table("Times", ["quantity", "psd"], rows, sortable=True).html()
    assert ('class="sortable"' in page) is is_sorted


def test_columns_may_be_different_quantities():
    entries = [TableCell("1", 1.0, facts={"metric": name}) for name in ("f1_W", "f1_N1")]
    rows = [["ABC", *entries], ["CHAT", *entries]]
    page = Page("Norms").table("F1", ["cohort", "W", "N1"], rows, sortable=True).html()
    assert 'class="sortable"' in page


def test_names_that_turn_the_direction_of_writing_turn_nothing_else():
    name = "lab\u202e<b>"
    isolated = "<bdi>lab\u202e&lt;b&gt;</bdi>"
    page = Page(name).heading(f"Of {name} alone").text(f"Of {name} alone")
    page.fold(f"{name} 3", page.part()).table(f"Of {name} alone", ["cohort", "n"], [[name, name]])
    page = page.html()
    assert page.count(isolated) == page.split("<body>")[1].count("\u202e") == 7


def test_entries_of_a_matrix_tell_their_counts_and_the_diagonal_stands_out():
    entries = [[("90.0", "9 of 10 epochs"), ("10.0", "1 of 10 epochs")]] * 2
    page = Page("Norms").matrix("Stages", ["W", "N1"], entries).html()
    assert re.findall('<td class="best" title="(.)', page) == ["9", "1"]
    assert page.count('title="9 of 10 epochs">90.0</td>') == 2
    assert '<th scope="row">N1</th>' in page


def test_embedded_subjects_end_no_script_and_come_back_as_they_were():
    name = "</script><script>alert(1)</script><!-- & \u2028"
    page = Page("Norms").subjects("All", [("subject", "text")], [[name]], 0, "no script").html()
    embedded = re.search(r'<script type="application/json" id="\w+">(.*?)</script>', page, re.S)[1]
    assert not set(embedded) & set("<>&\u2028")
    assert json.loads(embedded)["rows"] == [[name]]
    assert "<noscript><p>no script</p></noscript>" in page


def test_only_the_pages_own_script_may_run_and_nothing_may_be_loaded():
    page = Page("Norms").table("Accuracy", ["norm"], [["psd"]], sortable=True).html()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    code = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


def test_a_page_that_sorts_nothing_has_no_script():
    assert "<script" not in Page("Norms").table("Accuracy", ["norm"], [["psd"]]).html()


def test_contents_link_to_every_section_in_order():
    page = Page("Norms", contents=True).heading("One").heading("Within", 3)
    page.add(page.part().heading("Two"))
    links = re.findall(r'<li><a href="#(\w+)">(\w+)</a></li>', page.html())
    assert [text for _, text in links] == ["One", "Two"]
    for name, text in links:
        assert f'<h2 id="{name}">{text}</h2>' in page.html()


def test_no_two_elements_share_an_id():
    page = Page("Norms", contents=True).heading("One")
    part = page.part().table("A", ["a"], [["b"]]).subjects("S", [("subject", "text")], [], 0, "")
    page.fold("More", part).table("B", ["a"], [["b"]]).heading("Two")
    ids = re.findall(r' id="(\w+)"', page.html())
    assert len(ids) == len({*ids}) > 6


def test_colours_of_text_have_enough_contrast_in_both_schemes():
    style = re.search("<style>(.*?)</style>", Page("Norms").html(), re.S)[1]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)
    for scheme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w+)", scheme))
        for text, ground in [("ink", "paper"), ("soft", "paper"), ("link", "paper")]:
            assert contrast(colours[text], colours[ground]) >= 4.5
            assert contrast(colours[text], colours["wash"]) >= 4.5
        assert contrast("#fff", colours["band"]) >= 4.5


def contrast(one, other):
    """Ratio as WCAG 2 defines it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
