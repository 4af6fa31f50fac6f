"""Fit the norms of a model to unlabelled data, and name the domains that rows belong to."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain, repeat

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from psdnorm.convert import (
    DEFAULT_LAYERS,
    Buffers,
    Names,
    check_layers,
    check_model,
    check_names,
    choose_first,
    copy_buffers,
    evaluating,
    find_batch_norms,
    hooked,
    input_of,
    record_calls,
    resolve,
    restore,
    uncompiled,
)
from psdnorm.errors import ArgumentError, ConversionError
from psdnorm.functional import as_rows
from psdnorm.layer import PSDNorm
from psdnorm.ops import (
    add_eps,
    choose_backend,
    constant_leakage,
    current_ids,
    mean_in_segments,
    row_statistics,
    valid_means,
)


def domains(ids: Iterable) -> AbstractContextManager[None]:
    """Name the domain of each sample in a batch; a context manager.

    Inside, every PSDNorm with ``statistics="domain"`` pools the rows of each domain. A recomputed
    pass (activation checkpointing) uses the ids of its first pass, even after the context has
    ended, so ``backward()`` may be called outside.

    Parameters
    ----------
    ids : Tensor, array or sequence of N integers or strings
        The recording, subject, session or sensor of each sample. They are read on the host once,
        here. A layer that sees k · N rows takes each id k times in a row.

    Examples
    --------
    >>> model = nn.Sequential(PSDNorm(2, filter_size=1, statistics="domain", target_power="unit"))
    >>> x = torch.randn(4, 2, 500) * torch.tensor([1.0, 1.0, 50.0, 50.0]).view(4, 1, 1)
    >>> with domains(["drive end", "drive end", "fan end", "fan end"]):
    ...     y = model(x)
    >>> y[:2].std().round(decimals=1), y[2:].std().round(decimals=1)
    (tensor(1.), tensor(1.))
    """
    return current_ids(ids)


@contextmanager
def adapt(
    model: nn.Module,
    batches: Iterable,
    *,
    batch_norms: bool = False,
    streaming: bool = False,
    device: torch.device | str | None = None,
) -> Iterator[nn.Module]:
    """Fix the statistics of one unseen domain from its unlabelled data; a context manager.

    On entry every PSDNorm with ``statistics="domain"`` measures the domain's PSD, layer by layer
    in execution order, so that several batches give what one batch with all rows gives. Inside,
    single windows are normalized with these fixed filters, and need no ids. On exit the model is
    as before.

    Parameters
    ----------
    model : nn.Module
        Its training flags are left alone: call ``eval()`` first.
    batches : iterable of Tensor, or of tuples or lists that begin with one
        Unlabelled data of one domain, which is read once per layer: a list or a DataLoader, not an
        iterator. Without a batch, a layer's barycenter stands for the domain's PSD (gain 1).
    batch_norms : bool
        Also re-estimate the means and variances of the batch norms beside them.
    streaming : bool
        Every batch that passes inside adds to the statistics before it is normalized. A compiled
        model runs uncompiled.
    device : torch.device or str, optional
        The batches are moved to it; by default the device of the model.

    Raises
    ------
    ConversionError
        If the model has no layer to adapt.
    ArgumentError
        If ``batches`` can be read only once.

    Examples
    --------
    >>> model = nn.Sequential(PSDNorm(2, filter_size=1, statistics="domain")).eval()
    >>> windows = [5 * torch.randn(16, 2, 500) for _ in range(4)]
    >>> with adapt(model, windows):
    ...     print(model(windows[0][:1]).std().round(decimals=1))
    tensor(1.)
    """
    check_model(model)
    if isinstance(batches, Iterator):
        raise ArgumentError(
            "batches is an iterator, which can be read only once, expected a list or a DataLoader: "
            "every layer needs a pass of its own"
        )
    if isinstance(batches, Tensor):
        raise ArgumentError("batches must be an iterable of batches, found one tensor x: pass [x]")
    pools: dict[nn.Module, _DomainPool | _BatchNormPool] = {}
    for module in model.modules():
        if isinstance(module, PSDNorm) and module.statistics == "domain":
            pools[module] = _DomainPool(module)
        elif batch_norms and isinstance(module, _BatchNorm) and not _why_not_adaptable(module):
            pools[module] = _BatchNormPool(module)
    if not pools:
        kinds = 'PSDNorm with statistics="domain"' + (" or BatchNorm" if batch_norms else "")
        raise ConversionError(f"{type(model).__name__} has no {kinds} to adapt")
    norms = [norm for norm in pools if isinstance(norm, PSDNorm)]
    beside = [norm for norm in pools if not isinstance(norm, PSDNorm)]
    _warn_of_training([norm for norm in beside if norm.training], len(beside), model)
    former = copy_buffers(beside)
    fixed = [(norm.adapted_psd, norm.adapted_mean) for norm in norms]
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    try:
        for norm in norms:
            norm.fix_domain(*norm.unseen_domain())
        _adapt_in_order(model, batches, pools, device)
        for pool in pools.values():
            if isinstance(pool, _DomainPool) and pool.sums:
                seen = pool.sums[0] > 0  # (C,)
                pool.norm.warn_of_large_eps(names[pool.norm], pool.mean_psd()[seen])
        if not streaming:
            yield model
            return
        with uncompiled(), hooked(pools, _follow(pools)):
            yield model
    finally:
        restore(former)
        for norm, (psd, mean) in zip(norms, fixed, strict=True):
            norm.fix_domain(psd, mean)


def _adapt_in_order(model: nn.Module, batches: Iterable, pools: "Pools", device) -> None:
    """Estimate the statistics of each layer with those of the layers before it."""
    first = next(_inputs(model, batches, device, may_be_empty=True), None)
    if first is None:
        return
    calls = record_calls(model, (first,), pools)
    for norm, shapes in calls.items():
        called_once = len(shapes) == 1

        def hook(norm, args, kwargs, called_once=called_once):
            pools[norm].add(input_of(args, kwargs))
            if called_once:  # what comes later does not matter
                raise _Measured

        with evaluating(model), hooked([norm], hook):
            for x in _inputs(model, batches, device):
                with suppress(_Measured):
                    model(x)
        pools[norm].apply()


def _follow(pools: "Pools") -> Callable:
    """Return a hook that adds each batch to the statistics of a layer before it is normalized."""

    @torch.no_grad()
    def hook(norm, args, kwargs):
        pools[norm].add(input_of(args, kwargs))
        pools[norm].apply()

    return hook


class _Measured(Exception):
    """Ends a pass at the layer that is measured."""


class _DomainPool:
    """Mean and mean PSD of all rows of one domain at one layer, in float64."""

    def __init__(self, norm: PSDNorm) -> None:
        self.norm = norm
        self.pivot: Tensor | None = None  # near the mean, (C,)
        self.sums: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def add(self, x: Tensor) -> None:
        norm, spec = self.norm, self.norm.spec
        if x.numel() == 0:
            return
        rows = as_rows(x, norm.num_features)
        raw = spec._replace(eps=0.0, statistics="row", center="row", eps_mode="absolute")
        backend = choose_backend(norm.backend, rows, raw, norm.running_sqrt_psd)
        offset, psd = row_statistics(rows, raw, backend)
        mean = rows[..., 0].double() + offset.double()
        valid = valid_means(mean.to(offset.dtype), psd)  # (N, C)
        psd = torch.where(valid.unsqueeze(-1), psd.double(), 0.0)
        if self.pivot is None:
            n_valid = valid.sum(dim=0).clamp(min=1)
            self.pivot = torch.where(valid, mean, 0.0).sum(dim=0) / n_valid
        mean = torch.where(valid, mean - self.pivot, 0.0)
        new = [valid.sum(dim=0).double(), mean.sum(dim=0), psd.sum(dim=0)]
        if spec.center == "domain":
            # about the pivot instead of each row's mean
            leakage = constant_leakage(spec, psd)
            with torch.autocast(rows.device.type, enabled=False):
                inner = mean_in_segments(rows, offset, spec).double()
            inner = torch.where(valid.unsqueeze(-1), inner, 0.0)
            shift = mean.unsqueeze(-1) * leakage
            new[2] = (psd + shift * (shift + 2 * inner)).sum(dim=0)
            new.append((inner + shift).sum(dim=0))
        self.sums = tuple(map(torch.add, self.sums, new)) if self.sums else tuple(new)

    def mean_psd(self) -> Tensor:
        """Return the domain's PSD without eps, (C, F)."""
        count, mean, psd, *inner = self.sums
        count = count.clamp(min=1).unsqueeze(-1)
        psd = psd / count
        if inner:
            shift = mean.unsqueeze(-1) / count * constant_leakage(self.norm.spec, psd)
            psd = (psd + shift * (shift - 2 * inner[0] / count)).clamp(min=0)
        return psd

    @torch.no_grad()
    def apply(self) -> None:
        """Fix the layer's filters to the rows so far; channels without a valid row stay as is."""
        if not self.sums or self.pivot is None:
            return
        norm, count = self.norm, self.sums[0]
        unseen, _ = norm.unseen_domain()
        psd = add_eps(self.mean_psd(), norm.spec).to(unseen.dtype)
        psd = torch.where(count.unsqueeze(-1) > 0, psd, unseen)
        mean = None
        if norm.center == "domain":
            mean = self.pivot + self.sums[1] / count.clamp(min=1)
        norm.fix_domain(psd, mean)


