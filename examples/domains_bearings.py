"""Bearing faults, learned from one sensor and recognized with another: by row or by domain.

Each kind of fault makes another part of the machine ring, so the spectrum of a window shows the
fault. It also shows the response of the sensor. A window of 21 ms holds a single fault: PSDNorm by
row removes both, and nothing is left to recognize. By domain it measures a sensor at one speed over
windows of all faults, and removes the sensor alone. BatchNorm keeps both, unless it is adapted.

The signals are made up. Three small networks are trained on the drive-end sensor and tested on the
fan-end sensor. Those that are adapted have seen its windows, without their labels.

    python examples/domains_bearings.py
    python examples/domains_bearings.py --windows-per-domain 1    # by domain is then by row
"""

import argparse
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import psdnorm
from psdnorm import DomainBatchSampler, PSDNorm

SFREQ, LENGTH = 12_000, 256
RPM = (1730, 1750, 1772, 1797)
RINGS_AT_HZ = {"healthy": None, "inner race": 3600, "ball": 2600, "outer race": 1700}
# gain, and the resonance of the sensor itself: dB, Hz
SENSORS = {"drive end": (1.0, 6, 3500), "fan end": (0.3, 12, 1200)}
N_WINDOWS = 16  # of each fault, speed and sensor
N_STEPS = 128


def record(fault: str, rpm: int, sensor: str, rng: np.random.Generator) -> np.ndarray:
    """Return windows of one recording, (N_WINDOWS, 1, LENGTH)."""
    x = rng.standard_normal((N_WINDOWS, LENGTH))
    if fault != "healthy":
        time = np.arange(LENGTH) / SFREQ
        ringing = np.exp(-2500 * time) * np.sin(2 * np.pi * RINGS_AT_HZ[fault] * time)
        rolling = 0.8 * rpm / RPM[0] * rng.standard_normal((N_WINDOWS, LENGTH))
        x += np.fft.irfft(np.fft.rfft(rolling) * np.fft.rfft(ringing), n=LENGTH)
    gain, peak_db, peak_hz = SENSORS[sensor]
    frequency = np.fft.rfftfreq(LENGTH, 1 / SFREQ)
    response_db = peak_db * np.exp(-(((frequency - peak_hz) / 900) ** 2))
    x = np.fft.irfft(np.fft.rfft(x) * gain * 10 ** (response_db / 20), n=LENGTH)
    return x[:, None]


def record_all(sensor: str, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return windows of all faults and speeds, (N, 1, LENGTH), their faults, their speeds."""
    x, faults, speeds = [], [], []
    for rpm in RPM:
        for label, fault in enumerate(RINGS_AT_HZ):
            x.append(record(fault, rpm, sensor, rng))
            faults += [label] * N_WINDOWS
            speeds += [rpm] * N_WINDOWS
    return torch.from_numpy(np.concatenate(x)).float(), torch.tensor(faults), torch.tensor(speeds)


def network(norm: str) -> nn.Sequential:
    """Return a small CNN with a norm after each convolution."""
    norms = {
        "BatchNorm": lambda channels, f: nn.BatchNorm1d(channels),
        "PSDNorm by row": lambda channels, f: PSDNorm(channels, f, momentum=0.05, affine=True),
        "PSDNorm by domain": lambda channels, f: PSDNorm(
            *(channels, f),
            momentum=0.05,
            affine=True,
            statistics="domain",
            target_power="unit",
            eps_mode="relative",
        ),
    }
    return nn.Sequential(
        *(nn.Conv1d(1, 8, 15, padding=7), norms[norm](8, 17), nn.ReLU()),
        *(nn.Conv1d(8, 16, 15, padding=7), norms[norm](16, 8), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, len(RINGS_AT_HZ))),
    )


def train(model: nn.Module, x: Tensor, faults: Tensor, domains: Tensor, n_windows: int) -> None:
    """Train on batches of four domains with ``n_windows`` each."""
    sampler = DomainBatchSampler(domains, domains_per_batch=4, windows_per_domain=n_windows)
    loader = DataLoader(TensorDataset(x, faults, domains), batch_sampler=sampler)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(N_STEPS // len(sampler)):
        for windows, labels, ids in loader:
            with psdnorm.domains(ids):  # other norms do not look at them
                loss = nn.functional.cross_entropy(model(windows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, faults: Tensor, domains: Tensor, adapted: bool) -> float:
    """Return the accuracy in %; if ``adapted``, norms have the statistics of each domain."""
    n_right = 0
    for domain in domains.unique():
        own = domains == domain
        with psdnorm.adapt(model, [x[own]], batch_norms=True) if adapted else nullcontext():
            n_right += int((model(x[own]).argmax(dim=1) == faults[own]).sum())
    return 100 * n_right / len(x)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--windows-per-domain", type=int, default=8, metavar="N", help="8 in a batch"
    )
    n_windows = parser.parse_args(arguments).windows_per_domain
    rng = np.random.default_rng(0)
    source, target = record_all("drive end", rng), record_all("fan end", rng)
    models = {}
    for norm in ("BatchNorm", "PSDNorm by row", "PSDNorm by domain"):
        torch.manual_seed(0)
        models[norm] = network(norm)
        train(models[norm], *source, n_windows)
    print("Learned from the drive-end sensor, accuracy with the fan-end sensor (chance: 25 %)")
    for name, norm, adapted in (
        ("BatchNorm", "BatchNorm", False),
        ("PSDNorm by row", "PSDNorm by row", False),
        ("BatchNorm, adapted", "BatchNorm", True),
        ("PSDNorm by domain, adapted", "PSDNorm by domain", True),
    ):
        print(f"  {name:<28} {accuracy(models[norm], *target, adapted):3.0f} %")


if __name__ == "__main__":
    main()
