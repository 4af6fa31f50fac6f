"""The scorer: the same night, other labels."""

import numpy as np
from numpy.typing import NDArray

from psdnorm.lab.simulate.hypnograms import N1, N2, N3
from psdnorm.lab.simulate.profiles import CohortProfile

# how fast a scorer's doubt between N2 and N3 goes away with slow-wave power
DOUBT_DB = 1.5


def score(
    stages: NDArray[np.int8],
    depth_db: NDArray,
    profile: CohortProfile,
    scorer: np.random.Generator,
    rng: np.random.Generator,
) -> NDArray[np.int8]:
    """Label a night as one scorer of a cohort would.

    Parameters
    ----------
    stages : ndarray of int8, (E,)
        What is simulated.
    depth_db : ndarray, (E,)
        Slow-wave power of each epoch, from half-way between N2 and N3.
    profile : CohortProfile
        Already scaled by the shift.
    scorer, rng : numpy.random.Generator
        Streams of the one who scores all of a subject's nights, and of this night.

    Returns
    -------
    ndarray of int8, (E,)
    """
    own = profile.scorer_sd * scorer.standard_normal(2)
    labels = _shift_n2(stages, profile.n1_bias + own[0], rng)
    n3_bias = float(np.clip(profile.n3_bias + 0.5 * own[1], -1, 1))
    labels = _shift_n3(labels, depth_db, n3_bias, rng)
    return _blur_transitions(labels, profile.transition_noise, rng)


def _shift_n2(
    stages: NDArray[np.int8], n_epochs: float, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Move each boundary between N1 and the N2 after it, later by so many epochs on average."""
    labels = stages.copy()
    starts = np.flatnonzero((stages[:-1] == N1) & (stages[1:] == N2)) + 1
    steps = np.floor(abs(n_epochs) + rng.random(len(starts))).astype(int)
    for start, step in zip(starts, steps, strict=True):
        side = slice(start, start + step) if n_epochs > 0 else slice(max(start - step, 0), start)
        before, after = (N2, N1) if n_epochs > 0 else (N1, N2)
        piece = labels[side]
        piece[piece == before] = after
    return labels


def _shift_n3(
    stages: NDArray[np.int8], depth_db: NDArray, bias: float, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Call N2 epochs N3 (the reverse, if negative), the likelier the more alike they are."""
    source, goal = (N2, N3) if bias > 0 else (N3, N2)
    resemblance = 1 / (1 + np.exp(-np.sign(bias) * depth_db / DOUBT_DB))
    is_changed = (stages == source) & (rng.random(len(stages)) < abs(bias) * resemblance)
    return np.where(is_changed, np.int8(goal), stages)


def _blur_transitions(
    stages: NDArray[np.int8], chance: float, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Let some epochs beside a transition carry their neighbour's label."""
    labels = stages.copy()
    before = np.flatnonzero(np.diff(stages))
    is_blurred, is_early = rng.random((2, len(before))) < [[chance], [0.5]]
    early, late = before[is_blurred & is_early], before[is_blurred & ~is_early]
    labels[early] = stages[early + 1]
    labels[late + 1] = stages[late]
    return labels
