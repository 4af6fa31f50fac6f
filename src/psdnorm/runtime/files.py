"""Atomic writes and locks."""

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from psdnorm.errors import StoreError

try:
    import fcntl
except ImportError:  # on Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` when the block ends without an error.

    Whatever fails, nothing is left behind and ``path`` is as it was. What a killed process leaves
    is removed by :func:`remove_leftovers`.
    """
    try:
        partial = _open_partial(path)
        try:
            with partial:
                yield partial
                partial.flush()
                os.fsync(partial.fileno())
                if fcntl:  # the lock goes with the rename: whoever holds it is still writing
                    os.replace(partial.name, path)
            if not fcntl:
                os.replace(partial.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial.name)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def create_once(path: Path, content: bytes) -> None:
    """Write ``path`` unless it exists, in which case it stays as it is."""
    try:
        with _open_partial(path) as partial:
            partial.write(content)
            partial.flush()
            os.fsync(partial.fileno())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(partial.name, path)  # unlike a rename, it never replaces
        finally:
            os.unlink(partial.name)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def check_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made."""
    try:
        with _open_partial(folder / "any") as partial:
            os.unlink(partial.name)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written to: {error.strerror or error}") from error


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left in a folder; what others are writing stays."""
    for path in folder.glob(f".*{PARTIAL}"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                file.close()
            os.unlink(path)


def _open_partial(path: Path) -> BinaryIO:
    while True:
        partial = path.with_name(f".{uuid.uuid4().hex}{PARTIAL}")
        file = open(partial, "xb")  # noqa: SIM115
        with contextlib.suppress(OSError):  # some file systems know no locks
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX)
        if partial.exists():  # else somebody took it for a leftover before it was locked
            return file
        file.close()


def _sync_folder(folder: Path) -> None:
    if not fcntl:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # or a power cut forgets the rename
    finally:
        os.close(handle)


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
