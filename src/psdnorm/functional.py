"""PSDNorm without state: checks arguments, calls :mod:`psdnorm.ops`."""

import numbers
import operator
import sys
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from psdnorm import ops
from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.ops import Spec
from psdnorm.recompute import PassMemory, groups_of_pass

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_passes = PassMemory()  # for psd_norm inside activation checkpoints


def psd_norm(
    x: Tensor,
    sqrt_target: Tensor | None = None,
    filter_size: int = 5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    window: str = "boxcar",
    padding_mode: str = "circular",
    backend: str = "auto",
    detrend: str = "row",
    statistics: str = "row",
    center: str = "row",
    target_power: str = "as-is",
    eps_mode: str = "absolute",
) -> Tensor:
    """Carry the power spectral density of each row of ``x`` onto a target.

    Parameters
    ----------
    x : Tensor, (N, C, T), (C, T), (N, C, 1, T) or (N, C, T, 1)
    sqrt_target : Tensor, (C, F), optional
        Square root of the target PSD at the ``F = filter_size // 2 + 1`` kept bins.
        By default white with unit variance, as measured with ``detrend``.
    filter_size : int
        Number f of taps and of PSD bins, from 1 to T.
    weight, bias : Tensor, (C,), optional
        Scale and shift of the result.
    eps, window, padding_mode, backend, detrend, statistics, center, target_power, eps_mode
        As in :class:`~psdnorm.PSDNorm`. The white default always has unit power.

    Returns
    -------
    Tensor, of the shape and dtype of ``x``

    Examples
    --------
    With one tap and a white target it is instance normalization:

    >>> import torch
    >>> x = torch.randn(2, 3, 100)
    >>> y = psd_norm(x, filter_size=1)
    >>> torch.allclose(y, torch.nn.functional.instance_norm(x), atol=1e-5)
    True
    """
    spec = Spec(
        check_size("filter_size", filter_size),
        *(eps, window, padding_mode, detrend, statistics, center, eps_mode),
    )
    check_spec(spec, backend, target_power)
    rows = as_rows(x)
    n_channels = rows.shape[1]
    if sqrt_target is None:
        deviation = rows.new_ones(n_channels, dtype=ops.statistics_dtype(rows.dtype))
        sqrt_target = ops.white_root(deviation, spec)
    elif target_power == "unit":
        _check_parameter("sqrt_target", sqrt_target, (n_channels, ops.n_bins(spec.filter_size)))
        sqrt_target = ops.unit_power(sqrt_target, spec)
    _check_parameter("sqrt_target", sqrt_target, (n_channels, ops.n_bins(spec.filter_size)))
    _check_parameter("weight", weight, (n_channels,))
    _check_parameter("bias", bias, (n_channels,))
    backend = ops.choose_backend(backend, rows, spec, sqrt_target, weight, bias)
    if spec.is_pooled:
        groups = groups_of_pass(rows, _passes, sync=False)
        offset, psd, _ = ops.domain_statistics(rows, groups, spec, backend)
        y = ops.normalize(rows, offset, psd, sqrt_target, spec, weight, bias, backend, groups)
    else:
        y = ops.measure_and_normalize(rows, sqrt_target, spec, weight, bias, backend)
    return y.reshape(x.shape)


def as_rows(x: Tensor, num_features: int | None = None) -> Tensor:
    """View a signal batch as (N, C, T); see :func:`psd_norm` for the accepted shapes."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"PSDNorm expects a torch.Tensor, found {type(x).__name__}")
    if x.dtype not in _FLOATS:
        raise DtypeError(
            f"PSDNorm expects float16, bfloat16, float32 or float64 signals, found {x.dtype}"
        )
    if x.dim() == 4 and 1 in x.shape[2:]:
        rows = x.squeeze(2) if x.shape[2] == 1 else x.squeeze(3)
    elif x.dim() in (2, 3):
        rows = x if x.dim() == 3 else x.unsqueeze(0)
    else:
        raise ShapeError(
            "PSDNorm expects (N, C, T), (C, T), (N, C, 1, T) or (N, C, T, 1), "
            f"found {x.dim()} dimensions: {tuple(x.shape)}"
        )
    if num_features is not None and rows.shape[1] != num_features:
        raise ShapeError(
            f"PSDNorm was built for {num_features} channels, "
            f"found {rows.shape[1]} in an input of shape {tuple(x.shape)}"
        )
    return rows


def check_size(name: str, value: int) -> int:
    """Return a size as a plain int; raise unless it is a whole number from 1 on."""
    try:
        size = operator.index(value)  # NumPy's integers count too
    except TypeError:
        size = 0
    if isinstance(value, bool) or size < 1:
        raise ArgumentError(f"{name} must be a whole number from 1 on, found {value!r}")
    return size


def check_spec(spec: Spec, backend: str = "auto", target_power: str = "as-is") -> None:
    """Raise :class:`~psdnorm.errors.ArgumentError` for an invalid option."""
    if not is_number(spec.eps, 0, sys.float_info.max):
        raise ArgumentError(f"eps must be a finite number from 0 on, found {spec.eps!r}")
    for name, value, allowed in (
        ("window", spec.window, tuple(ops.WINDOWS)),
        ("padding_mode", spec.padding_mode, ops.PADDING_MODES),
        ("backend", backend, ops.BACKENDS),
        ("detrend", spec.detrend, ops.DETRENDS),
        ("statistics", spec.statistics, ops.STATISTICS),
        ("center", spec.center, ops.CENTERS),
        ("target_power", target_power, ops.TARGET_POWERS),
        ("eps_mode", spec.eps_mode, ops.EPS_MODES),
    ):
        if value not in allowed:
            raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, found {value!r}")
    if spec.center == "domain" and not spec.is_pooled:
        raise ArgumentError(
            f'center="domain" needs statistics="domain", found statistics={spec.statistics!r}'
        )
    if spec.eps == 0 and spec.detrend == "segment" and spec.window == "boxcar":
        raise ArgumentError(
            'eps must be above 0 with detrend="segment" and the window boxcar, which leave the '
            f"lowest bin without power, found {spec.eps!r}"
        )


def check_sizes(name: str, values: Iterable[int]) -> list[int]:
    """Return sizes as a list of integers from 1 on."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ArgumentError(f"{name} must be a sequence of integers, found {values!r}")
    return [check_size(name, value) for value in values]


def is_number(value: object, least: float, most: float) -> bool:
    """Return whether ``value`` is a real number in a range; True and False are not."""
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if isinstance(value, np.floating):  # which would cast the bounds to its own precision
        value = float(value)
    return is_real and least <= value <= most  # type: ignore[operator]


def _check_parameter(name: str, value: Tensor | None, shape: tuple[int, ...]) -> None:
    if value is None:
        return
    if not isinstance(value, Tensor) or value.dtype not in _FLOATS:
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise DtypeError(f"{name} must be a tensor of floating-point numbers, found {found}")
    if value.shape != shape:
        raise ShapeError(f"{name} has shape {tuple(value.shape)}, expected {shape}")
