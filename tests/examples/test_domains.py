"""The examples of statistics by domain: their tables say what the documentation says."""

import re
import runpy
import sys
import types
from pathlib import Path

import pytest
from braindecode_models import braindecode_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def table(name, capsys, *arguments):
    """Run an example; return the numbers of each row of its table."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](*arguments)
    rows = re.findall(r"^  (\S.*?)((?: +\d+)+)(?: %)?$", capsys.readouterr().out, re.MULTILINE)
    return {label: [int(value) for value in values.split()] for label, values in rows}


def test_bearings_are_recognized_with_another_sensor_by_domain_and_not_by_row(capsys):
    accuracy = {name: value for name, (value,) in table("domains_bearings", capsys, []).items()}
    by_domain = accuracy["PSDNorm by domain, adapted"]
    assert by_domain > accuracy["PSDNorm by row"] + 30
    assert by_domain > accuracy["BatchNorm"] + 20


def test_one_window_of_a_domain_in_a_batch_is_not_enough(capsys):
    too_few = table("domains_bearings", capsys, ["--windows-per-domain", "1"])
    assert too_few["PSDNorm by domain, adapted"][0] < 60


def test_activities_of_new_people_need_a_mean_of_their_own(capsys):
    accuracy = table("domains_activity", capsys)
    none, so_far, every, lying = accuracy["PSDNorm, centred by domain"]
    assert every > accuracy["PSDNorm, centred by row"][2] + 10
    assert every >= so_far > max(none, lying) + 20
    assert every > accuracy["BatchNorm"][0]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_a_network_of_braindecode_is_trained_with_skorch(monkeypatch, capsys):
    pytest.importorskip("skorch", reason="skorch is absent: pip install skorch")
    packages = {name: types.ModuleType(name) for name in ("braindecode", "braindecode.models")}
    packages["braindecode.models"].USleep = braindecode_model("USleep", "usleep")
    for name, module in packages.items():
        monkeypatch.setitem(sys.modules, name, module)
    accuracy = {name: value for name, (value,) in table("braindecode_skorch", capsys).items()}
    assert accuracy["PSDNorm by domain, adapted"] > accuracy["BatchNorm"] + 10
