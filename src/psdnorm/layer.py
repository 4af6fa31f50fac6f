"""PSDNorm as a torch module, which holds the running barycenter; :mod:`psdnorm.ops` computes."""

import warnings

import torch
import torch.distributed as dist
from torch import Tensor, nn

from psdnorm import functional, ops
from psdnorm.errors import ArgumentError, BackendError
from psdnorm.ops import Spec
from psdnorm.recompute import PassMemory, groups_of_pass, running_state

TARGETS = ("barycenter", "white")
_SHOWN = (
    *("filter_size", "momentum", "eps", "affine", "target", "window", "padding_mode"),
    *("detrend", "statistics", "center", "target_power", "eps_mode", "sync", "backend"),
)
# of the median PSD: where eps is more, it changes what the layer does
_LARGE_EPS = 0.01


class PSDNorm(nn.Module):
    r"""Normalize the power spectral density of every channel of a signal.

    Each (sample, channel) row is centred over time and filtered with the f-tap zero-phase filter
    that carries its power spectral density (PSD) :math:`P` onto a running Wasserstein barycenter
    :math:`\bar P` of the rows seen in training:

    .. math::

        y = (x - \mu) * h, \qquad h = \mathrm{irfft}\big(\sqrt{\bar P} / \sqrt{P}\big), \qquad
        \sqrt{\bar P} \leftarrow (1 - \alpha) \sqrt{\bar P} + \alpha \operatorname{mean}_N \sqrt{P}

    In training the barycenter is updated first and the updated value is the target; in evaluation
    it is fixed. Gradients flow through the mean, the PSD and the filter, not through the
    barycenter. Rows whose PSD is not finite are left out of the barycenter and counted.

    Rows must be long compared with what distinguishes the classes; otherwise use statistics by
    domain. The PSD of a window with a single class is that of the class: normalizing removes it.

    Parameters
    ----------
    num_features : int
        Number of channels C.
    filter_size : int
        Number f of taps and PSD bins, from 1 to T. 1 normalizes only power, as InstanceNorm does.
    momentum : float or None
        Weight α of a new batch; None averages all batches equally. A channel's first batch with a
        valid row sets its barycenter.
    eps : float
        Added to every PSD. With 0 a constant row has no finite output.
    affine : bool
        Learn a scale and a shift per channel.
    target : {"barycenter", "white"}
        "white" makes every row white with unit variance, and keeps no state.
    window : {"boxcar", "hann", "hamming"}
        Taper of the segments of the Welch estimate.
    padding_mode : {"circular", "zeros", "reflect"}
        How a row is extended beyond its ends for the filter.
    sync : bool
        Average over all processes of ``torch.distributed``, even if their batches differ in size.
        With ``statistics="domain"`` all processes must call the layer in evaluation, too.
    backend : {"auto", "reference", "fused"}
        Plain torch, or fused operators with their own kernels and backward pass.
    device, dtype
        As in torch's layers. The barycenter is at least float32.
    detrend : {"row", "segment"}
        What is centred before the PSD is estimated: only the row, or also each segment, as in the
        code released with the paper. Then the lowest bin has no power with the boxcar window and
        little with the others, and anything slower than a segment passes unchanged. With f = 1
        segments keep their mean.
    statistics : {"row", "domain"}
        Whose PSD a row is carried from: its own, or the mean over all rows of its domain (a
        recording, subject, session or sensor), named by :func:`psdnorm.domains` or fixed by
        :func:`psdnorm.adapt`. The barycenter then averages domains.
    center : {"row", "domain"}
        The mean that is subtracted, with ``statistics="domain"``.
    target_power : {"as-is", "unit"}
        "unit" scales the barycenter to a mean power of 1 where it is the target, so that outputs
        have the scale of BatchNorm's. The stored barycenter keeps its scale.
    eps_mode : {"absolute", "relative"}
        "relative" adds eps times the mean power, so that the unit of the signal does not matter.
        Then a row or domain without power comes out as zeros, and is left out of the barycenter.

    Attributes
    ----------
    running_sqrt_psd : Tensor, (C, F)
        Square root of the barycenter at ``F = f // 2 + 1`` bins. Before training it is that of
        white noise, so that an untrained layer whitens in evaluation.
    num_batches_tracked : Tensor, (C,)
        Batches in which the channel had a valid row.
    rows_skipped : Tensor, ()
        Rows left out so far.

    Shape
    -----
    (N, C, T), (C, T), (N, C, 1, T) or (N, C, T, 1); the output has the input's shape and dtype.

    Notes
    -----
    Activation checkpointing replays a forward pass inside the backward pass. The layer then does
    not update again and uses the target of the replayed pass; up to 256 passes may wait for their
    backward pass. Under torch.compile it uses the target of the latest pass, so the backward pass
    of a checkpointed pass must run before the layer runs again.

    Examples
    --------
    >>> import torch
    >>> from psdnorm import PSDNorm
    >>> norm = PSDNorm(6, filter_size=5)
    >>> norm(torch.randn(8, 6, 3000)).shape
    torch.Size([8, 6, 3000])
    >>> _ = norm.eval()
    >>> quiet = torch.randn(1, 6, 3000)
    >>> torch.allclose(norm(quiet), norm(100 * quiet), atol=1e-3)  # an amplifier's gain is gone
    True
    """

    running_sqrt_psd: Tensor
    num_batches_tracked: Tensor
    rows_skipped: Tensor
    adapted_psd: Tensor | None
    adapted_mean: Tensor | None

    def __init__(
        self,
        num_features: int,
        filter_size: int = 5,
        momentum: float | None = 0.01,
        eps: float = 1e-5,
        affine: bool = False,
        target: str = "barycenter",
        window: str = "boxcar",
        padding_mode: str = "circular",
        sync: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        detrend: str = "row",
        statistics: str = "row",
        center: str = "row",
        target_power: str = "as-is",
        eps_mode: str = "absolute",
    ) -> None:
        super().__init__()
        num_features = functional.check_size("num_features", num_features)
        filter_size = functional.check_size("filter_size", filter_size)
        options = window, padding_mode, detrend, statistics, center, eps_mode
        functional.check_spec(Spec(filter_size, eps, *options), backend, target_power)
        if target not in TARGETS:
            raise ArgumentError(f"target must be one of {', '.join(TARGETS)}, found {target!r}")
        if momentum is not None and not functional.is_number(momentum, 0, 1):
            raise ArgumentError(f"momentum must be None or from 0 to 1, found {momentum!r}")
        self.num_features = num_features
        self.filter_size = filter_size
        self.momentum = momentum
        self.eps = eps
        self.affine = affine
        self.target = target
        self.window = window
        self.padding_mode = padding_mode
        self.sync = sync
        self.backend = backend
        self.detrend = detrend
        self.statistics = statistics
        self.center = center
        self.target_power = target_power
        self.eps_mode = eps_mode
        if affine:
            self.weight = nn.Parameter(torch.empty(num_features, device=device, dtype=dtype))
            self.bias = nn.Parameter(torch.empty(num_features, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        state_dtype = ops.statistics_dtype(dtype or torch.get_default_dtype())
        n_bins = ops.n_bins(filter_size)
        sqrt_psd = torch.ones(num_features, n_bins, device=device, dtype=state_dtype)
        counts = torch.zeros(num_features, device=device, dtype=torch.int64)
        self.register_buffer("running_sqrt_psd", sqrt_psd)
        self.register_buffer("num_batches_tracked", counts)
        self.register_buffer("rows_skipped", torch.zeros((), device=device, dtype=torch.int64))
        # set by psdnorm.adapt: PSD, (C, F), and with center="domain" mean, (C,), of one domain
        self.register_buffer("adapted_psd", None, persistent=False)
        self.register_buffer("adapted_mean", None, persistent=False)
        self._memory = PassMemory()
        self._warned_of_eps = False
        self.reset_parameters()

    @property
    def spec(self) -> Spec:
        """What the layer measures and how it filters."""
        return Spec(
            *(self.filter_size, self.eps, self.window, self.padding_mode, self.detrend),
            *(self.statistics, self.center, self.eps_mode),
        )

    def reset_running_stats(self) -> None:
        """Reset the barycenter."""
        self.running_sqrt_psd.copy_(self._white_root())
        self.num_batches_tracked.zero_()
        self.rows_skipped.zero_()
        self._memory = PassMemory()

    def reset_parameters(self) -> None:
        """Reset the barycenter and, if there is one, the affine map."""
        self.reset_running_stats()
        if self.affine:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        rows, spec = functional.as_rows(x, self.num_features), self.spec
        affine = self.weight, self.bias
        backend = ops.choose_backend(self.backend, rows, spec, self.running_sqrt_psd, *affine)
        moves = self.training and self.target == "barycenter"
        if spec.is_pooled and self.adapted_psd is not None:
            known = self.adapted_mean, self.adapted_psd, self._known_target()
            y = ops.normalize_with(rows, *known, spec, *affine, backend)
        elif spec.is_pooled:
            groups = groups_of_pass(rows, self._memory, self.sync)
            offset, psd, weights = ops.domain_statistics(rows, groups, spec, backend)
            target = self._moved_barycenter(psd, weights) if moves else self._known_target()
            y = ops.normalize(rows, offset, psd, target, spec, *affine, backend, groups)
        elif moves:
            offset, psd = ops.row_statistics(rows, spec, backend)
            with_power = ops.row_weights(psd.detach()) if spec.is_relative else None
            target = self._moved_barycenter(psd, with_power)
            y = ops.normalize(rows, offset, psd, target, spec, *affine, backend)
        else:
            y = ops.measure_and_normalize(rows, self._known_target(), spec, *affine, backend)
        return y.reshape(x.shape)

    def unseen_domain(self) -> tuple[Tensor, None]:
        """Return PSD, (C, F), and mean of a domain of which no row is known: the barycenter's."""
        root = self._white_root() if self.target == "white" else self.running_sqrt_psd
        return root.square(), None

    def fix_domain(self, psd: Tensor | None, mean: Tensor | None = None) -> None:
        """Carry all rows from this PSD, (C, F), eps included; None ends it. See psdnorm.adapt."""
        self.adapted_psd, self.adapted_mean = psd, mean

    def train(self, mode: bool = True) -> "PSDNorm":
        """Set the mode; where training ends, warn if eps is not small beside the barycenter."""
        if self.training and not mode:
            self.warn_of_large_eps()
        return super().train(mode)

    def warn_of_large_eps(self, name: str = "", psd: Tensor | None = None) -> None:
        """Warn once if an absolute eps exceeds 1 % of the median PSD of a bin, (C, F).

        By default the PSD is that of the barycenter, without the eps that it contains.
        """
        if self.eps_mode != "absolute" or self._warned_of_eps:
            return
        if self.running_sqrt_psd.is_meta or type(self.running_sqrt_psd) is not Tensor:
            return  # fake tensors have no values either
        if psd is None:
            if self.target != "barycenter":
                return
            seen = self.running_sqrt_psd.detach()[self.num_batches_tracked > 0]
            psd = (seen.double().square() - self.eps).clamp(min=0)
        psd = psd[:, ops.bins_of_power(self.spec, psd) > 0]
        if not psd.numel():
            return
        median = float(psd.quantile(0.5))
        if self.eps <= _LARGE_EPS * median:
            return
        self._warned_of_eps = True
        ratio = f"{self.eps / median:.2g} times" if median else "far above"
        warnings.warn(
            f"{name or self!r}: eps={self.eps:g} is {ratio} the median PSD of a bin, {median:.2g}, "
            "so gains are undone only in part: scale the signals (EEG in µV, not V) or pass "
            'eps_mode="relative"',
            stacklevel=2,
        )

    def extra_repr(self) -> str:
        """Name every option, as torch's layers do."""
        shown = [str(self.num_features), *(f"{k}={getattr(self, k)}" for k in _SHOWN)]
        return ", ".join([*shown, "adapted=True"] if self.adapted_psd is not None else shown)

    def _known_target(self) -> Tensor:
        """Return the root of a target PSD, (C, F), that does not depend on the batch."""
        if self.target == "white":
            return self._white_root()
        if self._unit_spec is not None:
            return self._scaled(self.running_sqrt_psd)
        # a copy, as the buffer may be updated before a backward pass needs this value
        return self.running_sqrt_psd.clone() if torch.is_grad_enabled() else self.running_sqrt_psd

    def _scaled(self, sqrt_psd: Tensor) -> Tensor:
        """Return the target that a barycenter makes, both roots, (C, F)."""
        return sqrt_psd if self._unit_spec is None else ops.unit_power(sqrt_psd, self._unit_spec)

    @property
    def _unit_spec(self) -> Spec | None:
        return self.spec if self.target_power == "unit" else None

    def _moved_barycenter(self, psd: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the root of the target PSD, (C, F), after the update of a training step."""
        with torch.no_grad():
            if self._memory.holds_replayed_pass():
                return self._memory.recall(ops.barycenter_sums(psd, weights)[0])
            total, target = self._update(psd, weights)
            self._memory.add(total, target)
            return target

    def _white_root(self) -> Tensor:
        """Return the root of a white PSD of unit variance, (C, F), as the layer measures it."""
        return ops.white_root(torch.ones_like(self.running_sqrt_psd[:, 0]), self.spec)

    def _update(self, psd: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Move the barycenter to the batch's; return this process's sums and the target, (C, F)."""
        state = self.running_sqrt_psd, self.num_batches_tracked, self.rows_skipped
        in_one_launch = self.backend != "reference" and not self.sync
        if in_one_launch and ops.can_update_barycenter(psd, self.running_sqrt_psd):
            return ops.update_barycenter(psd, weights, *state, self.momentum, self._unit_spec)
        own_total, own_count = ops.barycenter_sums(psd, weights)  # (C, F), (C,)
        self._check_vmap(own_total)
        n_used = own_count if weights is None else (weights > 0).sum(dim=0).to(own_count.dtype)
        total, count, skipped = own_total, own_count, psd.shape[0] - n_used
        if self.sync and dist.is_available() and dist.is_initialized():
            # sums and counts, not means, as ranks may be uneven; in a single all-reduce
            packed = torch.cat([total, count.unsqueeze(-1), skipped.unsqueeze(-1)], dim=-1)
            dist.all_reduce(packed)
            total, count, skipped = packed[:, :-2], packed[:, -2], packed[:, -1]
        seen = count > 0
        running, batches, pending = running_state(self.running_sqrt_psd, self.num_batches_tracked)
        if self.momentum is None:
            step = 1 / (batches + 1).to(total.dtype)
        else:
            step = torch.where(batches == 0, 1.0, self.momentum).to(total.dtype)
        step = torch.where(seen, step, 0.0) * pending
        batch = total / count.clamp(min=1).unsqueeze(-1)
        target = ops.geodesic(running.to(total.dtype), batch, step.unsqueeze(-1))
        self.running_sqrt_psd.copy_(target)
        self.num_batches_tracked.add_(seen * pending)
        self.rows_skipped.add_(skipped.sum().to(torch.int64) * pending)
        return own_total, self._scaled(target)

    def _check_vmap(self, total: Tensor) -> None:
        if torch.compiler.is_compiling():
            return
        is_batched = torch._C._functorch.is_batchedtensor
        if is_batched(total) and not is_batched(self.running_sqrt_psd):
            raise BackendError(
                "PSDNorm cannot update one barycenter from the members of a torch.func.vmap: call "
                "eval() first, or map over stacked buffers too (torch.func.stack_module_state)"
            )

    def _apply(self, fn, recurse=True):
        exact = {k: b for k, b in self._buffers.items() if b is not None and b.is_floating_point()}
        super()._apply(fn, recurse)
        # .half() and .bfloat16() are meant for weights and signals: statistics need precision
        for name, former in exact.items():
            moved = self.get_buffer(name)
            if moved.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, former.to(moved.device))
        self._memory = PassMemory()
        return self

    def _load_from_state_dict(self, *args, **kwargs):
        super()._load_from_state_dict(*args, **kwargs)
        # load_state_dict(assign=True) keeps the checkpoint's dtype
        self.running_sqrt_psd = self.running_sqrt_psd.to(
            ops.statistics_dtype(self.running_sqrt_psd.dtype)
        )

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._memory = PassMemory()  # it holds passes of one device
        return replica
