"""Training curves: losses by step, of every cell of every norm."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from psdnorm.errors import StoreError
from psdnorm.present.figure import CannotDraw, Drawing, panels
from psdnorm.present.style import look_of
from psdnorm.report.figures.comparison import Comparison
from psdnorm.report.naming import listed
from psdnorm.training.adabn import ADABN
from psdnorm.training.run_logs import HISTORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 12  # of a norm
_TITLE = "Training curves"
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
                missing.append(f"{_TITLE} ({comparison.setting}): {error}.")
        if found:
            histories[norm] = found
    if not histories:
        raise CannotDraw(
            f"{_TITLE} ({comparison.setting}): no cell has a {HISTORY} that can be read."
        )
    columns = min(len(histories), 4)
    canvas, axes = panels(
        len(histories), columns=4, width=2.5 * columns + 1, height=2.3, sharex=True, sharey=True
    )
    for panel, (norm, found) in zip(axes, histories.items(), strict=True):
        _draw(panel, found, norm)
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
        title=f"{_TITLE}: {comparison.setting}",
        words=_words(histories, comparison.labels),
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


def _draw(axes: "Axes", histories: dict[str, pd.DataFrame], norm: str) -> None:
    colour = look_of(norm).colour
    thin: dict[str, Any] = {"color": colour, "lw": 0.8, "alpha": 0.7}
    for name, history in histories.items():
        axes.plot(history["step"], history["train_loss"], ls=_DASHED, label=f"train {name}", **thin)
        axes.plot(history["step"], history["validation_loss"], label=f"validation {name}", **thin)
        best = history["validation_loss"].idxmin()
        lowest = history.loc[best]
        axes.plot(lowest["step"], lowest["validation_loss"], "o", ms=3, color=colour)


def _words(histories: dict[str, dict[str, pd.DataFrame]], labels: dict[str, str]) -> str:
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
