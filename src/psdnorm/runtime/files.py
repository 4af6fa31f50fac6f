"""Files: written atomically, locked, read as JSON and YAML."""

import contextlib
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

from psdnorm.errors import ArgumentError, MissingExtraError, PsdnormError, StoreError, os_errors_as

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


def json_text(document: Any) -> str:
    """Return a document as indented JSON; NaN and infinity raise ValueError."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is not a word", problem_mark=key_node.start_mark
                )
            if key in found:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
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
