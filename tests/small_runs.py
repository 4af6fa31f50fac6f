"""Small cohorts that can be learned, and the smallest networks that learn them."""

from dataclasses import replace

import numpy as np
import torch
from stores import filled, tree
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F

from psdnorm.store import Layout, Night
from psdnorm.training import Protocol, Run
from psdnorm.training.loop import learn

LAYOUT = Layout(n_channels=2, n_times=60, sfreq=20.0)
PROTOCOL = Protocol(
    batch_size=4,
    max_epochs=3,
    length=9,
    stride=5,
    validation_fraction=0.34,
    model_arguments={"depth": 3, "n_time_filters": 4},
)
# for real nights in 30 s epochs, where all that counts is that a network is there
TINY = replace(
    PROTOCOL,
    max_epochs=1,
    length=5,
    stride=3,
    model_arguments={"depth": 2, "n_time_filters": 2},
)
RUN = Run("usleep", "psd", hold_out="abc")
# dropout, so that random generators count; PSDNorm, so that running statistics do
DROPPING = Run("cnn-transformer", "psd", hold_out="abc")
_SMALL = {
    "channels": [4, 8, 8],
    "strides": [3, 2, 2],
    "n_layers": 1,
    "n_heads": 2,
    "dropout": 0.3,
}
WITH_DROPOUT = replace(PROTOCOL, max_epochs=2, model_arguments=_SMALL)
SUBJECTS = 3


def learnable(recording, n_epochs=40, *, gain=1.0, seed=0, **known):
    """A night of noise in which each stage has its own rhythm, so that it can be learned."""
    rng = np.random.default_rng([seed, *recording.encode()])
    stages = np.repeat(rng.integers(0, 5, -(-n_epochs // 4)), 4)[:n_epochs]
    t = np.arange(n_epochs * LAYOUT.n_times).reshape(n_epochs, 1, -1) / LAYOUT.sfreq
    rhythm = np.sin(2 * np.pi * (1 + 1.5 * stages[:, None, None]) * t)
    shape = (n_epochs, LAYOUT.n_channels, LAYOUT.n_times)
    signals = gain * (rhythm + 0.3 * rng.standard_normal(shape))
    stages[rng.integers(0, n_epochs, 3)] = -1
    cohort, _, subject = recording.partition("-")
    known = {"cohort": cohort, "subject": subject, "source": recording, "simulated": True} | known
    return Night(recording, signals=signals, stages=stages, **known)


def nights(cohorts=("abc", "mno", "xyz"), subjects=SUBJECTS):
    return [
        learnable(f"{cohort}-{i}", 38 + 3 * i, gain=1 + j)
        for j, cohort in enumerate(cohorts)
        for i in range(subjects)
    ]


def small_store(path, made=None):
    return filled(path, nights() if made is None else made, LAYOUT)


def outcome(folder):
    """All that a finished run leaves but the clock's doing: time spent, and TensorBoard's files."""
    found = tree(folder)
    return {
        name: content
        for name, content in found.items()
        if name != "done.json" and not name.startswith("tensorboard/")
    }


def balanced_accuracies(predictions, margin):
    """Balanced accuracy of each owner, by hand, but for ``margin`` epochs at a night's ends.

    ``predictions`` are (owner, true stages, predicted stages), one of each night.
    """
    right = {}
    for owner, true, predicted in predictions:
        for stage, found in list(zip(true, predicted, strict=True))[margin : len(true) - margin]:
            if stage >= 0:
                right.setdefault(owner, {}).setdefault(stage, []).append(stage == found)
    return {
        owner: np.mean([np.mean(hits) for hits in by_stage.values()])
        for owner, by_stage in right.items()
    }


def learn_with_one_batch_norm(task, device, rank=0, size=1):
    """Learn with batch norms that all processes share, which torch has for CUDA devices alone."""

    def forward(norm, x):
        if not norm.training:
            return F.batch_norm(
                x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps
            )
        sums = torch.stack([x.sum(dim=(0, 2)), x.square().sum(dim=(0, 2))])
        n = x.shape[0] * x.shape[2] * size
        mean, square = (all_reduce(sums) if size > 1 else sums) / n
        variance = square - mean.square()
        with torch.no_grad():
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * n / (n - 1), norm.momentum)
        y = (x - mean[:, None]) / (variance[:, None] + norm.eps).sqrt()
        return y * norm.weight[:, None] + norm.bias[:, None]

    nn.BatchNorm1d.forward, former = forward, nn.BatchNorm1d.forward
    try:
        learn(task, device, rank, size)
    finally:
        nn.BatchNorm1d.forward = former
