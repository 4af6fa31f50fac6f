"""Simulated nights straight into a store, as if their files had been prepared.

Nothing is needed here that reads or writes EDF, so that it works where only NumPy, SciPy, pandas
and PyArrow are installed.
"""

import functools
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

import psdnorm
from psdnorm.cohorts import COHORTS, NightFiles
from psdnorm.errors import StoreError
from psdnorm.io import Recording
from psdnorm.lab.simulate.cohort_files import make_nights, signal_path
from psdnorm.lab.simulate.plan import PlannedNight
from psdnorm.prepare import Recipe, preprocess, recording_name
from psdnorm.store import Night, Store, night_path

_BY_US = "psdnorm simulate"


def add_nights(
    folder: str | Path, nights: Sequence[PlannedNight], recipe: Recipe, jobs: int = 1
) -> Generator[PlannedNight, None, None]:
    """Simulate nights, prepare them, and add them to a store.

    Nights that are there already are not made again.

    Parameters
    ----------
    folder : str or Path
        The store; made with its first night if it does not exist.
    nights : sequence of PlannedNight
    recipe : Recipe
    jobs : int
        Processes at a time.

    Yields
    ------
    PlannedNight
        As each is done.

    Raises
    ------
    StoreError
        If the store has another recipe, nights of a cohort that were simulated with other settings,
        or a night of the same name that is not the same night.
    """
    store = Store.plan(Path(folder).absolute(), recipe.to_dict(), recipe.layout())
    if store.made:
        _refuse_others(store, nights)
    store.make_room()
    try:
        yield from make_nights(functools.partial(_add, store, recipe), nights, jobs)
    finally:
        store.finish()


def _refuse_others(store: Store, nights: Sequence[PlannedNight]) -> None:
    """Refuse a store in which a cohort would be of two settings."""
    rows = store.index[["cohort", "source"]].drop_duplicates()
    there = {
        cohort: [source for source in sources if source.startswith(_BY_US)]
        for cohort, sources in rows.groupby("cohort")["source"]
    }
    for night in nights:
        others = [each for each in there.get(night.cohort, []) if each != _source(night)]
        if others:
            raise StoreError(
                f"{store.path} has nights of {night.cohort} from {others[0]!r}, found "
                f"{_source(night)!r}: expected the same, or a store of its own"
            )
        known = store.known(name_of(night))
        if known is not None and known["fingerprint"] != night.fingerprint:
            raise StoreError(
                f"{store.path} has {name_of(night)!r} from {known['source']!r}, found one from "
                f"{_source(night)!r} of psdnorm {psdnorm.__version__}: expected a store of its own"
            )


def bytes_missing_in(folder: str | Path, nights: Sequence[PlannedNight], recipe: Recipe) -> int:
    """Return the bytes of the signals that are not in a store yet, if no wake is cut off."""
    layout = recipe.layout()
    per_epoch = layout.n_channels * layout.n_times * np.dtype(layout.dtype).itemsize
    missing = [n for n in nights if not night_path(Path(folder), name_of(n)).exists()]
    return per_epoch * sum(night.n_epochs for night in missing)


def as_recording(night: PlannedNight) -> Recording:
    """Simulate a night, and return what would be read from its files."""
    made = night.simulate()
    channels = tuple(COHORTS[night.cohort].channels)
    source = signal_path(night).name
    return Recording(made.signal, channels, made.sfreq, made.stages, night.start, source)


def name_of(night: PlannedNight) -> str:
    """Return the name that a night has in a store: the one that its files would have there."""
    return recording_name(
        NightFiles(night.cohort, night.subject, night.visit, signal_path(night), None, {})
    )


def _add(store: Store, recipe: Recipe, night: PlannedNight) -> PlannedNight:
    name = name_of(night)
    if store.known(name) is not None:
        return night  # the same one, as was checked before
    recording = as_recording(night)
    prepared = preprocess(recording, recipe, night.cohort)
    store.add(
        Night(
            name,
            night.cohort,
            night.subject,
            prepared.signals,
            prepared.stages,
            visit=night.visit,
            channels=recording.channels,
            flags=prepared.flags,
            simulated=True,
            source=_source(night),
            fingerprint=night.fingerprint,
            **night.person()._asdict(),
        )
    )
    return night


def _source(night: PlannedNight) -> str:
    own = night.settings
    return f"{_BY_US}, seed {own.seed}, shift {own.shift:g}, {own.hours:g} h"