class _BatchNormPool:
    """The same of a batch norm."""

    def __init__(self, norm: _BatchNorm) -> None:
        self.norm, self.pool = norm, _Pool(norm)

    def add(self, x: Tensor) -> None:
        x = x[x.flatten(1).isfinite().all(dim=1)]  # as PSDNorm leaves out rows
        if x.numel():
            self.pool.add(x)

    def apply(self) -> None:
        """Set the running statistics to those of the values so far."""
        if self.pool.count > 1:
            _set_statistics(self.norm, self.pool.mean, self.pool.squares / (self.pool.count - 1))


Pools = dict[nn.Module, _DomainPool | _BatchNormPool]


def calibrate(
    model: nn.Module,
    batches: Iterable,
    device: torch.device | str | None = None,
    ids: Iterable | None = None,
) -> nn.Module:
    """Set the barycenters of all PSDNorm layers from unlabelled data, in place.

    In one pass, with the rest of the model in evaluation mode, each PSDNorm resets its barycenter
    to the equally weighted average over the batches. The inputs of deeper layers shift while the
    targets of earlier ones settle, so use batches of the size used in training.

    Parameters
    ----------
    batches : iterable of Tensor, or of tuples or lists that begin with one
        Such as a DataLoader. Empty batches are skipped.
    device : torch.device or str, optional
        The batches are moved to it; by default the device of the model.
    ids : iterable, optional
        For each batch its ids, as in :func:`domains`, for layers with ``statistics="domain"``.

    Returns
    -------
    nn.Module
        The same model, its training flags and momenta unchanged. A channel without a valid row
        keeps its barycenter; after any error, all channels do.

    Raises
    ------
    ConversionError
        If the model has no PSDNorm with a barycenter.

    Examples
    --------
    >>> model = nn.Sequential(PSDNorm(2, filter_size=1))
    >>> _ = calibrate(model, [3 * torch.randn(16, 2, 1000)])
    >>> model[0].running_sqrt_psd.round().flatten().tolist()
    [3.0, 3.0]
    """
    check_model(model)
    norms = [m for m in model.modules() if isinstance(m, PSDNorm) and m.target == "barycenter"]
    if not norms:
        raise ConversionError(f"{type(model).__name__} has no PSDNorm layer with a barycenter")
    fixed = [(norm.adapted_psd, norm.adapted_mean) for norm in norms]  # inside `adapt`
    for norm in norms:
        norm.fix_domain(None)
    former, momenta = copy_buffers(norms), [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        with evaluating(model, training=norms):
            for x, of_batch in _inputs_and_ids(model, batches, ids, device):
                with nullcontext() if of_batch is None else current_ids(of_batch):
                    model(x)
        _restore_unseen(norms, former)
        names = {module: name for name, module in model.named_modules()}
        for norm in norms:
            norm.warn_of_large_eps(names[norm])
    except BaseException:
        restore(former)
        raise
    finally:
        for norm, momentum, (psd, mean) in zip(norms, momenta, fixed, strict=True):
            norm.momentum = momentum
            norm.fix_domain(psd, mean)
    return model


@contextmanager
def adapt_batchnorm(
    model: nn.Module, batches: Iterable, layers: int | str | Sequence[str] = DEFAULT_LAYERS
) -> Iterator[nn.Module]:
    """Give batch norms the statistics of one subject (AdaBN, Li et al. 2016); a context manager.

    On entry the means and variances of the chosen layers are estimated from the subject's
    unlabelled batches, pooled over all values. On exit, even after an exception, the original
    statistics are restored bit for bit.

    Parameters
    ----------
    model : nn.Module
        Its training flags are left alone: call ``eval()`` first.
    batches : iterable of Tensor, or of tuples or lists that begin with one
        The data of one subject, moved to the device of the model. Empty batches are skipped.
    layers : int, "all" or sequence of str
        Number of batch norms with running statistics, in execution order, or their names.

    Raises
    ------
    ConversionError
        If there are too few layers, no running statistics, or non-finite values.

    Warns
    -----
    UserWarning
        If a chosen layer is in training mode, where it would not use the adapted statistics.

    Notes
    -----
    During estimation the model is in evaluation mode, except that the chosen layers normalize
    each batch with its own statistics.

    Examples
    --------
    >>> model = nn.Sequential(nn.BatchNorm1d(2)).eval()
    >>> x = 3 + 5 * torch.randn(8, 2, 1000)
    >>> with adapt_batchnorm(model, [x], layers=1):
    ...     print(model(x).mean().abs() < 1e-4)
    tensor(True)
    >>> model[0].running_mean
    tensor([0., 0.])
    """
    check_model(model)
    by_name = isinstance(layers, Iterable) and not isinstance(layers, str)
    expected = 'a whole number from 1 on, "all" or a sequence of layer names'
    wanted = check_names("layers", layers) if by_name else check_layers(layers, expected)
    found = find_batch_norms(model)
    inputs = _inputs(model, batches)
    first = next(inputs)
    if isinstance(wanted, list):
        chosen = resolve(model, found, wanted, _why_not_adaptable)
    else:
        calls = record_calls(model, (first,), found)
        chosen = choose_first(found, calls, wanted, _why_not_adaptable)
    _warn_of_training([norm for norm in chosen if norm.training], len(chosen), model)
    former = copy_buffers(chosen)
    try:
        _reestimate(model, chain([first], inputs), {norm: found[norm] for norm in chosen})
        yield model
    finally:
        restore(former)


def _warn_of_training(training: Sequence[nn.Module], n_adapted: int, model: nn.Module) -> None:
    if training:
        names = {module: name for name, module in model.named_modules()}
        warnings.warn(
            f"{len(training)} of {n_adapted} adapted layers, from {names[training[0]]!r} on, are "
            "in training mode, where adapted statistics have no effect: call model.eval() first",
            stacklevel=4,  # past this function, its caller and contextlib: the with statement
        )


def _why_not_adaptable(norm: _BatchNorm, position: int = 0) -> str:
    if norm.running_mean is None or norm.running_var is None:
        return "keeps no running statistics, expected track_running_stats=True"
    return ""


def _inputs(
    model: nn.Module,
    batches: Iterable,
    device: torch.device | str | None = None,
    may_be_empty: bool = False,
) -> Iterator[Tensor]:
    """Yield each batch's input on ``device`` or that of the model; raise if there is none."""
    for x, _ in _inputs_and_ids(model, batches, None, device, may_be_empty):
        yield x


def _inputs_and_ids(
    model: nn.Module,
    batches: Iterable,
    ids: Iterable | None,
    device: torch.device | str | None = None,
    may_be_empty: bool = False,
) -> Iterator[tuple[Tensor, Iterable | None]]:
    """Yield the same, each input with the ids of its batch."""
    if isinstance(batches, Tensor):
        # iterating over it would yield samples, not batches
        raise ArgumentError("batches must be an iterable of batches, found one tensor x: pass [x]")
    if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
        kind = type(batches).__name__
        raise ArgumentError(f"batches must be an iterable of batches, found {kind}")
    if device is None:
        device = next((t.device for t in chain(model.parameters(), model.buffers())), None)
    if ids is not None and (isinstance(ids, str) or not isinstance(ids, Iterable)):
        raise ArgumentError(f"ids must hold the ids of each batch, found {type(ids).__name__}")
    of_batches = repeat(None) if ids is None else iter(ids)
    empty = True
    for n, batch in enumerate(batches):
        try:
            of_batch = next(of_batches)
        except StopIteration:
            raise ArgumentError(
                f"ids ends after batch {n}, expected an entry for every batch"
            ) from None
        x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if not isinstance(x, Tensor):
            kind = type(x).__name__
            raise ArgumentError(f"a batch must be, or begin with, a tensor, found {kind}")
        if x.numel() == 0:
            continue  # many models fail on empty input
        empty = False
        yield x.to(device), of_batch
    if ids is not None and next(of_batches, None) is not None:
        raise ArgumentError("there are fewer batches than ids of batches")
    if empty and not may_be_empty:
        raise ArgumentError("batches is empty, expected at least one batch with values")


@torch.no_grad()
def _restore_unseen(norms: list[PSDNorm], former: Buffers) -> None:
    """Restore the barycenter of channels that saw no valid row."""
    for norm, (_, copies) in zip(norms, former, strict=True):
        unseen = norm.num_batches_tracked == 0  # (C,)
        for buffer in ("running_sqrt_psd", "num_batches_tracked"):
            getattr(norm, buffer)[unseen] = copies[buffer][unseen]


class _Pool:
    """Mean and sum of squared deviations per channel, merged batch by batch (Chan et al. 1979)."""

    def __init__(self, norm: _BatchNorm) -> None:
        self.count = 0
        self.mean = torch.zeros(norm.num_features, dtype=torch.float64)
        self.squares = torch.zeros(norm.num_features, dtype=torch.float64)

    def add(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Add a batch (N, C, ...) and return its mean and biased variance, (C,)."""
        values = x.to(torch.float64).transpose(0, 1).flatten(1)  # (C, n)
        n, mean = values.shape[1], values.mean(dim=1)
        squares = (values - mean.unsqueeze(1)).square().sum(dim=1)
        total = self.count + n
        delta = mean - self.mean.to(mean.device)
        between = delta.square() * (self.count * n / total)
        self.squares = self.squares.to(mean.device) + squares + between
        self.mean = self.mean.to(mean.device) + delta * (n / total)
        self.count = total
        return mean, squares / n


def _reestimate(model: nn.Module, inputs: Iterable[Tensor], norms: Names) -> None:
    """Replace the running statistics of ``norms`` by those of the inputs, pooled."""
    pools = {norm: _Pool(norm) for norm in norms}

    def hook(norm, args, kwargs):
        x = input_of(args, kwargs)
        if x.numel() == 0:
            return  # no sample of this batch takes this branch of the model
        # in evaluation mode a layer normalizes with its buffers, here the batch's own statistics
        _set_statistics(norm, *pools[norm].add(x))

    with evaluating(model), hooked(norms, hook):
        for x in inputs:
            model(x)
    for norm, pool in pools.items():
        if pool.count < 2:
            found = f"{pool.count} values per channel, expected at least 2"
        elif not (pool.mean.isfinite().all() and pool.squares.isfinite().all()):
            found = "values that are not finite"
        else:
            # unbiased, as in torch's buffers
            _set_statistics(norm, pool.mean, pool.squares / (pool.count - 1))
            continue
        raise ConversionError(f"{norms[norm]!r} saw {found}")


@torch.no_grad()
def _set_statistics(norm: nn.Module, mean: Tensor, variance: Tensor) -> None:
    norm.get_buffer("running_mean").copy_(mean)
    norm.get_buffer("running_var").copy_(variance)
