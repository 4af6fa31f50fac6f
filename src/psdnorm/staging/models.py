"""The staging model: a checkpoint, and the recipe that it was trained with."""

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError, CheckpointError
from psdnorm.models import CONFIG, Pretrained, from_pretrained
from psdnorm.models import WEIGHTS as WEIGHTS_FILE
from psdnorm.prepare import Recipe
from psdnorm.training import WEIGHTS, align_night, alignment_of

NOTICE = "For research and demonstration, not for diagnosis."
_SHIPPED = "shipped"
# unit of a prepared signal, by the scaling of the recipe
_UNITS = {
    "none": "µV",
    "epoch": "standard deviations of the epoch",
    "recording": "interquartile ranges of the recording",
}


@dataclass(frozen=True, eq=False)
class StagingModel:
    """A model, and how a night is prepared for it.

    Attributes
    ----------
    network : Pretrained
        In evaluation mode.
    recipe : Recipe
        How its nights were prepared.
    description : dict
        Name, architecture, norm, recipe, unit of what it prepares, SHA-256 of the weights, licence.
    notice : str or None
        Printed on every output; None for a user's own model.
    sqrt_barycenter, filter_size : Tensor of float64, (C, F), and int, or None
        Of the alignment (TMA) of the training nights, if they were aligned.
    """

    network: Pretrained
    recipe: Recipe
    description: dict[str, Any]
    notice: str | None = None
    sqrt_barycenter: Tensor | None = None
    filter_size: int | None = None

    def inputs(self, signals: NDArray[np.float16 | np.float32]) -> NDArray[np.float16 | np.float32]:
        """Return a prepared night, (E, C, T), aligned if the training nights were."""
        if self.sqrt_barycenter is None or self.filter_size is None:
            return signals
        return align_night(signals, self.sqrt_barycenter, self.filter_size, self.recipe.dtype)


def load_model(folder: str | os.PathLike[str] | None = None) -> StagingModel:
    """Load the staging model.

    Parameters
    ----------
    folder : path, optional
        Written by :meth:`~psdnorm.models.checkpoint.Pretrained.save_pretrained`, or of a run that
        kept its weights; by default the model that comes with psdnorm.

    Raises
    ------
    CheckpointError
        If there is no model, or it does not say which stages it predicts and how its recordings
        were prepared.
    """
    if folder is None:
        with resources.as_file(resources.files("psdnorm.staging") / _SHIPPED) as shipped:
            if not (shipped / CONFIG).is_file():
                raise CheckpointError(
                    "no model comes with this psdnorm, expected the folder of one (--model)"
                )
            return _load(shipped, "shipped with psdnorm", NOTICE)
    path = Path(folder)
    kept = path / WEIGHTS
    if os.path.isfile(kept / CONFIG):
        return _load(kept, path.resolve().name, None)
    if os.path.isfile(path / CONFIG) and not os.path.exists(path / WEIGHTS_FILE):
        raise CheckpointError(
            f"{path} holds no {WEIGHTS_FILE}, expected a checkpoint, or a run that was trained "
            "with --keep weights"
        )
    return _load(path, path.resolve().name, None)


def _load(path: Path, name: str, notice: str | None) -> StagingModel:
    network = from_pretrained(path)
    card = network.card or {}
    if card.get("stages") != list(STAGES):
        raise CheckpointError(
            f"{path} has {card.get('stages')!r:.80} as stages, expected {', '.join(STAGES)}"
        )
    if card.get("recipe") is None:
        raise CheckpointError(
            f"{path} does not say how its recordings were prepared, expected a checkpoint with a "
            "recipe"
        )
    try:
        recipe = Recipe.from_dict(card["recipe"])
    except ArgumentError as error:
        raise CheckpointError(f"{path}: {error}") from error
    layout = recipe.layout()
    found = tuple(network.config[name] for name in ("n_chans", "n_times"))
    if found != (layout.n_channels, layout.n_times):
        raise CheckpointError(
            f"{path} takes {found[0]} channels of {found[1]} samples, its recipe {recipe.name!r} "
            f"prepares {layout.n_channels} of {layout.n_times}: expected the same"
        )
    aligned = alignment_of(card.get("training_data"), recipe.n_channels, path)
    barycenter, filter_size = aligned or (None, None)
    described = {
        "name": name,
        "architecture": card["architecture"],
        "norm": network.config.get("norm"),
        "recipe": recipe.name,
        "unit": _UNITS[recipe.scaling],
        "sha256": card["weights"].get("sha256"),
        "licence": card.get("licence"),
    }
    return StagingModel(network, recipe, described, notice, barycenter, filter_size)
