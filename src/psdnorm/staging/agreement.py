"""How far a staging and a human scoring of the same night agree, and where they do not."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psdnorm.errors import ShapeError
from psdnorm.evaluation import metrics
from psdnorm.io import EPOCH_S, STAGES, UNSCORED
from psdnorm.staging.checks import as_probabilities, as_stages, confidence_of
from psdnorm.staging.plain import plain


class Disagreement(NamedTuple):
    """An epoch that was scored otherwise than predicted; ``pandas.DataFrame`` takes a list of them.

    Attributes
    ----------
    epoch : int
        Counted from 0.
    onset_s : int
        Seconds from the start of the recording.
    true, predicted : str
        W, N1, N2, N3 or REM.
    confidence : float
        The probability of the predicted stage; NaN where it is not known.
    """

    epoch: int
    onset_s: int
    true: str
    predicted: str
    confidence: float


@dataclass(frozen=True, eq=False)
class Agreement:
    """Metrics of one night; NaN where they are not defined.

    Attributes
    ----------
    n_compared : int
        Epochs that both score.
    n_left_out : int
        Epochs that at least one of the two leaves unscored.
    accuracy, kappa, balanced_accuracy, macro_f1 : float
        As in :mod:`psdnorm.evaluation.metrics`.
    confusion : ndarray of int64, (5, 5)
        Rows are true stages, columns predicted ones.
    disagreements : list of Disagreement
        Most confident first, then by time.
    """

    n_compared: int
    n_left_out: int
    accuracy: float
    kappa: float
    balanced_accuracy: float
    macro_f1: float
    confusion: NDArray[np.int64]
    disagreements: list[Disagreement]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: None for NaN, disagreements as dicts."""
        fields = dict(vars(self))
        fields["disagreements"] = [epoch._asdict() for epoch in self.disagreements]
        return plain(fields)


def agreement(
    true: ArrayLike, predicted: ArrayLike, probabilities: ArrayLike | None = None
) -> Agreement:
    """Compare a staging with a human scoring, epoch by epoch.

    Parameters
    ----------
    true, predicted : array of int, (E,)
        0…4 as W, N1, N2, N3, REM; -1 where unscored. Epochs that either leaves unscored are not
        compared.
    probabilities : array of float, (E, 5), optional
        Of the prediction; without them confidences are NaN.

    Raises
    ------
    ShapeError, ArgumentError
        If the two differ in length, or are no stages or probabilities.

    Examples
    --------
    >>> found = agreement([0, 2, 2, -1], [0, 2, 1, 4])
    >>> found.n_compared, found.balanced_accuracy
    (3, 0.75)
    >>> found.disagreements[0].true, found.disagreements[0].predicted
    ('N2', 'N1')
    """
    scored, staged = as_stages(true, "true"), as_stages(predicted, "predicted")
    if len(scored) != len(staged):
        raise ShapeError(
            f"true has {len(scored)} epochs and predicted {len(staged)}, expected as many"
        )
    compared = (scored != UNSCORED) & (staged != UNSCORED)
    confusion = metrics.confusion_matrix(scored[compared], staged[compared])
    confidence = np.full(len(staged), np.nan)
    if probabilities is not None:
        confidence = confidence_of(staged, as_probabilities(probabilities, len(staged)))
    return Agreement(
        n_compared=int(compared.sum()),
        n_left_out=int((~compared).sum()),
        accuracy=float(metrics.accuracy(confusion)),
        kappa=float(metrics.cohen_kappa(confusion)),
        balanced_accuracy=float(metrics.balanced_accuracy(confusion)),
        macro_f1=float(metrics.macro_f1(confusion)),
        confusion=confusion,
        disagreements=_disagreements(scored, staged, confidence, compared & (scored != staged)),
    )


def _disagreements(
    true: NDArray[np.int8],
    predicted: NDArray[np.int8],
    confidence: NDArray[np.float64],
    differs: NDArray[np.bool_],
) -> list[Disagreement]:
    epochs = np.flatnonzero(differs)
    # NaN is sorted to the end; a stable sort leaves equals in the order of time
    ordered = epochs[np.argsort(-confidence[epochs], kind="stable")].tolist()
    return [
        Disagreement(
            epoch, EPOCH_S * epoch, STAGES[true[epoch]], STAGES[predicted[epoch]], float(certainty)
        )
        for epoch, certainty in zip(ordered, confidence[ordered], strict=True)
    ]
