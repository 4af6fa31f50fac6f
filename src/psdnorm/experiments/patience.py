"""Whether trainings may be stopped before they have learned.

Early stopping counts epochs. Where subjects are few an epoch is a handful of steps, the validation
loss goes up and down by as much as it falls, and a patience that is long for thousands of steps
ends a training by chance: docs/results.md, "Little data".
"""

import math
from collections.abc import Iterable

from psdnorm.experiments.estimate import Amounts
from psdnorm.training.cell import Cell, Protocol

# of patience: in a simulated study two norms of four scored 18 points less with 70 than with 260;
# nothing in between was tried, and from 200 on it is left to whoever trains
FEW_STEPS, ENOUGH_STEPS = 200, 260


def short_patience(cells: Iterable[Cell], amounts: Amounts, protocol: Protocol) -> str | None:
    """Put into a sentence that the patience of a protocol is few steps for some cell.

    Parameters
    ----------
    cells : iterable of Cell
        That are to be trained.
    amounts : Amounts
        What they learn from.
    protocol : Protocol

    Returns
    -------
    str or None
        Of the cell with the shortest epochs; None where the patience is long enough for all, or
        so long that it stops none.
    """
    sizes = {cell: amounts.of(cell).training for cell in cells}
    # the first epoch is the best so far, so that it takes one more than the patience to stop
    if not sizes or protocol.patience + 1 >= protocol.max_epochs:
        return None
    shortest = min(sizes, key=sizes.__getitem__)
    steps = max(1, math.ceil(sizes[shortest] / protocol.batch_size))
    if steps * protocol.patience >= FEW_STEPS:
        return None
    enough = math.ceil(ENOUGH_STEPS / steps)
    if enough + 1 < protocol.max_epochs:
        advice = f"a patience of {enough} would be {enough * steps}"
    else:
        advice = f"a patience of {protocol.max_epochs} would stop none before its last epoch"
    return (
        f"an epoch of {shortest.name} has {steps} step{'s' * (steps != 1)}, so that a patience of "
        f"{protocol.patience} is {steps * protocol.patience} of them: a noisy validation may stop "
        f"such a training before it has learned; {advice}"
    )
