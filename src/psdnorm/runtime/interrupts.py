"""Ctrl-C, deferred or ignored; SIGTERM and time limits, handled like it."""

import _thread
import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from multiprocessing import resource_tracker
from typing import Any

from psdnorm.errors import ArgumentError


@contextlib.contextmanager
def _handled(number: int, handler: Any) -> Iterator[None]:
    """Install a signal handler; do nothing outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class TimeLimitReached(KeyboardInterrupt):
    """A time limit was reached; if not caught, it ends the process like Ctrl-C."""


def sigterm_as_ctrl_c() -> AbstractContextManager[None]:
    """Handle SIGTERM, with which schedulers end a job, like Ctrl-C, so that nothing is lost."""

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the cleanup
        raise KeyboardInterrupt

    return _handled(signal.SIGTERM, interrupt)


def check_minutes(minutes: float) -> None:
    """Raise if a time limit is not positive, or too long for a timer."""
    most = threading.TIMEOUT_MAX // 60
    if not 0 < minutes <= most:
        raise ArgumentError(
            f"minutes is {minutes}, expected a number above 0 and at most {most:,.0f}"
        )


@contextlib.contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Raise :class:`TimeLimitReached` in the main thread after ``minutes``, if given."""
    if minutes is None:
        yield
        return
    check_minutes(minutes)
    over = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        over.set()
        if hasattr(signal, "pthread_kill"):
            # to the main thread, the only one where a signal interrupts a wait
            signal.pthread_kill(main, signal.SIGINT)
        else:  # on Windows
            _thread.interrupt_main()

    timer = threading.Timer(60 * minutes, ring)
    timer.daemon = True
    # e.g. by a shell that runs a script in the background
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    heard = _handled(signal.SIGINT, signal.default_int_handler) if is_ignored else nullcontext()
    try:
        with heard:
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
                timer.join()  # if it fires at this moment, the signal arrives here
    except KeyboardInterrupt:
        if over.is_set():
            raise TimeLimitReached from None
        raise


@contextlib.contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Block Ctrl-C, also in processes started meanwhile, until they unblock it.

    A process that is still importing would print a traceback. They inherit this thread's mask; if
    there are other threads, this process may still receive Ctrl-C.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # on start, it unblocks Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def undisturbed() -> AbstractContextManager[None]:
    """Ignore Ctrl-C while processes are being ended, perhaps because of an earlier one."""
    return _handled(signal.SIGINT, signal.SIG_IGN)
