"""What the folder of a dissection was begun with, and who may go on with it."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import psdnorm
from psdnorm.errors import ArgumentError, StoreError
from psdnorm.lab.dissect.troubles import KINDS, NAME
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import write_json

SETTINGS = f"{NAME}.json"
_FORMAT = 1
_TYPES = {"subjects": int, "hours": float, "seed": int}


def begun_with(out: Path) -> dict[str, Any]:
    """Return what a folder was begun with.

    Parameters
    ----------
    out : Path

    Returns
    -------
    dict
        ``subjects``, ``hours`` and ``seed`` of the nights, their ``recipe``, ``psdnorm``, the
        version, and ``kinds``, all that were asked for so far, where the folder says them. Empty
        for a folder in which nothing was begun.
    """
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
    """Write down what a folder is begun with; refuse one of something else.

    Parameters
    ----------
    out : Path
    nights : dict
        Subjects, hours, seed and recipe, which must be those of the folder.
    kinds : collection of str
        That are asked for; the folder may have others.
    to_predict : bool
        Whether anything is left to predict, for which the version must be the folder's, too.
    """
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
