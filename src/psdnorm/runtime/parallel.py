"""The same work on many items: here, in several processes, or on a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any, TypeVar
from urllib.parse import urlsplit

from psdnorm.errors import ArgumentError, MissingExtraError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Work = Callable[[_Item], _Result]
Lost = Callable[[_Item, str], _Result]  # what stands for an item that could not be worked on

_ANSWER_S = 10  # until a scheduler must have answered
_WORKERS_S = 60  # until it must have a worker
_LEAVE_S = 10  # in which a process whose parent is gone must have ended by itself
_BY_SOCKET = ("tcp", "tls", "ws", "wss")


def in_processes(
    work: Work[_Item, _Result], items: Sequence[_Item], jobs: int, lost: Lost[_Item, _Result]
) -> Iterator[_Result]:
    """Work on items in processes of their own; yield results as they come.

    Where a process dies, what was in work is tried once more, one item at a time, and what kills
    its process again is ``lost``; the others go on.

    Parameters
    ----------
    work : callable
        Of one item; something that can be pickled, as items and results must be.
    items : sequence
    jobs : int
        Processes at a time.
    lost : callable
        Of an item and a reason.
    """
    waiting = deque(items)
    while waiting:
        running: dict[Future[_Result], _Item] = {}
        pool = _pool(jobs)
        try:
            while waiting or running:
                while waiting and len(running) < 2 * jobs:  # one in work and one at hand
                    running[_submit(pool, work, waiting[0])] = waiting[0]
                    waiting.popleft()
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    del running[future]
                    yield result
        except BrokenProcessPool:
            pass
        finally:
            _end(pool)
        # some may have ended well before the others broke
        whole = [f for f in running if not f.cancelled() and f.exception() is None]
        yield from (future.result() for future in whole)
        suspects = [item for future, item in running.items() if future not in whole]
        yield from _one_by_one(work, suspects, lost)


def on_dask(
    work: Work[_Item, _Result], items: Sequence[_Item], address: str, lost: Lost[_Item, _Result]
) -> Iterator[_Result]:
    """Work on items on an existing Dask cluster; yield results as they come.

    Parameters
    ----------
    work, items, lost
        As in :func:`in_processes`. Dask itself gives what a dead worker held to another one.
    address : str
        Of the scheduler, ``tcp://host:port``.
    """
    check_scheduler(address)
    from distributed import Client, as_completed

    client = _connect(Client, address)
    futures: dict[Any, _Item] = {}
    try:
        # not pure: the same night may have been prepared before, into a store that is gone
        futures = {client.submit(work, item, pure=False): item for item in items}
        for future in as_completed(list(futures), loop=client.loop):
            item = futures.pop(future)
            if future.status == "finished":
                yield future.result()
            else:
                yield lost(item, f"Dask lost it: {_first_line(future.exception())}")
    finally:
        client.cancel(list(futures), force=True)
        client.close()


def check_scheduler(address: str) -> None:
    """Refuse an address at which no Dask scheduler can be, or at which nobody answers.

    Dask's own client tries a closed port for long, waits for ever on one that is not a scheduler's,
    and complains on standard error when it is given up.

    Parameters
    ----------
    address : str
        ``tcp://host:port``, or of another of Dask's protocols.

    Raises
    ------
    ArgumentError
    MissingExtraError
        If Dask is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise MissingExtraError('--dask needs pip install "psdnorm[cluster]"') from error
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _no_scheduler(address, error) from error
    if "://" not in address or (parts.scheme in _BY_SOCKET and not (host and port)):
        raise _no_scheduler(address, "it lacks protocol, host or port")
    if parts.scheme not in _BY_SOCKET:
        return
    try:
        with socket.create_connection((host or "", port or 0), _ANSWER_S) as probe:
            # over plain TCP a scheduler speaks first
            if parts.scheme == "tcp" and not probe.recv(1):
                raise _no_scheduler(address, "what is there hangs up")
    except TimeoutError as error:
        raise _no_scheduler(address, f"nothing came within {_ANSWER_S:g} s") from error
    except OSError as error:
        raise _no_scheduler(address, error.strerror or error) from error


def _no_scheduler(address: str, why: object) -> ArgumentError:
    return ArgumentError(
        f"no Dask scheduler answers at {address!r}, expected one as in tcp://host:8786: {why}"
    )


def _connect(client_class: Any, address: str) -> Any:
    try:
        client = client_class(address, timeout=_ANSWER_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise _no_scheduler(address, _first_line(error)) from error
    try:
        client.wait_for_workers(1, timeout=_WORKERS_S)
    except TimeoutError as error:
        client.close()
        raise ArgumentError(f"the Dask scheduler at {address} has no worker") from error
    return client


def _pool(jobs: int) -> ProcessPoolExecutor:
    # a fork would copy locks that other threads hold, such as those of the progress bar
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=begin_worker)


def _submit(
    pool: ProcessPoolExecutor, work: Work[_Item, _Result], item: _Item
) -> "Future[_Result]":
    with ctrl_c_waits():
        return pool.submit(work, item)


def _end(pool: ProcessPoolExecutor) -> None:
    with undisturbed():
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Hold Ctrl-C back; processes that are started meanwhile do so until they say otherwise.

    One that still imports would answer it with a traceback. It is this thread's mask that they
    inherit: where there are others, this process may hear Ctrl-C all the same.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # when it begins, it lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Do not hear Ctrl-C: for what ends processes, perhaps because of the first one."""
    if threading.current_thread() is not threading.main_thread():  # others never hear it
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def begin_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it, however it ends.

    Where the parent is killed, this process ends as if it had been sent SIGTERM: what it does then,
    such as waiting for a GPU, it may do for ten seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LEAVE_S)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _one_by_one(
    work: Work[_Item, _Result], items: Sequence[_Item], lost: Lost[_Item, _Result]
) -> Iterator[_Result]:
    """Work on items in one process after the other, so that it is clear which one kills it."""
    pool = None
    try:
        for item in items:
            pool = pool or _pool(1)
            try:
                yield _submit(pool, work, item).result()
            except BrokenProcessPool:
                pool.shutdown()
                pool = None
                yield lost(item, "its process died twice, perhaps for want of memory")
    finally:
        if pool is not None:
            _end(pool)


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return f"{lines[0]:.200}" if lines else type(error).__name__
