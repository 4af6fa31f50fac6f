"""``psdnorm review`` asks about epochs, reads the answers back, and replaces nobody's file."""

import json
from datetime import datetime

import numpy as np
import pytest
from typer.testing import CliRunner

from psdnorm.cli import cmd_review as review_command  # noqa: F401  adds the command
from psdnorm.cli._shared import app
from psdnorm.io.edf import read_annotations, write_annotations
from psdnorm.staging import (
    read_tsv,
    sleep_statistics,
    write_edf_annotations,
    write_text,
    write_tsv,
)

START = datetime(2021, 3, 4, 22, 41, 10)
STAGES = np.array([0] * 100 + [1] * 10 + [2] * 60 + [3] * 20 + [4] * 10 + [-1] * 4, np.int8)
LIGHTS_S = (30 * 80.0, 30 * 204.0)


@pytest.fixture
def probabilities():
    rng = np.random.default_rng(0)
    rows = np.full((len(STAGES), 5), 0.05)
    rows[np.arange(len(STAGES)), STAGES] = 0.8
    unsure = rng.choice(200, 30, replace=False)
    rows[unsure] = 0.175
    rows[unsure, STAGES[unsure]] = 0.3
    rows[STAGES < 0] = np.nan
    return rows


@pytest.fixture
def night(tmp_path, probabilities):
    """The table and the summary of a staged night."""
    write_tsv(tmp_path / "night.tsv", STAGES, probabilities)
    given = sleep_statistics(STAGES, lights_off=LIGHTS_S[0], lights_on=LIGHTS_S[1])
    summary = {
        "kind": "psdnorm staging",
        "epochs": len(STAGES),
        "start": START.isoformat(),
        "notice": "not for diagnosis",
        "statistics": given.to_dict(),
    }
    (tmp_path / "night.json").write_text(json.dumps(summary))
    return tmp_path / "night.tsv"


def review(*arguments):
    return CliRunner().invoke(app, ["review", *map(str, arguments)])


def sentence(result):
    """The one line that was said to the user."""
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("psdnorm: ").strip()


def test_the_least_confident_epochs_are_written_as_questions(night):
    result = review(night, "--n", 34)
    assert result.exit_code == 0
    asked, start = read_annotations(night.with_name("night-review.edf"))
    assert start == START
    notice, *asked = asked
    assert (notice.text, notice.duration_s) == ("not for diagnosis", 0)
    assert len(asked) == 34
    assert {each.text.split("?")[1] for each in asked} == {"", " 0.30"}
    assert "34 of 204 epochs" in result.stdout
    assert "not for diagnosis" in result.stdout


def test_fifty_are_asked_about_and_a_night_is_found_without_its_ending(night, tmp_path):
    result = review(night.with_suffix(""), "-o", tmp_path / "questions.edf")
    assert result.exit_code == 0
    assert len(read_annotations(tmp_path / "questions.edf")[0]) == 1 + 50


def test_answers_come_back_as_what_changed_statistics_and_files(night, tmp_path, probabilities):
    answered = [(30 * 120, 30, "N1"), (30 * 121, 30, "N1"), (30 * 122, 30, "N2? 0.30")]
    write_annotations(tmp_path / "answers.edf", [*answered, (30 * 200, 30, "W")], START)
    result = review(night, "--corrected", tmp_path / "answers.edf")
    assert result.exit_code == 0, result.stderr
    words = " ".join(result.stdout.split())
    assert "changed: 3 epochs;" in words
    assert "covers 3 of 204" in words
    assert "N2 N1 2" in words
    assert "epoch 120 at 3600 s: N2 → N1" in words
    assert "N2 30.0 min 29.0 min" in words
    assert "not staged 2.0 min 1.5 min" in words
    assert "lights: given" in words
    expected = STAGES.copy()
    expected[[120, 121, 200]] = 1, 1, 0
    stages, read = read_tsv(tmp_path / "night-corrected.tsv")
    np.testing.assert_array_equal(stages, expected)
    np.testing.assert_allclose(read, probabilities, atol=1e-6)
    corrected, start = read_annotations(tmp_path / "night-corrected-hypnogram.edf")
    assert (corrected[0].text, start) == ("not for diagnosis", START)
    lines = (tmp_path / "night-corrected.txt").read_text().split()
    assert (lines[120], lines[200], lines[201]) == ("N1", "W", "?")


