"""Welch segments on a processor: their power, and what a gradient of it does to them."""

import torch
from torch import Tensor

from psdnorm.ops import reference

# coefficients that one line of a matrix product makes, about
COEFFICIENTS = 40


def real_dft(filter_size: int, window: str, detrend: str, like: Tensor) -> Tensor:
    """Windowed cosines of the F bins, then the sines that are not zero: (f, f)."""
    cosines, sines = reference.windowed_dft(filter_size, window, detrend, like)
    return torch.cat([cosines, sines[:, 1 : (filter_size + 1) // 2]], dim=1)


class SegmentPower:
    """Mean square of each basis function's coefficient over the Welch segments of a row.

    Some neighbouring segments are one line of a matrix product: alone, a segment is too short a
    line to be fast. Only the last segment of a line reaches into the next one.
    """

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


def psd_as_quadratic_form(
    filter_size: int, window: str, detrend: str, length: int, like: Tensor
) -> Tensor:
    """Twice the matrix of P_k as a quadratic form of a segment, over their number: (F, f * f)."""
    n_segments = reference.n_segments(length, filter_size)
    n_bins = reference.n_bins(filter_size)
    basis = real_dft(filter_size, window, detrend, like)
    outer = basis.T.unsqueeze(2) * basis.T.unsqueeze(1)  # (f, f, f), one matrix a coefficient
    forms = outer[:n_bins].clone()
    forms[1 : (filter_size + 1) // 2] += outer[n_bins:]
    return forms.flatten(1) * (2 / n_segments)
