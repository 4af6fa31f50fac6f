"""Nights as a network saw them: the probability of each stage over time, below the true stages."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from psdnorm.constants import STAGES
from psdnorm.errors import StoreError
from psdnorm.evaluation import EPOCH, PROBABILITIES, balanced_accuracy, confusion_matrix
from psdnorm.present import STAGE_COLOURS, CannotDraw, Drawing, new_canvas
from psdnorm.report.figures.comparison import SCORE, Comparison
from psdnorm.report.results import Results
from psdnorm.runtime import listed
from psdnorm.training import PREDICTIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = "Best, median and worst night"
_COLUMNS = [*EPOCH, "recording", "central", "true", *PROBABILITIES]
_STACK = ("N3", "N2", "N1", "REM", "W")  # from the bottom
STAGE_LEVELS = {"W": 4, "REM": 3, "N1": 2, "N2": 1, "N3": 0}  # of a hypnogram
_EPOCH_S = 30
_PREFERRED = ("psd", "psd-white")


@dataclass(frozen=True)
class ShownNight:
    """A night to show.

    Attributes
    ----------
    rank : str
        "best", "median" or "worst".
    cohort, subject, recording : str
    score : float
        Balanced accuracy of its central epochs.
    true : ndarray of int, (E,)
    probabilities : ndarray of float, (E, 5)
    """

    rank: str
    cohort: str
    subject: str
    recording: str
    score: float
    true: np.ndarray
    probabilities: np.ndarray


def draw_hypnodensity(compared: Iterable[Comparison]) -> Drawing:
    """Draw a night of the best, the median and the worst subject whose predictions were kept.

    Parameters
    ----------
    compared : iterable of Comparison
        The first one that has predictions is shown, PSDNorm's before those of other norms.

    Returns
    -------
    Drawing
        Two panels per night: the line "true stage", and areas labelled with the stages.
    """
    chosen = next(filter(None, map(_with_predictions, compared)), None)
    if chosen is None:
        raise CannotDraw(
            f"{_TITLE}: no predictions were kept (psdnorm lodo --keep predictions keeps them)."
        )
    comparison, norm, results = chosen
    nights, missing = _nights(results)
    others = _others_nights(comparison, norm)
    if not nights:
        raise CannotDraw(f"{_TITLE}: no predictions can be read: {'; '.join(missing)}.")
    canvas = new_canvas(8.5, 2.15 * len(nights) + 0.7)
    axes = canvas.subplots(2 * len(nights), height_ratios=[1, 1.7] * len(nights))
    for place, night in enumerate(nights):
        above, below = axes[2 * place : 2 * place + 2]
        _draw_true(above, night)
        draw_probabilities(below, night.probabilities, _edges_h(night))
    axes[-1].set_xlabel("time from the start of the recording (h)")
    handles, names = axes[1].get_legend_handles_labels()
    canvas.legend(
        handles[::-1], names[::-1], loc="outside right center", title="probability", fontsize=8
    )
    seed = results.cells["seed"].iloc[0]
    return Drawing(
        name=f"nights-{comparison.key}",
        title=f"{_TITLE}: {comparison.labels[norm]}, {comparison.setting}",
        words=" ".join(_words(night) for night in nights),
        caption="Above: stages as scored; below: probabilities, stacked. Subjects are ranked by "
        f"balanced accuracy among all {len(results.subjects):,} held-out subjects of seed {seed} "
        "whose predictions were kept; of a subject with several nights, the best, the middle and "
        f"the worst is shown. Numbers are of the night's central epochs. {others}".rstrip(),
        canvas=canvas,
        missing=[
            *(f"{_TITLE}: {reason}." for reason in missing),
            *([f"{_TITLE}: {others}"] if others else []),
        ],
    )


def _others_nights(comparison: Comparison, shown: str) -> str:
    """Say what PSDNorm's nights need, where another norm's are shown for lack of them."""
    lacking = [comparison.labels[norm] for norm in _PREFERRED if norm in comparison.labels]
    if shown in _PREFERRED or not lacking:
        return ""
    return (
        f"{comparison.labels[shown]} is shown, whatever norm is best: nights of {listed(lacking)} "
        "need psdnorm lodo --keep predictions."
    )


def _with_predictions(comparison: Comparison) -> tuple[Comparison, str, Results] | None:
    """Return the norm to show and its cells of one seed, the seed that kept most."""
    cells = comparison.results.cells
    kept = cells[[(Path(folder) / PREDICTIONS).exists() for folder in cells["folder"]]]
    order = [*_PREFERRED, *comparison.labels]
    norm = next((name for name in order if (kept["norm"] == name).any()), None)
    if norm is None:
        return None
    own = kept[kept["norm"] == norm]
    seed = own["seed"].value_counts().sort_index().idxmax()
    own = own[own["seed"] == seed]
    results = comparison.results
    subjects = results.subjects[results.subjects["cell"].isin(own["cell"])]
    fields = (results.lacking, results.config, results.simulated)
    return comparison, norm, Results(results.path, own, subjects, *fields)


def _nights(results: Results) -> tuple[list[ShownNight], list[str]]:
    """Return the nights to show, and why cells whose predictions are damaged are left out."""
    subjects = results.subjects.dropna(subset=[SCORE])
    folders = results.cells.set_index("cell")["folder"]
    missing: list[str] = []
    while len(subjects):
        ordered = subjects.sort_values([SCORE, "cohort", "subject"], ascending=[False, True, True])
        nights = []
        for rank, place in _places(len(ordered)).items():
            row = ordered.iloc[place]
            path = folders[row["cell"]] / PREDICTIONS
            try:
                nights.append(_night(path, rank, row["cohort"], row["subject"]))
            except StoreError as error:
                missing.append(str(error))
                subjects = subjects[subjects["cell"] != row["cell"]]
                break
        else:
            return nights, missing
    return [], missing


def _places(n: int) -> dict[str, int]:
    if n == 1:
        return {"only": 0}
    return {"best": 0, "worst": 1} if n == 2 else {"best": 0, "median": n // 2, "worst": n - 1}


def _night(path: Path, rank: str, cohort: str, subject: str) -> ShownNight:
    """Return a night of a subject: its best, worst or middle one, as its rank is."""
    table = read_subject(path, cohort, subject)
    found = []
    for recording, own in table.groupby("recording", sort=True):
        night = own.sort_values("epoch")
        p = night[PROBABILITIES].to_numpy(float)
        true = night["true"].to_numpy(int)
        counted = np.where(night["central"], true, -1)
        score = float(balanced_accuracy(confusion_matrix(counted, p.argmax(axis=1))))
        found.append(ShownNight(rank, cohort, subject, str(recording), score, true, p))
    known = [night for night in found if np.isfinite(night.score)] or found
    known.sort(key=lambda night: -night.score)
    return known[{"best": 0, "worst": -1}.get(rank, len(known) // 2)]


def read_subject(path: Path, cohort: str, subject: str) -> pd.DataFrame:
    """Read the predictions of one subject, without reading those of others.

    Parameters
    ----------
    path : Path
        ``predictions.parquet`` of a cell.
    cohort, subject : str

    Returns
    -------
    DataFrame
        One row per epoch.
    """
    wanted = [("cohort", "=", cohort), ("subject", "=", subject)]
    try:
        schema = pq.read_schema(path)
        lacking = [name for name in _COLUMNS if name not in schema.names]
        if lacking:
            raise StoreError(f"{path} lacks the columns {', '.join(lacking)}")
        # each night is a row group of its own, and its statistics name the subject
        table = pq.read_table(path, columns=_COLUMNS, filters=wanted).to_pandas()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} cannot be read as Parquet: {reason:.80}") from error
    if table.empty:
        raise StoreError(f"{path} has no epoch of {cohort} {subject}")
    if not np.isfinite(table[PROBABILITIES].to_numpy()).all():
        raise StoreError(f"{path} has probabilities of {cohort} {subject} that are not finite")
    return table


def _draw_true(axes: "Axes", night: ShownNight) -> None:
    draw_stages(axes, night.true, _edges_h(night), label="true stage")
    axes.tick_params(labelbottom=False)
    axes.set_title(
        f"{night.rank}: {night.cohort} {night.subject}, balanced accuracy "
        f"{100 * night.score:.2f} %",
        loc="left",
    )


def draw_stages(axes: "Axes", stages: np.ndarray, edges: np.ndarray, label: str) -> None:
    """Draw a hypnogram; unscored epochs are gaps.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    stages : ndarray of int, (E,)
    edges : ndarray, (E + 1,)
        Where epochs begin and end.
    label : str
    """
    levels = np.array([STAGE_LEVELS[stage] for stage in STAGES], float)
    y = np.where(stages >= 0, levels[stages], np.nan)
    axes.stairs(y, edges, baseline=None, color="black", lw=0.9, label=label)
    axes.set_yticks(list(STAGE_LEVELS.values()), list(STAGE_LEVELS))
    axes.set_ylim(-0.5, 4.5)
    axes.set_xlim(edges[0], edges[-1])


def draw_probabilities(axes: "Axes", probabilities: np.ndarray, edges: np.ndarray) -> None:
    """Draw the probabilities of stages on top of each other, each area labelled with its stage.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    probabilities : ndarray of float, (E, 5)
        Epochs that are NaN are gaps.
    edges : ndarray, (E + 1,)
        Where epochs begin and end.
    """
    below = np.zeros(len(probabilities))
    for stage in _STACK:
        above = below + 100 * probabilities[:, STAGES.index(stage)]
        axes.stairs(
            above,
            edges,
            baseline=below,
            fill=True,
            color=STAGE_COLOURS[stage],
            lw=0,
            label=stage,
            zorder=-1,
        )
        below = above
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 50, 100])
    axes.set_rasterization_zorder(0)  # all areas in one image
    axes.set_ylabel("probability (%)")


def _edges_h(night: ShownNight) -> np.ndarray:
    return np.arange(len(night.true) + 1) * _EPOCH_S / 3600


def _words(night: ShownNight) -> str:
    hours = len(night.true) * _EPOCH_S / 3600
    scored = night.true >= 0
    right = (night.probabilities.argmax(axis=1) == night.true)[scored]
    agreed = f", {100 * right.mean():.2f} % of all its scored epochs right" if len(right) else ""
    return (
        f"The {night.rank} one, {night.cohort} {night.subject}, of {hours:.2f} hours: balanced "
        f"accuracy {100 * night.score:.2f} %{agreed}."
    )
