"""What a table of scores says, in sentences."""

from psdnorm.report.verdict.duels import (
    DUEL_HEAD,
    METRIC,
    Contest,
    Duel,
    contests,
    duel_cells,
    duels,
    gain_words,
    has_seeds,
    people_words,
    percent,
)
from psdnorm.report.verdict.limits import SIMULATED, of_draws, of_duels, of_one_seed
from psdnorm.report.verdict.verdict import BATCH, Verdict, judge
