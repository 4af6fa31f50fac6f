"""Scorings of every format land on the epochs that they were made for, or are refused by name."""

from datetime import datetime

import edf_files
import numpy as np
import pytest
from scorings import nsrr, profusion

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, PsdnormError, RecordingError
from psdnorm.io import read_stages
from psdnorm.io.edf import read_annotations, write_annotations
from psdnorm.io.scoring import FORMATS, grid_s, read_bouts, says_stage, stage_of, write_stages
from psdnorm.models import checkpoint as card

W, N1, N2, N3, REM, NO = 0, 1, 2, 3, 4, -1
START = datetime(2001, 2, 3, 22, 10, 5)


@pytest.fixture
def save(tmp_path):
    def save(content, name):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return save


def refusal(path, duration_s=300.0, start=None, error=RecordingError):
    with pytest.raises(error) as caught:
        read_stages(path, duration_s, start)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edf_plus(*notes, **options):
    """An EDF+ with (onset, duration, text) annotations alone."""
    content = b"+0\x14\x14\x00" + b"".join(
        f"+{onset}\x15{duration}\x14{text}\x14\x00".encode() for onset, duration, text in notes
    )
    return edf_files.edf(
        [edf_files.annotations([content], size=2000)], record_s=0, reserved="EDF+C", **options
    )


def test_stages_are_numbered_as_models_number_them():
    assert STAGES == card.STAGES == ("W", "N1", "N2", "N3", "REM")


@pytest.mark.parametrize(
    ("names", "stage"),
    [
        ("W Wake AWAKE 0 S0 w SLEEP-S0|Sleep stage W|Stage W|wake ", W),
        ("N1 1 S1 n1 NREM1 SLEEP-S1|Sleep stage 1|Sleep stage N1|Stage 1 sleep|NREM 1", N1),
        ("N2 2 S2 Stage2|Sleep stage 2|Sleep stage N2|sleep_stage_2|Stage 2 sleep", N2),
        ("N3 3 4 S3 S4 N4|Sleep stage 3|Sleep stage 4|Stage 4 sleep|Sleep stage N3", N3),
        ("R REM 5 rem SLEEP-REM|Sleep stage R|REM sleep|Stage REM|Sleep stage REM", REM),
        ("? -1 9 6 M MT n/a Unscored|Sleep stage ?|Movement time|unscored|Movement", NO),
        ("X 7 8 -2 -5 N5 W1 arousal 10 1.0 sleep stage|Sleep stage 7|Stage|Hypopnea||0 1", None),
    ],
)
def test_names_of_both_schools_and_their_spellings_are_known(names, stage):
    first, *rest = names.split("|")
    assert {name: stage_of(name) for name in first.split() + rest} == dict.fromkeys(
        first.split() + rest, stage
    )


def test_annotations_are_written_anonymously_and_mne_reads_them(tmp_path):
    mne = pytest.importorskip("mne")
    path = tmp_path / "night.edf"
    start = datetime(2021, 3, 4, 22, 30, 1)
    notes = [(0.0, 30.0, "Sleep stage W"), (30.25, 1.5, "Arousal, größer"), (90.0, 0.0, "?")]
    write_annotations(path, notes, start)
    found, counted_from = read_annotations(path)
    assert ([*map(tuple, found)], counted_from) == (notes, start)
    head = path.read_bytes()[8:168].decode()
    assert head.split() == ["X", "X", "X", "X", "Startdate", "04-MAR-2021", "X", "X", "X"]
    read = mne.read_annotations(path)
    assert [*zip(read.onset, read.duration, read.description, strict=True)] == notes


def test_a_fraction_of_a_second_of_the_start_is_kept(tmp_path):
    start = datetime(2021, 3, 4, 22, 30, 1, 500_000)
    write_stages(tmp_path / "night.edf", [W, N2], "edf", start)
    assert [bout.onset_s for bout in read_bouts(tmp_path / "night.edf", start)] == [0.0, 30.0]


@pytest.mark.parametrize("year", [1901, 2085, 3000])
def test_a_year_that_edf_cannot_hold_is_left_out_and_the_time_of_day_is_kept(tmp_path, year):
    write_annotations(tmp_path / "n.edf", [(0, 30, "W")], datetime(year, 3, 4, 22, 30, 1))
    assert read_annotations(tmp_path / "n.edf")[1] == datetime(1985, 1, 1, 22, 30, 1)


