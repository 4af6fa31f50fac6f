"""Which kind of shift costs which norm how much accuracy."""

from psdnorm.lab.dissect.dissection import (
    Dissection,
    Models,
    begun_with,
    find_models,
    metered,
    without_damaged,
)
from psdnorm.lab.dissect.dissection_report import limits, read_losses, write_dissection
from psdnorm.lab.dissect.shifts import KINDS, conditions_of, simulate_condition
