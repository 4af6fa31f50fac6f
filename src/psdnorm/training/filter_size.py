"""PSDNorm's filter size, chosen from the cohorts that train and from nothing else.

Each of them is left out once. A cheap stand-in for the network (:mod:`psdnorm.training.surrogate`)
learns from the others with every size of :data:`CANDIDATES` and is tested on the one that was left
out. The size with the highest balanced accuracy, mean over these cohorts, is taken if it is better
than the protocol's by more than two standard errors; else the protocol's, f = 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psdnorm.batches.sequences import LENGTH
from psdnorm.errors import ArgumentError
from psdnorm.store import Store
from psdnorm.store.night import UNSCORED
from psdnorm.training.cell import AUTO, Cell, filter_size_of
from psdnorm.training.surrogate import left_out_accuracy, sample_nights

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = (1, 3, 5, 9, 11, 17, 21)
USUAL = filter_size_of(Cell())
MOST_SUBJECTS = 5  # of a cohort, one night each
_ERRORS = 2.0  # by which the usual size must be worse: the highest of seven is higher by chance

_known: dict[tuple, "Choice"] = {}  # models and depths of a grid learn from the same nights


@dataclass(frozen=True)
class Choice:
    """A filter size, and what led to it.

    Attributes
    ----------
    accuracies : dict of int to dict of str to float
        Balanced accuracy of the stand-in, by filter size and cohort that was left out.
    """

    accuracies: Mapping[int, Mapping[str, float]]

    @property
    def filter_size(self) -> int:
        """The size with the highest mean over cohorts, or the usual one if it is hardly worse.

        Examples
        --------
        >>> Choice({5: {"a": 0.60, "b": 0.70}, 9: {"a": 0.65, "b": 0.76}}).filter_size
        9
        >>> Choice({5: {"a": 0.60, "b": 0.70}, 9: {"a": 0.70, "b": 0.69}}).filter_size
        5
        """
        best = min(self.accuracies, key=lambda size: (-self.mean(size), size))
        gain, error = self.gain(best)
        return best if gain > _ERRORS * error else USUAL

    def mean(self, size: int) -> float:
        """Return the mean over cohorts of a filter size."""
        return float(np.mean([*self.accuracies[size].values()]))

    def gain(self, size: int) -> tuple[float, float]:
        """Return what a size gains over the usual one, mean over cohorts, and its standard error.

        Cohort by cohort: how hard each of them is does not count.
        """
        own, usual = self.accuracies[size], self.accuracies[USUAL]
        gains = np.array([own[cohort] - usual[cohort] for cohort in usual])
        return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))

    def to_json(self) -> dict[str, Any]:
        """Return it as a run's files say it: what was taken, and the table that led to it."""
        rows = []
        for size, own in self.accuracies.items():
            gain, error = self.gain(size)
            row = {"filter_size": size, "balanced_accuracy": self.mean(size), "gain": gain}
            rows.append({**row, "standard_error": error, "cohorts": dict(own)})
        return {"filter_size": self.filter_size, "table": rows}


def choose_filter_size(
    store: Store, index: "pd.DataFrame", *, target: str = "barycenter", length: int = LENGTH
) -> Choice:
    """Choose PSDNorm's filter size by leaving out each cohort that trains, once.

    Parameters
    ----------
    store : Store
    index : DataFrame
        The nights that train: rows of ``store.index``, of two cohorts at least. At most five
        subjects of each cohort are read, and nobody else.
    target : {"barycenter", "white"}
        Of PSDNorm.
    length : int
        S, epochs of a sequence.

    Returns
    -------
    Choice

    Raises
    ------
    ArgumentError
        Fewer than two cohorts have a scored epoch, so that none can be left out.
    """
    check_choosable(store, index)
    sample = sample_nights(store, drawn_nights(index), CANDIDATES, length)
    cohorts = sorted({*sample.cohort[sample.stages != UNSCORED]})
    if len(cohorts) < 2:
        raise _too_few(store, cohorts)
    return Choice(
        {
            size: {cohort: left_out_accuracy(sample, size, cohort, target) for cohort in cohorts}
            for size in CANDIDATES
        }
    )


def choice_for(store: Store, train: "pd.DataFrame", norm: str, length: int) -> dict[str, Any]:
    """Choose the filter size of a training; what this process chose before is not chosen again.

    Parameters
    ----------
    store : Store
    train : DataFrame
        The nights that train.
    norm : {"psd", "psd-white"}
    length : int
        S, epochs of a sequence.

    Returns
    -------
    dict
        See :meth:`Choice.to_json`.
    """
    target = "white" if norm == "psd-white" else "barycenter"
    key = store.hash, tuple(train["digest"]), target, length
    if key not in _known:
        _known[key] = choose_filter_size(store, train, target=target, length=length)
    return _known[key].to_json()


def drawn_nights(index: "pd.DataFrame") -> "pd.DataFrame":
    """Return the nights that a choice goes by: of at most five subjects of each cohort, one each.

    Parameters
    ----------
    index : DataFrame
        Rows of :attr:`psdnorm.store.Store.index`.
    """
    index = index.sort_values(["cohort", "subject", "visit", "recording"])
    first = index.drop_duplicates(["cohort", "subject"])
    kept: list[int] = []
    for rows in first.groupby("cohort").indices.values():
        n = min(len(rows), MOST_SUBJECTS)
        kept += rows[np.linspace(0, len(rows) - 1, n).round().astype(int)].tolist()
    return first.iloc[sorted(kept)]


def check_choosable(store: Store, index: "pd.DataFrame") -> None:
    """Refuse to choose a filter size where no cohort that trains can be left out.

    Parameters
    ----------
    store : Store
    index : DataFrame
        The nights that train.
    """
    cohorts = sorted(index["cohort"].unique())
    if len(cohorts) < 2:
        raise _too_few(store, cohorts)


def _too_few(store: Store, cohorts: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        f"filter_size is {AUTO!r}, found {', '.join(cohorts) or 'nobody'} to learn from in "
        f"{store.path}, expected two scored cohorts at least: each is left out once"
    )
