"""The channels that stand beside the EEG in a file, at rates of their own.

A reader must leave them alone. Eyes move when the EEG says so; the others belong to no stage.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.electrode_noise import slow_noise
from psdnorm.lab.simulate.recorder import add_heart_beats
from psdnorm.lab.simulate.simulated_night import SimulatedNight

# seconds that a movement lasts and its height in µV
_EYES = {"blink": (0.3, 150.0), "eye_movement": (0.8, 120.0), "slow_eye_movement": (3.0, 80.0)}
_HEART_UV = 1000.0


class Other(NamedTuple):
    """A channel that is not EEG: its label, what it records, and its rate in Hz."""

    label: str
    kind: str
    sfreq: int

    @property
    def unit(self) -> str:
        """What the file declares."""
        return {"heart": "mV", "oxygen": "%"}.get(self.kind, "uV")


_NSRR = (Other("E1", "eyes", 128), Other("ECG", "heart", 256), Other("SpO2", "oxygen", 1))
_FAST = (Other("E1", "eyes", 256), Other("ECG", "heart", 512), Other("SpO2", "oxygen", 1))
_SLEEP_EDF = (Other("EOG horizontal", "eyes", 100), Other("EMG submental", "muscle", 1))
OTHERS: dict[str, tuple[Other, ...]] = {
    "ABC": _FAST,
    "CCSHS": _NSRR,
    "CFS": _NSRR,
    "HPAP": _NSRR,
    "MROS": _FAST,
    "SHHS": (Other("EOG(L)", "eyes", 50), Other("ECG", "heart", 250), Other("SaO2", "oxygen", 1)),
    "CHAT": _NSRR,
    "SOF": _NSRR,
    "PHYS": _SLEEP_EDF,
    "phys-st": _SLEEP_EDF,
    "MASS": (Other("EOG Left Horiz", "eyes", 256), Other("ECG ECGI", "heart", 512)),
}


def record(other: Other, night: SimulatedNight, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return what a channel beside the EEG records.

    Parameters
    ----------
    other : Other
    night : SimulatedNight
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float32, (T,)
        At the channel's own rate; µV, or per cent of oxygen.
    """
    n_samples = round(night.signal.shape[1] / night.sfreq * other.sfreq)
    noise = slow_noise(n_samples, other.sfreq, rng)
    if other.kind == "eyes":
        trace = 10 * noise
        for kind, (duration_s, height_uv) in _EYES.items():
            _add_turns(trace, other.sfreq, night.events[kind], duration_s, height_uv)
        return trace
    if other.kind == "heart":
        trace = 10 * noise
        add_heart_beats(trace[None], other.sfreq, np.array([_HEART_UV]), rng)
        return trace
    if other.kind == "muscle":
        return 3 * np.abs(noise)
    return np.clip(96 + noise, 0, 100)


def _add_turns(
    trace: NDArray[np.float32],
    sfreq: int,
    onsets_s: NDArray,
    duration_s: float,
    height_uv: float,
) -> None:
    """Add a turn of the eyes at each onset, in place."""
    t = np.arange(round(duration_s * sfreq)) / (duration_s * sfreq)
    wave = (height_uv * np.sin(np.pi * t) ** 2).astype(np.float32)
    for start in (onsets_s * sfreq).astype(int):
        piece = trace[start : start + len(wave)]
        piece += wave[: len(piece)]
