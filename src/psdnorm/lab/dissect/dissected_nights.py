"""The test nights of a dissection: simulated, prepared, and in a store while they are needed."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from psdnorm.errors import ArgumentError, RecordingError, StoreError
from psdnorm.io.recording import Recording
from psdnorm.lab.dissect.troubles import NAME, UNSHIFTED_PROFILE, Condition, simulate_condition
from psdnorm.lab.simulate.simulated_night import check_length
from psdnorm.prepare.preprocess import preprocess
from psdnorm.prepare.recipe import Recipe
from psdnorm.runtime.parallel import in_processes
from psdnorm.store import Night, Store


class Made(NamedTuple):
    """What became of a night.

    Attributes
    ----------
    condition : Condition
    subject : str
    reason : str
        A sentence where the recipe refuses it, else "".
    """

    condition: Condition
    subject: str
    reason: str = ""

    @property
    def recording(self) -> str:
        """Its name in the store."""
        return f"{self.condition.name}-{self.subject}"


@dataclass(frozen=True)
class TestNights:
    """Nights of the same subjects under several conditions; in a store, a condition is a cohort.

    Parameters
    ----------
    folder : Path
        Of the store.
    recipe : Recipe
    subjects : int
    hours : float
    seed : int
    """

    __test__ = False  # pytest takes every class of such a name for its own

    folder: Path
    recipe: Recipe
    subjects: int
    hours: float
    seed: int

    def check(self) -> None:
        """Refuse what cannot be simulated, before anything is written."""
        if type(self.subjects) is not int or self.subjects < 1:
            raise ArgumentError(f"subjects is {self.subjects!r}, expected a whole number from 1 on")
        check_length(UNSHIFTED_PROFILE, 0, self.seed, self.hours)
        n_channels = len(UNSHIFTED_PROFILE.channels)
        if self.recipe.n_channels != n_channels:
            raise ArgumentError(
                f"the recipe {self.recipe.name!r} has {self.recipe.n_channels} channels, expected "
                f"the {n_channels} of a simulated night"
            )

    def named(self, conditions: Sequence[Condition]) -> list[Made]:
        """Return the nights of some conditions, those of a subject together."""
        names = [f"{number:03}" for number in range(self.subjects)]
        return [Made(condition, name) for name in names for condition in conditions]

    def make(self, conditions: Sequence[Condition], jobs: int = 1) -> Iterator[Made]:
        """Simulate and prepare the nights of some conditions; those that are there stay.

        Parameters
        ----------
        conditions : sequence of Condition
        jobs : int
            Processes at a time.

        Yields
        ------
        Made
            As they come.

        Raises
        ------
        StoreError
            A disk that is full, or a process that died: give the same command again.
        """
        if jobs < 1:
            raise ArgumentError(f"jobs is {jobs}, expected at least 1")
        nights = self.named(conditions)
        store = Store.plan(self.folder.absolute(), self.recipe.to_dict(), self.recipe.layout())
        store.make_room()
        work = functools.partial(_add, store, self)
        try:
            if jobs == 1 or len(nights) < 2:
                yield from map(work, nights)
            else:
                yield from in_processes(work, nights, min(jobs, len(nights)), _lost)
        finally:
            store.finish()

    def open(self) -> Store:
        """Open the store of the nights that were made."""
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} does not exist: no test night could be made")
        return Store.open(self.folder, self.recipe.to_dict())

    def night(self, made: Made) -> Night:
        """Simulate and prepare one night.

        Parameters
        ----------
        made : Made

        Returns
        -------
        Night
            Whose cohort is the condition.
        """
        found = simulate_condition(made.condition, made.subject, self.seed, hours=self.hours)
        recording = Recording(
            found.signal, found.channels, found.sfreq, found.stages, None, made.recording
        )
        # trimmed as a cohort that no recipe names
        prepared = preprocess(recording, self.recipe, NAME)
        return Night(
            made.recording,
            made.condition.name,
            made.subject,
            prepared.signals,
            prepared.stages,
            channels=recording.channels,
            flags=prepared.flags,
            simulated=True,
            source=f"psdnorm dissect, seed {self.seed}, {self.hours:g} h",
            age=round(found.age_y, 1),
            sex=found.sex,
        )


def _add(store: Store, nights: TestNights, made: Made) -> Made:
    if store.known(made.recording) is not None:
        return made
    try:
        store.add(nights.night(made))
    except RecordingError as error:  # it would be refused the next time, too
        return made._replace(reason=str(error))
    return made


def _lost(made: Made, reason: str) -> Made:
    raise StoreError(f"the test night {made.recording} was not made: {reason}")
