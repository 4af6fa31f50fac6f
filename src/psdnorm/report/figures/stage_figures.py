"""Scores by stage, calibration and learning curves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from psdnorm.constants import STAGES
from psdnorm.errors import StoreError
from psdnorm.evaluation import MEAN_DATASET, CalibrationBins, bins_of, expected_calibration_error
from psdnorm.present import CannotDraw, Drawing, look_of, new_canvas, panels
from psdnorm.report.figures.comparison import BATCH, Comparison, shortened
from psdnorm.runtime import listed
from psdnorm.training import ADABN, HISTORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

SEEDS_LEFT_OUT = "Seeds that lack a cohort are left out."
_TITLE = "F1 of each stage, difference to BatchNorm"


def draw_stages(comparison: Comparison) -> Drawing:
    """Draw the difference to BatchNorm in each stage's F1, with its spread over seeds.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One container of error bars per norm, labelled with its name, a point for each stage.
    """
    if BATCH not in comparison.labels:
        raise CannotDraw(f"{_TITLE} ({comparison.setting}): BatchNorm has no result.")
    comparison.needs_two_norms(_TITLE)
    seeds = comparison.contest.seeds[MEAN_DATASET].index
    if seeds.empty:
        raise CannotDraw(
            f"{_TITLE} ({comparison.setting}): there is no seed in which every norm has all "
            "cohorts."
        )
    runs = comparison.runs
    whole = runs[runs["seed"].isin(seeds)]
    left_out = "" if len(whole) == len(runs) else SEEDS_LEFT_OUT
    return by_stage(
        whole,
        BATCH,
        comparison.labels,
        name=f"stages-{comparison.key}",
        title=f"{_TITLE}: {comparison.setting}",
        remarks=f"{left_out} {comparison.remarks}".strip(),
    )


def by_stage(
    runs: pd.DataFrame,
    reference: str,
    labels: dict[str, str],
    *,
    name: str,
    title: str,
    remarks: str,
) -> Drawing:
    """Draw the differences to a reference in each stage's F1.

    Parameters
    ----------
    runs : DataFrame
        ``norm``, ``seed``, ``cohort`` and F1 as shares, a row for each subject; the same subjects
        for every norm.
    reference : str
    labels : dict of str to str
        What norms and reference are called.
    name, title : str
    remarks : str
        For the end of the caption.
    """
    found = _differences(runs, reference, [norm for norm in labels if norm != reference])
    spread_said = "one seed has no ±"
    if runs["seed"].nunique() > 1:
        spread_said = "bars are ± the standard deviation over seeds (ddof = 1)"
    return Drawing(
        name=name,
        title=title,
        words=_words(found, labels, labels[reference]),
        caption=f"Mean(Dataset) of subjects' F1 minus that of {labels[reference]} in the same "
        f"seed; {spread_said}. {remarks}".strip(),
        canvas=_draw(found, labels),
    )


def _draw(known: dict[str, pd.DataFrame], labels: dict[str, str]) -> "Canvas":
    canvas = new_canvas(8, 3.6)
    axes = canvas.subplots()
    step = 0.8 / len(known)
    for place, (norm, table) in enumerate(known.items()):
        look = look_of(norm)
        at = np.arange(len(STAGES)) + step * (place - (len(known) - 1) / 2)
        spread = table.std(ddof=1).fillna(0).to_numpy()
        axes.errorbar(
            at,
            table.mean().to_numpy(),
            yerr=spread,
            fmt=look.marker,
            color=look.colour,
            ms=5,
            capsize=2,
            lw=1,
            label=labels[norm],
        )
    axes.axhline(0, color="black", lw=0.8, ls="--")
    for border in np.arange(len(STAGES) - 1) + 0.5:
        axes.axvline(border, color="#DDDDDD", lw=0.6)
    axes.set_xticks(range(len(STAGES)), STAGES)
    axes.set_xlim(-0.5, len(STAGES) - 0.5)
    axes.set_ylabel("difference in F1 (points)")
    canvas.legend(loc="outside right center", handletextpad=0.3)
    return canvas


def _differences(runs: pd.DataFrame, reference: str, norms: list[str]) -> dict[str, pd.DataFrame]:
    """Return the differences of Mean(Dataset) in points, by norm: seeds by stages."""
    columns = [f"f1_{stage}" for stage in STAGES]
    means = runs.groupby(["norm", "seed", "cohort"])[columns].mean()  # NaN aside
    means = 100 * means.set_axis(list(STAGES), axis="columns")
    return {
        # cohort by cohort: one without a stage under either norm counts for neither
        norm: (means.loc[norm] - means.loc[reference]).groupby(level="seed").mean()
        for norm in norms
    }


def _words(known: dict[str, pd.DataFrame], labels: dict[str, str], reference: str) -> str:
    sentences = []
    for norm, table in known.items():
        spread = table.std(ddof=1)
        each = listed(
            [
                f"{stage} {table[stage].mean():+.2f}"
                + (f" ± {spread[stage]:.2f}" if np.isfinite(spread[stage]) else "")
                for stage in STAGES
            ]
        )
        sentences.append(f"{labels[norm]}, points of F1 over {reference}: {each}.")
    return " ".join(sentences)


_RELIABILITY_TITLE = "Calibration"


def draw_calibration(comparison: Comparison) -> Drawing:
    """Draw accuracy over confidence for each norm.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel per norm; the line labelled "accuracy" has a point for each bin with epochs.
    """
    bins = {norm: _pooled(comparison, norm) for norm in comparison.labels}
    known = {norm: each for norm, each in bins.items() if each.counts.sum()}
    if not known:
        raise CannotDraw(f"{_RELIABILITY_TITLE} ({comparison.setting}): no epoch was scored.")
    canvas, axes = panels(len(known), columns=5, width=9, height=2.2, sharex=True, sharey=True)
    if len(known) < 4:
        canvas.set_size_inches(2.6 * len(known) + 0.8, 3.1)
    errors = {norm: float(expected_calibration_error(each)) for norm, each in known.items()}
    for panel, (norm, each) in zip(axes, known.items(), strict=True):
        _reliability_draw(panel, each, norm)
        panel.set_title(f"{comparison.labels[norm]}\nECE {100 * errors[norm]:.2f} %", loc="left")
    canvas.supxlabel("confidence (%)", fontsize=9)
    canvas.supylabel("accuracy (%)", fontsize=9)
    said = [f"{comparison.labels[norm]} {100 * error:.2f} %" for norm, error in errors.items()]
    unlike = shortened(_unlike(comparison))
    if comparison.contest.lacking:
        unlike.append("Cells count here, too, that the verdict leaves out.")
    return Drawing(
        name=f"calibration-{comparison.key}",
        title=f"{_RELIABILITY_TITLE}: {comparison.setting}",
        words="Accuracy over confidence in 15 bins; the expected calibration error (ECE) of all "
        f"epochs together is {listed(said)}.",
        caption="Epochs of all held-out subjects and seeds together, so that large cohorts weigh "
        "most. Bars are the share of epochs in a bin; points below the diagonal are too "
        f"sure. {' '.join([*unlike, *comparison.left_out])}".strip(),
        canvas=canvas,
    )


def _pooled(comparison: Comparison, norm: str) -> CalibrationBins:
    bins = bins_of(comparison.results.of(norm=norm).subjects)
    return CalibrationBins(
        bins.counts.sum(axis=0), bins.correct.sum(axis=0), bins.confidence_sums.sum(axis=0)
    )


def _unlike(comparison: Comparison) -> list[str]:
    """Name the norms that lack cells which another has: other people are in their epochs."""
    cells = comparison.results.cells
    places = cells.groupby("norm").apply(
        lambda own: {*zip(own["hold_out"], own["seed"], strict=True)}, include_groups=False
    )
    any_has = set().union(*places)
    return [
        f"{label} has {len(places[norm])} of {len(any_has)} cells."
        for norm, label in comparison.labels.items()
        if places[norm] != any_has
    ]


def _reliability_draw(axes: "Axes", bins: CalibrationBins, norm: str) -> None:
    look = look_of(norm)
    edges = 100 * np.linspace(0, 1, len(bins.counts) + 1)
    share = 100 * bins.counts / bins.counts.sum()
    axes.bar(edges[:-1], share, np.diff(edges), align="edge", color="#CCCCCC", label="epochs")
    axes.plot([0, 100], [0, 100], color="black", lw=0.8, ls="--")
    used = bins.counts > 0
    axes.plot(
        100 * bins.mean_confidence[used],
        100 * bins.accuracy[used],
        **look.styled(ms=3.5, lw=1, label="accuracy"),
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_xticks([0, 50, 100])
    axes.set_box_aspect(1)


MOST_CELLS = 12  # of a norm
_LEARNING_TITLE = "Training curves"
_DASHED = (0, (3, 2))
_COLUMNS = ["step", "train_loss", "validation_loss"]


def draw_learning(comparison: Comparison) -> Drawing:
    """Draw the training and validation loss of each norm's cells.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    Drawing
        One panel per norm; lines are labelled with "train" or "validation" and the cell's folder.
    """
    trained = [norm for norm in comparison.labels if not norm.startswith(ADABN)]
    histories, missing, capped = {}, [], []
    for norm in trained:
        folders = _folders(comparison, norm)
        if len(folders) > MOST_CELLS:
            capped.append(f"{comparison.labels[norm]} ({MOST_CELLS} of {len(folders)})")
            folders = [folders[i] for i in np.linspace(0, len(folders) - 1, MOST_CELLS).astype(int)]
        found = {}
        for folder in folders:
            try:
                found[folder.name] = read_history(folder / HISTORY)
            except StoreError as error:
                missing.append(f"{_LEARNING_TITLE} ({comparison.setting}): {error}.")
        if found:
            histories[norm] = found
    if not histories:
        raise CannotDraw(
            f"{_LEARNING_TITLE} ({comparison.setting}): no cell has a {HISTORY} that can be read."
        )
    columns = min(len(histories), 4)
    canvas, axes = panels(
        len(histories), columns=4, width=2.5 * columns + 1, height=2.3, sharex=True, sharey=True
    )
    for panel, (norm, found) in zip(axes, histories.items(), strict=True):
        _learning_draw(panel, found, norm)
        panel.set_title(f"{comparison.labels[norm]} ({len(found)})", loc="left")
    axes[0].set_xlim(left=0)
    axes[0].plot([], [], color="black", ls=_DASHED, lw=0.8, label="training")
    axes[0].plot([], [], color="black", lw=0.8, label="validation")
    canvas.legend(handles=axes[0].lines[-2:], loc="outside right upper", fontsize=8)
    canvas.supxlabel("step", fontsize=9)
    canvas.supylabel("loss (nats)", fontsize=9)
    said = f"Not all cells are drawn: {listed(capped)}. " if capped else ""
    others = [comparison.labels[n] for n in comparison.labels if n not in trained]
    said += f"{listed(others)}: no training of its own, BatchNorm's networks. " if others else ""
    said += " ".join(comparison.left_out)
    return Drawing(
        name=f"learning-{comparison.key}",
        title=f"{_LEARNING_TITLE}: {comparison.setting}",
        words=_learning_words(histories, comparison.labels),
        caption="Weighted cross-entropy. One thin line per cell, that is cohort and seed; dashed: "
        "training, solid: validation, dot: the lowest validation loss, whose weights were kept. "
        f"{said}".strip(),
        canvas=canvas,
        missing=missing,
    )


def read_history(path: Path) -> pd.DataFrame:
    """Read the losses of a run, one row per epoch; refuse what has none.

    Parameters
    ----------
    path : Path
        Of ``history.csv``.
    """
    try:
        table = pd.read_csv(path)
        losses = table[_COLUMNS].astype(float)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise StoreError(f"{path} lacks some of the columns {', '.join(_COLUMNS)}") from error
    except ValueError as error:  # pandas' own are of this kind, too
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path} is not a table of losses: {reason:.80}") from error
    if losses["validation_loss"].notna().sum() == 0:
        raise StoreError(f"{path} has no validation loss")
    return losses


def _folders(comparison: Comparison, norm: str) -> list[Path]:
    cells = comparison.results.of(norm=norm).cells
    return list(cells.sort_values(["seed", "hold_out"])["folder"])


def _learning_draw(axes: "Axes", histories: dict[str, pd.DataFrame], norm: str) -> None:
    colour = look_of(norm).colour
    thin: dict[str, Any] = {"color": colour, "lw": 0.8, "alpha": 0.7}
    for name, history in histories.items():
        axes.plot(history["step"], history["train_loss"], ls=_DASHED, label=f"train {name}", **thin)
        axes.plot(history["step"], history["validation_loss"], label=f"validation {name}", **thin)
        best = history["validation_loss"].idxmin()
        lowest = history.loc[best]
        axes.plot(lowest["step"], lowest["validation_loss"], "o", ms=3, color=colour)


def _learning_words(histories: dict[str, dict[str, pd.DataFrame]], labels: dict[str, str]) -> str:
    sentences = []
    for norm, found in histories.items():
        lowest = [float(each["validation_loss"].min()) for each in found.values()]
        steps = [float(each["step"].max()) for each in found.values()]
        sentences.append(
            f"{labels[norm]}: the lowest validation loss is {np.mean(lowest):.3f} on average over "
            f"{len(found)} cell{'s' * (len(found) != 1)} ({min(lowest):.3f} to {max(lowest):.3f}), "
            f"after {min(steps):,.0f} to {max(steps):,.0f} steps in all."
        )
    return " ".join(sentences)
