"""Signals of made-up nights that the tests of TMA share."""

import numpy as np
import scipy.signal


def coloured(n_windows, n_channels=2, length=400, seed=0, pole=0.7, gain=1.0):
    """Windows of autoregressive noise with a mean, (n_windows, n_channels, length)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_windows, n_channels, length + 50))
    return gain * (scipy.signal.lfilter([1], [1, -pole], noise)[..., 50:] + 3)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)
