"""What work cost is added up over its pieces, each once, simulation by itself."""

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import scipy
import torch

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.experiments import estimate as cost
from psdnorm.experiments.estimate import PieceMeter, commit_of, merged_costs, read_cost


def piece(began, seconds, runs=1, sequences=100):
    return {
        "began": began,
        "seconds": seconds,
        "simulation_seconds": 1.0,
        "cells": runs,
        "sequences": sequences,
    }


def test_pieces_are_added_up_each_once_with_the_latest_word():
    first, again, second = piece("1", 10.0), piece("1", 12.0, 2, 300), piece("2", 18.0)
    found = merged_costs({"pieces": [second, first]}, {"pieces": [again]}, counted="cells")
    assert found["pieces"] == [again, second]
    assert (found["seconds"], found["simulation_seconds"]) == (30.0, 2.0)
    assert (found["cells"], found["sequences"]) == (3, 400)
    assert found["sequences_per_second"] == 400 / 30
    assert merged_costs({"pieces": []}, counted="cells")["sequences_per_second"] == 0


def test_a_piece_is_appended_to_those_before_it(tmp_path):
    (tmp_path / "cost.json").write_text(json.dumps({"pieces": [piece("1", 10.0)]}))
    meter = PieceMeter(tmp_path, "cpu", "abc", counted="cells", workers=3)
    for sequences in (5, 7):
        meter.add(sequences)
        meter.write()
    before, own = read_cost(tmp_path)["pieces"]
    assert before == piece("1", 10.0)
    assert (own["cells"], own["sequences"], own["workers"]) == (2, 12, 3)
    assert (own["device"], own["commit"]) == ("cpu", "abc")
    assert (own["psdnorm"], own["torch"]) == (psdnorm.__version__, str(torch.__version__))
    assert (own["numpy"], own["scipy"]) == (np.__version__, scipy.__version__)
    assert read_cost(tmp_path)["sequences"] == 112


def test_a_piece_begins_in_utc_on_the_device_that_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = datetime.now(UTC)
    PieceMeter(tmp_path, "auto", None, counted="cells").write()
    (own,) = read_cost(tmp_path)["pieces"]
    began = datetime.fromisoformat(own["began"])
    assert began.utcoffset() == timedelta(0)
    assert timedelta(milliseconds=-1) <= began - before < timedelta(minutes=1)
    assert own["device"] == "cpu"


def test_time_is_of_the_simulation_until_that_is_over(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(cost.time, "monotonic", lambda: now[0])
    meter = PieceMeter(tmp_path, "cpu", None, counted="cells")

    def after(seconds):
        now[0] += seconds
        meter.write()
        (found,) = read_cost(tmp_path)["pieces"]
        return found["simulation_seconds"], found["seconds"]

    assert after(3.0) == (3.0, 0.0)  # it may end here
    assert after(4.0) == (7.0, 0.0)
    meter.simulated()
    assert after(10.0) == (7.0, 10.0)
    assert after(20.0) == (7.0, 30.0)


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{}", '{"pieces": 3}', '{"pieces": [3]}', '{"pieces": [{}]}'),
        json.dumps({"pieces": [piece("1", 10.0) | {"seconds": "10"}]}),
        json.dumps({"pieces": [piece(1, 10.0)]}),
    ],
)
def test_a_file_of_something_else_is_refused_before_anything_is_measured(tmp_path, text):
    (tmp_path / "cost.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"cost\.json has no list of pieces, expected one"):
        PieceMeter(tmp_path, "cpu", None, counted="cells")
    assert (tmp_path / "cost.json").read_text() == text


def test_pieces_of_something_else_are_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "cost.json").write_text(json.dumps({"pieces": [piece("1", 10.0)]}))
    with pytest.raises(ArgumentError, match=r"cost\.json has a piece without predictions"):
        PieceMeter(tmp_path, "cpu", None, counted="predictions")


@pytest.fixture
def git(tmp_path):
    """Git in a folder that is a repository."""

    def run(*words):
        named = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", "-C", tmp_path, *named, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    run("init")
    return run


def committed(git, path):
    path.write_text("a")
    git("add", path.name)
    git("commit", "-m", "a")
    return git("rev-parse", "HEAD")


def test_the_commit_is_that_of_the_file_and_says_whether_there_were_changes(
    tmp_path, monkeypatch, git
):
    monkeypatch.delenv("PSDNORM_COMMIT", raising=False)
    path = tmp_path / "study.yaml"
    head = committed(git, path)
    assert commit_of(path) == head
    path.write_text("b")
    assert commit_of(path) == f"{head}+"
    shutil.rmtree(tmp_path / ".git")
    assert commit_of(path) is None
    monkeypatch.setenv("PSDNORM_COMMIT", "abc")  # of a copy without history
    assert commit_of(path) == "abc"
    monkeypatch.setenv("PATH", "")  # where there is no git
    assert commit_of(path) == "abc"


def test_a_file_that_git_does_not_know_has_no_commit_where_it_must_know_it(
    tmp_path, monkeypatch, git
):
    monkeypatch.delenv("PSDNORM_COMMIT", raising=False)
    head = committed(git, tmp_path / "known.py")
    (tmp_path / "installed.py").write_text("a")
    assert commit_of(tmp_path / "known.py", only_tracked=True) == head
    assert commit_of(tmp_path / "installed.py") == head
    assert commit_of(tmp_path / "installed.py", only_tracked=True) is None
