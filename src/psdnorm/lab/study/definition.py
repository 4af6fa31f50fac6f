"""Read and check the YAML file of a study."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psdnorm.errors import ArgumentError
from psdnorm.experiments import EPOCHS, Axes, ExperimentFolder, grid_of
from psdnorm.lab.simulate import MOST_SHIFT, PROFILES
from psdnorm.prepare import RECIPES, load_recipe
from psdnorm.runtime import read_yaml
from psdnorm.training import AUTO, KEEP, Protocol, Run, check_model

_KEYS = ("name", "about", "store", "grid", "protocol", "keep", "expected_epochs", "borrow")
_STORE_KEYS = ("subjects", "recipe", "hours", "shift", "seed")
_AXES = tuple(field.name for field in dataclasses.fields(Axes))
_PROTOCOL = tuple(field.name for field in dataclasses.fields(Protocol))
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


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
        _check_keys("the file", document, _KEYS, ("name", "about", "store", "grid"))
        nights = _nights(document["store"])
        protocol = _protocol(document.get("protocol", {}))
        blocks = _blocks(document["grid"], nights)
        return Study(
            path=path,
            name=_name("name", document["name"]),
            about=_words("about", document["about"]),
            nights=nights,
            cells=tuple(grid_of(blocks)),
            protocol=protocol,
            keep=_one_of("keep", document.get("keep", KEEP[0]), KEEP),
            expected_epochs=min(
                _whole("expected_epochs", document.get("expected_epochs", EPOCHS), 1),
                protocol.max_epochs,
            ),
            entries=tuple(tuple(grid_of([block])) for block in blocks),
        )
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None


def _nights(document: Any) -> Nights:
    _check_keys("store", document, _STORE_KEYS, ("subjects", "recipe"))
    subjects = document["subjects"]
    if not isinstance(subjects, dict) or len(subjects) < 2:
        raise _refused("store.subjects", subjects, "a number for each of two cohorts at least")
    for cohort, number in subjects.items():
        _one_of("store.subjects", cohort, tuple(PROFILES))
        _whole(f"store.subjects.{cohort}", number, 2)
    shift = document.get("shift", 1.0)
    if not isinstance(shift, dict):
        shift = dict.fromkeys(subjects, shift)
    if shift.keys() != subjects.keys():
        raise _refused("store.shift", list(shift), f"one number, or one for each of {[*subjects]}")
    for cohort, number in shift.items():
        _number(f"store.shift.{cohort}", number, 0, MOST_SHIFT)
    return Nights(
        subjects=dict(subjects),
        shift={cohort: float(number) for cohort, number in shift.items()},
        recipe=_one_of("store.recipe", document["recipe"], tuple(RECIPES)),
        hours=_number("store.hours", document.get("hours", 8.0), 0.02, 48),
        seed=_whole("store.seed", document.get("seed", 0), 0),
    )


def _blocks(document: Any, nights: Nights) -> list[Axes]:
    if not isinstance(document, list) or not document:
        raise _refused("grid", document, "a list of blocks")
    blocks = []
    for number, block in enumerate(document):
        where = f"grid[{number}]"
        _check_keys(where, block, _AXES, ("norms",))
        axes: dict[str, Any] = {"hold_outs": tuple(nights.subjects)}
        axes |= {name: _axis(f"{where}.{name}", name, value) for name, value in block.items()}
        for cohort in axes["hold_outs"]:
            _one_of(f"{where}.hold_outs", cohort, tuple(nights.subjects))
        try:
            grid_of([Axes(**axes)])
        except ArgumentError as error:
            raise ArgumentError(f"{where}: {error}") from None
        blocks.append(Axes(**axes))
    return blocks


def _axis(where: str, name: str, value: Any) -> tuple:
    if name == "seeds":
        return tuple(range(_whole(where, value, 1)))
    if not isinstance(value, list) or not value:
        raise _refused(where, value, "a list")
    if name == "balanced":
        return tuple(None if each == "all" else _whole(where, each, 2) for each in value)
    if name == "filter_sizes":
        return tuple(_filter_size(where, each) for each in value)
    if name == "norm_depths":
        return tuple(_whole(where, each, 0) for each in value)
    return tuple(_words(where, each) for each in value)


def _protocol(document: Any) -> Protocol:
    _check_keys("protocol", document, _PROTOCOL)
    try:
        return Protocol(**document)
    except ArgumentError as error:
        raise ArgumentError(f"protocol: {error}") from None


def _lenders(study: Study, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise _refused("borrow", value, "a list of names of studies")
    if study.keep != KEEP[0]:
        raise ArgumentError(
            f"keep is {study.keep!r} with borrow, expected {KEEP[0]}: a borrowed cell has no more"
        )
    for name in value:
        if _name("borrow", name) == study.name:
            raise _refused("borrow", name, "the name of another study")
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


def _check_keys(
    where: str, document: Any, known: tuple[str, ...], needed: tuple[str, ...] = ()
) -> None:
    if not isinstance(document, dict):
        raise _refused(where, document, f"the keys {', '.join(known)}")
    for key in document:
        if key not in known:
            raise ArgumentError(f"{where} has the key {key!r}, expected one of {', '.join(known)}")
    for key in needed:
        if key not in document:
            raise ArgumentError(f"{where} lacks the key {key!r}")


def _name(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _refused(where, value, "small letters and digits with - between them")
    return value


def _words(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _refused(where, value, "words")
    return value.strip()


def _one_of(where: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise _refused(where, value, f"one of {', '.join(known)}")
    return str(value)


def _filter_size(where: str, value: Any) -> int | str:
    if value == AUTO:
        return AUTO
    if type(value) is not int or value < 1:
        raise _refused(where, value, f"{AUTO}, or a whole number from 1 on")
    return value


def _whole(where: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise _refused(where, value, f"a whole number from {least} on")
    return value


def _number(where: str, value: Any, least: float, most: float) -> float:
    if type(value) not in (int, float) or not least <= value <= most:
        raise _refused(where, value, f"a number from {least:g} to {most:g}")
    return float(value)


def _refused(where: str, value: Any, expected: str) -> ArgumentError:
    return ArgumentError(f"{where} is {value!r:.80}, expected {expected}")


def check_networks(study: Study, runs: ExperimentFolder) -> None:
    """Refuse an entry of a study's grid that asks for a network which cannot be built or run."""
    layout = load_recipe(study.nights.recipe).layout()
    seen: set[tuple] = set()
    for number, entry in enumerate(study.entries):
        for cell in (run.base for run in entry):
            shape = cell.model, cell.norm, cell.filter_size, cell.norm_depth
            if shape in seen or runs.is_done(cell):
                continue
            seen.add(shape)
            try:
                check_model(cell, study.protocol, layout)
            except ArgumentError as error:
                raise ArgumentError(f"{study.path}: grid[{number}]: {error}") from None
