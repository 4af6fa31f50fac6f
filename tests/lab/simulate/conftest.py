"""Nights that several tests look at."""

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def load(path):
    """Load a module that is in no package that is installed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def band_powers():
    """The baseline that stages by band powers."""
    return load(ROOT / "benchmarks" / "band_powers.py")


@pytest.fixture(scope="session")
def reference_nights(band_powers):
    """Nights at shift 0, of subjects that the calibration did not see."""
    return band_powers.simulated_nights(10)


@pytest.fixture(scope="session")
def reference_powers(reference_nights, band_powers):
    """Their band powers, one (E, 10) each."""
    return [band_powers.features(n.signal, n.sfreq) for n in reference_nights]


@pytest.fixture(scope="session")
def realdata():
    """Folder of the real data."""
    if "PSDNORM_REALDATA" not in os.environ:
        pytest.skip("PSDNORM_REALDATA is not set")
    return Path(os.environ["PSDNORM_REALDATA"])


@pytest.fixture(scope="session")
def fit_simulation():
    """The script that fits the table."""
    pytest.importorskip("pandas")
    return load(ROOT / "scripts" / "fit_simulation.py")
