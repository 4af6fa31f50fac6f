"""Which norm stands at which depth: the one place that every model takes its norms from."""

from collections.abc import Callable

from torch import nn

from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size
from psdnorm.layer import PSDNorm

# by name, so that a configuration with one of them can be written as JSON
NORMS = ("batch", "layer", "instance", "psd", "psd-white")

Norm = str | Callable[[int], nn.Module]


def norm_at(
    norm: Norm, depth: int, num_features: int, *, norm_depth: int = 3, filter_size: int = 5
) -> nn.Module:
    """Build the norm that stands at one depth of a model.

    Parameters
    ----------
    norm : {"batch", "layer", "instance", "psd", "psd-white"} or callable
        A callable is given ``num_features`` and returns a module for (N, C, T).
    depth : int
        Which block, from 0.
    num_features : int
        Number of channels C.
    norm_depth : int
        How many blocks get the chosen norm; the deeper ones get BatchNorm.
    filter_size : int
        PSDNorm's filter size f in block 0. It is halved from block to block, as the signal is by
        pooling: ``max(1, f // 2**depth)``.

    Returns
    -------
    nn.Module
        Maps (N, C, T) to (N, C, T).

    Notes
    -----
    "layer" normalizes each sample over channels and time and learns a scale and a shift per
    channel, so it works at any length. The code released with the paper learns them per channel
    and time sample instead, which ties a network to sequences of 35 · 3000 = 105,000 samples.

    "instance", "psd" and "psd-white" learn no scale and no shift; "psd-white" with a filter size
    of 1 is "instance".

    Examples
    --------
    >>> [norm_at("psd", depth, 6).filter_size for depth in range(3)]
    [5, 2, 1]
    >>> type(norm_at("psd", 3, 6)).__name__
    'BatchNorm1d'
    """
    check_norm(norm, norm_depth, filter_size)
    if depth >= norm_depth or norm == "batch":
        return nn.BatchNorm1d(num_features)
    if norm == "layer":
        return nn.GroupNorm(1, num_features)
    if norm == "instance":
        return nn.InstanceNorm1d(num_features)
    if isinstance(norm, str):
        target = "white" if norm == "psd-white" else "barycenter"
        return PSDNorm(num_features, max(1, filter_size // 2**depth), target=target)
    module = norm(num_features)
    if not isinstance(module, nn.Module):
        raise ArgumentError(
            f"norm must return a torch.nn.Module for {num_features} channels, "
            f"found {type(module).__name__}"
        )
    return module


def check_norm(norm: Norm, norm_depth: int, filter_size: int) -> None:
    """Raise :class:`~psdnorm.errors.ArgumentError` for a norm that does not exist."""
    if not (callable(norm) or norm in NORMS):
        raise ArgumentError(
            f"norm must be one of {', '.join(NORMS)} or a callable that takes the number of "
            f"channels, found {norm!r}"
        )
    if norm_depth != 0:
        check_size("norm_depth", norm_depth)
    check_size("filter_size", filter_size)
