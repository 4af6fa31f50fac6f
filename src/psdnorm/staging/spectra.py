"""How the power of a channel goes over a night, for the eye."""

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import MissingExtraError
from psdnorm.io import EPOCH_S
from psdnorm.staging.result import Spectrogram

_SEGMENT_S = 4
_HIGHEST_HZ = 30.0
_LEAST_POWER = 1e-4  # µV²/Hz: what a flat signal is drawn as


def spectrogram_of(
    row: NDArray[np.float32], sfreq: float, n_epochs: int, channel: str
) -> Spectrogram:
    """Return the PSD of each epoch up to 30 Hz.

    Parameters
    ----------
    row : ndarray, (T,)
        One channel in µV.
    sfreq : float
        Its rate in Hz.
    n_epochs : int
        E.
    channel : str
        Its name.

    Returns
    -------
    Spectrogram
        Welch's, of half-overlapping Hann windows of 4 s; NaN in epochs that are not finite.
    """
    try:
        from scipy.signal import welch
    except ImportError as error:
        raise MissingExtraError('staging needs SciPy: pip install "psdnorm[recordings]"') from error
    length = min(round(_SEGMENT_S * sfreq), int(EPOCH_S * sfreq))
    frequencies_hz = np.fft.rfftfreq(length, 1 / sfreq).astype(np.float64)
    shown = frequencies_hz <= _HIGHEST_HZ
    power_db = np.full((n_epochs, int(shown.sum())), np.nan, np.float32)
    edges = np.rint(np.arange(n_epochs + 1) * EPOCH_S * sfreq).astype(int)
    for epoch in range(n_epochs):
        samples = row[edges[epoch] : edges[epoch + 1]]
        if np.isfinite(samples).all():
            power = welch(samples, sfreq, "hann", length, detrend="constant")[1][shown]
            power_db[epoch] = 10 * np.log10(np.maximum(power, _LEAST_POWER))
    return Spectrogram(channel, frequencies_hz[shown], power_db)
