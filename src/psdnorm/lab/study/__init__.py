"""A study: nights from a seed, a grid of cells on them, run in pieces, its scores in one file."""

from psdnorm.lab.study.definition import Nights, Study, check_networks, read_study
from psdnorm.lab.study.result_cache import (
    NIGHTS,
    Meter,
    borrow,
    check_folder,
    is_packed,
    left_behind,
    loans,
    pack,
    packed_path,
    restorable,
    restore,
)
from psdnorm.lab.study.running import (
    MinutesAreUp,
    check_minutes,
    for_minutes,
    run_study,
    runs_of,
    seconds_of,
    sigterm_is_ctrl_c,
)
from psdnorm.lab.study.study_nights import made_store, planned_amounts

__all__ = ["Nights", "Study", "read_study"]
