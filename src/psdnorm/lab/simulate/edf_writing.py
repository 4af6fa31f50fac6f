"""A simulated night as an EDF that says that it is one."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import MissingExtraError
from psdnorm.io.edf_header import SIMULATED
from psdnorm.runtime.files import written

RECORD_S = 1
_UNITS = {"uV": 1.0, "mV": 1e-3, "V": 1e-6}  # a µV in each
_LEAST_UV = 250.0
_DIGITAL_MAX = 32767


@dataclass(frozen=True, eq=False)
class Trace:
    """One channel of a file.

    Parameters
    ----------
    label : str
    values : ndarray of float32, (T,)
        µV, whatever the unit; where that is ``%``, from 0 to 100.
    sfreq : int
        Its own sampling rate in Hz.
    unit : {"uV", "mV", "V", "%"}
        What the file declares.
    """

    label: str
    values: NDArray[np.float32] = field(repr=False)
    sfreq: int
    unit: str = "uV"


def write_edf(path: Path, traces: Sequence[Trace], start: datetime) -> None:
    """Write an EDF, whole or not at all.

    No sample is clipped: a channel's range is the smallest of 250, 500, 1000, … µV that holds it,
    so that a step is 0.008 µV for a quiet one.

    Parameters
    ----------
    path : Path
    traces : sequence of Trace
        All of the same length in seconds, a whole number of them.
    start : datetime
    """
    edfio = _edfio()
    equipment, simulated = SIMULATED.decode().split()
    recording = edfio.Recording(
        startdate=start.date(), equipment_code=equipment, additional=[simulated]
    )
    edf = edfio.Edf(
        [_signal(edfio, trace) for trace in traces],
        patient=edfio.Patient(),
        recording=recording,
        starttime=start.time(),
        data_record_duration=RECORD_S,
    )
    # into memory first: what edfio says of a full disk does not name it
    content = io.BytesIO()
    edf.write(content)
    with written(path) as file:
        file.write(content.getbuffer())


def edf_bytes(rates: Sequence[int], duration_s: int) -> int:
    """Return how large a file with channels of these rates in Hz is."""
    return 256 * (len(rates) + 1) + 2 * sum(rates) * duration_s


def _edfio() -> Any:
    try:
        import edfio
    except ImportError as error:
        raise MissingExtraError(
            'writing EDF needs edfio: pip install "psdnorm[recordings]"'
        ) from error
    return edfio


def _signal(edfio: Any, trace: Trace) -> Any:
    if trace.unit == "%":
        limit, physical, least = 100.0, (0.0, 100.0), 0
    else:
        limit = _limit_uv(trace.values)
        high = limit * _UNITS[trace.unit]
        physical, least = (-high, high), -_DIGITAL_MAX
    steps = np.rint(trace.values * np.float32(_DIGITAL_MAX / limit)).astype(np.int16)
    return edfio.EdfSignal.from_digital(
        steps,
        trace.sfreq,
        label=trace.label,
        physical_dimension=trace.unit,
        physical_range=physical,
        digital_range=(least, _DIGITAL_MAX),
    )


def _limit_uv(values: NDArray[np.float32]) -> float:
    highest = max(float(values.max()), -float(values.min()))
    limit = _LEAST_UV
    while limit < highest:
        limit *= 2
    return limit
