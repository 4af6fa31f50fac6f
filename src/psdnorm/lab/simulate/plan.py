"""Which nights are simulated: subjects and visits, named as the cohorts name theirs."""

import dataclasses
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

import psdnorm
from psdnorm.cohorts import COHORTS, Person
from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate.profiles import profile_of
from psdnorm.lab.simulate.simulated_night import (
    SimulatedNight,
    check_length,
    simulate_night,
    traits_of,
)
from psdnorm.runtime import digest

# prefix, number of the first subject, minimum number of digits
_NUMBERS = {
    "ABC": ("", 900001, 6),
    "CCSHS": ("", 1800001, 7),
    "CFS": ("", 800001, 6),
    "HPAP": ("", 1600001, 7),
    "MROS": ("aa", 1, 4),
    "SHHS": ("", 200001, 6),
    "CHAT": ("", 300001, 6),
    "SOF": ("", 1, 5),
    "PHYS": ("", 0, 2),
    "phys-st": ("", 0, 2),
    "MASS": ("01-03-", 1, 4),
}
# dates are blurred in downloads; this one is what the NSRR writes
_DATE = datetime(1985, 1, 1)
_BEDTIMES_H = (20.5, 23.5)


@dataclass(frozen=True)
class Settings:
    """What the nights of all cohorts have in common."""

    seed: int = 0
    hours: float = 8.0  # rounded down to whole epochs of 30 s
    shift: float = 1.0  # how far the cohorts are from each other, see simulate_night


@dataclass(frozen=True)
class PlannedNight:
    """A night that can be simulated."""

    cohort: str
    # the subject's place in the cohort, from 0; name, family, channel labels and formats of the
    # scoring follow from it
    index: int
    night: int  # from 0
    subject: str  # as in the cohort's file names
    visit: str  # as in the cohort's file names; "" in a cohort without visits
    settings: Settings

    @property
    def n_epochs(self) -> int:
        """Length in epochs of 30 s."""
        return int(self.settings.hours * 120)

    @property
    def start(self) -> datetime:
        """When it begins, in the evening."""
        first_h, last_h = _BEDTIMES_H
        hour = self.stream("start").uniform(first_h, last_h)
        return _DATE + timedelta(seconds=int(hour * 3600))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that its samples depend on."""
        return digest(dataclasses.asdict(self) | {"psdnorm": psdnorm.__version__})

    def stream(self, what: str) -> np.random.Generator:
        """Return the random stream of a part of the files that the signal does not depend on."""
        texts = (self.cohort, self.subject, what)
        seeds = [self.settings.seed, self.night, *(zlib.crc32(text.encode()) for text in texts)]
        return np.random.default_rng(seeds)

    def simulate(self) -> SimulatedNight:
        """Simulate it."""
        own = self.settings
        return simulate_night(
            self.cohort, self.subject, self.night, own.seed, hours=own.hours, shift=own.shift
        )

    def person(self) -> Person:
        """Return age, sex and family as the cohort's tables give them, if it has any."""
        tables = COHORTS[self.cohort].people
        if tables is None:
            return Person()
        own = self.settings
        traits = traits_of(profile_of(self.cohort), self.subject, own.seed, own.shift)
        # families of one and two take turns
        triple, place = divmod(self.index, 3)
        family = str(1001 + 2 * triple + (place == 2)) if tables.family else None
        return Person(round(traits.age_y, 1), traits.sex, family)


def plan_nights(
    cohorts: Sequence[str], n_subjects: int, n_nights: int, settings: Settings
) -> list[PlannedNight]:
    """Return the nights of some cohorts, by cohort, subject and visit (see `fewer_visits`)."""
    for name, value in (("subjects", n_subjects), ("nights", n_nights)):
        if value < 1:
            raise ArgumentError(f"{name} is {value}, expected at least 1")
    nights = []
    for name in dict.fromkeys(profile_of(cohort).name for cohort in cohorts):
        profile = profile_of(name)
        profile.at(settings.shift)
        check_length(profile, 0, settings.seed, settings.hours)
        for index in range(n_subjects):
            subject = _number(name, index, n_subjects)
            visits = visits_of(name, index)[:n_nights]
            nights += [
                PlannedNight(name, index, night, subject, visit, settings)
                for night, visit in enumerate(visits)
            ]
    return nights


def fewer_visits(nights: Sequence[PlannedNight], n_nights: int) -> list[str]:
    """Return a sentence for each cohort with fewer nights per subject than requested."""
    sentences = []
    for cohort in dict.fromkeys(night.cohort for night in nights):
        subjects = {night.index for night in nights if night.cohort == cohort}
        visits = [len(visits_of(cohort, index)) for index in subjects]
        if min(visits) < n_nights:
            least, most = min(visits), max(visits)
            number = f"{least}" if least == most else f"{least} or {most}"
            nouns = "night" if most == 1 else "nights"
            sentences.append(f"{cohort} has {number} {nouns} per subject, not {n_nights}")
    return sentences


def visits_of(cohort: str, index: int) -> tuple[str, ...]:
    """Return the visits of a cohort's subject in order; one visit "" if the cohort has none."""
    if cohort == "CHAT":
        # only those who were randomized were followed up
        return ("nonrandomized",) if index % 4 == 3 else ("baseline", "followup")
    return COHORTS[cohort].visits or ("",)


def _number(cohort: str, index: int, n_subjects: int) -> str:
    prefix, first, width = _NUMBERS[cohort]
    number = f"{prefix}{first + index:0{width}d}"
    if re.fullmatch(COHORTS[cohort].subject, number) is None:
        raise ArgumentError(
            f"subjects is {n_subjects}, expected at most {index} for {cohort}, whose file names "
            f"have {width} digits for them"
        )
    return number
