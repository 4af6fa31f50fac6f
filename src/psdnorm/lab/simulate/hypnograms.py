"""Simulated hypnograms: stages, their course over the night, and the scorer."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psdnorm.constants import EPOCH_S
from psdnorm.lab.simulate.profiles import CohortProfile, Fitted

WAKE, N1, N2, N3, REM = range(5)
N_CYCLES = 4
# REM that comes back sooner belongs to the same REM period (Feinberg and Floyd, 1979)
NEW_PERIOD_MIN = 15.0
REM_AGES_MIN = (7.0, 15.0, 25.0, 40.0)
NREM_AGES_MIN = (30.0, 50.0, 65.0, 80.0, 100.0)
N_PLACES = len(REM_AGES_MIN) + len(NREM_AGES_MIN) + 2


@dataclass
class NightPosition:
    """Place in the night of a chain of stages, known from the stages so far."""

    cycle: int = 0
    rem_began: float = 0.0
    rem_ended: float = 0.0

    def enter(self, stage: int, minute: float) -> None:
        """Note that a bout of a stage begins."""
        if stage != REM:
            return
        if self.cycle == 0 or minute - self.rem_ended >= NEW_PERIOD_MIN:
            self.cycle += 1
            self.rem_began = minute

    def leave(self, stage: int, minute: float) -> None:
        """Note that a bout of a stage ends."""
        if stage == REM:
            self.rem_ended = minute

    @property
    def group(self) -> int:
        """Number of REM periods so far, with the late ones together."""
        return min(self.cycle, N_CYCLES - 1)

    def place(self, minute: float) -> int:
        """Place in the cycle, 0…10: how old a REM period is, or how long ago it ended."""
        since_rem = minute - self.rem_ended
        if since_rem < NEW_PERIOD_MIN:
            return int(np.searchsorted(REM_AGES_MIN, minute - self.rem_began))
        return len(REM_AGES_MIN) + 1 + int(np.searchsorted(NREM_AGES_MIN, since_rem))


def simulate_sleep(
    n_epochs: int, table: Fitted, tendency: NDArray, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Simulate a sleep period, from its first N1 epoch on."""
    stages = np.empty(n_epochs, dtype=np.int8)
    levels = np.linspace(0, 1, table.bout_quantiles.shape[-1])
    tilt = np.exp(tendency)
    # a subject with more of a stage enters it more often and stays longer
    stretch = np.exp(0.3 * tendency)
    here, stage, position = 0, N1, NightPosition()
    while here < n_epochs:
        position.enter(stage, here * EPOCH_S / 60)
        drawn = np.interp(rng.random(), levels, table.bout_quantiles[stage, position.group])
        stop = here + max(1, round(drawn * stretch[stage]))
        stages[here:stop] = stage
        minute = stop * EPOCH_S / 60
        position.leave(stage, minute)
        odds = table.probabilities[stage, position.group, position.place(minute)] * tilt
        stage = int(np.searchsorted(np.cumsum(odds) / odds.sum(), rng.random()))
        here = stop
    return stages


def simulate_hypnogram(
    n_epochs: int, table: Fitted, tendency: NDArray, rng: np.random.Generator
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Simulate stages and ``is_active``: active wake, quiet wake, sleep, active wake."""
    # real nights do not note lights off: the sleep latency (lognormal, median 12 min) and the wake
    # before lights off and after rising (15-35 and 10-30 min in an 8-h night) are assumptions
    hours = n_epochs * EPOCH_S / 3600
    scale = min(1.0, hours / 8) * 60 / EPOCH_S
    evening, morning = rng.uniform([15, 10], [35, 30]) * scale
    latency = min(12 * np.exp(0.6 * rng.standard_normal()) * (1 + 0.5 * tendency[WAKE]), 90) * scale
    onset = min(round(evening + max(latency, 1.0)), n_epochs - 1)
    rise = max(n_epochs - round(morning), onset + 1)
    stages = np.zeros(n_epochs, dtype=np.int8)
    stages[onset:rise] = simulate_sleep(rise - onset, table, tendency, rng)
    # sleepers sometimes get up in the night, for a whole bout of wake
    _, lengths = bouts(stages)
    is_active = (stages == WAKE) & np.repeat(rng.random(len(lengths)) < 0.1, lengths)
    is_active[: min(round(evening), onset)] = True
    is_active[round(evening) : onset] = False
    is_active[rise:] = True
    return stages, is_active


def bouts(stages: NDArray) -> tuple[NDArray, NDArray]:
    """Stage and length in epochs of each run of equal stages."""
    starts = np.flatnonzero(np.diff(stages, prepend=stages[0] - 1))
    return stages[starts], np.diff(starts, append=len(stages))


def sleep_period(stages: NDArray, longest_wake_epochs: int = 120) -> slice:
    """Find the main sleep period: the stretch with the most sleep and no hour of wake."""
    asleep = np.flatnonzero(stages > WAKE)
    if asleep.size == 0:
        return slice(0, 0)
    parts = np.split(asleep, np.flatnonzero(np.diff(asleep) > longest_wake_epochs) + 1)
    longest = max(parts, key=len)
    return slice(int(longest[0]), int(longest[-1]) + 1)


# how fast a scorer's doubt between N2 and N3 fades with slow-wave power
DOUBT_DB = 1.5


def score(
    stages: NDArray[np.int8],
    depth_db: NDArray,
    profile: CohortProfile,
    scorer: np.random.Generator,
    rng: np.random.Generator,
) -> NDArray[np.int8]:
    """Label a night as a scorer of a cohort would; ``depth_db`` is that of `depth_of`."""
    own = profile.scorer_sd * scorer.standard_normal(2)
    labels = _shift_n2(stages, profile.n1_bias + own[0], rng)
    n3_bias = float(np.clip(profile.n3_bias + 0.5 * own[1], -1, 1))
    labels = _shift_n3(labels, depth_db, n3_bias, rng)
    return _blur_transitions(labels, profile.transition_noise, rng)


def _shift_n2(
    stages: NDArray[np.int8], n_epochs: float, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Move each boundary from N1 to N2 later, by this number of epochs on average."""
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
    """Label N2 epochs N3 (the reverse, if negative); the more alike, the more likely."""
    source, goal = (N2, N3) if bias > 0 else (N3, N2)
    resemblance = 1 / (1 + np.exp(-np.sign(bias) * depth_db / DOUBT_DB))
    is_changed = (stages == source) & (rng.random(len(stages)) < abs(bias) * resemblance)
    return np.where(is_changed, np.int8(goal), stages)


def _blur_transitions(
    stages: NDArray[np.int8], chance: float, rng: np.random.Generator
) -> NDArray[np.int8]:
    """Give some epochs beside a transition their neighbour's label."""
    labels = stages.copy()
    before = np.flatnonzero(np.diff(stages))
    is_blurred, is_early = rng.random((2, len(before))) < [[chance], [0.5]]
    early, late = before[is_blurred & is_early], before[is_blurred & ~is_early]
    labels[early] = stages[early + 1]
    labels[late + 1] = stages[late]
    return labels
