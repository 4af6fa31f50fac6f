"""From a store to scores: one network, one held-out cohort, one folder.

A :class:`Cell` says what is trained, a :class:`Protocol` how; :func:`run_cell` does it.
"""

from psdnorm.training.cell import Cell, Protocol
from psdnorm.training.loop import Bars, Silent, Watcher
from psdnorm.training.predict import NightPrediction, predict_night, predict_nights
from psdnorm.training.run import Result, run_cell

__all__ = [
    "Bars",
    "Cell",
    "NightPrediction",
    "Protocol",
    "Result",
    "Silent",
    "Watcher",
    "predict_night",
    "predict_nights",
    "run_cell",
]
