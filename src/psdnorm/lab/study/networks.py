"""Whether the networks of a study can be built and run, before a night of it is simulated."""

from psdnorm.errors import ArgumentError
from psdnorm.experiments.grid import Runs
from psdnorm.lab.study.definition import Study
from psdnorm.prepare.recipe import load_recipe
from psdnorm.training.adabn import base_of
from psdnorm.training.network import check_model


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
            except ArgumentError as error:
                raise ArgumentError(f"{study.path}: grid[{number}]: {error}") from None
