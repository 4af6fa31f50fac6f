"""Work that dies takes nothing else with it."""

import multiprocessing
import signal
import socket
import subprocess
import sys

import pytest

from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.runtime.parallel import check_scheduler, in_processes, on_dask


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
        list(on_dask(abs, [1], address, lost=lambda item, why: None))
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
from psdnorm.runtime.parallel import in_processes
if __name__ == "__main__":
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    print(sorted(in_processes(abs, [-1, -2], 2, lost=lambda item, why: why)))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
else:
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.slow
def test_a_process_that_is_still_starting_leaves_ctrl_c_to_its_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CTRL_C_WHILE_IT_IMPORTS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 2]\n", "")


ORPHANED = """
import multiprocessing, os, signal, sys, threading
from psdnorm.io import execution

def end(*_):
    print("told to end", flush=True)
    if sys.argv[1] == "gently":
        os._exit(0)

def serve():
    execution._LEAVE_S = 0.1
    execution.begin_worker()
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while True:
        threading.Event().wait(60)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=serve).start()
"""


@pytest.mark.slow
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
