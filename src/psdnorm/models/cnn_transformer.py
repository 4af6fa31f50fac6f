"""CNNTransformer: convolutions see the signal, attention sees the night."""

import math
from collections.abc import Sequence

from torch import Tensor, compiler, nn, randn, relu

from psdnorm.errors import ArgumentError, ShapeError
from psdnorm.functional import check_size, check_sizes, is_number
from psdnorm.models.checkpoint import Pretrained
from psdnorm.models.norms import (
    NORM_SETTINGS,
    Norm,
    NormArguments,
    ScaledConv1d,
    input_scale_setting,
    norm_at,
    norm_settings,
)


class CNNTransformer(Pretrained):
    """Sleep staging with strided convolutions and a transformer over epochs, as in the paper.

    Parameters
    ----------
    n_chans, n_outputs, n_times, sfreq : int, int, int, float
        Channels C, stages, samples T per epoch, samples per second. Block 0 has filters of 70 ms.
    channels, strides : sequence of int
        One entry per block: Conv1d (2·stride + 1 taps) → ELU → norm. The last width is d_model. The
        paper leaves widths, strides and taps open; docs/models.md explains our choice.
    n_layers, n_heads, dropout, n_epochs : int, int, float, int
        Of the transformer, the only part with dropout; for any other S, positions are interpolated.
    norm, filter_size, norm_depth, norm_arguments, filter_schedule, input_scale
        As in :class:`psdnorm.models.USleep`: the norm of the first blocks, a factor on the input.

    Shape
    -----
    (N, S, C, T), any S from 1 → (N, n_outputs, S), logits.
    """

    def __init__(
        self,
        n_chans: int = 2,
        n_outputs: int = 5,
        n_times: int = 3000,
        sfreq: float = 100,
        channels: Sequence[int] = (16, 32, 32, 64, 64, 96, 128, 192, 256, 768),
        strides: Sequence[int] = (3, 5, 1, 5, 1, 2, 2, 2, 1, 1),
        n_layers: int = 2,
        n_heads: int = 8,
        dropout: float = 0.1,
        n_epochs: int = 35,
        norm: Norm = "batch",
        filter_size: int = 5,
        norm_depth: int = 3,
        norm_arguments: NormArguments = None,
        filter_schedule: str = "halved",
        input_scale: float = 1.0,
    ) -> None:
        own = {k: v for k, v in locals().items() if k not in ("self", "__class__", *NORM_SETTINGS)}
        super().__init__()
        norms = norm_settings(norm, filter_size, norm_depth, norm_arguments, filter_schedule)
        scale = input_scale_setting(own.pop("input_scale"))
        own |= scale
        self.config = {k: check_size(k, v) if k[:2] == "n_" else v for k, v in own.items()} | norms
        self.config["channels"] = channels = check_sizes("channels", channels)
        self.config["strides"] = strides = check_sizes("strides", strides)
        d_model, self.stride = [n_chans, *channels][-1], math.prod(strides)
        if len(channels) != len(strides) or d_model % n_heads or self.stride > n_times:
            raise ArgumentError(
                "channels and strides must have equal length, channels end in a multiple of "
                f"n_heads={n_heads}, strides multiply to at most n_times={n_times}: "
                f"found {tuple(channels)}, {tuple(strides)}"
            )
        if not (is_number(sfreq, 1e-3, 1e6) and is_number(dropout, 0, 1)):
            raise ArgumentError(f"sfreq must be positive, dropout 0 to 1: {sfreq!r}, {dropout!r}")
        self.blocks = nn.Sequential()
        for i, (n_out, stride) in enumerate(zip(channels, strides, strict=True)):
            kernel = max(2 * stride + 1, 0 if i else round(0.07 * sfreq) | 1)
            shape = channels[i - 1] if i else n_chans, n_out, kernel, stride, kernel // 2
            conv = nn.Conv1d(*shape) if i else ScaledConv1d(*shape, **scale)
            self.blocks.extend([conv, nn.ELU(inplace=True), norm_at(norm, i, n_out, **norms)])
        self.positions: Tensor = nn.Parameter(0.02 * randn(1, d_model, n_epochs))
        sizes = d_model, n_heads, 8 * d_model // 3, dropout, relu  # inductor breaks F.relu's path
        layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=True)  # no warm-up
        self.transformer = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(d_model), False)
        self.head = nn.Conv1d(d_model, n_outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every epoch; see the class for shapes."""
        n_chans, n_times = self.config["n_chans"], self.config["n_times"]
        shape = tuple(getattr(x, "shape", ()))
        if not isinstance(x, Tensor) or shape[2:] != (n_chans, n_times) or shape[1] == 0:
            raise ShapeError(
                f"CNNTransformer was built for {n_chans} channels and epochs of {n_times} samples, "
                f"(N, S, {n_chans}, {n_times}), found a {type(x).__name__} of shape {shape}"
            )
        n_epochs, positions = x.shape[1], self.positions
        features = self.blocks(x.transpose(1, 2).flatten(2))  # (N, d_model, at least S)
        if n_times % self.stride == 0:
            features = nn.functional.avg_pool1d(features, n_times // self.stride)
        else:
            features = nn.functional.adaptive_avg_pool1d(features, n_epochs)
        if compiler.is_exporting() or n_epochs != positions.shape[-1]:  # exported for any S
            positions = nn.functional.interpolate(positions, n_epochs, mode="linear")
        return self.head(self.transformer((features + positions).transpose(1, 2)).transpose(1, 2))
