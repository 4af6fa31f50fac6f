"""Events are stages in whatever spelling; what may be one and is not taken is refused by name."""

import pytest

from psdnorm.errors import RecordingError
from psdnorm.io import read_stages
from psdnorm.io.scoring import says_stage

W, N1, N2, N3, REM, NO = 0, 1, 2, 3, 4, -1
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
