"""A trained network, loaded from a checkpoint or from a run that kept its weights."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from psdnorm.batches import LENGTH
from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError
from psdnorm.experiments import GRID
from psdnorm.models import CONFIG, CNNTransformer, Pretrained, USleep, from_pretrained
from psdnorm.models import WEIGHTS as WEIGHTS_FILE
from psdnorm.store import Store, recipe_hash
from psdnorm.training import (
    TMA,
    VARIANTS,
    WEIGHTS,
    AlignedStore,
    Arm,
    alignment_of,
    model_name,
)

_MODELS = {USleep: "usleep", CNNTransformer: "cnn-transformer"}


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network and what its checkpoint says about it."""

    folder: Path  # of the checkpoint
    model: Pretrained  # in evaluation mode

    @cached_property
    def training(self) -> dict[str, Any]:
        """What the checkpoint says about the training; empty if nothing."""
        found = (self.model.card or {}).get("training_data")
        return found if isinstance(found, dict) else {}

    @property
    def norm(self) -> str:
        """The norm as runs name it. TMA is not a layer: only the training names it."""
        named = self._run.get("norm")
        if "sqrt_barycenter" in self.training or named == TMA:
            return TMA
        norm = str(self.model.config.get("norm"))
        return str(named) if norm == "psd" and named in VARIANTS else norm

    @property
    def arm(self) -> Arm:
        """Model, norm, filter size and depth; its training size is unknown."""
        norm, config = self.norm, self.model.config
        model = _MODELS.get(type(self.model), type(self.model).__name__)
        size = (self._run if norm == TMA else config).get("filter_size")
        return Arm.of_network(model, norm, size, config.get("norm_depth"))

    @property
    def name(self) -> str:
        """Norm and model, as "PSDNorm (f = 17) in U-Sleep"."""
        return f"{self.arm.named()} in {model_name(self.arm.model)}"

    @property
    def cohorts(self) -> set[str] | None:
        """Cohorts of the training set; None if unknown."""
        found = self.training.get("cohorts")
        return set(map(str, found)) if isinstance(found, list) else None

    @property
    def _run(self) -> dict[str, Any]:
        found = self.training.get("cell")
        return found if isinstance(found, dict) else {}

    def source(self, store: Store, device: torch.device) -> Store:
        """Return the nights as the network expects them: aligned if its training nights were."""
        aligned = alignment_of(self.training, store.layout.n_channels, self.folder)
        return store if aligned is None else AlignedStore(store, *aligned, device)

    def check_takes(self, store: Store) -> None:
        """Raise if the nights of a store are not prepared as the network expects them."""
        card = self.model.card or {}
        if card.get("stages") != list(STAGES):
            said = f"{card.get('stages')!r:.80} as stages, expected {', '.join(STAGES)}"
            raise ArgumentError(f"{self.folder} has {said}")
        recipe = card.get("recipe")
        if not isinstance(recipe, dict):
            raise ArgumentError(f"{self.folder} does not name the recipe of its nights")
        if recipe_hash(recipe) != store.hash:
            keys = sorted({*recipe, *store.recipe})
            differ = [k for k in keys if recipe.get(k) != store.recipe.get(k)] or keys
            raise ArgumentError(
                f"{self.folder} expects nights of the recipe {_called(recipe)}, found "
                f"{_called(store.recipe)} in {store.path}, which differs in {', '.join(differ)}"
            )
        layout, config = store.layout, self.model.config
        expected = tuple(config[name] for name in ("n_chans", "n_times", "sfreq"))
        found = layout.n_channels, layout.n_times, layout.sfreq
        if expected != found:
            raise ArgumentError(
                f"{self.folder} takes {expected[0]} channels of {expected[1]} samples at "
                f"{expected[2]:g} Hz, found {found[0]} of {found[1]} at {found[2]:g} Hz in "
                f"{store.path}"
            )
        if config.get("n_epochs", LENGTH) < LENGTH:
            said = f"{config['n_epochs']} epochs at a time, expected at least {LENGTH}"
            raise ArgumentError(f"{self.folder} takes {said}")


def load_trained(path: Path) -> Trained:
    """Load a checkpoint, or the weights that a run kept."""
    if (path / GRID).exists():
        raise ArgumentError(
            f"{path} is a folder of runs, expected a checkpoint or a run with weights to evaluate "
            "on the nights of --store"
        )
    folder = path / WEIGHTS if (path / WEIGHTS).is_dir() else path
    if (folder / CONFIG).exists() and not (folder / WEIGHTS_FILE).exists():
        raise ArgumentError(
            f"{path} has no {WEIGHTS_FILE}, expected a checkpoint, or a run that kept its weights "
            "(--keep weights)"
        )
    return Trained(folder, from_pretrained(folder))


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a checkpoint."""
    return (folder / CONFIG).exists() and (folder / WEIGHTS_FILE).exists()


def _called(recipe: dict[str, Any]) -> str:
    return f"{recipe.get('name', 'unnamed')} ({recipe_hash(recipe)[:12]})"
