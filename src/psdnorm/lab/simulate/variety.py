"""What differs between subjects beyond what a cohort's other knobs say: nothing unless asked for.

A network that learns from simulated nights alone takes hold of whatever is always the same in
them, and templates and montages are. Under these knobs no single event, weight or level is.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.events import ARTEFACTS, KINDS
from psdnorm.lab.simulate.fitted import N_BANDS, STATES
from psdnorm.lab.simulate.physiology import Subject
from psdnorm.lab.simulate.profiles import CohortProfile


@dataclass(frozen=True)
class Variety:
    """One subject's departures from the templates.

    Attributes
    ----------
    rates, gains : dict of str to float
        Factors on how often each kind of event comes, and on how large it is.
    state_db : ndarray, (6, 10)
        Added to the spectrum of each state.
    montage : ndarray, (sources, 2)
        Factors on what the two derivations see of each source.
    stray : dict of str to ndarray, (6,)
        Events a minute in each state that do not mark it.
    """

    rates: dict[str, float]
    gains: dict[str, float]
    state_db: NDArray
    montage: NDArray
    stray: dict[str, NDArray]

    def of(self, who: Subject) -> Subject:
        """Return the subject with these events."""
        rates = {kind: who.rates.get(kind, 1.0) * self.rates[kind] for kind in KINDS}
        gains = {kind: who.gains.get(kind, 1.0) * self.gains[kind] for kind in KINDS}
        return replace(who, rates=rates, gains=gains, stray=self.stray)

    def seen(self, weights: dict[str, NDArray]) -> dict[str, NDArray]:
        """Return a montage's weights, each (2,), with these factors."""
        factors = zip(weights.items(), self.montage, strict=True)
        return {source: weight * factor for (source, weight), factor in factors}


def draw_variety(
    profile: CohortProfile, n_sources: int, rng: np.random.Generator
) -> Variety | None:
    """Draw a subject's departures; None for a cohort that has none.

    Parameters
    ----------
    profile : CohortProfile
        Already scaled by the shift.
    n_sources : int
        How many sources a montage has.
    rng : numpy.random.Generator
        The subject's own stream.
    """
    knobs = (profile.event_rate_sd, profile.event_gain_sd, profile.state_sd_db, profile.montage_sd)
    if not any((*knobs, profile.event_leak)):
        return None
    often, large = rng.standard_normal((2, len(KINDS)))
    state_db = profile.state_sd_db * rng.standard_normal((len(STATES), 2 * N_BANDS))
    return Variety(
        dict(zip(KINDS, np.exp(profile.event_rate_sd * often).tolist(), strict=True)),
        dict(zip(KINDS, np.exp(profile.event_gain_sd * large).tolist(), strict=True)),
        state_db,
        np.exp(profile.montage_sd * rng.standard_normal((n_sources, 2))),
        _draw_stray(profile.event_leak, rng.spawn(1)[0]),
    )


def _draw_stray(leak: float, rng: np.random.Generator) -> dict[str, NDArray]:
    shares = leak * np.exp(rng.standard_normal((len(KINDS), len(STATES))))
    most = [max(kind.per_minute) for kind in KINDS.values()]
    # artefacts come in all states as it is
    return {
        name: share * rate
        for name, share, rate in zip(KINDS, np.minimum(shares, 0.5), most, strict=True)
        if name not in ARTEFACTS
    }
