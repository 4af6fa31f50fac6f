"""The simplest stager to compare with: logistic regression on band powers of simulated nights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate import SimulatedNight, band_powers_db, simulate_night


def simulated_nights(count: int = 16) -> list[SimulatedNight]:
    """Return nights at shift 0, of subjects that the calibration of the simulator did not see."""
    return [simulate_night("PHYS", f"held out {n}", seed=3, shift=0.0) for n in range(count)]


def features(signal: NDArray, sfreq: float) -> NDArray:
    """Return the band powers in dB of two channels in µV, (2, T) to (E, 10)."""
    return band_powers_db(signal, sfreq).reshape(-1, 10)


def classifier(nights: Sequence[SimulatedNight], powers: Sequence[NDArray]) -> Any:
    """Return a fitted classifier of stages by band powers.

    Parameters
    ----------
    nights : sequence of SimulatedNight
    powers : sequence of ndarray, (E, 10) each
        Their features.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    labels = np.concatenate([night.stages for night in nights])
    return make_pipeline(StandardScaler(), model).fit(np.concatenate(powers), labels)
