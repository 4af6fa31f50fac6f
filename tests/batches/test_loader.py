"""The same batches from disk, from memory and from the device."""

import gc
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from properties import given, st
from stores import filled, night

from psdnorm.batches import Loader, Sequences, window_starts
from psdnorm.batches.loader import (
    RESIDENCES,
    Copying,
    Rooms,
    ahead,
    available_memory,
    choose_residence,
)
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.store import Store
from psdnorm.store.folder import night_path

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    nights = [
        night("abc-1", 100),
        night("abc-2", 64),
        night("abc-3", 10),  # shorter than a sequence
        night("xyz-1", 120, stages=np.r_[np.full(80, -1), np.zeros(40, int)]),
        night("xyz-2", 50, stages=np.full(50, -1)),  # nobody scored it
    ]
    return filled(tmp_path_factory.mktemp("batches"), nights)


def batches(store, epoch=0, first_batch=0, **options):
    loader = Loader(store, store.index, **({"batch_size": 5} | options))
    return [(x.cpu().clone(), y.cpu()) for x, y in loader.epoch(epoch, first_batch)]


def same(one, other):
    return len(one) == len(other) and all(
        torch.equal(a, b)
        for pair in zip(one, other, strict=True)
        for a, b in zip(*pair, strict=True)
    )


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("last", ["keep", "drop", "fill"])
def test_the_same_batches_come_from_everywhere(store, device, last):
    found = [
        [batches(store, epoch, residence=r, device=device, last=last) for epoch in range(2)]
        for r in RESIDENCES
    ]
    assert not same(found[0][0], found[0][1])
    for epoch in range(2):
        assert same(found[0][epoch], found[1][epoch])
        assert same(found[0][epoch], found[2][epoch])


@pytest.mark.gpu
@pytest.mark.parametrize("residence", RESIDENCES)
def test_a_gpu_gets_what_a_processor_gets(store, residence):
    assert same(batches(store, residence=residence, device="cuda"), batches(store))


@pytest.mark.parametrize("residence", RESIDENCES)
def test_a_batch_holds_what_the_store_holds(store, residence):
    loader = Loader(store, store.index, batch_size=4, seed=None, residence=residence)
    sequences = loader.sequences
    place = 0
    for x, stages in loader.epoch(0):
        assert (x.dtype, stages.dtype) == (torch.float32, torch.int64)
        assert x.shape[1:] == (35, 2, 30)
        for signals, hypnogram in zip(x, stages, strict=True):
            recording = sequences.recordings[sequences.night[place]]
            own = int(sequences.n_own[place])
            expected = store.read(recording, int(sequences.start[place]), own)
            assert np.array_equal(signals[:own], expected[0])
            assert np.array_equal(hypnogram[:own], expected[1])
            place += 1
    assert place == len(sequences)


def test_a_short_night_is_repeated_and_only_scored_once(store):
    index = store.index[store.index["recording"] == "abc-3"]
    for residence in RESIDENCES:
        ((x, stages),) = Loader(store, index, residence=residence).epoch(0)
        signals, hypnogram = store.read("abc-3", 0, 10)
        assert np.array_equal(x[0], np.concatenate([signals] * 4)[:35])
        assert stages[0].tolist() == [*hypnogram, *[-1] * 25]


@pytest.mark.parametrize("residence", RESIDENCES)
def test_a_sequence_without_a_scored_epoch_is_never_drawn(store, residence):
    for epoch in range(3):
        for _, stages in batches(store, epoch, residence=residence):
            assert (stages >= 0).any(dim=1).all()


@pytest.mark.parametrize("residence", RESIDENCES)
@pytest.mark.parametrize("last", ["keep", "drop", "fill"])
def test_a_resumed_epoch_goes_on_where_it_stopped(store, residence, last):
    whole = batches(store, 1, residence=residence, last=last)
    assert len(whole) >= 2
    for first in range(len(whole) + 1):
        assert same(batches(store, 1, first, residence=residence, last=last), whole[first:])


def test_the_last_batch_is_kept_dropped_or_filled_with_unscored_sequences(store):
    kept, dropped, filled_up = (batches(store, last=last) for last in ("keep", "drop", "fill"))
    assert len(kept[-1][0]) == 2
    assert same(dropped, kept[:-1])
    assert len(filled_up[-1][0]) == 5
    assert torch.equal(filled_up[-1][0][:2], kept[-1][0])
    assert torch.equal(filled_up[-1][1][:2], kept[-1][1])
    assert torch.equal(filled_up[-1][0][2:], kept[0][0][:3])
    assert (filled_up[-1][1][2:] == -1).all()


def test_more_batches_than_sequences_can_be_filled(store):
    index = store.index[store.index["recording"] == "abc-3"]
    ((x, stages),) = Loader(store, index, batch_size=5, last="fill").epoch(0)
    assert x.shape[0] == 5
    assert (stages[1:] == -1).all()


