"""A folder with many recordings for :mod:`benchmarks.many`, some of them bad."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.lab.simulate import Trace, simulate_night, write_edf

COHORTS = ("ABC", "CFS", "HPAP", "PHYS", "SHHS")  # five rates from 100 to 256 Hz
FLAT = "flat"
# from the error of a recording that cannot be staged; a flat one can, and is not to be trusted
FAILURES = {
    "empty": "it is empty",
    "text": "it begins with b'Dear col'",
    "truncated": "is truncated",
    "no EEG": "found ECG, EMG",
    "10 s": "lasts 10 s",
}
_EEG = ("C3-M2", "C4-M1")
_IN_A_FOLDER = 100
_START = datetime(2001, 1, 1, 22, 30)


@dataclass(frozen=True)
class Folder:
    """Recordings on disk.

    Attributes
    ----------
    path : Path
    files : dict of str to Path
        By what the outputs of each must be called.
    kinds : dict of str to str
        What each is: one of :data:`FAILURES`, :data:`FLAT`, or the name of the simulated night
        that it is a copy of.
    epochs : dict of str to int
        Of the kinds that can be staged.
    """

    path: Path
    files: dict[str, Path]
    kinds: dict[str, str]
    epochs: dict[str, int]


def make_folder(place: Path, n: int, n_bad: int, n_distinct: int, minutes: float) -> Folder:
    """Write recordings, ``place/site-00/subject-0042/psg.edf``, all of one name.

    Parameters
    ----------
    place : Path
        Is made; the recordings that the others are links to lie beside it.
    n, n_bad : int
        Recordings in all, and bad ones among them, evenly spread, one kind after the other.
    n_distinct : int
        Simulated recordings that the good ones are copies of.
    minutes : float
        Their mean length, from half of which to one and a half they go.
    """
    models = place.with_name(f"{place.name}-distinct")
    models.mkdir(parents=True)
    epochs = {
        f"night {number}": _write_night(models / f"night {number}", number, length)
        for number, length in enumerate(np.linspace(0.5, 1.5, n_distinct) * minutes)
    }
    epochs[FLAT] = _write_bad(models)
    spoilt = [*FAILURES, FLAT]
    at = {int((number + 0.5) * n / n_bad): spoilt[number % len(spoilt)] for number in range(n_bad)}
    files, kinds = {}, {}
    for number in range(n):
        subject = f"subject-{number:04}"
        path = place / f"site-{number // _IN_A_FOLDER:02}" / subject / "psg.edf"
        path.parent.mkdir(parents=True)
        kind = at.get(number, f"night {number % n_distinct}")
        os.link(models / kind, path)
        files[f"{subject}-psg"], kinds[f"{subject}-psg"] = path, kind
    return Folder(place, files, kinds, epochs)


def _write_night(path: Path, number: int, minutes: float) -> int:
    """Write a simulated night; return its epochs."""
    cohort = COHORTS[number % len(COHORTS)]
    n_epochs = max(2, round(60 * minutes / EPOCH_S))
    night = simulate_night(cohort, number, hours=(n_epochs + 0.5) * EPOCH_S / 3600)
    _write(path, dict(zip(_EEG, night.signal, strict=True)), int(night.sfreq))
    return len(night.stages)


def _write_bad(folder: Path, n_epochs: int = 10) -> int:
    """Write one recording of each bad kind; return the epochs of those that last."""
    rng = np.random.default_rng(0)
    sfreq = 100

    def noise(seconds: float = n_epochs * EPOCH_S) -> NDArray[np.float32]:
        return 20 * rng.standard_normal(int(seconds * sfreq), np.float32)

    (folder / "empty").write_bytes(b"")
    (folder / "text").write_text("Dear colleague, the night is in the other file. " * 20)
    _write(folder / "truncated", {name: noise() for name in _EEG}, sfreq)
    size = (folder / "truncated").stat().st_size
    os.truncate(folder / "truncated", size // 2)
    _write(folder / "no EEG", {name: noise() for name in ("ECG", "EMG")}, sfreq)
    _write(folder / "10 s", {name: noise(10) for name in _EEG}, sfreq)
    _write(folder / FLAT, {name: 0 * noise() for name in _EEG}, sfreq)
    return n_epochs


def _write(path: Path, channels: dict[str, NDArray[np.float32]], sfreq: int) -> None:
    write_edf(path, [Trace(label, row, sfreq) for label, row in channels.items()], _START)
