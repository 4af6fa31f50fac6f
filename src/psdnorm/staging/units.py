"""Whether a signal is as large as EEG is, or its unit is another than its file says."""

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError, RecordingError
from psdnorm.io import EPOCH_S

MICROVOLTS = {"V": 1e6, "mV": 1e3, "uV": 1.0, "nV": 1e-3}
# what the standard deviation of 30 s of sleep EEG is like, in µV, far beyond what is usual
_LEAST_UV, _MOST_UV = 2.0, 300.0
# no amplifier is so quiet, and none reaches so far: between these, a signal may be flat or too
# large for other reasons than its unit
_SURELY_BELOW_UV, _SURELY_ABOVE_UV = 1e-3, 1e6


def factor_of(unit: str) -> float:
    """Return what a unit is in µV; refuse what is none.

    Parameters
    ----------
    unit : {"V", "mV", "uV", "nV"}
        ``µV`` is ``uV``.
    """
    spelt = unit.replace("µ", "u").replace("μ", "u")
    if spelt not in MICROVOLTS:
        raise ArgumentError(f"unit is {unit!r}, expected one of {', '.join(MICROVOLTS)}")
    return MICROVOLTS[spelt]


def spread_uv(row: NDArray[np.float32], sfreq: float) -> float:
    """Return the median over 30 s pieces of a channel, (T,), of its standard deviation.

    Drifts and single artefacts do not change it. What is not finite, or does not change at all, is
    left out; NaN if nothing is left.
    """
    length = min(len(row), max(1, round(EPOCH_S * sfreq)))
    pieces = row[: len(row) // length * length].reshape(-1, length)
    # a hundred pieces tell it as well as all
    chosen = pieces[:: max(1, len(pieces) // 100)]
    spreads = chosen.std(axis=1, dtype=np.float64)
    spreads = spreads[np.isfinite(spreads) & (spreads > 0)]
    return float(np.median(spreads)) if len(spreads) else float("nan")


def doubt_unit(spreads_uv: list[float], given: str | None, source: str) -> str:
    """Say if another unit would make EEG of a signal that is none as it is.

    Parameters
    ----------
    spreads_uv : list of float
        Of each channel, from :func:`spread_uv`.
    given : str or None
        The unit that the user gave.
    source : str
        The file, for the error.

    Returns
    -------
    str
        One sentence, "" where there is nothing to say.

    Raises
    ------
    RecordingError
        If the signal can only be EEG in another unit, and the user has given none.
    """
    known = [spread for spread in spreads_uv if np.isfinite(spread)]
    if not known:
        return ""
    found_uv = float(np.median(known))
    factors = [
        factor for factor in (1e3, 1e6, 1e-3, 1e-6) if _LEAST_UV <= factor * found_uv <= _MOST_UV
    ]
    if _LEAST_UV <= found_uv <= _MOST_UV or not factors:
        return ""
    factor = min(factors, key=lambda each: abs(np.log10(each)))
    words = (
        f"30 s of its EEG vary by {float(f'{found_uv:.2g}'):g} µV, where sleep EEG varies by some "
        f"{_LEAST_UV:g} to {_MOST_UV:g} µV, as they would if its numbers were "
        f"{_words(factor)} what it says"
    )
    if given is not None:
        return f"{words}: the unit {given} was given"
    if _SURELY_BELOW_UV < found_uv < _SURELY_ABOVE_UV:
        return f"{words}: if so, give --unit"
    raise RecordingError(f"{source}: {words}: give the unit ({', '.join(MICROVOLTS)}) by --unit")


def _words(factor: float) -> str:
    power = round(np.log10(factor))
    times = "1000" if abs(power) == 3 else "1000000"
    return f"in a unit {times} times {'larger' if power > 0 else 'smaller'} than"
