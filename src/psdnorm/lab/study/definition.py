"""Read and check the YAML file of a study."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError
from psdnorm.experiments import (
    EPOCHS,
    ExperimentFolder,
    check_keys,
    file_name,
    grid_of,
    integer,
    invalid,
    number,
    one_of,
    read_blocks,
    text,
)
from psdnorm.lab.simulate import MOST_SHIFT, PROFILES
from psdnorm.prepare import RECIPES, load_recipe
from psdnorm.runtime import read_yaml
from psdnorm.training import KEEP, Protocol, Run, check_model

_KEYS = ("name", "about", "store", "grid", "protocol", "keep", "expected_epochs", "borrow")
_STORE_KEYS = ("subjects", "recipe", "hours", "shift", "seed")
_PROTOCOL = tuple(field.name for field in dataclasses.fields(Protocol))


@dataclass(frozen=True)
class Nights:
    """The simulated nights of a study.

    Attributes
    ----------
    subjects : dict of str to int
        Of each cohort, one night each.
    shift : dict of str to float
        Of each cohort, see :func:`psdnorm.lab.simulate.simulate_night`.
    recipe : str
    hours : float
    seed : int
    """

    subjects: Mapping[str, int]
    shift: Mapping[str, float]
    recipe: str
    hours: float = 8.0
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields as something that JSON holds."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


@dataclass(frozen=True)
class Study:
    """A study as its file describes it.

    Attributes
    ----------
    path : Path
        The file.
    name, about : str
    nights : Nights
    cells : tuple of Run
        As :func:`psdnorm.experiments.grid.grid_of` orders them.
    protocol : Protocol
    keep : {"scores", "predictions", "weights"}
    expected_epochs : int
        Until early stopping, for estimates.
    borrow : tuple of str
        Names of the studies whose finished cells it takes, the first one first.
    entries : tuple of tuple of Run
        The cells of each entry of the file's grid; several may have the same ones.
    results : Path, optional
        The folder of packed results, its own and those of others; ``results`` beside the file where
        none is named.
    """

    path: Path
    name: str
    about: str
    nights: Nights
    cells: tuple[Run, ...]
    protocol: Protocol
    keep: str
    expected_epochs: int
    borrow: tuple[str, ...] = ()
    entries: tuple[tuple[Run, ...], ...] = ()
    results: Path | None = None


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read the file of a study; refuse what is wrong in it in one sentence.

    The files of the studies that it borrows from are read, too, to see that they have the same
    nights and protocol. What these borrow themselves is not looked at: cells that they took are in
    their packed results like any others, and two studies may borrow from each other.

    Parameters
    ----------
    path : path
        A YAML file.

    Returns
    -------
    Study

    Raises
    ------
    ArgumentError
        Names the file, the key, what was found and what was expected.
    """
    document = read_yaml(path)
    study = _study(Path(path), document)
    if "borrow" not in document:
        return study
    try:
        return dataclasses.replace(study, borrow=_lenders(study, document["borrow"]))
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _study(path: Path, document: Any) -> Study:
    """Return a study without what it borrows."""
    try:
        check_keys("the file", document, _KEYS, ("name", "about", "store", "grid"))
        nights = _nights(document["store"])
        protocol = _protocol(document.get("protocol", {}))
        blocks = read_blocks(document["grid"], list(nights.subjects))
        return Study(
            path=path,
            name=file_name("name", document["name"]),
            about=text("about", document["about"]),
            nights=nights,
            cells=tuple(grid_of(blocks)),
            protocol=protocol,
            keep=one_of("keep", document.get("keep", KEEP[0]), KEEP),
            expected_epochs=min(
                integer("expected_epochs", document.get("expected_epochs", EPOCHS), 1),
                protocol.max_epochs,
            ),
            entries=tuple(tuple(grid_of([block])) for block in blocks),
        )
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _nights(document: Any) -> Nights:
    check_keys("store", document, _STORE_KEYS, ("subjects", "recipe"))
    subjects = document["subjects"]
    if not isinstance(subjects, dict) or len(subjects) < 2:
        raise invalid("store.subjects", subjects, "a number for each of two cohorts at least")
    for cohort, n in subjects.items():
        one_of("store.subjects", cohort, tuple(PROFILES))
        integer(f"store.subjects.{cohort}", n, 2)
    shift = document.get("shift", 1.0)
    if not isinstance(shift, dict):
        shift = dict.fromkeys(subjects, shift)
    if shift.keys() != subjects.keys():
        raise invalid("store.shift", list(shift), f"one number, or one for each of {[*subjects]}")
    for cohort, value in shift.items():
        number(f"store.shift.{cohort}", value, 0, MOST_SHIFT)
    return Nights(
        subjects=dict(subjects),
        shift={cohort: float(value) for cohort, value in shift.items()},
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
            f"keep is {study.keep!r} with borrow, expected {KEEP[0]}: a borrowed cell has no more"
        )
    for name in value:
        if file_name("borrow", name) == study.name:
            raise invalid("borrow", name, "the name of another study")
        _check_lender(study, name)
    return tuple(value)


def _check_lender(study: Study, name: str) -> None:
    """Refuse a study whose cells of the same name would be others than this one's."""
    path = study.path.with_name(f"{name}.yaml")
    try:
        lender = _study(path, read_yaml(path))
    except ArgumentError as error:
        raise ArgumentError(f"borrow is {name!r}, but {error}") from None
    if lender.name != name:
        raise ArgumentError(f"borrow is {name!r}, but {path} has the name {lender.name!r}")
    for where, own, other in (
        ("store", study.nights, lender.nights),
        ("protocol", study.protocol, lender.protocol),
    ):
        for field in dataclasses.fields(own):
            there, here = getattr(other, field.name), getattr(own, field.name)
            if there != here:
                raise ArgumentError(
                    f"borrow is {name!r}, whose {where}.{field.name} is {there!r}, expected "
                    f"{here!r} as in this study"
                )


def check_networks(study: Study, runs: ExperimentFolder) -> None:
    """Refuse an entry of a study's grid that asks for a network which cannot be built or run."""
    layout = load_recipe(study.nights.recipe).layout()
    seen: set[tuple] = set()
    for place, entry in enumerate(study.entries):
        for cell in (run.base for run in entry):
            shape = cell.model, cell.norm, cell.filter_size, cell.norm_depth
            if shape in seen or runs.is_done(cell):
                continue
            seen.add(shape)
            try:
                check_model(cell, study.protocol, layout)
            except ArgumentError as error:
                raise ArgumentError(f"{study.path}: grid[{place}]: {error}") from None
