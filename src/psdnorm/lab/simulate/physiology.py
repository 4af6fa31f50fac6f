"""Who sleeps: the traits of a subject, and what age does to them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.fitted import BANDS_HZ, N_BANDS, Fitted
from psdnorm.lab.simulate.profiles import REFERENCE_AGE_Y, CohortProfile

# Effects of age: directions after the literature, sizes set by hand, nothing from our files.
# Amplitudes and slow waves fall from childhood (Feinberg and Campbell 2010, Carrier et al. 2001),
# spindles quicken, then thin out (Purcell et al. 2017), the alpha peak rises until twenty and slows
# after sixty (Klimesch 1999), deep sleep gives way to light sleep and wake (Ohayon et al. 2004).
AGES_Y = (5.0, 10.0, 18.0, REFERENCE_AGE_Y, 45.0, 60.0, 75.0, 90.0)
AGE_EFFECTS = {
    "delta_db": (7.0, 6.0, 3.0, 0.0, -1.8, -3.0, -4.0, -4.5),
    "theta_db": (7.0, 5.5, 2.5, 0.0, -1.0, -1.7, -2.0, -2.0),
    "alpha_db": (4.0, 4.0, 2.0, 0.0, -0.7, -1.5, -2.1, -2.3),
    "beta_db": (3.0, 3.0, 1.5, 0.0, -0.3, -0.5, -0.6, -0.6),
    "gamma_db": (3.0, 2.5, 1.0, 0.0, 0.0, 0.3, 0.5, 0.5),
    "alpha_hz": (7.8, 9.0, 9.8, 10.1, 10.0, 9.6, 9.1, 8.7),
    "spindle_hz": (11.8, 12.4, 13.0, 13.2, 13.3, 13.4, 13.5, 13.5),
    "spindle_rate": (0.8, 1.0, 1.25, 1.0, 0.85, 0.7, 0.55, 0.45),
    "spindle_gain": (1.2, 1.3, 1.2, 1.0, 0.9, 0.75, 0.65, 0.6),
    "slow_gain": (2.0, 1.9, 1.4, 1.0, 0.85, 0.72, 0.6, 0.55),
    "wake_log_odds": (-0.3, -0.3, -0.2, 0.0, 0.3, 0.6, 0.9, 1.1),
    "n1_log_odds": (-0.4, -0.3, -0.1, 0.0, 0.15, 0.3, 0.45, 0.5),
    "n3_log_odds": (1.0, 0.9, 0.5, 0.0, -0.4, -0.8, -1.2, -1.4),
    "rem_log_odds": (0.1, 0.1, 0.05, 0.0, -0.05, -0.1, -0.2, -0.3),
}


def age_effects(age_y: float) -> dict[str, float]:
    """Effects of an age, interpolated; neutral at the age of the reference population.

    Parameters
    ----------
    age_y : float
        Age in years.

    Returns
    -------
    dict of str to float
        The names of `AGE_EFFECTS`: dB, Hz, factors and log-odds.
    """
    return {name: float(np.interp(age_y, AGES_Y, values)) for name, values in AGE_EFFECTS.items()}


@dataclass(frozen=True)
class Subject:
    """Traits that stay the same over a subject's nights.

    Attributes
    ----------
    age_y : float
        Age in years.
    sex : str
        ``"F"`` or ``"M"``.
    deviation_db : ndarray, (10,)
        Band powers beside the reference population's, age included.
    tendency : ndarray, (5,)
        Log-odds of entering each stage beside the reference population's.
    alpha_hz, spindle_hz : float
        Peak frequencies.
    alpha_height : float
        Factor on the height of the alpha peak over the background.
    rates, gains : dict of str to float
        Factors on how often events come, and on how large they are, by kind.
    stray : dict of str to ndarray, (6,)
        Events a minute in each state that do not mark it, by kind.
    """

    age_y: float
    sex: str
    deviation_db: NDArray
    tendency: NDArray
    alpha_hz: float
    spindle_hz: float
    alpha_height: float
    rates: dict[str, float]
    gains: dict[str, float]
    stray: dict[str, NDArray] = field(default_factory=dict)


def draw_subject(profile: CohortProfile, table: Fitted, rng: np.random.Generator) -> Subject:
    """Draw a subject of a cohort.

    Parameters
    ----------
    profile : CohortProfile
        Already scaled by the shift.
    table : Fitted
        The reference population.
    rng : numpy.random.Generator
        The subject's own stream.

    Returns
    -------
    Subject
    """
    age_y = float(np.clip(profile.age_mean_y + profile.age_sd_y * rng.standard_normal(), 4, 95))
    sex = "F" if rng.random() < profile.female_share else "M"
    effect = age_effects(age_y)
    bands_db = [effect[f"{band}_db"] for band in BANDS_HZ]
    own = table.subject_factor @ rng.standard_normal(2 * N_BANDS)
    of_age = [effect["wake_log_odds"], effect["n1_log_odds"], 0, effect["n3_log_odds"]]
    tendency = np.array([*of_age, effect["rem_log_odds"]])
    tendency[0] += profile.wake_log_odds
    tendency += table.tendency_mean + table.tendency_sd * rng.standard_normal(5)
    spread = dict(zip(("alpha", "spindle", "k_complex"), rng.standard_normal(3), strict=True))
    hertz = rng.standard_normal(2)
    artefacts = float(np.exp(profile.artefact_log_rate + 0.3 * rng.standard_normal()))
    return Subject(
        age_y=age_y,
        sex=sex,
        deviation_db=own + np.tile(bands_db, 2),
        tendency=tendency,
        alpha_hz=effect["alpha_hz"] + 0.5 * hertz[0],
        spindle_hz=effect["spindle_hz"] + 0.35 * hertz[1],
        alpha_height=float(np.exp(0.4 * spread["alpha"])),
        rates={
            "spindle": effect["spindle_rate"] * float(np.exp(0.3 * spread["spindle"])),
            "k_complex": float(np.exp(0.3 * spread["k_complex"])),
            "muscle": artefacts,
            "movement": artefacts,
        },
        gains={
            "spindle": effect["spindle_gain"],
            "slow_wave": effect["slow_gain"],
            "k_complex": effect["slow_gain"],
            "vertex": effect["slow_gain"],
        },
    )