def test_no_annotation_cannot_be_written(tmp_path):
    with pytest.raises(ArgumentError, match=r"n\.edf would hold no annotation"):
        write_annotations(tmp_path / "n.edf", [])


def test_nsrr_xml(save):
    concepts = ["Wake|0", "Stage 1 sleep|1", "Stage 2 sleep|2", "Stage 3 sleep|3"]
    concepts += ["Stage 4 sleep|4", "REM sleep|5", "Unscored|9", "Movement|6"]
    events = [(concept, 60.0 * i, 60.0) for i, concept in enumerate(concepts)]
    stages = read_stages(save(nsrr(*events), "night-nsrr.xml"), 500)
    assert stages.dtype == np.int8
    assert stages.tolist() == np.repeat([W, N1, N2, N3, N3, REM, NO, NO], 2).tolist()


def test_profusion_xml(save):
    path = save(profusion(0, 1, 2, 3, 4, 5, 9, 0), "night-profusion.xml")
    assert read_stages(path, 250).tolist() == [W, N1, N2, N3, N3, REM, NO, W]


def test_sleep_edf_annotations_and_their_unscored_tail(save):
    notes = [(0, 60, "W"), (60, 30, "1"), (90, 30, "2"), (120, 30, "3"), (150, 30, "4")]
    notes = [(onset, duration, f"Sleep stage {text}") for onset, duration, text in notes]
    notes += [(180, 30, "Movement time"), (210, 30, "Sleep stage R"), (240, 6900, "Sleep stage ?")]
    path = save(edf_plus(*notes), "SC4001EC-Hypnogram.edf")
    assert read_stages(path, 270, START).tolist() == [W, W, N1, N2, N3, N3, NO, REM, NO]


def test_mass_annotations_of_fractional_seconds_without_a_duration_and_among_events(save):
    notes = [b"+0\x14\x14\x00", b"+0.004\x1529.997\x14Sleep stage W\x14\x00"]
    notes += [b"+12\x15.7\x14Arousal\x14\x00", b"+30.001\x14Sleep stage 2\x14\x00"]
    notes += [b"+60.004\x1530\x14Sleep stage R\x14Snoring\x14\x00"]
    signal = edf_files.annotations([b"".join(notes)], size=200)
    path = save(edf_files.edf([signal], record_s=0, reserved="EDF+C"), "01-03-0001 Base.edf")
    assert read_stages(path, 120, START).tolist() == [W, N2, REM, NO]


@pytest.mark.parametrize("column", ["stage", "trial_type", "Sleep_Stage"])
def test_bids_events(column, save):
    text = f"onset\tduration\t{column}\n0\t30\tW\n30.0\t60\tN2\n90\t30\tn/a\n120\tn/a\tR\n\n"
    assert read_stages(save(text, "sub-1_events.tsv"), 180).tolist() == [W, N2, N2, NO, REM, NO]


def test_bids_events_of_other_kinds_are_left_out(save):
    text = "onset\tduration\ttrial_type\n0\t30\tSleep stage W\n4\t2.5\tR\n5\t1\tlights off\n"
    assert read_stages(save(text, "events.tsv"), 60).tolist() == [W, NO]


def test_a_comma_separates_as_well(save):
    text = "\ufeffonset,stage,duration\r\n30,S3,30\r\n60,REM,30\r\n"
    assert read_stages(save(text, "scoring.csv"), 90).tolist() == [NO, N3, REM]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_stage_per_line(end, save):
    path = save(end.join(["W", "N1", "?", "n3", "REM", "", ""]), "night.txt")
    assert read_stages(path, 180).tolist() == [W, N1, NO, N3, REM, NO]


def test_digits_per_line_are_those_of_rechtschaffen_and_kales(save):
    assert read_stages(save("0\n1\n2\n3\n4\n5\n9\n", "n.txt"), 210).tolist() == [
        *(W, N1, N2, N3, N3, REM, NO)
    ]
    assert "4 may be stage 4 or REM" in refusal(save("0\n1\n2\n3\n4\n", "n.txt"))
    text = "onset\tduration\tstage\n0\t30\t0\n30\t30\t4\n"
    assert "4 may be stage 4 or REM" in refusal(save(text, "n.tsv"))


def test_what_starts_later_ends_earlier_or_has_gaps_stays_in_place(save):
    path = save(nsrr(("Stage 2 sleep|2", 90, 30), ("REM sleep|5", 180, 60)), "n.xml")
    assert read_stages(path, 330).tolist() == [NO, NO, NO, N2, NO, NO, REM, REM, NO, NO, NO]


