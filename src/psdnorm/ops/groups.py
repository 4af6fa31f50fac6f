"""Rows that share statistics: those of one domain (recording, subject, sensor) in a batch."""

import hashlib
from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from psdnorm.errors import ArgumentError


class Groups(NamedTuple):
    """Which rows of a batch belong together."""

    # the domain of each row, rows sorted by domain, where each domain begins there: (3 N + 1,). Of
    # fixed size, so that neither compiled code nor kernels depend on the number of domains
    packed: Tensor
    n_synced: int = 0  # domains on all processes, if sums run over all of them

    @property
    def of_row(self) -> Tensor:
        """Domain of each row, (N,)."""
        return self.packed[: self.packed.shape[0] // 3]

    @property
    def n_slots(self) -> int:
        """A number that no domain reaches."""
        if self.n_synced:
            return self.n_synced
        is_known = self.packed.device.type == "cpu" and not torch.compiler.is_compiling()
        # on a device the number of domains is not read, which would make the host wait
        return int(self.of_row.max()) + 1 if is_known and len(self.of_row) else self.of_row.shape[0]

    def sum(self, values: Tensor) -> Tensor:
        """Sum values of rows, (N, ...), over each domain: (slots, ...) in float64."""
        sums = _Sum.apply(values.double(), self.of_row, self.n_slots)
        return _AllReduce.apply(sums) if self.n_synced else sums

    def per_row(self, values: Tensor) -> Tensor:
        """Give every row the value of its domain, (slots, ...) → (N, ...)."""
        return _Spread.apply(values, self.of_row)

    def valid_mean(self, values: Tensor, valid: Tensor) -> Tensor:
        """Give every row the mean over the valid rows of its domain, (N, C)."""
        sums = self.sum(torch.stack([torch.where(valid, values, 0.0), valid.to(values.dtype)], -1))
        total, count = self.per_row(sums).unbind(-1)
        return (total / count.clamp(min=1)).to(values.dtype)


def _sum(values: Tensor, index: Tensor, n_slots: int) -> Tensor:
    members = index == torch.arange(n_slots, device=index.device).unsqueeze(1)  # (slots, N)
    members = members.to(values.dtype)
    flat = values.reshape(values.shape[0], -1)
    # a product always adds in the same order; infinities and NaN must stay in their domain
    finite = flat.isfinite()
    sums = members @ torch.where(finite, flat, 0.0)
    sums = torch.where(members @ (~finite).to(values.dtype) > 0, torch.nan, sums)
    return sums.reshape(n_slots, *values.shape[1:])


class _Sum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values, index, n_slots):
        return _sum(values, index, n_slots)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad):
        return _Spread.apply(grad, *ctx.saved_tensors), None, None


class _Spread(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values, index):
        return values[index]

    @staticmethod
    def setup_context(ctx, inputs, output):
        values, index = inputs
        ctx.save_for_backward(index)
        ctx.n_slots = values.shape[0]

    @staticmethod
    def backward(ctx, grad):
        return _Sum.apply(grad, *ctx.saved_tensors, ctx.n_slots), None


class _AllReduce(torch.autograd.Function):
    """Sum over processes; as all of them use the sum, so is its gradient."""

    @staticmethod
    def forward(ctx, values):
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx, grad):
        return _AllReduce.apply(grad)


class _Ids:
    """The ids of a batch."""

    def __init__(self, ids: Iterable) -> None:
        self.keys = id_keys(ids)  # an id's key is the same in every process, (N,)
        _, index = np.unique(self.keys, return_inverse=True)
        self.cpu = torch.from_numpy(_pack(index.reshape(-1))).to("cpu")
        self.cuda: Tensor | None = None
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self.cuda = self.cpu.to("cuda", non_blocking=True)
        self.synced: Groups | None = None


# of the batch that a thread or task is processing
_current: ContextVar[_Ids | None] = ContextVar("_current", default=None)


