"""Four clinics record the same kind of sleep; three norms look at it.

Draws the power spectral densities of simulated EEG from clinics with other amplifiers, before and
after BatchNorm, InstanceNorm and PSDNorm, and prints how far the clinics still are from each other.

    python examples/before_and_after.py --out demo
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from psdnorm import PSDNorm
from psdnorm.ops import reference

SFREQ = 100
N_BINS_SHOWN = 200
# gain and cut-off (Hz) of each clinic's amplifier
CLINICS = {
    "clinic A": (1.0, 45.0),
    "clinic B": (3.0, 25.0),
    "clinic C": (0.4, 90.0),
    "clinic D": (1.8, 14.0),
}
# distinguishable in print and to the colour-blind (Okabe and Ito)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def simulate_clinic(gain: float, cutoff_hz: float, seed: int) -> Tensor:
    """Return nights of one clinic: 1/f power and a 10 Hz rhythm, (N, 1, T)."""
    generator = torch.Generator().manual_seed(seed)
    n_nights, length = 8, 30 * SFREQ
    frequency = torch.fft.rfftfreq(length, 1 / SFREQ)
    colour = (1 + frequency) ** -0.5 + 0.5 * torch.exp(-(((frequency - 10) / 1.5) ** 2))
    amplifier = gain / torch.sqrt(1 + (frequency / cutoff_hz) ** 2)
    noise = torch.randn(n_nights, 1, length, generator=generator)
    return torch.fft.irfft(torch.fft.rfft(noise) * colour * amplifier, n=length)


def mean_psd_db(x: Tensor) -> Tensor:
    """Average the PSD over nights, in decibels: (N, 1, T) → (F,)."""
    psd = reference.welch_psd(reference.center(x), N_BINS_SHOWN, "hann")
    return 10 * psd.mean(dim=(0, 1)).log10()


def normalize_all(x: Tensor) -> dict[str, Tensor]:
    """Apply each norm, in training mode, to the nights of all clinics together, (N, 1, T)."""
    norms = {
        "BatchNorm": nn.BatchNorm1d(1, affine=False),
        "InstanceNorm": nn.InstanceNorm1d(1),
        "PSDNorm, f = 5": PSDNorm(1, filter_size=5),
        "PSDNorm, f = 17": PSDNorm(1, filter_size=17),
    }
    return {"as recorded": x, **{name: norm(x) for name, norm in norms.items()}}


def distance_between_clinics_db(curves: Tensor) -> float:
    """Root mean square deviation of the clinics from their mean, over frequencies, in dB."""
    return (curves - curves.mean(dim=0)).square().mean().sqrt().item()


def draw(spectra: dict[str, Tensor], path: Path) -> None:
    """Draw one panel per norm; ``spectra`` maps a norm to curves (clinics, F)."""
    figure, axes = plt.subplots(1, len(spectra), figsize=(14, 3.2), sharex=True, sharey=True)
    frequency_hz = torch.arange(N_BINS_SHOWN // 2 + 1) * SFREQ / N_BINS_SHOWN
    for axis, (name, curves) in zip(axes, spectra.items(), strict=True):
        centred = curves - curves.mean()
        for clinic, colour, curve in zip(CLINICS, COLOURS, centred, strict=True):
            axis.plot(frequency_hz, curve, color=colour, label=clinic, linewidth=1.2)
        axis.set_title(f"{name}\n{distance_between_clinics_db(curves):.1f} dB apart", fontsize=10)
        axis.set_xlabel("frequency (Hz)")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("power (dB)")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture")
    out = parser.parse_args(arguments).out
    if out.exists() and not out.is_dir():
        parser.error(f"--out {out} is a file, expected a folder")
    out.mkdir(parents=True, exist_ok=True)
    nights = [simulate_clinic(*a, seed=seed) for seed, a in enumerate(CLINICS.values())]
    sizes = [len(n) for n in nights]
    spectra = {
        name: torch.stack([mean_psd_db(part) for part in y.split(sizes)])
        for name, y in normalize_all(torch.cat(nights)).items()
    }
    print("Simulated EEG of four clinics: distance between their spectra (dB)")
    for name, curves in spectra.items():
        print(f"  {name:<16} {distance_between_clinics_db(curves):5.1f}")
    path = out / "before_and_after.png"
    draw(spectra, path)
    print(f"Picture: {path}")


if __name__ == "__main__":
    main()