@pytest.mark.parametrize("last", ["keep", "drop", "fill"])
def test_the_length_of_a_loader_is_its_number_of_batches(store, last):
    for batch_size in (1, 2, 3, 4, 5, 7):
        loader = Loader(store, store.index, batch_size=batch_size, last=last)
        assert len(list(loader.epoch(0))) == len(loader)


def night_of(loader, x):
    """The night of every sequence in a batch, found by its first epoch."""
    sequences = loader.sequences
    known = [loader.store.signals(recording) for recording in sequences.recordings]
    pairs = zip(sequences.night, sequences.start, strict=True)
    first = {known[night][start].tobytes(): int(night) for night, start in pairs}
    return [first[sequence[0].numpy().astype(known[0].dtype).tobytes()] for sequence in x]


@pytest.mark.parametrize("per_night", [1, 2, 3])
@pytest.mark.parametrize("last", ["keep", "drop", "fill"])
def test_the_nights_of_a_batch_are_told(store, last, per_night):
    loader = Loader(store, store.index, batch_size=5, last=last, sequences_per_night=per_night)
    for epoch, first in ((0, 0), (1, 1)):
        told = [nights.tolist() for nights in loader.nights(epoch, first)]
        assert told == [night_of(loader, x) for x, _ in loader.epoch(epoch, first)]


@pytest.mark.parametrize("last", ["keep", "fill"])
@pytest.mark.parametrize("batch_size", [2, 3, 5, 64])
def test_whole_nights_have_batches_of_their_own(store, batch_size, last):
    options = {"batch_size": batch_size, "only_scored": False, "last": last, "seed": None}
    loader = Loader(store, store.index, whole_nights=True, **options)
    whole = Loader(store, store.index, **options | {"batch_size": 1})
    expected = {}
    for nights, (x, stages) in zip(whole.nights(0), whole.epoch(0), strict=True):
        expected.setdefault(int(nights[0]), []).append((x[0], stages[0]))
    found = {}
    for nights, (x, stages) in zip(loader.nights(0), loader.epoch(0), strict=True):
        own = nights == nights[0]
        assert (nights[~own] == len(store.index)).all()
        assert len(x) == (batch_size if last == "fill" else own.sum())
        assert (stages[torch.from_numpy(~own)] == -1).all()
        n_own = own.sum()
        found.setdefault(int(nights[0]), []).extend(zip(x[:n_own], stages[:n_own], strict=True))
    assert len(list(loader.epoch(0))) == len(loader)
    assert list(found) == list(expected)
    assert all(same(found[place], expected[place]) for place in expected)


def test_a_batch_that_is_kept_is_not_overwritten(store):
    loader = Loader(store, store.index, batch_size=5)
    kept = [x for x, _ in loader.epoch(0)]
    views = [x[0] for x, _ in loader.epoch(0)]
    list(loader.epoch(1))
    for (x, _), once, view in zip(batches(store), kept, views, strict=True):
        assert torch.equal(x, once)
        assert torch.equal(x[0], view)


def test_the_memory_of_a_batch_that_is_gone_is_used_again(store):
    loader = Loader(store, store.index, batch_size=4, last="drop")
    places = set()
    for x, _ in loader.epoch(0):
        places.add(x.data_ptr())
        del x
    assert len(places) <= 2


@pytest.mark.parametrize(
    ("n_bytes", "device_free", "host_free", "expected"),
    [
        (50, 100, 100, "device"),
        (70, 100, 200, "pinned"),
        (70, 100, 100, "map"),
        (1, 0, 0, "map"),
    ],
)
def test_the_residence_is_chosen_by_size(n_bytes, device_free, host_free, expected):
    assert choose_residence(n_bytes, device_free, host_free) == expected


@pytest.mark.gpu
def test_what_fits_goes_to_the_gpu(store):
    assert Loader(store, store.index, device="cuda").residence == "device"


def test_a_processor_reads_from_the_map_and_memory_is_known(store):
    assert Loader(store, store.index).residence == "map"
    assert available_memory() > 2**20


def test_batches_come_ahead_in_order_and_a_thread_that_is_left_alone_ends():
    threads = threading.active_count()
    assert list(ahead(iter(range(20)), 2)) == list(range(20))
    items = ahead(iter(range(20)), 2)
    assert next(items) == 0
    items.close()
    assert threading.active_count() == threads


def test_an_error_while_reading_ahead_comes_out_in_its_place():
    def items():
        yield 1
        raise StoreError("night.safetensors is missing")

    found = ahead(items(), 2)
    assert next(found) == 1
    with pytest.raises(StoreError, match="is missing"):
        next(found)


