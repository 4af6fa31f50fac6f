"""A store: a folder of prepared nights with an index and a recipe."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, MissingExtraError, StoreError, os_errors_as
from psdnorm.runtime import (
    check_writable,
    create_once,
    json_text,
    parquet_errors_as,
    read_json,
    remove_leftovers,
    written,
)
from psdnorm.store.night import (
    Head,
    Layout,
    Night,
    digest_of,
    map_signals,
    read_head,
    record_of,
    stored_arrays,
    write_night,
)

try:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError(
        'a store needs pandas and pyarrow: pip install "psdnorm[data]"'
    ) from error


RECIPE_FILE = "recipe.json"
FORMAT_VERSION = 1


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a recipe; the order of its keys is irrelevant."""
    return hashlib.sha256(_canonical(recipe).encode()).hexdigest()


def write_recipe(folder: Path, recipe: Mapping[str, Any], layout: Layout) -> None:
    document = {
        "format_version": FORMAT_VERSION,
        "hash": recipe_hash(recipe),
        "recipe": recipe,
        "layout": dataclasses.asdict(layout),
    }
    create_once(folder / RECIPE_FILE, json_text(document, sort_keys=True).encode())


def read_recipe(folder: Path) -> tuple[dict[str, Any], Layout]:
    path = folder / RECIPE_FILE
    try:
        document = read_json(path, StoreError)
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise StoreError(f"{folder} is not a store: it has no {RECIPE_FILE}") from None
        raise
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise StoreError(f"{path} has format_version {version!r:.50}, expected {FORMAT_VERSION}")
    recipe, layout = document.get("recipe"), document.get("layout")
    if not isinstance(recipe, dict) or recipe_hash(recipe) != document.get("hash"):
        raise StoreError(f"{path} was changed: its recipe does not have the hash that it states")
    fields = [field.name for field in dataclasses.fields(Layout)]
    if not isinstance(layout, dict) or sorted(layout) != sorted(fields):
        raise StoreError(f"{path} has {layout!r:.80} as layout, expected {', '.join(fields)}")
    return recipe, Layout(**layout)


def check_same(
    folder: str | os.PathLike[str], found: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
    """Raise StoreError if two recipes differ, naming a key that differs."""
    if recipe_hash(found) == recipe_hash(asked):
        return
    both = sorted({*found, *asked})
    key = next(k for k in both if k not in found or k not in asked or found[k] != asked[k])
    raise StoreError(
        f"{folder} holds nights of the recipe {recipe_hash(found)[:12]}, found the recipe "
        f"{recipe_hash(asked)[:12]}, which differs in {key!r}: a store never mixes recipes"
    )


def _canonical(recipe: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(recipe), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"recipe must be a dict that JSON can hold: {error}") from error


INDEX_FILE, NIGHTS, ENDING = "index.parquet", "nights", ".safetensors"
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
        # the hypnogram is included so that sequences can be drawn without opening a night
        ("stages", pa.binary()),
    ]
)


def night_path(folder: Path, recording: str) -> Path:
    name = quote(recording, safe=" ")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if len(name) > 200:
        raise StoreError(f"recording {recording!r:.50} is too long a name for a file")
    return folder / NIGHTS / f"{name}{ENDING}"


def row_of(head: Head) -> dict[str, Any]:
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
    """Return the current index of the nights, sorted by recording.

    Only headers of nights that are new to the index are read.
    """
    known, written_ns = _read_parquet(folder / INDEX_FILE)
    sizes = dict(zip(known["recording"].to_pylist(), known["bytes"].to_pylist(), strict=True))
    old, new = set(), []
    for entry in _files(folder):
        recording = unquote(entry.name.removesuffix(ENDING))
        status = entry.stat()
        # ctime, as renaming updates it: nights added after the index was started are read again
        if status.st_size == sizes.get(recording) and status.st_ctime_ns < written_ns:
            old.add(recording)
        else:
            new.append(_read_row(entry.path, recording, recipe))
    missing = sizes.keys() - old - {row["recording"] for row in new}
    if missing:
        path = night_path(folder, min(missing))
        raise StoreError(
            f"{path} is missing, which {INDEX_FILE} lists ({len(missing)} of {len(sizes)})"
        )
    kept = known.filter(pa.array([name in old for name in sizes], pa.bool_()))
    table = pa.concat_tables([kept, _as_table(folder, new)])
    return table.sort_by("recording").combine_chunks()


def write_index(folder: Path, recipe: str, without: Iterable[str] = ()) -> pa.Table:
    """Update ``index.parquet``, dropping the nights in ``without``."""
    if without:
        known, written_ns = _read_parquet(folder / INDEX_FILE)
        gone = set(without)
        keep = [name not in gone for name in known["recording"].to_pylist()]
        with written(folder / INDEX_FILE) as file:
            _put_parquet(file, known.filter(pa.array(keep, pa.bool_())), written_ns)
    with written(folder / INDEX_FILE) as file:
        # by the file system's own clock, to detect nights added after this scan began
        began_ns = os.fstat(file.fileno()).st_mtime_ns
        table = scan(folder, recipe)
        _put_parquet(file, table, began_ns)
    return table


