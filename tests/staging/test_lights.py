"""Time in bed: between the lights that are given, else around sleep."""

import math

import numpy as np
import pytest

from psdnorm.errors import ArgumentError
from psdnorm.staging import sleep_statistics
from psdnorm.staging.sleep_statistics import find_lights, given_lights

# an hour and a half of wake, an hour of sleep, two of wake
NIGHT = [0] * 180 + [2] * 120 + [0] * 240


def span(found):
    return found.lights_off_s / 60, found.lights_on_s / 60


def test_without_lights_time_in_bed_is_sleep_with_half_an_hour_on_either_side():
    found = sleep_statistics(NIGHT)
    assert span(found) == (60, 180)
    assert found.lights == "sleep period ± 30 min"
    assert found.sol_min == 30.0


def test_half_an_hour_around_sleep_ends_where_the_recording_does():
    found = sleep_statistics(NIGHT[150:310])
    assert span(found) == (0, 80)


DAY = [0] * 1200  # ten hours


def test_in_a_recording_of_a_day_a_wrong_epoch_by_day_does_not_stretch_the_night():
    wrong = list(DAY)
    wrong[600] = 1
    found = sleep_statistics(wrong + NIGHT + DAY)
    assert span(found) == (600 + 60, 600 + 180)
    assert found.lights == "main sleep period ± 30 min, 0.5 min of sleep outside"
    assert found.tst_min == 60.0


def test_wrong_epochs_by_day_stay_out_however_regularly_they_come():
    wrong = [1, 0, 0, 0, 0] * 240
    found = sleep_statistics(wrong + NIGHT + wrong)
    assert span(found) == (600 + 60, 600 + 180)
    assert found.lights == "main sleep period ± 30 min, 240 min of sleep outside"


def test_an_hour_awake_in_the_night_does_not_cut_it_in_two():
    broken = [0] * 60 + [2] * 400 + [0] * 120 + [3] * 300 + [0] * 60
    found = sleep_statistics(DAY + broken + [0] * 120 + [1] * 30 + DAY)
    assert found.tst_min == 350.0
    assert found.waso_sleep_period_min == 60.0
    assert found.lights == "main sleep period ± 30 min, 15 min of sleep outside"


def test_of_two_equal_nights_the_first_one_is_the_main_one():
    found = sleep_statistics(NIGHT + DAY + NIGHT + DAY)
    assert span(found) == (60, 180)


def test_a_recording_of_a_day_with_one_night_says_nothing_of_a_main_one():
    found = sleep_statistics(DAY + NIGHT + DAY)
    assert found.lights == "sleep period ± 30 min"


def test_a_recording_of_14_hours_is_a_night_from_the_first_to_the_last_sleep():
    evening = [2] + [0] * (1680 - 1 - len(NIGHT))
    found = sleep_statistics(evening + NIGHT)
    assert found.lights == "sleep period ± 30 min"
    assert found.sleep_period_min == (1680 - 240) / 2
    longer = sleep_statistics([*evening, 0, *NIGHT])
    assert longer.lights == "main sleep period ± 30 min, 0.5 min of sleep outside"


def test_a_light_that_is_given_leaves_the_main_period_of_the_rest():
    nap = [0] * 60 + [2] * 200 + [0] * 940
    found = sleep_statistics(nap + NIGHT + DAY, lights_off=30 * 200)
    assert found.lights_off_s == 30 * 200
    assert found.lights_on_s == 30 * (1200 + 360)
    assert found.lights == "lights off given, lights on by main sleep period ± 30 min"
    assert found.tst_min == 90.0  # what is left of the nap, too


def test_lights_that_are_given_are_used_and_named_so():
    found = sleep_statistics(NIGHT, lights_off=1800, lights_on=12000)
    assert span(found) == (30, 200)
    assert found.lights == "given"
    assert found.sol_min == 60.0


def test_one_light_that_is_given_is_used_and_the_other_lies_around_sleep():
    off = sleep_statistics(NIGHT, lights_off=1800)
    assert span(off) == (30, 180)
    assert off.lights == "lights off given, lights on by sleep period ± 30 min"
    on = sleep_statistics(NIGHT, lights_on=12000)
    assert span(on) == (60, 200)
    assert on.lights == "lights on given, lights off by sleep period ± 30 min"


def test_sleep_outside_of_the_lights_does_not_count():
    nap_and_night = [2] * 20 + NIGHT
    found = sleep_statistics(nap_and_night, lights_off=1200)
    assert found.tst_min == 60.0
    assert span(found) == (20, 190)


@pytest.mark.parametrize(("seconds", "border"), [(1814, 1800), (1815, 1830), (1829.9, 1830)])
def test_lights_are_taken_to_the_nearest_border_of_an_epoch(seconds, border):
    assert sleep_statistics(NIGHT, lights_off=seconds).lights_off_s == border


def test_lights_may_go_on_in_the_part_of_an_epoch_that_ends_a_recording():
    found = sleep_statistics(NIGHT, lights_on=30 * len(NIGHT) + 29)
    assert found.lights_on_s == 30 * len(NIGHT)


@pytest.mark.parametrize("argument", ["lights_off", "lights_on"])
@pytest.mark.parametrize("seconds", [-1, 30 * len(NIGHT) + 30, math.nan, math.inf])
def test_lights_outside_of_the_recording_are_refused_by_name(argument, seconds):
    with pytest.raises(ArgumentError, match=f"{argument} is .*0 to 16200"):
        sleep_statistics(NIGHT, **{argument: seconds})


@pytest.mark.parametrize(("off", "on"), [(3000, 600), (600, 610), (16200, None)])
def test_lights_with_no_epoch_between_them_are_refused(off, on):
    with pytest.raises(ArgumentError, match="expected lights_on to be at least 30 s later"):
        sleep_statistics(NIGHT, lights_off=off, lights_on=on)


@pytest.mark.parametrize(
    "lights",
    [{}, {"lights_off": 1800.0}, {"lights_on": 12000.0}, {"lights_off": 0.0, "lights_on": 9000.0}],
)
def test_lights_that_were_given_are_found_again_in_the_statistics(lights):
    found = sleep_statistics(NIGHT, **lights).to_dict()
    assert given_lights(found) == (lights.get("lights_off"), lights.get("lights_on"))


def test_dozing_near_the_main_sleep_period_belongs_to_it_and_does_not_chain():
    stages = np.zeros(2000, np.int8)
    stages[900:1600] = 2
    stages[[1640, 1690]] = 1  # 20 min after the night, and 25 min after that
    found = find_lights(stages, None, None)
    assert (found.first, found.end) == (840, 1701)
    assert found.source == "main sleep period ± 30 min"
    stages[1740] = 1
    assert find_lights(stages, None, None)[:2] == (840, 1701)
