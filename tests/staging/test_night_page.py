"""The page and the pictures of a night: verdict first, every number the night's own."""

import base64
import functools
import html
import io
import re
import struct
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
import staged_nights
from markupsafe import escape

import psdnorm
from psdnorm.errors import StoreError
from psdnorm.report.figures import STAGE_LEVELS
from psdnorm.staging import night_page as drawing
from psdnorm.staging.night_page import (
    clock_ticks,
    draw_distances,
    draw_night,
    draw_spectra,
    night_page,
    night_png,
    time_words,
    write_page,
    write_png,
)
from psdnorm.staging.trust import Distance


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
        monkeypatch.setattr(f"psdnorm.staging.night_page.{name}", lambda *_: b"")


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
    assert "In range: this night is like those that the model learned from." in page
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
    assert f"In {100 * some:.0f} % of the epochs some pairs disagree." in words


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
    said = f"Each of the 3 pairs that vote was measured. This is {' + '.join(night.pairs[0])}"
    assert f"{said}, the first." in plain(page_of(first))
    last = replace(night, shift=replace(night.shift, channels=night.pairs[2]))
    shown = f"This is {' + '.join(night.pairs[2])}, the farthest out of range."
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


LEVELS = [STAGE_LEVELS[stage] for stage in ("W", "N1", "N2", "N3", "REM")]


def stairs(axes, label):
    return next(each for each in axes.patches if each.get_label() == label).get_data()


def texts(canvas):
    from matplotlib.text import Text

    return [text.get_text() for text in canvas.findobj(Text) if text.get_text()]


@pytest.mark.slow
def test_two_days_are_drawn_and_confidence_as_means_of_five_minutes():
    night = staged_nights.two_days()
    axes = draw_night(night).axes
    found = stairs(axes[3], "confidence\n(means of 5 min)")
    assert len(found.values) == 576
    assert found.values[7] == pytest.approx(100 * night.confidence[70:80].mean(), rel=1e-6)
    assert np.isnan(found.values[205])  # nothing was staged there
    assert "00:00\nday 3" in [label.get_text() for label in axes[3].get_xticklabels()]


def test_stages_probabilities_and_confidence_are_those_of_the_night():
    night = staged_nights.staged()
    hypnogram, density, _, sure = draw_night(night).axes[:4]
    drawn = stairs(hypnogram, "stage")
    np.testing.assert_array_equal(drawn.values, np.array(LEVELS)[night.hypnogram])
    np.testing.assert_array_equal(drawn.edges, 30 * np.arange(len(night.hypnogram) + 1))
    deep = stairs(density, "N3")
    np.testing.assert_allclose(deep.values, 100 * night.probabilities[:, 3], rtol=1e-6)
    confidence = stairs(sure, "confidence")
    np.testing.assert_allclose(confidence.values, 100 * night.probabilities.max(axis=1), rtol=1e-6)
    own = night.pair_probabilities.argmax(axis=2)
    share = 100 * (own != night.hypnogram).mean(axis=0)
    assert share.max() > 0
    np.testing.assert_allclose(stairs(sure, "of 3 pairs,\ndisagree").values, share, rtol=1e-5)


def test_the_spectrogram_is_the_nights_and_shares_the_time_axis():
    night = staged_nights.staged()
    panels = draw_night(night).axes[:4]
    image = panels[2].images[0]
    np.testing.assert_array_equal(image.get_array().filled(np.nan), night.spectrogram.power_db.T)
    assert image.get_extent()[:2] == [0, 30 * len(night.hypnogram)]
    assert {panel.get_xlim() for panel in panels} == {(0, 30 * len(night.hypnogram))}
    assert "frequency (Hz)" in panels[2].get_ylabel()
    assert "power (dB of 1 µV²/Hz)" in texts(panels[2].figure)


def test_what_could_not_be_staged_is_a_gap_that_is_named():
    night = staged_nights.never_staged()
    axes = draw_night(night).axes
    assert np.isnan(stairs(axes[0], "stage").values).all()
    assert {"not staged", "no signal"} <= set(texts(axes[0].figure))


def test_one_pair_has_no_disagreement():
    assert not any("disagree" in text for text in texts(draw_night(staged_nights.fed_twice())))


def test_the_title_is_the_verdict_with_its_first_reason():
    canvas = draw_night(staged_nights.not_trusted())
    title = " ".join(canvas.get_suptitle().split())
    assert title == f"night.edf: do not trust. {staged_nights.REASONS[0]} And 1 more reason."


def test_the_notice_is_printed_on_it_and_only_where_there_is_one():
    assert draw_night(staged_nights.staged()).get_supxlabel() == staged_nights.NOTICE
    assert draw_night(staged_nights.without_clock()).get_supxlabel() == ""


