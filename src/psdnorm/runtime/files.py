"""Files: written atomically, locked, read as JSON and YAML.

Folders are locked with filelock. A file being written is locked with flock, as its lock has to
survive the rename.
"""

import contextlib
import errno
import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from psdnorm.errors import ArgumentError, MissingExtraError, PsdnormError, StoreError, os_errors_as

try:
    import fcntl
except ImportError:  # on Windows, where an open file cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` when the block ends without an error.

    On failure ``path`` is unchanged. :func:`remove_leftovers` removes what a killed process leaves
    behind.
    """
    with os_errors_as(StoreError, path, "cannot be written"):
        partial = _open_partial(path)
        try:
            with partial:
                yield partial
                partial.flush()
                os.fsync(partial.fileno())
                if fcntl:  # the lock survives the rename: its holder is still writing
                    os.replace(partial.name, path)
            if not fcntl:
                os.replace(partial.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial.name)
            raise
        _sync_folder(path.parent)


def create_once(path: Path, content: bytes) -> None:
    """Write ``path`` atomically unless it exists."""
    with os_errors_as(StoreError, path, "cannot be written"):
        with _open_partial(path) as partial:
            partial.write(content)
            partial.flush()
            os.fsync(partial.fileno())
        try:
            with contextlib.suppress(FileExistsError):
                os.link(partial.name, path)  # unlike a rename, it never overwrites
        finally:
            os.unlink(partial.name)
        _sync_folder(path.parent)


def check_writable(folder: Path) -> None:
    with (
        os_errors_as(StoreError, folder, "cannot be written to"),
        _open_partial(folder / "any") as partial,
    ):
        os.unlink(partial.name)


def remove_leftovers(folder: Path) -> None:
    """Remove files left by killed processes in a folder, but not those still being written."""
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
        with contextlib.suppress(OSError):  # some file systems have no locks
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX)
        if partial.exists():  # else it was removed as a leftover before it was locked
            return file
        file.close()


def _sync_folder(folder: Path) -> None:
    if not fcntl:
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # or a power cut may undo the rename
    finally:
        os.close(handle)


LOCK = "lock"
# holder() briefly takes the lock to find out who holds it
_WAIT_S, _PAUSE_S = 0.5, 0.01


@dataclass(frozen=True)
class Holder:
    """The process that holds the lock of a folder."""

    host: str
    pid: int
    since: float  # seconds since 1970


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder, which is created; yield False if another process or thread has it.

    The system releases the lock when the process ends, so a dead one blocks nobody. On a file
    system without locks, every process gets it.
    """
    path = folder / LOCK
    with os_errors_as(StoreError, path, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquired(path, _WAIT_S)
        if lock is not None:
            me = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
            path.write_text(json_text(me))
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def holder(folder: Path) -> Holder | None:
    """Return who holds the lock of a folder now, if anyone does."""
    path = folder / LOCK
    try:
        signature = path.read_bytes()
        lock = _acquired(path, 2 * _PAUSE_S)
        if lock is not None:
            lock.release()
            return None  # left by a process that died
        return Holder(**json.loads(signature))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return Holder("unknown", 0, time.time())  # it has not written its name yet


def _acquired(path: Path, timeout_s: float) -> FileLock | None:
    # its fallback for file systems without locks would block after a crash
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout_s, poll_interval=_PAUSE_S)
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
    return lock


def json_text(document: Any, *, sort_keys: bool = False) -> str:
    """Return a document as indented JSON; NaN and infinity raise ValueError."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    return text + "\n"


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    content = json_text(document).encode()
    with written(path) as file:
        file.write(content)


def read_json(path: str | os.PathLike[str], kind: type[PsdnormError] = ArgumentError) -> Any:
    """Read a JSON file; raise ``kind`` if it cannot be read or is not JSON."""
    with os_errors_as(kind, path, "cannot be read"):
        content = Path(path).read_bytes()
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is not JSON: {error}") from error


@contextlib.contextmanager
def parquet_errors_as(path: object, advice: str = "") -> Iterator[None]:
    """Turn any failure to read a Parquet file into a StoreError of one sentence."""
    import pyarrow

    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing") from error
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} cannot be read as Parquet: {reason:.80}{advice}") from error


def digest(document: Any) -> str:
    """Return the SHA-256 of a document that JSON can hold; the order of its keys is irrelevant."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Read a YAML file; raise ArgumentError if it is invalid or repeats a key."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError('a study needs PyYAML: pip install "psdnorm[train]"') from error

    class Loader(yaml.SafeLoader):
        """Plain values, each key once."""

    def mapping(loader: Any, node: Any) -> dict:
        found: dict = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str) or key in found:
                wrong = "appears twice" if isinstance(key, str) else "is not a word"
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} {wrong}", problem_mark=key_node.start_mark
                )
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    try:
        with os_errors_as(ArgumentError, path, "cannot be read"):
            text = Path(path).read_text(encoding="utf-8")
        return yaml.load(text, Loader)
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not a text file in UTF-8") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ArgumentError(f"{path}{where}: expected YAML, found that {problem}") from error
