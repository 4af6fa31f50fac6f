"""Norms that can be compared: of one model, trained on as many subjects, at one setting each."""

from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from psdnorm.evaluation.statistics import BlockTables, block_tables
from psdnorm.report.figures.drawing import CannotDraw
from psdnorm.report.naming import (
    PROTOCOL_FILTER,
    listed,
    model_place,
    norm_name,
    norms_in_order,
    setting_name,
    standing_arm,
)
from psdnorm.report.results import Results
from psdnorm.training.cell import PROTOCOL_DEPTH

BATCH = "batch"
SCORE = "balanced_accuracy"


@dataclass(frozen=True)
class Comparison:
    """Norms side by side.

    Attributes
    ----------
    results : Results
        Of the compared cells alone: every norm at one filter size and depth.
    model : str
    balanced : int or None
    labels : dict of str to str
        What a norm is called, in the order of the paper.
    left_out : list of str
        A sentence for each setting of a norm that is not compared here.
    """

    results: Results
    model: str
    balanced: int | None
    labels: dict[str, str]
    left_out: list[str]

    @property
    def key(self) -> str:
        """What files are called after."""
        return f"{self.model}-{_size_key(self.balanced)}"

    @property
    def setting(self) -> str:
        """Model and size in words."""
        return setting_name(self.model, self.balanced)

    @cached_property
    def tables(self) -> BlockTables:
        """Balanced accuracies of the same people under every norm, in percent."""
        runs = self.results.runs
        columns = ["norm", "cohort", "subject", "seed"]
        scores = runs[columns].assign(value=100 * runs[SCORE])
        return block_tables(scores, norms=list(self.labels))

    def needs_two_norms(self, what: str) -> None:
        """Refuse to draw what compares norms where there is one, or nobody whom all have."""
        if len(self.labels) < 2:
            only = next(iter(self.labels.values()))
            raise CannotDraw(f"{what} ({self.setting}): it compares norms, found only {only}.")
        if not self.tables.subjects.notna().any(axis=None):
            raise CannotDraw(
                f"{what} ({self.setting}): there is no subject whom every norm has in the same "
                "seed."
            )

    @property
    def remarks(self) -> str:
        """What a caption must say about who and what was left out."""
        lacking = [self._named(sentence) for sentence in self.tables.left_out]
        return " ".join([*(f"{each}." for each in shortened(lacking)), *self.left_out])

    def _named(self, sentence: str) -> str:
        norm, rest = sentence.split(" ", 1)
        return f"{self.labels[norm]} {rest}"


def comparisons(results: Results) -> list[Comparison]:
    """Return every model and training size that has a finished cell, the paper's order first.

    A norm that was run with several filter sizes or depths is compared at the protocol's, or at
    the one that has most cells.

    Parameters
    ----------
    results : Results
    """
    found = []
    for model in sorted(results.cells["model"].unique(), key=model_place):
        sizes = results.of(model=model).cells["balanced"]
        values = [None] * bool(sizes.isna().any()) + sorted(map(int, sizes.dropna().unique()))[::-1]
        found += [_compared(results.of(model=model, balanced=n), model, n) for n in values]
    return found


def shortened(sentences: list[str], most: int = 3) -> list[str]:
    """Return the first sentences and how many more there are."""
    if len(sentences) <= most + 1:
        return sentences
    return [*sentences[:most], f"And {len(sentences) - most} more of the kind"]


def unusual(filter_size: object = None, norm_depth: object = None) -> str:
    """Say in what a norm's setting is not the protocol's.

    Examples
    --------
    >>> unusual(17, 1), unusual(5, 3)
    (' (f = 17, 1 block)', '')
    """
    parts = []
    if _known(filter_size) not in (None, PROTOCOL_FILTER):
        parts.append(f"f = {filter_size}")
    if _known(norm_depth) not in (None, PROTOCOL_DEPTH):
        parts.append(f"{norm_depth} block{'s' * bool(norm_depth != 1)}")
    return f" ({', '.join(parts)})" if parts else ""


def _compared(results: Results, model: str, balanced: int | None) -> Comparison:
    cells, labels, left_out, kept = results.cells, {}, [], []
    for norm in norms_in_order(cells["norm"]):
        own = cells[cells["norm"] == norm].sort_values(["filter_size", "norm_depth"])
        settings = own.drop_duplicates("arm").set_index("arm")[["filter_size", "norm_depth"]]
        arm = standing_arm(own)
        kept.append(arm)
        labels[norm] = norm_name(norm) + unusual(*settings.loc[arm])
        others = [
            unusual(*each).strip(" ()") for each in settings.drop(arm).itertuples(index=False)
        ]
        if others:
            if len(others) > 4:
                others = [*others[:3], f"{len(others) - 3} other settings"]
            left_out.append(f"{norm_name(norm)} with {listed(others)} is left out.")
    chosen = cells[cells["arm"].isin(kept)]
    subjects = results.subjects[results.subjects["cell"].isin(chosen["cell"])]
    compared = replace(results, cells=chosen, subjects=subjects)
    return Comparison(compared, model, balanced, labels, left_out)


def _known(value: object) -> object:
    return None if pd.isna(value) else value


def _size_key(balanced: int | None) -> str:
    return "all" if balanced is None else f"at{balanced}"
