"""Rows that stay on the chip, where the device is a Hopper; entered from ``ops.dispatch`` alone."""

from psdnorm.ops.hopper.rows import measure_and_normalize, normalize_backward, serves
