"""Evaluate predictions: metrics per subject, calibration, and means as in the paper.

A run saves one row of counts per subject (:mod:`psdnorm.evaluation.scores`). Counts of the same
subject can be summed, so nights, windows and workers can be scored separately; every metric is
computed from them, so no report needs the predictions themselves. Norms are compared in
:mod:`psdnorm.evaluation.statistics`.
"""

from psdnorm.evaluation.means import MEAN_DATASET, MEAN_SUBJECT, aggregate, overall_means
from psdnorm.evaluation.metrics import (
    CalibrationBins,
    accuracy,
    balanced_accuracy,
    calibration_bins,
    cohen_kappa,
    confusion_matrix,
    expected_calibration_error,
    f1_per_class,
    macro_f1,
    weighted_f1,
)
from psdnorm.evaluation.scores import (
    CONFUSION,
    COUNTS,
    EPOCH,
    METRICS,
    PROBABILITIES,
    bins_of,
    confusions_of,
    merge_scores,
    read_scores,
    score_night,
    score_predictions,
    subject_metrics,
    write_scores,
)

__all__ = [
    "MEAN_DATASET",
    "MEAN_SUBJECT",
    "METRICS",
    "CalibrationBins",
    "accuracy",
    "aggregate",
    "balanced_accuracy",
    "bins_of",
    "calibration_bins",
    "cohen_kappa",
    "confusion_matrix",
    "confusions_of",
    "expected_calibration_error",
    "f1_per_class",
    "macro_f1",
    "merge_scores",
    "overall_means",
    "read_scores",
    "score_night",
    "score_predictions",
    "subject_metrics",
    "weighted_f1",
    "write_scores",
]
