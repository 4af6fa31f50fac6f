"""Whether two nights come from the same files, without reading all of them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from psdnorm.errors import RecordingError

_PIECE = 2**16
# formats whose samples lie beside the file that is opened
_BESIDE = {".vhdr": (".eeg", ".dat", ".vmrk"), ".set": (".fdt",)}


def fingerprint(signal: Path, scoring: Path | None, channels: Mapping[str, str]) -> str:
    """Return a hash of what a night is prepared from.

    Parameters
    ----------
    signal : Path
        Its size and its first and last 64 KiB count, and those of files that belong to it.
    scoring : Path or None
        All of it counts.
    channels : mapping of str to str
        Each channel and the expression that it is read by.

    Returns
    -------
    str
        SHA-256 in hexadecimal digits.
    """
    sha = hashlib.sha256(json.dumps(dict(channels)).encode())
    try:
        others = (signal.with_suffix(suffix) for suffix in _BESIDE.get(signal.suffix.lower(), ()))
        for path in (signal, *(other for other in others if other.exists())):
            sha.update(_ends(path))
        if scoring is not None:
            sha.update(scoring.read_bytes() if scoring != signal else b"within")
    except OSError as error:
        raise _unreadable(error, signal) from error
    return sha.hexdigest()


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(error, path) from error


def _ends(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(_PIECE)
        file.seek(max(0, size - _PIECE))
        return size.to_bytes(8, "little") + first + file.read(_PIECE)


def _unreadable(error: OSError, path: Path) -> RecordingError:
    return RecordingError(f"{error.filename or path} cannot be read: {error.strerror or error}")
