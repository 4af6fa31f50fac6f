"""Temporal Monge Alignment: PSDNorm's mathematics as a scikit-learn transformer."""

import math
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from psdnorm import functional, ops
from psdnorm.errors import ArgumentError, MissingExtraError, ShapeError

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_array, check_is_fitted
except ImportError as error:
    raise MissingExtraError('TMA needs scikit-learn: pip install "psdnorm[sklearn]"') from error

Signals = NDArray[np.floating]  # (n_windows, C, T)
Indices = NDArray[np.intp]  # (m,)

# values of X processed at a time (at least one window), so that memory does not grow with X
_CHUNK_VALUES = 2**18


class TMA(TransformerMixin, BaseEstimator):
    r"""Temporal Monge Alignment: give the signals of every domain the same spectrum.

    Windows of a domain share a power spectral density (PSD): a subject, a night, a device. ``fit``
    estimates the PSD :math:`P_d` of each training domain over all its windows and stores their
    Wasserstein barycenter, in which all domains have equal weight. ``transform`` estimates the PSD
    of each domain that it is given, and filters all its windows with the one f-tap zero-phase
    filter that carries this PSD onto the barycenter:

    .. math::

        \sqrt{\bar P} = \operatorname{mean}_d \sqrt{P_d}, \qquad
        y = (x - \mu_x) * h_d, \qquad h_d = \mathrm{irfft}\big(\sqrt{\bar P} / \sqrt{P_d}\big)

    Domains never seen in ``fit`` are thus aligned too, without labels. Only the barycenter of the
    training domains is stored.

    Parameters
    ----------
    filter_size : int
        Number f of taps and PSD bins, from 1 to T. 1 aligns only the power.
    eps : float
        Added to each domain's PSD, relative to the domain's mean power over bins in that channel.
        Volts, microvolts and a mix of both among channels thus give the same result.
    window : {"boxcar", "hann", "hamming"}
        Taper of the segments of the Welch estimate.
    padding_mode : {"circular", "zeros", "reflect"}
        How a window is extended beyond its ends for the filter.

    Attributes
    ----------
    sqrt_barycenter_ : ndarray, (C, F)
        Square root of the barycenter at ``F = f // 2 + 1`` bins, in float64 for any dtype of X.
    n_channels_in_, n_domains_ : int
        Numbers of channels C and of training domains seen in ``fit``.
    filter_size_ : int
        The filter size of the barycenter.

    Notes
    -----
    Pass domains by keyword, ``fit(X, domains=subjects)``. The second positional argument is ``y``,
    as in scikit-learn, and is ignored: ``fit(X, subjects)`` would silently treat all windows as one
    domain.

    Each window is first centred over time, as in :class:`psdnorm.PSDNorm`.

    ``transform`` estimates a domain's PSD from the windows of that call alone. Pass all windows of
    a domain at once; a single window gives a poor estimate.

    A flat (zero-power) channel of a domain is left out of that channel's barycenter and becomes
    zeros. A channel that was flat in every training domain always becomes zeros.

    Statistics and filters are computed in float64, a few windows at a time, so that little memory
    is needed besides X and the result. The number T of time samples may differ between calls.

    Examples
    --------
    Two subjects with amplitudes 1 and 3, then a third one in volts:

    >>> import numpy as np
    >>> from psdnorm.alignment import TMA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 2, 1000))
    >>> subjects = np.repeat(["ann", "bob"], 20)
    >>> X[subjects == "bob"] *= 3
    >>> tma = TMA(filter_size=5).fit(X, domains=subjects)
    >>> unseen = 50e-6 * rng.standard_normal((10, 2, 1000))
    >>> print(f"{tma.transform(unseen).std():.2f}")
    2.00

    In a pipeline, scikit-learn's metadata routing carries ``domains`` along:

    >>> import sklearn
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> y = np.tile([0, 1], 20)
    >>> X[y == 1] *= 1.5
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     tma = TMA().set_fit_request(domains=True).set_transform_request(domains=True)
    ...     log_power = FunctionTransformer(lambda X: np.log(X.var(axis=-1)))
    ...     model = make_pipeline(tma, log_power, LogisticRegression())
    ...     model = model.fit(X, y, domains=subjects)
    ...     predicted = model.predict(1000 * X, domains=subjects)
    >>> bool(np.all(predicted == y))
    True
    """

    sqrt_barycenter_: NDArray[np.float64]
    n_channels_in_: int
    n_domains_: int
    filter_size_: int

    def __init__(
        self,
        filter_size: int = 5,
        eps: float = 1e-5,
        window: str = "boxcar",
        padding_mode: str = "circular",
    ) -> None:
        self.filter_size = filter_size
        self.eps = eps
        self.window = window
        self.padding_mode = padding_mode

    def fit(
        self, X: ArrayLike, y: Any = None, *, domains: Iterable[Hashable] | None = None
    ) -> Self:
        """Compute the barycenter of the training domains of X, (n_windows, C, T).

        ``domains`` has a hashable label for each window; without it, all are one domain.
        """
        self._fit(X, domains)
        return self

    def transform(self, X: ArrayLike, *, domains: Iterable[Hashable] | None = None) -> Signals:
        """Carry the PSD of each domain of X, (n_windows, C, T), onto the barycenter.

        ``domains`` as in :meth:`fit`, seen there or not. X is not modified; the result is float32
        if X is float32, float64 otherwise.
        """
        check_is_fitted(self)
        filter_size = self._checked_filter_size()
        if filter_size != self.filter_size_:
            raise ArgumentError(
                f"filter_size is {filter_size}, expected {self.filter_size_} as in fit: fit again"
            )
        signals = self._checked_signals(X, filter_size)
        if signals.shape[1] != self.n_channels_in_:
            raise ShapeError(
                f"X has {signals.shape[1]} channels, expected {self.n_channels_in_} as in fit"
            )
        groups = _windows_of_domains(domains, len(signals))
        return self._align(signals, groups, self._domain_psds(signals, groups, filter_size))

    def fit_transform(
        self, X: ArrayLike, y: Any = None, *, domains: Iterable[Hashable] | None = None
    ) -> Signals:
        """Compute the barycenter and carry each domain onto it, saving one pass over X."""
        return self._align(*self._fit(X, domains))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _fit(
        self, X: ArrayLike, domains: Iterable[Hashable] | None
    ) -> tuple[Signals, list[Indices], Tensor]:
        """Fit; return the signals, the windows of each domain, and the PSDs of the domains."""
        filter_size = self._checked_filter_size()
        signals = self._checked_signals(X, filter_size)
        groups = _windows_of_domains(domains, len(signals))
        psds = self._domain_psds(signals, groups, filter_size)
        # a flat channel has no spectrum: NaN, since the barycenter skips PSDs that are not finite
        flat = (psds == 0).all(dim=-1, keepdim=True)
        barycenter = ops.batch_barycenter(torch.where(flat, math.nan, psds))
        self.sqrt_barycenter_ = barycenter.numpy()
        self.n_channels_in_ = signals.shape[1]
        self.n_domains_ = len(groups)
        self.filter_size_ = filter_size
        return signals, groups, psds

    def _checked_filter_size(self) -> int:
        """Check all options, and return the filter size as a plain int."""
        filter_size = functional.check_size("filter_size", self.filter_size)
        functional.check_spec(ops.Spec(filter_size, self.eps, self.window, self.padding_mode))
        return filter_size

    def _checked_signals(self, X: ArrayLike, filter_size: int) -> Signals:
        dtypes = [np.float64, np.float32]
        signals: Signals = check_array(
            X, dtype=dtypes, ensure_2d=False, allow_nd=True, estimator=self, input_name="X"
        )
        shape = signals.shape
        if len(shape) != 3:
            raise ShapeError(
                f"X has {len(shape)} dimensions, {shape}, expected 3: (n_windows, channels, time)"
            )
        if shape[1] < 1:
            raise ShapeError(f"X has 0 channels, {shape}, expected at least 1")
        if shape[2] < filter_size:
            raise ShapeError(
                f"X has {shape[2]} time samples, expected at least filter_size {filter_size}"
            )
        return signals

    def _domain_psds(self, signals: Signals, groups: list[Indices], filter_size: int) -> Tensor:
        """Average the PSDs of each domain's windows, and add eps: (D, C, F), zeros where flat."""
        n_channels, n_bins = signals.shape[1], ops.n_bins(filter_size)
        psds = torch.zeros(len(groups), n_channels, n_bins, dtype=torch.float64)
        for psd, windows in zip(psds, groups, strict=True):
            for _, centered in _centered_chunks(signals, windows):
                psd += ops.welch_psd(centered, filter_size, self.window).sum(dim=0)
            psd /= len(windows)
        if not psds.isfinite().all():
            largest = max(signals.max(), -signals.min())
            raise ArgumentError(
                f"X has values up to {largest:g}, expected values whose power float64 can hold"
            )
        return psds + self.eps * psds.mean(dim=-1, keepdim=True)

    def _align(self, signals: Signals, groups: list[Indices], psds: Tensor) -> Signals:
        """Filter the windows of each domain with the domain's own filter."""
        # no gain where there is no power: a flat channel stays zero and nothing is divided by zero
        powered = psds > 0
        sqrt_target = torch.where(powered, torch.tensor(self.sqrt_barycenter_), 0.0)
        psds = torch.where(powered, psds, 1.0)
        filters = ops.monge_filter(psds, sqrt_target, self.filter_size_)  # (D, C, K)
        aligned = np.empty(signals.shape, signals.dtype)
        for taps, windows in zip(filters, groups, strict=True):
            for chunk, centered in _centered_chunks(signals, windows):
                aligned[chunk] = ops.monge_map(centered, taps, self.padding_mode).numpy()
        return aligned