def test_an_epoch_off_the_grid_gets_the_stage_that_covers_most_of_it(save):
    path = save(nsrr(("Wake|0", 10, 60), ("Stage 2 sleep|2", 70, 60)), "n.xml")
    # 20 s, 30 s and 10 s of wake, 20 s, 30 s and 10 s of N2
    assert read_stages(path, 150).tolist() == [W, W, N2, N2, NO]


@pytest.mark.parametrize(("seconds", "first"), [(60, 2), (0, 0), (-30, -1)])
def test_a_scoring_with_a_clock_is_placed_by_the_clock(seconds, first, save):
    at = {60: "22.11.05", 0: "22.10.05", -30: "22.09.35"}[seconds]
    path = save(edf_plus((0, 30, "Sleep stage 1"), (30, 30, "Sleep stage R"), time=at), "h.edf")
    expected = np.full(6, NO)
    for stage, epoch in ((N1, first), (REM, first + 1)):
        if epoch >= 0:
            expected[epoch] = stage
    assert read_stages(path, 180, START).tolist() == expected.tolist()
    assert read_stages(path, 180).tolist() == [N1, REM, NO, NO, NO, NO]


def test_midnight_between_the_starts_is_no_day(save):
    note = (0, 30, "Sleep stage 2")
    path = save(edf_plus(note, date="04.02.01", time="00.00.05"), "h.edf")
    assert read_stages(path, 90, datetime(2001, 2, 3, 23, 59, 5)).tolist() == [NO, NO, N2]


def test_a_blurred_date_counts_for_nothing_and_another_time_of_day_is_refused(save):
    note = (30, 30, "Sleep stage 2")
    path = save(edf_plus(note, date="01.01.85"), "h.edf")
    assert read_stages(path, 90, START).tolist() == [NO, N2, NO]
    path = save(edf_plus(note, date="01.01.85", time="03.00.00"), "h.edf")
    message = refusal(path, start=START)
    assert "starts at 1985-01-01 03:00:00, expected a start within a day" in message


def test_overlapping_stages_are_refused(save):
    path = save(nsrr(("Wake|0", 0, 60), ("Stage 1 sleep|1", 30, 30)), "n.xml")
    assert "overlapping stages, one from 0 s for 60 s and one from 30 s" in refusal(path)


@pytest.mark.parametrize(
    ("content", "name", "found"),
    [
        (nsrr(("Stage 7 sleep|7", 0, 30)), "n.xml", "'7'"),
        (nsrr(("", 0, 30)), "n.xml", "''"),
        (profusion(0, "N9"), "n.xml", "'N9'"),
        (edf_plus((0, 30, "Sleep stage Q")), "n.edf", "'Sleep stage Q'"),
        ("onset\tduration\tstage\n0\t30\tdrowsy\n", "n.tsv", "'drowsy'"),
        ("W\nW\nstage\n", "n.txt", "'stage'"),
    ],
)
def test_an_unknown_stage_is_named(content, name, found, save):
    assert f"has {found} as a stage, expected W, N1" in refusal(save(content, name))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (nsrr(), "n.xml"),
        (nsrr(("Unscored|9", 0, 300)), "n.xml"),
        (profusion(), "n.xml"),
        (edf_plus(), "n.edf"),
        (edf_plus((3, 10, "Arousal"), (5, 1, "2")), "n.edf"),
        ("onset\tduration\tstage\n", "n.tsv"),
        ("", "n.txt"),
        ("\n\n", "n.txt"),
        ("?\n?\n", "n.txt"),
    ],
)
def test_an_empty_hypnogram_is_refused(content, name, save):
    assert "scores no epoch" in refusal(save(content, name))


def test_one_epoch_too_many_is_cut_off_and_more_is_refused(save):
    path = save("W\n" * 11, "n.txt")
    assert read_stages(path, 300).tolist() == [W] * 10
    assert "scores 0 to 330 s, expected stages within the signal's 290 s" in refusal(path, 290)
    path = save("W\n" * 11 + "?\n" * 90, "n.txt")  # unscored is nothing
    assert read_stages(path, 300).tolist() == [W] * 10
    path = save(edf_plus((0, 300, "Sleep stage W"), time="22.00.00"), "h.edf")
    assert "scores -605 to -305 s" in refusal(path, start=START)


