"""The files that staging leaves, each whole or not at all; none says who slept."""

import json
import platform
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.io import EPOCH_S, STAGES
from psdnorm.io.bouts import epochs_as_bouts
from psdnorm.io.edf_plus import write_annotations
from psdnorm.io.scoring import write_stages
from psdnorm.runtime.files import written
from psdnorm.staging.agreement import Agreement
from psdnorm.staging.checks import as_probabilities, as_stages, confidence_of, name_of
from psdnorm.staging.plain import plain
from psdnorm.staging.sleep_statistics import SleepStatistics

MISSING = "n/a"
COLUMNS = ("onset", "duration", "stage", *(f"p_{name}" for name in STAGES), "confidence")
# the texts that EDF+ standardises, which MNE and EDFbrowser know; AASM's N1 is its 1
_EDF_NAMES = ("W", "1", "2", "3", "R")
# an EDF header has two digits for the year
_EDF_YEARS = range(1985, 2085)


def write_tsv(path: str | Path, stages: ArrayLike, probabilities: ArrayLike) -> None:
    """Write a hypnogram as BIDS events, one row per 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored, which is written as n/a.
    probabilities : array of float, (E, 5)
        Written with six decimals; n/a where NaN. ``confidence`` is that of the row's stage.
    """
    night = as_stages(stages)
    known = as_probabilities(probabilities, len(night))
    confidence = confidence_of(night, known)
    lines = ["\t".join(COLUMNS)]
    for epoch, stage in enumerate(night):
        numbers = [_number(value) for value in (*known[epoch], confidence[epoch])]
        row = (str(EPOCH_S * epoch), str(EPOCH_S), name_of(stage, MISSING), *numbers)
        lines.append("\t".join(row))
    _write_lines(path, lines)


def write_edf_annotations(
    path: str | Path,
    stages: ArrayLike,
    start: datetime | None = None,
    *,
    notice: str | None = None,
) -> None:
    """Write a hypnogram as an EDF+ file of annotations alone, one per 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
        Written as ``Sleep stage W``, ``1``, ``2``, ``3``, ``R`` and ``?``.
    start : datetime, optional
        When the recording starts; 1 January 1985, midnight, stands for an unknown one.
    notice : str, optional
        A line for whoever reads the file: an annotation at 0 s of no length.
    """
    first = [] if notice is None else [(0.0, 0.0, notice)]
    epochs = epochs_as_bouts(as_stages(stages).tolist())
    bouts = [(b.onset_s, b.duration_s, _edf_text(b.stage)) for b in epochs]
    annotate(path, first + bouts, start)


def edf_start(start: datetime | None) -> datetime | None:
    """Return a start that EDF+ can hold; None for one that it cannot, as of anonymised files."""
    return start if start is not None and start.year in _EDF_YEARS else None


def annotate(
    path: str | Path, annotations: list[tuple[float, float, str]], start: datetime | None
) -> None:
    """Write annotations (onset, duration in seconds, text) as EDF+, whole or not at all."""
    if start is not None and start.year not in _EDF_YEARS:
        raise ArgumentError(
            f"start is in {start.year}, expected {_EDF_YEARS[0]} to {_EDF_YEARS[-1]}, which EDF+ "
            "can hold"
        )
    with written(Path(path)) as file:
        write_annotations(file.name, annotations, start)


def write_text(path: str | Path, stages: ArrayLike) -> None:
    """Write a hypnogram as text, one of W, N1, N2, N3, REM and ? per line and 30 s epoch.

    Parameters
    ----------
    path : str or Path
    stages : array of int, (E,)
    """
    night = as_stages(stages).tolist()
    with written(Path(path)) as file:
        write_stages(file.name, night, "text")


def write_json(
    path: str | Path,
    statistics: SleepStatistics,
    *,
    model: Mapping[str, Any] | None = None,
    agreement: Agreement | None = None,
    notice: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write what a night amounts to: statistics, what they were made with, agreement.

    Parameters
    ----------
    path : str or Path
    statistics : SleepStatistics
        Its ``lights`` says what lights off and on were taken from.
    model : mapping, optional
        What tells the network: name, recipe, hash.
    agreement : Agreement, optional
        With a human scoring.
    notice : str, optional
        A line for whoever reads the file, which comes first in it.
    more : mapping, optional
        Further sections by name.

    Raises
    ------
    ArgumentError
        If something in it cannot be JSON, or ``more`` has a section that is there already.
    """
    document: dict[str, Any] = {} if notice is None else {"notice": notice}
    document["statistics"] = statistics.to_dict()
    document["model"] = None if model is None else dict(model)
    if agreement is not None:
        document["agreement"] = agreement.to_dict()
    document["versions"] = {
        "psdnorm": psdnorm.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    for name, section in (more or {}).items():
        if name in document:
            raise ArgumentError(f"more has the section {name!r}, which the summary has already")
        document[name] = section
    try:
        text = json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written as JSON: {error}") from error
    _write_lines(path, [text])


def _edf_text(stage: int) -> str:
    return f"Sleep stage {_EDF_NAMES[stage] if stage >= 0 else '?'}"


def _number(value: np.float64) -> str:
    return MISSING if np.isnan(value) else f"{value:.6f}"


def _write_lines(path: str | Path, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    with written(Path(path)) as file:
        file.write(content)
