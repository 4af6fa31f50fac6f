"""The mathematics of PSDNorm in plain torch, against which every faster path is tested.

Every function is pure, acts on each (sample, channel) row and works for any filter size
``f`` from 1 to ``T``. ``F = f // 2 + 1`` is the half of the spectrum that a real signal needs.
Equation numbers are those of ``docs/mathematics.md``.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

PADDING_MODES = ("circular", "zeros", "reflect")
# generalised cosine windows w_t = a - (1 - a) cos(2πt/f), periodic as in scipy.signal.get_window
WINDOWS = {"boxcar": 1.0, "hann": 0.5, "hamming": 0.54}
DETRENDS = ("row", "segment")
# up to this size a DFT is a product with a constant matrix and a filter a sum over taps; beyond it
# both use the FFT, whose cost does not grow with f
DIRECT_FILTER_SIZE = 64


class Spec(NamedTuple):
    """How rows are measured and filtered: every option that the mathematics depends on."""

    filter_size: int = 5
    eps: float = 1e-5
    window: str = "boxcar"
    padding_mode: str = "circular"
    detrend: str = "row"

    @property
    def detrends_segments(self) -> bool:
        """Whether segments are centred; centring would leave nothing of single-sample segments."""
        return self.detrend == "segment" and self.filter_size > 1


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for statistics of ``dtype`` signals: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def is_exporting() -> bool:
    """Return whether torch.export is tracing this call."""
    # in torch 2.11, torch.compiler.is_exporting() is True inside torch.compile too
    return torch.compiler._is_exporting_flag


def _is_direct(filter_size: int) -> bool:
    # exported graphs never hold an FFT: the runtimes that read them disagree about it
    return filter_size <= DIRECT_FILTER_SIZE or is_exporting()


def half_width(filter_size: int) -> int:
    """Return the largest lag that a filter of ``filter_size`` reaches on either side."""
    return filter_size // 2


def n_bins(filter_size: int) -> int:
    """Return F, the number of bins of a real spectrum of ``filter_size`` samples."""
    return filter_size // 2 + 1


def n_segments(length: int, filter_size: int) -> int:
    """Return the number of Welch segments of a row: neighbours overlap by half, rounded down."""
    return (length - filter_size) // (filter_size - filter_size // 2) + 1


def center(x: Tensor, offset: Tensor | None = None) -> Tensor:
    """Subtract each row's mean; ``offset``: the known mean relative to the row's first sample."""
    # relative to its first sample, a constant row is exactly zero and a large mean costs no
    # precision; the pivot cancels out, so it carries no gradient
    shifted = x - x[..., :1].detach()
    if offset is None:
        offset = shifted.mean(dim=-1)
    return shifted - offset.unsqueeze(-1)


def unit_window(filter_size: int, window: str, like: Tensor) -> Tensor:
    """Return a periodic window of unit norm, (f,), with the dtype and device of ``like``."""
    a = WINDOWS[window]
    t = torch.arange(filter_size, device=like.device, dtype=like.dtype)
    # a window of one sample is 1 by convention: the cosine formula would make a Hann window 0
    w = a - (1 - a) * torch.cos(2 * math.pi / filter_size * t) if filter_size > 1 else t + 1
    return w / w.norm()


def _phases(rows: int, columns: int, filter_size: int, like: Tensor) -> Tensor:
    """Return the angles 2πkm/f for k < rows and m < columns, (rows, columns)."""
    k = torch.arange(rows, device=like.device)
    m = torch.arange(columns, device=like.device)
    # reduced modulo f in integers, so that large products stay exact
    turns = (k.unsqueeze(1) * m) % filter_size
    return turns.to(like.dtype) * (2 * math.pi / filter_size)


def windowed_dft(spec: Spec, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of the F bins, windowed and detrended, (f, F) each."""
    size = spec.filter_size
    w = unit_window(size, spec.window, like).unsqueeze(1)
    phases = _phases(size, n_bins(size), size, like)
    cosines, sines = w * phases.cos(), w * phases.sin()
    if spec.detrends_segments:
        # centring these weights is the same as centring the segment; windows are even, so the
        # windowed sines have zero mean
        cosines = center(cosines.T).T
    return cosines, sines


def welch_psd(
    centered: Tensor, filter_size: int, window: str = "boxcar", detrend: str = "row"
) -> Tensor:
    """PSD of centred rows (Welch, eq. 3), (..., T) → (..., F): σ² at every bin for white noise."""
    spec = Spec(filter_size, window=window, detrend=detrend)
    hop = filter_size - half_width(filter_size)
    # one memory layout for all lengths, or an exported program would fail for some of them
    segments = centered.unfold(-1, filter_size, hop).contiguous()  # (..., L, f)
    if _is_direct(filter_size):
        cosines, sines = windowed_dft(spec, centered)
        real, imag = segments @ cosines, segments @ sines  # (..., L, F)
    else:
        segments = center(segments) if spec.detrends_segments else segments
        spectrum = torch.fft.rfft(segments * unit_window(filter_size, window, centered))
        real, imag = spectrum.real, spectrum.imag
        if spec.detrends_segments and window == "boxcar":
            # only rounding error is left in bin 0
            real = real * (torch.arange(real.shape[-1], device=real.device) > 0)
    return (real.square() + imag.square()).mean(dim=-2)


