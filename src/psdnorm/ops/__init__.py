"""The mathematics of the layer: the reference in plain torch, and faster paths with the same API.

:mod:`psdnorm.ops.cpu` and :mod:`psdnorm.ops.triton` implement ``row_statistics`` and ``normalize``
as :mod:`psdnorm.ops.reference` does; the functions exported here choose between them.
"""

from psdnorm.ops.convolution import conv, upsample_conv
from psdnorm.ops.dispatch import (
    BACKENDS,
    can_update_barycenter,
    choose_backend,
    domain_statistics,
    measure_and_normalize,
    normalize,
    normalize_with,
    row_statistics,
)
from psdnorm.ops.groups import Groups, current_groups, current_ids, id_keys
from psdnorm.ops.reference import (
    CENTERS,
    DETRENDS,
    EPS_MODES,
    PADDING_MODES,
    STATISTICS,
    TARGET_POWERS,
    WINDOWS,
    Spec,
    add_eps,
    barycenter_sums,
    batch_barycenter,
    bins_of_power,
    center,
    constant_leakage,
    geodesic,
    is_exporting,
    mean_in_segments,
    monge_filter,
    monge_map,
    n_bins,
    row_weights,
    statistics_dtype,
    unit_power,
    valid_means,
    valid_rows,
    welch_psd,
    white_root,
)
from psdnorm.ops.triton import HAS_TRITON, update_barycenter
