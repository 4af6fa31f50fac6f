"""``psdnorm compare`` prints B's gain over A, and writes it as a page if it is asked to."""

import json
import sys

import pytest
from experiments import write_runs

from psdnorm.cli import main
from psdnorm.training.grid import Axes

AXES = Axes(norms=("psd",), hold_outs=("ABC", "CHAT"), seeds=(0,))


@pytest.fixture
def compare(monkeypatch, capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["psdnorm", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


@pytest.fixture
def folders(tmp_path):
    for name in "ab":
        merit = {"psd": 0.2 * (name == "b")}
        write_runs(tmp_path / name, [AXES], epochs=30, merit=merit)
    return tmp_path / "a", tmp_path / "b"


def test_it_prints_a_table_by_cohort_and_what_it_says(compare, folders):
    code, said, _ = compare(*folders)
    assert code == 0
    title = "PSDNorm in U-Sleep, all subjects: balanced accuracy, SIMULATED nights, recipe paper"
    assert title in " ".join(said.split())
    first_words = [line.split()[0] for line in said.splitlines() if line.strip()]
    for name in ("ABC", "CHAT", "Mean(Dataset)", "Mean(Subject)"):
        assert name in first_words
    assert "B is ahead of A in this data (one seed and 2 cohorts: " in said
    assert "One seed: how much of this is the luck of one training is not known" in said
    assert max(map(len, said.split("B is ahead")[0].splitlines())) <= 80


def test_other_nights_are_said_on_standard_error_before_all_else(compare, folders):
    for path in folders[1].glob("cells/*/config.json"):
        path.write_text(path.read_text().replace('"' + "0" * 64, '"' + "1" * 64))
        config = json.loads(path.read_text()) | {"recipe_sha256": "0" * 64}
        path.write_text(json.dumps(config))
    code, _, err = compare(*folders)
    assert code == 0
    assert err.startswith("A and B were tested on other nights of ABC and CHAT: subjects of the")


def test_it_writes_a_page_if_it_is_asked_to(compare, folders, tmp_path):
    out = tmp_path / "out"
    code, said, _ = compare(*folders, "-o", out)
    assert code == 0
    assert said.endswith(f"Look at {out / 'index.html'}\n")
    page = (out / "index.html").read_text()
    assert "psdnorm compare a b --out out" in page
    assert str(tmp_path) not in page


def test_what_cannot_be_compared_is_one_sentence_and_exit_code_2(compare, folders, tmp_path):
    cell = folders[0] / "cells" / "usleep_psd_f5_d3_ABC_all_seed0"
    code, said, err = compare(folders[0], cell)
    assert (code, said) == (2, "")
    assert err == (
        f"psdnorm: {folders[0]} is a folder of runs and {cell} a single cell, expected two of a "
        "kind\n"
    )
