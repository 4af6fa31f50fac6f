"""What is dissected: troubles, models, settings."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psdnorm
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.experiments import ExperimentFolder, Unit, units_of
from psdnorm.lab.dissect.troubles import KINDS, NAME, UNSHIFTED, Condition
from psdnorm.models import WEIGHTS as WEIGHTS_FILE
from psdnorm.runtime import read_json, write_json
from psdnorm.training import SCORES, TMA, WEIGHTS, Run

SETTINGS = f"{NAME}.json"
_FORMAT = 1
_TYPES = {"subjects": int, "hours": float, "seed": int}


def begun_with(out: Path) -> dict[str, Any]:
    """Return what a folder was begun with."""
    path = out / SETTINGS
    if not path.exists():
        return {}
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise ArgumentError(
            f"{path} is not that of a dissection, or of another version of psdnorm: give another "
            "folder"
        )
    for name, kind in _TYPES.items():
        if type(found.get(name)) is not kind:
            raise ArgumentError(
                f"{path} has {found.get(name)!r:.80} as {name}, expected {kind.__name__}"
            )
    kinds = found.get("kinds", [])
    if not isinstance(kinds, list) or not all(kind in list(KINDS) for kind in kinds):
        raise ArgumentError(
            f"{path} has {kinds!r:.80} as kinds, expected a list of some of {', '.join(KINDS)}"
        )
    return found


def claim_dissection(
    out: Path, nights: dict[str, Any], kinds: Collection[str], *, to_predict: bool
) -> None:
    """Write down what a folder is begun with; refuse one of something else."""
    described = {"format": _FORMAT, **nights, "psdnorm": psdnorm.__version__}
    there = begun_with(out)
    if there:
        for name, value in described.items():
            found = there.get(name)
            if found != value and (to_predict or name != "psdnorm"):
                raise ArgumentError(
                    f"{out} was begun with {name} {found!r:.80}, found {value!r:.80}: give another "
                    "folder"
                )
        # a folder that says none is of all kinds
        described = there
        kinds = {*kinds, *there.get("kinds", KINDS)}
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError(
            f"{out} holds something else than a dissection, expected a new or empty folder"
        )
    described = {**described, "kinds": [name for name in KINDS if name in kinds]}
    if described == there:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out} cannot be made: {error.strerror}") from error
    write_json(out / SETTINGS, described)


PREDICTED, WHICH = "scores", "weights.json"
# TMA has BatchNorm's network, and AdaBN comes with the cell that it adapts
_FIRST = {"psd": 0, "batch": 1, TMA: 1}


class Models(NamedTuple):
    """The networks of a folder of runs."""

    cells: list[Run]  # whose weights, or scores, are there; those of one shape together
    lacking: list[str]  # a sentence for each cell that never had weights to give
    # a sentence for each cell whose weights are gone, though it was begun, or damaged, before
    # it predicted all
    gone: list[str]


def find_models(
    runs: ExperimentFolder, out: Path | None = None, conditions: Sequence[Condition] = ()
) -> Models:
    """Find the cells of a grid whose weights were kept; AdaBN needs those of its BatchNorm cell."""
    cells = [entry.cell for entry in runs.entries()]
    if not cells:
        raise ArgumentError(f"{runs.path} has no grid, expected a folder of psdnorm lodo")
    found = Models([], [], [])
    for cell in cells:
        base = cell.base
        owner = "it" if base == cell else base.name
        if not runs.is_done(base):
            found.lacking.append(f"{cell.name} is left out: {owner} is not finished")
        elif weights_of(runs, cell).exists():
            found.cells.append(cell)
        elif out is None or not (out / PREDICTED / cell.name / WHICH).exists():
            found.lacking.append(f"{cell.name} is left out: {owner} kept no weights")
        else:
            weights = "its weights" if base == cell else f"the weights of {owner}"
            before = f"{weights} were gone before it predicted"
            why = f"{before} a night with and without a shift", f"{before} the others"
            _count_what_is_left(found, out, cell, conditions, why)
    if not found.cells:
        nor = f", and {out} has no loss that it could count" if found.gone else ""
        raise ArgumentError(
            f"{runs.path} has no finished cell with weights{nor}, expected some: psdnorm lodo "
            "--keep weights"
        )
    return found


def without_damaged(
    models: Models,
    runs: ExperimentFolder,
    out: Path,
    conditions: Sequence[Condition],
    damaged: Mapping[Run, str],
) -> Models:
    """Count networks whose weights cannot be used with what they predicted before, if anything."""
    found = Models([], models.lacking, [*models.gone])
    for cell in models.cells:
        if cell not in damaged:
            found.cells.append(cell)
        else:
            why = damaged[cell], damaged[cell]
            _count_what_is_left(found, out, cell, conditions, why)
    if not found.cells:
        raise ArgumentError(
            f"{runs.path} has no network that can predict, expected one at least: {found.gone[-1]}"
        )
    return found


def _count_what_is_left(
    found: Models, out: Path, cell: Run, conditions: Sequence[Condition], why: tuple[str, str]
) -> None:
    """Keep a cell that has a loss to show; ``why`` it has none, or not all."""
    done = {condition for condition in conditions if has_predicted(out, cell, condition)}
    if not {UNSHIFTED} < done:
        found.gone.append(f"{cell.name} is left out: {why[0]}")
        return
    found.cells.append(cell)
    if len(done) < len(conditions):
        found.gone.append(
            f"{cell.name} counts with {len(done)} of {len(conditions)} conditions: {why[1]}"
        )


def predicting_order(cells: Sequence[Run]) -> list[Unit]:
    """Return trainings, with their AdaBN evaluations, in the order in which they predict."""
    return sorted(units_of(cells), key=lambda unit: _FIRST.get(unit[0].base.norm, len(_FIRST)))


def weights_of(runs: ExperimentFolder, cell: Run) -> Path:
    """Return where the weights of a cell are, if it kept them."""
    return runs.folder(cell.base) / WEIGHTS / WEIGHTS_FILE


def predicted_folder(out: Path, cell: Run, condition: Condition) -> Path:
    """Return where the scores of a cell under a condition are, in the folder of a dissection."""
    return out / PREDICTED / cell.name / condition.name


def has_predicted(out: Path, cell: Run, condition: Condition) -> bool:
    """Tell whether a cell has predicted a condition, in the folder of a dissection."""
    return (predicted_folder(out, cell, condition) / SCORES).exists()
