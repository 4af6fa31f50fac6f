"""PSDNorm without state: checks arguments, chooses a backend, calls :mod:`psdnorm.ops`."""

import numbers
import operator
import sys
from collections.abc import Iterable
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from psdnorm.errors import ArgumentError, BackendError, DtypeError, ShapeError
from psdnorm.ops import dispatch as fused
from psdnorm.ops import reference

BACKENDS = ("auto", "reference", "fused")
# on a processor the fast path pays for rows this many times longer than the filter
_LONG_ROW = 32
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
) -> Tensor:
    """Carry the power spectral density of each row of ``x`` onto a target.

    Parameters
    ----------
    x : Tensor, (N, C, T), (C, T), (N, C, 1, T) or (N, C, T, 1)
    sqrt_target : Tensor, (C, F), optional
        Square root of the target PSD at the ``F = filter_size // 2 + 1`` kept bins.
        White with unit variance if not given, as far as ``detrend`` lets it be measured.
    filter_size : int
        Number f of taps and of PSD bins, from 1 to T.
    weight, bias : Tensor, (C,), optional
        Per-channel affine map of the result.
    eps : float
        Added to the PSD of each row.
    window : {"boxcar", "hann", "hamming"}
    padding_mode : {"circular", "zeros", "reflect"}
    backend : {"auto", "reference", "fused"}
    detrend : {"row", "segment"}
        What loses its mean before the PSD is estimated; see :class:`~psdnorm.PSDNorm`.

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
    filter_size = check_size("filter_size", filter_size)
    check_options(eps, window, padding_mode, backend, detrend)
    rows = as_rows(x)
    n_channels, n_bins = rows.shape[1], reference.n_bins(filter_size)
    if sqrt_target is None:
        deviation = rows.new_ones(n_channels, dtype=reference.statistics_dtype(rows.dtype))
        sqrt_target = reference.white_root(deviation, filter_size, eps, window, detrend)
    _check_parameter("sqrt_target", sqrt_target, (n_channels, n_bins))
    _check_parameter("weight", weight, (n_channels,))
    _check_parameter("bias", bias, (n_channels,))
    backend = choose_backend(backend, rows, filter_size, sqrt_target, weight, bias)
    options = weight, bias, window, padding_mode, backend, detrend
    return measure_and_normalize(rows, sqrt_target, filter_size, eps, *options).reshape(x.shape)


def row_statistics(
    rows: Tensor,
    filter_size: int,
    eps: float = 1e-5,
    window: str = "boxcar",
    backend: str = "reference",
    detrend: str = "row",
) -> tuple[Tensor, Tensor]:
    """Measure rows: mean relative to the first sample, (N, C), and PSD plus eps, (N, C, F).

    ``rows`` is (N, C, T); its statistics are float32 at least. Gradients flow through them with
    ``backend="reference"`` alone: in the fused backend :func:`normalize` accounts for them. So use
    the same backend for both, from :func:`choose_backend`.
    """
    _check_length(rows.shape[-1], filter_size)
    with _without_autocast(rows):
        ops = fused if backend == "fused" else reference
        return ops.row_statistics(rows, filter_size, eps, window, detrend)


def normalize(
    rows: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    filter_size: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    window: str = "boxcar",
    padding_mode: str = "circular",
    backend: str = "reference",
    detrend: str = "row",
) -> Tensor:
    """Carry rows (N, C, T) measured by :func:`row_statistics` onto ``sqrt_target``, (C, F)."""
    with _without_autocast(rows):
        ops = fused if backend == "fused" else reference
        options = weight, bias, window, padding_mode, detrend
        return ops.normalize(rows, offset, psd, sqrt_target, filter_size, *options)


def measure_and_normalize(
    rows: Tensor,
    sqrt_target: Tensor,
    filter_size: int,
    eps: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    window: str = "boxcar",
    padding_mode: str = "circular",
    backend: str = "reference",
    detrend: str = "row",
) -> Tensor:
    """Do both in one step for rows (N, C, T): the target, (C, F), does not depend on them."""
    options = weight, bias, window, padding_mode
    if backend == "fused":
        _check_length(rows.shape[-1], filter_size)
        with _without_autocast(rows):
            return fused.measure_and_normalize(
                rows, sqrt_target, filter_size, eps, *options, detrend
            )
    offset, psd = row_statistics(rows, filter_size, eps, window, backend, detrend)
    return normalize(rows, offset, psd, sqrt_target, filter_size, *options, backend, detrend)


def choose_backend(
    backend: str,
    rows: Tensor,
    filter_size: int,
    sqrt_target: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> str:
    """Say which backend serves a call, "reference" or "fused".

    "auto" takes the fused one where it can serve and pays; "fused" raises
    :class:`~psdnorm.errors.BackendError` where it cannot. So does a parameter that is on another
    device than the rows.
    """
    for name, parameter in (("target", sqrt_target), ("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.device != rows.device:
            raise BackendError(
                f"the signal is on {rows.device}, PSDNorm's {name} on {parameter.device}: "
                "move one of them"
            )
    if backend == "reference":
        return backend
    reason = fused.supports(rows, filter_size, sqrt_target, weight, bias)
    if backend == "fused":
        if reason is not None:
            raise BackendError(f'backend="fused" cannot serve this call: {reason}')
        return backend
    pays = rows.is_cuda or rows.shape[-1] >= _LONG_ROW * filter_size
    return "fused" if reason is None and pays else "reference"


def as_rows(x: Tensor, num_features: int | None = None) -> Tensor:
    """View a signal batch as (N, C, T).

    Parameters
    ----------
    x : Tensor, (N, C, T), (C, T), (N, C, 1, T) or (N, C, T, 1)
    num_features : int, optional
        The number of channels that is expected.
    """
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
    """Return a size as a plain int; raise :class:`~psdnorm.errors.ArgumentError` if it is none."""
    try:
        size = operator.index(value)  # NumPy's integers count too
    except TypeError:
        size = 0
    if isinstance(value, bool) or size < 1:
        raise ArgumentError(f"{name} must be a whole number from 1 on, found {value!r}")
    return size


def check_options(
    eps: float, window: str, padding_mode: str, backend: str = "auto", detrend: str = "row"
) -> None:
    """Raise :class:`~psdnorm.errors.ArgumentError` for an option that does not exist."""
    if not is_number(eps, 0, sys.float_info.max):
        raise ArgumentError(f"eps must be a finite number from 0 on, found {eps!r}")
    for name, value, allowed in (
        ("window", window, tuple(reference.WINDOWS)),
        ("padding_mode", padding_mode, reference.PADDING_MODES),
        ("backend", backend, BACKENDS),
        ("detrend", detrend, reference.DETRENDS),
    ):
        if value not in allowed:
            raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, found {value!r}")
    if eps == 0 and detrend == "segment" and window == "boxcar":
        raise ArgumentError(
            'eps must be above 0 with detrend="segment" and the window boxcar, which leave the '
            f"lowest bin without power, found {eps!r}"
        )


def check_sizes(name: str, values: Iterable[int]) -> list[int]:
    """Return sizes as a list of integers from 1 on."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ArgumentError(f"{name} must be a sequence of integers, found {values!r}")
    return [check_size(name, value) for value in values]


def is_number(value: object, least: float, most: float) -> bool:
    """Tell whether ``value`` is a real number in a range; True and False are none."""
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


def _check_length(length: int, filter_size: int) -> None:
    if length < filter_size:
        raise ShapeError(
            f"the signal has {length} time samples, fewer than filter_size {filter_size}"
        )


def _without_autocast(rows: Tensor):
    # statistics are float32 at least, whatever the region around the layer says
    kind = rows.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()
