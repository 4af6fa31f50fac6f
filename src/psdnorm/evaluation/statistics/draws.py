"""Means of cohorts and subjects that are drawn anew, with replacement."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]  # of one cohort, (n_subjects, n_seeds, n_norms)
Means = NDArray[np.float64]

# weights of subjects that are worked on at a time
_CHUNK = 2**19


def means_of(cohorts: list[Scores]) -> tuple[Means, Means]:
    """Return Mean(Dataset) and Mean(Subject), (n_norms,) each."""
    by_cohort = np.stack([scores.mean(axis=(0, 1)) for scores in cohorts])
    sizes = np.array([len(scores) for scores in cohorts])
    return by_cohort.mean(axis=0), sizes @ by_cohort / sizes.sum()


def drawn_means(
    cohorts: list[Scores], n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> tuple[Means, Means]:
    """Draw cohorts, and within each drawn one its subjects, and its seeds if they are to be.

    Parameters
    ----------
    cohorts : list of ndarray, (n_subjects, n_seeds, n_norms)
    n_draws : int
    resample_seeds : bool
    rng : Generator

    Returns
    -------
    tuple of ndarray, (n_draws, n_norms)
        Mean(Dataset) and Mean(Subject) of every draw.
    """
    n_cohorts = len(cohorts)
    times = rng.multinomial(n_cohorts, np.full(n_cohorts, 1 / n_cohorts), size=n_draws)
    over_datasets, over_subjects = np.zeros((2, n_draws, cohorts[0].shape[2]))
    people = times @ [len(scores) for scores in cohorts]  # (n_draws,)
    for scores, count in zip(cohorts, times.T, strict=True):
        # a cohort that is drawn twice has its subjects drawn twice, each time others
        owners = np.repeat(np.arange(n_draws), count)
        means = _drawn_within(scores, len(owners), resample_seeds, rng)
        np.add.at(over_datasets, owners, means / n_cohorts)
        np.add.at(over_subjects, owners, means * len(scores))
    return over_datasets, over_subjects / people[:, None]


def _drawn_within(
    scores: Scores, n_draws: int, resample_seeds: bool, rng: np.random.Generator
) -> Means:
    """Return the means of one cohort with its subjects drawn anew, (n_draws, n_norms)."""
    n_subjects, n_seeds, n_norms = scores.shape
    flat = scores.reshape(n_subjects, -1)
    means = np.empty((n_draws, n_norms))
    step = max(1, _CHUNK // n_subjects)
    for begin in range(0, n_draws, step):
        rows = min(step, n_draws - begin)
        # how often each subject is drawn: a product with these is faster than looking scores up
        drawn = rng.integers(n_subjects, size=(rows, n_subjects))
        drawn += np.arange(rows)[:, None] * n_subjects
        times = np.bincount(drawn.ravel(), minlength=rows * n_subjects).reshape(rows, n_subjects)
        by_seed = (times.astype(np.float64) @ flat / n_subjects).reshape(rows, n_seeds, n_norms)
        weights = np.full((rows, n_seeds), 1 / n_seeds)
        if resample_seeds:
            weights = rng.multinomial(n_seeds, weights[0], size=rows) / n_seeds
        means[begin : begin + rows] = np.einsum("ds,dsk->dk", weights, by_seed)
    return means
