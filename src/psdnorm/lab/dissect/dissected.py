"""What a dissection came to: balanced accuracy lost, by norm, kind of shift and strength."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import psdnorm
from psdnorm.errors import ArgumentError
from psdnorm.evaluation import read_scores, subject_metrics
from psdnorm.lab.dissect.dissection import Dissection
from psdnorm.lab.dissect.settings import begun_with
from psdnorm.lab.dissect.troubles import KINDS, UNSHIFTED, Condition, Kind
from psdnorm.report import norm_place
from psdnorm.training import SCORES, SIZES, Run, setting_name

CONFIDENCE = 0.95
_DRAWS = 10_000
_SHOWN = 0.05  # points: less is 0.0 in every number that is shown
CASE = ["kind", "strength"]


@dataclass(frozen=True, eq=False)
class Losses:
    """Accuracies of every network, subject and condition, and what was lost by each shift."""

    # arm, training (cohort held out and seed), kind, strength, subject and balanced_accuracy,
    # a share; one row for each prediction of a subject
    accuracies: pd.DataFrame
    names: dict[str, str]  # what people call the arms, in the order of the paper
    recipe: str  # its name
    subjects: int  # that were to be simulated
    # that were asked for, whether or not anybody has predicted them
    conditions: tuple[Condition, ...] = ()
    version: str = psdnorm.__version__  # of psdnorm, which predicted

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Points lost by each subject of each training: a row of ``accuracies``, and ``lost``."""
        keys = ["arm", "training", "subject"]
        is_plain = self.accuracies["kind"] == UNSHIFTED.kind
        plain = self.accuracies[is_plain].set_index(keys)["balanced_accuracy"].rename("unshifted")
        shifted = self.accuracies[~is_plain].join(plain, on=keys)
        shifted["lost"] = 100 * (shifted["unshifted"] - shifted["balanced_accuracy"])
        return shifted.dropna(subset="lost").reset_index(drop=True)

    @cached_property
    def by_subject(self) -> pd.DataFrame:
        """Points lost, mean over trainings: rows by kind, strength, subject; a column per arm."""
        table = self.pairs.pivot_table("lost", [*CASE, "subject"], "arm", aggfunc="mean")
        return table.reindex(columns=[arm for arm in self.names if arm in table])

    @cached_property
    def matrix(self) -> pd.DataFrame:
        """The matrix, one row for each arm, kind and strength."""
        rows = []
        cases = ordered_cases(self.pairs[CASE].itertuples(index=False, name=None))
        groups = dict(list(self.pairs.groupby(["arm", *CASE])))
        for kind, strength in cases:
            for arm in self.names:
                if (arm, kind, strength) in groups:
                    rows.append(self._row(arm, kind, strength, groups[arm, kind, strength]))
        return pd.DataFrame(rows)

    def _row(self, arm: str, kind: str, strength: float, pairs: pd.DataFrame) -> dict[str, Any]:
        by_subject = pairs.groupby("subject")[["lost", "unshifted", "balanced_accuracy"]].mean()
        by_training = pairs.groupby("training")["lost"].mean()
        low, high = interval(by_subject["lost"].to_numpy())
        return {
            "arm": arm,
            "norm": self.names[arm],
            "kind": kind,
            "strength": strength,
            "unit": KINDS[kind].unit,
            "lost": by_subject["lost"].mean(),
            "low": low,
            "high": high,
            "seeds_sd": by_training.std(ddof=1),
            "unshifted": 100 * by_subject["unshifted"].mean(),
            "shifted": 100 * by_subject["balanced_accuracy"].mean(),
            "subjects": len(by_subject),
            "trainings": len(by_training),
        }

    def kinds(self) -> list[Kind]:
        """Return the kinds that were looked at, in order."""
        return [KINDS[name] for name in dict.fromkeys(self.matrix["kind"])]

    def arms(self) -> list[str]:
        """Return the arms that have a row in the matrix, in order."""
        there = set(self.matrix["arm"])
        return [arm for arm in self.names if arm in there]


def read_losses(dissection: Dissection) -> Losses:
    """Read what was predicted so far."""
    tables = [
        _read(dissection, cell, condition)
        for cell in dissection.cells
        for condition in dissection.conditions
        if dissection.is_done(cell, condition)
    ]
    names = arm_names(dissection.cells)
    recipe = dissection.recipe.name
    empty = pd.DataFrame({"kind": []})
    found = Losses(
        pd.concat(tables) if tables else empty,
        names,
        recipe,
        dissection.subjects,
        dissection.conditions,
        str(begun_with(dissection.out).get("psdnorm")),
    )
    plain = (found.accuracies["kind"] == UNSHIFTED.kind).sum()
    if plain in (0, len(found.accuracies)) or found.pairs.empty:
        raise ArgumentError(
            f"{dissection.out} has no network that predicted the same subjects with and without a "
            "shift"
        )
    return found


def arm_names(cells: Sequence[Run]) -> dict[str, str]:
    """Return what people call the arms of some cells; with what tells them apart, of each.

    >>> arm_names([Run("usleep", "psd"), Run("usleep", "batch", seed=1)])
    {'usleep batch @all': 'BatchNorm', 'usleep psd f5 d3 @all': 'PSDNorm'}
    >>> list(arm_names([Run("usleep", "psd"), Run("usleep", "psd", filter_size=17)]).values())
    ['PSDNorm (f = 5)', 'PSDNorm (f = 17)']
    """
    several = len({(cell.model, cell.balanced) for cell in cells}) > 1
    names = {}
    for cell in sorted(cells, key=_place):
        same = [other for other in cells if other.norm == cell.norm]
        said = [size for size in SIZES if len({getattr(other, size) for other in same}) > 1]
        name = cell.arm.named(said)
        where = f", {setting_name(cell.model, cell.balanced)}" if several else ""
        names[cell.label] = f"{name}{where}"
    return names


def _place(cell: Run) -> tuple:
    sizes = cell.arm.filter_size or 0, cell.norm_depth or 0
    return cell.model, cell.balanced or 0, norm_place(cell.norm), *sizes


def interval(values: NDArray[np.float64], seed: int = 0) -> tuple[float, float]:
    """Return a bootstrap interval of a mean over subjects, between percentiles of the draws."""
    if len(values) < 2:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).integers(0, len(values), (_DRAWS, len(values)))
    tails = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values[draws].mean(axis=1), (tails, 100 - tails))
    return float(low), float(high)


def is_beyond_noise(lost: float, low: float, high: float) -> bool:
    """Tell whether a loss, or a gain, is surely one, and large enough to be seen in its number.

    >>> is_beyond_noise(0.2, 0.1, 0.3), is_beyond_noise(0.2, -0.1, 0.5)
    (True, False)
    >>> is_beyond_noise(0.01, 0.005, 0.02)
    False
    """
    return (low > 0 or high < 0) and abs(lost) >= _SHOWN


def ordered_cases(cases: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return kinds and strengths, each once: kinds as they are listed, mild before severe."""
    kinds = list(KINDS)
    return sorted(
        {*cases}, key=lambda case: (kinds.index(case[0]), abs(case[1] - KINDS[case[0]].neutral))
    )


def _read(dissection: Dissection, cell: Run, condition: Condition) -> pd.DataFrame:
    scores = subject_metrics(read_scores(dissection.folder(cell, condition) / SCORES))
    return scores[["subject", "balanced_accuracy"]].assign(
        arm=cell.label,
        training=f"{cell.hold_out}, seed {cell.seed}",
        kind=condition.kind,
        strength=condition.strength,
    )
