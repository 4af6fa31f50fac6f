"""Train one network on a store and score it on one held-out cohort, in one folder.

A :class:`Run` defines what is trained, a :class:`Protocol` how; :func:`train_run` does it.
"""

from psdnorm.training.aligned_nights import AlignedStore, align_night, alignment_of
from psdnorm.training.filter_size import CANDIDATES
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
    NotFiniteError,
    adapted_predictions,
    finite_predictions,
    origin,
    predict_epochs,
    predict_night,
    predict_nights,
)
from psdnorm.training.run import (
    ADABN,
    ALL,
    ARM,
    AUTO,
    AUTO_SIZE,
    MODEL_NAMES,
    NORM_NAMES,
    PAPER_NORMS,
    PROTOCOL_DEPTH,
    PROTOCOL_FILTER,
    SIZES,
    TMA,
    VARIANTS,
    WITH_PSD_NORM,
    Arm,
    JsonRecord,
    Protocol,
    Run,
    is_by_night,
    model_name,
    norm_name,
    setting_name,
    unusual,
    with_size,
)
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
    write_outcome,
)
from psdnorm.training.train import (
    KEEP,
    Result,
    check_cohorts,
    quiet_libraries,
    reproducible,
    resolve_device,
    run_adapted,
    split_of,
    train_run,
)

__all__ = [
    "Bars",
    "NightPrediction",
    "Protocol",
    "Result",
    "Run",
    "Silent",
    "Watcher",
    "predict_night",
    "predict_nights",
    "train_run",
]
