"""What a dissection cost, piece by piece: ``cost.json`` in its folder.

``predictions`` are networks under a condition, all subjects of it. ``sequences`` are those that
were predicted; nothing learns from them. AdaBN goes through its sequences once more before, for the
statistics, which is in the seconds but not in the sequences. A call that finds nothing to predict
is no piece.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psdnorm
from psdnorm.experiments.cost import PieceMeter, commit_of
from psdnorm.lab.dissect.dissected_run import Predicted


class PredictionMeter(PieceMeter):
    """Measures a piece, and writes it down after every prediction.

    Parameters
    ----------
    out : Path
        The folder of the dissection, which gets ``cost.json``.
    device : str
    jobs : int
        Nights that are simulated at a time.
    """

    def __init__(self, out: Path, device: str, jobs: int) -> None:
        code = commit_of(Path(psdnorm.__file__), only_tracked=True)
        super().__init__(out, device, code, counted="predictions", jobs=jobs)

    def count(self, step: Predicted) -> None:
        """Count a network under a condition, unless it failed."""
        if not step.reason:
            self.add(step.sequences)
        self.write()


@contextlib.contextmanager
def metered(out: Path, device: str, jobs: int) -> Iterator[PredictionMeter]:
    """Measure a block, which is written down however it ends.

    Parameters
    ----------
    out, device, jobs
        As for :class:`PredictionMeter`.
    """
    meter = PredictionMeter(out, device, jobs)
    try:
        yield meter
    finally:
        meter.write()
