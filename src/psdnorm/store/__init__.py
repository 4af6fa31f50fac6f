"""Prepared nights on disk: one recipe, one index, and signals that are read without a copy.

::

    STORE/
      recipe.json             how every night in it was prepared, hashed, and the shape of an epoch
      index.parquet           one row per night; rebuilt from the nights where it is old or absent
      nights/ID.safetensors   a night: what is known about it, stages (E,), signals (E, C, T)

A night is one file, written atomically. Its head holds all that the index says about it, so the
index is only a cache. Epochs follow each other in the file, so a sequence of any length is one
contiguous read.

Samples are float16 by default: they are read at least as fast as float32 (``benchmarks/store.py``),
take half of the disk, of the transfer to a GPU and of its memory, and round at -70 dB. A night that
would lose more than -60 dB to rounding raises an error.
"""

from psdnorm.store.folder import RECIPE_FILE, Store, night_path, recipe_hash
from psdnorm.store.night import DTYPES, Layout, Night
from psdnorm.store.summary import check_ending, describe, draw, mean_psd, summarize

__all__ = ["Layout", "Night", "Store", "mean_psd", "recipe_hash", "summarize"]
