"""Scores of a run: one row of counts per subject, from which every metric is computed.

Columns: ``cohort`` and ``subject``; ``W_as_N1`` and so on, the number of epochs of true stage W
predicted as N1; and for each confidence bin ``bin_00_epochs``, ``bin_00_correct`` and
``bin_00_confidence``, as in :class:`~psdnorm.evaluation.metrics.CalibrationBins`. All visits of
a subject share one row.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, MissingExtraError, ShapeError, StoreError
from psdnorm.evaluation import metrics
from psdnorm.evaluation.metrics import (
    N_BINS,
    CalibrationBins,
    as_probabilities,
    count_bins,
    expected_calibration_error,
)
from psdnorm.runtime import parquet_errors_as, written

try:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError(
        'an evaluation needs pandas and pyarrow: pip install "psdnorm[data]"'
    ) from error

KEYS = ["cohort", "subject"]
EPOCH = [*KEYS, "visit", "epoch"]
CONFUSION = [f"{true}_as_{predicted}" for true in STAGES for predicted in STAGES]
BIN_EPOCHS, BIN_CORRECT, BIN_CONFIDENCE = (
    [f"bin_{number:02}_{what}" for number in range(N_BINS)]
    for what in ("epochs", "correct", "confidence")
)
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in KEYS),
        *((name, pa.int64()) for name in (*CONFUSION, *BIN_EPOCHS, *BIN_CORRECT)),
        *((name, pa.float64()) for name in BIN_CONFIDENCE),
    ]
)
COUNTS = SCHEMA.names[len(KEYS) :]
PROBABILITIES = [f"p{number}" for number in range(len(STAGES))]
METRICS = (
    "balanced_accuracy",
    "accuracy",
    "macro_f1",
    "weighted_f1",
    "cohen_kappa",
    *(f"f1_{stage}" for stage in STAGES),
    "calibration_error",
)


def score_night(
    cohort: str,
    subject: str,
    true: ArrayLike,
    probabilities: ArrayLike,
    counted: ArrayLike | None = None,
) -> pd.DataFrame:
    """Score the epochs of one night: a row, to be merged with others by :func:`merge_scores`.

    ``true`` stages are (n,), -1 where unscored; ``probabilities`` (n, 5); ``counted`` (n,) is a
    mask of the epochs to count, such as the central ones; None counts all.
    """
    stages = metrics.as_stages(true)
    if counted is not None:
        mask = np.asarray(counted)
        if mask.shape != stages.shape or mask.dtype != bool:
            raise ShapeError(
                f"counted is {mask.dtype} of shape {mask.shape}, expected bool of {stages.shape}"
            )
        stages = np.where(mask, stages, metrics.UNSCORED)
    owner = pd.DataFrame({"cohort": [str(cohort)], "subject": [str(subject)]})
    return _scores(owner, np.zeros(stages.shape, np.intp), stages, probabilities)


def score_predictions(predictions: pd.DataFrame, only_central: bool = True) -> pd.DataFrame:
    """Score predictions, pooling all visits of a subject.

    Parameters
    ----------
    predictions : DataFrame
        One row per epoch: ``cohort``, ``subject``, ``visit``, ``epoch``, ``central`` (bool),
        ``true`` (-1 where unscored) and five probabilities, ``p0`` … ``p4``.
    only_central : bool
        Count only epochs from the middle of a window, as in the paper's tables; False counts all.
        A subject without any counted epoch still has a row.
    """
    check_columns("predictions", predictions, [*EPOCH, "central", "true", *PROBABILITIES])
    if predictions["central"].dtype != bool:
        raise ArgumentError(
            f"predictions has a column central of {predictions['central'].dtype}, expected bool"
        )
    check_rows("predictions", predictions, EPOCH)
    groups = predictions.groupby(KEYS, sort=True, observed=True).ngroup()
    owners = predictions[KEYS].assign(group=groups).drop_duplicates("group").sort_values("group")
    stages = metrics.as_stages(predictions["true"].to_numpy())
    if only_central:
        stages = np.where(predictions["central"].to_numpy(), stages, metrics.UNSCORED)
    probabilities = predictions[PROBABILITIES].to_numpy()
    return _scores(owners[KEYS], groups.to_numpy(np.intp), stages, probabilities)


def merge_scores(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Merge scores, summing the counts of the same subject; sorted by cohort and subject."""
    parts = list(tables)
    if not parts:
        return SCHEMA.empty_table().to_pandas()
    return pd.concat(parts).groupby(KEYS, as_index=False, sort=True)[COUNTS].sum()


def confusions_of(scores: pd.DataFrame) -> NDArray[np.int64]:
    """Return the confusion matrices of n subjects, (n, 5, 5)."""
    return scores[CONFUSION].to_numpy(np.int64).reshape(-1, len(STAGES), len(STAGES))


