"""The comparison with real nights leaves a table and a picture."""

import os
import re
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "simulated_against_real.py"


@pytest.mark.slow
@pytest.mark.realdata
def test_every_stage_is_compared_and_drawn(tmp_path, capsys):
    if "PSDNORM_REALDATA" not in os.environ:
        pytest.skip("PSDNORM_REALDATA is not set")
    pytest.importorskip("pandas")
    runpy.run_path(str(SCRIPT))["main"](["--out", str(tmp_path), "--subjects", "3"])
    out = capsys.readouterr().out
    rows = re.findall(r"^(W|N1|N2|N3|REM) +[\d.]+ +[\d.]+ +[\d.]+", out, re.M)
    assert rows == ["W", "N1", "N2", "N3", "REM"]
    assert re.search(r"^37 real sleep periods: 4\.1 REM periods, latency 80 min", out, re.M)
    off = re.findall(
        r"^(quiet W|N1|N2|N3|REM|active W) +((?:\| [+-][\d.]+ [+-][\d.]+ ?){2})$", out, re.M
    )
    assert [state for state, _ in off] == ["quiet W", "N1", "N2", "N3", "REM", "active W"]
    assert (tmp_path / "simulation.png").stat().st_size > 50_000


def test_without_real_data_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.delenv("PSDNORM_REALDATA", raising=False)
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT))["main"]([])
    assert "PSDNORM_REALDATA is not set" in capsys.readouterr().err
