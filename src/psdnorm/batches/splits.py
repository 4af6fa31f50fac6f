"""Training, validation and test sets: split by subject, never by night.

The subjects of a dataset are ordered by a pure function of the seed and their names. balanced@N is
the first N of them, and every fifth is in the validation set. So balanced@40 is a subset of
balanced@100, and so are its training and its validation set; adding a subject to a dataset does not
change the relative order of the others.

The two sets are nested from N = m + 2 on, where m is the size of the largest family (1 without
families): the first validation subject is the third in order or, after a family, a later one. For
smaller N, so that there is a validation set, it is the last family, which trains when N grows.
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

    ``n_subjects`` is N of balanced@N, the maximum number of subjects from each other cohort.
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
    """Keep at most ``n_subjects`` subjects per cohort; larger selections include smaller ones."""
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
    """Split each cohort into training and validation set by subject, keeping families together.

    ``fraction`` is the share of the validation set, exact to half a subject in each cohort without
    families; a cohort of two or more contributes at least one subject. A cohort with only one
    subject or one family stays in the training set.
    """
    if not 0 < fraction < 1:
        raise ArgumentError(f"fraction is {fraction!r}, expected a number between 0 and 1")
    chosen: set[tuple[str, str]] = set()
    for cohort, families in _ordered_families(index, seed).items():
        taken: list[str] = []
        seen = 0
        for family in families:
            # decided where the family begins, not by its size, which balanced@N may cut
            if len(taken) < int(fraction * (seen + 1) + 0.5):
                taken += family
            seen += len(family)
        if not taken and len(families) > 1:
            taken = families[-1]
        chosen |= {(cohort, subject) for subject in taken}
    validates = _is_of(index, chosen)
    return index[~validates], index[validates]


def class_weights(index: "pd.DataFrame") -> Tensor:
    """Class weights for the cross-entropy, (5,): n / (5 n_c), and 0 for an absent stage.

    n_c is the number of scored epochs of stage c in an index, and n that of all stages.
    """
    counts = index[list(STAGES)].to_numpy(np.float64).sum(axis=0)
    weights = np.zeros(len(STAGES))
    np.divide(counts.sum(), len(STAGES) * counts, out=weights, where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32)


def _ordered_families(index: "pd.DataFrame", seed: int) -> dict[str, list[list[str]]]:
    """Order the subjects of each cohort by the seed, keeping those of a family together."""
    groups: dict[str, dict[str, list[str]]] = {}
    for (cohort, subject), family in _family_of(index).items():
        # a family and a subject may have the same name
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
    """Return the family of each subject, or None if none of its nights names one."""
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
    # not NumPy's shuffle, which may change between versions, nor hash(), which does change
    return hashlib.sha256(f"{seed}\0{cohort}\0{name}".encode()).digest()


def _is_of(index: "pd.DataFrame", subjects: set[tuple[str, str]]) -> NDArray[np.bool_]:
    # by position: labels repeat if indexes were concatenated
    pairs = zip(index["cohort"], index["subject"], strict=True)
    return np.fromiter((pair in subjects for pair in pairs), bool, len(index))
