"""The mathematics of the layer: the reference in plain torch, and faster paths with the same API.

:mod:`psdnorm.ops.cpu` and :mod:`psdnorm.ops.triton` implement ``row_statistics`` and ``normalize``
as :mod:`psdnorm.ops.reference` does; the functions exported here choose between them.
"""

from psdnorm.ops.convolution import conv, upsample_conv
from psdnorm.ops.dispatch import (
    BACKENDS,
    can_update_barycenter,
    choose_backend,
    measure_and_normalize,
    normalize,
    row_statistics,
)
from psdnorm.ops.reference import (
    DETRENDS,
    PADDING_MODES,
    WINDOWS,
    Spec,
    barycenter_sums,
    batch_barycenter,
    center,
    geodesic,
    is_exporting,
    monge_filter,
    monge_map,
    n_bins,
    statistics_dtype,
    valid_rows,
    welch_psd,
    white_root,
)
from psdnorm.ops.triton import HAS_TRITON, update_barycenter
