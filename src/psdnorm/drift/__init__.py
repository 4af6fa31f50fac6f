"""How far a night is from the training nights."""

from psdnorm.drift.spectra import (
    EEG_HZ,
    FEW,
    SEGMENT_S,
    NightSpectra,
    Spread,
    bin_weights,
    frequencies_hz,
    measure_night,
    measure_spread,
    measures,
    spread_of,
    swap_gap,
)
