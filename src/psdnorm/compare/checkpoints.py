"""Two checkpoints against each other, on nights of a store that neither has learned from."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from psdnorm.batches import LENGTH, STRIDE
from psdnorm.compare.runs import A, ArmComparison, B, Comparison, arranged, same_folder
from psdnorm.errors import ArgumentError, StoreError, TrainingError
from psdnorm.evaluation import merge_scores, score_night, subject_metrics
from psdnorm.models import accelerate
from psdnorm.report import Results, Trained, load_trained, without_roots
from psdnorm.runtime import listed, plural
from psdnorm.store import Store
from psdnorm.training import (
    WEIGHTS,
    Forward,
    NotFiniteError,
    origin,
    predict_night,
    quiet_libraries,
    reproducible,
    resolve_device,
)

_BATCH = 16  # windows: a night has some 45, and what fills its last batch is lost
Watch = Callable[[Iterable[dict[str, Any]], int, str], Iterable[dict[str, Any]]]


@dataclass(frozen=True)
class _Side:
    """One of the two networks, ready to predict."""

    letter: str
    forward: Forward
    nights: Store
    device: torch.device

    def score(self, night: dict[str, Any]) -> pd.DataFrame:
        """Score a night, of central epochs as the cells of a grid are."""
        recording = night["recording"]
        probabilities, central = predict_night(
            self.forward,
            self.nights.signals(recording),
            length=LENGTH,
            stride=STRIDE,
            batch_size=_BATCH,
            device=self.device,
        )
        if not np.isfinite(probabilities).all():
            raise NotFiniteError(
                f"the predictions of {self.letter} are not finite; "
                f"{origin(self.nights, [recording])}"
            )
        true = np.frombuffer(night["stages"], np.int8)
        return score_night(night["cohort"], night["subject"], true, probabilities, central)


def compare_checkpoints(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    store: Store,
    cohorts: Sequence[str] = (),
    *,
    device: str | torch.device = "auto",
    watch: Watch = lambda nights, total, what: nights,
) -> Comparison:
    """Evaluate two networks on the same nights, and compare them subject by subject.

    A night that cannot be read, or of which either network makes no finite prediction, counts for
    neither.

    Parameters
    ----------
    a, b : path
        Checkpoints, or cells that kept their weights.
    store : Store
        Prepared nights, of the recipe of both.
    cohorts : sequence of str
        Those to evaluate on; all that neither has learned from if there are none.
    device : str or torch.device
    watch : callable
        Yields the nights that it is given, of which it is told the number and what is done with
        them; such as :func:`psdnorm.cli._shared.track`.

    Returns
    -------
    Comparison
    """
    both = {A: load_trained(Path(a)), B: load_trained(Path(b))}
    for trained in both.values():
        trained.check_takes(store)
    index, remarks = _unseen(store, both, cohorts)
    place = resolve_device(device)
    with quiet_libraries(), reproducible(place):
        sides = [_side(letter, trained, store, place) for letter, trained in both.items()]
        scores, failed = _evaluated(sides, index, watch)
    failed = [without_roots(words, store.path) for words in failed]
    if not scores[A]:
        raise StoreError(f"{store.path} has no night that could be evaluated: {failed[0]}")
    simulated = bool(index["simulated"].any())
    first, second = (_results(both[x], store, scores[x], simulated) for x in (A, B))
    tables, runs = arranged(first, second, by_seed=False)
    if tables is None:
        raise ArgumentError(f"{store.path} has no scored epoch of {_cohorts(index)}")
    name, arm = both[A].name, both[A].arm.label
    if both[B].arm.label != arm:
        name = f"{both[B].name} (B) against {name} (A)"
        arm = f"{both[B].arm.label} (B) against {arm} (A)"
    compared = ArmComparison(name, arm, tables, runs)
    others = [*remarks, *_learned(both), *(f"{words}." for words in tables.left_out)]
    doubts = [*same_folder(both[A].folder, both[B].folder), *_doubts(both)]
    return Comparison(first, second, [compared], doubts, others, failed)


def _side(letter: str, trained: Trained, store: Store, device: torch.device) -> _Side:
    model: Any = trained.model.to(device)
    return _Side(letter, accelerate(model, "auto"), trained.source(store, device), device)


def _unseen(
    store: Store, both: dict[str, Trained], wanted: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the nights to evaluate on, and remarks; refuse to evaluate on those of a training."""
    there = sorted(store.index["cohort"].unique())
    for cohort in wanted:
        if cohort not in there:
            raise ArgumentError(f"--cohort is {cohort!r}, expected one of {', '.join(there)}")
    simulated = store.index.groupby("cohort")["simulated"].any()
    remarks: list[str] = []
    seen: dict[str, list[str]] = {}
    for letter, trained in both.items():
        if trained.cohorts is None:
            remarks.append(f"{letter} does not say which cohorts it learned from: these may be.")
        named = sorted({*(wanted or there)} & (trained.cohorts or set()))
        # a cohort that was simulated has its name from people who were not in it
        others = [c for c in named if trained.training.get("simulated") and not simulated[c]]
        own = [c for c in named if c not in others]
        if others:
            remarks.append(f"{letter} learned from simulated nights called {listed(others)}.")
        if own and wanted:
            raise ArgumentError(
                f"--cohort names {listed(own)}, from which {letter} ({trained.folder}) learned: "
                "expected cohorts that neither has seen"
            )
        for cohort in own:
            seen.setdefault(cohort, []).append(letter)
    for letters in dict.fromkeys(map(tuple, seen.values())):
        whose = [cohort for cohort, those in seen.items() if tuple(those) == letters]
        remarks.append(f"Not compared, as {listed(letters)} learned from them: {', '.join(whose)}.")
    kept = [cohort for cohort in (wanted or there) if cohort not in seen]
    if not kept:
        raise ArgumentError(
            f"{store.path} has {', '.join(there)}, from all of which A or B learned, expected a "
            "cohort that neither has seen"
        )
    return store.index[store.index["cohort"].isin(kept)], remarks


