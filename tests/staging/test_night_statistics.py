"""Statistics, lights and agreement are those that the definitions say."""

import dataclasses
import json
import math
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.staging import agreement, sleep_statistics
from psdnorm.staging.night_statistics import find_lights, given_lights

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
def test_invalid_stages_raise(stages, error, message):
    with pytest.raises(error, match=message):
        sleep_statistics(stages)


# an hour and a half of wake, an hour of sleep, two of wake
HOUR_OF_SLEEP = [0] * 180 + [2] * 120 + [0] * 240


def span(found):
    return found.lights_off_s / 60, found.lights_on_s / 60


def test_without_lights_time_in_bed_is_sleep_with_half_an_hour_on_either_side():
    found = sleep_statistics(HOUR_OF_SLEEP)
    assert span(found) == (60, 180)
    assert found.lights == "sleep period ± 30 min"
    assert found.sol_min == 30.0


def test_half_an_hour_around_sleep_ends_where_the_recording_does():
    found = sleep_statistics(HOUR_OF_SLEEP[150:310])
    assert span(found) == (0, 80)


DAY = [0] * 1200  # ten hours


def test_in_a_recording_of_a_day_a_wrong_epoch_by_day_does_not_stretch_the_night():
    wrong = list(DAY)
    wrong[600] = 1
    found = sleep_statistics(wrong + HOUR_OF_SLEEP + DAY)
    assert span(found) == (600 + 60, 600 + 180)
    assert found.lights == "main sleep period ± 30 min, 0.5 min of sleep outside"
    assert found.tst_min == 60.0


def test_wrong_epochs_by_day_stay_out_however_regularly_they_come():
    wrong = [1, 0, 0, 0, 0] * 240
    found = sleep_statistics(wrong + HOUR_OF_SLEEP + wrong)
    assert span(found) == (600 + 60, 600 + 180)
    assert found.lights == "main sleep period ± 30 min, 240 min of sleep outside"


def test_an_hour_awake_in_the_night_does_not_cut_it_in_two():
    broken = [0] * 60 + [2] * 400 + [0] * 120 + [3] * 300 + [0] * 60
    found = sleep_statistics(DAY + broken + [0] * 120 + [1] * 30 + DAY)
    assert found.tst_min == 350.0
    assert found.waso_sleep_period_min == 60.0
    assert found.lights == "main sleep period ± 30 min, 15 min of sleep outside"


def test_of_two_equal_nights_the_first_one_is_the_main_one():
    found = sleep_statistics(HOUR_OF_SLEEP + DAY + HOUR_OF_SLEEP + DAY)
    assert span(found) == (60, 180)


def test_a_recording_of_a_day_with_one_night_says_nothing_of_a_main_one():
    found = sleep_statistics(DAY + HOUR_OF_SLEEP + DAY)
    assert found.lights == "sleep period ± 30 min"


def test_a_recording_of_14_hours_is_a_night_from_the_first_to_the_last_sleep():
    evening = [2] + [0] * (1680 - 1 - len(HOUR_OF_SLEEP))
    found = sleep_statistics(evening + HOUR_OF_SLEEP)
    assert found.lights == "sleep period ± 30 min"
    assert found.sleep_period_min == (1680 - 240) / 2
    longer = sleep_statistics([*evening, 0, *HOUR_OF_SLEEP])
    assert longer.lights == "main sleep period ± 30 min, 0.5 min of sleep outside"


def test_a_light_that_is_given_leaves_the_main_period_of_the_rest():
    nap = [0] * 60 + [2] * 200 + [0] * 940
    found = sleep_statistics(nap + HOUR_OF_SLEEP + DAY, lights_off=30 * 200)
    assert found.lights_off_s == 30 * 200
    assert found.lights_on_s == 30 * (1200 + 360)
    assert found.lights == "lights off given, lights on by main sleep period ± 30 min"
    assert found.tst_min == 90.0  # what is left of the nap, too