def white_root(deviation: Tensor, spec: Spec) -> Tensor:
    """Root of the measured PSD of white rows with these standard deviations, (C,) → (C, F)."""
    if not spec.detrends_segments:
        return deviation.unsqueeze(-1).repeat(1, n_bins(spec.filter_size))
    # not flat: the lowest bins have less power, with "boxcar" none in bin 0
    cosines, sines = windowed_dft(spec, deviation)
    power = cosines.square().sum(dim=0) + sines.square().sum(dim=0)
    return (deviation.square().unsqueeze(-1) * power + spec.eps).sqrt()


def row_statistics(x: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """Measure rows: mean relative to the first sample, (N, C), and PSD plus eps, (N, C, F)."""
    x = x.to(statistics_dtype(x.dtype))
    offset = (x - x[..., :1].detach()).mean(dim=-1)
    psd = welch_psd(center(x, offset), spec.filter_size, spec.window, spec.detrend)
    return offset, psd + spec.eps


def valid_rows(psd: Tensor) -> Tensor:
    """Return which rows have a finite PSD: bool, (N, C) for psd (N, C, F)."""
    return psd.isfinite().all(dim=-1)


def barycenter_sums(psd: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the roots of the valid rows of a batch, (N, C, F) → (C, F), and count them, (C,)."""
    valid = valid_rows(psd)
    total = torch.where(valid.unsqueeze(-1), psd.sqrt(), 0.0).sum(dim=0)
    return total, valid.sum(dim=0).to(psd.dtype)


def batch_barycenter(psd: Tensor) -> Tensor:
    """Bures–Wasserstein barycenter of valid rows, as a root (eq. 5), (N, C, F) → (C, F)."""
    # circulant covariances commute, so the barycenter of Gaussians is a mean of square roots
    total, count = barycenter_sums(psd)
    return total / count.clamp(min=1).unsqueeze(-1)


def geodesic(sqrt_start: Tensor, sqrt_end: Tensor, weight: Tensor | float) -> Tensor:
    """Move a fraction ``weight`` along the Bures–Wasserstein geodesic, in square roots (eq. 6)."""
    return (1 - weight) * sqrt_start + weight * sqrt_end


def monge_filter(psd: Tensor, sqrt_target: Tensor, filter_size: int) -> Tensor:
    """Taps of the zero-phase filter onto the target (eq. 8), (..., F) → (..., 2 * (f // 2) + 1)."""
    gain = sqrt_target / psd.sqrt()
    # an overflowed PSD would give a gain of 0 and an innocent-looking output of zeros
    gain = torch.where(psd.isfinite(), gain, math.nan)
    taps = _real_even_inverse_dft(gain, filter_size)  # lags 0 … f // 2
    return torch.cat([taps[..., 1:].flip(-1), taps], dim=-1)


def _real_even_inverse_dft(gain: Tensor, filter_size: int) -> Tensor:
    """Lags 0 … f // 2 of ``irfft(gain, n=f)``, the lag f/2 of an even f halved; (..., F)."""
    lags = n_bins(filter_size)
    k = torch.arange(lags, device=gain.device)
    unpaired = (k == 0) | (2 * k == filter_size)
    if _is_direct(filter_size):
        # each kept bin stands for itself and its mirror image, except the ones without a mirror
        weight = torch.where(unpaired, 1.0, 2.0).to(gain.dtype) / filter_size
        taps = (gain * weight) @ _phases(lags, lags, filter_size, gain).cos()
    else:
        taps = torch.fft.irfft(gain, n=filter_size)[..., :lags]
    return taps * torch.where(2 * k == filter_size, 0.5, 1.0).to(gain.dtype)


def pad_time(x: Tensor, width: int, padding_mode: str = "circular") -> Tensor:
    """Extend rows by ``width`` samples on either side: (..., T) → (..., T + 2 * width)."""
    if width == 0:
        return x
    length = x.shape[-1]
    if padding_mode == "circular":
        before, after = x[..., length - width :], x[..., :width]
    elif padding_mode == "reflect":
        before = x[..., 1 : width + 1].flip(-1)
        after = x[..., length - 1 - width : length - 1].flip(-1)
    else:
        before = after = torch.zeros_like(x[..., :width])
    return torch.cat([before, x, after], dim=-1)


def monge_map(centered: Tensor, taps: Tensor, padding_mode: str = "circular") -> Tensor:
    """Convolve centred rows, (..., T), each with its own filter, (..., K) (f-Monge map, eq. 4)."""
    n_taps, length = taps.shape[-1], centered.shape[-1]
    padded = pad_time(centered, n_taps // 2, padding_mode)
    if _is_direct(n_taps - 1):
        terms = (padded[..., j : j + length] * taps[..., j : j + 1] for j in range(n_taps))
        return sum(terms, start=torch.zeros_like(centered))
    size = length + n_taps - 1
    product = torch.fft.rfft(padded) * torch.fft.rfft(taps, n=size)
    # the first K - 1 samples of the circular product have wrapped around; the rest is valid
    return torch.fft.irfft(product, n=size)[..., n_taps - 1 :]


def normalize(
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Carry rows, measured by :func:`row_statistics`, onto the target PSD, (C, F) (eq. 7)."""
    taps = monge_filter(psd, sqrt_target.to(psd.dtype), spec.filter_size)
    y = monge_map(center(x.to(psd.dtype), offset), taps, spec.padding_mode)
    if weight is not None:
        y = y * weight.to(y.dtype).unsqueeze(-1)
    if bias is not None:
        y = y + bias.to(y.dtype).unsqueeze(-1)
    return y.to(x.dtype)
