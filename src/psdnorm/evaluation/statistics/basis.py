"""What a statistic stands on: which blocks, how many, and who was left out."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from psdnorm.errors import ArgumentError, DtypeError, MissingExtraError

# means that differ by less differ by the order in which they were added up, and are ties
DECIMALS = 12


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """What the caption of a statistic must say.

    Attributes
    ----------
    blocks : str
        What was compared within: "subjects", "datasets", or "blocks" where the table did not say.
    n_blocks : int
        How many of them counted.
    left_out : tuple
        Labels of those that did not, because a norm lacks them.
    n_cohorts : int
        How many cohorts these blocks are of; 0 where the table did not say.
    note : str
        Why a number is NaN, or cannot say what it seems to; empty if there is nothing to say.
    """

    blocks: str
    n_blocks: int
    left_out: tuple[Hashable, ...]
    n_cohorts: int = 0
    note: str = ""

    @property
    def caveat(self) -> str:
        """:func:`subject_caveat` where blocks are two subjects or more, else empty."""
        is_of_subjects = self.blocks == "subjects" and self.n_blocks > 1
        return subject_caveat(self.n_blocks, self.n_cohorts) if is_of_subjects else ""

    @property
    def counted(self) -> str:
        """The number of blocks, in words that a caption can begin with."""
        return f"{self.n_blocks:,} {self.blocks[:-1] if self.n_blocks == 1 else self.blocks}"

    @property
    def caption(self) -> str:
        """Blocks, left-out blocks, note and caveat in whole sentences."""
        counted = self.counted
        if self.left_out:
            counted += f"; {len(self.left_out):,} left out, which not every norm has"
        note = self.note[:1].upper() + self.note[1:]
        sentences = (text.rstrip(".") + "." for text in (counted, note, self.caveat) if text)
        return " ".join(sentences)


def subject_caveat(n_subjects: int, n_cohorts: int) -> str:
    """Say why a statistic over subjects looks surer than it is.

    Parameters
    ----------
    n_subjects : int
        Two or more.
    n_cohorts : int
        0 where it is not known.
    """
    people = f"{n_subjects:,} subjects"
    if n_cohorts:
        people += f" from {n_cohorts} cohort{'s' * (n_cohorts != 1)}"
    return (
        "Subjects of one cohort share its laboratory, devices and scorers, and are staged by the "
        f"same few networks: {people} are not independent, so that p-values and intervals over "
        "subjects are too small."
    )


def complete_blocks(values: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Leave out the blocks that lack a value.

    Parameters
    ----------
    values : DataFrame, (n_blocks, n_norms)

    Returns
    -------
    DataFrame of float64
        The blocks that every norm has.
    dict
        The arguments of :class:`Basis` but its note.
    """
    if not isinstance(values, pd.DataFrame):
        raise DtypeError(
            f"values is a {type(values).__name__}, expected a DataFrame of blocks by norms"
        )
    if values.shape[1] == 0:
        raise ArgumentError("values has no column, expected one for each norm")
    for what, labels in (("norm", values.columns), ("block", values.index)):
        if labels.has_duplicates:
            twice = labels[labels.duplicated()][0]
            raise ArgumentError(f"values has the {what} {twice!r} more than once")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise DtypeError("values has entries that are not numbers, expected scores") from None
    if np.isinf(numbers.to_numpy()).any():
        raise ArgumentError("values has infinite entries, expected scores, or NaN where unknown")
    known = numbers.notna().all(axis=1).to_numpy()
    basis = {
        "blocks": _kind(values.index),
        "n_blocks": int(known.sum()),
        "left_out": tuple(numbers.index[~known]),
        "n_cohorts": _n_cohorts(numbers.index[known]),
    }
    return numbers[known].round(DECIMALS), basis


def check_share(name: str, value: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ArgumentError(f"{name} is {value}, expected a number between 0 and 1")


def scipy() -> Any:
    """Return SciPy with the parts that statistics need."""
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise MissingExtraError('statistics need SciPy: pip install "psdnorm[data]"') from error
    return scipy


def _kind(index: pd.Index) -> str:
    if "subject" in index.names:
        return "subjects"
    return "datasets" if list(index.names) == ["cohort"] else "blocks"


def _n_cohorts(index: pd.Index) -> int:
    if "cohort" not in index.names:
        return 0
    return int(index.get_level_values("cohort").nunique())
