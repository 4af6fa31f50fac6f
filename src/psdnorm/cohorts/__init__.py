"""Cohorts on disk: which files belong to which night, and what is known about the sleeper."""

from psdnorm.cohorts.discovery import NAMES, channels_used, find_nights, read_night
from psdnorm.cohorts.file_layout import Found, NightFiles, Problem, below
from psdnorm.cohorts.known_cohorts import COHORTS, Cohort, People
from psdnorm.cohorts.own_folder import parse_channels
from psdnorm.cohorts.people import Person

__all__ = [
    "COHORTS",
    "NAMES",
    "Cohort",
    "Found",
    "NightFiles",
    "People",
    "Problem",
    "channels_used",
    "find_nights",
    "read_night",
]
