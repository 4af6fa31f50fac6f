"""Which norm stands at which depth: the one place that every model takes its norms from."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size
from psdnorm.layer import PSDNorm

# by name, so that a configuration with one of them can be written as JSON
NORMS = ("batch", "layer", "instance", "psd", "psd-white")
PSD_NORMS = ("psd", "psd-white")
SCHEDULES = ("halved", "same")
# what a model hands on to its PSDNorm layers as it is
NORM_ARGUMENTS = ("eps", "affine", "window", "padding_mode", "momentum", "detrend")
_MOST_EPS = 1e6  # a checkpoint with more is refused
# the arguments of a model that norm_settings checks
NORM_SETTINGS = ("filter_size", "norm_depth", "norm_arguments", "filter_schedule")

Norm = str | Callable[[int], nn.Module]
NormArguments = Mapping[str, Any] | None


def norm_at(
    norm: Norm,
    depth: int,
    num_features: int,
    *,
    norm_depth: int = 3,
    filter_size: int = 5,
    norm_arguments: NormArguments = None,
    filter_schedule: str = "halved",
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
        PSDNorm's filter size f in block 0.
    norm_arguments : mapping, optional
        Further arguments of every :class:`~psdnorm.PSDNorm`: ``eps``, ``affine``, ``window``,
        ``padding_mode``, ``momentum``, ``detrend``. Other norms take none. ``eps`` is 1e6 at most.
    filter_schedule : {"halved", "same"}
        "halved": the filter size is halved from block to block, as the signal is by pooling,
        ``max(1, f // 2**depth)``. "same": f in every block.

    Returns
    -------
    nn.Module
        Maps (N, C, T) to (N, C, T).

    Notes
    -----
    "layer" normalizes each sample over channels and time and learns a scale and a shift per
    channel, so it works at any length. The code released with the paper learns them per channel
    and time sample instead, which ties a network to sequences of 35 · 3000 = 105,000 samples.

    "instance" learns no scale and no shift, nor do "psd" and "psd-white" unless ``norm_arguments``
    has ``affine``; "psd-white" with a filter size of 1 is "instance".

    Examples
    --------
    >>> [norm_at("psd", depth, 6).filter_size for depth in range(3)]
    [5, 2, 1]
    >>> [norm_at("psd", depth, 6, filter_schedule="same").filter_size for depth in range(3)]
    [5, 5, 5]
    >>> norm_at("psd", 0, 6, norm_arguments={"eps": 1e-3}).eps
    0.001
    >>> type(norm_at("psd", 3, 6)).__name__
    'BatchNorm1d'
    """
    norm_settings(norm, filter_size, norm_depth, norm_arguments, filter_schedule)
    if depth >= norm_depth or norm == "batch":
        return nn.BatchNorm1d(num_features)
    if norm == "layer":
        return nn.GroupNorm(1, num_features)
    if norm == "instance":
        return nn.InstanceNorm1d(num_features)
    if isinstance(norm, str):
        size = filter_size if filter_schedule == "same" else max(1, filter_size // 2**depth)
        target = "white" if norm == "psd-white" else "barycenter"
        return PSDNorm(num_features, size, target=target, **norm_arguments or {})
    module = norm(num_features)
    if not isinstance(module, nn.Module):
        raise ArgumentError(
            f"norm must return a torch.nn.Module for {num_features} channels, "
            f"found {type(module).__name__}"
        )
    return module


def norm_settings(
    norm: Norm,
    filter_size: int,
    norm_depth: int,
    norm_arguments: NormArguments = None,
    filter_schedule: str = "halved",
) -> dict[str, Any]:
    """Check what a model is told about its norm, and return it for the model's ``config``.

    Parameters
    ----------
    norm, filter_size, norm_depth, norm_arguments, filter_schedule
        As in :func:`norm_at`.

    Returns
    -------
    dict
        Keyword arguments of :func:`norm_at`, in plain values. The last two are there only where
        they change something: other checkpoints stay as they were before there were these two.

    Raises
    ------
    ArgumentError
        For a norm, a schedule or an argument that does not exist.

    Examples
    --------
    >>> norm_settings("psd", 5, 3, {"affine": False})
    {'filter_size': 5, 'norm_depth': 3, 'norm_arguments': {'affine': False}}
    """
    if not (callable(norm) or norm in NORMS):
        raise ArgumentError(
            f"norm must be one of {', '.join(NORMS)} or a callable that takes the number of "
            f"channels, found {norm!r}"
        )
    check_schedule(filter_schedule)
    settings: dict[str, Any] = {
        "filter_size": check_size("filter_size", filter_size),
        "norm_depth": _norm_depth(norm_depth),
    }
    arguments = plain_norm_arguments(norm_arguments)
    if arguments and norm not in PSD_NORMS:
        raise ArgumentError(
            f"norm_arguments are PSDNorm's, expected norm {' or '.join(PSD_NORMS)} with them, "
            f"found {norm!r}"
        )
    if arguments:
        settings["norm_arguments"] = arguments
    if filter_schedule != SCHEDULES[0] and norm in PSD_NORMS:
        settings["filter_schedule"] = filter_schedule
    return settings


def check_schedule(filter_schedule: str) -> None:
    """Raise :class:`~psdnorm.errors.ArgumentError` for a schedule that does not exist."""
    if filter_schedule not in SCHEDULES:
        raise ArgumentError(
            f"filter_schedule must be one of {', '.join(SCHEDULES)}, found {filter_schedule!r:.50}"
        )


def _norm_depth(norm_depth: int) -> int:
    is_zero = norm_depth == 0 and not isinstance(norm_depth, bool | float)
    return 0 if is_zero else check_size("norm_depth", norm_depth)


def plain_norm_arguments(norm_arguments: NormArguments) -> dict[str, Any]:
    """Return further arguments of PSDNorm as JSON holds them; refuse those that it does not take.

    Parameters
    ----------
    norm_arguments : mapping or None
        See :func:`norm_at`.
    """
    if norm_arguments is None:
        return {}
    if not isinstance(norm_arguments, Mapping):
        raise ArgumentError(
            f"norm_arguments must be a mapping of {', '.join(NORM_ARGUMENTS)}, "
            f"found {norm_arguments!r:.50}"
        )
    for name in norm_arguments:
        if name not in NORM_ARGUMENTS:
            raise ArgumentError(
                f"norm_arguments has {name!r:.50}, expected one of {', '.join(NORM_ARGUMENTS)}"
            )
    affine = norm_arguments.get("affine", False)
    if not isinstance(affine, bool):  # the layer takes whatever is true
        raise ArgumentError(f"norm_arguments: affine must be True or False, found {affine!r:.50}")
    try:
        PSDNorm(1, 1, **norm_arguments)
    except ArgumentError as error:
        raise ArgumentError(f"norm_arguments: {error}") from None
    eps = norm_arguments.get("eps", 0)
    if eps > _MOST_EPS:
        raise ArgumentError(f"norm_arguments: eps must be at most {_MOST_EPS:g}, found {eps!r:.50}")
    return {
        name: float(value) if name in ("eps", "momentum") and value is not None else value
        for name, value in norm_arguments.items()
    }
