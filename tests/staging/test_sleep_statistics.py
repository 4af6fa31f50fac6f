"""Sleep statistics by hand: definitions, edges, lights. YASA's are in ``test_yasa.py``."""

import dataclasses
import json
import math

import numpy as np
import pytest

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.staging import sleep_statistics

W, N1, N2, N3, REM, NO = 0, 1, 2, 3, 4, -1
# 10 min wake, 1 min N1, 20 min N2, 2 min wake, 15 min N3, 1 min unscored, 12 min REM, 4 min wake
NIGHT = [W] * 20 + [N1] * 2 + [N2] * 40 + [W] * 4 + [N3] * 30 + [NO] * 2 + [REM] * 24 + [W] * 8


@pytest.fixture
def found():
    return sleep_statistics(NIGHT, lights_off=0, lights_on=30 * len(NIGHT))


def test_durations_are_the_minutes_of_the_stages(found):
    assert found.stage_min == {"W": 16.0, "N1": 1.0, "N2": 20.0, "N3": 15.0, "REM": 12.0}
    assert (found.tib_min, found.tst_min, found.unscored_min) == (65.0, 48.0, 1.0)
    assert found.sleep_efficiency_percent == pytest.approx(100 * 48 / 65)


def test_shares_are_of_total_sleep_time_and_sum_to_100(found):
    assert found.stage_percent["N3"] == pytest.approx(100 * 15 / 48)
    assert sum(found.stage_percent.values()) == pytest.approx(100)


def test_latencies_count_from_lights_off_and_rem_latency_from_sleep_onset(found):
    assert found.sol_min == found.latency_min["N1"] == 10.0
    assert found.latency_min == {"N1": 10.0, "N2": 11.0, "N3": 33.0, "REM": 49.0}
    assert found.rem_latency_min == 39.0


def test_wake_after_sleep_onset_goes_on_until_lights_on_and_beside_it_until_the_last_sleep(found):
    assert found.waso_min == 6.0
    assert found.waso_sleep_period_min == 2.0


def test_time_in_bed_is_latency_sleep_and_wake_after_onset_where_all_is_scored():
    scored = [stage for stage in NIGHT if stage != NO]
    found = sleep_statistics(scored)
    assert found.tib_min == found.sol_min + found.tst_min + found.waso_min


def test_the_sleep_period_holds_the_wake_and_the_unscored_epochs_within_sleep(found):
    assert found.sleep_period_min == 48 + 2 + 1
    assert found.sleep_maintenance_percent == pytest.approx(100 * 48 / 51)


def test_persistent_sleep_begins_where_five_minutes_of_sleep_are_unbroken():
    stages = [W] * 4 + [N1] * 9 + [W] + [N1, N2] * 5 + [W]
    assert sleep_statistics(stages).persistent_sol_min == 14 / 2
    assert math.isnan(sleep_statistics(stages[:23]).persistent_sol_min)


def test_the_final_awakening_is_no_awakening_but_fragments_sleep(found):
    assert found.awakenings == 1
    assert found.fragmentation_per_h == pytest.approx(2 / 0.8)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([N2, W, W, N2, W, REM, W], 2),
        ([N2, NO, W, N2], 1),  # an awakening that an unscored epoch hides
        ([N2, W, NO, W, N2], 1),  # one that it only seems to cut in two
        ([N2, NO, N2], 0),
        ([W, N2, W], 0),
    ],
)
def test_awakenings_are_counted_through_unscored_epochs(stages, expected):
    assert sleep_statistics(stages).awakenings == expected


def test_transitions_are_the_changes_in_the_matrix_and_none_leads_over_an_unscored_epoch(found):
    counts = np.array(found.transition_counts)
    assert found.transitions == counts.sum() - counts.trace() == 5
    assert counts[W].tolist() == [19 + 3 + 7, 1, 0, 1, 0]
    assert counts[N3, REM] == 0
    assert counts.sum() == len(NIGHT) - 1 - 3  # into, within and out of the unscored epochs


def test_without_sleep_its_time_is_zero_and_what_needs_an_onset_is_nan():
    found = sleep_statistics([W] * 10)
    assert (found.tst_min, found.sleep_period_min, found.sleep_efficiency_percent) == (0, 0, 0)
    undefined = [found.sol_min, found.waso_min, found.waso_sleep_period_min, found.rem_latency_min]
    undefined += [found.sleep_maintenance_percent, found.fragmentation_per_h]
    undefined += [*found.latency_min.values(), *found.stage_percent.values()]
    assert np.isnan(undefined).all()
    assert found.lights == "whole recording, as no epoch is sleep"
    assert found.tib_min == 5.0


@pytest.mark.parametrize("stages", [[NO] * 6, []])
def test_without_a_scored_epoch_nothing_is_known_but_time_in_bed(stages):
    found = sleep_statistics(stages)
    assert found.tib_min == found.unscored_min == len(stages) / 2
    known = {"lights_off_s", "lights_on_s", "tib_min", "unscored_min"}
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        if isinstance(value, float) and field.name not in known:
            assert math.isnan(value), field.name
    assert np.isnan([*found.stage_min.values(), *found.stage_percent.values()]).all()


def test_one_epoch_is_a_night():
    found = sleep_statistics([N2])
    assert (found.tib_min, found.tst_min, found.sol_min) == (0.5, 0.5, 0.0)
    assert math.isnan(found.rem_latency_min)


def test_a_dictionary_of_statistics_is_json_without_nan():
    for stages in (NIGHT, [NO], [W]):
        found = sleep_statistics(stages)
        text = json.dumps(found.to_dict(), allow_nan=False)
        assert set(json.loads(text)) == {field.name for field in dataclasses.fields(found)}
    assert sleep_statistics([W]).to_dict()["latency_min"]["REM"] is None


@pytest.mark.parametrize(
    ("stages", "error", "message"),
    [
        ([[0, 1]], ShapeError, r"stages has shape \(1, 2\), expected \(E,\)"),
        ([0, 5], ArgumentError, "values from 0 to 5, expected stages 0 to 4"),
        ([-2, 0], ArgumentError, "values from -2 to 0"),
        ([0.0, 1.0], ArgumentError, "stages is of type float64, expected integers"),
        ([True], ArgumentError, "stages is of type bool"),
    ],
)
def test_what_are_no_stages_is_refused(stages, error, message):
    with pytest.raises(error, match=message):
        sleep_statistics(stages)
