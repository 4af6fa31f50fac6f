"""Prepared nights on disk: one recipe, one index, and memory-mapped signals.

::

    STORE/
      recipe.json             how every night was prepared, its hash, and the shape of an epoch
      index.parquet           one row per night; rebuilt from the nights if outdated or missing
      nights/ID.safetensors   a night: its metadata, stages (E,), signals (E, C, T)

A night is one file, written atomically. Its header contains everything in the index, so the index
is only a cache. Epochs are consecutive in the file, so a sequence of any length is one contiguous
read.

Samples are float16 by default: they are read at least as fast as float32 (``benchmarks/store.py``),
need half the disk space, GPU transfer and GPU memory, and have a rounding error of -70 dB. A night
with a rounding error above -60 dB raises an error.
"""

from psdnorm.store.folder import RECIPE_FILE, Store, night_path, recipe_hash
from psdnorm.store.night import DTYPES, Layout, Night
from psdnorm.store.summary import check_ending, describe, draw, mean_psd, summarize

__all__ = ["Layout", "Night", "Store", "mean_psd", "recipe_hash", "summarize"]