def _as_table(folder: Path, rows: list[dict[str, Any]]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, SCHEMA)
    except (pa.ArrowException, OverflowError) as error:
        if len(rows) > 1:  # one by one, to name the broken one
            return pa.concat_tables([_as_table(folder, [row]) for row in rows])
        path = night_path(folder, rows[0]["recording"])
        raise StoreError(f"{path} is corrupted: its header is not that of a night") from error


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
    nights = folder / NIGHTS
    with os_errors_as(StoreError, nights, "cannot be read"), os.scandir(nights) as entries:
        return [e for e in entries if e.name.endswith(ENDING) and not e.name.startswith(".")]


def _read_parquet(path: Path) -> tuple[pa.Table, int]:
    if not path.exists():
        return SCHEMA.empty_table(), 0
    with parquet_errors_as(path, "; delete it, it is rebuilt"):
        written_ns = path.stat().st_mtime_ns  # before reading: the file may be replaced meanwhile
        table = pq.read_table(path, partitioning=None)
    if not table.schema.equals(SCHEMA):
        raise StoreError(f"{path} has other columns than an index; delete it, it is rebuilt")
    return table, written_ns


def _put_parquet(file: BinaryIO, table: pa.Table, written_ns: int) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    file.write(buffer.getvalue())
    file.flush()
    os.utime(file.fileno(), ns=(written_ns, written_ns))


