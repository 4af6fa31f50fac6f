"""What a study cost is added up over its pieces, each once."""

import json
import subprocess

from studies import drawn_study

from psdnorm.study.cost import Meter, commit_of, merged_costs, read_cost
from psdnorm.study.packing import pack, restore
from psdnorm.study.running import runs_of
from psdnorm.training.work import FAILURE, FINISHED, Outcome


def piece(began, seconds, cells=1, sequences=100):
    return {
        "began": began,
        "seconds": seconds,
        "simulation_seconds": 1.0,
        "cells": cells,
        "sequences": sequences,
    }


def test_pieces_are_added_up_each_once_with_the_latest_word():
    first, again, second = piece("1", 10.0), piece("1", 12.0, 2, 300), piece("2", 18.0)
    found = merged_costs({"pieces": [second, first]}, {"pieces": [again]})
    assert found["pieces"] == [again, second]
    assert (found["seconds"], found["simulation_seconds"]) == (30.0, 2.0)
    assert (found["cells"], found["sequences"]) == (3, 400)
    assert found["sequences_per_second"] == 400 / 30
    assert merged_costs({"pieces": []})["sequences_per_second"] == 0


def test_a_piece_counts_the_cells_that_it_finished_and_what_these_learned_from(tmp_path):
    study, runs = drawn_study(tmp_path, tmp_path / "work", ("batch", "adabn3", "psd"))
    meter = Meter(runs, "cpu", 2, 64, "abc")
    meter.simulated()
    for cell in study.cells:
        meter.count(Outcome(cell, FAILURE if cell.norm == "psd" else FINISHED))
    (found,) = read_cost(runs.path)["pieces"]
    assert found["cells"] == 4
    assert found["sequences"] == 2 * 60 * 64  # AdaBN learns from none
    assert (found["device"], found["workers"], found["commit"]) == ("cpu", 2, "abc")
    assert found["torch"]
    assert json.loads((runs.path / "cost.json").read_text())["cells"] == 4


def test_cost_travels_with_the_scores_and_goes_on_from_there(tmp_path):
    study, runs = drawn_study(tmp_path, tmp_path / "work")
    Meter(runs, "cpu", 1, 64, None).write()
    pack(study, runs)
    elsewhere = runs_of(study, tmp_path / "elsewhere")
    restore(study, elsewhere)
    (before,) = read_cost(elsewhere.path)["pieces"]
    meter = Meter(elsewhere, "cpu", 1, 64, None)
    meter.write()
    meter.write()
    pieces = read_cost(elsewhere.path)["pieces"]
    assert len({each["began"] for each in (before, *pieces)}) == len(pieces)
    assert before in pieces
    restore(study, elsewhere)
    assert read_cost(elsewhere.path)["pieces"] == pieces


def test_the_commit_is_that_of_the_file_and_says_whether_there_were_changes(tmp_path, monkeypatch):
    monkeypatch.delenv("PSDNORM_COMMIT", raising=False)
    assert commit_of(tmp_path / "study.yaml") is None
    monkeypatch.setenv("PSDNORM_COMMIT", "abc")  # of a copy without history
    assert commit_of(tmp_path / "study.yaml") == "abc"

    def git(*words):
        named = ("-c", "user.name=a", "-c", "user.email=a@b")
        run = subprocess.run(
            ["git", "-C", tmp_path, *named, *words], check=True, capture_output=True, text=True
        )
        return run.stdout.strip()

    git("init")
    (tmp_path / "study.yaml").write_text("a")
    git("add", "study.yaml")
    git("commit", "-m", "a")
    head = git("rev-parse", "HEAD")
    assert commit_of(tmp_path / "study.yaml") == head
    (tmp_path / "study.yaml").write_text("b")
    assert commit_of(tmp_path / "study.yaml") == f"{head}+"
