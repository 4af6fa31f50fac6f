"""Thousands of recordings: heads, index, splits and sampler, without signals."""

import pytest
from stores import sparse

from psdnorm.batches import Loader, class_weights, leave_one_dataset_out
from psdnorm.store import Store, summarize

N_RECORDINGS = 3000  # benchmarks/store.py has 15,000


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = sparse(tmp_path_factory.mktemp("scale"), N_RECORDINGS)
    made.finish()
    return Store.open(made.path)


def test_the_index_has_a_row_for_each_recording(store):
    assert len(store.index) == N_RECORDINGS
    table = summarize(store)
    assert len(table) == 11
    assert table.loc["all", ["subjects", "nights"]].tolist() == [N_RECORDINGS // 2, N_RECORDINGS]


def test_thousands_of_recordings_are_split_and_drawn_from(store):
    split = leave_one_dataset_out(store.index, "cohort-0")
    assert [len(part) for part in split] == [2160, 540, 300]
    assert split.train["subject"].groupby(split.train["cohort"]).nunique().eq(120).all()
    loader = Loader(store, split.train, residence="map")
    # E epochs make 1 + ceil((E - 35) / 21) sequences; with a sixth unscored, all are drawn
    expected = int((1 + -(-(split.train["epochs"] - 35) // 21)).sum())
    assert len(loader.sequences) == expected
    assert len(loader) == -(-expected // 64)
    assert len(loader.sequences.order(0, 5)) == expected
    assert class_weights(split.train).min() > 0.9
