"""The store: a folder of prepared nights."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError, StoreError
from psdnorm.runtime.files import check_writable, remove_leftovers
from psdnorm.store import index as _index
from psdnorm.store.night import Layout, Night, record_of, stored_arrays
from psdnorm.store.night_files import Head, digest_of, map_signals, read_head, write_night
from psdnorm.store.stored_recipe import FILE as RECIPE
from psdnorm.store.stored_recipe import check_same, plain, read_recipe, recipe_hash, write_recipe

if TYPE_CHECKING:
    import pandas as pd


class Store:
    """Prepared nights of one recipe in one folder.

    Made by :meth:`create`, :meth:`plan` or :meth:`open`. Many processes may add nights at once;
    what they add is in the ``index`` of a store that is opened afterwards.

    Attributes
    ----------
    path : Path
    recipe : dict
        How every night was prepared.
    hash : str
        SHA-256 of the recipe.
    layout : Layout
        Channels, samples and type of an epoch.

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

    def __init__(self, path: Path, recipe: dict[str, Any], layout: Layout) -> None:
        self.path = path
        self.recipe = recipe
        self.hash = recipe_hash(recipe)
        self.layout = layout
        self._table: Any = None
        self._frame: pd.DataFrame | None = None
        self._settled = False  # whether it is on disk with this recipe, as far as is known
        self._room: list[Path] = []  # folders that were made for it
        self._mapped: dict[str, tuple[Head, NDArray]] = {}

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        recipe: Mapping[str, Any],
        layout: Layout | None = None,
    ) -> Self:
        """Make a store, or open the one that is there if it has the same recipe and layout.

        Parameters
        ----------
        path : path
            Made if it does not exist.
        recipe : dict
            How the nights are prepared; something that JSON can hold.
        layout : Layout, optional
            Two channels of 3000 samples at 100 Hz in half precision, if it is not given.

        Returns
        -------
        Store
        """
        store = cls(Path(path), plain(recipe), layout or Layout())
        store._make()
        return store

    @classmethod
    def plan(
        cls,
        path: str | os.PathLike[str],
        recipe: Mapping[str, Any],
        layout: Layout | None = None,
    ) -> Self:
        """As :meth:`create`, but the recipe of a new store is settled by its first night.

        Until one is added, by this process or another, the store is none and any recipe is free
        to become its own.

        Parameters
        ----------
        path, recipe, layout
            As in :meth:`create`.

        Returns
        -------
        Store
        """
        store = cls(Path(path), plain(recipe), layout or Layout())
        if store.made:
            store._check_own()
        return store

    @classmethod
    def open(cls, path: str | os.PathLike[str], recipe: Mapping[str, Any] | None = None) -> Self:
        """Open a store; with a recipe, refuse one of another.

        Parameters
        ----------
        path : path
        recipe : dict, optional

        Returns
        -------
        Store
        """
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
        # a worker maps the nights itself
        return type(self).plan, (self.path, self.recipe, self.layout)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, recipe {self.hash[:12]})"

    @property
    def made(self) -> bool:
        """Whether it is on disk; a planned one is with its first night."""
        return os.path.exists(self.path / RECIPE)  # False too where nothing may be looked at

    def make_room(self) -> None:
        """Make its folders and find out whether nights can be written there; no recipe is yet."""
        nights = self.path / _index.NIGHTS
        self._room += [folder for folder in (nights, self.path) if not os.path.exists(folder)]
        try:
            nights.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be made: {error.strerror}") from error
        check_writable(nights)

    def add(self, night: Night, replace: bool = False) -> bool:
        """Add a night, whole or not at all; again and again is the same as once.

        A night of the same name and source file is replaced if anything in it is other than it
        was. One from another source file is refused, as two nights would be one.

        Parameters
        ----------
        night : Night
        replace : bool
            Whether one from another source file is replaced instead.

        Returns
        -------
        bool
            Whether anything was written.
        """
        record = {**record_of(night), "recipe": self.hash}
        stages, signals = stored_arrays(night, self.layout)
        path = _index.night_path(self.path, night.recording)
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
            # a copy of the folder may lose the times that tell that the old row is outdated
            _unlink(self.path / _index.FILE)
        write_night(path, record, stages, signals)
        self._forget(night.recording)
        return True

    def known(self, recording: str) -> dict[str, Any] | None:
        """Return what is known of a night that is there and sound, else None; no signal is read.

        Parameters
        ----------
        recording : str

        Returns
        -------
        dict or None
            The row of the ``index``, without opening any other night.
        """
        head = self._sound_head(_index.night_path(self.path, recording))
        return None if head is None else _index.row_of(head)

    def finish(self) -> None:
        """Write the index and remove what killed processes left; after all nights were added.

        Of a store that no night was added to, nothing is left.
        """
        remove_leftovers(self.path / _index.NIGHTS)
        remove_leftovers(self.path)
        if self.made:
            self._table, self._frame = _index.write_index(self.path, self.hash), None
        else:
            for folder in self._room:
                with contextlib.suppress(OSError):  # somebody else's file may be in it
                    folder.rmdir()

    def remove(self, recording: str) -> None:
        """Remove a night; one whose file is lost or broken too."""
        _unlink(_index.night_path(self.path, recording))
        self._forget(recording)
        _index.write_index(self.path, self.hash, without=[recording])

    @property
    def index(self) -> "pd.DataFrame":
        """One row per night, sorted by recording.

        Columns: recording, cohort, subject, visit, family, channels, epochs, W, N1, N2, N3, REM,
        unscored (epochs), flags, source, checksum, fingerprint, sex, age (years), simulated, bytes,
        digest and stages (the hypnogram, one int8 per epoch, as bytes). Unknown family, sex and age
        are null.
        """
        if self._frame is None:
            self._table = self._table or _index.scan(self.path, self.hash)
            self._frame = _index.to_frame(self._table)
        return self._frame

    def read(
        self, recording: str, first_epoch: int, n_epochs: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
        """Read consecutive epochs of a night.

        Parameters
        ----------
        recording : str
        first_epoch : int
        n_epochs : int
            S.

        Returns
        -------
        signals : ndarray of float32, (S, C, T)
        stages : ndarray of int8, (S,)
            -1 where unscored.
        """
        head, signals = self._map(recording)
        last = first_epoch + n_epochs
        if first_epoch < 0 or n_epochs < 1 or last > len(signals):
            raise ArgumentError(
                f"epochs {first_epoch} to {last} of {recording!r} were asked for, expected some "
                f"of its {len(signals)}"
            )
        epochs = slice(first_epoch, last)
        return signals[epochs].astype(np.float32), head.stages[epochs].copy()

    def signals(self, recording: str) -> NDArray[np.float16 | np.float32]:
        """Map a night's signals as they are on disk, (E, C, T), without reading them."""
        return self._map(recording)[1]

    def verify(self) -> list[str]:
        """Read every byte of every night and return what is wrong, one sentence per file."""
        problems = []
        for path in sorted((self.path / _index.NIGHTS).glob(f"[!.]*{_index.ENDING}")):
            try:
                head = read_head(path)
                signals = map_signals(path, head)
                if digest_of(head.record, head.stages, signals) != head.digest:
                    raise StoreError(f"{path} is corrupted: its content has another checksum")
            except StoreError as error:
                problems.append(str(error))
        return problems

    def _make(self) -> None:
        """Put it on disk, or see that the one that is there has the same recipe and layout."""
        if self._settled:
            return
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
            path = _index.night_path(self.path, recording)
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
            return None  # absent or broken: to be written
        return head if head.record.get("recipe") == self.hash else None

    def _forget(self, recording: str) -> None:
        self._mapped.pop(recording, None)
        self._table = self._frame = None


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror}") from error
