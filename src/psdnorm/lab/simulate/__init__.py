"""Simulated nights: sleep EEG of ten cohorts that differ as laboratories and people do.

See ``docs/simulation.md`` for what is simulated, every knob, and the limits.
"""

from psdnorm.lab.simulate.cohort_files import (
    Trace,
    add_nights,
    as_recording,
    bytes_missing,
    bytes_missing_in,
    name_of,
    prepared_night,
    write_edf,
    write_nights,
)
from psdnorm.lab.simulate.hypnograms import sleep_period
from psdnorm.lab.simulate.plan import PlannedNight, Settings, fewer_visits, plan_nights
from psdnorm.lab.simulate.profiles import (
    MOST_SHIFT,
    PROFILES,
    CohortProfile,
    band_powers_db,
    profile_of,
)
from psdnorm.lab.simulate.simulated_night import (
    SimulatedNight,
    check_length,
    simulate_night,
    wide_recording,
)

__all__ = ["PROFILES", "CohortProfile", "SimulatedNight", "profile_of", "simulate_night"]
