"""A study: nights from a seed, a grid of runs on them in pieces, its scores in one file."""

from psdnorm.lab.study.result_cache import (
    available,
    borrow,
    is_packed,
    loans,
    pack,
    packed_path,
    restore,
    unusable,
)
from psdnorm.lab.study.study import (
    NIGHTS,
    Meter,
    SimulatedNights,
    Study,
    check_folder,
    check_networks,
    experiment_of,
    made_store,
    planned_amounts,
    read_study,
    run_study,
    seconds_of,
)

__all__ = ["SimulatedNights", "Study", "read_study"]
