"""The course of a night, epoch by epoch: spectra in dB, and where epochs end."""

import numpy as np
import scipy.signal
from numpy.typing import NDArray

from psdnorm.lab.simulate.fitted import ACTIVE, N_BANDS, Fitted
from psdnorm.lab.simulate.hypnograms import EPOCH_S, N2, N3
from psdnorm.lab.simulate.physiology import Subject
from psdnorm.lab.simulate.profiles import CohortProfile

# what active wake is like in one epoch is like the epoch before it by this much
UNREST_MEMORY = 0.97


def draw_spectra(
    states: NDArray,
    table: Fitted,
    who: Subject,
    profile: CohortProfile,
    rng: np.random.Generator,
) -> tuple[NDArray, NDArray]:
    """Each epoch's slow power beside its state's, (E,), and its spectrum, (E, 10), in dB."""
    innovation = rng.standard_normal((len(states), 2 * N_BANDS))
    own = table.night_sd_db * rng.standard_normal(table.night_sd_db.shape)
    rho = float(np.clip(table.autocorrelation + profile.epoch_memory, 0, 0.97))
    # starts in its stationary distribution
    innovation[1:] *= np.sqrt(1 - rho**2)
    chain = scipy.signal.lfilter([1.0], [1.0, -rho], innovation, axis=0)
    within = np.einsum("eij,ej->ei", table.within_factor[states], chain)
    within = np.clip(np.exp(profile.epoch_log_spread) * within, -15, 15)
    level = blend((table.knot_db + own)[states])
    # slow waves follow the power of both channels' delta band
    deviation = within[:, [0, N_BANDS]].mean(axis=1)
    return deviation, level + within + who.deviation_db


def draw_unrest(states: NDArray, sd_db: float, rng: np.random.Generator) -> NDArray:
    """Draw what active wake departs by, slowly, most of it in all bands: (E, 10) in dB."""
    steps = rng.standard_normal((len(states), 2 * N_BANDS))
    of_channel = np.repeat(rng.standard_normal((len(states), 2)), N_BANDS, axis=1)
    fresh = (0.6 * steps + 0.8 * of_channel) * np.sqrt(1 - UNREST_MEMORY**2)
    # what is active by night and by day has one history; it starts far back
    fresh[0] /= np.sqrt(1 - UNREST_MEMORY**2)
    slow = scipy.signal.lfilter([1.0], [1.0, -UNREST_MEMORY], fresh, axis=0)
    return sd_db * slow * (states == ACTIVE)[:, None]


def draw_edges_s(n_epochs: int, most_s: float, rng: np.random.Generator) -> NDArray:
    """Where each epoch's state begins, and where the last ends: a scorer's epochs wait for none."""
    edges = np.arange(n_epochs + 1) * EPOCH_S
    if most_s > 0:
        edges[1:-1] += rng.uniform(-most_s, most_s, n_epochs - 1)
    return edges


def blend(values: NDArray) -> NDArray:
    """Let an epoch carry some of its neighbours: stages do not change at the stroke of 30 s."""
    padded = np.concatenate([values[:1], values, values[-1:]])
    return 0.15 * padded[:-2] + 0.7 * padded[1:-1] + 0.15 * padded[2:]


def depth_of(states: NDArray, deviation_db: NDArray, table: Fitted) -> NDArray:
    """Slow-wave power of each epoch, from half-way between N2 and N3: (E,)."""
    delta = table.real_median_db[:, [0, N_BANDS]].mean(axis=1)
    return delta[states] + deviation_db - (delta[N2] + delta[N3]) / 2
