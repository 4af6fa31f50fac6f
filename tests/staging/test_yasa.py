"""Sleep statistics are YASA's wherever both define them."""

import json
import math
import os
import runpy
from pathlib import Path

import pytest

from psdnorm.staging import sleep_statistics

DATA = Path(__file__).parent / "data"
STORED = json.loads((DATA / "yasa.json").read_text(encoding="utf-8"))
MADE_UP = {night["name"]: night for night in STORED["nights"] if "stages" in night}
REAL = {night["name"]: night for night in STORED["nights"] if "stages" not in night}


def shared(found):
    """Our statistics under YASA's names."""
    named = {
        "TIB": found.tib_min,
        "SPT": found.sleep_period_min,
        "WASO": found.waso_sleep_period_min,
        "TST": found.tst_min,
        "SE": found.sleep_efficiency_percent,
        "SME": found.sleep_maintenance_percent,
        "SFI": found.fragmentation_per_h,
        "SOL": found.sol_min,
        "SOL_5min": found.persistent_sol_min,
        "WAKE": found.stage_min["W"],
        "UNS": found.unscored_min,
    }
    for stage in ("N1", "N2", "N3", "REM"):
        named[stage] = found.stage_min[stage]
        named[f"%{stage}"] = found.stage_percent[stage]
        named[f"Lat_{stage}"] = found.latency_min[stage]
    return named


def assert_equal(found, yasa):
    expected = dict(yasa)
    assert [list(row) for row in found.transition_counts] == expected.pop("transitions")
    named = shared(found)
    expected.setdefault("UNS", 0.0)  # YASA leaves it out where there is none
    assert set(named) == set(expected)
    for name, value in expected.items():
        value = math.nan if value is None else value
        # YASA rounds to four decimals
        assert named[name] == pytest.approx(value, abs=1e-4, nan_ok=True), name


def whole(stages):
    return sleep_statistics(stages, lights_off=0, lights_on=30 * len(stages))


@pytest.mark.parametrize("name", MADE_UP)
def test_every_statistic_that_both_define_is_that_of_yasa(name):
    assert_equal(whole(MADE_UP[name]["stages"]), MADE_UP[name]["yasa"])


def test_the_stored_hypnograms_are_ten_with_and_without_unscored_epochs():
    unscored = [-1 in night["stages"] for night in MADE_UP.values()]
    assert len(unscored) == 10
    assert any(unscored)
    assert not all(unscored)


def test_rem_latency_from_sleep_onset_is_yasas_latency_less_sleep_onset():
    for night in MADE_UP.values():
        latency = whole(night["stages"]).rem_latency_min
        rem, onset = night["yasa"]["Lat_REM"], night["yasa"]["SOL"]
        assert latency == pytest.approx(math.nan if rem is None else rem - onset, nan_ok=True)


@pytest.mark.realdata
@pytest.mark.skipif("PSDNORM_REALDATA" not in os.environ, reason="needs PSDNORM_REALDATA")
def test_a_real_nights_statistics_are_those_of_yasa():
    maker = runpy.run_path(str(DATA / "make_yasa.py"))
    stages = maker["real"](os.environ["PSDNORM_REALDATA"])["SC4001"]
    assert_equal(whole(stages), REAL["SC4001"]["yasa"])
    # without lights, they are those of what lies around sleep
    around = sleep_statistics(stages)
    assert_equal(around, REAL["SC4001, sleep ± 30 min"]["yasa"])
    assert around.lights == "sleep period ± 30 min"
    assert around.tib_min == 841 / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_yasa_that_is_installed_says_the_same():
    pytest.importorskip("yasa")
    maker = runpy.run_path(str(DATA / "make_yasa.py"))
    for stages in maker["made_up"]().values():
        assert_equal(whole(stages), maker["yasa_statistics"](stages))
