"""Training domains, an unseen one, and what TMA makes of them."""

import numpy as np
import pytest
from coloured_noise import coloured

from psdnorm.alignment import TMA


@pytest.fixture
def domains():
    return np.array([0, 1, 2] * 4)


@pytest.fixture
def train(domains):
    """Twelve windows, (12, 2, 400), of three interleaved domains that differ in colour and gain."""
    X = np.empty((12, 2, 400))
    for d, (pole, gain) in enumerate([(0.3, 1.0), (0.7, 4.0), (-0.4, 2.0)]):
        X[domains == d] = coloured(4, seed=d, pole=pole, gain=gain)
    return X


@pytest.fixture
def fitted(train, domains):
    return TMA().fit(train, domains=domains)


@pytest.fixture
def unseen():
    return coloured(5, seed=9, pole=0.5, gain=7.0)
