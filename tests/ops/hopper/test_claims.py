"""Launches that may run side by side never share a counter; those of one stream do."""

from types import SimpleNamespace

import pytest
import torch

from psdnorm.ops.hopper import rows as claims


@pytest.fixture
def device(monkeypatch):
    """A device whose current stream a test chooses, with four counters, one of them for streams."""
    now = SimpleNamespace(index=0, stream=7, captures=False, waits=0)

    def current_stream():
        def synchronize():
            now.waits += 1

        return SimpleNamespace(cuda_stream=now.stream, synchronize=synchronize)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: now.index)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now.captures)
    monkeypatch.setattr(claims, "_zeros", lambda count: torch.zeros(count, dtype=torch.int32))
    monkeypatch.setattr(claims, "_COUNTERS_OF_A_DEVICE", 4)
    monkeypatch.setattr(claims, "_KEPT_FOR_STREAMS", 1)
    monkeypatch.setattr(claims, "_free", {})
    monkeypatch.setattr(claims, "_of_streams", {})
    return now


def counters(device, *streams, captures=False):
    device.captures = captures
    found = []
    for stream in streams:
        device.stream = stream
        found.append(claims.claim_counter())
    assert all(c.shape == (1,) and c.dtype == torch.int32 and c == 0 for c in found)
    return [c.data_ptr() for c in found]


def test_launches_of_one_stream_have_one_counter_and_other_streams_others(device):
    first, other, again = counters(device, 7, 8, 7)
    assert first == again != other


def test_the_first_call_alone_waits_for_the_host(device):
    counters(device, 7, 8, 7)
    assert device.waits == 1


def test_each_launch_that_a_graph_holds_has_its_own(device):
    (eager,) = counters(device, 7)
    captured = counters(device, 7, 8, captures=True)
    assert len({eager, *captured}) == 3
    assert counters(device, 7, 8)[0] == eager
    assert not {*counters(device, 7, 8)} & {*captured}


def test_graphs_leave_counters_to_streams(device):
    counters(device, 7)
    device.captures = True
    kept = [claims.claim_counter() for _ in range(4)]
    assert len(claims._free[0]) == 1
    counters(device, 8)
    assert len({c.data_ptr() for c in kept}) == 4


def test_other_devices_have_other_counters(device):
    (first,) = counters(device, 7)
    device.index = 1
    assert counters(device, 7) != [first]


@pytest.mark.parametrize("captures", [False, True])
def test_where_none_is_left_a_new_one_is_made_for_every_launch(device, captures):
    counters(device, 1, 2, 3, 4)
    device.stream, device.captures = 5, captures
    assert claims.claim_counter() is not claims.claim_counter()


def test_a_graph_that_comes_first_clears_its_own(device):
    counters(device, 7, captures=True)
    assert device.waits == 0
    assert not claims._free
