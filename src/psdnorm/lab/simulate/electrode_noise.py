"""From the two derivations of a night to the electrodes that a cohort's files hold."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.signal
from numpy.typing import NDArray

# RMS of what cancels when the derivations are formed
_NOISE_UV = {"first_reference": 8.0, "second_reference": 8.0, "lateral": 5.0}


@dataclass(frozen=True)
class Mixture:
    """What a channel of a file is made of.

    Parameters
    ----------
    first, second : float
        Share of the night's two derivations.
    first_reference, second_reference : float
        Share of what their reference electrodes see.
    lateral : float
        Share of what differs between left and right.
    """

    first: float = 0.0
    second: float = 0.0
    first_reference: float = 0.0
    second_reference: float = 0.0
    lateral: float = 0.0


Electrodes = Mapping[str, Mixture]  # a channel's label → what it is made of


def derived(first: str, second: str) -> Electrodes:
    """Two channels that were derived before they were stored."""
    return {first: Mixture(first=1), second: Mixture(second=1)}


def apart(left: str, right: str, letter: str) -> Electrodes:
    """Two electrodes and their references, on the other side, for the reader to derive from."""
    return {
        left: Mixture(first=1, first_reference=1),
        right: Mixture(second=1, second_reference=1),
        f"{letter}1": Mixture(second_reference=1),
        f"{letter}2": Mixture(first_reference=1),
    }


def linked(reference: str) -> Electrodes:
    """Electrodes against linked ears: (Fp1+Fp2)/2-Cz and Pz-Oz are the derivations."""
    return {
        f"EEG Fp1-{reference}": Mixture(first=1, first_reference=1, lateral=1),
        f"EEG Fp2-{reference}": Mixture(first=1, first_reference=1, lateral=-1),
        f"EEG Cz-{reference}": Mixture(first_reference=1),
        f"EEG Pz-{reference}": Mixture(second=1, second_reference=1),
        f"EEG Oz-{reference}": Mixture(second_reference=1),
    }


_MASTOIDS, _EARS = apart("C3", "C4", "M"), apart("C3", "C4", "A")
_FRONT_TO_BACK = derived("EEG Fpz-Cz", "EEG Pz-Oz")
_SECOND_EEGS = ("EEG(sec)", "EEG(SEC)", "EEG2", "EEG 2", "EEG sec")
# one way or several, which take turns from subject to subject
WAYS: dict[str, tuple[Electrodes, ...]] = {
    "ABC": (_MASTOIDS,),
    "CCSHS": (_EARS,),
    "CFS": (_MASTOIDS, _EARS),
    # several sites
    "HPAP": (_MASTOIDS, derived("C3-M2", "C4-M1"), apart("EEG C3", "EEG C4", "M")),
    "MROS": (_EARS, _MASTOIDS),
    "SHHS": tuple(derived(second, "EEG") for second in _SECOND_EEGS),
    "CHAT": (_MASTOIDS,),
    "SOF": (_EARS,),
    "PHYS": (_FRONT_TO_BACK,),
    "phys-st": (_FRONT_TO_BACK,),
    "MASS": (linked("LER"), linked("CLE")),
}


def electrodes_of(cohort: str, index: int) -> Electrodes:
    """Return the electrodes in the files of a cohort's subject.

    Parameters
    ----------
    cohort : str
    index : int
        The subject's place in the cohort.
    """
    ways = WAYS[cohort]
    return ways[index % len(ways)]


def potentials(
    signal: NDArray[np.float32], electrodes: Electrodes, sfreq: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Return what each electrode records.

    Parameters
    ----------
    signal : ndarray of float32, (2, T)
        The derivations in µV.
    electrodes : mapping of str to Mixture
    sfreq : int
        Sampling rate in Hz.
    rng : numpy.random.Generator
        Source of what references see.

    Returns
    -------
    dict of str to ndarray of float32, (T,)
        µV, by label. Derived from them, the signal comes back to rounding.
    """
    sources = dict(zip(("first", "second"), signal, strict=True))
    streams = rng.spawn(len(_NOISE_UV))
    for (name, rms_uv), stream in zip(_NOISE_UV.items(), streams, strict=True):
        if any(getattr(mixture, name) for mixture in electrodes.values()):
            sources[name] = rms_uv * slow_noise(signal.shape[1], sfreq, stream)
    mixed = {}
    for label, mixture in electrodes.items():
        shares = {name: getattr(mixture, name) for name in sources}
        parts = [sources[name] * np.float32(share) for name, share in shares.items() if share]
        mixed[label] = sum(parts[1:], start=parts[0])
    return mixed


def slow_noise(n_samples: int, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return noise of variance 1 that falls from 5 Hz on, (n_samples,)."""
    memory = np.float32(np.exp(-2 * np.pi * 5 / sfreq))
    fresh = rng.standard_normal(n_samples, dtype=np.float32)
    fresh *= np.sqrt(1 - memory**2)
    return scipy.signal.lfilter([np.float32(1)], np.array([1, -memory], np.float32), fresh)
