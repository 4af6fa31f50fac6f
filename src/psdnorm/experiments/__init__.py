"""Grids of runs: planning, execution and progress."""

from psdnorm.experiments.estimate import (
    COST,
    EPOCHS,
    H200,
    Amounts,
    PieceMeter,
    commit_of,
    from_finished,
    from_rates,
    measured_rates,
    merged_costs,
    read_cost,
    relative_work,
    short_patience,
)
from psdnorm.experiments.execute import (
    FAILURE,
    FINISHED,
    Job,
    OnProgress,
    RunOutcome,
    check_grid,
    cohorts_to_hold_out,
    means,
    run_grid,
    run_units,
    visible_gpus,
)
from psdnorm.experiments.grid import (
    CELLS,
    FORMAT,
    GRID,
    Axes,
    ExperimentFolder,
    PlannedRun,
    Unit,
    check_keys,
    complete,
    file_name,
    grid_of,
    integer,
    invalid,
    number,
    one_of,
    read_blocks,
    text,
    units_of,
)
from psdnorm.experiments.presets import PAPER_COHORTS, paper_presets, preset_named
from psdnorm.experiments.status import DONE_STATE, Status, status_of