def test_time_is_the_clocks_where_the_start_is_known_and_else_counted():
    assert draw_night(staged_nights.staged()).axes[3].get_xlabel() == "clock time (h:min)"
    counted = draw_night(staged_nights.without_clock()).axes[3]
    assert counted.get_xlabel() == "time from the start of the recording (h:min)"
    assert [label.get_text() for label in counted.get_xticklabels()][:2] == ["0:00", "0:10"]


def test_lights_are_drawn_where_they_are():
    night = staged_nights.staged()
    lit = replace(night.statistics, lights="given", lights_off_s=600.0, lights_on_s=6600.0)
    hypnogram = draw_night(replace(night, statistics=lit)).axes[0]
    lines = [line for line in hypnogram.lines if len(line.get_xdata()) == 2]
    assert [line.get_xdata()[0] for line in lines] == [600.0, 6600.0]
    assert "lights off, on" in texts(hypnogram.figure)


def test_a_name_is_text_whatever_is_in_it():
    night = staged_nights.staged(source="a$b_{c$\udce9\n夜.edf")
    canvas = draw_night(night)
    assert canvas.get_suptitle() == "a$b_{c$??夜.edf: in range"
    assert night_png(night).startswith(b"\x89PNG")


def test_pictures_are_written_atomically(tmp_path):
    write_png(tmp_path / "night.png", staged_nights.one_epoch())
    from PIL import Image

    assert Image.open(io.BytesIO((tmp_path / "night.png").read_bytes())).format == "PNG"
    with pytest.raises(StoreError, match=r"night\.png cannot be written"):
        write_png(tmp_path / "nowhere" / "night.png", staged_nights.one_epoch())


def test_distances_are_drawn_against_their_limits():
    axes = draw_distances((Distance("input", 1.2, 0.9, 1.5, 0.8),)).axes[0]
    drawn = {
        line.get_label(): line.get_xdata()[0] for line in axes.lines if line.get_label()[0] != "_"
    }
    assert drawn == {"their median": pytest.approx(0.6), "this night": pytest.approx(0.8)}


@pytest.mark.parametrize(
    ("value", "told"), [(30.0, "20"), (np.inf, "beyond all"), (np.nan, "beyond all")]
)
def test_a_night_that_is_far_away_is_an_arrow_that_says_how_far(value, told):
    canvas = draw_distances((Distance("input", value, 0.9, 1.5, 1.0),))
    (night,) = [line for line in canvas.axes[0].lines if line.get_label() == "this night"]
    assert night.get_marker() == ">"
    assert told in [text.strip() for text in texts(canvas)]


def test_spectra_are_in_db_and_a_flat_channel_is_a_gap():
    shift = staged_nights.shift_report()
    psd = shift.night_psd.copy()
    psd[1] = 0
    left, right, flat = draw_spectra(replace(shift, night_psd=psd)).axes[:3]
    lines = {line.get_label(): line.get_ydata() for line in left.lines}
    np.testing.assert_allclose(lines["this night"], 10 * np.log10(shift.night_psd[0]))
    np.testing.assert_allclose(lines["training nights"], 10 * np.log10(shift.training_psd[0]))
    np.testing.assert_allclose(right.lines[1].get_ydata(), shift.filter_db[0])
    assert np.isnan(flat.lines[0].get_ydata()).all()


def test_without_training_nights_the_filter_is_said_to_be_unknown():
    canvas = draw_spectra(staged_nights.unknown_training().shift)
    assert texts(canvas).count("not known") == 2
    assert "training nights" not in texts(canvas)


def test_a_channel_that_is_fed_twice_is_drawn_once():
    shift = staged_nights.shift_report()
    assert len(draw_spectra(replace(shift, channels=("C3-A2", "C3-A2"))).axes) == 2


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (30, ["22:41:10", "22:41:15", "22:41:20", "22:41:25", "22:41:30", "22:41:35", "22:41:40"]),
        (3 * 3600, ["23:00", "23:30", "00:00", "00:30", "01:00", "01:30"]),
        (8 * 3600, ["23:00", "00:00", "01:00", "02:00", "03:00", "04:00", "05:00", "06:00"]),
    ],
)
def test_ticks_are_whole_times_of_the_clock(seconds, labels):
    places, found = clock_ticks(staged_nights.START, seconds)
    assert found == labels
    assert all(0 <= place <= seconds for place in places)
    assert time_words(staged_nights.START, places[-1]).startswith(labels[-1])


def test_a_recording_that_starts_within_a_second_has_its_ticks_in_place():
    places, labels = clock_ticks(datetime(2021, 1, 1, 23, 59, 59, 500_000), 3600)
    assert labels[0] == "00:00"
    assert places[0] == pytest.approx(0.5)
