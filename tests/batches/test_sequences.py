"""Sequences are consecutive, cover every night, and come in an order of their own."""

import numpy as np
import pandas as pd
import pytest
from properties import given, st

from psdnorm.batches import Sequences, window_starts
from psdnorm.errors import ArgumentError

sizes = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(lambda p: (max(p), min(p)))


def index_of(*hypnograms):
    return pd.DataFrame(
        {
            "recording": [f"r{i}" for i in range(len(hypnograms))],
            "stages": [np.array(stages, np.int8).tobytes() for stages in hypnograms],
        }
    )


@given(st.integers(1, 2000), sizes)
def test_windows_cover_the_night_and_only_the_last_is_closer(n_epochs, size):
    length, stride = size
    starts = window_starts(n_epochs, length, stride)
    covered = np.zeros(max(n_epochs, length), bool)
    for start in starts:
        covered[start : start + length] = True
    assert covered[:n_epochs].all()
    assert starts[0] == 0
    assert starts[-1] == max(0, n_epochs - length)
    steps = np.diff(starts)
    assert (steps[:-1] == stride).all()
    assert not len(steps) or 0 < steps[-1] <= stride


def test_the_windows_of_a_night_are_35_long_and_21_apart():
    assert window_starts(35).tolist() == [0]
    assert window_starts(56).tolist() == [0, 21]
    assert window_starts(57).tolist() == [0, 21, 22]


@given(
    st.lists(st.lists(st.integers(-1, 4), min_size=1, max_size=60), min_size=1, max_size=5), sizes
)
def test_every_scored_epoch_is_drawn_and_no_sequence_without_one(hypnograms, size):
    sequences = Sequences(index_of(*hypnograms), *size)
    drawn = [np.zeros(len(stages), bool) for stages in hypnograms]
    for night, start, own in zip(sequences.night, sequences.start, sequences.n_own, strict=True):
        stages = hypnograms[night][start : start + own]
        assert own == len(stages) == min(size[0], len(hypnograms[night]))
        assert max(stages) >= 0
        drawn[night][start : start + own] = True
    for stages, seen in zip(hypnograms, drawn, strict=True):
        assert seen[np.array(stages) >= 0].all()


def test_all_windows_are_there_if_unscored_ones_are_asked_for():
    index = index_of([-1] * 80 + [0] * 20, [-1] * 10)
    sequences = Sequences(index, only_scored=False)
    assert sequences.night.tolist() == [0] * 5 + [1]
    assert sequences.start.tolist() == [0, 21, 42, 63, 65, 0]
    assert len(Sequences(index)) < 5


def test_nights_are_laid_end_to_end():
    sequences = Sequences(index_of([0] * 40, [1] * 3))
    assert sequences.offsets.tolist() == [0, 40, 43]
    assert sequences.stages.tolist() == [0] * 40 + [1] * 3
    assert sequences.n_own.tolist() == [35, 35, 3]


def test_an_order_is_a_permutation_that_seed_and_epoch_decide():
    sequences = Sequences(index_of(*[[0] * 100] * 20))
    orders = {(s, e): tuple(sequences.order(s, e)) for s in range(3) for e in range(3)}
    assert all(sorted(order) == list(range(len(sequences))) for order in orders.values())
    assert len(set(orders.values())) == 9
    again = Sequences(index_of(*[[0] * 100] * 20))
    assert tuple(again.order(2, 1)) == orders[2, 1]


def test_the_order_is_the_same_on_every_machine():
    sequences = Sequences(index_of([0] * 10), length=1, stride=1)
    assert sequences.order(0, 0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_sizes_that_would_skip_epochs_are_refused():
    with pytest.raises(ArgumentError, match=r"^stride is 36, expected an integer from 1 to 35$"):
        Sequences(index_of([0]), 35, 36)
    with pytest.raises(ArgumentError, match=r"^length is 0, expected"):
        Sequences(index_of([0]), 0)
    with pytest.raises(ArgumentError, match=r"^seed and epoch are 0 and -1"):
        Sequences(index_of([0])).order(0, -1)
