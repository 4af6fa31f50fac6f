"""A hypnogram that staging wrote is read back, probabilities and all."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import PsdnormError, RecordingError
from psdnorm.io import EPOCH_S, STAGES, UNSCORED
from psdnorm.staging.checks import as_probabilities
from psdnorm.staging.result_files import COLUMNS, MISSING

_STAGES = {name: stage for stage, name in enumerate(STAGES)} | {MISSING: UNSCORED}


def read_tsv(path: str | Path) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Read what :func:`~psdnorm.staging.write_tsv` wrote.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    stages : ndarray of int8, (E,)
    probabilities : ndarray of float64, (E, 5)
        To six decimals; NaN where n/a.

    Raises
    ------
    RecordingError
        If it cannot be read, is another table, or has an epoch missing or damaged. A scoring
        without probabilities is read by :func:`psdnorm.io.read_stages`.
    """
    rows = [line.split("\t") for line in _text(path).splitlines()]
    if not rows or tuple(rows[0]) != COLUMNS:
        found = ", ".join(rows[0]) if rows else "none"
        raise RecordingError(
            f"{path} has the columns {found[:100]!r}, expected {', '.join(COLUMNS)}"
        )
    stages = np.empty(len(rows) - 1, np.int8)
    probabilities = np.empty((len(rows) - 1, len(STAGES)))
    for epoch, row in enumerate(rows[1:]):
        line = f"{path} has in line {epoch + 2}"
        if len(row) != len(COLUMNS):
            raise RecordingError(f"{line} {len(row)} columns, expected {len(COLUMNS)}")
        onset_s, duration_s = _value(row[0], line), _value(row[1], line)
        if (onset_s, duration_s) != (EPOCH_S * epoch, EPOCH_S):
            raise RecordingError(
                f"{line} the onset {row[0]} and the duration {row[1]}, expected {EPOCH_S * epoch} "
                f"and {EPOCH_S}, as epochs follow each other"
            )
        if row[2] not in _STAGES:
            raise RecordingError(
                f"{line} {row[2][:50]!r} as a stage, expected one of {', '.join(_STAGES)}"
            )
        stages[epoch] = _STAGES[row[2]]
        probabilities[epoch] = [_value(cell, line) for cell in row[3:-1]]
    try:
        return stages, as_probabilities(probabilities)
    except PsdnormError as error:
        raise RecordingError(f"{path}: {error}") from error


def _value(cell: str, line: str) -> float:
    if cell == MISSING:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        raise RecordingError(f"{line} {cell[:50]!r}, expected a number or {MISSING}") from None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise RecordingError(f"{path} is no text, expected a table") from None
