"""Stages in seconds: what every format of scoring is read into, and written from."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from psdnorm.errors import RecordingError
from psdnorm.io.recording import EPOCH_S
from psdnorm.io.stage_names import stage_of

_LAST_S = 30 * 86400.0


class Bout(NamedTuple):
    """A stage that lasts; -1 is unscored."""

    onset_s: float
    duration_s: float
    stage: int


def epochs_as_bouts(stages: Iterable[int]) -> list[Bout]:
    """Return one bout per 30 s epoch, from 0 s on."""
    return [Bout(EPOCH_S * index, EPOCH_S, stage) for index, stage in enumerate(stages)]


def bouts_of(stages: Sequence[int]) -> list[Bout]:
    """Return stages of 30 s epochs, (E,), as bouts, each as long as its stage lasts."""
    bouts = []
    onset_s = 0
    for stage, run in groupby(map(int, stages)):
        duration_s = EPOCH_S * len(list(run))
        bouts.append(Bout(onset_s, duration_s, stage))
        onset_s += duration_s
    return bouts


def known_stage(text: str, path: str | Path) -> int:
    """Return the stage that a text names; refuse one that names none."""
    stage = stage_of(text)
    if stage is None:
        raise RecordingError(
            f"{path} has {text.strip()!r:.50} as a stage, expected W, N1, N2, N3, REM or their "
            "names by Rechtschaffen & Kales"
        )
    return stage


def seconds(text: str, path: str | Path) -> float:
    """Return a time in seconds; refuse what is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= _LAST_S:
        raise RecordingError(
            f"{path} has {text.strip()!r:.50} as a time, expected seconds within {_LAST_S:.0f}"
        )
    return value
