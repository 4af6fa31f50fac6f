"""A night that was staged before, opened again from its files."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import RecordingError
from psdnorm.staging.lights import given_lights
from psdnorm.staging.reading import read_tsv
from psdnorm.staging.result_files import edf_start
from psdnorm.staging.sleep_statistics import SleepStatistics, sleep_statistics
from psdnorm.staging.writing import SUMMARY, read_summary

TABLE = ".tsv"


@dataclass(frozen=True, eq=False)
class ReopenedNight:
    """What the files of a staged night say.

    Attributes
    ----------
    folder : Path
    name : str
        What its files are called, without their endings.
    stages : ndarray of int8, (E,)
    probabilities : ndarray of float64, (E, 5)
    start : datetime or None
        When the recording starts, where the summary knows it and EDF+ can hold it.
    lights_off, lights_on : float or None
        In seconds from the start, as far as they were given.
    notice : str or None
        What must stand on every output.
    has_summary : bool
        Whether ``NAME.json`` was there; without it start, lights and notice are None.
    """

    folder: Path
    name: str
    stages: NDArray[np.int8]
    probabilities: NDArray[np.float64]
    start: datetime | None
    lights_off: float | None
    lights_on: float | None
    notice: str | None
    has_summary: bool

    def statistics(self, stages: NDArray[np.int8]) -> SleepStatistics:
        """Return the statistics of stages, (E,), under the lights that were given."""
        return sleep_statistics(stages, lights_off=self.lights_off, lights_on=self.lights_on)


def reopen(path: str | Path) -> ReopenedNight:
    """Open the table of a staged night, and the summary beside it.

    Parameters
    ----------
    path : str or Path
        ``NAME.tsv``, or the same without its ending.

    Raises
    ------
    RecordingError
        If there is no such table, it is damaged, or the summary is of another staging.
    """
    given = Path(path)
    table = given if given.suffix == TABLE else given.with_name(f"{given.name}{TABLE}")
    if not table.is_file():
        raise RecordingError(
            f"{given} is no staged night: expected NAME{TABLE}, as psdnorm stage writes it, or the "
            "same without its ending"
        )
    stages, probabilities = read_tsv(table)
    name = table.name.removesuffix(TABLE)
    summary = read_summary(table.parent, name)
    if summary is not None and summary.get("epochs") != len(stages):
        raise RecordingError(
            f"{table} has {len(stages)} epochs and {name}{SUMMARY} beside it "
            f"{summary.get('epochs')}, expected files of one staging"
        )
    known: dict[str, Any] = summary or {}
    off_s, on_s = given_lights(known.get("statistics") or {})
    return ReopenedNight(
        folder=table.parent,
        name=name,
        stages=stages,
        probabilities=probabilities,
        start=_start(known.get("start")),
        lights_off=off_s,
        lights_on=on_s,
        notice=known.get("notice"),
        has_summary=summary is not None,
    )


def _start(text: Any) -> datetime | None:
    try:
        start = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return edf_start(start.replace(tzinfo=None))  # EDF+ knows no time zones
