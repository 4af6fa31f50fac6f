"""``psdnorm dissect`` says what it needs, and does nothing before it has it."""

import json
import shutil
import sys

import pytest
from cells import TINY

from psdnorm.cli import (
    dissect_command,  # noqa: F401
    main,
)
from psdnorm.recordings.recipe import RECIPES
from psdnorm.recordings.simulation.into_store import add_nights
from psdnorm.recordings.simulation.plan import Settings, plan_nights
from psdnorm.store import Store
from psdnorm.training import Cell
from psdnorm.training.experiment import run_grid
from psdnorm.training.locking import held


@pytest.fixture
def dissect(monkeypatch, capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["psdnorm", "dissect", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


def test_a_folder_that_holds_no_grid_is_refused_in_a_sentence(dissect, tmp_path):
    code, _, err = dissect(tmp_path, "-o", tmp_path / "out")
    assert code == 2
    assert "has no grid, expected a folder of psdnorm lodo" in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_an_unknown_kind_is_refused_by_the_name_of_the_option(dissect, tmp_path):
    code, _, err = dissect(tmp_path, "--kinds", "gain,hum")
    assert code == 2
    assert "--kinds is 'hum', expected one of gain, response" in " ".join(err.split())


@pytest.mark.slow
def test_a_dissection_is_run_told_and_not_run_again(dissect, tmp_path):
    nights = plan_nights(["ABC", "SHHS"], 3, 1, Settings(hours=0.1, shift=0.0))
    list(add_nights(tmp_path / "store", nights, RECIPES["paper"]))
    cells = [Cell("usleep", norm, norm_depth=2, hold_out="SHHS") for norm in ("batch", "instance")]
    store, runs, out = Store.open(tmp_path / "store"), tmp_path / "runs", tmp_path / "out"
    list(run_grid(store, cells[:1], TINY, runs, device="cpu", keep="weights"))
    list(run_grid(store, cells[1:], TINY, runs, device="cpu", keep="scores"))
    arguments = (runs, "-o", out, "--subjects", 2, "--hours", 0.5, "--jobs", 1, "--device", "cpu")
    code, said, err = dissect(*arguments, "--kinds", "gain")
    assert code == 0, err
    assert "usleep_instance_d2_SHHS_all_seed0 kept no weights" in " ".join(err.split())
    assert "SIMULATED" in said
    assert "\nGain. " in said
    assert "Line noise" not in said
    assert not (out / "nights").exists()
    assert "gain" in json.loads((out / "report" / "report.json").read_text())["sentences"]
    before = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    code, said, err = dissect(*arguments, "--kinds", "gain,line")
    assert code == 0, err
    assert "Line noise. " in said
    after = {file: file.stat().st_mtime_ns for file in (out / "scores").rglob("*.parquet")}
    assert len(before) == 4
    assert len(after) == 7
    assert before.items() <= after.items()
    code, _, err = dissect(*arguments, "--seed", 1)
    assert code == 2
    assert "was begun with seed 0, found 1" in " ".join(err.split())
    with held(out):
        code, _, err = dissect(*arguments, "--kinds", "gain")
    assert code == 2
    assert "another process works in" in " ".join(err.split())
    shutil.rmtree(runs / "cells" / cells[0].name / "weights")
    shutil.rmtree(out / "report")
    code, said, err = dissect(*arguments, "--kinds", "gain,line")
    assert code == 0, err  # scores are all that a report needs
    assert "Line noise. " in said
