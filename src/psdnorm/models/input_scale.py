"""A constant that every model can multiply its input by, taken over by its first convolution."""

from typing import Any

from torch import Tensor, nn

from psdnorm.errors import ArgumentError
from psdnorm.functional import is_number

_LEAST, _MOST = 1e-9, 1e6  # a checkpoint with more is refused


def input_scale_setting(input_scale: float) -> dict[str, float]:
    """Check the scale of a model's input, and return it for the model's ``config``.

    Parameters
    ----------
    input_scale : float
        From 1e-9 to 1e6.

    Returns
    -------
    dict
        Empty for 1: other checkpoints stay as they were before there was this argument.

    Raises
    ------
    ArgumentError
        For what is no such number.

    Examples
    --------
    >>> input_scale_setting(0.05), input_scale_setting(1)
    ({'input_scale': 0.05}, {})
    """
    if not is_number(input_scale, _LEAST, _MOST):
        raise ArgumentError(
            f"input_scale must be a number from {_LEAST:g} to {_MOST:g}, found {input_scale!r:.50}"
        )
    return {} if input_scale == 1 else {"input_scale": float(input_scale)}


def for_scaled_input(weight: Tensor, input_scale: float) -> Tensor:
    """Return the weight that does to x what ``weight`` does to x · ``input_scale``.

    Parameters
    ----------
    weight : Tensor, any shape
        Of a convolution; its gradient is that with the scaled input, too.
    input_scale : float

    Returns
    -------
    Tensor
        Of the same shape; ``weight`` itself where the scale is 1.
    """
    return weight if input_scale == 1 else weight * input_scale


class ScaledConv1d(nn.Conv1d):
    """``nn.Conv1d`` of the input times a constant, with no further pass over the input.

    Parameters
    ----------
    *sizes
        As in ``nn.Conv1d``.
    input_scale : float
        The stored weight is that for x · ``input_scale``.

    Shape
    -----
    (N, C, L) → (N, C', L'), as in ``nn.Conv1d``.
    """

    def __init__(self, *sizes: Any, input_scale: float = 1.0) -> None:
        super().__init__(*sizes)
        self.input_scale = float(input_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x · ``input_scale``."""
        return self._conv_forward(x, for_scaled_input(self.weight, self.input_scale), self.bias)
