"""Small signals and networks that the tests of convert_norm and adapt_batchnorm share."""

import copy
import functools
import itertools

import torch
from torch import nn


def signals(n, n_times=600, seed=0):
    """Stationary low-pass noise, (n, 2, T)."""
    white = torch.randn(2 * n, 1, n_times + 4, generator=torch.Generator().manual_seed(seed))
    smooth = torch.tensor([1.0, 0.8, 0.5, 0.3, 0.1]).view(1, 1, 5)
    return 5 * nn.functional.conv1d(white, smooth).view(n, 2, n_times)


def batches(count, n=16, first_seed=0, **kwargs):
    return [signals(n, seed=first_seed + i, **kwargs) for i in range(count)]


class Block(nn.Module):
    def __init__(self, n_in, n_out, **norm_options):
        super().__init__()
        self.conv = nn.Conv1d(n_in, n_out, 5)
        self.norm = nn.BatchNorm1d(n_out, **norm_options)

    def forward(self, x):
        return nn.functional.elu(self.norm(self.conv(x)))


@functools.cache
def settled(n_blocks):
    torch.manual_seed(0)
    widths = [2, *[6] * n_blocks]
    model = nn.Sequential(*(Block(i, o, momentum=None) for i, o in itertools.pairwise(widths)))
    for norm in norms_of(model):
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias, std=0.5)
    with torch.no_grad():
        for x in batches(5):
            model(x)
    return model.eval()


def network(n_blocks=4):
    """Return convolutions and batch norms as if trained: settled statistics, lively γ and β."""
    return copy.deepcopy(settled(n_blocks))


class Disordered(nn.Module):
    """Registered last to first, called first to last."""

    def __init__(self):
        super().__init__()
        self.third = nn.BatchNorm1d(2)
        self.second = nn.BatchNorm1d(2)
        self.first = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


class Ending(nn.Module):
    """Two norms over time, then one over (N, C)."""

    def __init__(self):
        super().__init__()
        self.early = nn.BatchNorm1d(2)
        self.late = nn.BatchNorm1d(2)
        self.head = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.head(self.late(self.early(x)).mean(dim=-1))


def norms_of(model):
    return [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]


def kinds(model):
    return [(name, id(module)) for name, module in model.named_modules(remove_duplicate=False)]


def buffers(model):
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def unchanged(model, before):
    now = buffers(model)
    return now.keys() == before.keys() and all(torch.equal(now[k], before[k]) for k in now)


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.spare = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(x)


def untracked_second():
    return nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
