"""``psdnorm presets`` lists the paper's experiments."""

import sys

import pytest

from psdnorm.cli import main
from psdnorm.experiments.presets import PAPER_COHORTS, paper_presets


def test_every_preset_is_listed_with_its_runs_and_hours(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["psdnorm", "presets"])
    with pytest.raises(SystemExit) as stop:
        main()
    out = capsys.readouterr().out
    assert stop.value.code == 0
    rows = {
        row[0]: row[2:]
        for row in ([cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines())
        if row and row[0] in paper_presets()
    }
    assert rows.keys() == paper_presets().keys()
    assert rows["table1"] == ["300", "300", str(round(paper_presets()["table1"].gpu_hours))]
    assert rows["adabn"][:2] == ["240", "150"]
    assert rows["timing"] == ["", "", ""]
    assert all(cohort in out for cohort in PAPER_COHORTS)
    assert "15 epochs until early stopping (assumed)" in out
