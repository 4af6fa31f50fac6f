"""Batches of several domains with several windows each, for torch's DataLoader and skorch."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from torch import Tensor
from torch.utils.data import Sampler

from psdnorm.errors import ArgumentError
from psdnorm.functional import check_size
from psdnorm.ops import id_keys


class DomainBatchSampler(Sampler[list[int]]):
    """Draw batches of D different domains with n windows each.

    Layers with ``statistics="domain"`` pool the windows of each domain in a batch, and their
    barycenter averages the domains in it, so a batch needs several of both. Every batch has D · n
    windows, domain by domain.

    Parameters
    ----------
    ids : Tensor, array or sequence of integers or strings
        The domain of each window of the data set, as in :func:`psdnorm.domains`.
    domains_per_batch : int
        D, at most the number of domains.
    windows_per_domain : int
        n.
    seed : int
        The order of an epoch depends only on the seed and the number of the epoch.
    drop_last : bool
        By default an epoch visits every window at least once. The last windows of a domain are
        filled up to n with others of it, and domains that have fewer windows than the largest one
        are visited again where batches would otherwise lack a D-th domain. With True it visits
        every window at most once, and leaves out what would need filling: other windows in every
        epoch.

    Raises
    ------
    ArgumentError
        If there are fewer domains than D or, with ``drop_last=True``, a domain has fewer windows
        than n, and so would never be visited.

    Notes
    -----
    Every iteration is a new epoch: ``set_epoch`` is only needed to resume a training. A domain
    with fewer windows than n repeats them within the batch. Several processes of
    ``torch.distributed`` need a sampler each, with seeds of their own.

    For skorch, pass it as ``iterator_train__batch_sampler``, with ``iterator_train__batch_size=1``
    and ``train_split=None``: its indices are those of all windows.

    Examples
    --------
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> import torch
    >>> from psdnorm import DomainBatchSampler
    >>> subjects = torch.arange(100) // 20  # five subjects with 20 windows each
    >>> windows = TensorDataset(torch.randn(100, 2, 500), subjects)
    >>> sampler = DomainBatchSampler(subjects, domains_per_batch=3, windows_per_domain=4)
    >>> loader = DataLoader(windows, batch_sampler=sampler)
    >>> len(loader)
    9
    >>> for x, ids in loader:  # with psdnorm.domains(ids): ...
    ...     assert x.shape == (12, 2, 500) and len(ids.unique()) == 3
    """

    def __init__(
        self,
        ids: Iterable,
        domains_per_batch: int,
        windows_per_domain: int,
        *,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.domains_per_batch = check_size("domains_per_batch", domains_per_batch)
        self.windows_per_domain = check_size("windows_per_domain", windows_per_domain)
        self.seed = _from_zero("seed", seed)
        self.drop_last = drop_last
        self.epoch = 0  # of the next iteration
        if isinstance(ids, Tensor):
            ids = ids.tolist()
        elif isinstance(ids, Iterator):
            ids = list(ids)
        _, first, domain, sizes = np.unique(
            id_keys(ids), return_index=True, return_inverse=True, return_counts=True
        )
        n, wanted = self.windows_per_domain, self.domains_per_batch
        if len(sizes) < wanted:
            raise ArgumentError(f"domains_per_batch={wanted}, but ids name {len(sizes)} domains")
        if drop_last and sizes.min() < n:
            name = np.asarray(ids)[first[sizes.argmin()]].item()
            raise ArgumentError(
                f"domain {name!r} has {sizes.min()} windows, fewer than windows_per_domain={n}: "
                "with drop_last=True it would never be drawn"
            )
        order = np.argsort(domain.reshape(-1), kind="stable")
        self._windows = np.split(order, sizes.cumsum()[:-1])  # of each domain
        self._n_groups = sizes // n if drop_last else -(-sizes // n)  # (domains,)
        most, total = int(self._n_groups.max()), int(self._n_groups.sum())
        if drop_last:  # in k batches, a domain is at most k times
            self._n_batches = bisect_left(
                range(1, total // wanted + 1),
                True,
                key=lambda k: self._n_groups.clip(max=k).sum() < wanted * k,
            )
        else:
            self._n_batches = max(most, -(-total // wanted))

    def __len__(self) -> int:
        return self._n_batches

    def __iter__(self) -> Iterator[list[int]]:
        # when the first batch is drawn: loaders with workers ask for an iterator that they drop
        epoch, self.epoch = self.epoch, self.epoch + 1
        yield from self._batches(np.random.default_rng([self.seed, epoch]))

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch, from 0 on."""
        self.epoch = _from_zero("epoch", epoch)

    # quoted, as numpy.random is not imported before it is needed
    def _batches(self, rng: "np.random.Generator") -> Iterator[list[int]]:
        visits = self._draw_visits(rng)
        groups = [self._groups(windows, rng) for windows in self._windows]
        for left in range(self._n_batches, 0, -1):
            # at random, in proportion to the visits that are left; a domain with as many of them
            # as there are batches left is in all of these
            waits = rng.exponential(size=len(visits)) / visits.clip(min=1)
            waits[visits == 0] = np.inf
            waits[visits == left] = -1
            chosen = np.argpartition(waits, self.domains_per_batch - 1)[: self.domains_per_batch]
            visits[chosen] -= 1
            yield [int(window) for domain in chosen for window in next(groups[domain])]

    def _draw_visits(self, rng: "np.random.Generator") -> np.ndarray:
        """Return how many batches each domain is in, (domains,); their sum is D · len(self)."""
        n_visits = self._n_batches * self.domains_per_batch
        visits = self._n_groups.clip(max=self._n_batches)
        excess = int(visits.sum()) - n_visits
        if excess > 0:  # with drop_last, fewer than D
            visits[rng.choice(np.flatnonzero(visits), excess, replace=False)] -= 1
            return visits
        # the fewest visits are raised to a common level, and some of these by one more
        levels = range(self._n_batches + 1)
        n_above = bisect_right(levels, n_visits, key=lambda level: visits.clip(min=level).sum())
        level = levels[n_above - 1]
        visits = visits.clip(min=level)
        lowest = np.flatnonzero(visits == level)
        visits[rng.choice(lowest, n_visits - int(visits.sum()), replace=False)] += 1
        return visits

    def _groups(self, windows: np.ndarray, rng: "np.random.Generator") -> Iterator[np.ndarray]:
        """Yield n windows of a domain again and again; all of them before any comes twice."""
        n = self.windows_per_domain
        while True:
            drawn = rng.permutation(windows)
            for start in range(0, len(drawn), n):
                group, before = drawn[start : start + n], drawn[:start]
                if len(group) == n:
                    yield group
                elif len(before):
                    filling = rng.choice(before, n - len(group), replace=False)
                    yield np.concatenate([group, filling])
                else:
                    yield np.resize(group, n)


def _from_zero(name: str, value: int) -> int:
    is_zero = value == 0 and not isinstance(value, bool | float)
    return 0 if is_zero else check_size(name, value)
