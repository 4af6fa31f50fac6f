"""Time in bed: between the lights that are given, else around sleep."""

import math

import pytest

from psdnorm.errors import ArgumentError
from psdnorm.staging import sleep_statistics

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