def bins_of(scores: pd.DataFrame) -> CalibrationBins:
    """Return the calibration bins of n subjects, (n, B)."""
    return CalibrationBins(
        scores[BIN_EPOCHS].to_numpy(np.int64),
        scores[BIN_CORRECT].to_numpy(np.int64),
        scores[BIN_CONFIDENCE].to_numpy(np.float64),
    )


def subject_metrics(scores: pd.DataFrame) -> pd.DataFrame:
    """Compute all metrics of each subject, one row per subject.

    Columns: ``cohort``, ``subject``, the number of scored ``epochs``, ``missing_stages``, the
    number of stages that do not occur in them, and :data:`METRICS`, NaN where undefined.
    """
    confusion = confusions_of(scores)
    f1 = metrics.f1_per_class(confusion)
    return (
        scores[KEYS]
        .assign(
            epochs=confusion.sum(axis=(1, 2)),
            missing_stages=(confusion.sum(axis=2) == 0).sum(axis=1),
            balanced_accuracy=metrics.balanced_accuracy(confusion),
            accuracy=metrics.accuracy(confusion),
            macro_f1=metrics.macro_f1(confusion),
            weighted_f1=metrics.weighted_f1(confusion),
            cohen_kappa=metrics.cohen_kappa(confusion),
            **{f"f1_{stage}": f1[:, number] for number, stage in enumerate(STAGES)},
            calibration_error=expected_calibration_error(bins_of(scores)),
        )
        .reset_index(drop=True)
    )


def write_scores(path: str | os.PathLike[str], scores: pd.DataFrame) -> None:
    """Write scores as Parquet, atomically."""
    _check_sums(scores, "scores")
    table = pa.Table.from_pandas(scores[SCHEMA.names], SCHEMA, preserve_index=False)
    with written(Path(path)) as file:
        pq.write_table(table.replace_schema_metadata(), file, compression="zstd")


def read_scores(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read and validate scores written by :func:`write_scores`."""
    with parquet_errors_as(path):
        table = pq.ParquetFile(path).read()
    if not table.schema.equals(SCHEMA):
        raise StoreError(f"{path} has other columns than the scores of a run")
    scores = table.to_pandas()
    _check_sums(scores, path)
    return scores


def check_columns(
    what: object, table: pd.DataFrame, names: Iterable[str], kind: type = ArgumentError
) -> None:
    missing = [name for name in names if name not in table]
    if missing:
        raise kind(f"{what} lack the columns {', '.join(missing)}")


def check_rows(
    what: str, table: pd.DataFrame, keys: list[str], by: Sequence[str] = (), hint: str = ""
) -> None:
    """Check that keys are not missing, and that each combination of by and keys has one row."""
    unknown = table[keys].isna().any()
    if unknown.any():
        raise ArgumentError(f"{what} has rows without {unknown.idxmax()}")
    twice = table.duplicated([*by, *keys])
    if twice.any():
        first = table[twice].iloc[0]
        row = ", ".join(f"{name} {first[name]}" for name in (*by, *keys))
        raise ArgumentError(f"{what} has {row} more than once{hint}")


def _scores(
    owners: pd.DataFrame, groups: NDArray, stages: NDArray, probabilities: ArrayLike
) -> pd.DataFrame:
    """Count the epochs of each owner; ``groups`` are positions in ``owners``."""
    p = as_probabilities(probabilities, stages)
    # NaN is allowed in unscored epochs, whose predicted stage is irrelevant
    confusion = metrics.count_confusions(stages, p.argmax(axis=-1), groups, len(owners))
    bins = count_bins(stages, p, groups, len(owners))
    counts = {
        **dict(zip(CONFUSION, confusion.reshape(len(owners), -1).T, strict=True)),
        **dict(zip(BIN_EPOCHS, bins.counts.T, strict=True)),
        **dict(zip(BIN_CORRECT, bins.correct.T, strict=True)),
        **dict(zip(BIN_CONFIDENCE, bins.confidence_sums.T, strict=True)),
    }
    names = {name: owners[name].astype(str).to_numpy() for name in KEYS}
    return pd.DataFrame({**names, **counts})


def _check_sums(scores: pd.DataFrame, what: str | os.PathLike[str]) -> None:
    """Check that matrices and bins count the same epochs, and that subjects are unique."""
    check_columns(what, scores, SCHEMA.names, StoreError)
    confusion, bins = confusions_of(scores), bins_of(scores)
    right = np.diagonal(confusion, axis1=1, axis2=2).sum(axis=1)
    same = (confusion.sum(axis=(1, 2)) == bins.counts.sum(axis=1)) & (right == bins.correct.sum(1))
    if not same.all():
        row = scores.iloc[int(np.flatnonzero(~same)[0])]
        raise StoreError(
            f"{what} is damaged: the counts of {row['cohort']} {row['subject']} do not add up"
        )
    twice = scores.duplicated(KEYS)
    if twice.any():
        row = scores[twice].iloc[0]
        raise StoreError(f"{what} has {row['cohort']} {row['subject']} more than once")
