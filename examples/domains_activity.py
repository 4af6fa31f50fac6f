"""Activities of new people with other devices: what is centred, and windows that arrive in time.

Lying and sitting differ in the direction of gravity, so in the mean of a window; walking and
running differ in its spectrum. Centred by row, the means are gone. Centred by domain (a person with
a device), only what is common to all windows of a person is gone. The statistics of a new person
come from windows without labels: from none (cold start, where no mean is known), from those that
have arrived so far (streaming), from all of them, or only from those of a person who is lying: then
the device and lying are taken for the same thing.

The signals are made up: three axes of an accelerometer at 50 Hz, windows of 2.56 s.

    python examples/domains_activity.py
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import psdnorm
from psdnorm import DomainBatchSampler, PSDNorm

SFREQ, LENGTH = 50, 128
ACTIVITIES = ("lying", "sitting", "walking", "running")
N_WINDOWS = 16  # of each activity and person
N_TRAIN, N_TEST = 8, 6  # people
ARRIVING = 8  # windows at a time
N_EPOCHS = 6


def record(activity: str, rng: np.random.Generator, stride_hz: float, height: float) -> np.ndarray:
    """Return windows of one person, (N_WINDOWS, 3, LENGTH), in g."""
    along = (0.95, 0.2, 0.2) if activity == "lying" else (0.2, 0.95, 0.2)
    x = np.tile(np.array(along)[:, None], (N_WINDOWS, 1, LENGTH))
    x += 0.04 * rng.standard_normal((N_WINDOWS, 3, 1))  # nobody lies still for long
    x += 0.02 * rng.standard_normal((N_WINDOWS, 3, LENGTH))
    if activity in ("walking", "running"):
        hz, g = (stride_hz, 0.2) if activity == "walking" else (1.6 * stride_hz, 0.35)
        phase = 2 * np.pi * (hz * np.arange(LENGTH) / SFREQ + rng.random((N_WINDOWS, 1, 1)))
        size = g * height * np.array([0.4, 1.0, 0.5])[:, None]
        x += size * (np.sin(phase) + 0.4 * np.sin(2 * phase))
    return x


def record_people(names: list[str], rng: np.random.Generator) -> tuple[Tensor, Tensor, list[str]]:
    """Return windows, (N, 3, LENGTH), their activities and whose they are."""
    x, labels, people = [], [], []
    for name in names:
        # the person, and the device: sensitivity, offset (g) and noise (g) of its axes
        own = rng.uniform(1.6, 2.2), rng.uniform(0.7, 1.3)
        gain = np.exp(rng.normal(0, 0.5, (3, 1)))
        offset, noise = rng.normal(0, 0.4, (3, 1)), rng.uniform(0, 0.1)
        for label, activity in enumerate(ACTIVITIES):
            windows = gain * record(activity, rng, *own) + offset
            x.append(windows + noise * rng.standard_normal(windows.shape))
            labels += [label] * N_WINDOWS
            people += [name] * N_WINDOWS
    return torch.from_numpy(np.concatenate(x)).float(), torch.tensor(labels), people


def network(kind: str) -> nn.Sequential:
    """Return a small CNN with norms of a kind; one is at the input, where gravity is."""

    def norm(channels: int, filter_size: int) -> nn.Module:
        if kind == "BatchNorm":
            return nn.BatchNorm1d(channels)
        return PSDNorm(
            *(channels, filter_size),
            momentum=0.05,
            affine=True,
            statistics="domain",
            center=kind.removeprefix("PSDNorm, centred by "),
            target_power="unit",
            eps_mode="relative",
        )

    return nn.Sequential(
        *(norm(3, 5), nn.Conv1d(3, 16, 9, padding=4), norm(16, 2), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(16, 16, 9, padding=4), norm(16, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, len(ACTIVITIES))),
    )


def train(model: nn.Module, x: Tensor, labels: Tensor, people: list[str]) -> None:
    sampler = DomainBatchSampler(people, domains_per_batch=4, windows_per_domain=8)
    loader = DataLoader(list(zip(x, labels, people, strict=True)), batch_sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(N_EPOCHS):
        for windows, targets, ids in loader:
            with psdnorm.domains(ids):
                loss = nn.functional.cross_entropy(model(windows), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, labels: Tensor, people: list[str], seen: str) -> float:
    """Return the accuracy in %, windows arriving a few at a time and in any order."""
    n_right = 0
    for name in dict.fromkeys(people):
        own = torch.tensor([p == name for p in people]).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(0))]
        chosen = {"all": own, "lying": own[labels[own] == ACTIVITIES.index("lying")]}
        batches = [x[chosen[seen]]] if seen in chosen else []
        with psdnorm.adapt(model, batches, batch_norms=True, streaming=seen == "so far"):
            for some in own.split(ARRIVING):
                n_right += int((model(x[some]).argmax(dim=1) == labels[some]).sum())
    return 100 * n_right / len(x)


def main() -> None:
    rng = np.random.default_rng(0)
    people = [f"subject {i}" for i in range(N_TRAIN + N_TEST)]
    source = record_people(people[:N_TRAIN], rng)
    target = record_people(people[N_TRAIN:], rng)
    print("Accuracy on new people in %, by the windows of theirs that statistics are from")
    seen = ("none", "so far", "all", "lying")
    print("  ".join([" " * 28, *seen]))
    for kind in ("BatchNorm", "PSDNorm, centred by row", "PSDNorm, centred by domain"):
        torch.manual_seed(0)
        model = network(kind)
        train(model, *source)
        scores = [f"{accuracy(model, *target, which):{len(which)}.0f}" for which in seen]
        print("  ".join([f"  {kind:<26}", *scores]))


if __name__ == "__main__":
    main()