def test_epochs_of_another_length_are_refused(save):
    notes = [(20 * i, 20, "Sleep stage 2") for i in range(9)]
    assert "stages that last 20 s, expected epochs of 30 s" in refusal(
        save(edf_plus(*notes), "n.edf")
    )
    path = save(profusion(0, 1, epoch_s=20), "n.xml")
    assert "has epochs of 20 s, expected 30 s" in refusal(path)


@pytest.mark.parametrize("off_s", [0.4, 0.6, 1.0])
def test_less_than_half_a_second_is_no_other_grid(off_s, save):
    for onset_s, border_s in ((60 + off_s, off_s), (60 - off_s, 30 - off_s)):
        path = save(nsrr(("Wake|0", onset_s, 30), ("Stage 2 sleep|2", onset_s + 30, 60)), "n.xml")
        expected_s = 0 if off_s < 0.5 else border_s
        assert grid_s(read_bouts(path)) == pytest.approx(expected_s)


@pytest.mark.parametrize("over_s", [0.4, 0.6, 1.0])
def test_less_than_half_a_second_is_no_overlap(over_s, save):
    stages = [("Wake|0", 0, 30 + over_s), *(("REM sleep|5", 30 * i, 30) for i in range(1, 4))]
    path = save(nsrr(*stages), "n.xml")
    if over_s < 0.5:
        assert read_stages(path, 120).tolist() == [W, REM, REM, REM]
    else:
        expected = f"overlapping stages, one from 0 s for {30 + over_s:g} s and one from 30 s"
        assert expected in refusal(path)


@pytest.mark.parametrize("longer_s", [0.4, 0.6, 1.0, -0.4, -0.6, -1.0])
def test_less_than_half_a_second_is_no_other_length(longer_s, save):
    length_s = 30 + longer_s
    path = save(nsrr(*(("Wake|0", 60 * i, length_s) for i in range(3))), "n.xml")
    if abs(longer_s) < 0.5:
        assert read_stages(path, 150).tolist() == [W, NO, W, NO, W]
    else:
        assert f"stages that last {length_s:g} s, expected epochs of 30 s" in refusal(path)


def test_a_stage_of_no_length_marks_one_epoch(save):
    text = "onset\tduration\tstage\n0\t0\tW\n30\t0\tN1\n60\t0\tN2\n120\t0\tR\n"
    # from 90 s on nothing is marked
    assert read_stages(save(text, "n.tsv"), 150).tolist() == [W, N1, N2, NO, REM]
    path = save(edf_plus((0, 0, "Sleep stage 1"), (30, 60, "Sleep stage 2")), "n.edf")
    assert read_stages(path, 90).tolist() == [N1, N2, N2]


def test_a_marker_gives_way_to_a_stage_that_lasts_and_to_no_other_marker(save):
    path = save(nsrr(("Stage 1 sleep|1", 30, 0), ("Wake|0", 30, 60)), "n.xml")
    assert read_stages(path, 90).tolist() == [NO, W, W]
    path = save(nsrr(("Stage 1 sleep|1", 30, 0), ("Wake|0", 30, 0)), "n.xml")
    assert "overlapping stages" in refusal(path)


def test_a_scoring_that_covers_no_epoch_of_the_signal_is_refused(save):
    path = save(nsrr(("Wake|0", 0, 10), ("Stage 1 sleep|1", 30, 30)), "n.xml")
    assert refusal(path, 31.0).endswith(
        "scores 0 to 60 s, but no stage covers half an epoch of the signal's 31 s, expected a "
        "hypnogram of it"
    )
    path = save(edf_plus((0, 30, "Sleep stage 1"), time="22.09.35"), "h.edf")
    assert "scores -30 to 0 s, but no stage covers half an epoch" in refusal(path, start=START)


