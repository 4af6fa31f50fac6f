"""A prepared night: validation before it is stored, and its file format.

The file is a safetensors file, written by our own code so that signals are page-aligned and can
be memory-mapped without a copy.
"""

import dataclasses
import hashlib
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import STAGES, UNSCORED
from psdnorm.errors import StoreError, os_errors_as
from psdnorm.runtime import written

DTYPES = ("float16", "float32")
# largest rounding error relative to a channel's standard deviation, -60 dB; in half precision, it
# is 0.0002 for a signal without offset
_MOST_ROUNDING = 1e-3


@dataclass(frozen=True)
class Layout:
    """Shape, rate and type on disk of every epoch in a store; epochs are read as float32."""

    n_channels: int = 2
    n_times: int = 3000
    sfreq: float = 100.0
    dtype: str = "float16"

    def __post_init__(self) -> None:
        sizes = (self.n_channels, self.n_times)
        if not all(type(size) is int and size > 0 for size in sizes):
            raise StoreError(f"n_channels and n_times are {sizes}, expected positive integers")
        if not (isinstance(self.sfreq, int | float) and 0 < self.sfreq < math.inf):
            raise StoreError(f"sfreq is {self.sfreq!r}, expected a positive number of Hz")
        if self.dtype not in DTYPES:
            raise StoreError(f"dtype is {self.dtype!r}, expected one of {', '.join(DTYPES)}")

    @property
    def epoch_s(self) -> float:
        return self.n_times / self.sfreq


@dataclass(frozen=True, eq=False)
class Night:
    """One prepared night, to be added to a store.

    Its epochs are consecutive, without gaps. It has no field for a name, birth date or patient id,
    so these cannot get into an index.
    """

    recording: str  # its unique name in the store
    cohort: str
    subject: str  # unique within its cohort
    signals: NDArray[np.floating]  # (E, C, T), in the recipe's unit
    stages: NDArray[np.integer]  # (E,), 0…4 for W, N1, N2, N3, REM, and -1 for unscored
    visit: str = ""
    family: str | None = None  # its subjects stay on the same side of a split
    channels: tuple[str, ...] = ()  # the derivations in the order of C
    flags: tuple[str, ...] = ()  # problems of the signals
    simulated: bool = False
    source: str = ""  # the file it was prepared from; only the file name is stored
    checksum: str = ""  # SHA-256 of that file
    fingerprint: str = ""  # fast hash of signal and scoring, to recognise nights already stored
    age: float | None = None  # years
    sex: str | None = None  # "F" or "M"


def record_of(night: Night) -> dict[str, Any]:
    """Validate a night's metadata and return it as a JSON-compatible dict."""
    fields = [f.name for f in dataclasses.fields(night) if f.name not in ("signals", "stages")]
    record = {name: getattr(night, name) for name in fields}
    _check_texts(night)
    if night.age is not None and not 0 <= night.age <= 130:
        raise _error(night, f"has {night.age} as age, expected years from 0 to 130")
    if night.sex not in ("F", "M", None):
        raise _error(night, f"has {night.sex!r} as sex, expected 'F', 'M' or None")
    for name in ("channels", "flags"):
        if any(not isinstance(t, str) or ";" in t or not t.isprintable() for t in record[name]):
            raise _error(night, f"has {record[name]!r} as {name}, expected texts without ';'")
        record[name] = ";".join(record[name])
    # parent folders may contain a person's name; this class splits at every system's separators
    name = PureWindowsPath(night.source).name
    record["source"] = "".join(c if c.isprintable() else "?" for c in name)
    record["simulated"] = bool(night.simulated)
    record["age"] = None if night.age is None else float(night.age)
    return record


def stored_arrays(
    night: Night, layout: Layout
) -> tuple[NDArray[np.int8], NDArray[np.float16 | np.float32]]:
    """Validate stages (E,) and signals (E, C, T) and convert them to their types on disk."""
    signals, stages = np.asarray(night.signals), np.asarray(night.stages)
    shape = ("E", layout.n_channels, layout.n_times)
    if signals.ndim != 3 or signals.shape[1:] != shape[1:] or not len(signals):
        raise _error(night, f"has signals of shape {signals.shape}, expected {shape}")
    if stages.shape != signals.shape[:1]:
        raise _error(night, f"has {stages.shape} stages for {len(signals)} epochs")
    if stages.dtype.kind not in "iu" or stages.min() < UNSCORED or stages.max() >= len(STAGES):
        found = np.unique(stages)[:8].tolist()
        raise _error(night, f"has stages {found}, expected integers from -1 to {len(STAGES) - 1}")
    if signals.dtype.kind not in "fiu":
        raise _error(night, f"has signals of type {signals.dtype}, expected real numbers")
    with np.errstate(over="ignore"):  # an overflow is reported just below
        stored = np.ascontiguousarray(signals, dtype=layout.dtype)
    if not np.isfinite(stored).all():
        raise _error(night, f"has samples that are not finite in {layout.dtype}")
    _check_rounding(night, signals, stored)
    return np.ascontiguousarray(stages, dtype=np.int8), stored


