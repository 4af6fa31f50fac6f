"""The paper's experiments by name.

What the paper prints is taken from its tables. Where it shows a figure, the points are not in its
text: the filter sizes are the odd ones from 1 to 21, the depths are ours.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from psdnorm.batches import window_starts
from psdnorm.errors import ArgumentError
from psdnorm.experiments.estimate import H200, Amount
from psdnorm.experiments.grid import Axes, complete, grid_of
from psdnorm.training import PAPER_NORMS, Run

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
    """An experiment of the paper.

    Attributes
    ----------
    name : str
    shows : str
        Where it is in the paper.
    blocks : tuple of Axes
        Without cohorts; none where it is not a grid.
    command : str
        What to run instead of a grid.
    """

    name: str
    shows: str
    blocks: tuple[Axes, ...] = ()
    command: str = ""

    def cells(
        self,
        hold_outs: Sequence[str] = tuple(PAPER_COHORTS),
        seeds: Sequence[int] | None = None,
        **narrowed: Collection,
    ) -> list[Run]:
        """Return the cells of the experiment, or some of them.

        >>> len(PRESETS["low-data"].cells(["CHAT"], seeds=[0], norm=["batch", "psd"]))
        3
        """
        cells = grid_of(
            replace(axes, hold_outs=tuple(hold_outs), seeds=tuple(seeds or axes.seeds))
            for axes in self.blocks
        )
        for name, wanted in narrowed.items():
            has = {getattr(cell, name) for cell in cells}
            if name in ("filter_size", "norm_depth"):
                has.discard(None)
            for value in wanted:
                if value not in has:
                    known = ", ".join(str(v or "all") for v in sorted(has, key=_all_last))
                    raise ArgumentError(
                        f"{name} is {value or 'all'}, expected of preset {self.name} one of {known}"
                    )
            kept = {*wanted} if name == "balanced" else {*wanted, None}
            cells = [cell for cell in cells if getattr(cell, name) in kept]
        return complete(cells)

    @property
    def gpu_hours(self) -> float:
        """Hours of one H200 with the paper's ten cohorts."""
        seconds = (paper_amount(c).seconds(c, H200[c.model]) for c in self.cells())
        return sum(seconds) / 3600

    @property
    def trainings(self) -> int:
        """Number of cells that are trained, with the paper's ten cohorts."""
        return sum(not cell.is_adapted for cell in self.cells())


_AT_400 = Axes(balanced=(400,))
PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "table1",
            "balanced accuracy on the left-out datasets with U-Sleep (tab:results); F1 scores, "
            "class-wise F1 and critical differences come from the same cells",
            (Axes(norms=PAPER_NORMS, balanced=(None, 400)),),
        ),
        Preset(
            "cnn-transformer",
            "normalization layers in CNNTransformer (tab:cnntransformer)",
            (
                replace(
                    _AT_400, models=("cnn-transformer",), norms=("batch", "instance", "tma", "psd")
                ),
            ),
        ),
        Preset(
            "filter-size",
            "PSDNorm with varying filter sizes (fig:sensitive)",
            (
                replace(_AT_400, norms=("psd",), filter_sizes=tuple(range(1, 22, 2))),
                replace(_AT_400, norms=("batch", "layer", "instance")),
            ),
        ),
        Preset(
            "training-size",
            "PSDNorm and BatchNorm with varying training set sizes (fig:number_subjects)",
            (
                Axes(
                    norms=("batch", "psd"),
                    filter_sizes=(5, 17),
                    balanced=(40, 100, 200, 400, None),
                ),
            ),
        ),
        Preset(
            "norm-depth",
            "number of layers with PSDNorm (fig:usleep_layers)",
            (
                replace(_AT_400, norms=("psd",), norm_depths=(1, 2, 3, 4, 6, 8, 12)),
                replace(_AT_400, norms=("batch",)),
            ),
        ),
        Preset(
            "whitening",
            "impact of the whitening (tab:whitening)",
            (replace(_AT_400, norms=("batch", "instance", "psd", "psd-white")),),
        ),
        Preset(
            "adabn",
            "comparison with AdaBN (tab:adabn)",
            (replace(_AT_400, norms=(*PAPER_NORMS, "adabn3", "adabn12", "adabnall")),),
        ),
        Preset(
            "low-data",
            "very low data regime, balanced@40 (appendix)",
            (
                Axes(
                    norms=("batch", "layer", "instance", "psd"),
                    filter_sizes=(5, 15),
                    balanced=(40,),
                ),
            ),
        ),
        Preset(
            "timing",
            "computational time of PSDNorm (tab:psdnorm_time)",
            command="python -m benchmarks.step --modes fast",
        ),
    )
}
PRESETS["paper"] = Preset(
    "paper",
    "all of the above that are grids; cells that they share are run once",
    tuple(axes for preset in PRESETS.values() for axes in preset.blocks),
)


def _all_last(value: object) -> tuple:
    return value is None, value


def preset_named(name: str) -> Preset:
    """Return a preset that is a grid; refuse others in one sentence."""
    if name not in PRESETS:
        raise ArgumentError(f"preset is {name!r}, expected one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if not preset.blocks:
        raise ArgumentError(f"preset {name} is not a grid: run {preset.command}")
    return preset


def paper_amount(cell: Run) -> Amount:
    """Return the sequences of a cell with the paper's ten cohorts.

    Nights are taken to have 1,000 epochs, 47 sequences; subjects of balanced@N to have as many
    nights as their cohort's mean.
    """
    nights = 0.0
    for cohort, (subjects, recordings) in PAPER_COHORTS.items():
        if cohort != cell.hold_out:
            nights += min(cell.balanced or subjects, subjects) * recordings / subjects
    learned = nights * _SEQUENCES
    test = PAPER_COHORTS[cell.hold_out][1] * _SEQUENCES
    return Amount((1 - _VALIDATION) * learned, _VALIDATION * learned, test)