def test_a_last_epoch_that_is_cut_short_is_none(save):
    path = save(
        nsrr(("Wake|0", 0, 60), ("Stage 1 sleep|1", 60, 30), ("REM sleep|5", 90, 12)), "n.xml"
    )
    assert read_stages(path, 120).tolist() == [W, W, N1, NO]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("<PSGAnnotation><ScoredEvents>", "n.xml", "is not XML"),
        (b"\xff\xfe\x00", "n.xml", "is not XML"),
        ("", "n.xml", "is not XML"),
        ('<?xml version="1.0" encoding="klingon"?><PSGAnnotation/>', "n.xml", "is not XML"),
        (
            "<html/>",
            "n.xml",
            "is an XML of 'html', expected PSGAnnotation (NSRR) or CMPStudyConfig",
        ),
        ("<a>" * 10_000, "n.xml", "nests XML deeper"),
        (nsrr(("Wake|0", "noon", 30)), "n.xml", "has 'noon' as a time, expected seconds"),
        (nsrr(("Wake|0", 0, "inf")), "n.xml", "has 'inf' as a time, expected seconds"),
        (nsrr(("Wake|0", 0, -30)), "n.xml", "has a stage of -30 s at 0 s"),
        ("time\tname\n1\t2\n", "n.tsv", "has the columns 'time, name', expected onset"),
        ("", "n.tsv", "has the columns 'none', expected onset"),
        ("onset\tduration\tstage\n0\t30\n", "n.tsv", "has 2 columns in line 2, expected 3"),
        ("W\n\nN1\n", "n.txt", "has a blank line 2, expected a stage for every epoch"),
        ("W\n", "n.doc", "has the suffix '.doc', expected a scoring in .edf, .xml, .tsv"),
        (edf_files.edf([edf_files.channel("C3", [[1]])]), "n.edf", "has no annotations, found the"),
        ("W\nN1\n", "n.edf", "is not an EDF"),
    ],
)
def test_what_is_no_scoring_is_named_with_what_is_wrong(content, name, message, save):
    assert message in refusal(save(content, name))


def test_a_scoring_that_is_not_there_is_named(tmp_path):
    for name in ("absent.xml", "absent.edf", "absent.txt"):
        assert refusal(tmp_path / name).endswith("cannot be read: No such file or directory")


BOMB = '<!DOCTYPE a [<!ENTITY b "lol"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
EXTERNAL = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("before", [BOMB, EXTERNAL, "<!DOCTYPE PSGAnnotation>"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_xml_that_could_hold_entities_is_refused(before, encoding, save):
    text = nsrr(("Wake|0", 0, 30), before=before).replace("UTF-8", encoding)
    assert "expected an XML without DOCTYPE" in refusal(save(text.encode(encoding), "n.xml"))


def test_xml_in_another_encoding_is_read(save):
    text = nsrr(("Wake|0", 0, 30)).replace("UTF-8", "utf-16")
    assert read_stages(save(text.encode("utf-16"), "n.xml"), 30).tolist() == [W]


SUFFIXES = {"nsrr": ".xml", "profusion": ".xml", "edf": ".edf", "tsv": ".tsv", "text": ".txt"}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_back(form, tmp_path):
    rng = np.random.default_rng(3)
    stages = rng.integers(-1, 5, 60).repeat(rng.integers(1, 30, 60)).astype(np.int8)
    path = tmp_path / f"night{SUFFIXES[form]}"
    write_stages(path, stages, form, START)
    np.testing.assert_array_equal(read_stages(path, 30.0 * len(stages), START), stages)
    once = path.read_bytes()
    write_stages(path, stages.tolist(), form, START)
    assert path.read_bytes() == once


def test_others_read_the_annotations_that_we_write(tmp_path):
    edfio, mne = pytest.importorskip("edfio"), pytest.importorskip("mne")
    path = tmp_path / "Hypnogram.edf"
    write_stages(path, [0, 0, 3, -1, 4], "edf", START)
    expected = [(0, 60, "Sleep stage W"), (60, 30, "Sleep stage 3")]
    expected += [(90, 30, "Sleep stage ?"), (120, 30, "Sleep stage R")]
    read = edfio.read_edf(path)
    assert [(a.onset, a.duration, a.text) for a in read.annotations] == expected
    assert datetime.combine(read.startdate, read.starttime) == START
    assert mne.read_annotations(path).description.tolist() == [text for *_, text in expected]


def test_an_unknown_format_to_write_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="form must be one of nsrr, profusion, edf, tsv, text"):
        write_stages(tmp_path / "n.doc", [0], "doc")


HEAD = "onset\tduration\ttrial_type\n"


@pytest.fixture
def stages(tmp_path):
    """Stages of a scoring of that text, on four epochs."""

    def read(text, name="events.tsv"):
        (tmp_path / name).write_text(text)
        return read_stages(tmp_path / name, 120).tolist()

    return read


def events(*rows):
    return HEAD + "".join(f"{onset}\t{duration}\t{text}\n" for onset, duration, text in rows)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *(("sleep_stage_W", True), ("Stage_2", True), ("SLEEP STAGE: R", True)),
        *(("stages", False), ("Staged", False), ("N2", False)),
    ],
)
def test_an_underscore_ends_the_word_stage(text, says):
    assert says_stage(text) is says


