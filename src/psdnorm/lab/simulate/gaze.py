"""Where the eyes look: steps from one place to the next, and slow rolling.

The eyes are dipoles, so that a frontal channel follows their place: it steps when they jump, and
stays until the amplifier lets it go. `events` has single movements and blinks, of about one size;
here they jump in bursts or all the time, far or near, as the subject does in that state.
"""

import numpy as np
import scipy.signal
import scipy.special
from numpy.typing import NDArray

from psdnorm.lab.simulate.fitted import STATES
from psdnorm.lab.simulate.hypnograms import EPOCH_S

# in quiet wake, N1, N2, N3, REM and active wake: jumps a second within a burst, share of the time
# in bursts, how far they go and how far the eyes roll; set by hand, spread between subjects
JUMPS_PER_S = np.array([0.5, 0.1, 0.0, 0.0, 1.0, 1.2])
IN_BURSTS = np.array([0.4, 0.3, 0.0, 0.0, 0.25, 0.8])
JUMP_UV = np.array([16.0, 8.0, 0.0, 0.0, 14.0, 16.0])
ROLL_UV = np.array([14.0, 3.0, 0.5, 0.5, 1.5, 8.0])
SUBJECT_SD = 0.5
# a burst remembers itself from one second to the next by this much
BURST_MEMORY = 0.8
ROLL_MEMORY = 0.7
JUMP_S = (0.03, 0.09)


def add_gaze(
    signal: NDArray[np.float32],
    sfreq: int,
    states: NDArray,
    edges_s: NDArray,
    eye_weights: NDArray,
    subject: np.random.Generator,
    rng: np.random.Generator,
) -> None:
    """Add what the eyes' place does to a recording, in place.

    Parameters
    ----------
    signal : ndarray of float32, (2, T)
        µV; changed.
    sfreq : int
        Sampling rate in Hz.
    states : ndarray, (E,)
        Spectral state of each epoch, see `fitted.STATES`.
    edges_s : ndarray, (E + 1,)
        Where epochs begin and the last one ends.
    eye_weights : ndarray, (2,)
        How much of the eyes each derivation sees, times how much there is to see.
    subject, rng : numpy.random.Generator
        Streams of the one who looks, and of this night.
    """
    habits = np.exp(SUBJECT_SD * subject.standard_normal((4, len(STATES))))
    jump_s = subject.uniform(*JUMP_S)
    # one value a second; the last second has one beyond it to go to
    at_s = np.arange(round(len(states) * EPOCH_S) + 1)
    second = states[np.clip(np.searchsorted(edges_s, at_s, "right") - 1, 0, len(states) - 1)]
    share = np.clip(IN_BURSTS * habits[0], 0, 1)[second]
    chance = (JUMPS_PER_S * habits[1])[second] * _bursts(share, rng)
    place = _jumps(chance[:-1], (JUMP_UV * habits[2])[second], sfreq, jump_s, rng)
    place += _rolls((ROLL_UV * habits[3])[second], sfreq, rng)
    signal += eye_weights.astype(np.float32)[:, None] * place


def _bursts(share: NDArray, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each second is in a burst: that share of the time, in stretches."""
    fresh = rng.standard_normal(len(share))
    fresh[1:] *= np.sqrt(1 - BURST_MEMORY**2)
    urge = scipy.signal.lfilter([1.0], [1.0, -BURST_MEMORY], fresh)
    return scipy.special.ndtr(urge) > 1 - share


def _jumps(
    per_s: NDArray, reach_uv: NDArray, sfreq: int, jump_s: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Place of eyes that jump so often, from one place around the middle to another, (T,)."""
    counts = rng.poisson(per_s)
    second = np.repeat(np.arange(len(counts)), counts)
    at = np.sort(second * sfreq + rng.integers(sfreq, size=len(second)))
    far = np.exp(0.4 * rng.standard_normal(len(at)))
    goals = reach_uv[at // sfreq] * far * rng.standard_normal(len(at))
    place = np.zeros(len(per_s) * sfreq, dtype=np.float32)
    np.add.at(place, at, np.diff(goals, prepend=0.0).astype(np.float32))
    np.cumsum(place, out=place)
    kernel = scipy.signal.windows.hann(max(round(2 * jump_s * sfreq), 3) + 2)
    return scipy.signal.oaconvolve(place, (kernel / kernel.sum()).astype(np.float32), mode="same")


def _rolls(rms_uv: NDArray, sfreq: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Place of eyes that roll slowly by so much in each second, (T,)."""
    fresh = rng.standard_normal(len(rms_uv)) * np.sqrt(1 - ROLL_MEMORY**2)
    knots = rms_uv * scipy.signal.lfilter([1.0], [1.0, -ROLL_MEMORY], fresh)
    at_s = np.arange((len(rms_uv) - 1) * sfreq) / sfreq
    return np.interp(at_s, np.arange(len(rms_uv)), knots).astype(np.float32)
