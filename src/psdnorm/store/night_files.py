"""One night as one file, in the safetensors format: anybody's tools can open it.

The head (what is known, as JSON) and the stages come first and end on a page, so that one small
read gives the index its row, and the signals can be memory-mapped. Written and read here by hand:
the format is a length, a JSON and bytes, and reading a store should not need another package.
"""

import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import StoreError
from psdnorm.models.card import STAGES
from psdnorm.runtime.files import written
from psdnorm.store.night import UNSCORED

PAGE = 4096
_FIRST_READ = 2 * PAGE  # holds the head and the stages of most nights
_MOST_HEAD = 2**20  # a stranger's file decides nothing beyond this
_NAMES = {"float16": "F16", "float32": "F32"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True)
class Head:
    """What a night's file says before its signals."""

    record: dict[str, Any]
    digest: str
    stages: NDArray[np.int8]  # (E,)
    shape: tuple[int, int, int]  # (E, C, T)
    dtype: str
    offset: int  # of the signals, in bytes
    size: int  # of the file, in bytes


def digest_of(record: dict[str, Any], stages: NDArray, signals: NDArray) -> str:
    """Return the SHA-256 of all that a night's file holds."""
    sha = hashlib.sha256(_json(record).encode())
    sha.update(stages.data)
    sha.update(signals.data)
    return sha.hexdigest()


def write_night(path: Path, record: dict[str, Any], stages: NDArray, signals: NDArray) -> None:
    """Write a night's file, whole or not at all.

    Parameters
    ----------
    path : Path
    record : dict
        What is known about the night, with the hash of the recipe.
    stages : ndarray of int8, (E,)
    signals : ndarray of float16 or float32, (E, C, T)
    """
    digest = digest_of(record, stages, signals)
    with written(path) as file:
        file.write(encode_head(record, digest, stages, signals.shape, signals.dtype.name))
        file.write(signals.data)


def encode_head(
    record: dict[str, Any], digest: str, stages: NDArray, shape: tuple[int, ...], dtype: str
) -> bytes:
    """Return the bytes of a night's file before its signals; a whole number of pages."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    ends = len(stages), len(stages) + n_bytes
    head = {
        "__metadata__": {"record": _json(record), "sha256": digest},
        "stages": {"dtype": "I8", "shape": [len(stages)], "data_offsets": [0, ends[0]]},
        "signals": {"dtype": _NAMES[dtype], "shape": [*shape], "data_offsets": [*ends]},
    }
    text = json.dumps(head).encode()
    text += b" " * (-(8 + len(text) + len(stages)) % PAGE)  # the format allows blanks here
    return struct.pack("<Q", len(text)) + text + stages.tobytes()


def read_head(path: Path) -> Head:
    """Read and check all of a night's file but its signals."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            start = file.read(_FIRST_READ)
            length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
            if not 0 < length <= _MOST_HEAD:
                raise StoreError(f"{path} is not a night of a store: it has no head")
            start += file.read(max(0, 8 + length - len(start)))
            head = _decode(path, start, length, size)
            if len(start) < head.offset:
                rest = file.read(head.offset - len(start))
                head = _decode(path, start + rest, length, size)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if len(head.stages) != head.shape[0] or size != head.size:
        raise StoreError(f"{path} is truncated or overlong: {size} bytes, expected {head.size}")
    if head.stages.min() < UNSCORED or head.stages.max() >= len(STAGES):
        raise StoreError(f"{path} is corrupted: it has stages beyond -1 to {len(STAGES) - 1}")
    return head


def map_signals(path: Path, head: Head) -> NDArray[np.float16 | np.float32]:
    """Map a night's signals, (E, C, T), without reading them."""
    try:
        # private pages: nothing is ever written, and torch takes only arrays that could be
        return np.memmap(path, head.dtype, mode="c", offset=head.offset, shape=head.shape)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be mapped: {error}") from error


def _decode(path: Path, start: bytes, length: int, size: int) -> Head:
    """Take a head apart; its stages are those that ``start`` holds."""
    if len(start) < 8 + length:
        raise StoreError(f"{path} is truncated: {size} bytes, expected more than {8 + length}")
    try:
        head = json.loads(start[8 : 8 + length])
        signals, metadata = head["signals"], head["__metadata__"]
        shape = tuple(signals["shape"])
        dtype = _DTYPES[signals["dtype"]]
        record, digest = json.loads(metadata["record"]), metadata["sha256"]
        sound = (
            len(shape) == 3
            and all(type(n) is int and 0 < n < 2**31 for n in shape)
            and isinstance(record, dict)
            and isinstance(digest, str)
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise StoreError(f"{path} is corrupted: its head is not that of a night")
    offset = 8 + length + shape[0]
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    stages = np.frombuffer(start[8 + length : offset], np.int8)
    return Head(record, digest, stages, shape, dtype, offset, offset + n_bytes)


def _json(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
