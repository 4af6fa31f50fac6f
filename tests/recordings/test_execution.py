"""Work that dies takes nothing else with it."""

import multiprocessing
import signal
import sys

import pytest

from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.recordings.execution import in_processes, on_dask


@pytest.mark.slow
def test_what_kills_its_process_twice_is_lost_and_all_else_is_done():
    # raising signal 0 does nothing, raising 9 kills
    lost = []

    def lose(item, why):
        lost.append((item, why))
        return item

    items = [0, 0, int(signal.SIGKILL), 0, 0, 0]  # four are in work at once
    found = list(in_processes(signal.raise_signal, items, 2, lose))
    assert sorted(found, key=str) == [9, None, None, None, None, None]
    assert lost == [(9, "its process died twice, perhaps for want of memory")]


@pytest.mark.slow
def test_a_run_that_is_closed_early_leaves_no_process():
    before = set(multiprocessing.active_children())
    run = in_processes(abs, list(range(50)), 2, lost=lambda item, why: None)
    next(run)
    run.close()
    assert set(multiprocessing.active_children()) <= before


def test_without_distributed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r'^--dask needs pip install "psdnorm\[cluster\]"$'):
        list(on_dask(abs, [1], "tcp://127.0.0.1:1", lost=lambda item, why: None))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "no address"])
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch, address):
    monkeypatch.setattr("psdnorm.recordings.execution._ANSWER_S", 0.2)
    with pytest.raises(ArgumentError, match=f"^no Dask scheduler answers at '{address}', expected"):
        list(on_dask(abs, [1], address, lost=lambda item, why: None))