def test_a_night_lost_or_changed_since_the_index_was_read_is_named(tmp_path):
    store = filled(tmp_path, [night("abc-1", 50)])
    index = store.index
    Store.open(tmp_path).add(night("abc-1", 40))
    with pytest.raises(StoreError, match="'abc-1' has 40 epochs, expected 50 as in the index"):
        next(Loader(store, index).epoch(0))
    Store.open(tmp_path).finish()
    night_path(tmp_path, "abc-1").unlink()
    with pytest.raises(StoreError, match=r"abc-1.safetensors is missing"):
        next(Loader(Store.open(tmp_path), index).epoch(0))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"last": "maybe"}, "last is 'maybe', expected one of keep, drop, fill"),
        ({"sequences_per_night": 0}, "sequences_per_night is 0, expected a positive integer"),
        ({"residence": "moon"}, "residence is 'moon', expected 'auto'"),
        ({"batch_size": 1000, "last": "drop"}, "expected enough for a batch of 1000"),
    ],
)
def test_what_no_loader_can_do_is_refused(store, options, expected):
    with pytest.raises(ArgumentError, match=expected):
        Loader(store, store.index, **options)


def test_a_batch_or_epoch_that_does_not_exist_is_refused_at_once(store):
    loader = Loader(store, store.index)
    with pytest.raises(ArgumentError, match=r"^first_batch is 3, expected 0 to 1$"):
        loader.epoch(0, 3)
    with pytest.raises(ArgumentError, match=r"^epoch is -1"):
        loader.epoch(-1)


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
    for number, start, own in zip(sequences.night, sequences.start, sequences.n_own, strict=True):
        stages = hypnograms[number][start : start + own]
        assert own == len(stages) == min(size[0], len(hypnograms[number]))
        assert max(stages) >= 0
        drawn[number][start : start + own] = True
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


def test_sequences_of_a_night_follow_each_other_in_groups():
    sequences = Sequences(index_of(*[[0] * 21 * n for n in (2, 9, 14, 30)]))
    order = sequences.order(0, 0)
    assert sequences.grouped(order, 1).tolist() == order.tolist()
    for n in (2, 4, 50):
        grouped = sequences.grouped(order, n)
        assert sorted(grouped) == sorted(order)
        groups, rest = [], grouped.tolist()
        while rest:
            night = sequences.night[rest[0]]
            size = min(n, (sequences.night[rest] == night).sum())
            assert (sequences.night[rest[:size]] == night).all()
            groups.append(rest[:size])
            rest = rest[size:]
        # as they were shuffled: within groups, the first ones of groups, and groups of a night
        place = {int(sequence): i for i, sequence in enumerate(order)}
        places = [[place[sequence] for sequence in group] for group in groups]
        assert all(group == sorted(group) for group in places)
        assert places == sorted(places)


def test_sizes_that_would_skip_epochs_are_refused():
    with pytest.raises(ArgumentError, match=r"^stride is 36, expected an integer from 1 to 35$"):
        Sequences(index_of([0]), 35, 36)
    with pytest.raises(ArgumentError, match=r"^length is 0, expected"):
        Sequences(index_of([0]), 0)
    with pytest.raises(ArgumentError, match=r"^seed and epoch are 0 and -1"):
        Sequences(index_of([0])).order(0, -1)


def noise(n, n_times, dtype):
    return np.random.default_rng(n).standard_normal((n, 2, n_times)).astype(dtype)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n_pieces", [1, 2, 5, 64])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_every_piece_arrives_in_its_place(n_threads, n_pieces, dtype):
    copying = Copying()
    copying.n_threads = n_threads
    sources = [noise(1 + n % 4, 31, dtype) for n in range(n_pieces)]
    targets = [np.full(source.shape, np.nan, np.float32) for source in sources]
    copying(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize("n_times", [3, 3000, 40_000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_pieces_larger_than_torch_copies_with_one_thread_arrive_whole(n_times, dtype):
    sources = [noise(35, n_times, dtype) for _ in range(3)]
    targets = [np.full(source.shape, np.nan, np.float32) for source in sources]
    Copying()(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        np.testing.assert_array_equal(target, source)


def test_an_error_in_another_thread_is_raised():
    copying = Copying()
    copying.n_threads = 2
    sources = [np.zeros((1, 2), np.float32)] * 8
    with pytest.raises(ValueError, match="broadcast"):
        copying([np.zeros((1, 3), np.float32)] * 8, sources)
    with pytest.raises(RuntimeError, match="size"):
        copying([np.zeros((1, 3), np.float16)] * 8, sources)


def test_the_threads_end_with_the_one_who_copies():
    copying = Copying()
    copying.n_threads = 3
    copying([np.zeros((1, 2))] * 30, [np.ones((1, 2))] * 30)
    threads = [t for t in threading.enumerate() if t.name.startswith("psdnorm-copy")]
    assert threads
    del copying
    gc.collect()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_a_room_is_used_again_only_when_nobody_refers_to_it():
    rooms = Rooms()
    first = rooms.empty((4, 2))
    second = rooms.empty((4, 2))
    assert first.data_ptr() != second.data_ptr()
    address = first.data_ptr()
    part = first[1:]
    del first
    assert rooms.empty((4, 2)).data_ptr() != address  # the part still lives there
    del part
    gc.collect()
    assert address in {rooms.empty((4, 2)).data_ptr(), rooms.empty((4, 2)).data_ptr()}


def test_a_room_has_the_shape_that_was_asked_for():
    rooms = Rooms()
    rooms.empty((4, 2))
    assert rooms.empty((3, 2)).shape == (3, 2)
