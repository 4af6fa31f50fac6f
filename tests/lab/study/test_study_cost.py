"""The cost of a study, in pieces that are packed with the scores."""

import json

from studies import drawn_study

from psdnorm.experiments.estimate import read_cost
from psdnorm.experiments.execute import FAILURE, FINISHED, Outcome
from psdnorm.lab.study.result_cache import pack, restore
from psdnorm.lab.study.study import Meter, runs_of


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


def test_of_a_piece_that_was_packed_while_it_ran_the_folder_has_the_latest_word(tmp_path):
    study, runs = drawn_study(tmp_path, tmp_path / "work")
    meter = Meter(runs, "cpu", 1, 64, None)
    meter.write()
    pack(study, runs)
    meter.count(Outcome(study.cells[0], FINISHED))
    restore(study, runs)
    assert read_cost(runs.path)["cells"] == 1