class Store:
    """A folder of nights prepared with one recipe.

    Opened by :meth:`create`, :meth:`plan` or :meth:`open`. Many processes may add nights
    concurrently; these are in the ``index`` of a store opened afterwards. ``recipe`` says how every
    night was prepared, ``hash`` is its SHA-256, ``layout`` the shape and type of an epoch.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from psdnorm.store import Layout, Night, Store
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.create(folder.name, {"name": "robust"}, Layout(n_times=300, sfreq=10))
    >>> signals = np.random.default_rng(0).standard_normal((40, 2, 300))
    >>> store.add(Night("a-1", "abc", "1", signals, np.zeros(40, int)))
    True
    >>> store.finish()
    >>> x, stages = Store.open(folder.name).read("a-1", first_epoch=3, n_epochs=35)
    >>> x.shape, stages.shape
    ((35, 2, 300), (35,))
    >>> folder.cleanup()
    """

    def __init__(
        self, path: str | os.PathLike[str], recipe: Mapping[str, Any], layout: Layout | None = None
    ) -> None:
        self.path = Path(path)
        self.recipe: dict[str, Any] = json.loads(_canonical(recipe))  # as when read from disk
        self.hash = recipe_hash(recipe)
        self.layout = layout or Layout()
        self._table: Any = None
        self._frame: pd.DataFrame | None = None
        self._settled = False  # whether it is known to be on disk with this recipe
        self._created: list[Path] = []  # folders
        self._mapped: dict[str, tuple[Head, NDArray]] = {}

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], recipe: Mapping[str, Any], layout: Layout | None = None
    ) -> Self:
        """Create a store, or open the existing one if it has the same recipe and layout.

        A recipe is any JSON-compatible dict. By default, an epoch has two channels of 3000 samples
        at 100 Hz in half precision.
        """
        store = cls(path, recipe, layout)
        store._make()
        return store

    @classmethod
    def plan(
        cls, path: str | os.PathLike[str], recipe: Mapping[str, Any], layout: Layout | None = None
    ) -> Self:
        """Like :meth:`create`, but nothing is on disk until the first night is added."""
        store = cls(path, recipe, layout)
        if store.made:
            store._check_own()
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str], recipe: Mapping[str, Any] | None = None) -> Self:
        """Open a store; with a recipe, raise StoreError if it has another one."""
        folder = Path(path)
        if not folder.is_dir():
            raise StoreError(f"{folder} is not a folder, expected a store")
        found, layout = read_recipe(folder)
        if recipe is not None:
            check_same(folder, found, recipe)
        store = cls(folder, found, layout)
        store._settled = True
        return store

    def __reduce__(self) -> tuple:
        # each worker maps the nights itself
        return type(self).plan, (self.path, self.recipe, self.layout)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, recipe {self.hash[:12]})"

    @property
    def made(self) -> bool:
        """Whether it is on disk."""
        return os.path.exists(self.path / RECIPE_FILE)  # also False without permission

    def make_room(self) -> None:
        """Create its folders and check that they are writable, without fixing the recipe yet."""
        nights = self.path / NIGHTS
        self._created += [folder for folder in (nights, self.path) if not os.path.exists(folder)]
        with os_errors_as(StoreError, self.path, "cannot be made"):
            nights.mkdir(parents=True, exist_ok=True)
        check_writable(nights)

    def add(self, night: Night, replace: bool = False) -> bool:
        """Add a night atomically; adding it again changes nothing.

        A night with the same name and source file is replaced if anything in it has changed. One
        from another source file raises StoreError unless ``replace`` is set, as two nights would
        share a name. Returns whether anything was written.
        """
        record = {**record_of(night), "recipe": self.hash}
        stages, signals = stored_arrays(night, self.layout)
        path = night_path(self.path, night.recording)
        self._make()
        there = self._sound_head(path)
        if there is not None:
            if there.digest == digest_of(record, stages, signals):
                return False
            if there.record.get("source") != record["source"] and not replace:
                raise StoreError(
                    f"recording {night.recording!r} is in {self.path} already, from "
                    f"{there.record.get('source')!r}, found {record['source']!r}: each night "
                    "needs a name of its own"
                )
            # a copy of the folder may lose the timestamps that mark the old row as outdated
            _unlink(self.path / INDEX_FILE)
        write_night(path, record, stages, signals)
        self._forget(night.recording)
        return True

    def known(self, recording: str) -> dict[str, Any] | None:
        """Return the row of a night if it is stored and readable; only its header is read."""
        head = self._sound_head(night_path(self.path, recording))
        return None if head is None else row_of(head)

    def finish(self) -> None:
        """Write the index after all nights were added, or remove a new store without nights."""
        remove_leftovers(self.path / NIGHTS)
        remove_leftovers(self.path)
        if self.made:
            self._table, self._frame = write_index(self.path, self.hash), None
        else:
            for folder in self._created:
                with contextlib.suppress(OSError):  # it may contain other files
                    folder.rmdir()

    def remove(self, recording: str) -> None:
        """Remove a night, even if its file is missing or broken."""
        _unlink(night_path(self.path, recording))
        self._forget(recording)
        write_index(self.path, self.hash, without=[recording])

    @property
    def index(self) -> "pd.DataFrame":
        """One row per night, sorted by recording.

        Columns: recording, cohort, subject, visit, family, channels, epochs, W, N1, N2, N3, REM,
        unscored (epochs), flags, source, checksum, fingerprint, sex, age (years), simulated, bytes,
        digest and stages (the hypnogram, one int8 per epoch, as bytes). Unknown family, sex and age
        are null.
        """
        if self._frame is None:
            self._table = self._table or scan(self.path, self.hash)
            self._frame = self._table.to_pandas()
        return self._frame

    def read(
        self, recording: str, first_epoch: int, n_epochs: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
        """Read consecutive epochs: signals, (S, C, T), and stages, (S,), -1 where unscored."""
        head, signals = self._map(recording)
        last = first_epoch + n_epochs
        if first_epoch < 0 or n_epochs < 1 or last > len(signals):
            raise ArgumentError(
                f"epochs {first_epoch} to {last} of {recording!r} were requested, expected some "
                f"of its {len(signals)}"
            )
        epochs = slice(first_epoch, last)
        return signals[epochs].astype(np.float32), head.stages[epochs].copy()

    def signals(self, recording: str) -> NDArray[np.float16 | np.float32]:
        """Memory-map a night's signals, (E, C, T), in their type on disk."""
        return self._map(recording)[1]

    def verify(self) -> list[str]:
        """Read every byte of every night and return the problems, one sentence per file."""
        problems = []
        for path in sorted((self.path / NIGHTS).glob(f"[!.]*{ENDING}")):
            try:
                head = read_head(path)
                signals = map_signals(path, head)
                if digest_of(head.record, head.stages, signals) != head.digest:
                    raise StoreError(f"{path} is corrupted: its content has another checksum")
            except StoreError as error:
                problems.append(str(error))
        return problems

    def _make(self) -> None:
        """Create it on disk, or check that the existing one has the same recipe and layout."""
        if not self._settled:
            self.make_room()
            write_recipe(self.path, self.recipe, self.layout)
            self._check_own()

    def _check_own(self) -> None:
        recipe, layout = read_recipe(self.path)
        check_same(self.path, recipe, self.recipe)
        if layout != self.layout:
            raise StoreError(f"{self.path} has nights of {layout}, found {self.layout}")
        self._settled = True

    def _map(self, recording: str) -> tuple[Head, NDArray]:
        if recording not in self._mapped:
            path = night_path(self.path, recording)
            if not path.exists() and recording not in set(self.index["recording"]):
                raise StoreError(f"{self.path} has no recording {recording!r}")
            head = read_head(path)
            expected = (self.layout.n_channels, self.layout.n_times, self.layout.dtype)
            if (*head.shape[1:], head.dtype) != expected:
                raise StoreError(
                    f"{path} has epochs of {(*head.shape[1:], head.dtype)}, expected {expected}"
                )
            self._mapped[recording] = head, map_signals(path, head)
        return self._mapped[recording]

    def _sound_head(self, path: Path) -> Head | None:
        try:
            head = read_head(path)
        except StoreError:
            return None  # missing or broken: to be written
        return head if head.record.get("recipe") == self.hash else None

    def _forget(self, recording: str) -> None:
        self._mapped.pop(recording, None)
        self._table = self._frame = None


def _unlink(path: Path) -> None:
    with os_errors_as(StoreError, path, "cannot be removed"):
        path.unlink(missing_ok=True)
