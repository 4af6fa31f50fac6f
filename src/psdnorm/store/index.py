"""The index: one row per night, from the heads of the nights' files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

import numpy as np

from psdnorm.errors import MissingExtraError, StoreError
from psdnorm.models.card import STAGES
from psdnorm.runtime.files import written
from psdnorm.store.night_files import Head, read_head

try:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError(
        'a store needs pandas and pyarrow: pip install "psdnorm[data]"'
    ) from error

FILE, NIGHTS, ENDING = "index.parquet", "nights", ".safetensors"
_TEXTS = ("recording", "cohort", "subject", "visit", "family", "channels")
_SOURCE = ("flags", "source", "checksum", "fingerprint", "sex")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("epochs", pa.int32()),
        *((name, pa.int32()) for name in (*STAGES, "unscored")),
        *((name, pa.string()) for name in _SOURCE),
        ("age", pa.float64()),
        ("simulated", pa.bool_()),
        ("bytes", pa.int64()),
        ("digest", pa.string()),
        # the hypnogram too: sequences are then drawn without opening a night
        ("stages", pa.binary()),
    ]
)


def night_path(folder: Path, recording: str) -> Path:
    """Return where a night lies; any text is a file's name once it is quoted."""
    name = quote(recording, safe=" ")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if len(name) > 200:
        raise StoreError(f"recording {recording!r:.50} is too long a name for a file")
    return folder / NIGHTS / f"{name}{ENDING}"


def row_of(head: Head) -> dict[str, Any]:
    """Return a night's row."""
    counts = np.bincount(head.stages.astype(np.intp) + 1, minlength=len(STAGES) + 1).tolist()
    return {
        **{name: head.record.get(name) for name in SCHEMA.names if name in head.record},
        **dict(zip(("unscored", *STAGES), counts, strict=True)),
        "epochs": head.shape[0],
        "bytes": head.size,
        "digest": head.digest,
        "stages": head.stages.tobytes(),
    }


def scan(folder: Path, recipe: str) -> pa.Table:
    """Return the index as the nights are now; heads are read only where they are news.

    Parameters
    ----------
    folder : Path
        Of the store.
    recipe : str
        The hash that every night must state.

    Returns
    -------
    pyarrow.Table
        Of :data:`SCHEMA`, sorted by recording.
    """
    known, written_ns = _read_parquet(folder / FILE)
    sizes = dict(zip(known["recording"].to_pylist(), known["bytes"].to_pylist(), strict=True))
    old, new = set(), []
    for entry in _files(folder):
        recording = unquote(entry.name.removesuffix(ENDING))
        status = entry.stat()
        # ctime, as a rename sets it: a night that came after the index was begun is read again
        if status.st_size == sizes.get(recording) and status.st_ctime_ns < written_ns:
            old.add(recording)
        else:
            new.append(_read_row(entry.path, recording, recipe))
    missing = sizes.keys() - old - {row["recording"] for row in new}
    if missing:
        path = night_path(folder, min(missing))
        raise StoreError(f"{path} is missing, which {FILE} lists ({len(missing)} of {len(sizes)})")
    kept = known.filter(pa.array([name in old for name in sizes], pa.bool_()))
    table = pa.concat_tables([kept, _as_table(folder, new)])
    return table.sort_by("recording").combine_chunks()


def write_index(folder: Path, recipe: str, without: Iterable[str] = ()) -> pa.Table:
    """Bring ``index.parquet`` up to date; nights ``without`` are forgotten."""
    if without:
        known, written_ns = _read_parquet(folder / FILE)
        gone = set(without)
        keep = [name not in gone for name in known["recording"].to_pylist()]
        with written(folder / FILE) as file:
            _put_parquet(file, known.filter(pa.array(keep, pa.bool_())), written_ns)
    with written(folder / FILE) as file:
        # the file system's own clock tells which nights came after this scan began
        began_ns = os.fstat(file.fileno()).st_mtime_ns
        table = scan(folder, recipe)
        _put_parquet(file, table, began_ns)
    return table


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return the index as a DataFrame, one row per night."""
    return table.to_pandas()


def _as_table(folder: Path, rows: list[dict[str, Any]]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except (pa.ArrowException, OverflowError) as error:
        if len(rows) > 1:  # one by one, as it must be named
            return pa.concat_tables([_as_table(folder, [row]) for row in rows])
        path = night_path(folder, rows[0]["recording"])
        raise StoreError(f"{path} is corrupted: its head is not that of a night") from error


def _read_row(path: str, recording: str, recipe: str) -> dict[str, Any]:
    head = read_head(Path(path))
    if head.record.get("recipe") != recipe:
        raise StoreError(
            f"{path} was prepared with the recipe {head.record.get('recipe')!s:.12}, expected "
            f"{recipe:.12}: a store never mixes recipes"
        )
    if head.record.get("recording") != recording:
        raise StoreError(f"{path} was renamed: it is {head.record.get('recording')!r:.50}")
    return row_of(head)


def _files(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / NIGHTS) as entries:
            return [e for e in entries if e.name.endswith(ENDING) and not e.name.startswith(".")]
    except OSError as error:
        raise StoreError(f"{folder / NIGHTS} cannot be read: {error.strerror}") from error


def _read_parquet(path: Path) -> tuple[pa.Table, int]:
    try:
        written_ns = path.stat().st_mtime_ns  # before the content: it may be replaced meanwhile
        table = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        return SCHEMA.empty_table(), 0
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"{path} cannot be read: {str(error).splitlines()[0]:.80}; delete it, it is rebuilt"
        ) from error
    if not table.schema.equals(SCHEMA):
        raise StoreError(f"{path} has other columns than an index; delete it, it is rebuilt")
    return table, written_ns


def _put_parquet(file: BinaryIO, table: pa.Table, written_ns: int) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    file.write(buffer.getvalue())
    file.flush()
    os.utime(file.fileno(), ns=(written_ns, written_ns))
