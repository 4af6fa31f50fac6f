"""Whether trainings may be stopped before they have learned.

Early stopping counts epochs. Where subjects are few an epoch is a handful of steps, the validation
loss goes up and down by as much as it falls, and a patience that is long for thousands of steps
ends a training by chance: docs/results.md, "Little data".
"""

import math
from collections.abc import Iterable

from psdnorm.training.adabn import base_of
from psdnorm.training.cell import Cell, Protocol
from psdnorm.training.estimate import Amounts

# of patience: in a simulated study two norms of four scored 18 points less with 70 than with 260
FEW_STEPS, ENOUGH_STEPS = 200, 260


def short_patience(cells: Iterable[Cell], amounts: Amounts, protocol: Protocol) -> str | None:
    """Put into a sentence that the patience of a protocol is few steps for some cell.

    Parameters
    ----------
    cells : iterable of Cell
    amounts : Amounts
        What they learn from.
    protocol : Protocol

    Returns
    -------
    str or None
        Of the cell with the shortest epochs; None where the patience is long enough for all, or
        longer than any training.
    """
    sizes = {base_of(cell): amounts.of(cell).training for cell in cells}
    if not sizes or protocol.patience >= protocol.max_epochs:
        return None
    shortest = min(sizes, key=sizes.__getitem__)
    steps = max(1, math.ceil(sizes[shortest] / protocol.batch_size))
    if steps * protocol.patience >= FEW_STEPS:
        return None
    enough = math.ceil(ENOUGH_STEPS / steps)
    return (
        f"an epoch of {shortest.name} has {steps} step{'s' * (steps != 1)}, so that a patience of "
        f"{protocol.patience} is {steps * protocol.patience} of them: a noisy validation may stop "
        f"such a training before it has learned; a patience of {enough} would be {enough * steps}"
    )
