"""A patience of few steps is said before anything is trained."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import PROTOCOL, RUN

from psdnorm.experiments.estimate import ENOUGH_STEPS, FEW_STEPS, Amount, short_patience
from psdnorm.training.run_folder import Position

LONG = replace(PROTOCOL, batch_size=64, patience=10, max_epochs=80)


class Sizes:
    """Stands for the amounts of a store: sequences to learn from, by the size of the grid."""

    def __init__(self, **training):
        self._training = training

    def of(self, run):
        return Amount(self._training[f"at{run.balanced}"], 0, 0)


FEW = replace(RUN, balanced=2)
MORE = replace(RUN, balanced=5)
SIZES = Sizes(at2=411, at5=1649)


def test_the_run_with_the_shortest_epochs_is_named_with_its_steps_and_a_patience_that_is_enough():
    sentence = short_patience([MORE, FEW], SIZES, LONG)
    assert sentence.startswith(
        f"an epoch of {FEW.name} has 7 steps, so that a patience of 10 is 70"
    )
    proposed, steps = map(int, re.search(r"a patience of (\d+) would be (\d+)$", sentence).groups())
    assert steps == 7 * proposed
    assert ENOUGH_STEPS <= steps < ENOUGH_STEPS + 7
    assert short_patience([FEW], SIZES, replace(LONG, patience=proposed)) is None


def test_a_patience_of_many_steps_is_no_matter():
    assert short_patience([MORE], SIZES, LONG) is None  # 26 steps an epoch
    assert short_patience([], SIZES, LONG) is None


@pytest.mark.parametrize(
    ("sequences", "is_said"), [(64 * FEW_STEPS - 64, True), (64 * FEW_STEPS - 63, False)]
)
def test_the_last_batch_of_an_epoch_is_a_step_though_it_is_not_full(sequences, is_said):
    protocol = replace(LONG, patience=1)
    assert (short_patience([FEW], Sizes(at2=sequences), protocol) is not None) == is_said


def test_where_no_training_can_be_stopped_early_nothing_is_said():
    for epochs, position in ((11, Position()), (12, Position())):
        while not position.finished:  # as where the first epoch stays the best
            loss = float(position.epoch > 0)
            position.end_epoch({"validation_loss": loss}, LONG.patience, epochs)
        is_stopped_early = position.epoch < epochs
        said = short_patience([FEW], SIZES, replace(LONG, max_epochs=epochs))
        assert (said is not None) == is_stopped_early == (epochs == 12)


def test_no_patience_is_proposed_that_the_epochs_do_not_leave_room_for():
    sentence = short_patience([FEW], SIZES, replace(LONG, max_epochs=20))
    assert sentence.endswith("; a patience of 20 would stop none before its last epoch")


def test_the_documentation_says_from_when_on_it_is_said():
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert f"Below {FEW_STEPS} steps the commands warn" in text
    assert f"a patience worth {ENOUGH_STEPS} steps" in text


def test_one_step_is_a_step():
    assert "has 1 step, so that" in short_patience([FEW], Sizes(at2=1), LONG)