def test_lights_that_are_given_are_used_and_named_so():
    found = sleep_statistics(HOUR_OF_SLEEP, lights_off=1800, lights_on=12000)
    assert span(found) == (30, 200)
    assert found.lights == "given"
    assert found.sol_min == 60.0


def test_one_light_that_is_given_is_used_and_the_other_lies_around_sleep():
    off = sleep_statistics(HOUR_OF_SLEEP, lights_off=1800)
    assert span(off) == (30, 180)
    assert off.lights == "lights off given, lights on by sleep period ± 30 min"
    on = sleep_statistics(HOUR_OF_SLEEP, lights_on=12000)
    assert span(on) == (60, 200)
    assert on.lights == "lights on given, lights off by sleep period ± 30 min"


def test_sleep_outside_of_the_lights_does_not_count():
    nap_and_night = [2] * 20 + HOUR_OF_SLEEP
    found = sleep_statistics(nap_and_night, lights_off=1200)
    assert found.tst_min == 60.0
    assert span(found) == (20, 190)


@pytest.mark.parametrize(("seconds", "border"), [(1814, 1800), (1815, 1830), (1829.9, 1830)])
def test_lights_are_taken_to_the_nearest_border_of_an_epoch(seconds, border):
    assert sleep_statistics(HOUR_OF_SLEEP, lights_off=seconds).lights_off_s == border


def test_lights_may_go_on_in_the_part_of_an_epoch_that_ends_a_recording():
    found = sleep_statistics(HOUR_OF_SLEEP, lights_on=30 * len(HOUR_OF_SLEEP) + 29)
    assert found.lights_on_s == 30 * len(HOUR_OF_SLEEP)


@pytest.mark.parametrize("argument", ["lights_off", "lights_on"])
@pytest.mark.parametrize("seconds", [-1, 30 * len(HOUR_OF_SLEEP) + 30, math.nan, math.inf])
def test_lights_outside_the_recording_raise_and_are_named(argument, seconds):
    with pytest.raises(ArgumentError, match=f"{argument} is .*0 to 16200"):
        sleep_statistics(HOUR_OF_SLEEP, **{argument: seconds})


@pytest.mark.parametrize(("off", "on"), [(3000, 600), (600, 610), (16200, None)])
def test_lights_with_no_epoch_between_them_raise(off, on):
    with pytest.raises(ArgumentError, match="expected lights_on to be at least 30 s later"):
        sleep_statistics(HOUR_OF_SLEEP, lights_off=off, lights_on=on)


@pytest.mark.parametrize(
    "lights",
    [{}, {"lights_off": 1800.0}, {"lights_on": 12000.0}, {"lights_off": 0.0, "lights_on": 9000.0}],
)
def test_lights_that_were_given_are_found_again_in_the_statistics(lights):
    found = sleep_statistics(HOUR_OF_SLEEP, **lights).to_dict()
    assert given_lights(found) == (lights.get("lights_off"), lights.get("lights_on"))


def test_dozing_near_the_main_sleep_period_belongs_to_it_and_does_not_chain():
    stages = np.zeros(2000, np.int8)
    stages[900:1600] = 2
    stages[[1640, 1690]] = 1  # 20 min after the night, and 25 min after that
    first, end, source = find_lights(stages, None, None)
    assert (first, end) == (840, 1701)
    assert source == "main sleep period ± 30 min"
    stages[1740] = 1
    assert find_lights(stages, None, None)[:2] == (840, 1701)


@pytest.fixture
def night():
    """True and predicted stages, (400,), and probabilities whose largest is the prediction."""
    rng = np.random.default_rng(0)
    true = rng.integers(5, size=400)
    predicted = np.where(rng.random(400) < 0.7, true, rng.integers(5, size=400))
    probabilities = rng.dirichlet(np.ones(5), 400)
    highest = probabilities.argmax(axis=1)
    rows = np.arange(400)
    swapped = probabilities[rows, predicted]
    probabilities[rows, predicted] = probabilities[rows, highest]
    probabilities[rows, highest] = np.where(
        highest == predicted, probabilities[rows, highest], swapped
    )
    return true, predicted, probabilities


