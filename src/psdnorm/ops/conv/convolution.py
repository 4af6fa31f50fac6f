"""Convolution, bias and ELU in one pass over the signal, for networks with few channels.

What libraries offer for 2 to 80 channels spends its time on turning (N, C, T) around and back. In
half precision on a CUDA device the kernels of :mod:`psdnorm.ops.conv.banded` serve; everywhere else
torch's own do.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from psdnorm.ops.conv import banded
from psdnorm.ops.reference import is_exporting
from psdnorm.ops.triton.launch import HAS_TRITON

# with 110 channels the library was faster, with 80 much slower (docs/performance.md)
MOST_CHANNELS = 80
_HALF = (torch.bfloat16, torch.float16)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, elu: bool = False) -> Tensor:
    """Convolve with an odd number K of taps, keep the length.

    Parameters
    ----------
    x : Tensor, (N, C, T)
    weight : Tensor, (C', C, K)
    bias : Tensor, (C',), or None
    elu : bool
        Apply ELU to the result.

    Returns
    -------
    Tensor, (N, C', T)
    """
    pad = weight.shape[-1] // 2
    if is_served(x, weight):
        return banded.convolve(x.to(_dtype(x)), weight, bias, pad, 1, elu)
    y = F.conv1d(x, weight, bias, padding=pad)
    return F.elu(y, inplace=True) if elu else y


def upsample_conv(x: Tensor, weight: Tensor, bias: Tensor | None, elu: bool = False) -> Tensor:
    """Repeat every sample and convolve with two taps, now and next; nothing repeated is written.

    Parameters
    ----------
    x : Tensor, (N, C, T)
    weight : Tensor, (C', C, 2)
    bias : Tensor, (C',), or None
    elu : bool
        Apply ELU to the result.

    Returns
    -------
    Tensor, (N, C', 2T)
    """
    if is_served(x, weight):
        return banded.convolve(x.to(_dtype(x)), weight, bias, 0, 2, elu)
    if x.device.type == "cpu" and _dtype(x) in _HALF:
        # oneDNN's transposed convolution in half precision kills the process on some processors
        y = F.conv1d(F.pad(x.repeat_interleave(2, dim=-1), (0, 1)), weight, bias)
        return F.elu(y, inplace=True) if elu else y
    now, following = weight.unbind(-1)
    # y[2i] = (now + following) x[i] and y[2i+1] = now x[i] + following x[i+1], read by what each
    # x[i] adds to: y[2i-1], y[2i] and y[2i+1]
    taps = torch.stack([following, now + following, now], dim=-1).transpose(0, 1)
    y = F.conv_transpose1d(x, taps, bias, stride=2, padding=1, output_padding=1)
    return F.elu(y, inplace=True) if elu else y


def is_served(x: Tensor, weight: Tensor) -> bool:
    """Tell whether the kernels serve this convolution."""
    return (
        not is_exporting()
        and x.is_cuda
        and HAS_TRITON
        and _dtype(x) in _HALF
        and max(weight.shape[:2]) <= MOST_CHANNELS
        # positions within a sample are 32 bits in the kernels
        and MOST_CHANNELS * 2 * x.shape[-1] < 2**31
    )


def _dtype(x: Tensor) -> torch.dtype:
    # autocast leaves float64 alone
    in_autocast = x.dtype != torch.float64 and torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if in_autocast else x.dtype
