"""A study: what its YAML file describes, its simulated nights, and how it is run."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.experiments import (
    EPOCHS,
    FAILURE,
    FINISHED,
    H200,
    Amounts,
    ExperimentFolder,
    Job,
    OnProgress,
    PieceMeter,
    RunOutcome,
    Unit,
    check_grid,
    check_keys,
    file_name,
    grid_of,
    integer,
    invalid,
    number,
    one_of,
    read_blocks,
    run_units,
    text,
    units_of,
)
from psdnorm.lab.simulate import (
    MOST_SHIFT,
    PROFILES,
    PlannedNight,
    Settings,
    add_nights,
    bytes_missing_in,
    name_of,
    plan_nights,
)
from psdnorm.prepare import RECIPES, load_recipe
from psdnorm.runtime import digest, read_json, read_yaml, write_json
from psdnorm.store import Store
from psdnorm.training import DONE, KEEP, JsonRecord, Protocol, Run, check_model

_KEYS = ("name", "about", "store", "grid", "protocol", "keep", "expected_epochs", "borrow")
_STORE_KEYS = ("subjects", "recipe", "hours", "shift", "seed")
_PROTOCOL = tuple(field.name for field in dataclasses.fields(Protocol))
_DIED = "process died"
NIGHTS = "nights.json"
COUNTED = "cells"


@dataclass(frozen=True)
class SimulatedNights(JsonRecord):
    """The simulated nights of a study.

    Attributes
    ----------
    subjects : dict of str to int
        In each cohort, with one night each.
    shift : dict of str to float
        Of each cohort, see :func:`psdnorm.lab.simulate.simulate_night`.
    """

    subjects: Mapping[str, int]
    shift: Mapping[str, float]
    recipe: str
    hours: float = 8.0
    seed: int = 0


@dataclass(frozen=True)
class Study:
    """A study as its file describes it.

    Attributes
    ----------
    path : Path
        The file.
    runs : tuple of Run
        Without duplicates; those that share a compiled network are adjacent.
    keep : {"scores", "predictions", "weights"}
    expected_epochs : int
        Until early stopping, for estimates.
    borrow : tuple of str
        Names of the studies from which it takes finished runs, in order of preference.
    entries : tuple of tuple of Run
        The runs of each entry of the file's grid; entries may overlap.
    results : Path, optional
        The folder of packed results, of this study and others. Default: ``results`` beside the
        file.
    """

    path: Path
    name: str
    about: str
    nights: SimulatedNights
    runs: tuple[Run, ...]
    protocol: Protocol
    keep: str
    expected_epochs: int
    borrow: tuple[str, ...] = ()
    entries: tuple[tuple[Run, ...], ...] = ()
    results: Path | None = None


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read and check the YAML file of a study.

    Files of studies from which it borrows are read, too, and must have the same nights and
    protocol. Two studies may borrow from each other.

    Raises
    ------
    ArgumentError
        Names the file, the key, what was found and what was expected.
    """
    document = read_yaml(path)
    study = _read(Path(path), document)
    if "borrow" not in document:
        return study
    try:
        return dataclasses.replace(study, borrow=_lenders(study, document["borrow"]))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _read(path: Path, document: Any) -> Study:
    """Read all but the names of the studies from which a study borrows."""
    try:
        check_keys("the file", document, _KEYS, ("name", "about", "store", "grid"))
        nights = _nights(document["store"])
        protocol = _protocol(document.get("protocol", {}))
        blocks = read_blocks(document["grid"], list(nights.subjects))
        epochs = integer("expected_epochs", document.get("expected_epochs", EPOCHS), 1)
        return Study(
            path=path,
            name=file_name("name", document["name"]),
            about=text("about", document["about"]),
            nights=nights,
            runs=tuple(grid_of(blocks)),
            protocol=protocol,
            keep=one_of("keep", document.get("keep", KEEP[0]), KEEP),
            expected_epochs=min(epochs, protocol.max_epochs),
            entries=tuple(tuple(grid_of([block])) for block in blocks),
        )
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _nights(document: Any) -> SimulatedNights:
    check_keys("store", document, _STORE_KEYS, ("subjects", "recipe"))
    subjects = document["subjects"]
    if not isinstance(subjects, dict) or len(subjects) < 2:
        raise invalid("store.subjects", subjects, "a number for each of at least two cohorts")
    for cohort, n_subjects in subjects.items():
        one_of("store.subjects", cohort, tuple(PROFILES))
        integer(f"store.subjects.{cohort}", n_subjects, 2)
    shift = document.get("shift", 1.0)
    if not isinstance(shift, dict):
        shift = dict.fromkeys(subjects, shift)
    if shift.keys() != subjects.keys():
        raise invalid("store.shift", list(shift), f"one number, or one for each of {[*subjects]}")
    return SimulatedNights(
        subjects=dict(subjects),
        shift={
            cohort: number(f"store.shift.{cohort}", value, 0, MOST_SHIFT)
            for cohort, value in shift.items()
        },
        recipe=one_of("store.recipe", document["recipe"], tuple(RECIPES)),
        hours=number("store.hours", document.get("hours", 8.0), 0.02, 48),
        seed=integer("store.seed", document.get("seed", 0), 0),
    )