def test_statistics_are_counted_under_the_lights_that_were_given(night, tmp_path):
    write_text(tmp_path / "answers.txt", [0] * len(STAGES))
    words = " ".join(review(night, "--corrected", tmp_path / "answers.txt").stdout.split())
    assert "time in bed 62.0 min 62.0 min" in words
    assert "total sleep time 50.0 min 0.0 min" in words
    assert "sleep onset latency 10.0 min –" in words


def test_corrected_files_are_called_as_asked(night, tmp_path):
    write_text(tmp_path / "answers.txt", np.maximum(STAGES, 0))
    for out in ("one", "two.tsv", "three-hypnogram.edf", "four.edf"):
        result = review(night, "--corrected", tmp_path / "answers.txt", "-o", tmp_path / out)
        assert result.exit_code == 0, result.stderr
    for name in ("one", "two", "three", "four"):
        for ending in (".tsv", "-hypnogram.edf", ".txt"):
            assert (tmp_path / f"{name}{ending}").exists()


def test_without_its_summary_a_night_is_reviewed_and_the_output_says_what_is_missing(
    night, tmp_path
):
    (tmp_path / "night.json").unlink()
    result = review(night)
    assert result.exit_code == 0
    assert result.stderr.startswith("night.json is not beside the table")
    assert read_annotations(tmp_path / "night-review.edf")[1] == datetime(1985, 1, 1)


def test_answers_given_in_the_review_itself_are_read_where_the_start_is_not_known(night, tmp_path):
    (tmp_path / "night.json").unlink()
    write_annotations(tmp_path / "night-review.edf", [(30 * 120, 30, "N1")])
    result = review(night, "--corrected", tmp_path / "night-review.edf")
    assert "changed: 1 epoch;" in result.stdout


@pytest.mark.parametrize(
    ("taken", "arguments"),
    [
        ("night-review.edf", ()),
        ("night-corrected.txt", ("--corrected", "answers.edf")),
        ("night-corrected-hypnogram.edf", ("--corrected", "night-corrected-hypnogram.edf")),
        ("night.tsv", ("--corrected", "answers.edf", "-o", "night")),
    ],
)
def test_no_file_is_replaced(night, tmp_path, monkeypatch, taken, arguments):
    monkeypatch.chdir(tmp_path)
    write_edf_annotations("answers.edf", STAGES, START)
    if taken != "night.tsv":
        (tmp_path / taken).write_text("somebody's work")
    before = (tmp_path / taken).read_bytes()
    said = sentence(review("night.tsv", *arguments))
    assert said.startswith(f"{taken} exists and may hold somebody's scoring")
    assert (tmp_path / taken).read_bytes() == before


def test_what_cannot_be_done_is_one_sentence(night, tmp_path):
    assert sentence(review(tmp_path / "other")).startswith(
        f"{tmp_path / 'other'} is not a staged night: expected NAME.tsv"
    )
    assert sentence(review(night, "--n", 0)) == "--n is 0, expected at least one epoch"
    assert "night-review.edf" not in {path.name for path in tmp_path.iterdir()}
    assert sentence(review(night, "--n", 5, "--corrected", "x.edf")).startswith(
        "--n is 5 beside --corrected"
    )
    assert sentence(review(night, "-o", "x.txt")) == (
        "--out is 'x.txt', expected a file that ends in .edf"
    )
    assert "absent.edf" in sentence(review(night, "--corrected", tmp_path / "absent.edf"))
    (tmp_path / "human.tsv").write_text("onset\tduration\tstage\n0\t30\tW\n")
    assert "has the columns" in sentence(review(tmp_path / "human.tsv"))


def test_a_table_and_a_summary_of_two_stagings_raise(night, tmp_path, probabilities):
    write_tsv(night, STAGES[:100], probabilities[:100])
    assert sentence(review(night)) == (
        f"{night} has 100 epochs and night.json beside it 204, expected files of one staging"
    )


def test_a_review_whose_questions_are_all_still_there_is_no_scoring_whatever_its_notice(night):
    review(night)
    answers = night.with_name("night-review.edf")
    assert str(answers) in sentence(review(night, "--corrected", answers))
