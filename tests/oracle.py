"""PSDNorm written a second time, slowly and in float64 numpy, sharing nothing with the package."""

import numpy as np

PAD = {"circular": "wrap", "zeros": "constant", "reflect": "reflect"}


def window(f, name):
    coefficient = {"boxcar": 1.0, "hann": 0.5, "hamming": 0.54}[name]
    if f == 1:
        return np.ones(1)
    w = np.array([coefficient - (1 - coefficient) * np.cos(2 * np.pi * t / f) for t in range(f)])
    return w / np.sqrt(np.sum(w**2))


def welch(row, f, name="boxcar"):
    """PSD of one centred row at the f // 2 + 1 kept bins."""
    hop = f - f // 2
    starts = range(0, len(row) - f + 1, hop)
    w = window(f, name)
    return np.mean([np.abs(np.fft.rfft(w * row[s : s + f])) ** 2 for s in starts], axis=0)


def taps(psd, sqrt_target, f):
    """Symmetric taps at lags -(f // 2) … f // 2."""
    h = np.fft.irfft(sqrt_target / np.sqrt(psd), n=f)
    out = np.zeros(2 * (f // 2) + 1)
    for lag in range(-(f // 2), f // 2 + 1):
        share = 0.5 if 2 * abs(lag) == f else 1.0
        out[lag + f // 2] = share * h[lag % f]
    return out


def psd_norm(x, sqrt_target, f, eps=1e-5, name="boxcar", padding="circular"):
    """x (N, C, T) and sqrt_target (C, F), float64 → (N, C, T)."""
    y = np.empty_like(x)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            row = x[n, c] - np.mean(x[n, c])
            h = taps(welch(row, f, name) + eps, sqrt_target[c], f)
            padded = np.pad(row, f // 2, mode=PAD[padding])
            y[n, c] = np.convolve(padded, h, mode="valid")
    return y


def circulant(psd_half, f):
    """Dense covariance of a periodic Gaussian signal of length f with the given half spectrum."""
    full = np.array([psd_half[min(k, f - k)] for k in range(f)])
    column = np.fft.ifft(full).real
    return np.array([[column[(i - j) % f] for j in range(f)] for i in range(f)])
