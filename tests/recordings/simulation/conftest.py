"""Nights that several tests look at."""

import os
from pathlib import Path

import pytest

from psdnorm.recordings.simulation import simulate_night
from psdnorm.recordings.simulation.measure import band_powers_db


@pytest.fixture(scope="session")
def reference_nights():
    """Nights at shift 0, of subjects that the calibration did not see."""
    return [simulate_night("PHYS", f"held out {n}", seed=3, shift=0.0) for n in range(16)]


@pytest.fixture(scope="session")
def reference_powers(reference_nights):
    """Their band powers, one (E, 10) each."""
    return [band_powers_db(n.signal, n.sfreq).reshape(-1, 10) for n in reference_nights]


@pytest.fixture(scope="session")
def realdata():
    """Folder of the real data."""
    if "PSDNORM_REALDATA" not in os.environ:
        pytest.skip("PSDNORM_REALDATA is not set")
    return Path(os.environ["PSDNORM_REALDATA"])


@pytest.fixture(scope="session")
def fit_simulation():
    """The script that fits the table."""
    import importlib.util

    pytest.importorskip("pandas")
    path = Path(__file__).parents[3] / "scripts" / "fit_simulation.py"
    spec = importlib.util.spec_from_file_location("fit_simulation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
