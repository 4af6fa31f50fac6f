"""The mathematics of PSDNorm in plain torch, against which every faster path is tested.

Every function is pure, acts on each (sample, channel) row and works for any filter size
``f`` from 1 to ``T``. ``F = f // 2 + 1`` is the half of the spectrum that a real signal needs.
Equation numbers are those of ``docs/mathematics.md``.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from psdnorm.ops.groups import Groups

PADDING_MODES = ("circular", "zeros", "reflect")
# generalised cosine windows w_t = a - (1 - a) cos(2πt/f), periodic as in scipy.signal.get_window
WINDOWS = {"boxcar": 1.0, "hann": 0.5, "hamming": 0.54}
DETRENDS = ("row", "segment")
STATISTICS = ("row", "domain")
CENTERS = ("row", "domain")
EPS_MODES = ("absolute", "relative")
TARGET_POWERS = ("as-is", "unit")
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
    statistics: str = "row"  # "fixed" inside psdnorm: the PSD is given, and carries no gradient
    center: str = "row"
    eps_mode: str = "absolute"

    @property
    def detrends_segments(self) -> bool:
        """Whether segments are centred; centring would leave nothing of single-sample segments."""
        return self.detrend == "segment" and self.filter_size > 1

    @property
    def is_pooled(self) -> bool:
        """Whether all rows of a domain share one PSD, which is measured in the batch."""
        return self.statistics == "domain"

    @property
    def is_relative(self) -> bool:
        """Whether eps is a share of the mean power; rows without power then stay as they are."""
        return self.eps_mode == "relative"


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


def constant_leakage(spec: Spec, like: Tensor) -> Tensor:
    """Coefficient of a constant of 1 in each bin of a segment, (F,)."""
    if spec.detrends_segments:
        return like.new_zeros(n_bins(spec.filter_size))
    return windowed_dft(spec, like)[0].sum(dim=0)


def mean_in_segments(x: Tensor, offset: Tensor, spec: Spec) -> Tensor:
    """Mean over segments of the real part of each bin of the centred rows, (N, C, F)."""
    size, length = spec.filter_size, x.shape[-1]
    centered = center(x.to(offset.dtype), offset)
    count = n_segments(length, size)
    cosines, _ = windowed_dft(spec, offset)
    hop = size - half_width(size)
    weights = offset.new_zeros(length, n_bins(size))  # of each sample, summed over its segments
    for t in range(size):
        weights[t : t + (count - 1) * hop + 1 : hop] += cosines[t]
    return centered @ weights / count


def white_root(deviation: Tensor, spec: Spec) -> Tensor:
    """Root of the measured PSD of white rows with these standard deviations, (C,) → (C, F)."""
    if not spec.detrends_segments:
        return deviation.unsqueeze(-1).repeat(1, n_bins(spec.filter_size))
    # not flat: the lowest bins have less power, with "boxcar" none in bin 0
    cosines, sines = windowed_dft(spec, deviation)
    power = cosines.square().sum(dim=0) + sines.square().sum(dim=0)
    return (deviation.square().unsqueeze(-1) * power + spec.eps).sqrt()


def bins_of_power(spec: Spec, like: Tensor) -> Tensor:
    """Weights of the kept bins in the mean power of a spectrum, (F,): they sum to 1."""
    k = torch.arange(n_bins(spec.filter_size), device=like.device)
    weights = torch.where((k == 0) | (2 * k == spec.filter_size), 1.0, 2.0).to(like.dtype)
    if spec.detrends_segments and spec.window == "boxcar":
        weights = weights * (k > 0)  # centred segments have no power there
    return weights / weights.sum()


def mean_power(psd: Tensor, spec: Spec) -> Tensor:
    """Mean of a half spectrum over all f bins, (..., F) → (..., 1)."""
    return (psd * bins_of_power(spec, psd)).sum(dim=-1, keepdim=True)


def add_eps(psd: Tensor, spec: Spec) -> Tensor:
    """Add eps to PSDs, (..., F): as it is, or as a share of each one's mean power."""
    return psd + (spec.eps * mean_power(psd, spec) if spec.is_relative else spec.eps)


def unit_power(sqrt_psd: Tensor, spec: Spec) -> Tensor:
    """Scale root PSDs, (..., F), to a mean power of 1; without power they stay as they are."""
    power = mean_power(sqrt_psd.square(), spec)
    return sqrt_psd / torch.where(power > 0, power, 1.0).sqrt()


