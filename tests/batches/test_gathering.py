"""Pieces from many places come together unchanged, whatever the threads, sizes and types."""

import gc
import threading

import numpy as np
import pytest

from psdnorm.batches.loader import Copying, Rooms


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
