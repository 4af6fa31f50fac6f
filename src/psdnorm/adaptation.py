"""Fit the norms of a model to unlabelled data: calibrate PSDNorm, adapt batch norms (AdaBN)."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

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
)
from psdnorm.errors import ArgumentError, ConversionError
from psdnorm.layer import PSDNorm


def calibrate(
    model: nn.Module, batches: Iterable, device: torch.device | str | None = None
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
    former, momenta = copy_buffers(norms), [norm.momentum for norm in norms]
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        with evaluating(model, training=norms):
            for x in _inputs(model, batches, device):
                model(x)
        _restore_unseen(norms, former)
    except BaseException:
        restore(former)
        raise
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
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
    training = [found[norm] for norm in chosen if norm.training]
    if training:
        warnings.warn(
            f"{len(training)} of {len(chosen)} adapted layers, from {training[0]!r} on, are in "
            "training mode, where adapted statistics have no effect: call model.eval() first",
            stacklevel=3,  # past this function and contextlib: the with statement
        )
    former = copy_buffers(chosen)
    try:
        _reestimate(model, chain([first], inputs), {norm: found[norm] for norm in chosen})
        yield model
    finally:
        restore(former)


def _why_not_adaptable(norm: _BatchNorm, position: int = 0) -> str:
    if norm.running_mean is None or norm.running_var is None:
        return "keeps no running statistics, expected track_running_stats=True"
    return ""


def _inputs(
    model: nn.Module, batches: Iterable, device: torch.device | str | None = None
) -> Iterator[Tensor]:
    """Yield each batch's input on ``device`` or that of the model; raise if there is none."""
    if isinstance(batches, Tensor):
        # iterating over it would yield samples, not batches
        raise ArgumentError("batches must be an iterable of batches, found one tensor x: pass [x]")
    if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
        kind = type(batches).__name__
        raise ArgumentError(f"batches must be an iterable of batches, found a {kind}")
    if device is None:
        device = next((t.device for t in chain(model.parameters(), model.buffers())), None)
    empty = True
    for batch in batches:
        x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if not isinstance(x, Tensor):
            kind = type(x).__name__
            raise ArgumentError(f"a batch must be, or begin with, a tensor, found a {kind}")
        if x.numel() == 0:
            continue  # many models fail on empty input
        empty = False
        yield x.to(device)
    if empty:
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