def test_the_metrics_are_those_of_scikit_learn(night):
    true, predicted, _ = night
    found = agreement(true, predicted)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(true, predicted))
    assert found.kappa == pytest.approx(metrics.cohen_kappa_score(true, predicted))
    assert found.balanced_accuracy == pytest.approx(
        metrics.balanced_accuracy_score(true, predicted)
    )
    assert found.macro_f1 == pytest.approx(metrics.f1_score(true, predicted, average="macro"))
    np.testing.assert_array_equal(found.confusion, metrics.confusion_matrix(true, predicted))


def test_epochs_that_either_leaves_unscored_are_not_compared_but_counted():
    found = agreement([0, -1, 2, 2, -1], [0, 1, -1, 3, -1])
    assert (found.n_compared, found.n_left_out, found.accuracy) == (2, 3, 0.5)
    assert [d.epoch for d in found.disagreements] == [3]


def test_disagreements_are_all_there_with_the_most_confident_first(night):
    true, predicted, probabilities = night
    found = agreement(true, predicted, probabilities).disagreements
    assert sorted(d.epoch for d in found) == np.flatnonzero(true != predicted).tolist()
    confidences = [d.confidence for d in found]
    assert confidences == sorted(confidences, reverse=True)
    names = ("W", "N1", "N2", "N3", "REM")
    for epoch, onset_s, of_true, of_predicted, confidence in found:
        assert onset_s == 30 * epoch
        assert (of_true, of_predicted) == (names[true[epoch]], names[predicted[epoch]])
        assert confidence == probabilities[epoch, predicted[epoch]]


def test_without_probabilities_disagreements_are_by_time_and_their_confidence_is_nan():
    found = agreement([0, 1, 2, 3], [1, 1, 3, 2]).disagreements
    assert [d.epoch for d in found] == [0, 2, 3]
    assert np.isnan([d.confidence for d in found]).all()


def test_where_nothing_can_be_compared_every_metric_is_nan():
    found = agreement([-1, -1], [0, 1])
    assert found.n_compared == 0
    values = [found.accuracy, found.kappa, found.balanced_accuracy, found.macro_f1]
    assert np.isnan(values).all()


def test_different_lengths_raise_with_both_numbers():
    with pytest.raises(ShapeError, match="true has 3 epochs and predicted 2, expected the same"):
        agreement([0, 1, 2], [0, 1])


@pytest.mark.parametrize(
    ("probabilities", "error", "message"),
    [
        (np.full((3, 5), 0.2), ShapeError, r"shape \(3, 5\), expected \(2, 5\)"),
        (np.full((2, 4), 0.25), ShapeError, r"shape \(2, 4\), expected \(2, 5\)"),
        (np.ones((2, 5)), ArgumentError, "at epoch 0, expected five from 0 to 1 that sum to 1"),
        (np.eye(5)[:2] * [[1], [-1]], ArgumentError, "at epoch 1"),
        (np.array([[0.2] * 5, [np.nan, 0.5, 0.5, 0, 0]]), ArgumentError, "at epoch 1"),
        (np.array([[0.2] * 5, [np.inf, -np.inf, 1, 0, 0]]), ArgumentError, "at epoch 1"),
        (np.eye(5, dtype=int)[:2], ArgumentError, "of type int64, expected floats"),
    ],
)
def test_invalid_probabilities_raise(probabilities, error, message):
    with pytest.raises(error, match=message):
        agreement([0, 1], [0, 1], probabilities)


def test_a_dictionary_of_it_is_json_with_every_disagreement(night):
    true, predicted, probabilities = night
    found = agreement(true, predicted, probabilities)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read["confusion"] == found.confusion.tolist()
    assert read["disagreements"][0] == found.disagreements[0]._asdict()
    assert len(read["disagreements"]) == np.count_nonzero(true != predicted)


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
