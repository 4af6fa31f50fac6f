"""Prepared nights on disk: one recipe, one index, and signals that are read without a copy.

::

    STORE/
      recipe.json             how every night in it was prepared, hashed, and the shape of an epoch
      index.parquet           one row per night; rebuilt from the nights where it is old or absent
      nights/ID.safetensors   a night: what is known about it, stages (E,), signals (E, C, T)

A night is one file, so it is there whole or not at all. Its head holds all that the index says
about it, so the index is never more than a cache. Epochs follow each other in the file, so a
sequence of any length is one contiguous read.

Samples are float16 unless asked otherwise: it was measured to be read as fast as float32 or faster
(``benchmarks/store.py``), takes half of the disk, of the way to a GPU and of its memory, and rounds
at -70 dB. A night of which rounding would take more than -60 dB is refused.
"""

from psdnorm.store.folder import RECIPE_FILE, Store, night_path, recipe_hash
from psdnorm.store.night import DTYPES, Layout, Night
from psdnorm.store.summary import CohortPSD, check_ending, describe, draw, mean_psd, summarize

__all__ = ["Layout", "Night", "Store", "mean_psd", "recipe_hash", "summarize"]
