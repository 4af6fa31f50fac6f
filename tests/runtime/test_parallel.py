"""Work that dies takes nothing else with it."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.runtime import parallel
from psdnorm.runtime.parallel import ProcessBrokenError, check_scheduler, run_all, stream_all


def test_what_kills_its_process_twice_is_lost_and_all_else_is_done():
    # raising signal 0 does nothing, raising 9 kills
    lost = []

    def lose(item, why):
        lost.append((item, why))
        return item

    items = [0, 0, int(signal.SIGKILL), 0, 0, 0]  # four are in work at once
    found = list(run_all(signal.raise_signal, items, jobs=2, lost=lose))
    assert sorted(found, key=str) == [9, None, None, None, None, None]
    assert lost == [(9, "its process died twice, perhaps out of memory")]


def test_a_run_that_is_closed_early_leaves_no_process():
    before = set(multiprocessing.active_children())
    run = run_all(abs, list(range(50)), jobs=2, lost=lambda item, why: None)
    next(run)
    run.close()
    assert set(multiprocessing.active_children()) <= before


def test_without_distributed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r'^--dask needs pip install "psdnorm\[cluster\]"$'):
        list(run_all(abs, [1], dask="tcp://127.0.0.1:1", lost=lambda item, why: None))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:1", "Connection refused"),
        ("tls://127.0.0.1:1", "Connection refused"),
        ("no address", "it lacks protocol, host or port"),
        ("localhost:8786", "it lacks protocol, host or port"),
        ("tcp://127.0.0.1", "it lacks protocol, host or port"),
        ("tcp://127.0.0.1:99999", "Port out of range 0-65535"),
    ],
)
def test_where_no_scheduler_answers_no_client_is_made(monkeypatch, address, why):
    monkeypatch.setattr("distributed.Client", None)
    expected = f"no Dask scheduler answers at {address!r}, expected one as in tcp://host:8786: "
    with pytest.raises(ArgumentError) as refused:
        list(run_all(abs, [1], dask=address, lost=lambda item, why: None))
    assert str(refused.value) == expected + why


def test_a_port_that_is_no_schedulers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("psdnorm.runtime.parallel._ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(
            ArgumentError, match=rf"at '{address}', .*: nothing came within 0\.1 s$"
        ):
            check_scheduler(address)


CTRL_C_WHILE_IT_IMPORTS = """
import os, signal
from psdnorm.runtime.parallel import run_all
if __name__ == "__main__":
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    print(sorted(run_all(abs, [-1, -2], jobs=2, lost=lambda item, why: why)))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
else:
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_process_that_is_still_starting_leaves_ctrl_c_to_its_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CTRL_C_WHILE_IT_IMPORTS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2]\n", "")


ORPHANED = """
import multiprocessing, os, signal, sys, threading
from psdnorm.runtime import parallel

def end(*_):
    print("told to end", flush=True)
    if sys.argv[1] == "gently":
        os._exit(0)

def serve():
    parallel._LEAVE_S = 0.1
    parallel.begin_worker()
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while True:
        threading.Event().wait(60)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=serve).start()
"""


@pytest.mark.parametrize("how", ["gently", "never"])
def test_a_process_whose_parent_is_killed_is_told_to_end_and_ends_if_it_does_not(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(ORPHANED)
    command = [sys.executable, script, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        said, complaints = parent.communicate(timeout=600)  # until its child is gone, too
    assert (said, complaints) == (b"told to end\n", b"")


def test_a_result_and_the_end_of_its_item_are_one_message(monkeypatch):
    """Between two, a process could die, and the item would be processed twice."""

    class Pipe:
        given, sent = [-1, -2], []
        send = sent.append

        def recv(self):
            if not self.given:
                raise EOFError
            return self.given.pop(0)

    monkeypatch.setattr(parallel, "begin_worker", lambda: None)
    parallel._serve(Pipe(), partial(parallel._only_result, abs), None, None)
    assert Pipe.sent == [("done", [1]), ("done", [2])]


def steps(item, send):
    for step in range(item):
        send((item, step, os.environ.get("PLACE")))
    if item == 3:
        raise ProcessBrokenError("its GPU was lost")


def at(place):
    os.environ["PLACE"] = place


@pytest.mark.parametrize("options", [{}, {"retry_alone": False, "finish_item": False}])
def test_a_stream_tells_every_step_and_an_item_whose_process_breaks_is_tried_twice(options):
    def lost(item, words):
        return [(item, *words)]

    found = list(stream_all(steps, [1, 3, 2], ["a", "b"], lost=lost, begin=at, **options))
    given_up = (3, "its GPU was lost", "its GPU was lost")
    assert {each[2] for each in found if each != given_up} <= {"a", "b"}
    twice = 2 * [(3, 0), (3, 1), (3, 2)]
    told = Counter(each if each == given_up else each[:2] for each in found)
    assert told == Counter([(1, 0), (2, 0), (2, 1), *twice, given_up])


def test_an_error_of_the_work_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_all(int, ["1", "x"], jobs=2, lost=lambda item, why: why))