def _evaluated(
    sides: list[_Side], index: pd.DataFrame, watch: Watch
) -> tuple[dict[str, list[pd.DataFrame]], list[str]]:
    """Return the scores of every night by side, and a sentence for each night that has none."""
    scores: dict[str, list[pd.DataFrame]] = {side.letter: [] for side in sides}
    failed = []
    nights = index[["cohort", "subject", "recording", "stages"]].to_dict("records")
    for night in watch(nights, len(nights), "evaluating"):
        try:
            found = {side.letter: side.score(night) for side in sides}
        except (StoreError, TrainingError) as error:
            failed.append(f"{night['recording']} is left out: {error}.")
            continue
        for letter, own in found.items():
            scores[letter].append(own)
    return scores, failed


def _results(
    trained: Trained, store: Store, scores: list[pd.DataFrame], simulated: bool
) -> Results:
    folder = trained.folder
    arm = asdict(trained.arm) | {"balanced": None, "arm": trained.arm.label}
    row = {"cell": 0, **arm, "hold_out": "", "seed": 0, "folder": folder}
    sizes = dict.fromkeys(("filter_size", "norm_depth", "balanced"), "Int64")
    cells = pd.DataFrame([row]).astype(sizes)
    subjects = subject_metrics(merge_scores(scores)).assign(cell=0)
    config = {
        "recipe": store.recipe,
        "recipe_sha256": store.hash,
        "protocol": {"length": LENGTH, "stride": STRIDE},
    }
    path = folder.parent if folder.name == WEIGHTS else folder
    return Results(path.absolute(), cells, subjects, [], config, simulated)


def _learned(both: dict[str, Trained]) -> list[str]:
    """Say what each side learned from, as far as its checkpoint does."""
    told = []
    for letter, trained in both.items():
        nights = trained.training.get("nights")
        if trained.cohorts is not None and isinstance(nights, int):
            kind = "simulated night" if trained.training.get("simulated") else "night"
            whose = listed(sorted(trained.cohorts))
            told.append(f"{letter} learned from {plural(nights, kind)} of {whose}.")
    return told


def _doubts(both: dict[str, Trained]) -> list[str]:
    ours, theirs = (
        (each.cohorts, each.training.get("nights"), each.training.get("simulated"))
        for each in both.values()
    )
    if ours == theirs:
        return []
    return ["A and B learned from other nights: gains may come from these."]


def _cohorts(index: pd.DataFrame) -> str:
    return listed(sorted(index["cohort"].unique()))
