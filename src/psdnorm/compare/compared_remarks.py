"""In what else two compared experiments differ, and what was not compared."""

from pathlib import Path
from typing import Any

import pandas as pd

from psdnorm.errors import ArgumentError
from psdnorm.report.naming import listed, setting_name
from psdnorm.report.results import Results
from psdnorm.training.cell import read_json
from psdnorm.training.run_folder import CONFIG

A, B = "A", "B"
Pair = tuple[str, str, str]  # what is compared, the arm of A and the arm of B


def full_name(results: Results, arm: str) -> str:
    """Return what people call an arm, and what it learned with.

    Parameters
    ----------
    results : Results
        That has the arm.
    arm : str
        As ``usleep psd f17 d3 @all``, which is "PSDNorm (f = 17) in U-Sleep, all subjects".
    """
    cell = results.cells[results.cells["arm"] == arm].iloc[0]
    size = None if pd.isna(cell["balanced"]) else int(cell["balanced"])
    return f"{results.named(arm)} in {setting_name(cell['model'], size)}"


def same_folder(a: Path, b: Path) -> list[str]:
    """Say that a folder is compared with itself, where it is.

    Parameters
    ----------
    a, b : Path
        Both exist.
    """
    return ["A and B are the same folder: nothing can differ."] if a.samefile(b) else []


def whose_nights(a: Results, b: Results, pairs: list[Pair], *, by_seed: bool) -> list[str]:
    """Say where A and B were tested, trained or validated on other nights.

    Digests of nights are those of prepared ones: of another recipe, they tell nothing.

    Parameters
    ----------
    a, b : Results
    pairs : list of (str, str, str)
        What is compared: a name, the arm of A and the arm of B.
    by_seed : bool
        Whether cells of the same seed are compared; else whichever there are, and training nights
        differ anyway.
    """
    if a.config["recipe_sha256"] != b.config["recipe_sha256"]:
        return [
            "The recipes differ, so that it cannot be told whether A and B were tested on the same "
            "nights: subjects of the same name may be other people."
        ]
    differ = _cohorts_that_differ(a, b, pairs, by_seed=by_seed)
    told = []
    if differ["test"]:
        told.append(
            f"A and B were tested on other nights of {listed(sorted(differ['test']))}: subjects of "
            "the same name may be other people."
        )
    elsewhere = sorted(differ["train"] | differ["validation"])
    if by_seed and elsewhere:
        told.append(
            f"A and B were trained or validated on other nights where {listed(elsewhere)} "
            f"{'was' if len(elsewhere) == 1 else 'were'} held out: gains may come from these."
        )
    return told


def _cohorts_that_differ(
    a: Results, b: Results, pairs: list[Pair], *, by_seed: bool
) -> dict[str, set[str]]:
    """Return the held-out cohorts of the cells whose nights differ, by what they were used for."""
    differ: dict[str, set[str]] = {"test": set(), "train": set(), "validation": set()}
    keys = ["hold_out", "seed"] if by_seed else ["hold_out"]
    for _, arm_a, arm_b in pairs:
        ours, theirs = (
            each.cells.loc[each.cells["arm"] == arm, [*keys, "folder"]]
            for each, arm in ((a, arm_a), (b, arm_b))
        )
        for cell in ours.merge(theirs, on=keys, suffixes=("_a", "_b")).to_dict("records"):
            one, other = _digests(cell["folder_a"]), _digests(cell["folder_b"])
            for part, cohorts in differ.items():
                if one[part] != other[part]:
                    cohorts.add(cell["hold_out"])
    return differ


def _digests(folder: Path) -> dict[str, Any]:
    config = read_json(folder / CONFIG)
    try:
        return {part: config["data"][part]["sha256"] for part in ("test", "train", "validation")}
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"{folder / CONFIG} is not that of a cell: {error}") from error


def differences(a: Results, b: Results) -> list[str]:
    """Say in what else two results differ, and what is not compared because of it.

    Parameters
    ----------
    a, b : Results
    """
    told = []
    hashes = [str(each.config["recipe_sha256"])[:12] for each in (a, b)]
    if a.recipe != b.recipe:
        told.append(f"The recipes differ: {a.recipe} (A) and {b.recipe} (B).")
    elif hashes[0] != hashes[1]:
        told.append(f"The recipes differ: {a.recipe} is {hashes[0]} in A and {hashes[1]} in B.")
    ours, theirs = a.config["protocol"], b.config["protocol"]
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            told.append(f"{name} is {ours.get(name)!r} in A and {theirs.get(name)!r} in B.")
    if a.simulated != b.simulated:
        told.append(f"Only the nights of {A if a.simulated else B} are simulated.")
    cohorts = [{*each.subjects["cohort"]} for each in (a, b)]
    alone = sorted(cohorts[0] ^ cohorts[1])
    if alone:
        told.append(f"Not compared, as only one of the two holds them out: {', '.join(alone)}.")
    for side, each in ((A, a), (B, b)):
        n = len(each.lacking) - len(each.damaged)
        if n:
            told.append(f"{n} cell{'s' * (n != 1)} of {side} gave no result.")
    return told


def only_one_has(a: Results, b: Results) -> list[str]:
    """Name the arms that one of two results lacks.

    Parameters
    ----------
    a, b : Results
    """
    ours, theirs = {*a.cells["arm"]}, {*b.cells["arm"]}
    alone = ((A, a, sorted(ours - theirs)), (B, b, sorted(theirs - ours)))
    return [
        f"Only {side} has {'; '.join(full_name(results, arm) for arm in arms)}."
        for side, results, arms in alone
        if arms
    ]
