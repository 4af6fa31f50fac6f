"""``psdnorm report`` writes a page and says the verdict; errors are one sentence."""

import json
from functools import partial

import pytest
from experiment_runs import write_runs

from psdnorm.experiments.grid import Axes

AXES = Axes(norms=("batch", "psd"), hold_outs=("ABC", "CHAT"), seeds=(0,))


@pytest.fixture
def report(run_command):
    return partial(run_command, "report")


def test_it_writes_a_page_and_says_the_verdict(report, tmp_path):
    write_runs(tmp_path / "runs", [AXES], epochs=30)
    out = tmp_path / "out"
    code, said, _ = report(tmp_path / "runs", "-o", out, "--no-figures")
    assert code == 0
    lines = said.splitlines()
    assert lines[0] == "The nights are SIMULATED: nobody slept them."
    assert " has the highest balanced accuracy, " in lines[1]
    assert lines[-1] == f"Look at {out / 'index.html'}"
    assert lines[1].endswith(" (2 cohorts, 1 seed).")
    record = json.loads((out / "report.json").read_text())
    limits = record["verdicts"][0]["limits"]
    begin = lines.index("What this cannot say:")
    assert lines[1:begin] == [
        record["verdicts"][0]["headline"],
        *record["verdicts"][0]["sentences"],
    ]
    assert lines[begin + 1 : -1] == [f"- {limit}" for limit in limits]


def test_runs_that_are_not_finished_are_no_failure(report, tmp_path):
    runs = write_runs(
        tmp_path / "runs", [AXES], epochs=30, unfinished=["usleep_batch_ABC_all_seed0"]
    )
    assert len(runs) == 4
    code, _, err = report(tmp_path / "runs", "-o", tmp_path / "out", "--no-figures")
    assert code == 0
    assert "1 unfinished run: see the report" in err


def test_a_run_that_cannot_be_read_is_named_and_the_exit_code_is_1(report, tmp_path):
    runs = write_runs(tmp_path / "runs", [AXES], epochs=30)
    broken = tmp_path / "runs" / "cells" / runs[0].name / "scores.parquet"
    broken.write_bytes(b"no Parquet")
    code, said, err = report(tmp_path / "runs", "-o", tmp_path / "out", "--no-figures")
    assert code == 1
    assert f"failed: {runs[0].name}: {broken} cannot be read as Parquet" in err
    assert "Look at " in said


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: None, "does not exist, expected the folder of psdnorm lodo"),
        (
            lambda path: (
                (write_runs(path / "runs", [AXES], epochs=30) and (path / "out").mkdir())
                or (path / "out" / "mine.txt").write_text("mine")
            ),
            "holds something other than a report, expected an empty folder or an earlier report",
        ),
    ],
    ids=["no runs", "something else"],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(report, tmp_path, prepare, sentence):
    prepare(tmp_path)
    code, said, err = report(tmp_path / "runs", "-o", tmp_path / "out", "--no-figures")
    assert (code, said) == (2, "")
    assert err.startswith("psdnorm: ")
    assert err.endswith(f"{sentence}\n")
    assert err.count("\n") == 1