def test_events_in_mixed_spellings_are_all_taken(stages):
    text = events((0, 30, "sleep_stage_W"), (30, 30, "N1"), (60, 30, "Sleep stage N2"))
    assert stages(text + "90\tn/a\tREM\n") == [W, N1, N2, REM]


def test_a_bare_name_within_a_stage_is_a_marker(stages):
    text = events((0, 60, "Sleep stage W"), (20, 25, "R"), (10, "n/a", "R"), (60, 30, "N3"))
    assert stages(text) == [W, W, N3, NO]


def test_a_short_bare_name_or_one_that_scores_nothing_is_a_marker(stages):
    text = events((0, 30, "Sleep stage W"), (40, 5, "R"), (31, 30, "n/a"), (55, "n/a", "M"))
    assert stages(text) == [W, NO, NO, NO]


def test_a_bare_name_that_overlaps_a_stage_is_refused(stages):
    with pytest.raises(RecordingError, match="overlapping stages, one from 0 s for 30 s and one"):
        stages(events((0, 30, "Sleep stage W"), (20, 30, "N1")))


@pytest.mark.parametrize("before", ["Sleep stage W", "W"])
def test_a_number_that_lasts_an_epoch_beside_stages_is_refused(stages, before):
    with pytest.raises(RecordingError, match=r"has '2' from 30 s for 30 s, which may be a stage"):
        stages(events((0, 30, before), (30, 30, "2")))


def test_a_number_within_a_stage_or_of_another_length_is_a_marker(stages):
    text = events((0, 60, "Sleep stage W"), (0, 30, "2"), (70, 12, "1"), (80, "n/a", "3"))
    assert stages(text) == [W, W, NO, NO]


def test_a_semicolon_separates_as_well(stages):
    text = "onset;duration;stage\n0;30;W\n30;60;N2\n"
    assert stages(text, "scoring.csv") == [W, N2, N2, NO]


@pytest.mark.parametrize("name", ["night.eannot", "night.txt"])
def test_lunas_letter_for_lights_on_is_unscored(stages, name):
    assert stages("L\nW\n?\nR\n", name) == [NO, W, NO, REM]


def test_the_letter_of_lights_is_no_stage_among_events(stages):
    with pytest.raises(RecordingError, match="has 'L' as a stage, expected W"):
        stages("onset\tduration\tstage\n0\t30\tL\n")


def mutated(text, rng):
    """Damage an XML: characters replaced, cut out or doubled, tokens put in."""
    content = bytearray(text.encode())
    tokens = [b"<", b">", b"&", b"&a;", b"]]>", b"<!DOCTYPE x>", b"-1", b"nan", b"1e9", b"\x00\xff"]
    for _ in range(rng.integers(1, 6)):
        place = int(rng.integers(len(content)))
        end = place + int(rng.integers(1, 12))
        kind = rng.integers(4)
        if kind == 0:
            content[place] = rng.integers(256)
        elif kind == 1:
            del content[place:end]
        elif kind == 2:
            content[place:place] = content[place:end]
        else:
            content[place:place] = tokens[rng.integers(len(tokens))]
    return bytes(content)


def fuzz(path, n):
    rng = np.random.default_rng(11)
    events = [(f"Stage {1 + i % 3} sleep|{1 + i % 3}", 30 * i, 30) for i in range(6)]
    texts = (nsrr(*events), profusion(0, 1, 2, 3, 5, 9))
    messages = []
    for index in range(n):
        path.write_bytes(mutated(texts[index % 2], rng))
        try:
            assert read_stages(path, 300).shape == (10,)
        except PsdnormError as error:
            messages.append(str(error))
    assert all(str(path) in message and "\n" not in message for message in messages)
    return len(messages)


def test_damaged_xml_gives_only_our_own_errors(tmp_path):
    assert 100 < fuzz(tmp_path / "n.xml", 500) < 500


@pytest.mark.slow
def test_much_damaged_xml_gives_only_our_own_errors(tmp_path):
    assert 2000 < fuzz(tmp_path / "n.xml", 10_000) < 10_000