def _centered_chunks(signals: Signals, windows: Indices) -> Iterator[tuple[Indices, Tensor]]:
    """Yield a few windows at a time: indices, (m,), and centred signals, (m, C, T) in float64."""
    step = max(1, _CHUNK_VALUES // signals[0].size)
    for start in range(0, len(windows), step):
        chunk = windows[start : start + step]
        # indexing with an array copies, so torch never gets the caller's memory
        copied = torch.from_numpy(signals[chunk].astype(np.float64, copy=False))
        yield chunk, ops.center(copied)


def _windows_of_domains(domains: Iterable[Hashable] | None, n_windows: int) -> list[Indices]:
    """Return the indices of each domain's windows, domains in order of appearance."""
    if domains is None:
        return [np.arange(n_windows)]
    # arrays, tensors and series alike become Python objects, which compare and hash by value
    labels: Any = domains.tolist() if hasattr(domains, "tolist") else domains
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise ShapeError(
            f"domains is {labels!r}, expected one label for each of {n_windows} windows"
        )
    labels = list(labels)
    if len(labels) != n_windows:
        raise ShapeError(
            f"domains has {len(labels)} labels, expected {n_windows}: one for each window of X"
        )
    groups: dict[Hashable, list[int]] = {}
    for i, label in enumerate(labels):
        # NaN differs from itself, so each missing label would silently become its own domain
        if not isinstance(label, Hashable) or label is None or label != label:
            raise ArgumentError(
                f"domains has {label!r} for window {i}, expected a label that is hashable "
                "and not missing"
            )
        groups.setdefault(label, []).append(i)
    return [np.array(windows, dtype=np.intp) for windows in groups.values()]
