"""The nights of a study: planned from its numbers, made where they lack, never stored with it."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psdnorm
from psdnorm.experiments import Amounts
from psdnorm.lab.simulate import (
    PlannedNight,
    Settings,
    add_nights,
    bytes_missing_in,
    name_of,
    plan_nights,
)
from psdnorm.lab.study.definition import Nights, Study
from psdnorm.prepare import load_recipe
from psdnorm.store import Store

if TYPE_CHECKING:
    import pandas as pd

Watched = Callable[[Iterable[PlannedNight], int], Iterable[PlannedNight]]


def planned_nights(nights: Nights) -> list[PlannedNight]:
    """Return the nights of a study, one a subject."""
    planned = []
    for cohort, number in nights.subjects.items():
        settings = Settings(nights.seed, nights.hours, nights.shift[cohort])
        planned += plan_nights([cohort], number, 1, settings)
    return planned


class PlannedStore:
    """Stands for a store that is not made yet, where only its index is looked at."""

    def __init__(self, nights: Nights) -> None:
        self._nights = planned_nights(nights)

    @property
    def index(self) -> "pd.DataFrame":
        """Cohort, subject, family, recording and epochs of each night."""
        import pandas as pd

        return pd.DataFrame(
            {
                "cohort": [night.cohort for night in self._nights],
                "subject": [night.subject for night in self._nights],
                "family": pd.Series([n.person().family for n in self._nights], dtype=object),
                "recording": [name_of(night) for night in self._nights],
                "epochs": [night.n_epochs for night in self._nights],
            }
        )


def planned_amounts(study: Study) -> Amounts:
    """Return how much the cells of a study have to go through, before its nights are made."""
    return Amounts(cast(Any, PlannedStore(study.nights)), study.protocol)


def store_folder(work: Path, nights: Nights) -> Path:
    """Return where the nights of a study are; studies of the same nights share them."""
    known: dict[str, Any] = dataclasses.asdict(nights) | {"psdnorm": psdnorm.__version__}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return work / f"nights-{nights.recipe}-{digest[:12]}"


def made_store(work: Path, nights: Nights, jobs: int, watched: Watched) -> Store:
    """Open the store of a study; make the nights that it lacks."""
    folder, recipe = store_folder(work, nights), load_recipe(nights.recipe)
    planned = planned_nights(nights)
    if bytes_missing_in(folder, planned, recipe):
        made = add_nights(folder, planned, recipe, jobs)
        with contextlib.closing(made):  # interrupted, it still writes the index
            for _ in watched(made, len(planned)):
                pass
    return Store.open(folder, recipe.to_dict())
