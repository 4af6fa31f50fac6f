"""Pieces from many places come together unchanged, whatever the threads, sizes and types."""

import gc
import threading

import pytest
import torch

from psdnorm.batches.gathering import Copying, Rooms


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n_pieces", [1, 2, 5, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_every_piece_arrives_in_its_place(n_threads, n_pieces, dtype):
    copying = Copying()
    copying.n_threads = n_threads
    sources = [torch.randn(1 + n % 4, 2, 31).to(dtype) for n in range(n_pieces)]
    targets = [torch.full(source.shape, torch.nan) for source in sources]
    copying(targets, sources)
    for target, source in zip(targets, sources, strict=True):
        torch.testing.assert_close(target, source.float(), rtol=0, atol=0)


@pytest.mark.parametrize("n_times", [3, 3000, 40_000])
def test_pieces_larger_than_torch_copies_with_one_thread_arrive_whole(n_times):
    copying = Copying()
    sources = [torch.randn(35, 2, n_times).half() for _ in range(3)]
    targets = [torch.full(source.shape, torch.nan) for source in sources]
    copying(targets, sources)
    assert all(torch.equal(t, s.float()) for t, s in zip(targets, sources, strict=True))


def test_an_error_in_another_thread_is_raised():
    copying = Copying()
    copying.n_threads = 2
    sources = [torch.zeros(1, 2)] * 8
    with pytest.raises(ValueError, match="broadcast"):
        copying([torch.zeros(1, 3)] * 8, sources)
    with pytest.raises(RuntimeError, match="size"):
        copying([torch.zeros(1, 3).half()] * 8, sources)


def test_the_threads_end_with_the_one_who_copies():
    copying = Copying()
    copying.n_threads = 3
    copying([torch.zeros(1, 2)] * 3, [torch.ones(1, 2)] * 3)
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
