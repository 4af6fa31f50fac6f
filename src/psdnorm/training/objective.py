"""What is minimised, as sums that add up over batches and processes."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdnorm.models.card import STAGES

_N = len(STAGES)


def weighted_sums(logits: Tensor, stages: Tensor, weights: Tensor) -> Tensor:
    """Sum the weighted cross-entropies of the scored epochs, and their weights.

    The loss of any set of epochs, be it a batch or all that validates, is the first over the
    second, each added up over the set: it does not depend on how the set was cut into batches.

    Parameters
    ----------
    logits : Tensor, (N, 5, S)
    stages : Tensor of int64, (N, S)
        -1 where unscored.
    weights : Tensor, (5,)

    Returns
    -------
    Tensor, (2,)
    """
    scored = stages >= 0
    weight = torch.where(scored, weights[stages.clamp(min=0)], 0.0)  # (N, S)
    losses = F.cross_entropy(logits, stages, ignore_index=-1, reduction="none")
    return torch.stack([(losses * weight).sum(), weight.sum()])


def confusion_counts(logits: Tensor, stages: Tensor) -> Tensor:
    """Count scored epochs by true and predicted stage, without asking the host.

    Parameters
    ----------
    logits : Tensor, (N, 5, S)
    stages : Tensor of int64, (N, S)

    Returns
    -------
    Tensor of int64, (5, 5)
    """
    cells = torch.where(stages >= 0, stages * _N + logits.argmax(dim=1), _N * _N)
    counts = torch.zeros(_N * _N + 1, dtype=torch.int64, device=logits.device)
    ones = torch.ones_like(cells.flatten())
    return counts.index_add_(0, cells.flatten(), ones)[:-1].view(_N, _N)


class Objective(nn.Module):
    """A network and what it minimises, as one module that can be wrapped for several devices.

    Parameters
    ----------
    model : nn.Module
    forward : callable
        What computes the model, see :func:`psdnorm.models.accelerate`.
    weights : Tensor, (5,)
        Of the stages.
    """

    weights: Tensor

    def __init__(self, model: nn.Module, forward, weights: Tensor) -> None:
        super().__init__()
        self.model = model
        self._run = [forward]  # in a list, or a module would be registered twice
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor, stages: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, (N, 5, S), and :func:`weighted_sums`, (2,)."""
        logits = self._run[0](x)
        return logits, weighted_sums(logits, stages, self.weights)
