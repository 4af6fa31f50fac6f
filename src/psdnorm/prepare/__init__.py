"""From a recording to the store."""

from psdnorm.prepare.prepare import Outcome, Preparation, fingerprint, recording_name
from psdnorm.prepare.preprocess import between_gaps, in_time, preprocess
from psdnorm.prepare.quality import MOST_BAD, Quality, electrodes_of, examine, flat_epochs, percent
from psdnorm.prepare.recipe import NARROWEST_HZ, RECIPES, Recipe, load_recipe
