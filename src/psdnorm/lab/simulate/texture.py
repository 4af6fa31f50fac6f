"""The finer grain of a subject's background: what five band powers of an epoch leave open.

Two nights with the same band powers in every epoch may still look nothing alike: the peaks within
a band, how power waxes and wanes within half a minute, and how far the channels go together are
not in them. A network sees all of it, so that none of it may always be the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.fitted import BANDS_HZ, N_BANDS, STATES
from psdnorm.lab.simulate.profiles import CohortProfile

# height of the alpha peak over the spectrum under it, by state, and its width
ALPHA_HEIGHT = np.array([6.0, 1.0, 0.0, 0.0, 0.5, 1.5])
ALPHA_SD_HZ = 0.8
# what a height of 0 is taken for where heights are spread by factors
_LEAST_HEIGHT = 0.1
_ALPHA = list(BANDS_HZ).index("alpha")
_ALPHA_WIDTH_HZ = BANDS_HZ["alpha"][1] - BANDS_HZ["alpha"][0]
N_PEAKS = 4
PEAKS_HZ, PEAK_SD_HZ = (1.0, 28.0), (0.5, 3.0)
# what is slower is not in any band
SLOWEST_BAND_HZ = BANDS_HZ["delta"][0]


@dataclass(frozen=True)
class Texture:
    """The grain of one subject's background.

    Attributes
    ----------
    alpha_height : ndarray, (6,)
        Height of the alpha peak in each state, before the subject's factor on all of them.
    alpha_sd_hz : float
        Width of the alpha peak.
    alpha_db : ndarray, (6,)
        Added to the alpha band under the peak, so that a state has the alpha power that it had.
    peak_hz, peak_sd_hz : ndarray, (4,)
        Place and width of other peaks and troughs.
    peak_db : ndarray, (6, 4)
        Their heights in each state.
    infraslow_db : float
        Added to what is slower than all bands.
    coherence : ndarray, (6,)
        Added to the correlation of the anterior and the posterior source.
    waxing_sd_db : float
        Spread of each band's power within an epoch.
    """

    alpha_height: NDArray
    alpha_sd_hz: float
    alpha_db: NDArray
    peak_hz: NDArray
    peak_sd_hz: NDArray
    peak_db: NDArray
    infraslow_db: float
    coherence: NDArray
    waxing_sd_db: float

    def fine_db(self, frequency_hz: NDArray) -> NDArray:
        """Return what is added to the spectrum of each state, (F,) → (6, F)."""
        away = (frequency_hz - self.peak_hz[:, None]) / self.peak_sd_hz[:, None]
        fine = self.peak_db @ np.exp(-0.5 * away**2)
        return fine + self.infraslow_db * (frequency_hz < SLOWEST_BAND_HZ)

    def bands_db(self) -> NDArray:
        """Return what is added to the bands of each state, (6, 10)."""
        added = np.zeros((len(STATES), 2 * N_BANDS))
        added[:, [_ALPHA, N_BANDS + _ALPHA]] = self.alpha_db[:, None]
        return added


def draw_texture(
    profile: CohortProfile, alpha_height: float, rng: np.random.Generator
) -> Texture | None:
    """Draw the grain of a subject's background; None for a cohort that has the usual one.

    Parameters
    ----------
    profile : CohortProfile
        Already scaled by the shift.
    alpha_height : float
        The subject's factor on the height of the alpha peak.
    rng : numpy.random.Generator
        The subject's own stream.
    """
    knobs = (profile.alpha_sd, profile.peak_sd_db, profile.infraslow_db, profile.coherence_sd)
    if not any((*knobs, profile.waxing_sd_db)):
        return None
    n_states = len(STATES)
    for_alpha, for_peaks, for_coherence = rng.spawn(3)
    spread = profile.alpha_sd * for_alpha.standard_normal(n_states + 1)
    least = _LEAST_HEIGHT if profile.alpha_sd > 0 else 0.0
    height = np.maximum(ALPHA_HEIGHT, least) * np.exp(spread[:-1])
    width_hz = float(np.clip(ALPHA_SD_HZ * np.exp(0.5 * spread[-1]), 0.4, 1.6))
    usual = _mean_gain(alpha_height * ALPHA_HEIGHT, ALPHA_SD_HZ)
    alpha_db = 10 * np.log10(usual / _mean_gain(alpha_height * height, width_hz))
    own = for_peaks.standard_normal(N_PEAKS)
    of_state = for_peaks.standard_normal((n_states, N_PEAKS))
    common, *by_state = for_coherence.standard_normal(n_states + 1)
    return Texture(
        height,
        width_hz,
        alpha_db,
        _log_uniform(PEAKS_HZ, for_peaks),
        _log_uniform(PEAK_SD_HZ, for_peaks),
        profile.peak_sd_db * (0.8 * own + 0.6 * of_state),
        profile.infraslow_db,
        profile.coherence_sd * (0.8 * common + 0.6 * np.array(by_state)),
        profile.waxing_sd_db,
    )


def _mean_gain(height: NDArray, width_hz: float) -> NDArray:
    """Factor of a peak on the mean power of the alpha band."""
    return 1 + height * np.sqrt(2 * np.pi) * width_hz / _ALPHA_WIDTH_HZ


def _log_uniform(bounds: tuple[float, float], rng: np.random.Generator) -> NDArray:
    return np.exp(rng.uniform(np.log(bounds[0]), np.log(bounds[1]), N_PEAKS))
