"""The verdict on a contest: who won, by how much, how certain that is, and its limits."""

from psdnorm.report.verdict.duel import (
    DUEL_HEAD,
    Duel,
    duel_cells,
    duels,
    gain_words,
    people_words,
    percent,
)
from psdnorm.report.verdict.verdict import (
    SIMULATED,
    Verdict,
    judge,
    limits_of_duels,
    limits_of_intervals,
    limits_of_seeds,
)
