"""Low-pass filter and resample in one pass, from any rate, without delay and without drift."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import MissingExtraError, RecordingError
from psdnorm.prepare.recipe import NARROWEST_HZ, TRANSITION, Recipe

_HAMMING = 3.3  # length of a Hamming-windowed FIR filter times the width of its slope
_LARGEST = 10_000  # denominator of a ratio of rates; the filter has some 40 taps for each
_MOST_DRIFT_S = 1e-6  # at the end of a recording, by rounding its rate to a ratio
_STEP_S = 1e-5  # to which times are rounded where there is no such ratio
_AT_ONCE = 2**18  # samples in the windows that are held in memory


def lowpass_resample(
    signal: NDArray[np.float32], sfreq: float, recipe: Recipe, n_out: int, source: str = "signal"
) -> NDArray[np.float32]:
    """Low-pass filter and resample in one pass, without delay.

    A linear-phase FIR filter with a Hamming window, as MNE's: flat up to ``lowpass_hz``, half of
    the amplitude an eighth above it, below -50 dB from a quarter above it on. At the ends the
    signal is continued by its point reflection, so that they have no transient.

    Parameters
    ----------
    signal : ndarray, (C, T)
    sfreq : float
        Its rate in Hz; any.
    recipe : Recipe
        Gives ``lowpass_hz`` and the new rate.
    n_out : int
        How many samples are wanted, from the first one on.
    source : str
        Whose signal it is, for the error.

    Returns
    -------
    ndarray, (C, n_out), float32
    """
    slope_hz = max(TRANSITION * recipe.lowpass_hz, NARROWEST_HZ)
    transition_hz = min(slope_hz, sfreq / 2 - recipe.lowpass_hz)
    if transition_hz < NARROWEST_HZ:
        raise RecordingError(
            f"{source} has {sfreq:g} Hz, expected at least "
            f"{2 * (recipe.lowpass_hz + NARROWEST_HZ):g} Hz for a signal up to "
            f"{recipe.lowpass_hz:g} Hz"
        )
    ratio = _ratio(recipe.sfreq / sfreq, n_out / recipe.sfreq)
    up = ratio.numerator if ratio else math.ceil(1 / (_STEP_S * sfreq))
    taps = _taps(up, sfreq, recipe.lowpass_hz, transition_hz)
    margin = min(math.ceil(len(taps) / 2 / up) + 2, signal.shape[1] - 1)  # samples beyond each end
    continued = np.pad(signal, ((0, 0), (margin, margin)), "reflect", reflect_type="odd")
    if ratio:
        return _by_ratio(continued, taps, up, ratio.denominator, margin, n_out)
    places = margin + np.arange(n_out) * (sfreq / recipe.sfreq)  # in samples
    return _at_places(continued, taps, up, places)


def _ratio(exact: float, duration_s: float) -> Fraction | None:
    """Return the ratio of small numbers that two rates have, None if they have none."""
    ratio = Fraction(exact).limit_denominator(_LARGEST)
    return ratio if abs(float(ratio) / exact - 1) * duration_s < _MOST_DRIFT_S else None


def _taps(up: int, sfreq: float, lowpass_hz: float, transition_hz: float) -> NDArray[np.float32]:
    """Return the filter at ``up`` times the signal's rate; an odd number of taps."""
    firwin = _scipy_signal().firwin
    rate = up * sfreq
    n_taps = 2 * math.ceil(_HAMMING / transition_hz * rate / 2) + 1
    taps = firwin(n_taps, lowpass_hz + transition_hz / 2, window="hamming", fs=rate)
    # every output sees one tap in `up`: each such set must pass a constant unchanged, or an
    # offset of the signal becomes a tone
    phases = np.pad(taps, (0, -n_taps % up)).reshape(-1, up)
    phases /= phases.sum(axis=0)
    return phases.ravel()[:n_taps].astype(np.float32)


def _by_ratio(
    signal: NDArray[np.float32],
    taps: NDArray[np.float32],
    up: int,
    down: int,
    margin: int,
    n_out: int,
) -> NDArray[np.float32]:
    """Filter (C, T) at ``up`` times its rate and keep every ``down``-th sample after the margin."""
    delay = len(taps) // 2 + margin * up
    lead = -delay % down  # so that the first output falls on the first sample
    shifted = np.concatenate([np.zeros(lead, np.float32), taps])
    filtered = _scipy_signal().upfirdn(shifted, signal, up, down)
    first = (delay + lead) // down
    return np.ascontiguousarray(filtered[:, first : first + n_out])


def _at_places(
    signal: NDArray[np.float32],
    taps: NDArray[np.float32],
    up: int,
    places: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Filter (C, T) and take it at places between its samples, rounded to one in ``up``."""
    phases = np.pad(taps, (0, -len(taps) % up)).reshape(-1, up)
    table = np.ascontiguousarray(phases[::-1].T)  # (up, K), as samples come before each other
    length = table.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)  # (C, T - K + 1, K)
    result = np.empty((len(signal), len(places)), np.float32)
    step = math.ceil(_AT_ONCE / length)
    for begin in range(0, len(places), step):
        some = slice(begin, begin + step)
        ticks = np.rint(places[some] * up).astype(np.int64) + len(taps) // 2
        last, phase = np.divmod(ticks, up)
        for row, channel in zip(result, windows, strict=True):
            row[some] = np.einsum("tk,tk->t", channel[last - length + 1], table[phase])
    return result


def _scipy_signal() -> Any:
    try:
        import scipy.signal  # only for those who prepare
    except ImportError as error:
        raise MissingExtraError(
            'filtering needs SciPy: pip install "psdnorm[recordings]"'
        ) from error
    return scipy.signal
