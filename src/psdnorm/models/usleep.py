"""U-Sleep: a U-Net over time that stages every epoch of a night at once."""

import math
import numbers
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdnorm.errors import ArgumentError, DtypeError, ShapeError
from psdnorm.functional import check_size
from psdnorm.models.checkpoint import Pretrained
from psdnorm.models.norms import (
    Norm,
    NormArguments,
    ScaledConv1d,
    input_scale_setting,
    norm_at,
    norm_settings,
)
from psdnorm.ops import conv, upsample_conv


class USleep(Pretrained):
    """Sleep staging with a U-Net over time (Perslev et al., npj Digital Medicine 4:72, 2021).

    An encoder of ``depth`` blocks, each of convolution, ELU, norm and pooling by 2, is followed by
    a decoder of as many blocks that restore the full rate, each with a skip connection from the
    encoder block of the same rate; the mean over each epoch is classified. The network is fully
    convolutional, so it stages sequences of any length.

    Parameters
    ----------
    n_chans, n_outputs, n_times : int
        Channels C, stages, samples T in an epoch.
    sfreq : float
        Sampling frequency in Hz; with ``time_conv_size_s`` it sets the length of the filters.
    depth : int
        Number of encoder blocks, and of decoder blocks.
    n_time_filters : int
        Filters of the first block before ``complexity_factor``; each next has √2 times as many.
    complexity_factor : float
        Its square root multiplies every number of filters.
    with_skip_connection : bool
        Concatenate encoder features to the decoder's.
    time_conv_size_s : float
        Length of the filters in seconds.
    ensure_odd_conv_size : bool
        Lengthen filters with an even number of samples by one; if False, raise.
    norm : {"batch", "layer", "instance", "psd", "psd-white"} or callable
        The norm of the first ``norm_depth`` encoder blocks; all others have BatchNorm. A callable
        takes the number of channels and returns a module for (N, C, T). "layer" normalizes over
        channels and time, with a scale and a shift per channel.
    filter_size : int
        PSDNorm's filter size f in the first block.
    norm_arguments : mapping, optional
        Further arguments of every PSDNorm: ``eps``, ``affine``, ``window``, ``padding_mode``,
        ``momentum``, ``detrend``. Other norms take none.
    filter_schedule : {"halved", "same"}
        PSDNorm's filter size in block i: ``max(1, f // 2**i)``, or f in all.
    input_scale : float
        Multiplies the input: with 0.05, 20 µV are one unit. From 1e-9 to 1e6. It is part of the
        first convolution, so it costs no extra pass over the signal.

    Attributes
    ----------
    config : dict
        The arguments: ``USleep(**model.config)`` has the same architecture. Unless ``norm`` is a
        callable, it can be written as JSON. Of the last three it has only those with an effect.

    Shape
    -----
    (N, S, C, T), sequences of S epochs, any S from 1 → (N, n_outputs, S), logits.
    (N, C, T), single epochs → (N, n_outputs).

    Notes
    -----
    With ``norm="batch"`` the state dict is that of braindecode's ``USleep``, and so are the
    outputs, except that a sequence of one epoch keeps its axis, (N, n_outputs, 1), and that
    BatchNorm also learns from a batch of one sequence. In training, one sequence so short that a
    single sample reaches the bottom raises.

    Examples
    --------
    >>> import torch
    >>> from psdnorm.models import USleep
    >>> model = USleep(n_times=300, sfreq=10, depth=4, norm="psd")
    >>> model(torch.randn(2, 7, 2, 300)).shape
    torch.Size([2, 5, 7])
    >>> model(torch.randn(8, 2, 300)).shape
    torch.Size([8, 5])
    """

    def __init__(
        self,
        n_chans: int = 2,
        n_outputs: int = 5,
        n_times: int = 3000,
        sfreq: float = 100,
        depth: int = 12,
        n_time_filters: int = 5,
        complexity_factor: float = 1.67,
        with_skip_connection: bool = True,
        time_conv_size_s: float = 9 / 128,
        ensure_odd_conv_size: bool = True,
        norm: Norm = "batch",
        filter_size: int = 5,
        norm_depth: int = 3,
        norm_arguments: NormArguments = None,
        filter_schedule: str = "halved",
        input_scale: float = 1.0,
    ) -> None:
        super().__init__()
        norms = norm_settings(norm, filter_size, norm_depth, norm_arguments, filter_schedule)
        scale = input_scale_setting(input_scale)
        # plain numbers, so that NumPy's do not end up in a JSON file
        self.config = {
            "n_chans": (n_chans := check_size("n_chans", n_chans)),
            "n_outputs": (n_outputs := check_size("n_outputs", n_outputs)),
            "n_times": (n_times := check_size("n_times", n_times)),
            "sfreq": (sfreq := _positive("sfreq", sfreq, 1e6)),
            "depth": (depth := _depth(depth)),
            "n_time_filters": check_size("n_time_filters", n_time_filters),
            "complexity_factor": _positive("complexity_factor", complexity_factor, 1e3),
            "with_skip_connection": bool(with_skip_connection),
            "time_conv_size_s": _positive("time_conv_size_s", time_conv_size_s, 60),
            "ensure_odd_conv_size": bool(ensure_odd_conv_size),
            "norm": norm,
            **norms,
            **scale,
        }
        self.n_chans, self.n_outputs, self.n_times = n_chans, n_outputs, n_times
        self.sfreq, self.depth = sfreq, depth
        kernel_size = _kernel_size(time_conv_size_s, sfreq, ensure_odd_conv_size)
        *widths, bottom = _widths(depth, n_time_filters, complexity_factor)
        # the names of the submodules are braindecode's, so that weights can be loaded both ways
        self.encoder_blocks = nn.ModuleList()
        for i, (n_in, n_out) in enumerate(pairwise([n_chans, *widths])):
            at_i = norm_at(norm, i, n_out, **norms)
            first = {} if i else scale
            self.encoder_blocks.append(_EncoderBlock(n_in, n_out, kernel_size, at_i, **first))
        self.bottom = _conv_elu_norm(widths[-1], bottom, kernel_size, nn.BatchNorm1d(bottom))
        self.decoder_blocks = nn.ModuleList(
            _DecoderBlock(n_in, n_out, kernel_size, with_skip_connection)
            for n_in, n_out in pairwise([bottom, *reversed(widths)])
        )
        self.clf = nn.Sequential(_Conv(widths[0], widths[0], 1, elu=False), nn.Tanh())
        self.final_layer = nn.Sequential()
        self.final_layer.add_module("0", _Conv(widths[0], n_outputs, 1, elu=True))
        self.final_layer.add_module("2", _Conv(n_outputs, n_outputs, 1, elu=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every epoch; see the class for shapes."""
        sequences = self._sequences(x)  # (N, S, C, T)
        n, n_epochs = sequences.shape[:2]
        # a view if S = 1; otherwise the one copy that time-contiguous rows need
        rows = sequences.transpose(1, 2).reshape(n, self.n_chans, n_epochs * self.n_times)
        features = self._features(rows)
        # without skip connections the decoder's output may extend beyond the last epoch
        epochs = self.clf(features[..., : rows.shape[-1]]).unflatten(-1, (n_epochs, self.n_times))
        logits = self.final_layer(epochs.mean(dim=-1))  # (N, n_outputs, S)
        return logits if x.dim() == 4 else logits.squeeze(-1)

    def _features(self, rows: Tensor) -> Tensor:
        """Map (N, C, S·T) to features at the same rate, (N, C', S·T or more)."""
        self._check_bottom(rows)
        features, skips = rows, []
        for encode in self.encoder_blocks:
            features, skip = encode(features)
            skips.append(skip)
        features = self.bottom(features)
        for decode, skip in zip(self.decoder_blocks, reversed(skips), strict=True):
            features = decode(features, skip)
        return features

    def _sequences(self, x: Tensor) -> Tensor:
        """View the input as (N, S, C, T)."""
        if not isinstance(x, Tensor):
            raise DtypeError(f"USleep expects a torch.Tensor, found {type(x).__name__}")
        if x.dim() not in (3, 4):
            raise ShapeError(
                f"USleep expects (N, S, C, T) or (N, C, T), found {x.dim()} dimensions: "
                f"{tuple(x.shape)}"
            )
        for size, found, what in (
            (self.n_chans, x.shape[-2], f"{self.n_chans} channels"),
            (self.n_times, x.shape[-1], f"epochs of {self.n_times} samples"),
        ):
            if found != size:
                where = f"{found} in an input of shape {tuple(x.shape)}"
                raise ShapeError(f"USleep was built for {what}, found {where}")
        if x.dim() == 4 and x.shape[1] == 0:
            raise ShapeError(
                f"USleep expects sequences of 1 epoch or more, found 0: {tuple(x.shape)}"
            )
        return x if x.dim() == 4 else x.unsqueeze(1)

    def _check_bottom(self, rows: Tensor) -> None:
        bottom_length = math.ceil(rows.shape[-1] / 2**self.depth)
        if self.bottom[-1].training and bottom_length == 1 and rows.shape[0] == 1:
            raise ShapeError(
                f"training needs 2 samples or more at the bottom of the network, found 1: depth "
                f"{self.depth} leaves no more of one sequence of {rows.shape[-1]} samples"
            )


class _EncoderBlock(nn.Module):
    """(N, C, L) → half as long, (N, C', ⌈L/2⌉), and at full length, (N, C', L)."""

    def __init__(
        self, n_in: int, n_out: int, kernel_size: int, norm: nn.Module, input_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.block_prepool = _conv_elu_norm(n_in, n_out, kernel_size, norm, input_scale)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        skip = self.block_prepool(x)
        # a zero in front makes an odd length even, as in braindecode; not pooling's own padding,
        # which is never the maximum, nor F.pad, which onnxruntime would fold into that
        if skip.shape[-1] % 2:
            zero = skip.new_zeros((*skip.shape[:-1], 1))
            return F.max_pool1d(torch.cat([zero, skip], dim=-1), 2), skip
        return F.max_pool1d(skip, 2), skip


class _DecoderBlock(nn.Module):
    """(N, C, L) and the features of the encoder, (N, C', L') → (N, C', min(2L, L'))."""

    def __init__(self, n_in: int, n_out: int, kernel_size: int, with_skip: bool) -> None:
        super().__init__()
        self.with_skip = bool(with_skip)
        # in braindecode's state dicts the upsampling is 0 and the ELU 2
        self.block_preskip = nn.Sequential()
        self.block_preskip.add_module("1", _UpsampleConvELU(n_in, n_out))
        self.block_preskip.add_module("3", nn.BatchNorm1d(n_out))
        n_joined = 2 * n_out if with_skip else n_out
        self.block_postskip = _conv_elu_norm(n_joined, n_out, kernel_size, nn.BatchNorm1d(n_out))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.block_preskip(x)
        if self.with_skip:
            # the encoder rounds odd lengths up, so x has at most one sample more than the skip
            x = torch.cat([x[..., : skip.shape[-1]], skip], dim=1)
        return self.block_postskip(x)


class _Conv(ScaledConv1d):
    """Convolve and keep the length, optionally with ELU: (N, C, L) → (N, C', L)."""

    def __init__(
        self, n_in: int, n_out: int, kernel_size: int, elu: bool, input_scale: float = 1.0
    ) -> None:
        super().__init__(n_in, n_out, kernel_size, 1, kernel_size // 2, input_scale=input_scale)
        self.elu = elu

    def forward(self, x: Tensor) -> Tensor:
        return conv(x, self.scaled_weight, self.bias, self.elu)


class _UpsampleConvELU(nn.Conv1d):
    """Repeat every sample, convolve with two taps, apply ELU: (N, C, L) → (N, C', 2L)."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, kernel_size=2)

    def forward(self, x: Tensor) -> Tensor:
        return upsample_conv(x, self.weight, self.bias, elu=True)


def _conv_elu_norm(
    n_in: int, n_out: int, kernel_size: int, norm: nn.Module, input_scale: float = 1.0
) -> nn.Sequential:
    # named as in braindecode's state dicts, where the ELU, without weights, is 1
    block = nn.Sequential()
    block.add_module("0", _Conv(n_in, n_out, kernel_size, True, input_scale))
    block.add_module("2", norm)
    return block


def _kernel_size(time_conv_size_s: float, sfreq: float, ensure_odd: bool) -> int:
    size = round(time_conv_size_s * sfreq)
    expected = "at most 10000" if size > 10_000 else None
    if size % 2 == 0 and not (ensure_odd or expected):
        expected = "an odd number (ensure_odd_conv_size=True adds one)"
    if expected:
        raise ArgumentError(
            f"time_conv_size_s of {time_conv_size_s} at sfreq {sfreq} gives filters of {size} "
            f"samples, expected {expected}"
        )
    return size + 1 - size % 2


def _widths(depth: int, n_time_filters: int, complexity_factor: float) -> list[int]:
    """Return the numbers of channels of the encoder blocks and of the bottom."""
    widths, n_filters = [], n_time_filters
    for _ in range(depth + 1):
        widths.append(int(n_filters * math.sqrt(complexity_factor)))
        n_filters = int(n_filters * math.sqrt(2))
    if widths[0] < 1:
        raise ArgumentError(
            f"complexity_factor {complexity_factor} leaves none of the {n_time_filters} filters "
            "of n_time_filters, expected at least 1"
        )
    return widths


def _depth(depth: int) -> int:
    # deeper, half a minute has no samples left and the widths exceed any memory
    if check_size("depth", depth) > 20:
        raise ArgumentError(f"depth must be from 1 to 20, found {depth}")
    return int(depth)


def _positive(name: str, value: float, most: float) -> float:
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_real and 0 < float(value) <= most):
        raise ArgumentError(f"{name} must be a number above 0, at most {most:g}, found {value!r}")
    return float(value)
