"""What all models share: the norm at each depth, and the scale of the input."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size, is_number
from psdnorm.layer import PSDNorm

# by name, so that a configuration with one of them can be written as JSON
NORMS = ("batch", "layer", "instance", "psd", "psd-white")
PSD_NORMS = ("psd", "psd-white")
SCHEDULES = ("halved", "same")
# arguments that a model passes on to its PSDNorm layers unchanged
NORM_ARGUMENTS = (
    *("eps", "affine", "window", "padding_mode", "momentum", "detrend"),
    *("statistics", "center", "target_power", "eps_mode"),
)
# a checkpoint beyond these limits is not loaded
_MOST_EPS = 1e6
_LEAST_SCALE, _MOST_SCALE = 1e-9, 1e6
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
    """Build the norm of one block: ``norm`` in the first ``norm_depth``, BatchNorm in the others.

    >>> [norm_at("psd", depth, 6).filter_size for depth in range(3)]
    [5, 2, 1]
    >>> [norm_at("psd", depth, 6, filter_schedule="same").filter_size for depth in range(3)]
    [5, 5, 5]
    """
    norm_settings(norm, filter_size, norm_depth, norm_arguments, filter_schedule)
    if depth >= norm_depth or norm == "batch":
        return nn.BatchNorm1d(num_features)
    if norm == "layer":
        # over channels and time, so it works at any length; the paper's code learns a scale and a
        # shift per time sample, too, which ties a network to 35 · 3000 samples
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
    """Check the settings of a model's norms; return them as plain values for its ``config``.

    >>> norm_settings("psd", 5, 3, {"affine": False})
    {'filter_size': 5, 'norm_depth': 3, 'norm_arguments': {'affine': False}}
    """
    if not (callable(norm) or norm in NORMS):
        raise ArgumentError(
            f"norm must be one of {', '.join(NORMS)} or a callable that takes the number of "
            f"channels, found {norm!r}"
        )
    check_schedule(filter_schedule)
    is_zero = norm_depth == 0 and not isinstance(norm_depth, bool | float)
    settings: dict[str, Any] = {
        "filter_size": check_size("filter_size", filter_size),
        "norm_depth": 0 if is_zero else check_size("norm_depth", norm_depth),
    }
    arguments = plain_norm_arguments(norm_arguments)
    if arguments and norm not in PSD_NORMS:
        raise ArgumentError(
            f"norm_arguments are PSDNorm's, expected norm {' or '.join(PSD_NORMS)} with them, "
            f"found {norm!r}"
        )
    # only where they change something: older checkpoints do not have these two
    if arguments:
        settings["norm_arguments"] = arguments
    if filter_schedule != SCHEDULES[0] and norm in PSD_NORMS:
        settings["filter_schedule"] = filter_schedule
    return settings


def check_schedule(filter_schedule: str) -> None:
    """Raise :class:`~psdnorm.errors.ArgumentError` for an unknown schedule."""
    if filter_schedule not in SCHEDULES:
        raise ArgumentError(
            f"filter_schedule must be one of {', '.join(SCHEDULES)}, found {filter_schedule!r:.50}"
        )


def plain_norm_arguments(norm_arguments: NormArguments) -> dict[str, Any]:
    """Check further arguments of PSDNorm, and return them as plain JSON values."""
    if norm_arguments is None:
        return {}
    known = ", ".join(NORM_ARGUMENTS)
    if not isinstance(norm_arguments, Mapping):
        raise ArgumentError(
            f"norm_arguments must be a mapping of {known}, found {norm_arguments!r:.50}"
        )
    for name in norm_arguments:
        if name not in NORM_ARGUMENTS:
            raise ArgumentError(f"norm_arguments has {name!r:.50}, expected one of {known}")
    affine = norm_arguments.get("affine", False)
    if not isinstance(affine, bool):  # the layer accepts any truthy value
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


def input_scale_setting(input_scale: float) -> dict[str, float]:
    """Check the scale of a model's input, and return it for the model's ``config``.

    >>> input_scale_setting(0.05), input_scale_setting(1)  # older checkpoints do not have it
    ({'input_scale': 0.05}, {})
    """
    if not is_number(input_scale, _LEAST_SCALE, _MOST_SCALE):
        raise ArgumentError(
            f"input_scale must be a number from {_LEAST_SCALE:g} to {_MOST_SCALE:g}, "
            f"found {input_scale!r:.50}"
        )
    return {} if input_scale == 1 else {"input_scale": float(input_scale)}


class ScaledConv1d(nn.Conv1d):
    """``nn.Conv1d`` of the input times a constant, without an extra pass over the input."""

    def __init__(self, *sizes: Any, input_scale: float = 1.0, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.input_scale = float(input_scale)

    @property
    def scaled_weight(self) -> Tensor:
        """The weight that acts on x as the stored weight acts on x · ``input_scale``."""
        return self.weight if self.input_scale == 1 else self.weight * self.input_scale

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.scaled_weight, self.bias)
