"""Whether the networks of a study can be built and run, before a night of it is simulated."""

from functools import partial

import torch

from psdnorm.errors import ArgumentError
from psdnorm.layer import PSDNorm
from psdnorm.models.checkpoint import Pretrained
from psdnorm.models.norms import PSD_NORMS
from psdnorm.recordings.recipe import load_recipe
from psdnorm.store import Layout
from psdnorm.study.reading import Study
from psdnorm.training import Cell, Protocol
from psdnorm.training.adabn import base_of
from psdnorm.training.grid import Runs
from psdnorm.training.network import check_model, throwaway_model


def check_networks(study: Study, runs: Runs) -> None:
    """Refuse an entry of a study's grid that asks for a network which cannot be built or run.

    Parameters
    ----------
    study : Study
    runs : Runs
        The folder of its cells, which need not exist: what is finished there is not looked at.

    Raises
    ------
    ArgumentError
        Names the study's file, the entry, and what is wrong with it.
    """
    layout = load_recipe(study.nights.recipe).layout()
    seen: set[tuple] = set()
    for number, entry in enumerate(study.entries):
        for cell in map(base_of, entry):
            shape = cell.model, cell.norm, cell.filter_size, cell.norm_depth
            if shape in seen or runs.is_done(cell):
                continue
            seen.add(shape)
            try:
                check_model(cell, study.protocol, layout)
                if cell.norm in PSD_NORMS:
                    _check_filters(cell, study.protocol, layout)
            except ArgumentError as error:
                raise ArgumentError(f"{study.path}: grid[{number}]: {error}") from None


def _check_filters(cell: Cell, protocol: Protocol, layout: Layout) -> None:
    """Refuse a filter of PSDNorm that is longer than what it normalises."""
    model = throwaway_model(cell, protocol, layout)
    for block, (size, length) in enumerate(_sizes_and_lengths(model, protocol.length)):
        if size > length:
            raise ArgumentError(
                f"filter_size {cell.filter_size} makes PSDNorm's f = {size:,} in block {block} of "
                f"{cell.model}, expected at most the {length:,} samples that a sequence (length "
                f"{protocol.length}) has there"
            )


def _sizes_and_lengths(model: Pretrained, n_epochs: int) -> list[tuple[int, int]]:
    """Return the filter size of every PSDNorm, in order, and how long its input is.

    The model is used up: it only carries shapes from here on, which needs no time and no memory.
    """
    found: list[tuple[int, int]] = []

    def note(norm: PSDNorm, x: torch.Tensor) -> torch.Tensor:
        found.append((norm.filter_size, x.shape[-1]))
        return x

    for norm in model.modules():
        if isinstance(norm, PSDNorm):
            norm.forward = partial(note, norm)  # type: ignore[method-assign]
    n_chans, n_times = model.config["n_chans"], model.config["n_times"]
    with torch.no_grad():
        model.to("meta").eval()(torch.empty(1, n_epochs, n_chans, n_times, device="meta"))
    return found
