"""Means of every arm of the results, ready to be looked up."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from psdnorm.evaluation import MEAN_DATASET, MEAN_SUBJECT, aggregate
from psdnorm.report.naming import ALL, PROTOCOL_FILTER, arm_name, model_place, norm_place
from psdnorm.report.results import ARM, Results, cell_row
from psdnorm.training.cell import PROTOCOL_DEPTH

MEANS = (MEAN_DATASET, MEAN_SUBJECT)
Setting = tuple[str, int | str]  # a model, and how many subjects of each cohort it learns from
WITH_FILTER = ("tma", "psd-white", "psd")
WITH_DEPTH = ("layer", "instance", "psd-white", "psd")


@dataclass(frozen=True)
class Arm:
    """What cells are but for their cohort and seed; ``balanced`` is a number or "all"."""

    model: str
    norm: str
    filter_size: int | None
    norm_depth: int | None
    balanced: int | str

    @property
    def is_protocol(self) -> bool:
        """Whether filter size and depth are those of the protocol."""
        return self.filter_size in (None, PROTOCOL_FILTER) and self.norm_depth in (
            None,
            PROTOCOL_DEPTH,
        )

    def named(self, said: Collection[str] = ()) -> str:
        """Return its norm and setting, see :func:`psdnorm.report.naming.arm_name`."""
        return arm_name(self.norm, self.filter_size, self.norm_depth, said)


@dataclass(frozen=True)
class Score:
    """A mean over seeds in percent, its spread, and over how many seeds and subjects it is."""

    mean: float
    std: float
    seeds: int
    subjects: int


class Scores:
    """Every metric of every arm, per dataset and over datasets.

    Parameters
    ----------
    results : Results

    Attributes
    ----------
    results : Results
    arms : list of Arm
        Those that have a result, in the order of the paper.
    lacking : dict of (Arm, str) to set of int
        Seeds that were asked for and have no result, by arm and dataset.
    people : DataFrame
        By cohort the number of ``subjects``, and of those who ``lack`` a stage.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self._seeds = _seeds(results)
        self.arms = sorted({arm for arm, _ in self._seeds}, key=in_order)
        rows = results.cells.drop_duplicates("arm").to_dict("records")
        self._labels = {arm_of(row): row["arm"] for row in rows}
        table = aggregate(results.runs, by=["arm"])
        self._rows = {
            (row.arm, row.metric, row.dataset): Score(
                100 * row.mean, 100 * row.std, row.seeds, row.subjects
            )
            for row in table.itertuples()
        }
        self.lacking = _lacking(results)
        self.people = _people(results)

    def label(self, arm: Arm) -> str | None:
        """Return what ``Results.cells`` calls an arm; None where it has no result."""
        return self._labels.get(arm)

    def datasets(self, arm: Arm) -> set[str]:
        """Return the datasets on which an arm has a result."""
        return {dataset for other, dataset in self._seeds if other == arm}

    def datasets_of(self, arms: Iterable[Arm]) -> tuple[str, ...]:
        """Return the datasets on which any of some arms has a result, sorted."""
        return tuple(sorted(set().union(*map(self.datasets, arms))))

    def settings(self, arms: Iterable[Arm]) -> list[Setting]:
        """Return the settings of those arms that have a result, in the order of the paper."""
        return [*dict.fromkeys((arm.model, arm.balanced) for arm in sorted(arms, key=in_order))]

    def seeds(self, arm: Arm, dataset: str) -> set[int]:
        """Return the seeds of an arm's results on a dataset."""
        return self._seeds.get((arm, dataset), set())

    def score(self, arm: Arm, metric: str, dataset: str, over: Iterable[str]) -> Score | None:
        """Look a mean up.

        Parameters
        ----------
        arm : Arm
        metric : str
        dataset : str
            A cohort, or one of the two means.
        over : iterable of str
            The datasets that a mean must be over; an arm that lacks one of them has none.
        """
        found = self._rows.get((self.label(arm), metric, dataset))
        if found is None or found.mean != found.mean:
            return None
        if dataset in MEANS and any(self.score(arm, metric, name, ()) is None for name in over):
            return None
        return found


def in_order(arm: Arm) -> tuple:
    """Return what sorts arms as the paper does: norms in its order, all subjects first."""
    size = (0, 0) if arm.balanced == ALL else (1, -int(arm.balanced))
    places = model_place(arm.model), size, norm_place(arm.norm)
    return *places, arm.filter_size or 0, arm.norm_depth or 0


def protocol_arm(model: str, norm: str, balanced: int | str) -> Arm:
    """Return an arm with the filter size and depth of the protocol."""
    return Arm(
        model,
        norm,
        PROTOCOL_FILTER if norm in WITH_FILTER else None,
        PROTOCOL_DEPTH if norm in WITH_DEPTH else None,
        balanced,
    )


def arm_of(row: Any) -> Arm:
    """Return the arm of a row of ``Results.cells``."""
    model, norm, *sizes = (row[name] for name in ARM)
    filter_size, depth, balanced = (None if pd.isna(size) else int(size) for size in sizes)
    return Arm(model, norm, filter_size, depth, balanced or ALL)


def _seeds(results: Results) -> dict[tuple[Arm, str], set[int]]:
    found: dict[tuple[Arm, str], set[int]] = {}
    for row in results.cells.to_dict("records"):
        found.setdefault((arm_of(row), str(row["hold_out"])), set()).add(int(row["seed"]))
    return found


def _lacking(results: Results) -> dict[tuple[Arm, str], set[int]]:
    """Return the seeds that were asked for and have no result, by arm and dataset."""
    lacking: dict[tuple[Arm, str], set[int]] = {}
    for cell in results.unfinished:
        arm = arm_of(cell_row(cell))
        lacking.setdefault((arm, cell.hold_out), set()).add(cell.seed)
    return lacking


def _people(results: Results) -> pd.DataFrame:
    """Return by cohort how many subjects there are, and how many ``lack`` a stage."""
    people = results.subjects[["cohort", "subject", "missing_stages"]]
    people = people.groupby(["cohort", "subject"])["missing_stages"].max().gt(0)
    return people.groupby("cohort").agg(subjects="size", lack="sum")
