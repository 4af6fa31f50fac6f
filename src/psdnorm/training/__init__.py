"""From a store to scores: one network, one held-out cohort, one folder.

A :class:`Cell` says what is trained, a :class:`Protocol` how; :func:`run_cell` does it.
"""

from psdnorm.training.adabn import ADABN, AdaptedCell, adapted_predictions, base_of, run_adapted
from psdnorm.training.aligned_nights import AlignedStore, align_night, alignment_of
from psdnorm.training.cell import (
    AUTO,
    CELL_NORMS,
    PROTOCOL_DEPTH,
    TMA,
    Cell,
    Protocol,
    filter_size_of,
    read_json,
    with_size,
)
from psdnorm.training.filter_size import CANDIDATES
from psdnorm.training.finite import NotFiniteError, finite_predictions, origin
from psdnorm.training.loop import Bars, Silent, Watcher
from psdnorm.training.network import (
    Network,
    build_model,
    check_model,
    network_for,
    throwaway_model,
    unshared_norms,
)
from psdnorm.training.predict import (
    Forward,
    NightPrediction,
    predict_epochs,
    predict_night,
    predict_nights,
)
from psdnorm.training.process import quiet_libraries, reproducible, resolve_device
from psdnorm.training.run import KEEP, Result, check_cohorts, run_cell, split_of
from psdnorm.training.run_folder import (
    CONFIG,
    DONE,
    FILE,
    HISTORY,
    LENDER,
    PREDICTIONS,
    SCORES,
    WEIGHTS,
    chosen_filter_size,
    predicted_sequences,
    write_json,
    write_outcome,
)

__all__ = [
    "Bars",
    "Cell",
    "NightPrediction",
    "Protocol",
    "Result",
    "Silent",
    "Watcher",
    "predict_night",
    "predict_nights",
    "run_cell",
]
