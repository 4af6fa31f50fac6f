"""Who works on a cell: a lock that goes with its process, however that one ends."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from psdnorm.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows: processes are not told apart
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
_TRIES, _PAUSE_S = 10, 0.05  # someone who asks who is there holds the lock for a moment


@dataclass(frozen=True)
class Holder:
    """The process that works on a cell.

    Attributes
    ----------
    host : str
    pid : int
    since : float
        Seconds since 1970.
    """

    host: str
    pid: int
    since: float


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold the lock of a cell's folder; yield False if another process, or thread, does.

    The lock is the system's (``flock``) and goes with the process, so that a dead one blocks
    nobody. Where a file system knows no locks, it is yielded that the lock is held.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _acquire(path)
        if file is not None:
            _sign(file)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    if file is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        file.close()


def holder(folder: Path) -> Holder | None:
    """Return who works on a cell now, None if nobody does.

    Parameters
    ----------
    folder : Path
    """
    try:
        with open(folder / LOCK, "rb") as file:
            if _lock(file, shared=True):
                return None  # left by a process that died
            return Holder(**json.loads(file.read()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return Holder("unknown", 0, time.time())  # it has not signed yet


def _acquire(path: Path) -> BinaryIO | None:
    for _ in range(_TRIES):
        file = open(path, "a+b")  # noqa: SIM115
        if _lock(file):
            if _is_there(path, file):
                return file
        else:
            time.sleep(_PAUSE_S)
        file.close()
    return None


def _lock(file: BinaryIO, *, shared: bool = False) -> bool:
    if not fcntl:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def _is_there(path: Path, file: BinaryIO) -> bool:
    """Tell whether the file is still the one of its name: the last holder may have removed it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _sign(file: BinaryIO) -> None:
    me = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
    file.truncate(0)
    file.write(json.dumps(me).encode())
    file.flush()
