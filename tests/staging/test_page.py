"""The page of a night: verdict first, every number the night's own, nothing asked of a network."""

import base64
import functools
import html
import re
import struct
from dataclasses import replace

import numpy as np
import pytest
import staged_nights
from markupsafe import escape

import psdnorm
from psdnorm.staging import hypnogram_figures as drawing
from psdnorm.staging.page import night_page, write_page


def page_of(night, agreement=None):
    return night_page(night, agreement).html()


@functools.cache
def known(name):
    """The page of one of the nights; made once, as pictures take time."""
    return page_of(staged_nights.NIGHTS[name]())


def plain(page):
    """What is read: without markup, and with words in place of pictures."""
    page = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    page = re.sub(r'<img alt="([^"]*)"[^>]*>', r"\1", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def row(page, name):
    """The cells of the row of this name."""
    heading = f'<th scope="row">{escape(name)}</th>'
    cells = re.search(rf"{re.escape(heading)}(.*?)</tr>", page)[1]
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", cells)]


@pytest.fixture
def without_pictures(monkeypatch):
    """Let pages have words alone, where pictures would take time and show nothing."""
    for name in ("night_png", "draw_distances", "draw_spectra", "as_png"):
        monkeypatch.setattr(f"psdnorm.staging.page.{name}", lambda *_: b"")


@pytest.mark.parametrize("name", staged_nights.NIGHTS)
def test_every_kind_of_night_has_a_page_with_its_picture_below_two_megabytes(name):
    assert len(known(name).encode()) < 2_000_000
    assert known(name).endswith("</html>\n")
    picture = base64.b64decode(re.search(r';base64,([^"]*)"', known(name))[1])
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (1300, 1092)


@pytest.mark.usefixtures("without_pictures")
def test_a_page_is_written_as_it_is(tmp_path):
    night = staged_nights.one_epoch()
    write_page(tmp_path / "night.html", night)
    assert (tmp_path / "night.html").read_text(encoding="utf-8") == page_of(night)


@pytest.mark.slow
def test_two_days_of_noise_in_a_thousand_colours_stay_below_two_megabytes():
    night = staged_nights.two_days()
    noise = np.random.default_rng(0).normal(size=night.spectrogram.power_db.shape)
    spectra = replace(night.spectrogram, power_db=noise.astype(np.float32))
    page = page_of(replace(night, spectrogram=spectra), staged_nights.compared(night))
    assert len(page.encode()) < 2_000_000


def test_the_verdict_comes_before_all_else_and_says_why():
    words = plain(known("not-trusted"))
    told = ("Do not trust this hypnogram.", *staged_nights.REASONS, "Hypnogram, probabilities")
    places = [words.index(each) for each in told]
    assert places == sorted(places)
    assert 'class="verdict alarm"' in known("not-trusted")


def test_a_night_in_range_is_said_to_be_and_raises_no_alarm():
    page = known("in-range")
    assert "In range: this night is like those that the model has learned from." in page
    assert 'class="verdict"' in page


@pytest.mark.usefixtures("without_pictures")
def test_what_weakens_the_verdict_stands_with_it():
    night = staged_nights.staged()
    remark = "The model knows only 3 of its training nights."
    page = page_of(replace(night, shift=replace(night.shift, remarks=(remark,))))
    assert page.index(remark) < page.index("<img")


def test_the_notice_is_a_band_on_top_and_only_where_there_is_one():
    band = f'<p class="band" role="note">{staged_nights.NOTICE}</p>'
    page = known("in-range")
    assert page.index(band) < page.index("<h1>")
    assert 'class="band"' not in known("without-clock")


def test_statistics_are_those_of_the_night_each_with_its_definition():
    night = staged_nights.staged()
    page, found = known("in-range"), night.statistics
    assert row(page, "Total sleep time (TST)") == [f"{found.tst_min:.1f} min", "N1, N2, N3 and REM"]
    assert row(page, "Sleep efficiency (SE)")[0] == f"{found.sleep_efficiency_percent:.1f} %"
    assert row(page, "Wake after sleep onset (WASO)")[0] == f"{found.waso_min:.1f} min"
    assert row(page, "Awakenings")[0] == str(found.awakenings)
    assert row(page, "Lights off") == ["22:41:10", "taken from: sleep period ± 30 min"]
    n2_min = np.count_nonzero(night.hypnogram == 2) / 2
    share = 100 * n2_min / found.tst_min
    assert row(page, "N2") == [f"{n2_min:.1f} min", f"{share:.1f} % of total sleep time"]
    assert row(page, "Latency of N3")[0] == f"{found.latency_min['N3']:.1f} min"


@pytest.mark.parametrize("name", ["never-staged", "without-votes"])
def test_what_is_not_defined_is_a_dash(name):
    page = known(name)
    assert row(page, "Total sleep time (TST)")[0] == "–"
    assert row(page, "Fragmentation")[0] == "–"
    assert "nan" not in re.findall(r"\w+", plain(page).lower())


def test_the_words_of_the_picture_say_what_it_shows():
    night = staged_nights.staged()
    words = re.search(r'<img alt="([^"]*)"', known("in-range"))[1]
    for stage, name in enumerate(("W", "N1", "N2", "N3", "REM")):
        assert f"{np.count_nonzero(night.hypnogram == stage) / 2:g} min {name}" in words
    assert f"median confidence is {100 * np.median(night.confidence):.0f} %" in words
    some = (night.pair_probabilities.argmax(axis=2) != night.hypnogram).any(axis=0).mean()
    assert f"In {100 * some:.0f} % of the epochs some of the pairs disagree." in words


def test_distances_stand_beside_the_training_nights_and_say_whether_they_are_beyond():
    night, page = staged_nights.not_trusted(), known("not-trusted")
    for distance in night.shift.distances:
        numbers = (distance.value, distance.typical, distance.limit)
        assert row(page, distance.where)[:3] == [f"{number:.3g}" for number in numbers]
        assert row(page, distance.where)[4] == "beyond"
    assert row(known("in-range"), "input")[3:] == ["62 %", "within"]


@pytest.mark.usefixtures("without_pictures")
def test_where_several_pairs_vote_the_page_says_of_which_the_distances_are():
    night = staged_nights.staged(n_pairs=3)
    first = replace(night, shift=replace(night.shift, channels=night.pairs[0]))
    said = f"Each of the 3 pairs that vote was measured. Shown is {' + '.join(night.pairs[0])}"
    assert f"{said}, the first." in plain(page_of(first))
    last = replace(night, shift=replace(night.shift, channels=night.pairs[2]))
    shown = f"Shown is {' + '.join(night.pairs[2])}, the one that is farthest out of range."
    assert shown in plain(page_of(last))
    alone = replace(night, pairs=night.pairs[:1], pair_probabilities=night.pair_probabilities[:1])
    assert "was measured" not in plain(page_of(alone))


def test_without_training_nights_the_page_says_that_there_are_no_distances():
    words = plain(known("unknown-training"))
    assert "The model does not know its training nights: there are no distances to show." in words
    assert "the filter is not known" in words


def test_a_distance_that_is_not_a_number_is_beyond():
    assert row(known("without-votes"), "input") == ["–", "0.7", "1.5", "100 %", "beyond"]


def test_each_pair_has_its_own_disagreement():
    night, page = staged_nights.NIGHTS["ten-pairs"](), known("ten-pairs")
    for pair, given in zip(night.pairs, night.pair_probabilities, strict=True):
        share = 100 * (given.argmax(axis=1) != night.hypnogram).mean()
        sure = 100 * given.max(axis=1).mean()
        expected = [f"{share:.1f} %", f"{sure:.1f} %", str(len(night.hypnogram))]
        assert row(page, " + ".join(pair)) == expected


@pytest.mark.usefixtures("without_pictures")
def test_a_pair_is_judged_by_the_epochs_it_staged():
    night = staged_nights.staged(n_pairs=2)
    votes = night.pair_probabilities.copy()
    votes[1, 10:] = np.nan
    page = page_of(replace(night, pair_probabilities=votes))
    assert row(page, " + ".join(night.pairs[1]))[2] == "10"


def test_notes_are_listed():
    assert "the model was shown it twice" in known("fed-twice")


@pytest.mark.usefixtures("without_pictures")
def test_agreement_is_shown_where_it_is_given_and_only_there():
    night = staged_nights.staged()
    found = staged_nights.compared(night)
    page = page_of(night, found)
    assert row(page, "Cohen's kappa")[0] == f"{found.kappa:.2f}"
    assert row(page, "balanced accuracy")[0] == f"{100 * found.balanced_accuracy:.1f} %"
    n, worst = found.confusion[2, 1], found.disagreements[0]
    assert f'title="{n} epochs scored N2, staged N1">{n}</td>' in page
    table = page[page.index("most confident of") :]
    cells = re.search(r"<tbody><tr>(.*?)</tr>", table)[1]
    assert f">{worst.epoch}</td>" in cells
    assert f">{100 * worst.confidence:.1f} %</td>" in cells
    assert "Agreement with a scoring" not in known("in-range")


@pytest.mark.usefixtures("without_pictures")
def test_the_model_and_the_versions_are_named():
    page = page_of(staged_nights.staged(model={"name": "mine", "recipe": {"sfreq": 100}}))
    assert row(page, "name") == ["mine"]
    assert row(page, "recipe") == ['{"sfreq": 100}']
    assert f"psdnorm {psdnorm.__version__}" in page


def test_page_and_picture_show_the_same_and_are_drawn_once(monkeypatch, tmp_path):
    night, calls = staged_nights.one_epoch(), []
    draw = drawing.draw_night
    monkeypatch.setattr(drawing, "draw_night", lambda each: calls.append(each) or draw(each))
    page = page_of(night)
    drawing.write_png(tmp_path / "night.png", night)
    assert base64.b64encode((tmp_path / "night.png").read_bytes()).decode() in page
    assert calls == [night]


def test_nothing_that_a_file_says_is_markup():
    evil = "<script>alert(1)</script>\udce9"
    night = staged_nights.staged(source=evil, notes=(evil,), model={"name": evil}, notice=evil[:-1])
    pairs = ((evil, evil), *night.pairs[1:])
    shift = replace(night.shift, channels=(evil, "C4"), reasons=(evil[:-1],))
    page = page_of(replace(night, pairs=pairs, shift=shift))
    assert "<script>alert" not in page
    assert page.encode()


def test_the_page_forbids_itself_the_network_and_says_no_date():
    page = known("in-range")
    assert "default-src 'none'" in page
    assert "http" not in plain(page)
    assert "2021" not in plain(page)
