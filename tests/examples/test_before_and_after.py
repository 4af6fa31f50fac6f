"""The demo tells the truth and leaves a picture."""

import re
import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "before_and_after.py"


def test_psdnorm_brings_the_clinics_closer_than_the_other_norms_do(tmp_path, capsys):
    runpy.run_path(str(SCRIPT))["main"](["--out", str(tmp_path)])
    rows = re.findall(r"^  (\S.*?)\s+([\d.]+)$", capsys.readouterr().out, flags=re.MULTILINE)
    distance = {name: float(value) for name, value in rows}
    assert distance["BatchNorm"] == distance["as recorded"]
    assert distance["PSDNorm, f = 17"] < distance["PSDNorm, f = 5"] < distance["InstanceNorm"]
    assert distance["InstanceNorm"] < distance["BatchNorm"]
    assert (tmp_path / "before_and_after.png").stat().st_size > 10_000
