"""Training, validation and test sets: split by subject, never by night.

Everything rests on one order of the subjects of a dataset, a pure function of the seed and their
names. The first N of it are balanced@N, and every fifth of it validates. So balanced@40 lies within
balanced@100, as do its training and its validation set; and a subject that joins a dataset changes
the order of no two others.

The two sets are nested from N = m + 2 on, where m is the size of the largest family (1 where there
are none): the first subject that validates is the third in order or, after a family, a later one.
For smaller N the last family validates, so that there is a validation set, and trains when N grows.
"""

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdnorm.constants import STAGES
from psdnorm.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd


class Split(NamedTuple):
    """Rows of an index, by role."""

    train: "pd.DataFrame"
    validation: "pd.DataFrame"
    test: "pd.DataFrame"


def leave_one_dataset_out(
    index: "pd.DataFrame",
    held_out: str,
    *,
    seed: int = 0,
    n_subjects: int | None = None,
    fraction: float = 0.2,
) -> Split:
    """Test on one dataset; train on the others and validate on a ``fraction`` of their subjects.

    ``n_subjects`` is N of balanced@N, the most subjects that are used of each other cohort.
    """
    cohorts = sorted(index["cohort"].unique())
    if held_out not in cohorts:
        raise ArgumentError(f"held_out is {held_out!r}, expected one of {', '.join(cohorts)}")
    is_test = index["cohort"] == held_out
    rest = index[~is_test]
    if n_subjects is not None:
        rest = balanced(rest, n_subjects, seed=seed)
    train, validation = split_subjects(rest, fraction, seed=seed)
    return Split(train, validation, index[is_test])


def balanced(index: "pd.DataFrame", n_subjects: int, *, seed: int = 0) -> "pd.DataFrame":
    """Keep at most ``n_subjects`` subjects of each cohort; more of them include fewer."""
    if type(n_subjects) is not int or n_subjects < 1:
        raise ArgumentError(f"n_subjects is {n_subjects!r}, expected a positive integer")
    kept = set()
    for cohort, families in _ordered_families(index, seed).items():
        subjects = [subject for family in families for subject in family]
        kept |= {(cohort, subject) for subject in subjects[:n_subjects]}
    return index[_is_of(index, kept)]


def split_subjects(
    index: "pd.DataFrame", fraction: float = 0.2, *, seed: int = 0
) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Split into training and validation set by subject, within each cohort, by whole families.

    ``fraction`` is the share of the validation set, met to half a subject in each cohort without
    families; at least one subject goes there from a cohort of two. A cohort that is a single
    subject or a single family stays in the training set.
    """
    if not 0 < fraction < 1:
        raise ArgumentError(f"fraction is {fraction!r}, expected a number between 0 and 1")
    chosen: set[tuple[str, str]] = set()
    for cohort, families in _ordered_families(index, seed).items():
        taken: list[str] = []
        seen = 0
        for family in families:
            # by where the family begins, not by its size: cutting it (balanced@N) changes nothing
            if len(taken) < int(fraction * (seen + 1) + 0.5):
                taken += family
            seen += len(family)
        if not taken and len(families) > 1:
            taken = families[-1]
        chosen |= {(cohort, subject) for subject in taken}
    validates = _is_of(index, chosen)
    return index[~validates], index[validates]


def class_weights(index: "pd.DataFrame") -> Tensor:
    """Weights of the cross-entropy, (5,): n / (5 n_c), and 0 for a stage that is absent.

    n_c counts the scored epochs of stage c in an index, n all of them.
    """
    counts = index[list(STAGES)].to_numpy(np.float64).sum(axis=0)
    weights = np.zeros(len(STAGES))
    np.divide(counts.sum(), len(STAGES) * counts, out=weights, where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32)


def _ordered_families(index: "pd.DataFrame", seed: int) -> dict[str, list[list[str]]]:
    """Subjects of each cohort in the order of the seed, those of a family next to each other."""
    groups: dict[str, dict[str, list[str]]] = {}
    for (cohort, subject), family in _family_of(index).items():
        # a family's name may be a subject's too
        name = f"subject/{subject}" if family is None else f"family/{family}"
        groups.setdefault(cohort, {}).setdefault(name, []).append(subject)
    return {
        cohort: [
            sorted(families[name], key=lambda subject: _place(seed, cohort, subject))
            for name in sorted(families, key=lambda name: _place(seed, cohort, name))
        ]
        for cohort, families in groups.items()
    }


def _family_of(index: "pd.DataFrame") -> dict[tuple[str, str], str | None]:
    """Family of each subject, if any of its nights names one."""
    columns = [index[name].to_numpy(object) for name in ("cohort", "subject", "family")]
    families: dict[tuple[str, str], str | None] = {}
    for cohort, subject, family in zip(*columns, strict=True):
        known = families.setdefault((cohort, subject), None)
        if not isinstance(family, str):  # null
            continue
        if known not in (None, family):
            raise ArgumentError(
                f"subject {subject!r} of {cohort} is of the families {known!r} and {family!r}, "
                "expected one"
            )
        families[cohort, subject] = family
    return families


def _place(seed: int, cohort: str, name: str) -> bytes:
    # not NumPy's generators, whose shuffles may change with a version, nor hash(), which does
    return hashlib.sha256(f"{seed}\0{cohort}\0{name}".encode()).digest()


def _is_of(index: "pd.DataFrame", subjects: set[tuple[str, str]]) -> NDArray[np.bool_]:
    # by place: labels repeat where indexes were put together
    pairs = zip(index["cohort"], index["subject"], strict=True)
    return np.fromiter((pair in subjects for pair in pairs), bool, len(index))
