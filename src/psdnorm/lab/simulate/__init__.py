"""Simulated nights: sleep EEG of ten cohorts that differ as laboratories and people do.

See ``docs/simulation.md`` for what is simulated, every knob, and what it is not.
"""

from psdnorm.lab.simulate.cohort_files import bytes_missing, write_nights
from psdnorm.lab.simulate.into_store import add_nights, bytes_missing_in, name_of
from psdnorm.lab.simulate.plan import PlannedNight, Settings, fewer_visits, plan_nights
from psdnorm.lab.simulate.profiles import MOST_SHIFT, PROFILES, CohortProfile, profile_of
from psdnorm.lab.simulate.simulated_night import SimulatedNight, check_length, simulate_night

__all__ = ["PROFILES", "CohortProfile", "SimulatedNight", "profile_of", "simulate_night"]
