"""Files that are there whole or not at all, whenever the process ends."""

import contextlib
import os
import uuid
from collections.abc import Iterator
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
