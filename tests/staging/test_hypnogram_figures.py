"""The picture of a night shows every epoch where it was, and says what must be said."""

import io
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
import staged_nights

from psdnorm.errors import StoreError
from psdnorm.report.figures.hypnodensity import STAGE_LEVELS
from psdnorm.staging.hypnogram_figures import (
    draw_distances,
    draw_night,
    draw_spectra,
    night_png,
    write_png,
)
from psdnorm.staging.shift import Distance
from psdnorm.staging.words import clock_ticks, time_words

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


def test_one_pair_has_nobody_to_disagree_with():
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


def test_a_picture_is_there_whole_or_not_at_all(tmp_path):
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