def _check_texts(night: Night) -> None:
    for name in ("recording", "cohort", "subject"):
        value = getattr(night, name)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise StoreError(
                f"a night has {value!r} as {name}, expected a text of printable letters"
            )
    if not isinstance(night.source, str):
        raise _error(night, f"has {night.source!r} as source, expected the name of a file")
    texts = {"visit": night.visit, "checksum": night.checksum, "fingerprint": night.fingerprint}
    if night.family is not None:
        texts["family"] = night.family
    if night.family == "":
        raise _error(night, "has '' as family, expected a text or None")
    for name, value in texts.items():
        if not isinstance(value, str) or not value.isprintable():
            raise _error(night, f"has {value!r} as {name}, expected a text of printable letters")


def _check_rounding(night: Night, signals: NDArray, stored: NDArray) -> None:
    """Raise StoreError if rounding loses too much of the signal because of its unit or offset."""
    if signals.dtype == stored.dtype:
        return
    for channel in range(signals.shape[1]):
        exact = signals[:, channel].astype(np.float32)
        spread = float(exact.std(dtype=np.float64))
        lost = float((exact - stored[:, channel]).std(dtype=np.float64))
        if lost > _MOST_ROUNDING * spread:
            raise _error(
                night,
                f"loses {lost:.2g} to rounding as {stored.dtype} in channel {channel}, whose "
                f"standard deviation is {spread:.2g}: expected another unit, no offset, or a store "
                "of float32",
            )


def _error(night: Night, what: str) -> StoreError:
    return StoreError(f"night {night.recording!r} {what}")


PAGE = 4096
_FIRST_READ = 2 * PAGE  # covers the header and the stages of most nights
_MOST_HEAD = 2**20  # most bytes read from a file that may not be a night
_NAMES = {"float16": "F16", "float32": "F32"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True)
class Head:
    """The header of a night's file: everything before its signals."""

    record: dict[str, Any]
    digest: str
    stages: NDArray[np.int8]  # (E,)
    shape: tuple[int, int, int]  # (E, C, T)
    dtype: str
    offset: int  # of the signals, in bytes
    size: int  # of the file, in bytes


def digest_of(record: dict[str, Any], stages: NDArray, signals: NDArray) -> str:
    sha = hashlib.sha256(_json(record).encode())
    sha.update(stages.data)
    sha.update(signals.data)
    return sha.hexdigest()


def write_night(path: Path, record: dict[str, Any], stages: NDArray, signals: NDArray) -> None:
    """Atomically write a night's file: its record, stages (E,) and signals (E, C, T)."""
    digest = digest_of(record, stages, signals)
    with written(path) as file:
        file.write(encode_head(record, digest, stages, signals.shape, signals.dtype.name))
        file.write(signals.data)


def encode_head(
    record: dict[str, Any], digest: str, stages: NDArray, shape: tuple[int, ...], dtype: str
) -> bytes:
    """Return the bytes of a night's file before its signals, padded to whole pages."""
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
    """Read and validate a night's file except its signals."""
    with os_errors_as(StoreError, path, "cannot be read"):
        try:
            with open(path, "rb") as file:
                size = file.seek(0, 2)
                file.seek(0)
                start = file.read(_FIRST_READ)
                length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
                if not 0 < length <= _MOST_HEAD:
                    raise StoreError(f"{path} is not a night of a store: it has no header")
                start += file.read(max(0, 8 + length - len(start)))
                head = _decode(path, start, length, size)
                if len(start) < head.offset:
                    rest = file.read(head.offset - len(start))
                    head = _decode(path, start + rest, length, size)
        except FileNotFoundError:
            raise StoreError(f"{path} is missing") from None
    if len(head.stages) != head.shape[0] or size != head.size:
        raise StoreError(f"{path} is truncated or overlong: {size} bytes, expected {head.size}")
    if head.stages.min() < UNSCORED or head.stages.max() >= len(STAGES):
        raise StoreError(f"{path} is corrupted: it has stages beyond -1 to {len(STAGES) - 1}")
    return head


def map_signals(path: Path, head: Head) -> NDArray[np.float16 | np.float32]:
    """Memory-map a night's signals, (E, C, T)."""
    try:
        # copy-on-write: nothing is ever written, but torch accepts only writable arrays
        return np.memmap(path, head.dtype, mode="c", offset=head.offset, shape=head.shape)
    except FileNotFoundError:
        raise StoreError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be mapped: {error}") from error


def _decode(path: Path, start: bytes, length: int, size: int) -> Head:
    """Parse a header; only stages within ``start`` are included."""
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
        raise StoreError(f"{path} is corrupted: its header is not that of a night")
    offset = 8 + length + shape[0]
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    stages = np.frombuffer(start[8 + length : offset], np.int8)
    return Head(record, digest, stages, shape, dtype, offset, offset + n_bytes)


def _json(record: dict[str, Any]) -> str:
    # part of the file format, as these bytes are hashed
    return json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
