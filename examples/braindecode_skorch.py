"""A network of braindecode, its norms converted to PSDNorm by domain, trained with skorch.

``convert_norm`` swaps the BatchNorm of the first blocks. ``DomainBatchSampler`` makes batches of
several recordings with several windows each, and a small wrapper names the recordings to the norms:
skorch passes a dictionary of inputs on to ``forward``. For a new recording ``adapt`` sets the
statistics of all norms from its windows, without labels.

The windows are made up: rhythms in coloured noise, two channels, 3 s at 100 Hz. The new
recordings are from amplifiers of another make.

    pip install braindecode skorch
    python examples/braindecode_skorch.py
"""

from contextlib import nullcontext

import numpy as np
import torch
from braindecode.models import USleep
from skorch import NeuralNetClassifier
from torch import Tensor, nn

import psdnorm
from psdnorm import DomainBatchSampler, convert_norm

SFREQ, LENGTH = 100, 300
RHYTHMS_HZ = {"delta": 2, "theta": 6, "alpha": 10, "beta": 18}
N_WINDOWS = 16  # of each rhythm and recording
N_TRAIN, N_TEST = 8, 4  # recordings


class ByRecording(nn.Module):
    """A model and the recordings of its inputs: integers, as skorch makes tensors of everything."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, recording: Tensor | None = None) -> Tensor:
        with nullcontext() if recording is None else psdnorm.domains(recording):
            return self.model(x)


def make_recording(
    gain: float, tilt_db: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return windows of all rhythms through one amplifier, (N, 2, LENGTH), and their rhythms."""
    frequency = np.fft.rfftfreq(LENGTH, 1 / SFREQ)
    labels = np.repeat(np.arange(len(RHYTHMS_HZ)), N_WINDOWS)
    hz = np.array(list(RHYTHMS_HZ.values()))[labels, None]
    colour = 1 / (1 + frequency) + 0.5 * np.exp(-(((frequency - hz) / 1.5) ** 2))  # (N, F)
    # of the amplifier, about what is usual for its make; dB for each octave
    gain, tilt_db = gain * np.exp(rng.normal(0, 0.3)), tilt_db + rng.normal(0, 0.5)
    amplifier = gain * 10 ** (tilt_db / 20 * np.log2(frequency.clip(min=1) / 10))
    noise = rng.standard_normal((len(labels), 2, LENGTH))
    x = np.fft.irfft(np.fft.rfft(noise) * (colour * amplifier)[:, None], n=LENGTH)
    return x.astype(np.float32), labels


def fit(model: nn.Module, x: np.ndarray, y: np.ndarray, ids: np.ndarray) -> NeuralNetClassifier:
    net = NeuralNetClassifier(
        ByRecording(model),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.01,
        max_epochs=12,
        iterator_train__batch_sampler=DomainBatchSampler(ids, 4, 8),
        iterator_train__batch_size=1,  # the batch sampler decides
        train_split=None,  # its indices are those of all windows
        verbose=0,
    )
    return net.fit({"x": x, "recording": ids}, y)


def accuracy(net: NeuralNetClassifier, recordings, adapted: bool) -> float:
    """Return the accuracy in %; if ``adapted``, norms have the statistics of each recording."""
    net.module_.eval()
    scores = []
    for x, y in recordings:
        batches = [torch.from_numpy(x)]
        with psdnorm.adapt(net.module_, batches, batch_norms=True) if adapted else nullcontext():
            scores.append(net.score({"x": x}, y))
    return 100 * float(np.mean(scores))


def main() -> None:
    rng = np.random.default_rng(0)
    source = [make_recording(1, 0, rng) for _ in range(N_TRAIN)]
    target = [make_recording(8, 3, rng) for _ in range(N_TEST)]
    x, y = (np.concatenate(parts) for parts in zip(*source, strict=True))
    ids = np.repeat(np.arange(N_TRAIN), len(RHYTHMS_HZ) * N_WINDOWS)
    nets = {}
    for norm in ("BatchNorm", "PSDNorm by domain"):
        torch.manual_seed(0)
        model = USleep(n_chans=2, n_outputs=4, n_times=LENGTH, sfreq=SFREQ, depth=2)
        if norm != "BatchNorm":
            convert_norm(
                model,
                layers=2,
                example_input=torch.from_numpy(x[:4]),
                fold=False,  # it is not trained yet
                momentum=0.05,
                statistics="domain",
                target_power="unit",
                eps_mode="relative",
            )
        nets[norm] = fit(model, x, y, ids)
    print("braindecode's U-Sleep, accuracy on recordings of other amplifiers (chance: 25 %)")
    for name, norm, adapted in (
        ("BatchNorm", "BatchNorm", False),
        ("BatchNorm, adapted", "BatchNorm", True),
        ("PSDNorm by domain, adapted", "PSDNorm by domain", True),
    ):
        print(f"  {name:<28} {accuracy(nets[norm], target, adapted):3.0f} %")


if __name__ == "__main__":
    main()
