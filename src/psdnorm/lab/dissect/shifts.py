"""The same simulated nights with one kind of shift at a time, at three strengths.

The unshifted night is of the reference population, at a usual rate. A shifted one has the same
subject and seed, with one knob turned: since every part of a night has its own branch of the seed,
all other parts are the same, sample by sample.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.signal

from psdnorm.errors import ArgumentError
from psdnorm.lab.simulate import CohortProfile, SimulatedNight, simulate_night

# not the name of a cohort: no network was trained on these subjects
NAME = "dissection"
# 50 Hz hum cannot be recorded at 100 Hz
UNSHIFTED_PROFILE = CohortProfile(NAME, sfreq=200.0)
_MONTAGE = ("C3-A2", "C4-A1")


@dataclass(frozen=True)
class ShiftKind:
    """A kind of shift."""

    name: str  # on the command line
    title: str
    unit: str
    strengths: tuple[float, float, float]  # mild, marked, severe
    neutral: float  # the strength that changes nothing
    what: str  # a sentence

    def words(self, strength: float) -> str:
        """Return a strength with its unit, as in a sentence.

        >>> KINDS["gain"].words(-6), KINDS["age"].words(15), KINDS["montage"].words(50)
        ('−6 dB', '+15 years', '50 %')
        """
        return f"{self.number(strength)} {self.unit.partition(' of ')[0]}"

    def number(self, strength: float) -> str:
        """Return a strength without its unit; with a sign if it is a change.

        >>> KINDS["gain"].number(-6), KINDS["age"].number(15), KINDS["rate"].number(80)
        ('−6', '+15', '80')
        """
        sign = "+" if self.name in ("age", "scorer") and strength > 0 else ""
        return f"{sign}{strength:g}".replace("-", "−")


KINDS: dict[str, ShiftKind] = {
    kind.name: kind
    for kind in (
        ShiftKind("gain", "Gain", "dB", (-3.0, -6.0, -12.0), 0.0,
             "Both channels are multiplied by one factor."),
        ShiftKind("response", "Amplifier response", "dB per octave", (-0.5, -1.0, -2.0), 0.0,
             "The amplifier's response falls with frequency, around 10 Hz, minimum phase."),
        ShiftKind("line", "Line noise", "µV of hum", (5.0, 20.0, 80.0), 0.0,
             "Mains hum at 50 Hz is added, of this median amplitude over subjects."),
        ShiftKind("electrode", "Electrode noise", "µV RMS", (2.0, 5.0, 10.0), 0.0,
             "Each channel gets independent noise, 1/f and white, of this median over subjects."),
        ShiftKind("montage", "Montage", "% of the way", (25.0, 50.0, 100.0), 0.0,
             "Electrodes move from Fpz-Cz and Pz-Oz towards C3-A2 and C4-A1."),
        ShiftKind("age", "Age", "years", (15.0, 30.0, 45.0), 0.0,
             "The same sleepers are older than 29 by this much; their sleep changes, too."),
        ShiftKind("scorer", "Scorer bias", "epochs", (0.5, 1.0, 2.0), 0.0,
             "The scorer draws the boundary from N1 to N2 later; no sample changes."),
        ShiftKind("rate", "Sampling rate", "Hz", (128.0, 100.0, 80.0), UNSHIFTED_PROFILE.sfreq,
             "The same night is recorded at a lower rate, after an anti-aliasing filter."),
    )
}  # fmt: skip
"""Every kind of shift, by name."""


@dataclass(frozen=True)
class ShiftCondition:
    """A kind of shift at one strength."""

    kind: str  # in KINDS, or that of UNSHIFTED
    strength: float  # in the kind's unit

    @property
    def name(self) -> str:
        """Name of its folder.

        >>> ShiftCondition("gain", -6).name, UNSHIFTED.name
        ('gain_-6', 'unshifted_0')
        """
        return f"{self.kind}_{self.strength:g}"


UNSHIFTED = ShiftCondition("unshifted", 0.0)


def conditions_of(kinds: Iterable[str] = ()) -> list[ShiftCondition]:
    """Return the unshifted condition, then every strength of some kinds, mild to severe."""
    wanted = list(dict.fromkeys(kinds)) or list(KINDS)
    for name in wanted:
        if name not in KINDS:
            raise ArgumentError(f"kind is {name!r}, expected one of {', '.join(KINDS)}")
    shifted = [ShiftCondition(name, each) for name in wanted for each in KINDS[name].strengths]
    return [UNSHIFTED, *shifted]


def simulate_condition(
    condition: ShiftCondition, subject: int | str, seed: int = 0, *, hours: float = 8.0
) -> SimulatedNight:
    """Simulate one subject's night under one condition.

    >>> plain = simulate_condition(UNSHIFTED, 0, hours=0.1)
    >>> halved = simulate_condition(ShiftCondition("gain", 20 * np.log10(0.5)), 0, hours=0.1)
    >>> bool(np.allclose(halved.signal, plain.signal / 2))
    True
    """
    if condition == UNSHIFTED or condition.strength == KINDS[condition.kind].neutral:
        return simulate_night(UNSHIFTED_PROFILE, subject, 0, seed, hours=hours, shift=1.0)
    if condition.kind == "rate":
        return _sampled(simulate_condition(UNSHIFTED, subject, seed, hours=hours), condition)
    if condition.kind == "montage":
        # only the electrodes differ from the reference, so that the shift scales nothing else
        moved = replace(UNSHIFTED_PROFILE, channels=_MONTAGE)
        shift = condition.strength / 100
        return simulate_night(moved, subject, 0, seed, hours=hours, shift=shift)
    knob = _KNOBS[condition.kind]
    # zero in the reference, except the age, to which the strength is added
    turned: Any = {knob: getattr(UNSHIFTED_PROFILE, knob) + condition.strength}
    profile = replace(UNSHIFTED_PROFILE, **turned)
    return simulate_night(profile, subject, 0, seed, hours=hours, shift=1.0)


_KNOBS = {
    "gain": "gain_db",
    "response": "tilt_db_per_octave",
    "line": "line_uv",
    "electrode": "electrode_uv",
    "age": "age_mean_y",
    "scorer": "n1_bias",
}


def _sampled(night: SimulatedNight, condition: ShiftCondition) -> SimulatedNight:
    """Resample a night: the simulator would draw another background at another rate."""
    ratio = Fraction(condition.strength) / Fraction(night.sfreq)
    signal = scipy.signal.resample_poly(night.signal, ratio.numerator, ratio.denominator, axis=1)
    return replace(night, signal=signal.astype(np.float32), sfreq=condition.strength)
