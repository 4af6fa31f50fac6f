"""``psdnorm dissect`` writes down what it cost, however it ends, and the record travels."""

import json
import os
import re
import signal
import tarfile
from functools import partial
from pathlib import Path

import pytest
from dissections import RUNS, written_dissection
from small_runs import TINY

from psdnorm.experiments.estimate import read_cost
from psdnorm.lab.dissect.dissection import TestNights
from psdnorm.prepare.recipe import RECIPES
from psdnorm.training.network import build_model


@pytest.fixture
def dissect(run_command):
    return partial(run_command, "dissect")


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A dissection of which PSDNorm has weights, and is to predict, but no night is ever made."""
    runs, out = written_dissection(tmp_path)
    grid = json.loads((runs / "grid.json").read_text())
    (runs / "grid.json").write_text(json.dumps(grid | {"protocol": TINY.to_json()}))
    run, recipe = RUNS[2], RECIPES["paper"]
    build_model(run, TINY, recipe.layout()).save_pretrained(
        runs / "cells" / run.name / "weights",
        recipe=recipe.to_dict(),
        training_data={"cell": run.to_json()},
    )
    (out / "scores" / run.name / "weights.json").unlink()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TestNights, "make", interrupt)
    return runs, out


def test_what_was_spent_on_nights_is_written_down_though_it_is_interrupted(dissect, interrupted):
    runs, out = interrupted
    for times in (1, 2):
        assert dissect(runs, "-o", out, "--jobs", 3, "--device", "cpu")[0] == 130
        cost = read_cost(out)
        assert {(piece["jobs"], piece["device"]) for piece in cost["pieces"]} == {(3, "cpu")}
        assert len(cost["pieces"]) == times
        assert (cost["predictions"], cost["sequences"], cost["seconds"]) == (0, 0, 0)
        assert all(piece["simulation_seconds"] > 0 for piece in cost["pieces"])


def test_sigterm_ends_it_as_ctrl_c_does(dissect, interrupted, monkeypatch):
    runs, out = interrupted
    monkeypatch.setattr(TestNights, "make", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, _, err = dissect(runs, "-o", out, "--jobs", 1, "--device", "cpu")
    assert code == 130
    assert "interrupted; run the same command again to resume" in err
    assert len(read_cost(out)["pieces"]) == 1


def test_packed_as_the_documentation_says_the_cost_travels_and_goes_on_from_there(
    dissect, interrupted
):
    runs, out = interrupted
    assert dissect(runs, "-o", out, "--jobs", 1, "--device", "cpu")[0] == 130
    text = (Path(__file__).parents[2] / "docs" / "dissection.md").read_text()
    (names,) = re.findall(r"^    tar cJf \S+ -C OUT (.+)$", text, re.M)
    elsewhere = out.with_name("elsewhere")
    with tarfile.open(out.with_name("packed.tar"), "w") as packed:
        for name in names.split():
            packed.add(out / name, name)
    with tarfile.open(out.with_name("packed.tar")) as packed:
        packed.extractall(elsewhere, filter="data")
    assert dissect(runs, "-o", elsewhere, "--jobs", 1, "--device", "cpu")[0] == 130
    first, second = read_cost(elsewhere)["pieces"]
    assert [first] == read_cost(out)["pieces"]
    assert second["began"] > first["began"]
