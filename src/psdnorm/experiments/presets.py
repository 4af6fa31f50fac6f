"""The paper's experiments by name, from ``presets.yaml``."""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from psdnorm.batches import window_starts
from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import H200, Amount
from psdnorm.experiments.grid import Axes, complete, grid_of, read_blocks
from psdnorm.runtime import read_yaml
from psdnorm.training import Run

# subjects and recordings, from the paper's table of datasets
PAPER_COHORTS = {
    "ABC": (44, 117),
    "CCSHS": (515, 515),
    "CFS": (681, 681),
    "CHAT": (1230, 1635),
    "HPAP": (166, 166),
    "MASS": (61, 61),
    "MROS": (2101, 2698),
    "PHYS": (70, 132),
    "SHHS": (5730, 8271),
    "SOF": (434, 434),
}
_NIGHT_EPOCHS = 1000  # assumed: 8 h 20 min
_SEQUENCES = len(window_starts(_NIGHT_EPOCHS))
_VALIDATION = 0.2


@dataclass(frozen=True)
class Preset:
    """An experiment of the paper."""

    name: str
    shows: str  # the figures and tables of the paper that it reproduces
    blocks: tuple[Axes, ...] = ()  # empty if it is not a grid
    command: str = ""  # command to run if it is not a grid

    def runs(
        self,
        hold_outs: Sequence[str] = tuple(PAPER_COHORTS),
        seeds: Sequence[int] | None = None,
        **narrowed: Collection,
    ) -> list[Run]:
        """Return the runs of the experiment, or a subset.

        >>> len(paper_presets()["low-data"].runs(["CHAT"], seeds=[0], norm=["batch", "psd"]))
        3
        """
        runs = grid_of(
            replace(axes, hold_outs=tuple(hold_outs), seeds=tuple(seeds or axes.seeds))
            for axes in self.blocks
        )
        for name, wanted in narrowed.items():
            has = {getattr(run, name) for run in runs}
            if name in ("filter_size", "norm_depth"):
                has.discard(None)
            for value in (each for each in wanted if each not in has):
                known = (str(v or "all") for v in sorted(has, key=lambda v: (v is None, v)))
                raise ArgumentError(
                    f"{name} is {value or 'all'}, expected of preset {self.name} one of "
                    f"{', '.join(known)}"
                )
            kept = {*wanted} if name == "balanced" else {*wanted, None}
            runs = [run for run in runs if getattr(run, name) in kept]
        return complete(runs)

    @property
    def gpu_hours(self) -> float:
        """Estimated hours on one H200 with the paper's ten cohorts."""
        seconds = (paper_amount(c).seconds(c, H200[c.model]) for c in self.runs())
        return sum(seconds) / 3600

    @property
    def trainings(self) -> int:
        """Number of runs that are trained, with the paper's ten cohorts."""
        return sum(not run.is_adapted for run in self.runs())


@functools.cache
def paper_presets() -> dict[str, Preset]:
    """Return the paper's experiments by name, from ``presets.yaml``."""
    path = Path(__file__).with_suffix(".yaml")
    found = {}
    for name, document in read_yaml(path).items():
        blocks = read_blocks(document["grid"], tuple(PAPER_COHORTS)) if "grid" in document else []
        found[name] = Preset(name, document["shows"], tuple(blocks), document.get("command", ""))
    shows = "all of the above that are grids; runs that they share are done once"
    blocks = [axes for preset in found.values() for axes in preset.blocks]
    return {**found, "paper": Preset("paper", shows, tuple(blocks))}


def preset_named(name: str) -> Preset:
    """Return a preset that is a grid; raise for others."""
    preset = paper_presets().get(name)
    if preset is None:
        raise ArgumentError(f"preset is {name!r}, expected one of {', '.join(paper_presets())}")
    if not preset.blocks:
        raise ArgumentError(f"preset {name} is not a grid: run {preset.command}")
    return preset


def paper_amount(run: Run) -> Amount:
    """Return the number of sequences of a run with the paper's ten cohorts."""
    nights = 0.0  # subjects of balanced@N are assumed to have their cohort's mean number
    for cohort, (subjects, recordings) in PAPER_COHORTS.items():
        if cohort != run.hold_out:
            nights += min(run.balanced or subjects, subjects) * recordings / subjects
    learned = nights * _SEQUENCES
    test = PAPER_COHORTS[run.hold_out][1] * _SEQUENCES
    return Amount((1 - _VALIDATION) * learned, _VALIDATION * learned, test)
