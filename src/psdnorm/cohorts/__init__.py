"""The cohorts as they lie on disk: which file is whose night, and what is known of the sleeper."""

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
