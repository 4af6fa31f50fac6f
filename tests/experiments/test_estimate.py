"""Estimates follow from finished runs, or from rates and what there is to go through."""

from dataclasses import replace

import pytest
from small_runs import LAYOUT, PROTOCOL, RUN

from psdnorm.batches import Sequences
from psdnorm.experiments.estimate import (
    EPOCHS,
    Amounts,
    Rates,
    from_finished,
    from_rates,
    measured_rates,
)
from psdnorm.experiments.grid import PlannedRun
from psdnorm.training import Run
from psdnorm.training.train import split_of

ADAPTED = Run("usleep", "adabn3", hold_out="abc")


def test_a_run_goes_through_the_windows_of_its_split(store):
    split = split_of(store, RUN, PROTOCOL)
    found = Amounts(store, PROTOCOL).of(RUN)
    windows = [
        len(Sequences(p, PROTOCOL.length, PROTOCOL.stride, only_scored=False)) for p in split
    ]
    assert [found.training, found.validation, found.test] == windows
    assert Amounts(store, PROTOCOL).entry(ADAPTED).sequences == found.test


def test_rates_make_seconds_and_no_more_epochs_than_are_allowed(store):
    amounts, rates = Amounts(store, PROTOCOL), {"usleep": Rates(10.0, 40.0)}
    one_by_one = replace(PROTOCOL, batch_size=1)
    amount = amounts.of(RUN)
    for most, epochs in ((3, 3), (1000, EPOCHS)):
        protocol = replace(one_by_one, max_epochs=most)
        expected = epochs * (amount.training / 10 + amount.validation / 40) + amount.test / 40
        assert from_rates([RUN], amounts, rates, protocol) == {RUN: pytest.approx(expected)}
    adapted = from_rates([ADAPTED], amounts, rates, one_by_one)[ADAPTED]
    assert adapted == pytest.approx(amount.test / 20)


def test_batches_are_whole_however_few_nights_there_are(store):
    amounts, rates = Amounts(store, PROTOCOL), {"usleep": Rates(10.0, 40.0)}
    protocol = replace(PROTOCOL, batch_size=1000, max_epochs=1)
    assert from_rates([RUN], amounts, rates, protocol) == {RUN: pytest.approx(100 + 25 + 25)}


def test_finished_runs_speak_for_their_model_first_and_for_others_if_need_be():
    slow, fast = Run("usleep", "batch"), Run("cnn-transformer", "batch")
    other = replace(slow, seed=1)
    entries = [PlannedRun(slow, 100), PlannedRun(fast, 100), PlannedRun(other, 50)]
    assert from_finished(entries, {}) is None
    assert from_finished(entries, {slow: 60.0, fast: 20.0})[other] == pytest.approx(30)
    assert from_finished(entries, {fast: 20.0})[other] == pytest.approx(10)


def test_adabn_is_an_epoch_of_training_until_one_is_finished():
    base = ADAPTED.base
    entries = [
        PlannedRun(base, 100),
        PlannedRun(ADAPTED, 10),
        PlannedRun(replace(ADAPTED, seed=1), 20),
    ]
    before = from_finished(entries, {base: 150.0})
    assert before[ADAPTED] == pytest.approx(10 * 150 / 100 / EPOCHS)
    after = from_finished(entries, {base: 150.0, ADAPTED: 7.0})
    assert after[replace(ADAPTED, seed=1)] == pytest.approx(14)
    assert from_finished(entries, {ADAPTED: 7.0}) is None


@pytest.mark.parametrize("norm", ["psd", "psd-night"])
def test_a_step_on_this_processor_has_a_rate(norm):
    rates = measured_rates(replace(RUN, norm=norm), PROTOCOL, LAYOUT)
    assert rates.training > 0
    assert rates.prediction > 0
