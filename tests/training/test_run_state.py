"""A training ends by its validation loss, and what it saves is all that it needs to go on."""

import random

import numpy as np
import pytest
import torch

from psdnorm.training.run_folder import (
    Position,
    State,
    generator_states,
    read_state,
    restore_generators,
    write_state,
)

CPU = torch.device("cpu")


def trained(losses, patience, max_epochs=100, accuracies=None):
    """A position after epochs with these validation losses, and which were the best so far."""
    position, best = Position(), []
    for epoch, loss in enumerate(losses):
        assert not position.finished
        accuracy = 0.5 if accuracies is None else accuracies[epoch]
        row = {"epoch": epoch, "validation_loss": loss, "validation_balanced_accuracy": accuracy}
        if position.end_epoch(row, patience, max_epochs):
            best.append(epoch)
    return position, best


@pytest.mark.parametrize("patience", [1, 3])
@pytest.mark.parametrize("best", [0, 2])
def test_it_ends_after_as_many_epochs_without_a_lower_loss_as_there_is_patience(patience, best):
    losses = [5.0 - epoch for epoch in range(best + 1)] + [9.0] * patience
    assert not trained(losses[:-1], patience)[0].finished
    position, _ = trained(losses, patience)
    assert position.finished
    assert (position.best_epoch, position.best_loss, position.epoch) == (
        best,
        5.0 - best,
        best + patience + 1,
    )


def test_a_lower_loss_gives_all_its_patience_back():
    assert not trained([2.0, 3.0, 3.0, 1.9, 3.0, 3.0], patience=3)[0].finished
    assert trained([2.0, 3.0, 3.0, 1.9, 3.0, 3.0, 3.0], patience=3)[0].finished


def test_a_loss_that_is_equal_is_no_lower_one():
    position, best = trained([2.0, 2.0, 2.0], patience=2)
    assert position.finished
    assert best == [0]


def test_the_loss_decides_and_not_the_balanced_accuracy():
    rising, falling = [0.2, 0.3, 0.4, 0.5], [0.5, 0.4, 0.3, 0.2]
    position, best = trained([1.0, 2.0, 3.0, 4.0], patience=3, accuracies=rising)
    assert (position.finished, best) == (True, [0])
    position, best = trained([4.0, 3.0, 2.0, 1.0], patience=3, accuracies=falling)
    assert (position.finished, best) == (False, [0, 1, 2, 3])


def test_it_ends_after_the_last_epoch_however_good_that_was():
    falling = [4.0, 3.0, 2.0]
    assert not trained(falling[:2], patience=3, max_epochs=3)[0].finished
    position, _ = trained(falling, patience=3, max_epochs=3)
    assert (position.finished, position.epoch, position.best_epoch) == (True, 3, 2)


def test_an_epoch_begins_with_its_first_batch_and_no_sums():
    position = Position(epoch=4, batch=8, step=40, sums=[3.0, 2.0])
    row = {"epoch": 4, "validation_loss": 1.0}
    position.end_epoch(row, 3, 100)
    assert (position.epoch, position.batch, position.step) == (5, 0, 40)
    assert position.sums == [0.0, 0.0]
    assert position.history == [row]


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002


def test_every_random_generator_goes_on_from_what_was_saved(tmp_path):
    random.gauss(0, 1), np.random.randn()  # noqa: NPY002 (one of each pair stays behind)
    saved = State("run", Position(), {}, None, {}, [generator_states(CPU)])
    write_state(tmp_path, saved)
    expected = draws(), random.gauss(0, 1), np.random.randn()  # noqa: NPY002
    found = read_state(tmp_path, "run")
    restore_generators(found.generators[0], CPU)
    assert (draws(), random.gauss(0, 1), np.random.randn()) == expected  # noqa: NPY002
