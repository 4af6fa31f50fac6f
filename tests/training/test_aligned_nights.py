"""TMA on a store is TMA: one filter per night, onto the barycenter of the nights that train."""

import pickle

import numpy as np
import pytest
import torch
from small_runs import learnable, small_store
from stores import filled

from psdnorm.alignment import TMA
from psdnorm.errors import ArgumentError
from psdnorm.store import Layout
from psdnorm.training.aligned_nights import AlignedStore, training_barycenter

CPU = torch.device("cpu")
FLOAT32 = Layout(n_channels=2, n_times=60, sfreq=20.0, dtype="float32")


@pytest.fixture(scope="module")
def nights():
    return [learnable(f"abc-{i}", 20, gain=1 + i) for i in range(4)]


@pytest.fixture(scope="module")
def store(tmp_path_factory, nights):
    return filled(tmp_path_factory.mktemp("aligned"), nights, FLOAT32)


def rows(night):
    """A night as one long window, (1, C, E · T)."""
    return night.signals.astype(np.float32).transpose(1, 0, 2).reshape(1, 2, -1)


def test_barycenter_and_alignment_are_those_of_the_transformer(store, nights):
    train, other = nights[:3], nights[3]
    tma = TMA(filter_size=5).fit(np.concatenate([rows(n) for n in train]), domains=range(3))
    found = training_barycenter(store, [n.recording for n in train], 5, CPU)
    np.testing.assert_allclose(found.numpy(), tma.sqrt_barycenter_, rtol=1e-10)
    aligned = AlignedStore(store, found, 5, CPU).signals(other.recording)
    expected = tma.transform(rows(other))[0].reshape(2, 20, -1).transpose(1, 0, 2)
    np.testing.assert_allclose(aligned, expected, atol=1e-5)


def test_reading_gives_the_same_aligned_epochs(store):
    target = training_barycenter(store, ["abc-0"], 5, CPU)
    aligned = AlignedStore(store, target, 5, CPU)
    signals, stages = aligned.read("abc-2", 3, 4)
    assert np.array_equal(signals, aligned.signals("abc-2")[3:7])
    assert np.array_equal(stages, store.read("abc-2", 3, 4)[1])
    again = pickle.loads(pickle.dumps(aligned))
    assert np.array_equal(again.signals("abc-2"), aligned.signals("abc-2"))


def test_a_flat_channel_stays_flat_and_spoils_no_barycenter(tmp_path):
    flat = learnable("abc-1", 20)
    flat.signals[:, 1] = 3.0
    store = small_store(tmp_path, [learnable("abc-0", 20), flat])
    one, both = (
        training_barycenter(store, names, 5, CPU) for names in (["abc-0"], ["abc-0", "abc-1"])
    )
    assert torch.equal(one[1], both[1])
    assert not AlignedStore(store, both, 5, CPU).signals("abc-1")[:, 1].any()


def test_a_filter_longer_than_an_epoch_is_refused(store):
    with pytest.raises(ArgumentError, match="filter_size is 61, expected at most the 60 samples"):
        training_barycenter(store, ["abc-0"], 61, CPU)
