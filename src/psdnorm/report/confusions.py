"""Which stages each norm takes for which: confusion matrices of a cohort."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from psdnorm.evaluation.scores import CONFUSION, confusions_of
from psdnorm.models.card import STAGES
from psdnorm.present.page import Part
from psdnorm.report.naming import norm_name


def confusion_matrix(scores: pd.DataFrame) -> NDArray[np.int64]:
    """Sum the confusion matrices of scores, (5, 5): rows are true stages, columns predicted.

    Parameters
    ----------
    scores : DataFrame
        Of ``Results.subjects``.
    """
    return confusions_of(scores[CONFUSION]).sum(axis=0)


def add_confusions(part: Part, scores: pd.DataFrame, arms: dict[str, str], over: str) -> None:
    """Add the confusion matrix of every norm, beside each other.

    Parameters
    ----------
    part : Part
    scores : DataFrame
        Of ``Results.subjects``, with the column ``arm``; those that count in one cohort.
    arms : dict of str to str
        The arm of each norm.
    over : str
        What was summed over, in words.
    """
    matrices = part.part()
    for norm, arm in arms.items():
        own = scores[scores["arm"] == arm]
        if len(own):
            caption = f"{norm_name(norm)}: predicted stages, % of true"
            matrices.matrix(caption, STAGES, _entries(confusion_matrix(own)))
    part.beside(matrices)
    part.text(f"Epochs are summed over {over}; each entry tells their number.", "note")


def _entries(counts: NDArray[np.int64]) -> list[list[tuple[str, str]]]:
    return [
        [(f"{100 * n / total:.1f}" if total else "–", f"{n:,} of {total:,} epochs") for n in row]
        for row, total in zip(counts.tolist(), counts.sum(axis=1).tolist(), strict=True)
    ]
