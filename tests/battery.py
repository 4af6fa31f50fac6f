"""Every model with every norm, small and full size, and how they are trained in tests."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from psdnorm.models import CNNTransformer, USleep
from psdnorm.models.norms import NORMS


class RootMeanSquare(nn.Module):
    """A norm of the user's own, with a scale to learn."""

    def __init__(self, num_features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features, 1))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


MODELS = (USleep, CNNTransformer)
EVERY_NORM = (*NORMS, RootMeanSquare)
# 5 epochs of 60 samples: U-Sleep halves 300, 150 and 75, which is odd; one block with BatchNorm
# follows the three with the norm in CNNTransformer
SMALL = {
    USleep: {"n_times": 60, "depth": 3},
    CNNTransformer: {
        "n_times": 60,
        "channels": (8, 8, 12, 16),
        "strides": (3, 5, 1, 1),
        "n_layers": 1,
        "n_heads": 2,
        "n_epochs": 5,
    },
}
WITHOUT_DROPOUT = {USleep: {}, CNNTransformer: {"dropout": 0.0}}
FULL = {USleep: {}, CNNTransformer: {}}
FULL_LR = {USleep: 5e-3, CNNTransformer: 3e-4}
FULL_NIGHTS = {"n": 2, "n_epochs": 35, "n_times": 3000}


def label(value):
    return getattr(value, "__name__", None)


every_model = pytest.mark.parametrize("architecture", MODELS, ids=label)
every_norm = pytest.mark.parametrize("norm", EVERY_NORM, ids=label)


def traced_pairs(*fast):
    """Parametrize by every model and norm, of which those that are not named are slow.

    Compilers see a norm in one model as in the other, and BatchNorm stands in all of them.
    """
    return pytest.mark.parametrize(
        ("architecture", "norm"),
        [
            pytest.param(model, norm, marks=[] if (model, norm) in fast else pytest.mark.slow)
            for model in MODELS
            for norm in EVERY_NORM
        ],
        ids=label,
    )


def build(architecture, norm, sizes=SMALL, **options):
    torch.manual_seed(0)
    return architecture(**sizes[architecture] | {"norm": norm} | options)


def nights(n=4, n_epochs=5, n_times=60, n_chans=2, seed=0):
    """Coloured noise around a baseline, at another scale in every channel: (N, S, C, T)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n_epochs, n_chans, n_times, generator=generator)
    return (2 * x + x.roll(1, -1) + 1) * torch.arange(1.0, n_chans + 1).unsqueeze(-1)


def stages(x, seed=1):
    return torch.randint(0, 5, x.shape[:2], generator=torch.Generator().manual_seed(seed))


def train(model, optimizer, steps):
    """Learn from one new batch per step; dropout depends on the step alone. Return the losses."""
    losses = []
    for step in steps:
        torch.manual_seed(step)
        x = nights(seed=step)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), stages(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def adam(model, lr=1e-2):
    return torch.optim.Adam(model.parameters(), lr=lr)


@functools.cache
def once_trained(architecture, norm):
    model = build(architecture, norm)
    train(model, adam(model), range(3))
    return model


def trained(architecture, norm):
    """Return a small model whose weights and statistics have left their first values."""
    model = copy.deepcopy(once_trained(architecture, norm))
    model.zero_grad()
    return model


def assert_identical(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def losses_on_one_batch(model, x, lr, in_bfloat16=False):
    """Yield the loss of every step of learning the stages of one batch, which are random."""
    optimizer, expected = adam(model, lr), stages(x)
    while True:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            logits = model(x)
        loss = cross_entropy(logits.float(), expected)
        yield loss.item()
        loss.backward()
        optimizer.step()


def seeded(model, x):
    torch.manual_seed(0)
    return model(x)
