"""Band powers of a recording, measured as those of the real nights were."""

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S, SIMULATED_BANDS_HZ

SEGMENT_S = 4.0


def band_powers_db(signal: NDArray, sfreq: float) -> NDArray:
    """Band powers of each epoch.

    Parameters
    ----------
    signal : ndarray, (C, T)
        µV; a rest that fills no epoch is not used.
    sfreq : float
        Sampling rate in Hz.

    Returns
    -------
    ndarray, (E, C, 5)
        Mean density in dB re 1 µV²/Hz in each of `SIMULATED_BANDS_HZ` (Welch, Hann windows of 4 s).
    """
    length = round(EPOCH_S * sfreq)
    n_epochs = signal.shape[1] // length
    epochs = signal[:, : n_epochs * length].reshape(len(signal), n_epochs, length)
    frequency_hz, density = scipy.signal.welch(epochs, sfreq, nperseg=round(SEGMENT_S * sfreq))
    means = [
        density[..., (frequency_hz >= low) & (frequency_hz < high)].mean(axis=-1)
        for low, high in SIMULATED_BANDS_HZ.values()
    ]
    # a flat channel is as quiet as nothing that was ever recorded
    return 10 * np.log10(np.maximum(np.stack(means, axis=-1), 1e-6)).swapaxes(0, 1)
