"""Kernels for Hopper that keep rows on the chip; called only from ``ops.dispatch``."""

from psdnorm.ops.hopper.rows import measure_and_normalize, normalize_backward, serves
