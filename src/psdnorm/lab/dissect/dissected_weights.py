"""The network of a cell from its weights: whole, of that cell, and for the nights at hand."""

from psdnorm.errors import CheckpointError
from psdnorm.experiments.grid import Runs
from psdnorm.report.trained import Trained, load_trained
from psdnorm.store import Store
from psdnorm.training.aligned_nights import alignment_of
from psdnorm.training.cell import Cell, Protocol, with_size
from psdnorm.training.network import throwaway_model


def protocol_of(runs: Runs) -> Protocol:
    """Return how the cells of a folder of runs were trained."""
    return Protocol.from_json(runs.settings()["protocol"])


def trained_for(runs: Runs, cell: Cell, store: Store) -> Trained:
    """Load the network of a cell; refuse one of another cell, or for other nights.

    Parameters
    ----------
    runs : Runs
    cell : Cell
    store : Store
        The nights, whose recipe and layout are looked at alone.

    Returns
    -------
    Trained

    Raises
    ------
    PsdnormError
        Weights that are damaged, or not those of the cell.
    """
    trained = load_trained(runs.folder(cell))
    trained.check_takes(store)
    alignment_of(trained.training, store.layout.n_channels, trained.folder)
    sized = with_size(cell, trained.arm["filter_size"])
    expected = throwaway_model(sized, protocol_of(runs), store.layout).config
    found = trained.model.config
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise CheckpointError(
                f"{trained.folder} has a network whose {name} is {found.get(name)!r:.80}, expected "
                f"{expected.get(name)!r:.80} as {cell.name} has it"
            )
    _check_training(trained, cell)
    return trained


def _check_training(trained: Trained, cell: Cell) -> None:
    """Refuse a network of the same shape that learned from other nights, or aligned ones."""
    said, own = trained.training.get("cell"), cell.to_json()
    for name in ("norm", "hold_out", "balanced", "seed"):
        if isinstance(said, dict) and said.get(name, own[name]) != own[name]:
            raise CheckpointError(
                f"{trained.folder} has a network that was trained with {name} "
                f"{said[name]!r:.80}, expected {own[name]!r} as {cell.name} has it"
            )
