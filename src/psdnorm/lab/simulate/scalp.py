"""What each derivation sees of the brain's and the body's sources."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from psdnorm.errors import ArgumentError


@dataclass(frozen=True)
class Derivation:
    """Weights of the sources in one derivation; 1 is what Fpz-Cz or Pz-Oz see of their own.

    Parameters
    ----------
    anterior, posterior, left, right : float
        The four sources of the background.
    slow, spindle, k_complex, vertex, sawtooth : float
        What sleep makes.
    eye, muscle, movement, heart : float
        What is not brain.
    """

    anterior: float = 0.0
    posterior: float = 0.0
    left: float = 0.0
    right: float = 0.0
    slow: float = 0.0
    spindle: float = 0.0
    k_complex: float = 0.0
    vertex: float = 0.0
    sawtooth: float = 0.0
    eye: float = 0.0
    muscle: float = 0.0
    movement: float = 1.0
    heart: float = 0.0


BACKGROUND = ("anterior", "posterior", "left", "right")
_LEFT = Derivation(
    0.75, 0.55, 0.5, 0.1, slow=0.9, spindle=1.1, k_complex=1.0, vertex=1.3, sawtooth=1.3,
    eye=0.25, muscle=0.7, heart=1.0,
)  # fmt: skip
_RIGHT = Derivation(
    0.75, 0.55, 0.1, 0.5, slow=0.9, spindle=1.05, k_complex=1.0, vertex=1.3, sawtooth=1.3,
    # eyes and heart are seen from the other side
    eye=-0.2, muscle=0.7, heart=-0.6,
)  # fmt: skip
DERIVATIONS = {
    "Fpz-Cz": Derivation(
        anterior=1.0, slow=1.0, spindle=0.8, k_complex=1.0, vertex=0.8, sawtooth=0.8, eye=1.0,
        muscle=1.0,
    ),
    "Pz-Oz": Derivation(
        posterior=1.0, slow=0.65, spindle=0.7, k_complex=0.45, vertex=0.4, sawtooth=0.4, eye=0.1,
        muscle=0.9, movement=0.6,
    ),
    "C3-A2": _LEFT,
    "C4-A1": _RIGHT,
    "Fp1+Fp2-Cz": Derivation(
        anterior=1.05, left=0.15, right=0.15, slow=1.05, spindle=0.85, k_complex=1.05, vertex=0.8,
        sawtooth=0.8, eye=1.2, muscle=0.8,
    ),
    "Pz-Oz (LER)": Derivation(
        anterior=0.05, posterior=0.95, slow=0.6, spindle=0.75, k_complex=0.4, vertex=0.35,
        sawtooth=0.35, eye=0.08, muscle=0.7, movement=0.6, heart=0.05,
    ),
    "F3-A2": Derivation(
        0.95, 0.25, 0.45, 0.1, slow=1.05, spindle=0.95, k_complex=1.1, vertex=1.0, sawtooth=1.0,
        eye=0.6, muscle=0.9, heart=1.0,
    ),
    "F4-A1": Derivation(
        0.95, 0.25, 0.1, 0.45, slow=1.05, spindle=0.9, k_complex=1.1, vertex=1.0, sawtooth=1.0,
        eye=-0.5, muscle=0.9, heart=-0.6,
    ),
    "O1-A2": Derivation(
        0.2, 0.95, 0.4, 0.05, slow=0.6, spindle=0.6, k_complex=0.5, vertex=0.4, sawtooth=0.4,
        eye=0.1, muscle=0.8, heart=1.0,
    ),
    "O2-A1": Derivation(
        0.2, 0.95, 0.05, 0.4, slow=0.6, spindle=0.55, k_complex=0.5, vertex=0.4, sawtooth=0.4,
        eye=-0.08, muscle=0.8, heart=-0.6,
    ),
    "Cz-A1": Derivation(
        0.8, 0.5, 0.2, 0.3, slow=1.0, spindle=1.2, k_complex=1.2, vertex=1.5, sawtooth=1.4,
        eye=-0.15, muscle=0.6, heart=-0.6,
    ),
}  # fmt: skip
REFERENCE = ("Fpz-Cz", "Pz-Oz")


def weights(channels: tuple[str, str], shift: float) -> dict[str, NDArray]:
    """Weight of every source in two derivations, blended from the reference montage.

    Parameters
    ----------
    channels : tuple of str
        Names from `DERIVATIONS`.
    shift : float
        0 gives Fpz-Cz and Pz-Oz, 1 and more the derivations asked for.

    Returns
    -------
    dict of str to ndarray, (2,)
    """
    unknown = [name for name in channels if name not in DERIVATIONS]
    if unknown:
        known = ", ".join(DERIVATIONS)
        raise ArgumentError(f"channel {unknown[0]!r} is no known derivation, expected {known}")
    blend = min(shift, 1.0)
    pairs = [(DERIVATIONS[a], DERIVATIONS[b]) for a, b in zip(REFERENCE, channels, strict=True)]
    return {
        f.name: np.array(
            [(1 - blend) * getattr(a, f.name) + blend * getattr(b, f.name) for a, b in pairs]
        )
        for f in fields(Derivation)
    }
