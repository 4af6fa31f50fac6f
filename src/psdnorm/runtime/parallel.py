"""The same work on many items: in this process, in several, or on a Dask cluster.

The pool is our own because those of the standard library end all processes when one dies; here,
one item is retried and nothing else is lost.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any, TypeVar
from urllib.parse import urlsplit

from psdnorm.errors import ArgumentError, MissingExtraError
from psdnorm.runtime.interrupts import ctrl_c_waits, undisturbed

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Send = Callable[[Any], None]

_ANSWER_S = 10  # for a scheduler to answer
_WORKERS_S = 60  # for it to have a worker
_LEAVE_S = 10  # for a process to end after being asked to
_TRIES = 2  # processes that may die on an item
_BY_SOCKET = ("tcp", "tls", "ws", "wss")


def run_all(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    jobs: int = 1,
    dask: str | None = None,  # address of a scheduler whose workers do the work instead
    lost: Callable[[_Item, str], _Result],
) -> Iterator[_Result]:
    """Yield the result of ``work`` for each item, in order of completion.

    Work, items and results must be picklable unless ``jobs`` is 1. An item whose process dies is
    retried once, alone; if that fails too, its result is ``lost`` of the item and a reason. Dask
    itself reassigns the items of a dead worker.
    """
    if jobs < 1:
        raise ArgumentError(f"jobs is {jobs}, expected at least 1")
    if dask is not None:
        yield from _on_dask(work, items, dask, lost)
    elif jobs == 1 or len(items) < 2:
        yield from map(work, items)
    else:
        places = [None] * min(jobs, len(items))
        why = "its process died twice, perhaps out of memory"
        yield from stream_all(
            partial(_only_result, work), items, places, lost=lambda item, _: [lost(item, why)]
        )


def _only_result(work: Callable[[_Item], _Result], item: _Item, send: Send) -> list[_Result]:
    # not sent before the end: a process that dies in between would have the item processed twice
    return [work(item)]


class ProcessBrokenError(Exception):
    """Raised by work that found its process unusable: the item is retried in a new process."""


def stream_all(
    work: Callable[[_Item, Send], list | None],
    items: Sequence[_Item],
    places: Sequence[Any],
    *,
    lost: Callable[[_Item, Sequence[str]], Sequence[Any]],
    begin: Callable[[Any], None] | None = None,  # called in each new process, with its place
    retry_alone: bool = True,  # as the process may have run out of memory; else it is next
    finish_item: bool = True,  # when the iterator is closed; else processes are sent SIGTERM
) -> Iterator[Any]:
    """Process items in one process per place; yield everything that ``work`` sends, as it arrives.

    Places, such as GPUs, tell processes apart. ``work`` takes an item and ``send``, which it may
    call any number of times; what it returns is sent as the item ends. An item whose process dies
    is retried once, then replaced by what ``lost`` returns for it and the messages of
    :class:`ProcessBrokenError` ("" if unknown).
    """
    workers = [_Worker(work, begin, place) for place in places]
    waiting = deque(range(len(items)))
    retries: deque[int] = deque()
    deaths: dict[int, list[str]] = {}
    try:
        while True:
            for worker in workers:
                idle = all(other.item is None for other in workers)
                if worker.item is None and waiting:
                    worker.give(waiting.popleft(), items)
                elif idle and retries:
                    worker.give(retries.popleft(), items)
            busy: dict[Any, _Worker] = {
                worker.pipe: worker for worker in workers if worker.item is not None
            }
            if not busy:
                return
            for pipe in connection.wait(list(busy)):
                worker = busy[pipe]
                index = worker.item
                assert index is not None
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, OSError):
                    deaths.setdefault(index, []).append(worker.bury())
                    if len(deaths[index]) == _TRIES:
                        yield from lost(items[index], deaths[index])
                    elif retry_alone:
                        retries.append(index)
                    else:
                        waiting.appendleft(index)
                    continue
                if kind == "result":
                    yield content
                elif kind == "done":
                    worker.item = None
                    yield from content or ()
                elif kind == "error":
                    worker.item = None
                    raise content
                else:
                    worker.last_words = content
    finally:
        with undisturbed():
            for worker in workers:  # ask all at once, then wait for each
                worker.ask_to_end(finish_item)
            for worker in workers:
                worker.end(finish_item)


class _Worker:
    """A process that works on one item at a time, replaced by a new one if it dies."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._process: Any = None
        self.pipe: Any = None
        self.item: int | None = None
        self.last_words = ""

    def give(self, index: int, items: Sequence[Any]) -> None:
        if self._process is None:
            self._start()
        self.item = index
        with contextlib.suppress(OSError):  # it died: the next read of the pipe shows it
            self.pipe.send(items[index])

    def _start(self) -> None:
        # a fork would copy locks that other threads hold, and CUDA does not survive a fork
        context = multiprocessing.get_context("spawn")
        with ctrl_c_waits():
            self.pipe, theirs = context.Pipe()
            process: Any = context.Process(target=_serve, args=(theirs, *self._arguments))
            process.start()
            self._process = process  # one that could not be started cannot be ended
            theirs.close()  # or there is no EOF when the process dies

    def bury(self) -> str:
        """Discard a process that died; return its last message."""
        words = self.last_words
        self.end(finish_item=False)
        self.item, self.last_words = None, ""
        return words

    def ask_to_end(self, finish_item: bool) -> None:
        if self._process is None:
            return
        if finish_item:
            self.pipe.close()
        else:
            self._process.terminate()

    def end(self, finish_item: bool) -> None:
        if self._process is None:
            return
        self._process.join(None if finish_item else _LEAVE_S)
        self._process.kill()
        self._process.join()
        self._process = None
        self.pipe.close()


def _serve(
    pipe: Any,
    work: Callable[[Any, Send], list | None],
    begin: Callable[[Any], None] | None,
    place: Any,
) -> None:
    """Process items from the pipe until it is closed."""
    begin_worker()
    if begin is not None:
        begin(place)
    try:
        while True:
            item = pipe.recv()
            try:
                last = work(item, lambda result: pipe.send(("result", result)))
                pipe.send(("done", last))
            except ProcessBrokenError as error:
                pipe.send(("last words", str(error)))
                os._exit(1)  # whatever came next would fail too
            except (BrokenPipeError, EOFError):
                raise
            except Exception as error:
                pipe.send(("error", error))
    except (EOFError, OSError):
        pass  # the parent has no more items


def _on_dask(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    address: str,
    lost: Callable[[_Item, str], _Result],
) -> Iterator[_Result]:
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
    """Raise ArgumentError if no Dask scheduler answers, MissingExtraError if Dask is not installed.

    Dask's own client retries a closed port for a long time, waits forever on a port that is not a
    scheduler's, and complains on standard error when it gives up.
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
            # over plain TCP a scheduler sends first
            if parts.scheme == "tcp" and not probe.recv(1):
                raise _no_scheduler(address, "the server closed the connection")
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


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return f"{lines[0]:.200}" if lines else type(error).__name__


def begin_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent ends, for whatever reason.

    If the parent is killed, this process gets SIGTERM and has ten seconds to end, as it may have
    to wait for its GPU.
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
