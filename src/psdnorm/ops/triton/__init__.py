"""Kernels for CUDA devices in Triton, and how they are launched."""

from psdnorm.ops.triton.launch import (
    HAS_TRITON,
    LONGEST_ROW,
    Launch,
    domain_statistics,
    normalize,
    normalize_backward,
    row_statistics,
    update_barycenter,
    with_unit_time_stride,
)