def _protocol(document: Any) -> Protocol:
    check_keys("protocol", document, _PROTOCOL)
    try:
        return Protocol(**document)
    except ArgumentError as error:
        raise ArgumentError(f"protocol: {error}") from None


def _lenders(study: Study, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise invalid("borrow", value, "a list of names of studies")
    if study.keep != KEEP[0]:
        raise ArgumentError(
            f"keep is {study.keep!r} with borrow, expected {KEEP[0]}: a borrowed run has no more"
        )
    for name in value:
        if file_name("borrow", name) == study.name:
            raise invalid("borrow", name, "the name of another study")
        _check_lender(study, name)
    return tuple(value)


def _check_lender(study: Study, name: str) -> None:
    """Raise if a study has other nights or another protocol, so that its runs are not the same."""
    path = study.path.with_name(f"{name}.yaml")
    try:
        lender = _read(path, read_yaml(path))
    except ArgumentError as error:
        raise ArgumentError(f"borrow is {name!r}, but {error}") from None
    if lender.name != name:
        raise ArgumentError(f"borrow is {name!r}, but {path} has the name {lender.name!r}")
    both = ("store", study.nights, lender.nights), ("protocol", study.protocol, lender.protocol)
    for where, own, other in both:
        for field in dataclasses.fields(own):
            there, here = getattr(other, field.name), getattr(own, field.name)
            if there != here:
                raise ArgumentError(
                    f"borrow is {name!r}, whose {where}.{field.name} is {there!r}, expected "
                    f"{here!r} as in this study"
                )


def check_networks(study: Study, experiment: ExperimentFolder) -> None:
    """Raise if a network that is still to be trained cannot be built or run."""
    layout = load_recipe(study.nights.recipe).layout()
    seen: set[tuple] = set()
    for place, entry in enumerate(study.entries):
        for run in (each.base for each in entry):
            if _network(run) in seen or experiment.is_done(run):
                continue
            seen.add(_network(run))
            try:
                check_model(run, study.protocol, layout)
            except ArgumentError as error:
                raise ArgumentError(f"{study.path}: grid[{place}]: {error}") from None


def _network(run: Run) -> tuple:
    return run.model, run.norm, run.filter_size, run.norm_depth


def planned_nights(nights: SimulatedNights) -> list[PlannedNight]:
    """Return the nights of a study, one per subject."""
    planned = []
    for cohort, n_subjects in nights.subjects.items():
        settings = Settings(nights.seed, nights.hours, nights.shift[cohort])
        planned += plan_nights([cohort], n_subjects, 1, settings)
    return planned


def planned_amounts(study: Study) -> Amounts:
    """Return the work of a study's runs before its nights are made, assuming none is trimmed."""
    import pandas as pd

    nights = planned_nights(study.nights)
    index = pd.DataFrame(
        {
            "cohort": [night.cohort for night in nights],
            "subject": [night.subject for night in nights],
            "family": pd.Series([night.person().family for night in nights], dtype=object),
            "recording": [name_of(night) for night in nights],
            "epochs": [night.n_epochs for night in nights],
        }
    )
    return Amounts(cast(Any, SimpleNamespace(index=index)), study.protocol)


def store_folder(work: Path, nights: SimulatedNights) -> Path:
    """Return the folder of the nights of a study; studies of the same nights share it."""
    known = dataclasses.asdict(nights) | {"psdnorm": psdnorm.__version__}
    return work / f"nights-{nights.recipe}-{digest(known)[:12]}"


def made_store(
    work: Path,
    nights: SimulatedNights,
    jobs: int,
    watched: Callable[[Iterable[PlannedNight], int], Iterable[PlannedNight]],
) -> Store:
    """Open the store of a study; simulate missing nights, with progress shown by ``watched``."""
    folder, recipe = store_folder(work, nights), load_recipe(nights.recipe)
    planned = planned_nights(nights)
    if bytes_missing_in(folder, planned, recipe):
        made = add_nights(folder, planned, recipe, jobs)
        with contextlib.closing(made):  # if interrupted, it still writes the index
            for _ in watched(made, len(planned)):
                pass
    return Store.open(folder, recipe.to_dict())


def experiment_of(study: Study, work: Path) -> ExperimentFolder:
    """Return the folder of the runs of a study."""
    return ExperimentFolder(work / study.name)


def note_nights(experiment: ExperimentFolder, nights: Mapping[str, Any] | None) -> None:
    """Write the settings of a folder's nights into it, if they are known and not there yet."""
    if nights is not None and not (experiment.path / NIGHTS).exists():
        write_json(experiment.path / NIGHTS, dict(nights))


def check_folder(study: Study, experiment: ExperimentFolder) -> None:
    """Raise if a folder has runs of other nights than the study's file describes."""
    path = experiment.path / NIGHTS
    if path.exists():
        check_nights(study, experiment.path, read_json(path))


def check_nights(study: Study, place: Path, nights: Mapping[str, Any]) -> None:
    """Raise if the nights of a folder or of packed results are not those of a study."""
    for name, value in study.nights.to_json().items():
        if nights.get(name) != value:
            raise ArgumentError(
                f"{place} has runs of nights whose {name} is {nights.get(name)!r}, expected "
                f"{value!r} as in {study.path}: move it away, or give the study another name"
            )


class Meter(PieceMeter):
    """Measures the cost of a piece; writes it after every run."""

    def __init__(
        self,
        experiment: ExperimentFolder,
        device: str,
        workers: int,
        batch_size: int,
        commit: str | None,
    ) -> None:
        super().__init__(experiment.path, device, commit, counted=COUNTED, workers=workers)
        self._experiment, self._batch_size = experiment, batch_size

    def count(self, outcome: RunOutcome) -> None:
        """Count a finished run, and the sequences in all its epochs of training."""
        if outcome.status == FINISHED:
            steps = 0  # of AdaBN
            if not outcome.run.is_adapted:
                steps = read_json(self._experiment.folder(outcome.run) / DONE)["steps"]
            self.add(steps * self._batch_size)
        self.write()


def seconds_of(study: Study, amounts: Amounts) -> dict[Run, float]:
    """Estimate the seconds of every run if all of them share one H200."""
    size, epochs = study.protocol.batch_size, study.expected_epochs
    return {
        run: amounts.of(run).in_batches(size).seconds(run, H200[run.model], epochs)
        for run in study.runs
    }


def shares_of(
    units: Sequence[Unit], seconds: Mapping[Run, float], workers: int
) -> list[tuple[Run, ...]]:
    """Divide units into shares for workers that take about the same time."""
    # units of one network stay together: each share compiles its networks itself, which takes at
    # least 30 s each on a GPU
    if workers >= len(units):
        return [*units]
    total = sum(seconds[run] for unit in units for run in unit)
    shares: list[list[int]] = [[] for _ in range(workers)]
    passed = 0.0
    for place in _last_first(units):
        own = sum(seconds[run] for run in units[place])
        # a unit goes to the share in which its middle lies
        share = int(workers * (passed + own / 2) / total) if total else 0
        shares[min(share, workers - 1)].append(place)
        passed += own
    return [
        tuple(run for place in sorted(share) for run in units[place]) for share in shares if share
    ]


def _last_first(units: Sequence[Unit]) -> list[int]:
    """Return the places of units, those of each network in reverse order."""
    # where a network is split between two shares, its first units then begin the second share
    # instead of ending the first: if the study is stopped, its last units are missing
    groups = itertools.groupby(range(len(units)), lambda place: _network(units[place][0]))
    return [place for _, group in groups for place in reversed(list(group))]


def run_study(
    study: Study,
    store: Store,
    experiment: ExperimentFolder,
    meter: Meter,
    *,
    workers: int = 1,
    device: str = "auto",
    on_progress: OnProgress = lambda name, words: None,
) -> Iterator[RunOutcome]:
    """Train the runs of a study that are not finished; interrupted ones are resumed.

    ``workers`` processes share the device; 1 is this process. ``on_progress`` takes the name of a
    run and its progress. Yields the outcome of each run that was not finished before.
    """
    difference = experiment.other_nights(store) if experiment.settings() else None
    if difference is not None:
        raise ArgumentError(
            f"{experiment.path} has runs of {difference}, expected the same nights: to start over, "
            "take other folders for the work and its results"
        )
    experiment.check(store, study.protocol)
    amounts = Amounts(store, study.protocol)
    left = [unit for unit in units_of(study.runs) if not all(map(experiment.is_done, unit))]
    waiting = [run for unit in left for run in unit if not experiment.is_done(run)]
    check_grid(store, waiting, study.protocol, experiment, device=device, keep=study.keep)
    experiment.extend(store, study.protocol, [amounts.entry(run) for run in study.runs])
    note_nights(experiment, study.nights.to_json())
    job = Job(store, experiment, study.protocol, device, "auto", study.keep)
    shares = shares_of(left, seconds_of(study, amounts), workers)
    execute = partial(run_units, job=job, jobs=workers, on_progress=on_progress)
    counted: set[Run] = set()
    try:
        with contextlib.closing(_outcomes(left, shares, waiting, execute)) as outcomes:
            for outcome in outcomes:
                counted.add(outcome.run)
                meter.count(outcome)
                yield outcome
    finally:
        for run in waiting:
            if run not in counted and experiment.is_done(run):  # finished while others were stopped
                meter.count(RunOutcome(run, FINISHED))


def _outcomes(
    left: Sequence[Unit],
    shares: Sequence[tuple[Run, ...]],
    waiting: Collection[Run],
    execute: Callable[[Sequence[Unit]], Iterator[RunOutcome]],
) -> Generator[RunOutcome]:
    """Run shares, then one by one the units of those whose process died."""
    lost: set[Run] = set()
    for outcome in execute(shares):
        if outcome.status == FAILURE and _DIED in outcome.reason and len(shares) < len(left):
            lost.add(outcome.run)
        elif outcome.run in waiting:
            yield outcome
    # alone, so that it is clear which unit kills its process
    for outcome in execute([unit for unit in left if not lost.isdisjoint(unit)]):
        if outcome.run in lost:
            yield outcome
