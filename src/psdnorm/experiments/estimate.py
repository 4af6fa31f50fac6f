"""How long cells will take: from cells that are finished, or from measured rates.

A cell that is trained takes::

    epochs · (training sequences / training rate + validation sequences / prediction rate)
    + held-out sequences / prediction rate

with rates in sequences per second, and sequences in whole batches, as the last one is filled up.
Where cells of the same model are finished, their seconds per training sequence replace all of it.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from psdnorm.batches import leave_one_dataset_out, window_starts
from psdnorm.experiments.grid import Entry
from psdnorm.store import Layout, Store
from psdnorm.training.adabn import AdaptedCell
from psdnorm.training.cell import Cell, Protocol, with_size
from psdnorm.training.filter_size import CANDIDATES
from psdnorm.training.network import build_model

# until early stopping, which the paper does not say: its 1,500 GPU-hours, at its 173 seconds an
# epoch for balanced@400, make 18 for each training of our presets
EPOCHS = 15


@dataclass(frozen=True)
class Rates:
    """Sequences per second of training and of prediction."""

    training: float
    prediction: float


# one H200, the bare step in the fast configuration (docs/performance.md), of which a training from
# a store reached 93 to 98 % with U-Sleep (docs/scaling.md)
_OF_THE_STEP = 0.93
H200 = {
    "usleep": Rates(5122 * _OF_THE_STEP, 16881 * _OF_THE_STEP),
    "cnn-transformer": Rates(11394 * _OF_THE_STEP, 41779 * _OF_THE_STEP),
}


@dataclass(frozen=True)
class Amount:
    """Sequences that a cell trains on, validates with and is tested on."""

    training: float
    validation: float
    test: float

    def seconds(self, cell: Cell, rates: Rates, epochs: float = EPOCHS) -> float:
        """Return the time that a cell takes; AdaBN goes through what it predicts twice.

        Parameters
        ----------
        cell : Cell
        rates : Rates
        epochs : float
        """
        if isinstance(cell, AdaptedCell):
            return 2 * self.test / rates.prediction
        once = self.training / rates.training + self.validation / rates.prediction
        return epochs * once + self.test / rates.prediction

    def in_batches(self, batch_size: int) -> "Amount":
        """Return what is computed for it: of a batch that is not full, all of it.

        Parameters
        ----------
        batch_size : int
        """
        parts = self.training, self.validation, self.test
        return Amount(*(batch_size * math.ceil(part / batch_size) for part in parts))


class Amounts:
    """How much the cells of a store have to go through.

    Parameters
    ----------
    store : Store
    protocol : Protocol
    """

    def __init__(self, store: Store, protocol: Protocol) -> None:
        self._index, self._fraction = store.index, protocol.validation_fraction
        self._windows = self._index["epochs"].map(
            lambda n: len(window_starts(int(n), protocol.length, protocol.stride))
        )
        self._known: dict[tuple[str, int | None], Amount] = {}

    def of(self, cell: Cell) -> Amount:
        """Return the sequences of a cell; seeds are taken to make no difference.

        Parameters
        ----------
        cell : Cell
        """
        key = cell.hold_out, cell.balanced
        if key not in self._known:
            split = leave_one_dataset_out(
                self._index, cell.hold_out, n_subjects=cell.balanced, fraction=self._fraction
            )
            self._known[key] = Amount(*(int(self._windows[part.index].sum()) for part in split))
        return self._known[key]

    def entry(self, cell: Cell) -> Entry:
        """Return a cell with the number that its time grows with."""
        amount = self.of(cell)
        is_adapted = isinstance(cell, AdaptedCell)
        return Entry(cell, int(amount.test if is_adapted else amount.training))


def from_finished(
    entries: Iterable[Entry], seconds: Mapping[Cell, float]
) -> dict[Cell, float] | None:
    """Estimate the seconds of every cell from those that are finished.

    Parameters
    ----------
    entries : iterable of Entry
    seconds : mapping of Cell to float
        Of finished cells.

    Returns
    -------
    dict of Cell to float, or None
        None where no training is finished. A model that has none goes by the others.
    """
    entries = list(entries)
    sums: dict[tuple[str, bool], list[float]] = {}
    for entry in entries:
        if entry.cell in seconds and entry.sequences:
            for key in (_kind(entry.cell), ("", isinstance(entry.cell, AdaptedCell))):
                sums.setdefault(key, [0.0, 0.0])
                sums[key][0] += seconds[entry.cell]
                sums[key][1] += entry.sequences
    if ("", False) not in sums:
        return None
    # before any is known, AdaBN is taken to cost what an epoch of training costs
    sums.setdefault(("", True), [sums["", False][0] / EPOCHS, sums["", False][1]])
    rate = {key: total / count for key, (total, count) in sums.items()}
    return {
        entry.cell: entry.sequences * rate.get(_kind(entry.cell), rate["", _kind(entry.cell)[1]])
        for entry in entries
    }


def relative_work(entry: Entry) -> float:
    """Return how long a cell takes in proportion to others, before any is finished.

    Parameters
    ----------
    entry : Entry
    """
    rates = H200[entry.cell.model]
    if isinstance(entry.cell, AdaptedCell):
        return 2 * entry.sequences / rates.prediction
    return EPOCHS * entry.sequences / rates.training


def from_rates(
    cells: Iterable[Cell], amounts: Amounts, rates: Mapping[str, Rates], protocol: Protocol
) -> dict[Cell, float]:
    """Estimate the seconds of every cell from rates.

    Parameters
    ----------
    cells : iterable of Cell
    amounts : Amounts
    rates : mapping of str to Rates
        By model.
    protocol : Protocol
        No more than its epochs are assumed, and its batches are whole.
    """
    epochs, size = min(EPOCHS, protocol.max_epochs), protocol.batch_size
    return {
        cell: amounts.of(cell).in_batches(size).seconds(cell, rates[cell.model], epochs)
        for cell in cells
    }


def measured_rates(cell: Cell, protocol: Protocol, layout: Layout, batch_size: int = 4) -> Rates:
    """Time a step of training and of prediction on this machine's processor.

    Parameters
    ----------
    cell : Cell
        Whose network is built.
    protocol : Protocol
    layout : Layout
        Of the store.
    batch_size : int
        Sequences of a step.

    Returns
    -------
    Rates
    """
    with torch.random.fork_rng([]):
        model = build_model(with_size(cell, CANDIDATES[-1]), protocol, layout)
        x = torch.randn(batch_size, protocol.length, layout.n_channels, layout.n_times)
        training = _seconds(lambda: model.train()(x).square().mean().backward())
        with torch.no_grad():
            prediction = _seconds(lambda: model.eval()(x))
    return Rates(batch_size / training, batch_size / prediction)


def _seconds(step) -> float:
    step()  # the first one is slower
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _kind(cell: Cell) -> tuple[str, bool]:
    return cell.model, isinstance(cell, AdaptedCell)
