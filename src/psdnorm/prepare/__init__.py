"""Prepare recordings into a store."""

from psdnorm.prepare.prepare import Preparation, PreparationOutcome, fingerprint, recording_name
from psdnorm.prepare.quality import (
    EXTREME,
    MOST_BAD,
    RUN,
    Quality,
    electrodes_of,
    examine,
    flat_epochs,
    share_in_words,
)
from psdnorm.prepare.recipe import NARROWEST_HZ, RECIPES, Recipe, load_recipe
from psdnorm.prepare.signals import between_gaps, in_time, preprocess

__all__ = ["RECIPES", "Preparation", "Recipe", "load_recipe", "preprocess"]
