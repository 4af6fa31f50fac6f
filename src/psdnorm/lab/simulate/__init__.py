"""Simulated nights: sleep EEG of ten cohorts that differ as laboratories and people do.

See ``docs/simulation.md`` for what is simulated, every knob, and what it is not.
"""

from psdnorm.lab.simulate.profiles import PROFILES, CohortProfile, profile_of
from psdnorm.lab.simulate.simulated_night import SimulatedNight, simulate_night

__all__ = ["PROFILES", "CohortProfile", "SimulatedNight", "profile_of", "simulate_night"]