def row_statistics(x: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """Measure rows: mean relative to the first sample, (N, C), and PSD plus eps, (N, C, F)."""
    offset, psd = _measure(x, spec)
    return offset, add_eps(psd, spec)


def _measure(x: Tensor, spec: Spec, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Measure the mean of each row, unless it is given, and the PSD about it, without eps."""
    x = x.to(statistics_dtype(x.dtype))
    if offset is None:
        offset = (x - x[..., :1].detach()).mean(dim=-1)
    return offset, welch_psd(center(x, offset), spec.filter_size, spec.window, spec.detrend)


def domain_statistics(
    x: Tensor, groups: Groups, spec: Spec, measure: Callable = _measure
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure domains: :func:`row_statistics` with the mean PSD of each row's domain.

    Rows that are not finite are left out; their PSD is NaN. With ``center="domain"`` the offset
    leads to the mean over the domain. Also returns each row's weight in the batch's barycenter,
    (N, C), which counts every domain once.
    """
    offset, psd = measure(x, spec)
    first = x[..., 0].detach().to(offset.dtype)
    valid = valid_means(first + offset, psd)
    n_valid = groups.per_row(groups.sum(valid))  # (N, C)
    if spec.center == "domain":
        # in float64: a domain that is constant in float32 stays exact
        mean = first.double() + torch.where(valid, offset, 0.0).double()
        mean = groups.per_row(groups.sum(torch.where(valid, mean, 0.0))) / n_valid.clamp(min=1)
        offset = torch.where(valid, (mean - first.double()).to(offset.dtype), offset)
        _, psd = measure(x, spec, offset)
    return offset, *pool(psd, valid, n_valid, groups, spec)


def valid_means(mean: Tensor, psd: Tensor) -> Tensor:
    """Return which rows can be pooled: bool, (N, C), for means (N, C) and PSDs (N, C, F)."""
    # the power about another mean must be finite, too
    return valid_rows(psd) & (16 * mean.square()).isfinite()


def pool(
    psd: Tensor, valid: Tensor, n_valid: Tensor, groups: Groups, spec: Spec
) -> tuple[Tensor, Tensor]:
    """Average PSDs, (N, C, F), over the valid rows of each domain, and add eps.

    Also returns each row's weight in the batch's barycenter, (N, C): 0 for rows without a PSD.
    """
    sums = groups.sum(torch.where(valid.unsqueeze(-1), psd, 0.0))
    pooled = groups.per_row(sums) / n_valid.clamp(min=1).unsqueeze(-1)
    pooled = add_eps(pooled.to(psd.dtype), spec)
    counts = valid & (pooled > 0).any(dim=-1) if spec.is_relative else valid
    weights = torch.where(counts, 1 / n_valid.clamp(min=1), 0.0)
    return torch.where(valid.unsqueeze(-1), pooled, math.nan), weights.to(psd.dtype)


def valid_rows(psd: Tensor) -> Tensor:
    """Return which rows have a finite PSD: bool, (N, C) for psd (N, C, F)."""
    return psd.isfinite().all(dim=-1)


def pooled_slopes(slopes: Tensor, psd: Tensor, groups: Groups, spec: Spec) -> Tensor:
    """Carry gradients of pooled PSDs, (N, C, F), to those of each row, before eps is added."""
    valid = valid_rows(psd)
    n_valid = groups.per_row(groups.sum(valid)).clamp(min=1).unsqueeze(-1)
    sums = groups.per_row(groups.sum(torch.where(valid.unsqueeze(-1), slopes, 0.0)))
    return (slopes_before_eps(sums, spec) / n_valid).to(slopes.dtype)


def slopes_before_eps(slopes: Tensor, spec: Spec) -> Tensor:
    """Carry gradients of PSDs to those before :func:`add_eps`, (..., F)."""
    if not spec.is_relative:
        return slopes
    return slopes + spec.eps * slopes.sum(dim=-1, keepdim=True) * bins_of_power(spec, slopes)


def row_weights(psd: Tensor) -> Tensor:
    """Weights of rows in a barycenter, (N, C): 0 for those that are not finite or have no power."""
    return (valid_rows(psd) & (psd > 0).any(dim=-1)).to(psd.dtype)


def barycenter_sums(psd: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum the roots of the valid rows of a batch, (N, C, F) → (C, F), and count them, (C,).

    Rows count with their ``weights``, (N, C), those of weight 0 not at all.
    """
    valid = valid_rows(psd) if weights is None else weights > 0
    roots = torch.where(valid.unsqueeze(-1), psd.sqrt(), 0.0)
    if weights is None:
        return roots.sum(dim=0), valid.sum(dim=0).to(psd.dtype)
    return (roots * weights.unsqueeze(-1)).sum(dim=0), weights.sum(dim=0)


def batch_barycenter(psd: Tensor) -> Tensor:
    """Bures–Wasserstein barycenter of valid rows, as a root (eq. 5), (N, C, F) → (C, F)."""
    # circulant covariances commute, so the barycenter of Gaussians is a mean of square roots
    total, count = barycenter_sums(psd)
    return total / count.clamp(min=1).unsqueeze(-1)


def geodesic(sqrt_start: Tensor, sqrt_end: Tensor, weight: Tensor | float) -> Tensor:
    """Move a fraction ``weight`` along the Bures–Wasserstein geodesic, in square roots (eq. 6)."""
    return (1 - weight) * sqrt_start + weight * sqrt_end


def monge_filter(
    psd: Tensor, sqrt_target: Tensor, filter_size: int, empty_is_identity: bool = False
) -> Tensor:
    """Taps of the zero-phase filter onto the target (eq. 8), (..., F) → (..., 2 * (f // 2) + 1).

    Bins without power become infinite, or keep what they have.
    """
    gain = monge_gain(psd, sqrt_target, empty_is_identity)
    taps = _real_even_inverse_dft(gain, filter_size)  # lags 0 … f // 2
    return torch.cat([taps[..., 1:].flip(-1), taps], dim=-1)


def monge_gain(psd: Tensor, sqrt_target: Tensor, empty_is_identity: bool = False) -> Tensor:
    """Gain of the filter at the F bins."""
    if empty_is_identity:
        empty = psd == 0
        gain = torch.where(empty, 1.0, sqrt_target / torch.where(empty, 1.0, psd).sqrt())
    else:
        gain = sqrt_target / psd.sqrt()
    # an overflowed PSD would give a gain of 0 and an innocent-looking output of zeros
    return torch.where(psd.isfinite(), gain, math.nan)


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
    target = sqrt_target.to(psd.dtype)
    taps = monge_filter(psd, target, spec.filter_size, empty_is_identity=spec.is_relative)
    y = monge_map(center(x.to(psd.dtype), offset), taps, spec.padding_mode)
    if weight is not None:
        y = y * weight.to(y.dtype).unsqueeze(-1)
    if bias is not None:
        y = y + bias.to(y.dtype).unsqueeze(-1)
    return y.to(x.dtype)
