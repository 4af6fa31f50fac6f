"""Norms that can be compared: of one model, trained on as many subjects, at one setting each."""

from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from psdnorm.evaluation.statistics import BlockTables
from psdnorm.present import CannotDraw
from psdnorm.report.naming import model_place
from psdnorm.report.results import Results
from psdnorm.report.verdict import METRIC, Contest, contests
from psdnorm.runtime import listed
from psdnorm.training import norm_name, unusual

BATCH = "batch"
SCORE = METRIC


@dataclass(frozen=True)
class Comparison:
    """Norms of a contest side by side, as figures show them.

    Attributes
    ----------
    results : Results
        Of the compared arms alone: every norm at one filter size and depth.
    contest : Contest
        Which norms and scores count; the verdict stands on the same.
    labels : dict of str to str
        What a norm is called, in the order of the paper.
    left_out : list of str
        A sentence for each norm, and setting of a norm, that is not compared here.
    """

    results: Results
    contest: Contest
    labels: dict[str, str]
    left_out: list[str]

    @property
    def model(self) -> str:
        """Name of the network."""
        return self.contest.model

    @property
    def balanced(self) -> int | None:
        """balanced@N; None for all subjects."""
        return self.contest.balanced

    @property
    def key(self) -> str:
        """What files are called after."""
        return f"{self.model}-{_size_key(self.balanced)}"

    @property
    def setting(self) -> str:
        """Model and size in words."""
        return self.contest.name

    @cached_property
    def tables(self) -> BlockTables:
        """Balanced accuracies of the same people under every norm, in percent."""
        shares = self.contest.tables
        return replace(
            shares,
            by_seed=100 * shares.by_seed,
            subjects=100 * shares.subjects,
            datasets=100 * shares.datasets,
        )

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Rows of ``results.runs`` that count: those whose balanced accuracies the tables have."""
        counted = self.tables.by_seed.dropna().index
        runs = self.results.runs
        return runs[pd.MultiIndex.from_frame(runs[list(counted.names)]).isin(counted)]

    def needs_two_norms(self, what: str) -> None:
        """Refuse to draw what compares norms where there is one, or nobody whom all have."""
        if len(self.labels) < 2:
            only = next(iter(self.labels.values()))
            why = "".join(f" {sentence}" for sentence in self.contest.reasons.values())
            raise CannotDraw(f"{what} ({self.setting}): it compares norms, found only {only}.{why}")
        if not self.tables.subjects.notna().any(axis=None):
            raise CannotDraw(
                f"{what} ({self.setting}): there is no subject whom every norm has in the same "
                "seed."
            )

    @property
    def remarks(self) -> str:
        """What a caption must say about who and what was left out."""
        return " ".join([*shortened(self.contest.lacking), *self.left_out])


def comparisons(results: Results) -> list[Comparison]:
    """Return every contest of the verdict, in the order of the paper: models, then sizes.

    Parameters
    ----------
    results : Results
    """
    return [_compared(results, contest) for contest in sorted(contests(results), key=_place)]


def _place(contest: Contest) -> tuple:
    return model_place(contest.model), contest.balanced is not None, -(contest.balanced or 0)


def shortened(sentences: list[str], most: int = 3) -> list[str]:
    """Return the first sentences and how many more there are."""
    if len(sentences) <= most + 1:
        return sentences
    return [*sentences[:most], f"And {len(sentences) - most} more of the kind."]


def _compared(results: Results, contest: Contest) -> Comparison:
    cells = results.of(model=contest.model, balanced=contest.balanced).cells
    labels, left_out = {}, [*contest.reasons.values()]
    for norm, arm in contest.arms.items():
        own = cells[cells["norm"] == norm].sort_values(["filter_size", "norm_depth"])
        settings = own.drop_duplicates("arm").set_index("arm")[["filter_size", "norm_depth"]]
        labels[norm] = norm_name(norm) + unusual(*settings.loc[arm])
        others = [
            unusual(*each).strip(" ()") for each in settings.drop(arm).itertuples(index=False)
        ]
        if others:
            if len(others) > 4:
                others = [*others[:3], f"{len(others) - 3} other settings"]
            left_out.append(f"{norm_name(norm)} with {listed(others)} is left out.")
    chosen = cells[cells["arm"].isin(contest.arms.values())]
    subjects = results.subjects[results.subjects["cell"].isin(chosen["cell"])]
    compared = replace(results, cells=chosen, subjects=subjects)
    return Comparison(compared, contest, labels, left_out)


def _size_key(balanced: int | None) -> str:
    return "all" if balanced is None else f"at{balanced}"
