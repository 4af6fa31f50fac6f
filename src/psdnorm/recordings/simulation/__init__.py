"""Simulated nights: sleep EEG of ten cohorts that differ as laboratories and people do.

See ``docs/simulation.md`` for what is simulated, every knob, and what it is not.
"""

from psdnorm.recordings.simulation.night import SimulatedNight, simulate_night
from psdnorm.recordings.simulation.profiles import PROFILES, CohortProfile, profile_of

__all__ = ["PROFILES", "CohortProfile", "SimulatedNight", "profile_of", "simulate_night"]
