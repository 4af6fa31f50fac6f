"""Numbers fitted to real nights, and how band powers are measured."""

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import SIMULATED_BANDS_HZ

# spectral states: quiet wake, N1, N2, N3 and REM carry the number of their stage; wake that is up
# and about (before lights off, after rising) looks different and is the sixth
STATES = ("quiet W", "N1", "N2", "N3", "REM", "active W")
ACTIVE = 5
N_BANDS = len(SIMULATED_BANDS_HZ)


@dataclass(frozen=True)
class Fitted:
    """What is known of the reference population (young adults, Fpz-Cz and Pz-Oz).

    Band axes run over channels, then bands: 10 = 2 channels × 5 bands. Powers are
    mean densities in dB re 1 µV²/Hz.

    Attributes
    ----------
    probabilities : ndarray, (5, 4, 11, 5)
        Next stage, given the stage, the cycle and the place in it (`hypnograms.Position`).
    bout_quantiles : ndarray, (5, 4, 41)
        Bout lengths in epochs at 41 equally spaced probabilities, by stage and cycle.
    tendency_mean, tendency_sd : ndarray, (5,)
        Log-odds of entering each stage beside the probabilities above: a correction that gives the
        shares of real nights, and the spread between subjects.
    real_bout_quantiles : ndarray, (5, 101)
        Bout lengths of the real nights at 101 probabilities, to compare with.
    real_shares, real_share_sd : ndarray, (5,)
        Stage shares within the sleep period: mean and spread over nights.
    real_median_db : ndarray, (6, 10)
        Medians of the real epochs in each state.
    real_wake_median_db : ndarray, (10,)
        Medians of all wake within 30 min of sleep.
    real_within_sd_db, real_between_sd_db : ndarray, (6, 10)
        Spread of epochs around their subject's median, and of those medians.
    knot_db : ndarray, (6, 10)
        Background spectrum at the bands' centres: calibrated so that, with everything else that is
        simulated on top, the medians come out as above.
    within_factor : ndarray, (6, 10, 10)
        Square root of the covariance of an epoch's deviations in dB.
    subject_factor : ndarray, (10, 10)
        The same for a subject's deviations, common to all states.
    night_sd_db : ndarray, (6, 10)
        Spread of what is special to a state in one night.
    autocorrelation : float
        Of an epoch's deviations, from one epoch to the next.
    """

    probabilities: NDArray
    bout_quantiles: NDArray
    tendency_mean: NDArray
    tendency_sd: NDArray
    real_bout_quantiles: NDArray
    real_shares: NDArray
    real_share_sd: NDArray
    real_median_db: NDArray
    real_wake_median_db: NDArray
    real_within_sd_db: NDArray
    real_between_sd_db: NDArray
    knot_db: NDArray
    within_factor: NDArray
    subject_factor: NDArray
    night_sd_db: NDArray
    autocorrelation: float


def parse(text: str) -> Fitted:
    """Make the arrays of a fitted table in JSON."""
    table = json.loads(text)
    numbers: dict[str, Any] = {field.name: np.array(table[field.name]) for field in fields(Fitted)}
    numbers["autocorrelation"] = float(table["autocorrelation"])
    return Fitted(**numbers)


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """Return the table that the package ships."""
    return parse(files(__package__).joinpath("fitted.json").read_text())
