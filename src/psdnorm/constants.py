"""Constants of sleep staging that all modules share."""

STAGES = ("W", "N1", "N2", "N3", "REM")  # in the order of the labels 0…4
UNSCORED = -1  # label of an epoch without a stage
EPOCH_S = 30
SIMULATED_NIGHTS = "The nights are simulated: this says nothing about patients."  # in every output

# clinical bands, reported by inspections, spectral distances and staged nights
BANDS_HZ = {
    "delta": (0.5, 4.0),
    "theta": (4.0, 8.0),
    "alpha": (8.0, 12.0),
    "sigma": (12.0, 16.0),
    "beta": (16.0, 30.0),
}
# bands of the simulator's reference population, which was fitted with these edges: gamma for
# muscle, no sigma because spindles are drawn one by one
SIMULATED_BANDS_HZ = {
    "delta": (0.5, 4.0),
    "theta": (4.0, 8.0),
    "alpha": (8.0, 13.0),
    "beta": (13.0, 30.0),
    "gamma": (30.0, 50.0),
}
