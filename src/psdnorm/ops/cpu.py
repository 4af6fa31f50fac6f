"""The fast path on CPUs: rows in blocks, segments as lines of a matrix product."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from psdnorm.ops import reference
from psdnorm.ops.groups import Groups
from psdnorm.ops.reference import Spec

# approximate number of coefficients from one line of a matrix product
COEFFICIENTS = 40
# samples processed at once: two megabytes of float32; with fewer, call overhead grows
CHUNK_SAMPLES = 2**19
# approximate number of outputs from one line of a matrix product
BLOCK = 24
# passed wherever a tensor is created, because torch.set_default_device may differ
_CPU = torch.device("cpu")


def real_dft(spec: Spec, like: Tensor) -> Tensor:
    """Windowed cosines of the F bins, then the sines that are not zero: (f, f)."""
    cosines, sines = reference.windowed_dft(spec, like)
    return torch.cat([cosines, sines[:, 1 : (spec.filter_size + 1) // 2]], dim=1)


class SegmentPower:
    """Mean square of each basis function's coefficient over the Welch segments of a row."""

    # neighbouring segments share a line of a matrix product: alone, a segment is too short to be
    # fast; only the last segment of a line reaches into the next one
    def __init__(self, basis: Tensor) -> None:
        self.basis = basis  # (f, f)
        size = self.size = basis.shape[0]
        self.half = size // 2
        self.hop = size - self.half
        self.together = max(1, COEFFICIENTS // size)
        self.line = self.together * self.hop
        matrix = basis.new_zeros(self.line + self.half, self.together, size)
        for segment in range(self.together):
            start = segment * self.hop
            matrix[start : start + size, segment] = basis
        self.matrix = matrix[: self.line].flatten(1)

    def __call__(self, rows: Tensor) -> Tensor:
        """(r, T) → (r, f)."""
        if self.size == 1:
            return torch.linalg.vecdot(rows, rows).unsqueeze(-1) / rows.shape[1]
        n_rows, length = rows.shape
        n_segments = reference.n_segments(length, self.size)
        n_lines = n_segments // self.together
        lines = rows[:, : n_lines * self.line].unflatten(-1, (n_lines, self.line))
        spectrum = torch.bmm(lines, self.matrix.expand(n_rows, -1, -1))
        strides, first = (rows.stride(0), self.line, 1), rows.storage_offset() + self.line
        beyond = rows.as_strided((n_rows, n_lines, self.half), strides, first)
        tail = self.basis[self.hop :].expand(n_rows, -1, -1)
        spectrum[..., -self.size :] += torch.bmm(beyond, tail)
        power = spectrum.square_().sum(dim=1).unflatten(-1, (self.together, self.size)).sum(dim=1)
        if n_segments > n_lines * self.together:
            left = rows[:, n_lines * self.line :].unfold(-1, self.size, self.hop)
            power += (left @ self.basis).square_().sum(dim=1)
        return power / n_segments


def psd_as_quadratic_form(spec: Spec, length: int, like: Tensor) -> Tensor:
    """Twice the quadratic form of P_k in a segment, over the number of segments: (F, f * f)."""
    n_segments = reference.n_segments(length, spec.filter_size)
    n_bins = reference.n_bins(spec.filter_size)
    basis = real_dft(spec, like)
    outer = basis.T.unsqueeze(2) * basis.T.unsqueeze(1)  # (f, f, f), one matrix per coefficient
    forms = outer[:n_bins].clone()
    forms[1 : (spec.filter_size + 1) // 2] += outer[n_bins:]
    return forms.flatten(1) * (2 / n_segments)


def row_statistics(x: Tensor, spec: Spec) -> tuple[Tensor, Tensor]:
    """Measure each row; see :func:`psdnorm.ops.reference.row_statistics`."""
    offset, psd = _measure(x, spec)
    return offset, reference.add_eps(psd, spec)


def domain_statistics(x: Tensor, groups: Groups, spec: Spec) -> tuple[Tensor, Tensor, Tensor]:
    """Measure domains; see :func:`psdnorm.ops.reference.domain_statistics`."""
    return reference.domain_statistics(x, groups, spec, _measure)


def _measure(x: Tensor, spec: Spec, known_offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Measure the mean of each row, unless it is known, and the PSD about it, without eps."""
    rows = _as_matrix(x)
    offset = rows.new_empty(rows.shape[0], dtype=reference.statistics_dtype(x.dtype))
    if known_offset is not None:
        offset.copy_(known_offset.flatten())
    power = offset.new_empty(rows.shape[0], spec.filter_size)
    segment_power = SegmentPower(real_dft(spec, offset))
    chunks = _Chunks(rows, 0, 1)
    for chunk in chunks:
        centered = chunks.load(chunk)
        if known_offset is None:
            offset[chunk] = centered.mean(dim=-1)
        power[chunk] = segment_power(centered.sub_(offset[chunk].unsqueeze(-1)))
    n_bins = reference.n_bins(spec.filter_size)
    psd = power[:, :n_bins]
    psd[:, 1 : (spec.filter_size + 1) // 2] += power[:, n_bins:]  # cosine and sine of the same bin
    return offset.view(x.shape[:2]), psd.reshape(*x.shape[:2], n_bins)


def normalize(
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Carry rows onto the target PSD; see :func:`psdnorm.ops.reference.normalize`."""
    rows, length = _as_matrix(x), x.shape[-1]
    filters = _Filters(psd, sqrt_target, spec, weight)
    shift = None if bias is None else bias.to(psd.dtype).expand(x.shape[:2]).reshape(-1, 1)
    half = reference.half_width(spec.filter_size)
    chunks = _Chunks(rows, half, _block_size(length, 2 * half, 1), offset)
    tap_index = _lags(chunks.block, half, half)
    y = torch.empty(x.shape, dtype=x.dtype, device=_CPU)
    for chunk in chunks:
        chunks.load_centered(chunk)
        chunks.fill_margin(half, spec.padding_mode)
        out = chunks.banded_product(pad(filters.scaled(chunk), (0, 1))[:, tap_index])
        _as_matrix(y)[chunk] = out if shift is None else out.add_(shift[chunk])
    return y


def normalize_backward(
    grad: Tensor,
    x: Tensor,
    offset: Tensor,
    psd: Tensor,
    sqrt_target: Tensor,
    spec: Spec,
    weight: Tensor | None = None,
    groups: Groups | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and, per row, of weight and bias: (N, C, 2), not yet summed over N."""
    rows, grads, length = _as_matrix(x), _as_matrix(grad), x.shape[-1]
    filter_size, padding_mode = spec.filter_size, spec.padding_mode
    half, margin = reference.half_width(filter_size), filter_size - 1
    filters = _Filters(psd, sqrt_target, spec, weight)
    quadratic = psd_as_quadratic_form(spec, length, psd)  # (F, f * f)
    block = _block_size(length, 2 * margin, filter_size - half)
    signal, upstream = (_Chunks(r, margin, block, offset) for r in (rows, grads))
    tap_index, segment_index = _lags(block, margin, half), _segment_index(block, filter_size)
    lag_sums = _LagSums(block, half, psd.dtype)
    # what is centred over domains is centred at the end
    kept_dtype = psd.dtype if groups is not None and spec.center == "domain" else x.dtype
    grad_x = torch.empty(x.shape, dtype=kept_dtype, device=_CPU)
    grad_taps = torch.empty_like(filters.taps)
    grad_sums = psd.new_empty(rows.shape[0])

    def correlate(chunk: slice) -> None:
        signal.load_centered(chunk)
        signal.fill_margin(half, padding_mode)
        grad_sums[chunk] = upstream.load_plain(chunk).sum(dim=-1)
        upstream.fill_margin(half, "zeros")
        grad_taps[chunk] = lag_sums(signal.blocks, upstream.blocks)

    slopes = None
    if groups is not None:  # the slopes of a domain need all of its rows
        for chunk in signal:
            correlate(chunk)
        of_rows = filters.gradient_of_psd(slice(None), grad_taps).view(psd.shape)
        slopes = reference.pooled_slopes(of_rows, psd, groups, spec).flatten(0, 1)
    for chunk in signal:
        correlate(chunk)
        if slopes is not None:
            of_chunk = slopes[chunk]
        else:
            of_chunk = filters.gradient_of_psd(chunk, grad_taps[chunk])
            of_chunk = reference.slopes_before_eps(of_chunk, spec)
        signal.fill_margin(half, "zeros")
        upstream.fill_margin(half, "circular" if padding_mode == "circular" else "zeros")
        taps = filters.scaled(chunk)
        out = upstream.banded_product(pad(taps, (0, 1))[:, tap_index])
        if padding_mode == "reflect":
            _add_reflected(out, upstream.inner, taps)
        if spec.statistics != "fixed":
            kernels = of_chunk @ quadratic  # (r, f * f)
            operator = pad(kernels, (0, 1))[:, segment_index].sum(dim=1)
            signal.banded_product(operator, add_to=upstream.results)
            _remove_hanging_segments(out, signal, kernels, filter_size)
        result = _as_matrix(grad_x)[chunk]
        if spec.center == "domain":
            result.copy_(out)
        else:
            torch.sub(out, out.mean(dim=-1, keepdim=True), out=result)
    if groups is not None and spec.center == "domain":
        means = groups.valid_mean(grad_x.mean(dim=-1), reference.valid_rows(psd))
        grad_x = grad_x.sub_(means.unsqueeze(-1)).to(x.dtype)
    row_sums = torch.stack([(grad_taps * filters.taps).sum(dim=-1), grad_sums], dim=-1)
    return grad_x, row_sums.view(*x.shape[:2], 2)


class _Filters:
    """The filters of all R = N * C rows, and how their taps depend on the PSD."""

    def __init__(self, psd: Tensor, sqrt_target: Tensor, spec: Spec, weight: Tensor | None) -> None:
        sqrt_target, filter_size = sqrt_target.to(psd.dtype), spec.filter_size
        taps = reference.monge_filter(psd, sqrt_target, filter_size, spec.is_relative)
        self.taps = taps.flatten(0, 1)  # (R, K)
        self.psd = psd.flatten(0, 1)
        self.gain = (sqrt_target / psd.sqrt()).flatten(0, 1)  # (R, F)
        self.empty_is_identity = spec.is_relative
        scale = psd.new_ones(psd.shape[1]) if weight is None else weight.to(psd.dtype)
        self.scale = scale.expand(psd.shape[:2]).reshape(-1, 1)
        # the taps are linear in the gain, so the taps of unit gains form the matrix
        unit = torch.eye(psd.shape[-1], dtype=psd.dtype, device=_CPU)
        self.inverse_dft = reference.monge_filter(torch.ones_like(unit), unit, filter_size)

    def scaled(self, chunk: slice) -> Tensor:
        """Taps with the channel's weight, (r, K)."""
        return self.taps[chunk] * self.scale[chunk]

    def gradient_of_psd(self, chunk: slice, grad_taps: Tensor) -> Tensor:
        """Backpropagate a gradient of the unweighted taps, (r, K), to the PSD, (r, F)."""
        through_gain = (grad_taps * self.scale[chunk]) @ self.inverse_dft.T
        # in this order nothing overflows unless the result does
        slopes = -0.5 * through_gain * self.gain[chunk] / self.psd[chunk]
        if self.empty_is_identity:
            slopes = torch.where(self.psd[chunk] == 0, 0.0, slopes)
        return slopes


class _Chunks:
    """A few rows at a time, in blocks, with a margin on either side, in reused memory."""

    def __init__(self, rows: Tensor, margin: int, block: int, offset: Tensor | None = None) -> None:
        self.rows, self.margin, self.block = rows, margin, block
        self.length = rows.shape[1]
        dtype = reference.statistics_dtype(rows.dtype)
        self.offset = None if offset is None else offset.reshape(-1, 1)
        self.first = rows[:, :1].to(dtype)
        # at least a row per thread, since a batched matrix product is parallel over rows; the band
        # matrices of short rows are larger than the rows
        per_row = max(self.length, (block + 2 * margin) * block)
        self.step = max(torch.get_num_threads(), CHUNK_SAMPLES // per_row)
        n_blocks = -(-self.length // block)
        n_rows = min(self.step, rows.shape[0])
        self.memory = torch.zeros(n_rows, n_blocks + 1, block, dtype=dtype, device=_CPU)
        self.results = torch.empty(n_rows, n_blocks, block, dtype=dtype, device=_CPU)
        self.blocks = self.memory

    def __iter__(self) -> Iterator[slice]:
        for start in range(0, self.rows.shape[0], self.step):
            yield slice(start, min(start + self.step, self.rows.shape[0]))

    @property
    def inner(self) -> Tensor:
        """The rows of this chunk without their margins, (r, T)."""
        return self.blocks.flatten(1)[:, self.margin : self.margin + self.length]

    def load_plain(self, chunk: slice) -> Tensor:
        """Load rows unchanged, and return them."""
        self.blocks = self.memory[: chunk.stop - chunk.start]
        return self.inner.copy_(self.rows[chunk])

    def load(self, chunk: slice) -> Tensor:
        """Load rows relative to their first sample, and return them."""
        self.blocks = self.memory[: chunk.stop - chunk.start]
        rows = self.rows[chunk].to(self.memory.dtype)
        return torch.sub(rows, self.first[chunk], out=self.inner)

    def load_centered(self, chunk: slice) -> None:
        """Load rows relative to their mean."""
        assert self.offset is not None
        self.load(chunk).sub_(self.offset[chunk])

    def fill_margin(self, width: int, padding_mode: str) -> None:
        """Pad the rows by ``width`` samples on either side."""
        if width == 0:
            return
        inner, flat = self.inner, self.blocks.flatten(1)
        before = flat[:, self.margin - width : self.margin]
        after = flat[:, self.margin + self.length : self.margin + self.length + width]
        if padding_mode == "circular":
            before.copy_(inner[:, self.length - width :])
            after.copy_(inner[:, :width])
        elif padding_mode == "reflect":
            before.copy_(inner[:, 1 : width + 1].flip(-1))
            after.copy_(inner[:, self.length - 1 - width : self.length - 1].flip(-1))
        else:
            before.zero_()
            after.zero_()

    def banded_product(self, matrix: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Apply a banded matrix, (r, B + w, B), to each block and its successor: a view, (r, T)."""
        # output b of block l is the sum over i of sample[l * B + i] * matrix[i, b]
        out = (self.results if add_to is None else add_to)[: len(self.blocks)]
        if self.block == 1:  # a filter of one tap
            samples = self.blocks[:, :-1]
            product = torch.mul(samples, matrix, out=out) if add_to is None else samples * matrix
            return (product if add_to is None else out.add_(product)).flatten(1)
        beta = 0 if add_to is None else 1
        torch.baddbmm(out, self.blocks[:, :-1], matrix[:, : self.block], beta=beta, out=out)
        width = matrix.shape[1] - self.block
        if width:
            # only the last outputs of a block reach into the next one
            out[..., self.block - width :] += torch.bmm(
                self.blocks[:, 1:, :width], matrix[:, self.block :, self.block - width :]
            )
        return out.flatten(1)[:, : self.length]


class _LagSums:
    """Inner products of a gradient with a padded signal at the lags of a filter."""

    def __init__(self, block: int, half: int, dtype: torch.dtype) -> None:
        self.half, self.dtype = half, dtype
        inside = _count(block)
        lag = inside.unsqueeze(1) - inside  # signal position minus gradient position
        edge = _count(half)
        ahead = edge.unsqueeze(1) - edge + half  # signal at the start of the next block
        self.within = self._one_hot(lag)
        self.across = torch.cat([self._one_hot(ahead), self._one_hot(-ahead.T)])

    def _one_hot(self, lag: Tensor) -> Tensor:
        lags = _count(2 * self.half + 1) - self.half
        return (lag.flatten().unsqueeze(1) == lags).to(self.dtype)

    def __call__(self, signal: Tensor, gradient: Tensor) -> Tensor:
        """Blocks (r, n, B) of both → (r, K)."""
        if signal.shape[2] == 1:
            return torch.linalg.vecdot(signal, gradient, dim=1)
        products = torch.bmm(signal.transpose(1, 2), gradient)
        total = products.flatten(1) @ self.within
        last = slice(signal.shape[2] - self.half, None)
        first = slice(0, self.half)
        ahead = torch.bmm(signal[:, 1:, first].transpose(1, 2), gradient[:, :-1, last])
        behind = torch.bmm(signal[:, :-1, last].transpose(1, 2), gradient[:, 1:, first])
        return total + torch.cat([ahead.flatten(1), behind.flatten(1)], dim=1) @ self.across


def _as_matrix(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2])


def _count(n: int) -> Tensor:
    return torch.arange(n, device=_CPU)


def _block_size(length: int, width: int, hop: int) -> int:
    """Choose a number of whole hops, at least as wide as a band, but small within a short row."""
    if width == 0:
        return 1
    return -(-max(width, min(BLOCK, length // 8), 1) // hop) * hop


def _lags(block: int, margin: int, half: int) -> Tensor:
    """Return the tap at (i, b) of a filter's band matrix, K for none: (B + 2 margin, B)."""
    tap = _count(block + 2 * margin).unsqueeze(1) - _count(block) - margin + half
    n_taps = 2 * half + 1
    return torch.where((tap >= 0) & (tap < n_taps), tap, n_taps)


def _segment_index(block: int, filter_size: int) -> Tensor:
    """Return the segment matrix entries to add at (i, b), f * f for none: (2, B + 2f - 2, B)."""
    hop = filter_size - filter_size // 2
    b = _count(block)
    lag = _count(block + 2 * filter_size - 2).unsqueeze(1) - b - (filter_size - 1)
    entries = []
    # a sample has one position in its segment, and one a hop later in the segment before
    for position in (b % hop, b % hop + hop):
        other = position + lag
        inside = (position < filter_size) & (other >= 0) & (other < filter_size)
        entries.append(torch.where(inside, other * filter_size + position, filter_size**2))
    return torch.stack(entries)


def _remove_hanging_segments(out: Tensor, signal: _Chunks, kernels: Tensor, filter_size: int):
    """Undo the segments that overhang the ends, which the operator includes but Welch does not."""
    hop, length = filter_size - filter_size // 2, signal.length
    n_segments = reference.n_segments(length, filter_size)
    padded = signal.blocks.flatten(1)
    kernels = kernels.view(-1, filter_size, filter_size)
    left = (-hop,) if filter_size > 1 else ()
    for start in (*left, *range(n_segments * hop, length, hop)):
        segment = padded[:, signal.margin + start : signal.margin + start + filter_size]
        first, last = max(start, 0), min(start + filter_size, length)
        inside = kernels[:, :, first - start : last - start]
        out[:, first:last] -= torch.bmm(segment.unsqueeze(1), inside).squeeze(1)


def _add_reflected(out: Tensor, grad: Tensor, taps: Tensor) -> None:
    """Add the part of a gradient (r, T) that flows back through samples reflected at the ends."""
    half, length = taps.shape[1] // 2, grad.shape[1]
    if half == 0:
        return
    kernel = taps[:, :half].flip(-1).unsqueeze(1)

    def spilled_over(edge: Tensor) -> Tensor:
        return (pad(edge, (half - 1, 0)).unfold(-1, half, 1) * kernel).sum(dim=-1)

    out[:, 1 : half + 1] += spilled_over(grad[:, :half]).flip(-1)
    out[:, length - 1 - half : length - 1] += spilled_over(grad[:, length - half :].flip(-1))
