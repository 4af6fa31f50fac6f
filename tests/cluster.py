"""A Dask cluster as it is in life: a scheduler and two workers, each a process."""

import contextlib
import os
import socket
import subprocess
import sys
import time


@contextlib.contextmanager
def cluster(folder):
    """Yield the address of a scheduler, and its two workers, who are there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    with contextlib.ExitStack() as processes:
        start = processes.enter_context
        start(_started("scheduler", "--host", "127.0.0.1", "--port", port))
        _wait_for(int(port))
        workers = [
            start(
                _started(
                    *("worker", address, "--no-nanny", "--nthreads", "1"),
                    *("--local-directory", str(folder / f"worker{number}")),
                )
            )
            for number in range(2)
        ]
        _both_are_there(address)
        yield address, workers


@contextlib.contextmanager
def _started(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_for(port):
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)


def _both_are_there(address):
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=600)