class current_ids:
    """Let layers with ``statistics="domain"`` pool the rows of each id; see psdnorm.domains."""

    def __init__(self, ids: Iterable) -> None:
        self._ids = _Ids(ids)
        self._tokens: list[Token] = []

    def __enter__(self) -> None:
        self._tokens.append(_current.set(self._ids))

    def __exit__(self, *of_error: object) -> None:
        _current.reset(self._tokens.pop())


def id_keys(ids: Iterable) -> np.ndarray:
    """Return one integer for each id, (N,), which is the same in every process."""
    expected = "one integer or string per sample"
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, (str, set, frozenset, dict)) or not isinstance(ids, Iterable):
        raise ArgumentError(f"ids must be {expected}, found {type(ids).__name__}")
    given = ids if isinstance(ids, np.ndarray) else list(ids)
    try:
        found = np.asarray(given)
    except ValueError:
        raise ArgumentError(f"ids must be {expected}, found values of several sizes") from None
    if found.ndim != 1 or not len(found):
        raise ArgumentError(f"ids must be {expected}, found an array of shape {found.shape}")
    if found.dtype.kind in "iu":
        return found.astype(np.int64)
    if found.dtype.kind == "O" or len({isinstance(i, str) for i in given}) > 1:
        if not all(isinstance(i, str) for i in given):
            raise ArgumentError(f"ids must be all integers or all strings, found {given!r:.60}")
        found = np.asarray([str(i) for i in given])
    if found.dtype.kind != "U":
        raise ArgumentError(f"ids must be {expected}, found {found.dtype}")
    return np.asarray([_key(i) for i in found], dtype=np.int64)


def _key(text: str) -> int:
    digest = hashlib.blake2b(str(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _pack(index: np.ndarray) -> np.ndarray:
    starts = np.searchsorted(np.sort(index), np.arange(len(index) + 1))
    return np.concatenate([index, np.argsort(index, kind="stable"), starts]).astype(np.int64)


def current_groups(n_rows: int, device: torch.device, sync: bool = False) -> Groups:
    """Return the groups of a layer's rows; raise if there are no ids, or not the right number."""
    ids = _current.get()
    if ids is None:
        raise ArgumentError(
            'PSDNorm with statistics="domain" needs to know which rows belong together: call the '
            "model inside `with psdnorm.domains(ids)` or `with psdnorm.adapt(model, batches)`"
        )
    packed = ids.cuda if device.type == "cuda" and ids.cuda is not None else ids.cpu
    n_ids = len(ids.keys)
    if n_rows % n_ids or not n_rows:
        raise ArgumentError(
            f"psdnorm.domains was given {n_ids} ids, but a layer sees {n_rows} rows: expected as "
            "many rows as ids, or a multiple"
        )
    n_synced = 0
    if sync and dist.is_available() and dist.is_initialized():
        if ids.synced is None:
            ids.synced = _over_processes(ids.keys)
        packed, n_synced = ids.synced
    return Groups(_repeated(packed.to(device), n_rows // n_ids), n_synced)


def _repeated(packed: Tensor, times: int) -> Tensor:
    """Repeat each row ``times`` times."""
    if times == 1:
        return packed
    n = packed.shape[0] // 3
    index, order, starts = packed[:n], packed[n : 2 * n], packed[2 * n :]
    copies = torch.arange(times, device=packed.device)
    last = starts[-1:] * times
    return torch.cat(
        [
            index.repeat_interleave(times),
            (order.unsqueeze(1) * times + copies).flatten(),
            starts * times,
            last.expand(n * times - n),
        ]
    )


def _over_processes(keys: np.ndarray) -> Groups:
    """Give the domains of all processes numbers; processes wait for each other here."""
    of_all: list[np.ndarray] = [keys] * dist.get_world_size()
    dist.all_gather_object(of_all, np.unique(keys))
    known = np.unique(np.concatenate(of_all))
    return Groups(torch.from_numpy(_pack(np.searchsorted(known, keys))), len(known))
